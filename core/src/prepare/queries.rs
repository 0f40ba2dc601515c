//! What an object asks of the kernel, beside its root types: targets of programs, externs, struct_ops types.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::arena::{Arena, Part};
use crate::btf::lookup::{Answers, Prefix, Query};
use crate::btf::strings::essential_len;
use crate::btf::{Kind, TypeId, Types};
use crate::numbers::to_u32;
use crate::object::section_name::{self, AttachBtf};
use crate::object::{Declared, Extern, ExternKind, Function, Map, MapOrigin, Object, ObjectError};
use crate::relo::compat::{Pair, types_are_compat};
use crate::relo::decision::VMLINUX;

use super::PrepareError;

/// Who asks, in the owner of a query: a local root type by its id, or one of these and a number.
pub(super) const OWNER_ATTACH: u32 = 0x4000_0000;

pub(super) const OWNER_EXTERN: u32 = 0x8000_0000;

/// The struct of a struct_ops map, and what the kernel wraps around it.
pub(super) const OWNER_STRUCT_OPS: u32 = 0xa000_0000;

pub(super) const OWNER_STRUCT_OPS_VALUE: u32 = 0xc000_0000;

pub(super) const OWNER_MASK: u32 = 0xe000_0000;

/// What answers the question of a program or an extern that vmlinux does not answer, and in which module.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct InModule {
    pub(super) owner: u32,
    pub(super) id: u32,
    pub(super) module: u16,
    pub(super) is_incompatible: u16,
}

/// For whose sake the kernel's BTF is needed.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Relocations with this local root type.
    Root(TypeId),
    /// The target of this function.
    Attach(usize),
    /// This extern.
    Extern(usize),
    /// The type of this struct_ops map.
    StructOps(usize),
}

/// Room for what modules may answer: the questions of programs and externs that vmlinux leaves open.
pub(super) fn unanswered<'a>(
    object: &Object<'a>,
    declared: &Declared<'a>,
    answers: &Answers<'a>,
    arena: &mut Arena<'a>,
) -> Result<&'a mut [InModule], PrepareError> {
    let mut open = arena.grow::<InModule>(Part::Candidates);
    let entry = |owner: u32| InModule { owner, id: 0, module: VMLINUX, is_incompatible: 0 };
    for (index, function) in declared.programs() {
        let owner = OWNER_ATTACH | to_u32(index);
        let Some(wanted) = attach_btf(object, declared, function) else { continue };
        let is_answered = !answers.of(owner).is_empty();
        if wanted.module.map_or(!is_answered, |module| module != b"vmlinux") {
            open.push(entry(owner))?;
        }
    }
    for (index, ext) in (0u32..).zip(declared.externs) {
        let owner = OWNER_EXTERN | index;
        if extern_query(object, index, ext).is_some() && answers.of(owner).is_empty() {
            open.push(entry(owner))?;
        }
    }
    Ok(open.finish()?)
}

/// The struct of a struct_ops map, without flavour, and `bpf_struct_ops_` with the same name.
pub(super) fn struct_ops_queries(
    object: &Object<'_>,
    local: &Types<'_>,
    index: u32,
    map: &Map,
) -> Result<[Option<Query>; 2], PrepareError> {
    if map.origin() != MapOrigin::StructOps {
        return Ok([None, None]);
    }
    let read = || local.name(&local.get(map.definition())?);
    let name = read().map_err(|error| PrepareError::from(ObjectError::from(error)))?;
    let ask = |prefix: Prefix, owner: u32| {
        let name_at = object.offset_in_file(name);
        Query::new(object.bytes(), name_at, essential_len(name), Kind::Struct, prefix, owner | index)
    };
    Ok([ask(Prefix::Exact, OWNER_STRUCT_OPS), ask(Prefix::StructOps, OWNER_STRUCT_OPS_VALUE)])
}

/// Whether what an extern is declared as goes with what the kernel has (libbpf: `bpf_object__resolve_ksym_var_btf_id`,
/// `bpf_object__resolve_ksym_func_btf_id`).
pub(super) fn extern_is_compatible(local: &Types<'_>, ext: &Extern, target: &Types<'_>, id: TypeId) -> bool {
    let compare = || {
        let declared = local.get(ext.type_id())?.type_id();
        let found = target.get(id)?.type_id();
        let (declared, found) = match ext.kind() {
            ExternKind::TypedKsym => (local.skip_modifiers(declared)?.id(), target.skip_modifiers(found)?.id()),
            _ => (declared, found),
        };
        types_are_compat(&mut Pair::new(local, target), declared, found)
    };
    compare().unwrap_or(false)
}

/// What the kernel's module that `attach_btf` names can be searched by.
pub(super) fn attach_query(
    object: &Object<'_>,
    declared: &Declared<'_>,
    index: usize,
    function: &Function,
) -> Option<Query> {
    let AttachBtf { name, prefix, kind, .. } = attach_btf(object, declared, function)?;
    let owner = OWNER_ATTACH | u32::try_from(index).ok()?;
    Query::new(object.bytes(), object.offset_in_file(name), name.len(), kind, prefix, owner)
}

pub(super) fn attach_btf<'o>(
    object: &Object<'o>,
    declared: &Declared<'_>,
    function: &Function,
) -> Option<AttachBtf<'o>> {
    let section = declared.code.get(function.code())?.section();
    let (name, _) = section_name::split_optional(object.section_name(section));
    section_name::parse(name)?.attach_btf
}

pub(super) fn extern_query(object: &Object<'_>, index: u32, ext: &Extern) -> Option<Query> {
    let kind = match ext.kind() {
        ExternKind::TypedKsym => Kind::Var,
        ExternKind::Kfunc => Kind::Func,
        ExternKind::Kconfig | ExternKind::Ksym => return None,
    };
    let name = object.symbol_name(ext.symbol());
    let name_at = object.offset_in_file(name);
    Query::new(object.bytes(), name_at, essential_len(name), kind, Prefix::Exact, OWNER_EXTERN | index)
}

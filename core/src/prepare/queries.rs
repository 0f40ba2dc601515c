//! What an object asks of the kernel, beside its root types: targets of programs, externs, struct_ops types.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::arena::{Arena, Part};
use crate::btf::lookup::{Answers, Prefix, Query};
use crate::btf::strings::essential_len;
use crate::btf::{Kind, TypeId, Types};
use crate::object::section_name::{self, AttachBtf};
use crate::object::{
    Declared, Extern, ExternId, ExternKind, Function, Map, MapId, MapOrigin, Object, ObjectError, ProgramId,
};
use crate::relo::compat::{Pair, types_are_compat};
use crate::relo::decision::VMLINUX;

use super::PrepareError;

/// Who asks a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The relocations of this local root type.
    Root(TypeId),
    /// A program, for its target.
    Attach(ProgramId),
    /// An extern.
    Extern(ExternId),
    /// A struct_ops map, for the kernel's struct.
    StructOps(MapId),
    /// A struct_ops map, for what the kernel wraps around that struct.
    StructOpsValue(MapId),
}

const ATTACH: u32 = 0x4000_0000;
const EXTERN: u32 = 0x8000_0000;
const STRUCT_OPS: u32 = 0xa000_0000;
const STRUCT_OPS_VALUE: u32 = 0xc000_0000;
const TAG: u32 = 0xe000_0000;

impl Owner {
    /// As a query has it: a root type by its id alone, which sorts first; the others under a tag in the upper bits, which
    /// neither ids (an object has fewer than 2^29 types) nor indexes reach.
    pub(super) const fn pack(self) -> u32 {
        match self {
            Self::Root(id) => id.0,
            Self::Attach(program) => ATTACH | program.get(),
            Self::Extern(ext) => EXTERN | ext.get(),
            Self::StructOps(map) => STRUCT_OPS | map.get(),
            Self::StructOpsValue(map) => STRUCT_OPS_VALUE | map.get(),
        }
    }

    /// Who packed so.
    pub(super) const fn unpack(owner: u32) -> Self {
        let index = owner & !TAG;
        match owner & TAG {
            ATTACH => Self::Attach(ProgramId::new(index)),
            EXTERN => Self::Extern(ExternId::new(index)),
            STRUCT_OPS => Self::StructOps(MapId::new(index)),
            STRUCT_OPS_VALUE => Self::StructOpsValue(MapId::new(index)),
            _ => Self::Root(TypeId(owner)),
        }
    }
}

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
    /// The target of this program.
    Attach(ProgramId),
    /// This extern.
    Extern(ExternId),
    /// The type of this struct_ops map.
    StructOps(MapId),
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
    for (program, function) in declared.programs() {
        let owner = Owner::Attach(program).pack();
        let Some(wanted) = attach_btf(object, declared, function) else { continue };
        let is_answered = !answers.of(owner).is_empty();
        if wanted.module.map_or(!is_answered, |module| module != b"vmlinux") {
            open.push(entry(owner))?;
        }
    }
    for (id, ext) in declared.externs_by_id() {
        let owner = Owner::Extern(id).pack();
        if extern_query(object, id, ext).is_some() && answers.of(owner).is_empty() {
            open.push(entry(owner))?;
        }
    }
    Ok(open.finish()?)
}

/// The struct of a struct_ops map, without flavour, and `bpf_struct_ops_` with the same name.
pub(super) fn struct_ops_queries(
    object: &Object<'_>,
    local: &Types<'_>,
    id: MapId,
    map: &Map,
) -> Result<[Option<Query>; 2], PrepareError> {
    if map.origin() != MapOrigin::StructOps {
        return Ok([None, None]);
    }
    let read = || local.name(&local.get(map.definition())?);
    let name = read().map_err(|error| PrepareError::from(ObjectError::from(error)))?;
    let ask = |prefix: Prefix, owner: Owner| {
        let name_at = object.offset_in_file(name);
        Query::new(object.bytes(), name_at, essential_len(name), Kind::Struct, prefix, owner.pack())
    };
    Ok([ask(Prefix::Exact, Owner::StructOps(id)), ask(Prefix::StructOps, Owner::StructOpsValue(id))])
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
    program: ProgramId,
    function: &Function,
) -> Option<Query> {
    let AttachBtf { name, prefix, kind, .. } = attach_btf(object, declared, function)?;
    Query::new(object.bytes(), object.offset_in_file(name), name.len(), kind, prefix, Owner::Attach(program).pack())
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

pub(super) fn extern_query(object: &Object<'_>, id: ExternId, ext: &Extern) -> Option<Query> {
    let kind = match ext.kind() {
        ExternKind::TypedKsym => Kind::Var,
        ExternKind::Kfunc => Kind::Func,
        ExternKind::Kconfig | ExternKind::Ksym => return None,
    };
    let name = object.symbol_name(ext.symbol());
    let name_at = object.offset_in_file(name);
    Query::new(object.bytes(), name_at, essential_len(name), kind, Prefix::Exact, Owner::Extern(id).pack())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_is_unpacked_as_it_was_packed() {
        let most = !TAG;
        for index in [0, 1, 7, 0xffff, most] {
            for owner in [
                Owner::Root(TypeId(index)),
                Owner::Attach(ProgramId::new(index)),
                Owner::Extern(ExternId::new(index)),
                Owner::StructOps(MapId::new(index)),
                Owner::StructOpsValue(MapId::new(index)),
            ] {
                assert_eq!(Owner::unpack(owner.pack()), owner);
            }
        }
    }
}

//! From an object and a kernel's BTF to programs that can be loaded.
//!
//! ```text
//! Object --Plan::new--> Plan      tables, and all that the object asks of the kernel
//! Plan x Btf --search-->          one pass over the kernel's types, then a decision per relocation
//! Plan --finish--> Prepared       programs are linked from it one at a time, each in scratch
//! ```

mod kept;

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::arena::{Arena, ArenaFull, Part};
use crate::btf::ext::CoreRelo;
use crate::btf::lookup::{Answers, Prefix, Query, Questions};
use crate::btf::sanitize::{KernelBtfFeatures, SanitizeError, sanitize};
use crate::btf::strings::essential_len;
use crate::btf::{Btf, BtfError, DEFAULT_LOCAL_STRIDE, DEFAULT_STRIDE, Kind, TypeId, Types};
use crate::insn::{INSN_SIZE, Insn};
use crate::link::{LinkError, LinkedProgram, Linker};
use crate::object::layout::Layout;
use crate::object::section_name::{self, AttachBtf};
use crate::object::{
    CodeSection, Declared, Extern, ExternKind, Function, Map, MapOrigin, Object, ObjectError, Slot, Variable,
};
use crate::relo::compat::{Pair, types_are_compat};
use crate::relo::patch::{PatchError, Patched, patch_insn};
use crate::relo::resolve::{Deciding, Decision, Decisions, VMLINUX, Verdict};
use crate::struct_ops::{StructOps, StructOpsError, Tables};
use crate::tailor::Needs;

pub use kept::{Kept, prepare_again};

/// How densely types are indexed: an entry of four bytes per so many types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of the kernel's BTF.
    pub stride: u32,
    /// Of the object's BTF.
    pub local_stride: u32,
    /// Bytes of a pointer in the kernel; `None` to tell by its long integer type.
    pub target_pointer_size: Option<u8>,
}

impl Default for Options {
    fn default() -> Self {
        Self { stride: DEFAULT_STRIDE, local_stride: DEFAULT_LOCAL_STRIDE, target_pointer_size: None }
    }
}

/// Why an object cannot be prepared.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrepareError {
    /// The object is at fault.
    Object(ObjectError),
    /// The kernel's BTF is at fault.
    Kernel(BtfError),
    /// The object asks something of the kernel's BTF, and there is none. [`Plan::first_question`] says what.
    KernelBtfNeeded,
    /// The object and the kernel's BTF have different byte orders.
    ByteOrder,
    /// What was kept is another object's: [`prepare_again`].
    OtherObject,
    /// The arena is too small.
    Arena(ArenaFull),
}

impl From<ObjectError> for PrepareError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Arena(full) => Self::Arena(full),
            error => Self::Object(error),
        }
    }
}

impl From<ArenaFull> for PrepareError {
    fn from(full: ArenaFull) -> Self {
        Self::Arena(full)
    }
}

impl fmt::Display for PrepareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(error) => error.fmt(f),
            Self::Kernel(error) => write!(f, "kernel BTF: {error}"),
            Self::KernelBtfNeeded => f.write_str("object needs the kernel's BTF, and there is none"),
            Self::ByteOrder => f.write_str("object and kernel BTF have different byte orders"),
            Self::OtherObject => f.write_str("kept answers are another object's"),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

impl core::error::Error for PrepareError {}

fn kernel_error(error: BtfError) -> PrepareError {
    match error {
        BtfError::Arena(full) => PrepareError::Arena(full),
        error => PrepareError::Kernel(error),
    }
}

/// Who asks, in the owner of a query: a local root type by its id, or one of these and a number.
const OWNER_ATTACH: u32 = 0x4000_0000;
const OWNER_EXTERN: u32 = 0x8000_0000;
/// The struct of a struct_ops map, and what the kernel wraps around it.
const OWNER_STRUCT_OPS: u32 = 0xa000_0000;
const OWNER_STRUCT_OPS_VALUE: u32 = 0xc000_0000;
const OWNER_MASK: u32 = 0xe000_0000;

/// What answers the question of a program or an extern that vmlinux does not answer, and in which module.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct InModule {
    owner: u32,
    id: u32,
    module: u16,
    is_incompatible: u16,
}

/// What an extern is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ExternMatch {
    /// This variable or function, of vmlinux (module 0) or a module.
    Found {
        /// Its type.
        id: TypeId,
        /// The module.
        module: u16,
    },
    /// The kernel has none of the name.
    Missing,
    /// The kernel has it with this type, which is not compatible with the declared one.
    Incompatible {
        /// The variable or function.
        id: TypeId,
        /// The module.
        module: u16,
    },
}

/// What an object declares and asks of the kernel.
#[derive(Debug)]
pub struct Plan<'a> {
    object: Object<'a>,
    options: Options,
    local: Option<Types<'a>>,
    declared: Declared<'a>,
    decisions: Deciding<'a>,
    queries: &'a mut [Query],
}

impl<'a> Plan<'a> {
    /// Reads all declarations of `object` and decides all that needs no kernel.
    ///
    /// # Errors
    /// [`PrepareError::Object`], [`PrepareError::Arena`]
    pub fn new(object: &Object<'a>, options: Options, arena: &mut Arena<'a>) -> Result<Self, PrepareError> {
        let (local, declared) = declarations(object, options, arena)?;
        let mut decisions = Deciding::collect(object.ext(), object.endian(), arena)?;
        let mut queries = arena.grow::<Query>(Part::Queries);
        if let Some(local) = &local {
            decisions.ask(local, object.bytes(), object.strings_at(), |query| queries.push(query))?;
        }
        for (number, function) in declared.programs() {
            if let Some(query) = attach_query(object, &declared, number, function) {
                queries.push(query)?;
            }
        }
        for (number, ext) in (0u32..).zip(declared.externs) {
            if let Some(query) = extern_query(object, number, ext) {
                queries.push(query)?;
            }
        }
        if let Some(local) = &local {
            for (number, map) in (0u32..).zip(declared.maps) {
                for query in struct_ops_queries(object, local, number, map)?.into_iter().flatten() {
                    queries.push(query)?;
                }
            }
            for slot in declared.slots(object, local)? {
                slot?;
            }
        }
        let queries = queries.finish()?;
        Ok(Self { object: *object, options, local, declared, decisions, queries })
    }

    /// What it needs of the kernel's BTF: for a minimal one that has just that.
    #[must_use]
    pub fn needs(&self) -> Needs<'_> {
        Needs {
            local: self.local.as_ref(),
            decisions: self.decisions.list(),
            queries: self.queries,
            names: self.object.bytes(),
            endian: self.object.endian(),
        }
    }

    /// Whether the kernel's BTF must be searched. If not, it need not even be opened.
    #[must_use]
    pub fn asks_kernel(&self) -> bool {
        !self.queries.is_empty()
    }

    /// What the object declares.
    #[must_use]
    pub fn declared(&self) -> &Declared<'a> {
        &self.declared
    }

    /// The object's own types.
    #[must_use]
    pub fn local(&self) -> Option<&Types<'a>> {
        self.local.as_ref()
    }

    /// A relocation, program, extern or struct_ops map for whose sake the kernel's BTF is needed.
    #[must_use]
    pub fn first_question(&self) -> Option<Question> {
        let owner = self.queries.iter().map(Query::owner).min()?;
        let number = (owner & !OWNER_MASK) as usize;
        Some(match owner & OWNER_MASK {
            OWNER_EXTERN => Question::Extern(number),
            OWNER_ATTACH => Question::Attach(number),
            OWNER_STRUCT_OPS | OWNER_STRUCT_OPS_VALUE => Question::StructOps(number),
            _ => Question::Root(TypeId(owner)),
        })
    }

    /// Walks over the kernel's types once, and decides every relocation whose root type has candidates there.
    ///
    /// # Errors
    /// [`PrepareError::Kernel`], [`PrepareError::ByteOrder`], [`PrepareError::Arena`]
    pub fn search(self, kernel: Btf<'a>, arena: &mut Arena<'a>) -> Result<Searched<'a>, PrepareError> {
        if kernel.endian() != self.object.endian() {
            return Err(PrepareError::ByteOrder);
        }
        let Self { object, options, local, declared, mut decisions, queries } = self;
        let questions = Questions::new(queries, object.bytes());
        let mut answers = questions.ask(kernel, None, options.stride, arena).map_err(kernel_error)?;
        if let Some(byte_size) = options.target_pointer_size {
            answers = answers.with_pointer_size(byte_size);
        }
        if let Some(local) = &local {
            decisions.resolve(local, &answers);
        }
        let in_modules = unanswered(&object, &declared, &answers, arena)?;
        let visited = answers.visited();
        Ok(Searched { object, options, local, declared, decisions, questions, answers, in_modules, visited })
    }

    /// The object without a kernel.
    ///
    /// # Errors
    /// [`PrepareError::KernelBtfNeeded`] where it asks something.
    pub fn finish(self) -> Result<Prepared<'a>, PrepareError> {
        if self.asks_kernel() {
            return Err(PrepareError::KernelBtfNeeded);
        }
        Ok(Prepared {
            object: self.object,
            local: self.local,
            declared: self.declared,
            decisions: self.decisions.finish(),
            answers: None,
            in_modules: &[],
            queries_len: 0,
            visited: 0,
        })
    }
}

/// The object's own types, and what it declares by them.
fn declarations<'a>(
    object: &Object<'a>,
    options: Options,
    arena: &mut Arena<'a>,
) -> Result<(Option<Types<'a>>, Declared<'a>), PrepareError> {
    let local = match object.btf() {
        Some(btf) => {
            let types = Types::index(btf, options.local_stride, None, arena, Part::LocalIndex);
            Some(types.map_err(|error| PrepareError::from(ObjectError::from(error)))?)
        }
        None => None,
    };
    let declared = Declared::read(object, local.as_ref(), arena)?;
    Ok((local, declared))
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
fn unanswered<'a>(
    object: &Object<'a>,
    declared: &Declared<'a>,
    answers: &Answers<'a>,
    arena: &mut Arena<'a>,
) -> Result<&'a mut [InModule], PrepareError> {
    let mut open = arena.grow::<InModule>(Part::Candidates);
    let entry = |owner: u32| InModule { owner, id: 0, module: VMLINUX, is_incompatible: 0 };
    for (number, function) in declared.programs() {
        let owner = OWNER_ATTACH | number as u32;
        let Some(wanted) = attach_btf(object, declared, function) else { continue };
        let is_answered = !answers.of(owner).is_empty();
        if wanted.module.map_or(!is_answered, |module| module != b"vmlinux") {
            open.push(entry(owner))?;
        }
    }
    for (number, ext) in (0u32..).zip(declared.externs) {
        let owner = OWNER_EXTERN | number;
        if extern_query(object, number, ext).is_some() && answers.of(owner).is_empty() {
            open.push(entry(owner))?;
        }
    }
    Ok(open.finish()?)
}

/// The struct of a struct_ops map, without flavour, and `bpf_struct_ops_` with the same name.
fn struct_ops_queries(
    object: &Object<'_>,
    local: &Types<'_>,
    number: u32,
    map: &Map,
) -> Result<[Option<Query>; 2], PrepareError> {
    if map.origin() != MapOrigin::StructOps {
        return Ok([None, None]);
    }
    let read = || local.name(&local.get(map.definition())?);
    let name = read().map_err(|error| PrepareError::from(ObjectError::from(error)))?;
    let ask = |prefix: Prefix, owner: u32| {
        let name_at = object.offset_in_file(name);
        Query::new(object.bytes(), name_at, essential_len(name), Kind::Struct, prefix, owner | number)
    };
    Ok([ask(Prefix::Exact, OWNER_STRUCT_OPS), ask(Prefix::StructOps, OWNER_STRUCT_OPS_VALUE)])
}

/// Whether what an extern is declared as goes with what the kernel has (libbpf: `bpf_object__resolve_ksym_var_btf_id`,
/// `bpf_object__resolve_ksym_func_btf_id`).
fn extern_is_compatible(local: &Types<'_>, ext: &Extern, target: &Types<'_>, id: TypeId) -> bool {
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
fn attach_query(object: &Object<'_>, declared: &Declared<'_>, number: usize, function: &Function) -> Option<Query> {
    let AttachBtf { name, prefix, kind, .. } = attach_btf(object, declared, function)?;
    let owner = OWNER_ATTACH | u32::try_from(number).ok()?;
    Query::new(object.bytes(), object.offset_in_file(name), name.len(), kind, prefix, owner)
}

fn attach_btf<'o>(object: &Object<'o>, declared: &Declared<'_>, function: &Function) -> Option<AttachBtf<'o>> {
    let section = declared.code.get(function.code())?.section();
    let (name, _) = section_name::split_optional(object.section_name(section));
    section_name::parse(name)?.attach_btf
}

fn extern_query(object: &Object<'_>, number: u32, ext: &Extern) -> Option<Query> {
    let kind = match ext.kind() {
        ExternKind::TypedKsym => Kind::Var,
        ExternKind::Kfunc => Kind::Func,
        ExternKind::Kconfig | ExternKind::Ksym => return None,
    };
    let name = object.symbol_name(ext.symbol());
    let name_at = object.offset_in_file(name);
    Query::new(object.bytes(), name_at, essential_len(name), kind, Prefix::Exact, OWNER_EXTERN | number)
}

/// An object whose vmlinux was searched, and whose modules may be.
#[derive(Debug)]
pub struct Searched<'a> {
    object: Object<'a>,
    options: Options,
    local: Option<Types<'a>>,
    declared: Declared<'a>,
    decisions: Deciding<'a>,
    questions: Questions<'a>,
    answers: Answers<'a>,
    in_modules: &'a mut [InModule],
    visited: u32,
}

impl<'a> Searched<'a> {
    /// Whether relocations are left whose root type vmlinux does not have, or programs and externs whose target it does
    /// not have: modules may have it.
    #[must_use]
    pub fn wants_modules(&self) -> bool {
        self.decisions.is_pending() || self.in_modules.iter().any(|open| open.module == VMLINUX)
    }

    /// First of two looks at the module that has the number `module` (from 1), whose BTF is split on vmlinux. Its
    /// index lives in `scratch`, so that one module is in memory at a time.
    ///
    /// # Errors
    /// [`PrepareError::Kernel`], [`PrepareError::Arena`]
    pub fn weigh_module(&mut self, blob: &[u8], module: u16, scratch: &mut Arena<'_>) -> Result<(), PrepareError> {
        self.look_at_module(blob, scratch, |decisions, local, answers, _| {
            decisions.weigh_module(local, answers, module);
        })
    }

    /// Second look at a module, when all have been weighed.
    ///
    /// # Errors
    /// As [`Searched::weigh_module`].
    pub fn search_module(&mut self, blob: &[u8], module: u16, scratch: &mut Arena<'_>) -> Result<(), PrepareError> {
        let declared = self.declared;
        self.look_at_module(blob, scratch, |decisions, local, answers, in_modules| {
            decisions.resolve_module(local, answers, module);
            for open in in_modules.iter_mut().filter(|open| open.module == VMLINUX) {
                let Some(found) = answers.of(open.owner).first() else { continue };
                if open.owner & OWNER_MASK == OWNER_EXTERN {
                    let ext = declared.externs.get((open.owner & !OWNER_MASK) as usize);
                    let fits = ext.is_some_and(|ext| extern_is_compatible(local, ext, answers.types(), found.id));
                    open.is_incompatible = u16::from(!fits);
                }
                (open.id, open.module) = (found.id.0, module);
            }
        })?;
        Ok(())
    }

    fn look_at_module(
        &mut self,
        blob: &[u8],
        scratch: &mut Arena<'_>,
        look: impl FnOnce(&mut Deciding<'a>, &Types<'_>, &Answers<'_>, &mut [InModule]),
    ) -> Result<(), PrepareError> {
        let Some(local) = &self.local else { return Ok(()) };
        // A scratch copy of the base view gives the module's types a lifetime of their own.
        let base = *self.answers.types();
        let mut scratch = scratch.scratch();
        let btf = Btf::parse_split(blob, &base).map_err(kernel_error)?;
        let answers = self.questions.ask(btf, Some(&base), self.options.stride, &mut scratch).map_err(kernel_error)?;
        self.visited = self.visited.saturating_add(answers.visited());
        look(&mut self.decisions, local, &answers, self.in_modules);
        Ok(())
    }

    /// Ends the search.
    #[must_use]
    pub fn finish(self) -> Prepared<'a> {
        Prepared {
            object: self.object,
            local: self.local,
            declared: self.declared,
            decisions: self.decisions.settle(),
            queries_len: self.questions.len(),
            answers: Some(self.answers),
            in_modules: self.in_modules,
            visited: self.visited,
        }
    }
}

/// An object whose every relocation is decided.
#[derive(Debug)]
pub struct Prepared<'a> {
    object: Object<'a>,
    local: Option<Types<'a>>,
    declared: Declared<'a>,
    decisions: Decisions<'a>,
    answers: Option<Answers<'a>>,
    in_modules: &'a [InModule],
    queries_len: usize,
    visited: u32,
}

/// Prepares `object` against a kernel's BTF, or without one where it asks nothing: the whole of this module in one call,
/// for callers that have no modules to search.
///
/// # Errors
/// [`PrepareError`]
pub fn prepare<'a>(
    object: &Object<'a>,
    kernel: Option<&'a [u8]>,
    options: Options,
    arena: &mut Arena<'a>,
) -> Result<Prepared<'a>, PrepareError> {
    let plan = Plan::new(object, options, arena)?;
    match kernel {
        Some(kernel) if plan.asks_kernel() => {
            let kernel = Btf::parse(kernel).map_err(kernel_error)?;
            Ok(plan.search(kernel, arena)?.finish())
        }
        _ => plan.finish(),
    }
}

impl<'a> Prepared<'a> {
    /// The object.
    #[must_use]
    pub fn object(&self) -> &Object<'a> {
        &self.object
    }

    /// The object's own types.
    #[must_use]
    pub fn local(&self) -> Option<&Types<'a>> {
        self.local.as_ref()
    }

    /// What it declares.
    #[must_use]
    pub fn declared(&self) -> &Declared<'a> {
        &self.declared
    }

    /// What was decided.
    #[must_use]
    pub fn decisions(&self) -> &Decisions<'a> {
        &self.decisions
    }

    /// What the kernel answered; `None` where nothing was asked.
    #[must_use]
    pub fn answers(&self) -> Option<&Answers<'a>> {
        self.answers.as_ref()
    }

    /// How many types of the kernel and of modules were walked over: none by [`prepare_again`].
    #[must_use]
    pub fn visited(&self) -> u32 {
        self.visited
    }

    /// How many names were asked of the kernel.
    #[must_use]
    pub fn questions(&self) -> usize {
        self.queries_len
    }

    /// The object's maps.
    #[must_use]
    pub fn maps(&self) -> &'a [Map] {
        self.declared.maps
    }

    /// The name of a map as the source has it.
    #[must_use]
    pub fn map_name(&self, map: &Map) -> &'a [u8] {
        map.name(&self.object, self.local.as_ref())
    }

    /// The name of a function.
    #[must_use]
    pub fn function_name(&self, function: &Function) -> &'a [u8] {
        self.object.symbol_name(function.symbol())
    }

    /// The name of the section that a function is in.
    #[must_use]
    pub fn section_name(&self, function: &Function) -> &'a [u8] {
        let section = self.declared.code.get(function.code()).map_or(0, CodeSection::section);
        self.object.section_name(section)
    }

    /// The kernel type that a program is loaded for; [`AttachTarget::Missing`] where the kernel has none of the name.
    #[must_use]
    pub fn attach_target(&self, number: usize) -> AttachTarget<'a> {
        let Some(function) = self.declared.functions.get(number) else { return AttachTarget::None };
        let Some(wanted) = attach_btf(&self.object, &self.declared, function) else { return AttachTarget::None };
        let owner = u32::try_from(number).unwrap_or(u32::MAX) | OWNER_ATTACH;
        if let Some(found) = self.in_module(owner) {
            return AttachTarget::InModule { id: TypeId(found.id), module: found.module };
        }
        if wanted.module.is_some_and(|module| module != b"vmlinux") {
            return AttachTarget::Missing(wanted);
        }
        match self.answers.and_then(|answers| answers.of(owner).first()) {
            Some(found) => AttachTarget::Found(found.id),
            None => AttachTarget::Missing(wanted),
        }
    }

    /// What a module answered, if one did.
    fn in_module(&self, owner: u32) -> Option<&'a InModule> {
        self.in_modules.iter().find(|open| open.owner == owner && open.module != VMLINUX)
    }

    /// How many programs and externs have their target in a module.
    #[must_use]
    pub fn module_targets(&self) -> usize {
        self.in_modules.iter().filter(|open| open.module != VMLINUX).count()
    }

    /// The kernel variable or function that an extern stands for. The first one of its name counts, and must be of a
    /// type compatible with the declared one.
    #[must_use]
    pub fn extern_match(&self, number: usize) -> ExternMatch {
        let owner = u32::try_from(number).unwrap_or(u32::MAX) | OWNER_EXTERN;
        if let Some(found) = self.in_module(owner) {
            let (id, module) = (TypeId(found.id), found.module);
            return match found.is_incompatible {
                0 => ExternMatch::Found { id, module },
                _ => ExternMatch::Incompatible { id, module },
            };
        }
        let (Some(answers), Some(local), Some(ext)) = (&self.answers, &self.local, self.declared.externs.get(number))
        else {
            return ExternMatch::Missing;
        };
        match answers.of(owner).first() {
            Some(found) if extern_is_compatible(local, ext, answers.types(), found.id) => {
                ExternMatch::Found { id: found.id, module: VMLINUX }
            }
            Some(found) => ExternMatch::Incompatible { id: found.id, module: VMLINUX },
            None => ExternMatch::Missing,
        }
    }

    /// The slots of maps that are filled from the start: `.values` of maps of maps and of programs.
    ///
    /// # Errors
    /// [`ObjectError`]; none in practice, as [`Plan::new`] has read them all.
    pub fn slots(&self) -> impl Iterator<Item = Result<Slot, ObjectError>> + use<'_, 'a> {
        let slots = self.local.as_ref().map(|local| self.declared.slots(&self.object, local));
        let (slots, error) = match slots {
            Some(Ok(slots)) => (Some(slots), None),
            Some(Err(error)) => (None, Some(Err(error))),
            None => (None, None),
        };
        error.into_iter().chain(slots.into_iter().flatten())
    }

    /// The global variable of this name, in the map that its section is loaded as.
    ///
    /// # Errors
    /// [`ObjectError`] for a variable that has no size or does not lie in its section.
    pub fn variable(&self, name: &[u8]) -> Result<Option<Variable>, ObjectError> {
        let Some(local) = &self.local else { return Ok(None) };
        self.declared.variable(&self.object, local, name)
    }

    /// A struct_ops map in terms of the kernel's types.
    ///
    /// # Errors
    /// [`StructOpsError`]
    pub fn struct_ops(&self, map: usize) -> Result<StructOps, StructOpsError> {
        let tables = self.tables()?;
        let of = |kind: u32| {
            let owner = u32::try_from(map).unwrap_or(u32::MAX) | kind;
            self.answers.and_then(|answers| answers.of(owner).first()).map(|found| found.id)
        };
        let type_id = of(OWNER_STRUCT_OPS).ok_or(StructOpsError::NoType)?;
        tables.describe(type_id, of(OWNER_STRUCT_OPS_VALUE).ok_or(StructOpsError::NoValueType)?)
    }

    /// Writes the table of a struct_ops map into `value`, of [`StructOps::value_size`] zero bytes, as the kernel lays it
    /// out. For each member that is a program, `program` is called with its 8 bytes and the number of the function.
    ///
    /// # Errors
    /// [`StructOpsError`]
    pub fn write_struct_ops(
        &self,
        map: usize,
        value: &mut [u8],
        program: impl FnMut(&mut [u8], usize),
    ) -> Result<(), StructOpsError> {
        let ops = self.struct_ops(map)?;
        let declared = self.declared.maps.get(map).ok_or(StructOpsError::NoTable)?;
        self.tables()?.write(declared, &ops, value, program)
    }

    /// The kernel's struct, and the number of its member that a program implements; `None` where no struct_ops map has
    /// the program.
    ///
    /// # Errors
    /// [`StructOpsError`]
    pub fn struct_ops_member(&self, function: usize) -> Result<Option<(TypeId, u32)>, StructOpsError> {
        self.tables()?.member_of(function, |map| self.struct_ops(map))
    }

    /// Whether a struct_ops map has the program that is function `function`.
    #[must_use]
    pub fn table_has(&self, map: usize, function: usize) -> bool {
        let map = self.declared.maps.get(map).filter(|map| map.origin() == MapOrigin::StructOps);
        map.is_some_and(|map| crate::struct_ops::has(&self.object, &self.declared, map, function).unwrap_or(false))
    }

    fn tables(&self) -> Result<Tables<'_>, StructOpsError> {
        let (Some(local), Some(answers)) = (&self.local, &self.answers) else { return Err(StructOpsError::NoType) };
        Ok(Tables { object: &self.object, declared: &self.declared, local, kernel: answers.types() })
    }

    /// Links the program that is function `number`. All of it lies in `scratch`, and is gone when that is.
    ///
    /// # Errors
    /// [`LinkError`]
    pub fn program<'s>(&self, number: usize, scratch: &mut Arena<'s>) -> Result<LinkedProgram<'s>, LinkError> {
        self.linker().link(number, scratch)
    }

    /// Calls `each` with the number of every map that the program refers to, itself or through what it calls.
    ///
    /// # Errors
    /// [`LinkError`]
    pub fn maps_of(&self, number: usize, scratch: &mut Arena<'_>, each: impl FnMut(usize)) -> Result<(), LinkError> {
        self.linker().maps_of(number, scratch, each)
    }

    /// The object's BTF as a kernel of these features takes it; `None` where the object has none. A copy in `scratch`,
    /// or the object's own bytes where nothing must change.
    ///
    /// # Errors
    /// [`SanitizeError`]
    pub fn kernel_btf<'s>(
        &self,
        features: KernelBtfFeatures,
        scratch: &mut Arena<'s>,
    ) -> Result<Option<&'s [u8]>, SanitizeError>
    where
        'a: 's,
    {
        let Some(local) = &self.local else { return Ok(None) };
        let layout = Layout { object: &self.object, declared: &self.declared };
        sanitize(self.object.btf_bytes(), local, &layout, features, scratch).map(Some)
    }

    fn linker(&self) -> Linker<'_> {
        Linker { object: &self.object, declared: &self.declared, decisions: &self.decisions }
    }

    /// All CO-RE relocations in the order of their records, each with what it does to its instruction.
    pub fn relocations(&self) -> impl Iterator<Item = Relocation<'_>> + use<'_, 'a> {
        self.declared.code.iter().enumerate().flat_map(move |(code, section)| {
            let records = section.core_relos(&self.object).all();
            records.filter_map(move |(relo_idx, records)| {
                self.relocation(code, section, relo_idx, records.core_relo(relo_idx)?)
            })
        })
    }

    fn relocation(&self, code: usize, section: &CodeSection, relo_idx: u32, relo: CoreRelo) -> Option<Relocation<'_>> {
        let decision = self.decisions.of(&relo)?;
        let text = section.text(&self.object);
        let slot = relo.insn_off / INSN_SIZE as u32;
        let compiled = Insn::read(text, slot)?;
        let slots = if compiled.is_ld_imm64() { 2 } else { 1 };
        let mut insns = [compiled, Insn::read(text, slot.saturating_add(1)).unwrap_or_default()];
        let compiled = insns;
        let outcome = match decision.verdict() {
            Verdict::Value | Verdict::Poison => {
                let pair = insns.get_mut(..slots).unwrap_or(&mut []);
                patch_insn(pair, decision, self.object.endian()).map_err(RelocationError::Patch)
            }
            verdict => Err(RelocationError::Undecided(verdict)),
        };
        let functions = self.declared.functions;
        // They are sorted by section and start.
        let past = functions.partition_point(|function| (function.code(), function.insn_start()) <= (code, slot));
        let function = past.checked_sub(1).filter(|&last| {
            functions.get(last).is_some_and(|function| function.code() == code && function.contains(slot))
        });
        let start = function.and_then(|number| functions.get(number)).map_or(0, Function::insn_start);
        Some(Relocation {
            function,
            section: section.section(),
            relo_idx,
            insn_idx: slot - start,
            relo,
            decision,
            outcome,
            compiled,
            insns,
            slots,
        })
    }

    /// Bytes of arena that each kept structure takes.
    pub fn parts(&self) -> impl Iterator<Item = (Part, usize)> + use<'a> {
        let local = self.local.as_ref().map_or(0, Types::index_bytes);
        let (index, candidates) = self
            .answers
            .as_ref()
            .map_or((0, 0), |answers| (answers.types().index_bytes(), size_of_val(answers.candidates())));
        let queries = self.queries_len * size_of::<Query>();
        let decisions = size_of_val(self.decisions.list());
        self.declared.parts().into_iter().chain([
            (Part::LocalIndex, local),
            (Part::Queries, queries),
            (Part::Decisions, decisions),
            (Part::KernelIndex, index),
            (Part::Candidates, candidates + size_of_val(self.in_modules)),
        ])
    }
}

/// What a program is loaded for.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachTarget<'a> {
    /// Nothing of the kernel's BTF.
    None,
    /// This type.
    Found(TypeId),
    /// This type of a module.
    InModule {
        /// The type.
        id: TypeId,
        /// The module, by the number that it was searched under.
        module: u16,
    },
    /// A type that the kernel does not have.
    Missing(AttachBtf<'a>),
}

/// Why a relocation does nothing to its instruction.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelocationError {
    /// It could not be decided.
    Undecided(Verdict),
    /// It could not be applied.
    Patch(PatchError),
}

/// One CO-RE relocation, and what it does.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug)]
pub struct Relocation<'p> {
    /// The number of the function that it is in.
    pub function: Option<usize>,
    /// The section.
    pub section: u32,
    /// Its number among the records of the section.
    pub relo_idx: u32,
    /// The instruction slot in the function, as compiled.
    pub insn_idx: u32,
    /// The record.
    pub relo: CoreRelo,
    /// What was decided.
    pub decision: &'p Decision,
    /// What was done.
    pub outcome: Result<Patched, RelocationError>,
    compiled: [Insn; 2],
    insns: [Insn; 2],
    slots: usize,
}

impl Relocation<'_> {
    /// The instruction as it is now, in the object's byte order: one slot, or two of a 64-bit load.
    #[must_use]
    pub fn insns(&self) -> &[Insn] {
        self.insns.get(..self.slots).unwrap_or(&[])
    }

    /// The instruction as it was compiled.
    #[must_use]
    pub fn compiled(&self) -> &[Insn] {
        self.compiled.get(..self.slots).unwrap_or(&[])
    }
}

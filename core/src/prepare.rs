//! From an object and a kernel's BTF to programs that can be loaded.
//!
//! ```text
//! Object --Plan::new--> Plan      tables, and all that the object asks of the kernel
//! Plan x Btf --search-->          one pass over the kernel's types, then a decision per relocation
//! Plan --finish--> Prepared       programs are linked from it one at a time, each in scratch
//! ```

use core::fmt;

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
use crate::object::{CodeSection, Declared, Extern, ExternKind, Function, Map, Object, ObjectError};
use crate::relo::patch::{PatchError, Patched, patch_insn};
use crate::relo::resolve::{Decision, Decisions, Verdict};

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

/// What an object declares and asks of the kernel.
#[derive(Debug)]
pub struct Plan<'a> {
    object: Object<'a>,
    options: Options,
    local: Option<Types<'a>>,
    declared: Declared<'a>,
    decisions: Decisions<'a>,
    queries: &'a mut [Query],
}

impl<'a> Plan<'a> {
    /// Reads all declarations of `object` and decides all that needs no kernel.
    ///
    /// # Errors
    /// [`PrepareError::Object`], [`PrepareError::Arena`]
    pub fn new(object: &Object<'a>, options: Options, arena: &mut Arena<'a>) -> Result<Self, PrepareError> {
        let local = match object.btf() {
            Some(btf) => {
                let types = Types::index(btf, options.local_stride, None, arena, Part::LocalIndex);
                Some(types.map_err(|error| PrepareError::from(ObjectError::from(error)))?)
            }
            None => None,
        };
        let declared = Declared::read(object, local.as_ref(), arena)?;
        let mut decisions = Decisions::collect(object.ext(), object.endian(), arena)?;
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
        let queries = queries.finish()?;
        Ok(Self { object: *object, options, local, declared, decisions, queries })
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

    /// A relocation, program or extern for whose sake the kernel's BTF is needed.
    #[must_use]
    pub fn first_question(&self) -> Option<Question> {
        let owner = self.queries.iter().map(Query::owner).min()?;
        Some(match owner {
            owner if owner & OWNER_EXTERN != 0 => Question::Extern((owner & !OWNER_EXTERN) as usize),
            owner if owner & OWNER_ATTACH != 0 => Question::Attach((owner & !OWNER_ATTACH) as usize),
            root => Question::Root(TypeId(root)),
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
        Ok(Searched { object, options, local, declared, decisions, questions, answers })
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
            decisions: self.decisions,
            answers: None,
            queries_len: 0,
        })
    }
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
    decisions: Decisions<'a>,
    questions: Questions<'a>,
    answers: Answers<'a>,
}

impl<'a> Searched<'a> {
    /// Whether relocations are left whose root type vmlinux does not have: modules may have it.
    #[must_use]
    pub fn wants_modules(&self) -> bool {
        self.decisions.is_pending()
    }

    /// First of two looks at the module that has the number `module` (from 1), whose BTF is split on vmlinux. Its
    /// index lives in `scratch`, so that one module is in memory at a time.
    ///
    /// # Errors
    /// [`PrepareError::Kernel`], [`PrepareError::Arena`]
    pub fn weigh_module(
        &mut self,
        blob: &[u8],
        module: u16,
        scratch: &mut Arena<'_>,
    ) -> Result<(), PrepareError> {
        self.look_at_module(blob, scratch, |decisions, local, answers| {
            decisions.weigh_module(local, answers, module);
        })
    }

    /// Second look at a module, when all have been weighed.
    ///
    /// # Errors
    /// As [`Searched::weigh_module`].
    pub fn search_module(
        &mut self,
        blob: &[u8],
        module: u16,
        scratch: &mut Arena<'_>,
    ) -> Result<(), PrepareError> {
        self.look_at_module(blob, scratch, |decisions, local, answers| {
            decisions.resolve_module(local, answers, module);
        })
    }

    fn look_at_module(
        &mut self,
        blob: &[u8],
        scratch: &mut Arena<'_>,
        look: impl FnOnce(&mut Decisions<'a>, &Types<'_>, &Answers<'_>),
    ) -> Result<(), PrepareError> {
        let Some(local) = &self.local else { return Ok(()) };
        // A scratch copy of the base view gives the module's types a lifetime of their own.
        let base = *self.answers.types();
        let mut scratch = scratch.scratch();
        let btf = Btf::parse_split(blob, &base).map_err(kernel_error)?;
        let answers = self.questions.ask(btf, Some(&base), self.options.stride, &mut scratch).map_err(kernel_error)?;
        look(&mut self.decisions, local, &answers);
        Ok(())
    }

    /// Ends the search.
    #[must_use]
    pub fn finish(mut self) -> Prepared<'a> {
        self.decisions.settle();
        Prepared {
            object: self.object,
            local: self.local,
            declared: self.declared,
            decisions: self.decisions,
            queries_len: self.questions.len(),
            answers: Some(self.answers),
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
    queries_len: usize,
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
        match self.answers.and_then(|answers| answers.of(owner).first()) {
            Some(found) => AttachTarget::Found(found.id),
            None => AttachTarget::Missing(wanted),
        }
    }

    /// The kernel variable or function that an extern stands for.
    #[must_use]
    pub fn extern_type(&self, number: usize) -> Option<TypeId> {
        let owner = u32::try_from(number).unwrap_or(u32::MAX) | OWNER_EXTERN;
        self.answers.and_then(|answers| answers.of(owner).first()).map(|found| found.id)
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
    pub fn maps_of(
        &self,
        number: usize,
        scratch: &mut Arena<'_>,
        each: impl FnMut(usize),
    ) -> Result<(), LinkError> {
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

    fn relocation(
        &self,
        code: usize,
        section: &CodeSection,
        relo_idx: u32,
        relo: CoreRelo,
    ) -> Option<Relocation<'_>> {
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
        let function = functions.iter().position(|function| function.code() == code && function.contains(slot));
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
        let (index, candidates) = self.answers.as_ref().map_or((0, 0), |answers| {
            (answers.types().index_bytes(), size_of_val(answers.candidates()))
        });
        let queries = self.queries_len * size_of::<Query>();
        let decisions = size_of_val(self.decisions.list());
        self.declared.parts().into_iter().chain([
            (Part::LocalIndex, local),
            (Part::Queries, queries),
            (Part::Decisions, decisions),
            (Part::KernelIndex, index),
            (Part::Candidates, candidates),
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

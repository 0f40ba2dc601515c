//! One program made whole: its subprograms appended, its relocations applied, its references listed.
//!
//! Subprograms follow the program in the order in which libbpf appends them (`bpf_object__reloc_code`): at the first
//! call of one it is appended, then its own calls are followed before the caller goes on.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::arena::{Arena, ArenaFull, Part};
use crate::btf::{Kind, TypeId};
use crate::bytes::{Endian, u32_bytes};
use crate::insn::{INSN_SIZE, Insn, pseudo};
use crate::limits::MAX_PROGRAM_INSNS;
use crate::object::elf::{Rel, Symbol};
use crate::object::{ARENA, ARENA_SECTION, CodeSection, Declared, Extern, ExternKind, Function, Map, MapOrigin, Object, ObjectError};
use crate::relo::patch::{PatchError, Patched, patch_insn};
use crate::relo::resolve::{Decisions, Verdict};

/// Why a program cannot be linked. Instructions are numbered within the function that they were compiled in, which is
/// named by its symbol.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkError {
    /// The symbol of the function.
    pub function: u32,
    /// The instruction slot in it.
    pub insn_idx: u32,
    /// What is wrong.
    pub cause: LinkCause,
}

/// What is wrong with an instruction or its relocation.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkCause {
    /// A CO-RE relocation could not be decided.
    Undecided {
        /// Its number among the records of its section.
        relo_idx: u32,
        /// Why.
        verdict: Verdict,
    },
    /// A CO-RE relocation could not be applied to the instruction.
    Patch {
        /// Its number among the records of its section.
        relo_idx: u32,
        /// Why.
        error: PatchError,
    },
    /// A CO-RE relocation is not at the start of an instruction.
    Misaligned {
        /// Its number among the records of its section.
        relo_idx: u32,
    },
    /// A call or function address leads to no function of the object.
    NoFunction {
        /// The symbol that the relocation names; `None` for a call without one.
        symbol: Option<u32>,
    },
    /// The program's declaration tag `exception_callback:NAME` names no subprogram.
    NoExceptionCallback,
    /// The symbol is neither declared in the object nor an extern.
    UndefinedSymbol {
        /// The symbol.
        symbol: u32,
    },
    /// The symbol lies in a section of maps, but at no map.
    NoMap {
        /// The symbol.
        symbol: u32,
    },
    /// The symbol lies in a section that is neither code, maps nor global data.
    UnsupportedSection {
        /// The symbol.
        symbol: u32,
    },
    /// A relocation is on an instruction that is neither a call nor a 64-bit load.
    UnsupportedInsn {
        /// The instruction's code.
        code: u8,
    },
    /// A 64-bit load has no second half.
    BadLdImm64,
    /// The program takes more than a million instructions with all that it calls.
    TooManyInsns,
    /// The object file is at fault.
    Object(ObjectError),
    /// The arena is too small.
    Arena(ArenaFull),
}

impl fmt::Display for LinkCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Undecided { relo_idx, verdict } => write_verdict(f, relo_idx, verdict),
            Self::Patch { relo_idx, error } => write!(f, "CO-RE relocation #{relo_idx}: {error}"),
            Self::Misaligned { relo_idx } => {
                write!(f, "CO-RE relocation #{relo_idx} is not at the start of an instruction")
            }
            Self::NoFunction { symbol: Some(symbol) } => {
                write!(f, "call leads to no function, by symbol [{symbol}]")
            }
            Self::NoFunction { symbol: None } => f.write_str("call leads to no function"),
            Self::NoExceptionCallback => f.write_str("declaration tag exception_callback names no subprogram"),
            Self::UndefinedSymbol { symbol } => write!(f, "symbol [{symbol}] is not defined"),
            Self::NoMap { symbol } => write!(f, "symbol [{symbol}] lies at no map"),
            Self::UnsupportedSection { symbol } => {
                write!(f, "symbol [{symbol}] lies in a section that is neither code, maps nor data")
            }
            Self::UnsupportedInsn { code } => {
                write!(f, "relocation on an instruction of code {code:#04x}, neither a call nor a 64-bit load")
            }
            Self::BadLdImm64 => f.write_str("64-bit load has no second half"),
            Self::TooManyInsns => write!(f, "program has more than {MAX_PROGRAM_INSNS} instructions"),
            Self::Object(error) => error.fmt(f),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

fn write_verdict(f: &mut fmt::Formatter<'_>, relo_idx: u32, verdict: Verdict) -> fmt::Result {
    write!(f, "CO-RE relocation #{relo_idx}: ")?;
    match verdict {
        Verdict::Ambiguous { first, second } => {
            write!(f, "ambiguous, candidates [{first}] and [{second}] differ")
        }
        Verdict::Fault { fault, candidate } => write!(f, "candidate [{candidate}]: {fault}"),
        Verdict::BadSpec => f.write_str("access does not fit the local type"),
        Verdict::Pending => f.write_str("its candidates were not searched"),
        Verdict::Value | Verdict::Poison => f.write_str("decided"),
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "function of symbol [{}], instruction {}: {}", self.function, self.insn_idx, self.cause)
    }
}

impl core::error::Error for LinkError {}

/// A function's place in a linked program.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Placement {
    /// The number of the function.
    pub function: u32,
    /// The slot at which it starts.
    pub insn_start: u32,
    parent: u32,
    resume: u32,
}

/// What a reference stands for.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceKind {
    /// A map's descriptor; the number is the map's.
    Map,
    /// A map's descriptor with an offset into its value; the number is the map's.
    MapValue,
    /// A 64-bit load of an extern; the number is the extern's.
    ExternLoad,
    /// A call of an extern; the number is the extern's.
    ExternCall,
}

/// An instruction whose immediate the loader fills in.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reference {
    /// The slot in the linked program.
    pub insn_idx: u32,
    number: u16,
    kind: u16,
}

impl Reference {
    /// What it stands for.
    #[must_use]
    pub fn kind(&self) -> ReferenceKind {
        match self.kind {
            0 => ReferenceKind::Map,
            1 => ReferenceKind::MapValue,
            2 => ReferenceKind::ExternLoad,
            _ => ReferenceKind::ExternCall,
        }
    }

    /// The number of the map or extern.
    #[must_use]
    pub fn number(&self) -> usize {
        usize::from(self.number)
    }
}

/// A program ready but for the descriptors of what it refers to.
#[derive(Debug)]
pub struct LinkedProgram<'s> {
    /// Its instructions, in the object's byte order.
    pub insns: &'s mut [Insn],
    /// Where its functions are, itself first.
    pub placements: &'s [Placement],
    /// What it refers to, in no particular order.
    pub references: &'s [Reference],
    /// Function info as the kernel takes it, and bytes of each record; none where the object has none.
    pub func_info: (&'s [u8], u32),
    /// Line info, likewise.
    pub line_info: (&'s [u8], u32),
    /// CO-RE relocations that got a value.
    pub patched: u32,
    /// CO-RE relocations that were poisoned.
    pub poisoned: u32,
}

/// All that linking needs of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linker<'l> {
    pub(crate) object: &'l Object<'l>,
    pub(crate) declared: &'l Declared<'l>,
    pub(crate) decisions: &'l Decisions<'l>,
}

/// A function and its section, at hand together.
#[derive(Clone, Copy)]
struct Code<'l> {
    function: &'l Function,
    section: &'l CodeSection,
    text: crate::bytes::Bytes<'l>,
}

impl<'l> Code<'l> {
    fn insn(&self, insn_idx: u32) -> Option<Insn> {
        Insn::read(self.text, self.function.insn_start().checked_add(insn_idx)?)
    }

    fn error(&self, insn_idx: u32, cause: LinkCause) -> LinkError {
        LinkError { function: self.function.symbol(), insn_idx, cause }
    }

    fn arena(&self) -> impl Fn(ArenaFull) -> LinkError + Copy + use<'l> {
        let function = self.function.symbol();
        move |full| LinkError { function, insn_idx: 0, cause: LinkCause::Arena(full) }
    }

    /// The bytes of its section that it takes.
    fn byte_range(&self) -> (u32, u32) {
        let size = INSN_SIZE as u32;
        (self.function.insn_start().saturating_mul(size), self.function.insn_end().saturating_mul(size))
    }

    fn rels(&self, object: &Object<'l>) -> impl Iterator<Item = Rel> + use<'l> {
        let (start, end) = self.byte_range();
        self.section.rels(object).range(u64::from(start), u64::from(end))
    }

    /// The slot in the function of the byte `offset` of its section.
    fn insn_idx(&self, offset: u64) -> u32 {
        u32::try_from(offset / INSN_SIZE as u64).unwrap_or(u32::MAX).saturating_sub(self.function.insn_start())
    }
}

impl<'l> Linker<'l> {
    /// Links the program that is function `number`; all that is returned lies in `scratch`.
    pub(crate) fn link<'s>(&self, number: usize, scratch: &mut Arena<'s>) -> Result<LinkedProgram<'s>, LinkError> {
        let main = self.code(number);
        let arena = main.arena();
        let (placements, has_calls) = self.lay_out(number, scratch)?;
        let insn_count: u32 = placements.iter().map(|place| self.code(place.function as usize).function.insn_count()).sum();
        let insns = scratch.take::<Insn>(insn_count as usize, Part::Insns).map_err(arena)?;
        let mut counts = (0, 0);
        for place in placements {
            let code = self.code(place.function as usize);
            let part = self.copy(&code, place, insns)?;
            self.apply_core_relos(&code, part, &mut counts)?;
        }
        let references = self.apply_references(placements, insns, scratch)?;
        if has_calls {
            self.apply_calls(placements, insns)?;
        }
        let func_info = self.info(placements, scratch, Part::FuncInfo)?;
        let line_info = self.info(placements, scratch, Part::LineInfo)?;
        Ok(LinkedProgram { insns, placements, references, func_info, line_info, patched: counts.0, poisoned: counts.1 })
    }

    /// Calls `each` with the number of every map that the program refers to.
    pub(crate) fn maps_of(
        &self,
        number: usize,
        scratch: &mut Arena<'_>,
        mut each: impl FnMut(usize),
    ) -> Result<(), LinkError> {
        for place in self.lay_out(number, scratch)?.0 {
            let code = self.code(place.function as usize);
            for rel in code.rels(self.object) {
                let insn_idx = code.insn_idx(rel.offset);
                let symbol = self.symbol(&code, insn_idx, rel)?;
                let pair = [code.insn(insn_idx), code.insn(insn_idx.saturating_add(1))];
                let mut pair = pair.map(Option::unwrap_or_default);
                let applied = self.apply_reference(&mut pair, &symbol).map_err(|cause| code.error(insn_idx, cause))?;
                if let Some((ReferenceKind::Map | ReferenceKind::MapValue, map)) = applied {
                    each(usize::from(map));
                }
            }
        }
        Ok(())
    }

    fn code(&self, number: usize) -> Code<'l> {
        const NO_FUNCTION: &Function = &Function::NONE;
        const NO_SECTION: &CodeSection = &CodeSection::NONE;
        let function = self.declared.functions.get(number).unwrap_or(NO_FUNCTION);
        let section = self.declared.code.get(function.code()).unwrap_or(NO_SECTION);
        Code { function, section, text: section.text(self.object) }
    }

    /// Finds all functions that the program reaches, in the order in which they are appended, and whether any
    /// instruction leads to one.
    fn lay_out<'s>(&self, number: usize, scratch: &mut Arena<'s>) -> Result<(&'s [Placement], bool), LinkError> {
        let main = self.code(number);
        let arena = main.arena();
        let mut placements = scratch.grow::<Placement>(Part::Layout);
        placements.push(Placement { function: number as u32, insn_start: 0, parent: 0, resume: 0 }).map_err(arena)?;
        let mut end = main.function.insn_count();
        let (mut current, mut insn_idx, mut code) = (0u32, 0u32, main);
        let mut has_calls = false;
        let mut exception_callback = self.exception_callback(&main)?;
        loop {
            let callee = match self.next_callee(&code, &mut insn_idx)? {
                Some(callee) => callee,
                // The program's end: what handles its exceptions is called by the kernel alone.
                None if current == 0 => match exception_callback.take() {
                    Some(callback) => callback,
                    None => break,
                },
                None => {
                    // A function's end: on with its caller, after the call.
                    let place = placements.as_slice().get(current as usize).copied();
                    let Some(place) = place else { break };
                    (current, insn_idx) = (place.parent, place.resume);
                    let parent = placements.as_slice().get(current as usize).map_or(0, |place| place.function);
                    code = self.code(parent as usize);
                    continue;
                }
            };
            has_calls = true;
            if placements.as_slice().iter().any(|place| place.function as usize == callee) {
                continue;
            }
            let place = Placement { function: callee as u32, insn_start: end, parent: current, resume: insn_idx };
            current = placements.len() as u32;
            placements.push(place).map_err(arena)?;
            code = self.code(callee);
            insn_idx = 0;
            end = end
                .checked_add(code.function.insn_count())
                .filter(|&end| end <= MAX_PROGRAM_INSNS)
                .ok_or(main.error(0, LinkCause::TooManyInsns))?;
        }
        Ok((placements.finish().map_err(arena)?, has_calls))
    }

    /// The function that a declaration tag `exception_callback:NAME` on the program names (libbpf:
    /// `bpf_prog_assign_exc_cb`). Two such tags on one program are the verifier's to refuse.
    fn exception_callback(&self, main: &Code<'l>) -> Result<Option<usize>, LinkError> {
        // What throws is an extern, so most objects need not be looked through.
        let Some(btf) = self.object.btf().filter(|_| !self.declared.externs.is_empty()) else { return Ok(None) };
        let types = || btf.iter().map_while(Result::ok);
        let is_main = |id: TypeId| {
            types().find(|ty| ty.id() == id).is_some_and(|ty| {
                ty.kind() == Kind::Func
                    && btf.own_string(ty.name_off()) == Some(self.object.symbol_name(main.function.symbol()))
            })
        };
        let mut names = types()
            .filter(|tag| tag.kind() == Kind::DeclTag && tag.component_idx() == -1)
            .filter_map(|tag| {
                let name = btf.own_string(tag.name_off())?.strip_prefix(b"exception_callback:")?;
                is_main(tag.type_id()).then_some(name)
            });
        let (Some(name), None) = (names.next(), names.next()) else { return Ok(None) };
        let found = self.declared.functions.iter().position(|function| {
            !function.is_program() && self.object.symbol_name(function.symbol()) == name
        });
        found.map(Some).ok_or(main.error(0, LinkCause::NoExceptionCallback))
    }

    /// The function that the next call or function address from slot `insn_idx` on leads to; `insn_idx` is moved behind
    /// it.
    fn next_callee(&self, code: &Code<'l>, insn_idx: &mut u32) -> Result<Option<usize>, LinkError> {
        while *insn_idx < code.function.insn_count() {
            let at = *insn_idx;
            let Some(insn) = code.insn(at) else { return Ok(None) };
            *insn_idx = at.saturating_add(if insn.is_ld_imm64() { 2 } else { 1 });
            if let Some(callee) = self.callee(code, at, insn)? {
                return Ok(Some(callee));
            }
        }
        Ok(None)
    }

    /// The function that this instruction calls or takes the address of.
    fn callee(&self, code: &Code<'l>, insn_idx: u32, insn: Insn) -> Result<Option<usize>, LinkError> {
        let endian = self.object.endian();
        let is_call = insn.is_call() && insn.src_reg(endian) == pseudo::CALL;
        if !is_call && !insn.is_ld_imm64() {
            return Ok(None);
        }
        let slot = code.function.insn_start().saturating_add(insn_idx);
        let imm = i64::from(insn.imm(endian));
        let Some(rel) = code.section.rels(self.object).of_insn(slot) else {
            // A static function of the same section is called without a relocation.
            if !is_call {
                return Ok(None);
            }
            let target = i64::from(slot).saturating_add(imm).saturating_add(1);
            let found = self.function_at(code.function.code(), target);
            return found.map(Some).ok_or(code.error(insn_idx, LinkCause::NoFunction { symbol: None }));
        };
        let symbol = self.symbol(code, insn_idx, rel)?;
        let section = symbol.section.and_then(|section| {
            self.declared.code.binary_search_by_key(&section, CodeSection::section).ok()
        });
        let Some(section) = section else {
            let is_lost = is_call && !symbol.is_extern();
            return if is_lost {
                Err(code.error(insn_idx, LinkCause::NoFunction { symbol: Some(rel.symbol) }))
            } else {
                Ok(None)
            };
        };
        // A call's immediate counts instructions from the next one; an address's counts bytes.
        let size = INSN_SIZE as i64;
        let value = i64::try_from(symbol.value).unwrap_or(i64::MAX);
        let target = if is_call {
            (value / size).saturating_add(imm).saturating_add(1)
        } else {
            value.saturating_add(imm) / size
        };
        let found = self.function_at(section, target);
        found.map(Some).ok_or(code.error(insn_idx, LinkCause::NoFunction { symbol: Some(rel.symbol) }))
    }

    /// The function of code section `code` that starts at slot `insn_idx` of it.
    fn function_at(&self, code: usize, insn_idx: i64) -> Option<usize> {
        let insn_idx = u32::try_from(insn_idx).ok()?;
        let functions = self.declared.functions;
        let at = functions.partition_point(|function| (function.code(), function.insn_start()) < (code, insn_idx));
        functions.get(at).filter(|found| found.code() == code && found.insn_start() == insn_idx).map(|_| at)
    }

    fn symbol(&self, code: &Code<'l>, insn_idx: u32, rel: Rel) -> Result<Symbol<'l>, LinkError> {
        self.object.elf().symbol(rel.symbol).map_err(|error| code.error(insn_idx, LinkCause::Object(error)))
    }

    fn copy<'i>(&self, code: &Code<'l>, place: &Placement, insns: &'i mut [Insn]) -> Result<&'i mut [Insn], LinkError> {
        let (start, end) = code.byte_range();
        let bytes = code.text.slice(start as usize, (end - start) as usize);
        let at = place.insn_start as usize;
        let part = insns.get_mut(at..at.saturating_add(code.function.insn_count() as usize));
        let missing = code.error(0, LinkCause::Object(ObjectError::BadFunction { symbol: code.function.symbol() }));
        let (Some(bytes), Some(part)) = (bytes, part) else { return Err(missing) };
        part.as_mut_bytes().copy_from_slice(bytes.data());
        Ok(part)
    }

    fn apply_core_relos(
        &self,
        code: &Code<'l>,
        insns: &mut [Insn],
        counts: &mut (u32, u32),
    ) -> Result<(), LinkError> {
        let (start, end) = code.byte_range();
        for (relo_idx, records) in code.section.core_relos(self.object).range(start, end) {
            let Some(relo) = records.core_relo(relo_idx) else { continue };
            let insn_idx = code.insn_idx(u64::from(relo.insn_off));
            if !relo.insn_off.is_multiple_of(INSN_SIZE as u32) {
                return Err(code.error(insn_idx, LinkCause::Misaligned { relo_idx }));
            }
            let Some(decision) = self.decisions.of(&relo) else { continue };
            match decision.verdict() {
                Verdict::Value | Verdict::Poison => {}
                verdict => return Err(code.error(insn_idx, LinkCause::Undecided { relo_idx, verdict })),
            }
            let at = insns.get_mut(insn_idx as usize..).unwrap_or(&mut []);
            let patched = patch_insn(at, decision, self.object.endian())
                .map_err(|error| code.error(insn_idx, LinkCause::Patch { relo_idx, error }))?;
            match patched {
                Patched::Value => counts.0 += 1,
                Patched::Poison => counts.1 += 1,
            }
        }
        Ok(())
    }

    /// Turns relocations against maps, data and externs into references.
    fn apply_references<'s>(
        &self,
        placements: &[Placement],
        insns: &mut [Insn],
        scratch: &mut Arena<'s>,
    ) -> Result<&'s [Reference], LinkError> {
        let mut references = scratch.grow::<Reference>(Part::References);
        for place in placements {
            let code = self.code(place.function as usize);
            for rel in code.rels(self.object) {
                let insn_idx = code.insn_idx(rel.offset);
                let symbol = self.symbol(&code, insn_idx, rel)?;
                let at = place.insn_start.saturating_add(insn_idx) as usize;
                let Some(pair) = insns.get_mut(at..) else { continue };
                let applied = self.apply_reference(pair, &symbol).map_err(|cause| code.error(insn_idx, cause))?;
                if let Some((kind, number)) = applied {
                    let reference = Reference { insn_idx: at as u32, number, kind: kind as u16 };
                    references.push(reference).map_err(code.arena())?;
                }
            }
        }
        Ok(references.finish().map_err(self.code(0).arena())?)
    }

    fn apply_reference(
        &self,
        insns: &mut [Insn],
        symbol: &Symbol<'_>,
    ) -> Result<Option<(ReferenceKind, u16)>, LinkCause> {
        let endian = self.object.endian();
        let (first, rest) = insns.split_first_mut().ok_or(LinkCause::BadLdImm64)?;
        if first.is_call() {
            if !symbol.is_extern() {
                return Ok(None);
            }
            let (number, _) = self.find_extern(symbol)?;
            first.set_src_reg(pseudo::KFUNC_CALL, endian);
            first.set_imm(0, endian);
            return Ok(Some((ReferenceKind::ExternCall, number)));
        }
        if !first.is_ld_imm64() {
            return Err(LinkCause::UnsupportedInsn { code: first.code });
        }
        let second = rest.first_mut().ok_or(LinkCause::BadLdImm64)?;
        if symbol.is_extern() {
            let (number, ext) = self.find_extern(symbol)?;
            first.set_imm(0, endian);
            second.set_imm(0, endian);
            if ext.kind() != ExternKind::Kconfig {
                return Ok(Some((ReferenceKind::ExternLoad, number)));
            }
            first.set_src_reg(pseudo::MAP_VALUE, endian);
            second.set_imm(ext.data_range().0.cast_signed(), endian);
            let map = self.find_map(symbol, |map| map.origin() == MapOrigin::Kconfig)?;
            return Ok(Some((ReferenceKind::MapValue, map)));
        }
        let section = symbol.section.ok_or(LinkCause::UndefinedSymbol { symbol: symbol.index })?;
        if self.declared.code.binary_search_by_key(&section, CodeSection::section).is_ok() {
            // A function's address: the rest is done where its place is known.
            first.set_src_reg(pseudo::FUNC, endian);
            return Ok(None);
        }
        let mut in_section = self.declared.maps.iter().filter(|map| map.section() == section);
        match in_section.next().map(Map::origin) {
            None if self.object.section_name(section) != ARENA_SECTION => {
                Err(LinkCause::UnsupportedSection { symbol: symbol.index })
            }
            origin @ (None | Some(MapOrigin::Data(_))) => {
                let map = self.find_map(symbol, |map| match origin {
                    None => map.map_type == ARENA,
                    Some(_) => map.section() == section,
                })?;
                let offset = first.imm(endian).wrapping_add(symbol.value as i32);
                first.set_src_reg(pseudo::MAP_VALUE, endian);
                first.set_imm(0, endian);
                second.set_imm(offset, endian);
                Ok(Some((ReferenceKind::MapValue, map)))
            }
            Some(_) => {
                let is_it = |map: &Map| {
                    map.section() == section
                        && map.section_offset() == symbol.value
                        && map.origin() != MapOrigin::Inner
                };
                let map = self.find_map(symbol, is_it)?;
                first.set_src_reg(pseudo::MAP_FD, endian);
                first.set_imm(0, endian);
                second.set_imm(0, endian);
                Ok(Some((ReferenceKind::Map, map)))
            }
        }
    }

    fn find_map(&self, symbol: &Symbol<'_>, is_it: impl Fn(&Map) -> bool) -> Result<u16, LinkCause> {
        let found = self.declared.maps.iter().position(is_it);
        found
            .and_then(|number| u16::try_from(number).ok())
            .ok_or(LinkCause::NoMap { symbol: symbol.index })
    }

    fn find_extern(&self, symbol: &Symbol<'_>) -> Result<(u16, &'l Extern), LinkCause> {
        let undefined = LinkCause::UndefinedSymbol { symbol: symbol.index };
        let number = self.declared.externs.iter().position(|ext| ext.symbol() == symbol.index).ok_or(undefined)?;
        let ext = self.declared.externs.get(number).ok_or(undefined)?;
        Ok((u16::try_from(number).map_err(|_| undefined)?, ext))
    }

    /// Points calls and function addresses to where the functions are now.
    fn apply_calls(&self, placements: &[Placement], insns: &mut [Insn]) -> Result<(), LinkError> {
        let endian = self.object.endian();
        for place in placements {
            let code = self.code(place.function as usize);
            let mut insn_idx = 0;
            while insn_idx < code.function.insn_count() {
                let Some(compiled) = code.insn(insn_idx) else { break };
                let at = place.insn_start.saturating_add(insn_idx);
                if let Some(callee) = self.callee(&code, insn_idx, compiled)? {
                    let target = placements.iter().find(|place| place.function as usize == callee);
                    let target = target.map_or(0, |place| place.insn_start);
                    if let Some(insn) = insns.get_mut(at as usize) {
                        insn.set_imm(target.wrapping_sub(at).wrapping_sub(1).cast_signed(), endian);
                    }
                }
                insn_idx += if compiled.is_ld_imm64() { 2 } else { 1 };
            }
        }
        Ok(())
    }

    /// Copies the function or line info of all functions, their instruction offsets made numbers of linked slots.
    fn info<'s>(
        &self,
        placements: &[Placement],
        scratch: &mut Arena<'s>,
        part: Part,
    ) -> Result<(&'s [u8], u32), LinkError> {
        let is_func = part == Part::FuncInfo;
        let records_of = |code: &Code<'l>| {
            let (start, end) = code.byte_range();
            let records =
                if is_func { code.section.func_info(self.object) } else { code.section.line_info(self.object) };
            records.range(start, end)
        };
        let list = if is_func { self.object.ext().func_info } else { self.object.ext().line_info };
        let record_size = list.record_size() as usize;
        let count: usize =
            placements.iter().map(|place| records_of(&self.code(place.function as usize)).count()).sum();
        let bytes = scratch
            .take::<u8>(count.saturating_mul(record_size), part)
            .map_err(self.code(0).arena())?;
        let mut copies = bytes.chunks_exact_mut(record_size.max(1));
        for place in placements {
            let code = self.code(place.function as usize);
            for (number, records) in records_of(&code) {
                let Some(record) = records.record(number) else { continue };
                let Some(copy) = copies.next() else { break };
                copy.copy_from_slice(record.data());
                let insn_idx = code.insn_idx(u64::from(record.u32(0).unwrap_or(0)));
                write_u32(copy, place.insn_start.saturating_add(insn_idx), self.object.endian());
            }
        }
        Ok((bytes, record_size as u32))
    }
}

fn write_u32(bytes: &mut [u8], value: u32, endian: Endian) {
    if let Some(place) = bytes.first_chunk_mut::<4>() {
        *place = u32_bytes(value, endian);
    }
}

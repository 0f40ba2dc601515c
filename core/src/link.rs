//! One program made whole: its subprograms appended, its relocations applied, its references listed.
//!
//! Subprograms follow the program in the order in which libbpf appends them (`bpf_object__reloc_code`): at the first
//! call of one it is appended, then its own calls are followed before the caller goes on.

mod error;
mod info;
mod layout;
mod references;

use zerocopy::IntoBytes;

use crate::arena::{Arena, ArenaFull, Part};
use crate::btf::Types;
use crate::insn::{INSN_SIZE, Insn, slot_of};
use crate::numbers::{to_u32, to_usize};
use crate::object::elf::{Rel, Symbol};
use crate::object::{CodeSection, Declared, Function, MapId, Object, ObjectError, ProgramId};
use crate::relo::decision::{Decisions, Verdict};
use crate::relo::patch::{Patched, patch_insn};

pub use error::{LinkCause, LinkError};
pub use layout::Placement;
use layout::PlacementIndex;
use references::UsedMaps;
pub use references::{Reference, ReferenceKind};

/// Records of function or line information, as BPF_PROG_LOAD takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoRecords<'s> {
    /// All of them, in the object's byte order.
    pub bytes: &'s [u8],
    /// Bytes of one.
    pub record_size: u32,
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
    pub func_info: InfoRecords<'s>,
    /// Line info, likewise.
    pub line_info: InfoRecords<'s>,
    /// CO-RE relocations that got a value.
    pub patched: u32,
    /// CO-RE relocations that were poisoned.
    pub poisoned: u32,
}

/// All that linking needs of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linker<'l> {
    pub(crate) object: &'l Object<'l>,
    pub(crate) local: Option<&'l Types<'l>>,
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
        let size = to_u32(INSN_SIZE);
        (self.function.insn_start().saturating_mul(size), self.function.insn_end().saturating_mul(size))
    }

    fn rels(&self, linker: &Linker<'l>) -> impl Iterator<Item = Rel> + use<'l> {
        let (start, end) = self.byte_range();
        self.section.rels(linker.object, linker.declared.rel_order).range(u64::from(start), u64::from(end))
    }

    /// The slot in the function of the byte `offset` of its section.
    fn insn_idx(&self, offset: u64) -> u32 {
        slot_of(offset).unwrap_or(u32::MAX).saturating_sub(self.function.insn_start())
    }
}

impl<'l> Linker<'l> {
    /// Links a program; all that is returned lies in `scratch`.
    pub(crate) fn link<'s>(&self, id: ProgramId, scratch: &mut Arena<'s>) -> Result<LinkedProgram<'s>, LinkError> {
        let function = id.index();
        let main = self.code(function);
        let arena = main.arena();
        let mut index = PlacementIndex::default();
        let (placements, has_calls) = self.lay_out(function, &mut index, scratch)?;
        let insn_count: u32 =
            placements.iter().map(|place| self.code(place.function.index()).function.insn_count()).sum();
        let insns = scratch.take::<Insn>(to_usize(insn_count), Part::Insns).map_err(arena)?;
        let mut counts = (0, 0);
        for place in placements {
            let code = self.code(place.function.index());
            let part = self.copy(&code, place, insns)?;
            self.apply_core_relos(&code, part, &mut counts)?;
        }
        let references = self.apply_references(placements, insns, scratch)?;
        if has_calls {
            self.apply_calls(placements, &index, insns)?;
        }
        let func_info = self.info(placements, scratch, Part::FuncInfo)?;
        let line_info = self.info(placements, scratch, Part::LineInfo)?;
        Ok(LinkedProgram { insns, placements, references, func_info, line_info, patched: counts.0, poisoned: counts.1 })
    }

    /// Calls `each` with every map that the program refers to.
    pub(crate) fn maps_of(
        &self,
        id: ProgramId,
        scratch: &mut Arena<'_>,
        mut each: impl FnMut(MapId),
    ) -> Result<(), LinkError> {
        let mut used = UsedMaps::default();
        for place in self.lay_out(id.index(), &mut PlacementIndex::default(), scratch)?.0 {
            let code = self.code(place.function.index());
            for rel in code.rels(self) {
                let insn_idx = code.insn_idx(rel.offset);
                let symbol = self.symbol(&code, insn_idx, rel)?;
                let pair = [code.insn(insn_idx), code.insn(insn_idx.saturating_add(1))];
                let mut pair = pair.map(Option::unwrap_or_default);
                let applied =
                    self.apply_reference(&mut pair, &symbol, &mut used).map_err(|cause| code.error(insn_idx, cause))?;
                if let Some((references::MAP | references::MAP_VALUE, map)) = applied {
                    each(MapId::new(u32::from(map)));
                }
            }
        }
        Ok(())
    }

    fn code(&self, function: usize) -> Code<'l> {
        const NO_FUNCTION: &Function = &Function::NONE;
        const NO_SECTION: &CodeSection = &CodeSection::NONE;
        let function = self.declared.functions.get(function).unwrap_or(NO_FUNCTION);
        let section = self.declared.code.get(function.code()).unwrap_or(NO_SECTION);
        Code { function, section, text: section.text(self.object) }
    }

    fn symbol(&self, code: &Code<'l>, insn_idx: u32, rel: Rel) -> Result<Symbol<'l>, LinkError> {
        self.object.elf().symbol(rel.symbol).map_err(|error| code.error(insn_idx, LinkCause::Object(error)))
    }

    fn copy<'i>(&self, code: &Code<'l>, place: &Placement, insns: &'i mut [Insn]) -> Result<&'i mut [Insn], LinkError> {
        let (start, end) = code.byte_range();
        let bytes = code.text.slice(to_usize(start), to_usize(end.saturating_sub(start)));
        let at = to_usize(place.insn_start);
        let part = insns.get_mut(at..at.saturating_add(to_usize(code.function.insn_count())));
        let missing = code.error(0, LinkCause::Object(ObjectError::BadFunction { symbol: code.function.symbol() }));
        let (Some(bytes), Some(part)) = (bytes, part) else { return Err(missing) };
        part.as_mut_bytes().copy_from_slice(bytes.data());
        Ok(part)
    }

    fn apply_core_relos(&self, code: &Code<'l>, insns: &mut [Insn], counts: &mut (u32, u32)) -> Result<(), LinkError> {
        let (start, end) = code.byte_range();
        for (relo_idx, records) in code.section.core_relos(self.object).range(start, end) {
            let Some(relo) = records.core_relo(relo_idx) else { continue };
            let insn_idx = code.insn_idx(u64::from(relo.insn_off));
            if !relo.insn_off.is_multiple_of(to_u32(INSN_SIZE)) {
                return Err(code.error(insn_idx, LinkCause::Misaligned { relo_idx }));
            }
            let Some(decision) = self.decisions.of(&relo) else { continue };
            match decision.verdict() {
                Verdict::Value | Verdict::Poison => {}
                verdict => return Err(code.error(insn_idx, LinkCause::Undecided { relo_idx, verdict })),
            }
            let at = insns.get_mut(to_usize(insn_idx)..).unwrap_or(&mut []);
            let patched = patch_insn(at, decision, self.object.endian())
                .map_err(|error| code.error(insn_idx, LinkCause::Patch { relo_idx, error }))?;
            match patched {
                Patched::Value => counts.0 = counts.0.wrapping_add(1),
                Patched::Poison => counts.1 = counts.1.wrapping_add(1),
            }
        }
        Ok(())
    }
}

//! Every CO-RE relocation of an object, and what it does to its instruction.

use crate::btf::ext::CoreRelo;
use crate::insn::{Insn, slot_of};
use crate::numbers::to_u32;
use crate::object::{CodeSection, Function, ProgramId};
use crate::relo::decision::{Decision, Verdict};
use crate::relo::patch::{PatchError, Patched, patch_insn};

use super::prepared::Prepared;

impl<'a> Prepared<'a> {
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
        let slot = slot_of(u64::from(relo.insn_off))?;
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
        let start = function.and_then(|index| functions.get(index)).map_or(0, Function::insn_start);
        Some(Relocation {
            function: function.map(|index| ProgramId::new(to_u32(index))),
            section: section.section(),
            relo_idx,
            insn_idx: slot.wrapping_sub(start),
            relo,
            decision,
            outcome,
            compiled,
            insns,
            slots,
        })
    }
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
    /// The function that it is in.
    pub function: Option<ProgramId>,
    /// The section.
    pub section: u32,
    /// Its index among the records of the section.
    pub relo_idx: u32,
    /// The instruction slot in the function, as compiled.
    pub insn_idx: u32,
    /// The record.
    pub relo: CoreRelo,
    /// What was decided.
    pub decision: &'p Decision,
    /// What was done.
    pub outcome: Result<Patched, RelocationError>,
    pub(super) compiled: [Insn; 2],
    pub(super) insns: [Insn; 2],
    pub(super) slots: usize,
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

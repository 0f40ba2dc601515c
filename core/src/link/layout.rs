//! Which functions a program reaches, and where each goes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::arena::{Arena, Part};
use crate::insn::{Insn, pseudo, whole_slot_of};
use crate::limits::{MAX_PROGRAM_INSNS, MAX_SUBPROGRAMS};
use crate::numbers::{to_u32, to_usize};
use crate::object::{CodeSection, ProgramId, exception_callback};

use super::{Code, LinkCause, LinkError, Linker};

/// A function's place in a linked program.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Placement {
    /// The function.
    pub function: ProgramId,
    /// The slot at which it starts.
    pub insn_start: u32,
    parent: u32,
    resume: u32,
}

/// Which placement a function has: slots of the list by a hash of the function's index, one after the other where
/// several have the same. At most half full.
pub(super) struct PlacementIndex([u8; 2 * MAX_SUBPROGRAMS]);

impl Default for PlacementIndex {
    fn default() -> Self {
        Self([0; 2 * MAX_SUBPROGRAMS])
    }
}

impl PlacementIndex {
    /// The index of the function's placement, or the slot for it. The program itself, of index 0, is in no slot.
    #[inline(never)]
    fn find(&self, placements: &[Placement], function: usize) -> Result<usize, usize> {
        if placements.first().is_some_and(|place| place.function.index() == function) {
            return Ok(0);
        }
        let mut at = function;
        loop {
            at &= self.0.len().wrapping_sub(1);
            let placement = usize::from(self.0.get(at).copied().unwrap_or(0));
            match placements.get(placement) {
                Some(place) if placement != 0 && place.function.index() == function => return Ok(placement),
                Some(_) if placement != 0 => at = at.wrapping_add(1),
                _ => return Err(at),
            }
        }
    }
}

impl<'l> Linker<'l> {
    /// Finds all functions that the program reaches, in the order in which they are appended, and whether any
    /// instruction leads to one; `index` gets where each is in that order.
    pub(super) fn lay_out<'s>(
        &self,
        function: usize,
        index: &mut PlacementIndex,
        scratch: &mut Arena<'s>,
    ) -> Result<(&'s [Placement], bool), LinkError> {
        let main = self.code(function);
        let arena = main.arena();
        let mut placements = scratch.grow::<Placement>(Part::Layout);
        placements
            .push(Placement { function: ProgramId::new(to_u32(function)), insn_start: 0, parent: 0, resume: 0 })
            .map_err(arena)?;
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
                    let place = placements.as_slice().get(to_usize(current)).copied();
                    let Some(place) = place else { break };
                    (current, insn_idx) = (place.parent, place.resume);
                    let parent = placements.as_slice().get(to_usize(current)).map_or(0, |place| place.function.index());
                    code = self.code(parent);
                    continue;
                }
            };
            has_calls = true;
            let Err(free) = index.find(placements.as_slice(), callee) else { continue };
            let placement = u8::try_from(placements.len()).map_err(|_| main.error(0, LinkCause::TooManySubprograms))?;
            if let Some(place) = index.0.get_mut(free) {
                *place = placement;
            }
            let place = Placement {
                function: ProgramId::new(to_u32(callee)),
                insn_start: end,
                parent: current,
                resume: insn_idx,
            };
            current = u32::from(placement);
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

    /// What handles the exceptions of a program, if a declaration tag says so.
    pub(super) fn exception_callback(&self, main: &Code<'l>) -> Result<Option<usize>, LinkError> {
        if !self.declared.has_exception_callbacks {
            return Ok(None);
        }
        let function = self.object.symbol_name(main.function.symbol());
        let name = self.local.and_then(|local| exception_callback(local, Some(function)));
        let Some(name) = name else { return Ok(None) };
        let found = self
            .declared
            .functions
            .iter()
            .position(|function| !function.is_program() && self.object.symbol_name(function.symbol()) == name);
        found.map(Some).ok_or(main.error(0, LinkCause::NoExceptionCallback))
    }

    /// The function that the next call or function address from slot `insn_idx` on leads to; `insn_idx` is moved behind
    /// it.
    pub(super) fn next_callee(&self, code: &Code<'l>, insn_idx: &mut u32) -> Result<Option<usize>, LinkError> {
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
    pub(super) fn callee(&self, code: &Code<'l>, insn_idx: u32, insn: Insn) -> Result<Option<usize>, LinkError> {
        let endian = self.object.endian();
        let is_call = insn.is_call() && insn.src_reg(endian) == pseudo::CALL;
        if !is_call && !insn.is_ld_imm64() {
            return Ok(None);
        }
        let slot = code.function.insn_start().saturating_add(insn_idx);
        let imm = i64::from(insn.imm(endian));
        let Some(rel) = code.section.rels(self.object, self.declared.rel_order).of_insn(slot) else {
            // A static function of the same section is called without a relocation.
            if !is_call {
                return Ok(None);
            }
            let target = i64::from(slot).saturating_add(imm).saturating_add(1);
            let found = self.function_at(code.function.code(), target);
            return found.map(Some).ok_or(code.error(insn_idx, LinkCause::NoFunction { symbol: None }));
        };
        let symbol = self.symbol(code, insn_idx, rel)?;
        let section = symbol
            .section
            .and_then(|section| self.declared.code.binary_search_by_key(&section, CodeSection::section).ok());
        let Some(section) = section else {
            let is_lost = is_call && !symbol.is_extern();
            return if is_lost {
                Err(code.error(insn_idx, LinkCause::NoFunction { symbol: Some(rel.symbol) }))
            } else {
                Ok(None)
            };
        };
        // A call's immediate counts instructions from the next one; an address's counts bytes.
        let (in_bytes, in_insns) = if is_call { (0, imm.saturating_add(1)) } else { (imm, 0) };
        let start = whole_slot_of(symbol.value.wrapping_add_signed(in_bytes));
        let found = start.and_then(|start| self.function_at(section, i64::from(start).saturating_add(in_insns)));
        found.map(Some).ok_or(code.error(insn_idx, LinkCause::NoFunction { symbol: Some(rel.symbol) }))
    }

    /// The function of code section `code` that starts at slot `insn_idx` of it.
    fn function_at(&self, code: usize, insn_idx: i64) -> Option<usize> {
        self.declared.function_at(code, u32::try_from(insn_idx).ok()?)
    }

    /// Points calls and function addresses to where the functions are now.
    pub(super) fn apply_calls(
        &self,
        placements: &[Placement],
        index: &PlacementIndex,
        insns: &mut [Insn],
    ) -> Result<(), LinkError> {
        let endian = self.object.endian();
        for place in placements {
            let code = self.code(place.function.index());
            let mut insn_idx = 0;
            while insn_idx < code.function.insn_count() {
                let Some(compiled) = code.insn(insn_idx) else { break };
                let at = place.insn_start.saturating_add(insn_idx);
                if let Some(callee) = self.callee(&code, insn_idx, compiled)? {
                    let target = index.find(placements, callee).ok().and_then(|placement| placements.get(placement));
                    let target = target.map_or(0, |place| place.insn_start);
                    if let Some(insn) = insns.get_mut(to_usize(at)) {
                        insn.set_imm(target.wrapping_sub(at).wrapping_sub(1).cast_signed(), endian);
                    }
                }
                insn_idx = insn_idx.saturating_add(if compiled.is_ld_imm64() { 2 } else { 1 });
            }
        }
        Ok(())
    }
}

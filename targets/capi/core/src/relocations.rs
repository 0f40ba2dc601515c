//! What CO-RE did to each instruction.

use core::ffi::{c_int, c_void};

use corelo_core::insn::INSN_SIZE;
use corelo_core::link::{LinkCause, LinkError};
use corelo_core::prepare::RelocationError;
use corelo_core::relo::patch::Patched;

use crate::error::{Code, CoreFailure, Error, finish, write_text};
use crate::memory::Text;
use crate::prepared::Prepared;
use crate::programs::raw;

/// What became of a relocation.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The instruction has the kernel's value.
    Patched = 0,
    /// The kernel lacks what it reads: it is a call that no verifier lets pass, fine where it is never reached.
    Poisoned = 1,
    /// Neither could be done: the program cannot be linked.
    Failed = 2,
}

/// One CO-RE relocation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    /// The function that it is in; empty where it is in none.
    pub function: Text,
    /// The section.
    pub section: Text,
    /// The slot in the function, as compiled.
    pub insn_idx: u32,
    /// `enum bpf_core_relo_kind`; UINT32_MAX where it is none that is known.
    pub kind: u32,
    /// The id of the local root type in the object's BTF.
    pub local_type_id: u32,
    /// What became of it.
    pub status: Status,
    /// The value as compiled.
    pub local_value: u64,
    /// The value in the kernel.
    pub target_value: u64,
    /// The instruction as it is now: 8 bytes in the object's byte order, or 16 of a 64-bit load.
    pub insn: [u8; 16],
    /// Bytes of `insn` that count.
    pub insn_size: u32,
    /// With `Failed`: why.
    pub fault: Text,
}

/// Called with each relocation, which is valid until it returns. Anything but 0 ends the report.
pub type EachRelocation = Option<unsafe extern "C" fn(context: *mut c_void, relocation: *const Relocation) -> c_int>;

/// Calls `each` with every CO-RE relocation of the object, in the order of its records.
///
/// Result: `CORELO_CODE_OK`, also where `each` ended it; `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_relocations(
    prepared: *const Prepared,
    each: EachRelocation,
    context: *mut c_void,
    error: *mut Error,
) -> Code {
    let report = || {
        // SAFETY: NULL or valid, the caller's promise.
        let prepared = unsafe { prepared.as_ref() }.ok_or(CoreFailure::argument("prepared is NULL"))?;
        let each = each.ok_or(CoreFailure::argument("each is NULL"))?;
        for relocation in prepared.inner.relocations() {
            let function = relocation.function.and_then(|id| prepared.inner.declared().function(id));
            let mut fault = [0u8; 160];
            let (status, fault_len) = match relocation.outcome {
                Ok(Patched::Value) => (Status::Patched, 0),
                Ok(Patched::Poison) => (Status::Poisoned, 0),
                Err(error) => {
                    let relo_idx = relocation.relo_idx;
                    let cause = match error {
                        RelocationError::Undecided(verdict) => LinkCause::Undecided { relo_idx, verdict },
                        RelocationError::Patch(error) => LinkCause::Patch { relo_idx, error },
                    };
                    let symbol = function.map_or(0, corelo_core::object::Function::symbol);
                    let words = LinkError { function: symbol, insn_idx: relocation.insn_idx, cause };
                    (Status::Failed, write_text(&mut fault, &words))
                }
            };
            let mut insn = [0; 16];
            let insns = relocation.insns();
            for (place, slot) in insn.chunks_exact_mut(INSN_SIZE).zip(insns) {
                place.copy_from_slice(&raw(*slot));
            }
            let found = Relocation {
                function: Text::new(function.map_or(&[], |function| prepared.inner.function_name(function))),
                section: Text::new(prepared.inner.object().section_name(relocation.section)),
                insn_idx: relocation.insn_idx,
                kind: relocation.relo.kind.number(),
                local_type_id: relocation.relo.type_id.0,
                status,
                local_value: relocation.decision.local_value(),
                target_value: relocation.decision.target_value(),
                insn,
                insn_size: (insns.len() * INSN_SIZE) as u32,
                fault: Text::new(fault.get(..fault_len).unwrap_or_default()),
            };
            // SAFETY: a function of the caller's; what it is given lives until it returns.
            if unsafe { each(context, &raw const found) } != 0 {
                break;
            }
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { finish(report(), error) }
}

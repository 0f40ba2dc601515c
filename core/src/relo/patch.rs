//! The decision put into the instruction (libbpf: `bpf_core_patch_insn`).

use core::fmt;

use super::decision::{AccessSizes, Decision, Verdict};
use crate::bytes::Endian;
use crate::insn::{Class, Insn};
use crate::numbers::{high_u32, low_u32};

/// What became of an instruction.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patched {
    /// It has the target's value.
    Value,
    /// It is a call of the poison helper: the verifier accepts it in dead code only.
    Poison,
}

/// Why a decided value cannot be put into the instruction.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatchError {
    /// The compiled immediate or offset is not the local value: record and code do not belong together.
    UnexpectedValue {
        /// What the instruction has.
        found: u64,
        /// What the local type says.
        expected: u64,
    },
    /// The offset does not fit the instruction's signed 16 bits.
    OffsetTooBig {
        /// The offset in bytes.
        value: u64,
    },
    /// The value is not the sign extension of its low 32 bits, so the 32-bit immediate cannot hold it.
    ImmediateTooBig {
        /// The value.
        value: u64,
    },
    /// The load or store moves another number of bytes than the local field has.
    UnexpectedAccessSize {
        /// Bytes that it moves.
        found: u8,
        /// Bytes of the local field; 255 for more than 8.
        expected: u8,
    },
    /// The target field has a size that no load or store moves.
    NoSuchAccessSize {
        /// Bytes of the target field; 255 for more than 8.
        byte_size: u8,
    },
    /// The instruction is of a form that cannot be relocated.
    UnsupportedInsn {
        /// Its code.
        code: u8,
    },
    /// The two halves of a 64-bit load are not of the form that compilers write, or the second is missing.
    BadLdImm64,
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UnexpectedValue { found, expected } => {
                write!(f, "instruction has value {found}, but the local type says {expected}")
            }
            Self::OffsetTooBig { value } => write!(f, "offset {value} does not fit into 16 bits"),
            Self::ImmediateTooBig { value } => {
                write!(f, "value {value:#x} is not the sign extension of a 32-bit immediate")
            }
            Self::UnexpectedAccessSize { found, expected } => {
                write!(f, "instruction moves {found} bytes, but the local field has {expected}")
            }
            Self::NoSuchAccessSize { byte_size } => {
                write!(f, "target field has {byte_size} bytes, which no load or store moves")
            }
            Self::UnsupportedInsn { code } => write!(f, "instruction of code {code:#04x} cannot be relocated"),
            Self::BadLdImm64 => f.write_str("64-bit load has an unexpected form"),
        }
    }
}

impl core::error::Error for PatchError {}

/// Applies `decision` to the instruction at the start of `insns`. A 64-bit load takes two slots; their number never
/// changes.
///
/// # Errors
/// [`PatchError`]; the instruction is as it was then.
pub fn patch_insn(insns: &mut [Insn], decision: &Decision, endian: Endian) -> Result<Patched, PatchError> {
    let (first, rest) = insns.split_first_mut().ok_or(PatchError::BadLdImm64)?;
    let second = rest.first_mut();
    if decision.verdict() == Verdict::Poison {
        return poison(first, second, endian);
    }
    let value = decision.target_value();
    match first.class() {
        Class::Alu | Class::Alu64 => patch_alu(first, decision, endian)?,
        Class::Ldx | Class::St | Class::Stx => {
            let found = i64::from(first.off(endian)).cast_unsigned();
            validate(decision, found)?;
            let off = i16::try_from(value).map_err(|_| PatchError::OffsetTooBig { value })?;
            if decision.is_wrong_access() {
                return poison(first, second, endian);
            }
            change_access_size(first, decision)?;
            first.set_off(off, endian);
        }
        Class::Ld => patch_ld_imm64(first, second, decision, endian)?,
        Class::Jmp | Class::Jmp32 => return Err(PatchError::UnsupportedInsn { code: first.code }),
    }
    Ok(Patched::Value)
}

fn poison(first: &mut Insn, second: Option<&mut Insn>, endian: Endian) -> Result<Patched, PatchError> {
    if first.is_ld_imm64() {
        // A half that is left alone would be an unknown instruction, which the verifier refuses even in dead code.
        *second.ok_or(PatchError::BadLdImm64)? = Insn::poison(endian);
    }
    *first = Insn::poison(endian);
    Ok(Patched::Poison)
}

fn validate(decision: &Decision, found: u64) -> Result<(), PatchError> {
    let expected = decision.local_value();
    if decision.is_validated() && found != expected {
        return Err(PatchError::UnexpectedValue { found, expected });
    }
    Ok(())
}

fn patch_alu(insn: &mut Insn, decision: &Decision, endian: Endian) -> Result<(), PatchError> {
    if insn.has_source_register() {
        return Err(PatchError::UnsupportedInsn { code: insn.code });
    }
    validate(decision, i64::from(insn.imm(endian)).cast_unsigned())?;
    let value = decision.target_value();
    let imm = i32::try_from(value.cast_signed()).map_err(|_| PatchError::ImmediateTooBig { value })?;
    insn.set_imm(imm, endian);
    Ok(())
}

fn change_access_size(insn: &mut Insn, decision: &Decision) -> Result<(), PatchError> {
    let AccessSizes { local, target } = decision.access_sizes();
    if local == target {
        return Ok(());
    }
    let found = insn.access_size();
    if found != local {
        return Err(PatchError::UnexpectedAccessSize { found, expected: local });
    }
    insn.set_access_size(target).ok_or(PatchError::NoSuchAccessSize { byte_size: target })
}

fn patch_ld_imm64(
    first: &mut Insn,
    second: Option<&mut Insn>,
    decision: &Decision,
    endian: Endian,
) -> Result<(), PatchError> {
    let second = second.ok_or(PatchError::BadLdImm64)?;
    let is_second_half =
        second.code == 0 && second.dst_reg(endian) == 0 && second.src_reg(endian) == 0 && second.off(endian) == 0;
    if !first.is_ld_imm64() || first.src_reg(endian) != 0 || first.off(endian) != 0 || !is_second_half {
        return Err(PatchError::BadLdImm64);
    }
    // Both halves join as unsigned: a low half with its top bit set must not fill the high one.
    let low = first.imm(endian).cast_unsigned();
    let high = second.imm(endian).cast_unsigned();
    validate(decision, u64::from(low) | (u64::from(high) << 32))?;
    let value = decision.target_value();
    first.set_imm(low_u32(value).cast_signed(), endian);
    second.set_imm(high_u32(value).cast_signed(), endian);
    Ok(())
}

//! The 8-byte BPF instruction (UAPI: `struct bpf_insn`), in the byte order of the object it came from.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::bytes::{Bytes, Endian, u16_bytes, u16_of, u32_bytes, u32_of};

/// Bytes of one instruction slot.
pub const INSN_SIZE: usize = 8;

/// The slot that the byte at `byte_offset` of a code section is in, and how many whole slots lie before.
pub(crate) fn slot_of(byte_offset: u64) -> Option<u32> {
    // A shift: a division of 64 bits is a library routine on small processors.
    u32::try_from(byte_offset >> INSN_SIZE.trailing_zeros()).ok()
}

/// The slot that starts at a byte offset.
pub(crate) fn whole_slot_of(byte_offset: u64) -> Option<u32> {
    slot_of(byte_offset).filter(|_| byte_offset.is_multiple_of(crate::numbers::to_u64(INSN_SIZE)))
}

/// The helper number that marks a poisoned instruction: "bad relo" (libbpf: `bpf_core_poison_insn`).
pub const POISON_HELPER: i32 = 0x0bad_2310;

/// The helper number that marks a call of a weak kfunc that the kernel lacks (libbpf: `POISON_CALL_KFUNC_BASE` plus the
/// extern's number).
pub const POISON_KFUNC_BASE: i32 = 2_002_000_000;
/// The helper number that marks a reference to a map that is not created (libbpf: `POISON_LDIMM64_MAP_BASE` plus the
/// map's index).
pub const POISON_MAP_BASE: i32 = 2_001_000_000;

/// The source register values that give a 64-bit load or a call its meaning (UAPI: `BPF_PSEUDO_*`).
pub mod pseudo {
    /// `LD_IMM64`: the immediate is a map's descriptor.
    pub const MAP_FD: u8 = 1;
    /// `LD_IMM64`: a map's descriptor and an offset into its value.
    pub const MAP_VALUE: u8 = 2;
    /// `LD_IMM64`: a BTF id of a kernel variable.
    pub const BTF_ID: u8 = 3;
    /// `LD_IMM64`: a function of the same program, relative.
    pub const FUNC: u8 = 4;
    /// `CALL`: a function of the same program, relative.
    pub const CALL: u8 = 1;
    /// `CALL`: a BTF id of a kernel function.
    pub const KFUNC_CALL: u8 = 2;
}

const CLASS_MASK: u8 = 0x07;
const SIZE_MASK: u8 = 0x18;
const SRC_X: u8 = 0x08;
const CODE_CALL: u8 = 0x85;
const CODE_LD_IMM64: u8 = 0x18;

/// The class of an instruction: the low three bits of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `BPF_LD`
    Ld,
    /// `BPF_LDX`
    Ldx,
    /// `BPF_ST`
    St,
    /// `BPF_STX`
    Stx,
    /// `BPF_ALU`: 32-bit arithmetic
    Alu,
    /// `BPF_JMP`
    Jmp,
    /// `BPF_JMP32`
    Jmp32,
    /// `BPF_ALU64`
    Alu64,
}

/// One instruction slot, its bytes as the object has them.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Insn {
    /// The operation code.
    pub code: u8,
    regs: u8,
    off: [u8; 2],
    imm: [u8; 4],
}

impl Insn {
    /// The instruction in slot `insn_idx` of `text`.
    #[must_use]
    pub fn read(text: Bytes<'_>, insn_idx: u32) -> Option<Self> {
        let at = usize::try_from(insn_idx).ok()?.checked_mul(INSN_SIZE)?;
        let bytes = text.slice(at, INSN_SIZE)?.data();
        Self::read_from_bytes(bytes).ok()
    }

    /// A call of the poison helper.
    #[must_use]
    pub fn poison(endian: Endian) -> Self {
        Self { code: CODE_CALL, imm: u32_bytes(POISON_HELPER.cast_unsigned(), endian), ..Self::default() }
    }

    /// Its class.
    #[must_use]
    pub const fn class(self) -> Class {
        match self.code & CLASS_MASK {
            0 => Class::Ld,
            1 => Class::Ldx,
            2 => Class::St,
            3 => Class::Stx,
            4 => Class::Alu,
            5 => Class::Jmp,
            6 => Class::Jmp32,
            _ => Class::Alu64,
        }
    }

    /// Whether it is the first half of a two-slot 64-bit load.
    #[must_use]
    pub const fn is_ld_imm64(self) -> bool {
        self.code == CODE_LD_IMM64
    }

    /// Whether it is a call with an immediate target.
    #[must_use]
    pub const fn is_call(self) -> bool {
        self.code == CODE_CALL
    }

    /// Whether its operand is a register.
    #[must_use]
    pub const fn has_source_register(self) -> bool {
        self.code & SRC_X != 0
    }

    /// Bytes that a load or store moves: the size bits of its code.
    #[must_use]
    pub const fn access_size(self) -> u8 {
        match self.code & SIZE_MASK {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    /// Makes a load or store move `byte_size` bytes.
    ///
    /// Gives `None` and changes nothing where no instruction moves so many.
    #[must_use]
    pub fn set_access_size(&mut self, byte_size: u8) -> Option<()> {
        let bits = match byte_size {
            4 => 0x00,
            2 => 0x08,
            1 => 0x10,
            8 => 0x18,
            _ => return None,
        };
        self.code = (self.code & !SIZE_MASK) | bits;
        Some(())
    }

    /// The source register: the high nibble in little-endian objects, the low one in big-endian ones.
    #[must_use]
    pub const fn src_reg(self, endian: Endian) -> u8 {
        match endian {
            Endian::Little => self.regs >> 4,
            Endian::Big => self.regs & 0x0f,
        }
    }

    /// The destination register.
    #[must_use]
    pub const fn dst_reg(self, endian: Endian) -> u8 {
        match endian {
            Endian::Little => self.regs & 0x0f,
            Endian::Big => self.regs >> 4,
        }
    }

    /// Sets the source register.
    pub const fn set_src_reg(&mut self, src_reg: u8, endian: Endian) {
        self.regs = match endian {
            Endian::Little => (self.regs & 0x0f) | (src_reg << 4),
            Endian::Big => (self.regs & 0xf0) | (src_reg & 0x0f),
        };
    }

    /// The signed 16-bit offset.
    #[must_use]
    pub const fn off(self, endian: Endian) -> i16 {
        u16_of(self.off, endian).cast_signed()
    }

    /// Sets the offset.
    pub const fn set_off(&mut self, off: i16, endian: Endian) {
        self.off = u16_bytes(off.cast_unsigned(), endian);
    }

    /// The signed 32-bit immediate.
    #[must_use]
    pub const fn imm(self, endian: Endian) -> i32 {
        u32_of(self.imm, endian).cast_signed()
    }

    /// Sets the immediate.
    pub const fn set_imm(&mut self, imm: i32, endian: Endian) {
        self.imm = u32_bytes(imm.cast_unsigned(), endian);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_read_the_same_in_both_orders() {
        // r1 = *(u32 *)(r2 - 8), as clang writes it for bpfel and bpfeb.
        let little = [0x61, 0x21, 0xf8, 0xff, 0, 0, 0, 0];
        let big = [0x61, 0x12, 0xff, 0xf8, 0, 0, 0, 0];
        for (bytes, endian) in [(little, Endian::Little), (big, Endian::Big)] {
            let mut insn = Insn::read(Bytes::new(&bytes, endian), 0).unwrap();
            assert_eq!(insn.class(), Class::Ldx);
            assert_eq!(insn.dst_reg(endian), 1);
            assert_eq!(insn.src_reg(endian), 2);
            assert_eq!(insn.off(endian), -8);
            assert_eq!(insn.access_size(), 4);
            insn.set_access_size(8).unwrap();
            assert_eq!(insn.code, 0x79);
            assert_eq!(insn.set_access_size(3), None);
            insn.set_src_reg(5, endian);
            assert_eq!((insn.src_reg(endian), insn.dst_reg(endian)), (5, 1));
        }
    }

    #[test]
    fn poison_is_a_call_of_the_helper_that_libbpf_uses() {
        assert_eq!(Insn::poison(Endian::Little).as_bytes(), [0x85, 0, 0, 0, 0x10, 0x23, 0xad, 0x0b]);
        assert_eq!(Insn::poison(Endian::Big).as_bytes(), [0x85, 0, 0, 0, 0x0b, 0xad, 0x23, 0x10]);
    }
}

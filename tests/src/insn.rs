//! BPF instructions to write by hand (`Documentation/bpf/standardization/instruction-set.rst`).

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::endian::Endian;

/// Access width of a load or store (bits 3 and 4 of the opcode).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 1 byte
    B,
    /// 2 bytes
    H,
    /// 4 bytes
    W,
    /// 8 bytes
    Dw,
}

impl Width {
    /// All widths.
    pub const ALL: [Width; 4] = [Width::B, Width::H, Width::W, Width::Dw];

    fn bits(self) -> u8 {
        match self {
            Width::W => 0x00,
            Width::H => 0x08,
            Width::B => 0x10,
            Width::Dw => 0x18,
        }
    }

    /// Bytes accessed.
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Width::B => 1,
            Width::H => 2,
            Width::W => 4,
            Width::Dw => 8,
        }
    }
}

/// One 8-byte slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insn {
    /// Opcode.
    pub code: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register.
    pub src: u8,
    /// Offset.
    pub off: i16,
    /// Immediate.
    pub imm: i32,
}

impl Insn {
    /// Any instruction.
    #[must_use]
    pub fn new(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Self {
        Insn { code, dst, src, off, imm }
    }

    /// `dst = imm` in 64 bits.
    #[must_use]
    pub fn mov64_imm(dst: u8, imm: i32) -> Self {
        Insn::new(0xb7, dst, 0, 0, imm)
    }

    /// `dst = imm` in 32 bits.
    #[must_use]
    pub fn mov32_imm(dst: u8, imm: i32) -> Self {
        Insn::new(0xb4, dst, 0, 0, imm)
    }

    /// `dst = src` in 64 bits.
    #[must_use]
    pub fn mov64_reg(dst: u8, src: u8) -> Self {
        Insn::new(0xbf, dst, src, 0, 0)
    }

    /// `dst += imm` in 64 bits.
    #[must_use]
    pub fn add64_imm(dst: u8, imm: i32) -> Self {
        Insn::new(0x07, dst, 0, 0, imm)
    }

    /// `dst <<= imm` in 64 bits.
    #[must_use]
    pub fn lsh64_imm(dst: u8, imm: i32) -> Self {
        Insn::new(0x67, dst, 0, 0, imm)
    }

    /// `dst >>= imm` in 64 bits.
    #[must_use]
    pub fn rsh64_imm(dst: u8, imm: i32) -> Self {
        Insn::new(0x77, dst, 0, 0, imm)
    }

    /// `dst = *(src + off)`, zero-extended (mode MEM).
    #[must_use]
    pub fn ldx(width: Width, dst: u8, src: u8, off: i16) -> Self {
        Insn::new(0x61 | width.bits(), dst, src, off, 0)
    }

    /// `dst = *(src + off)`, sign-extended (mode MEMSX).
    #[must_use]
    pub fn ldx_signed(width: Width, dst: u8, src: u8, off: i16) -> Self {
        Insn::new(0x81 | width.bits(), dst, src, off, 0)
    }

    /// `*(dst + off) = imm`
    #[must_use]
    pub fn st(width: Width, dst: u8, off: i16, imm: i32) -> Self {
        Insn::new(0x62 | width.bits(), dst, 0, off, imm)
    }

    /// `*(dst + off) = src`
    #[must_use]
    pub fn stx(width: Width, dst: u8, src: u8, off: i16) -> Self {
        Insn::new(0x63 | width.bits(), dst, src, off, 0)
    }

    /// An atomic operation on `*(dst + off)`; `op` is the immediate (0: add).
    #[must_use]
    pub fn atomic(width: Width, dst: u8, src: u8, off: i16, op: i32) -> Self {
        Insn::new(0xc3 | width.bits(), dst, src, off, op)
    }

    /// `dst = imm64`, two slots; `src` is the pseudo source (0: a plain value).
    #[must_use]
    pub fn ld_imm64(dst: u8, src: u8, value: u64) -> [Insn; 2] {
        [Insn::new(0x18, dst, src, 0, value as u32 as i32), Insn::new(0, 0, 0, 0, (value >> 32) as u32 as i32)]
    }

    /// dst = the map (BPF_PSEUDO_MAP_FD): two slots.
    #[must_use]
    pub fn ld_map(dst: u8, map: BorrowedFd<'_>) -> [Insn; 2] {
        Insn::ld_imm64(dst, 1, u64::try_from(map.as_raw_fd()).expect("a descriptor is not negative"))
    }

    /// Call of a helper by number.
    #[must_use]
    pub fn call_helper(number: i32) -> Self {
        Insn::new(0x85, 0, 0, 0, number)
    }

    /// Call of a BPF function, as compiled: the immediate is relative, in slots, to the next instruction; -1 with a relocation.
    #[must_use]
    pub fn call_bpf(relative: i32) -> Self {
        Insn::new(0x85, 0, 1, 0, relative)
    }

    /// Unconditional jump by slots.
    #[must_use]
    pub fn ja(off: i16) -> Self {
        Insn::new(0x05, 0, 0, off, 0)
    }

    /// End of the program or function.
    #[must_use]
    pub fn exit() -> Self {
        Insn::new(0x95, 0, 0, 0, 0)
    }

    /// The 8 bytes. The register nibbles swap with the byte order, as the C bitfields of `struct bpf_insn` do.
    #[must_use]
    pub fn bytes(self, endian: Endian) -> [u8; 8] {
        let regs = match endian {
            Endian::Little => self.src << 4 | self.dst,
            Endian::Big => self.dst << 4 | self.src,
        };
        let off = endian.u16(self.off as u16);
        let imm = endian.u32(self.imm as u32);
        [self.code, regs, off[0], off[1], imm[0], imm[1], imm[2], imm[3]]
    }

    /// The instruction in 8 bytes, or `None` if there are fewer.
    #[must_use]
    pub fn read(bytes: &[u8], endian: Endian) -> Option<Insn> {
        let (code, regs) = (*bytes.first()?, *bytes.get(1)?);
        let (high, low) = (regs >> 4, regs & 15);
        let (dst, src) = match endian {
            Endian::Little => (low, high),
            Endian::Big => (high, low),
        };
        let off = endian.read_u16(bytes, 2)? as i16;
        let imm = endian.read_u32(bytes, 4)? as i32;
        Some(Insn { code, dst, src, off, imm })
    }
}

/// A program that writes `value` as a record of 8 bytes into a ring buffer, and returns what the helper does.
#[must_use]
pub fn ring_output(map: BorrowedFd<'_>, value: i32) -> [Insn; 9] {
    let [low, high] = Insn::ld_map(1, map);
    [
        Insn::st(Width::Dw, 10, -8, value),
        low,
        high,
        Insn::mov64_reg(2, 10),
        Insn::add64_imm(2, -8),
        Insn::mov64_imm(3, 8),
        Insn::mov64_imm(4, 0),
        Insn::call_helper(130),
        Insn::exit(),
    ]
}

/// A program that counts its runs in element 0 of an array of 64-bit numbers, and returns 0.
#[must_use]
pub fn count_runs(map: BorrowedFd<'_>) -> [Insn; 11] {
    let [low, high] = Insn::ld_map(1, map);
    [
        // *(u32 *)(r10 - 4) = 0; r0 = lookup(map, r10 - 4)
        Insn::st(Width::W, 10, -4, 0),
        low,
        high,
        Insn::mov64_reg(2, 10),
        Insn::add64_imm(2, -4),
        Insn::call_helper(1),
        // if r0 != 0, lock *(u64 *)r0 += 1
        Insn::new(0x15, 0, 0, 2, 0),
        Insn::mov64_imm(1, 1),
        Insn::atomic(Width::Dw, 0, 1, 0, 0),
        Insn::mov64_imm(0, 0),
        Insn::exit(),
    ]
}

/// The bytes of a run of instructions.
#[must_use]
pub fn encode(insns: &[Insn], endian: Endian) -> Vec<u8> {
    insns.iter().flat_map(|insn| insn.bytes(endian)).collect()
}

/// The instructions in a run of bytes; a rest of less than 8 bytes is left out.
#[must_use]
pub fn decode(bytes: &[u8], endian: Endian) -> Vec<Insn> {
    bytes.chunks_exact(8).filter_map(|chunk| Insn::read(chunk, endian)).collect()
}

/// The bytes of a run of instructions with everything zeroed that stands for a descriptor or id of one running kernel: map and
/// map value loads (pseudo sources 1, 2, 5 and 6; of a value the offset stays), kernel variables (3), kernel functions (call with
/// source 2). What two loaders make of one program can then be compared.
#[must_use]
pub fn without_references(bytes: &[u8], endian: Endian) -> Vec<u8> {
    let mut insns = decode(bytes, endian);
    let mut i = 0;
    while i < insns.len() {
        let Insn { code, src, .. } = insns[i];
        let wide = code == 0x18;
        match src {
            1 | 2 | 5 | 6 if wide => insns[i].imm = 0,
            3 if wide => {
                insns[i].imm = 0;
                if let Some(high) = insns.get_mut(i + 1) {
                    high.imm = 0;
                }
            }
            2 if code == 0x85 => (insns[i].imm, insns[i].off) = (0, 0),
            _ => {}
        }
        i += if wide { 2 } else { 1 };
    }
    encode(&insns, endian)
}

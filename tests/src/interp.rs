//! A small interpreter of linked BPF programs: enough for the CO-RE fixtures, whose results then need neither root nor a kernel,
//! and which runs programs of either byte order.
//!
//! It knows what those fixtures use: one array map (`mem`, whose only element is [`Machine::mem`]), one section of global data
//! (`out`), the stack, calls of functions, and the helpers `map_lookup_elem`, `ktime_get_ns`, `for_each_map_elem` and `loop`.

use crate::endian::Endian;
use crate::insn::{Insn, decode};

/// Why a program stopped before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It came to a poisoned instruction: the verifier would have refused it.
    Poison {
        /// The slot.
        slot: usize,
    },
    /// It did what this interpreter does not know.
    Unknown {
        /// The slot.
        slot: usize,
        /// The instruction.
        insn: Insn,
    },
    /// It accessed memory that is not there.
    Access {
        /// The slot.
        slot: usize,
    },
    /// It ran for too long.
    Endless,
}

/// A machine with its memory.
#[derive(Debug, Clone)]
pub struct Machine {
    endian: Endian,
    /// The element of the map, byte `i` being `i % 251`.
    pub mem: Vec<u8>,
    /// Global data.
    pub data: Vec<u8>,
    /// The global data's words that were written.
    pub written: Vec<bool>,
    stack: Vec<u8>,
    steps: u32,
}

const POISON: i32 = 0x0bad_2310;
const DATA: u64 = 1 << 40;
const MEM: u64 = 2 << 40;
const STACK: u64 = 3 << 40;
const CODE: u64 = 4 << 40;
const MAP: u64 = 5 << 40;
const FRAME: u64 = 512;

impl Machine {
    /// A machine whose programs are of this byte order, with all global data zero.
    #[must_use]
    pub fn new(endian: Endian) -> Self {
        Machine {
            endian,
            mem: (0..1024u32).map(|i| (i % 251) as u8).collect(),
            data: vec![0; 256],
            written: vec![false; 32],
            stack: vec![0; FRAME as usize * 8],
            steps: 0,
        }
    }

    /// The words of global data up to the last one written.
    #[must_use]
    pub fn out(&self) -> Vec<u64> {
        let len = self.written.iter().rposition(|&written| written).map_or(0, |last| last + 1);
        (0..len).map(|i| self.endian.read_u64(&self.data, i * 8).unwrap_or(0)).collect()
    }

    /// Runs a linked program and returns R0. Map loads have the pseudo sources of the uapi: 1 is the map, 2 the global data.
    ///
    /// # Errors
    /// [`Stop`]
    pub fn run(&mut self, program: &[u8]) -> Result<u64, Stop> {
        let insns = decode(program, self.endian);
        self.call(&insns, 0, [0; 5], 0)
    }

    fn call(&mut self, insns: &[Insn], start: usize, args: [u64; 5], depth: u64) -> Result<u64, Stop> {
        let mut r = [0u64; 11];
        r[1..6].copy_from_slice(&args);
        r[10] = STACK + FRAME * (depth + 1);
        let mut pc = start;
        loop {
            self.steps += 1;
            if self.steps > 100_000 || depth > 6 {
                return Err(Stop::Endless);
            }
            let slot = pc;
            let insn = *insns.get(pc).ok_or(Stop::Endless)?;
            let unknown = Stop::Unknown { slot, insn };
            let Insn { code, dst, src, off, imm } = insn;
            let (dst, src) = (usize::from(dst), usize::from(src));
            if code == 0x85 && imm == POISON {
                return Err(Stop::Poison { slot });
            }
            pc += 1;
            let operand = if code & 8 != 0 { *r.get(src).ok_or(unknown.clone())? } else { i64::from(imm) as u64 };
            match code & 7 {
                0 if code == 0x18 => {
                    let high = insns.get(pc).ok_or(unknown.clone())?.imm as u32;
                    pc += 1;
                    r[dst] = match src {
                        0 => u64::from(imm as u32) | u64::from(high) << 32,
                        1 => MAP,
                        2 => DATA + u64::from(high),
                        4 => CODE + (slot as u64).wrapping_add_signed(i64::from(imm) + 1),
                        _ => return Err(unknown),
                    };
                }
                1 => {
                    let at = r[src].wrapping_add_signed(i64::from(off));
                    let len = width(code);
                    let value = self.read(at, len).ok_or(Stop::Access { slot })?;
                    r[dst] = match code & 0xe0 {
                        0x60 => value,
                        0x80 => sign_extend(value, len),
                        _ => return Err(unknown),
                    };
                }
                2 | 3 => {
                    let at = r[dst].wrapping_add_signed(i64::from(off));
                    let len = width(code);
                    let value = if code & 7 == 2 { i64::from(imm) as u64 } else { r[src] };
                    let value = match code & 0xe0 {
                        0x60 => value,
                        0xc0 if imm == 0 => value.wrapping_add(self.read(at, len).ok_or(Stop::Access { slot })?),
                        _ => return Err(unknown),
                    };
                    self.write(at, len, value).ok_or(Stop::Access { slot })?;
                }
                4 | 7 => {
                    let wide = code & 7 == 7;
                    let (a, b) = if wide { (r[dst], operand) } else { (r[dst] as u32 as u64, operand as u32 as u64) };
                    let mask = if wide { 63 } else { 31 };
                    let value = match code >> 4 {
                        0x0 => a.wrapping_add(b),
                        0x1 => a.wrapping_sub(b),
                        0x2 => a.wrapping_mul(b),
                        0x4 => a | b,
                        0x5 => a & b,
                        0x6 => a << (b & mask),
                        0x7 => a >> (b & mask),
                        0x8 => a.wrapping_neg(),
                        0xa => a ^ b,
                        0xb if off == 0 => b,
                        0xb => sign_extend(b, off as usize / 8),
                        0xc if wide => ((a as i64) >> (b & mask)) as u64,
                        0xc => ((a as i32) >> (b & mask)) as u32 as u64,
                        _ => return Err(unknown),
                    };
                    r[dst] = if wide { value } else { value & 0xffff_ffff };
                }
                5 | 6 => match code {
                    0x95 => return Ok(r[0]),
                    0x85 => {
                        let args = [r[1], r[2], r[3], r[4], r[5]];
                        r[0] = match (src, imm) {
                            (1, _) => {
                                let target = (slot as i64 + 1 + i64::from(imm)) as usize;
                                self.call(insns, target, args, depth + 1)?
                            }
                            (0, 1) => MEM,
                            (0, 5) => 0,
                            (0, 164) => {
                                let callback = (args[1] & 0xffff_ffff) as usize;
                                self.call(insns, callback, [args[0], MEM, MEM, args[2], 0], depth + 1)?;
                                1
                            }
                            (0, 181) => {
                                let callback = (args[1] & 0xffff_ffff) as usize;
                                for turn in 0..args[0] {
                                    self.call(insns, callback, [turn, args[2], 0, 0, 0], depth + 1)?;
                                }
                                args[0]
                            }
                            _ => return Err(unknown),
                        };
                    }
                    _ => {
                        let wide = code & 7 == 5;
                        let (a, b) =
                            if wide { (r[dst], operand) } else { (r[dst] as u32 as u64, operand as u32 as u64) };
                        let (sa, sb) = if wide { (a as i64, b as i64) } else { (a as i32 as i64, b as i32 as i64) };
                        let jumps = match code >> 4 {
                            0x0 => true,
                            0x1 => a == b,
                            0x2 => a > b,
                            0x3 => a >= b,
                            0x4 => a & b != 0,
                            0x5 => a != b,
                            0x6 => sa > sb,
                            0x7 => sa >= sb,
                            0xa => a < b,
                            0xb => a <= b,
                            0xc => sa < sb,
                            0xd => sa <= sb,
                            _ => return Err(unknown),
                        };
                        if jumps {
                            pc = (pc as i64 + i64::from(off)) as usize;
                        }
                    }
                },
                _ => return Err(unknown),
            }
        }
    }

    fn place(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let start = (at & ((1 << 40) - 1)) as usize;
        let area = match at >> 40 << 40 {
            DATA => &mut self.data,
            MEM => &mut self.mem,
            STACK => &mut self.stack,
            _ => return None,
        };
        area.get_mut(start..start + len)
    }

    fn read(&mut self, at: u64, len: usize) -> Option<u64> {
        let endian = self.endian;
        let bytes = self.place(at, len)?;
        let fold = |value, byte: &u8| value << 8 | u64::from(*byte);
        Some(match endian {
            Endian::Little => bytes.iter().rev().fold(0, fold),
            Endian::Big => bytes.iter().fold(0, fold),
        })
    }

    fn write(&mut self, at: u64, len: usize, value: u64) -> Option<()> {
        let endian = self.endian;
        let little = value.to_le_bytes();
        let bytes = self.place(at, len)?;
        bytes.copy_from_slice(&little[..len]);
        if endian == Endian::Big {
            bytes.reverse();
        }
        if at >> 40 << 40 == DATA {
            let word = (at & 0xff) as usize / 8;
            if let Some(word) = self.written.get_mut(word) {
                *word = true;
            }
        }
        Some(())
    }
}

fn width(code: u8) -> usize {
    match code & 0x18 {
        0x00 => 4,
        0x08 => 2,
        0x10 => 1,
        _ => 8,
    }
}

fn sign_extend(value: u64, bytes: usize) -> u64 {
    let unused = 64 - 8 * bytes as u32;
    ((value << unused) as i64 >> unused) as u64
}

//! Random relocations, their local values and instructions.

use super::graph::{Graph, Id, Ty};
use super::tape::Tape;
use crate::endian::Endian;
use crate::insn::{Insn, Width};

/// Numbers of `enum bpf_core_relo_kind`.
pub mod kinds {
    /// Relocations about fields are those below this.
    pub const FIELDS: u32 = 6;
    /// `field_byte_offset`
    pub const BYTE_OFFSET: u32 = 0;
    /// `field_lshift_u64`
    pub const LSHIFT: u32 = 4;
    /// Every kind.
    pub const COUNT: usize = 13;
    /// Names as libbpf's log has them, and `type_matches` for the last.
    pub const NAMES: [&str; COUNT] = [
        "byte_off",
        "byte_sz",
        "field_exists",
        "signed",
        "lshift_u64",
        "rshift_u64",
        "local_type_id",
        "target_type_id",
        "type_exists",
        "type_size",
        "enumval_exists",
        "enumval_value",
        "type_matches",
    ];
}

/// A relocation, and the instructions of the program that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relo {
    /// Local root type.
    pub root: Id,
    /// Access string.
    pub access: String,
    /// Kind.
    pub kind: u32,
    /// The instruction: one slot, or two.
    pub insns: Vec<Insn>,
}

/// Where an access ends.
struct End {
    bit_offset: u32,
    ty: Id,
    /// It is an array element or the root, and no member.
    is_element: bool,
    bits: u8,
}

/// A random relocation.
#[must_use]
pub fn random(tape: &mut Tape<'_>, graph: &Graph, endian: Endian) -> Relo {
    let root = root(tape, graph);
    let is_enum = matches!(graph.get(graph.skip(root)), Ty::Enum { .. });
    let mut kind = match tape.below(3) {
        _ if tape.once_in(60) => tape.below(kinds::COUNT) as u32,
        2 => tape.pick(&[8, 9, 12, 12, 7, 6]),
        _ if is_enum => tape.pick(&[11, 10]),
        _ => tape.pick(&[0, 0, 0, 1, 2, 3, 4, 5]),
    };
    // libbpf computes left shifts for the byte order of its host.
    if kind == kinds::LSHIFT && endian != Endian::native() {
        kind += 1;
    }
    let (access, end) = match kind {
        0..kinds::FIELDS => field_access(tape, graph, root),
        10 | 11 => (enumerator(tape, graph, root).to_string(), None),
        _ if tape.once_in(60) => ("0:0".to_owned(), None),
        _ => ("0".to_owned(), None),
    };
    // Only offset, size and existence can be asked of an array element; anything else fails, and teaches little.
    if (3..kinds::FIELDS).contains(&kind) && end.as_ref().is_some_and(|end| end.is_element) && !tape.once_in(8) {
        kind -= 3;
    }
    let value = match kind {
        0..kinds::FIELDS => end.as_ref().and_then(|end| field_value(graph, kind, end, endian)).unwrap_or(0),
        9 => u64::from(graph.size(root).unwrap_or(0)),
        11 => match graph.get(graph.skip(root)) {
            Ty::Enum { values, .. } => {
                access.parse().ok().and_then(|at: usize| values.get(at)).map_or(0, |found| found.1)
            }
            _ => 0,
        },
        _ => 1,
    };
    let value = if tape.once_in(40) { value.wrapping_add(1) } else { value };
    let byte_size = end.map_or(0, |end| moved(graph, end.ty));
    Relo { root, access, kind, insns: insns(tape, kind, value, byte_size) }
}

fn root(tape: &mut Tape<'_>, graph: &Graph) -> Id {
    let named: Vec<Id> = (1..graph.count()).rev().filter(|&id| !graph.name(id).is_empty()).collect();
    if tape.once_in(24) {
        1 + tape.below(graph.count() - 1)
    } else {
        named[tape.below(named.len().saturating_sub(9).max(1))]
    }
}

fn enumerator(tape: &mut Tape<'_>, graph: &Graph, root: Id) -> usize {
    match graph.get(graph.skip(root)) {
        Ty::Enum { values, .. } if tape.once_in(40) => values.len(),
        Ty::Enum { values, .. } => tape.below(values.len()),
        _ => 0,
    }
}

/// A random access string; the end is missing where the string does not fit the type.
fn field_access(tape: &mut Tape<'_>, graph: &Graph, root: Id) -> (String, Option<End>) {
    let index = if tape.once_in(8) { tape.below(4) as u32 } else { 0 };
    let mut access = index.to_string();
    let mut end = graph.size(root).map(|size| End {
        bit_offset: index.wrapping_mul(size).wrapping_mul(8),
        ty: root,
        is_element: true,
        bits: 0,
    });
    let mut at = graph.skip(root);
    let goes_on = tape.once_in(3);
    for _ in 0..80 {
        match graph.get(at) {
            Ty::Composite { fields, .. } if goes_on || !tape.once_in(8) => {
                let number = if tape.once_in(60) { fields.len() } else { tape.below(fields.len()) };
                access = format!("{access}:{number}");
                let Some(field) = fields.get(number) else { return (access, None) };
                if let Some(end) = &mut end {
                    end.bit_offset = end.bit_offset.wrapping_add(field.bit_offset);
                    // An anonymous member is no step of its own.
                    if !field.name.is_empty() {
                        (end.ty, end.bits, end.is_element) = (field.ty, field.bits, false);
                    }
                }
                at = graph.skip(field.ty);
            }
            Ty::Array { elem, len } if goes_on || !tape.once_in(3) => {
                let len = *len as usize;
                let number = match tape.below(12) {
                    0..=5 if len > 0 => tape.below(len),
                    11 => len + tape.below(6),
                    _ => len.saturating_sub(1 + tape.below(6)),
                };
                access = format!("{access}:{number}");
                end = match (end, graph.size(*elem)) {
                    (Some(end), Some(size)) => {
                        let bit_offset =
                            end.bit_offset.wrapping_add((number as u32).wrapping_mul(size).wrapping_mul(8));
                        Some(End { bit_offset, ty: *elem, is_element: true, bits: 0 })
                    }
                    _ => None,
                };
                at = graph.skip(*elem);
            }
            _ => {
                if tape.once_in(60) {
                    return (format!("{access}:0"), None);
                }
                break;
            }
        }
    }
    (access, end)
}

/// What the compiler would have put into the instruction; of a bitfield any value will do but for sign and right shift.
fn field_value(graph: &Graph, kind: u32, end: &End, endian: Endian) -> Option<u64> {
    let byte_size = graph.size(end.ty)?;
    let lead = end.bit_offset % 8;
    let bits = if end.bits == 0 { byte_size.wrapping_mul(8) } else { u32::from(end.bits) };
    let shift = match endian {
        Endian::Little => 64u32.wrapping_sub(lead.wrapping_add(bits)),
        Endian::Big => 8u32.wrapping_sub(byte_size).wrapping_mul(8).wrapping_add(lead),
    };
    Some(match kind {
        0 => u64::from(end.bit_offset / 8),
        1 => u64::from(byte_size),
        2 => 1,
        _ if end.is_element => return None,
        3 => match graph.get(graph.skip(end.ty)) {
            Ty::Int { encoding, .. } => u64::from(encoding & 1),
            Ty::Enum { is_signed, .. } => u64::from(*is_signed),
            _ => 0,
        },
        4 => u64::from(shift),
        _ => u64::from(64u32.wrapping_sub(bits)),
    })
}

/// Bytes of one innermost element.
fn moved(graph: &Graph, ty: Id) -> u32 {
    match *graph.get(graph.skip(ty)) {
        Ty::Array { elem, .. } => moved(graph, elem),
        _ => graph.size(ty).unwrap_or(0),
    }
}

fn insns(tape: &mut Tape<'_>, kind: u32, value: u64, byte_size: u32) -> Vec<Insn> {
    let (imm, off) = (value as i32, value as i16);
    let fitting = Width::ALL.into_iter().find(|width| width.bytes() == byte_size);
    let width = fitting.filter(|_| !tape.once_in(16)).unwrap_or_else(|| tape.pick(&Width::ALL));
    let is_wide = i64::from(imm) as u64 != value;
    let form = match tape.below(8) {
        _ if tape.once_in(60) => 7 + tape.below(4),
        form if kind == kinds::BYTE_OFFSET || tape.once_in(30) => form,
        _ if is_wide && !tape.once_in(6) => 6,
        form => 4 + form % 3,
    };
    match form {
        0 => vec![Insn::ldx(width, 0, 1, off)],
        1 => vec![if tape.once_in(2) { Insn::ldx_signed(width, 0, 1, off) } else { Insn::ldx(width, 0, 1, off) }],
        2 => vec![if tape.once_in(2) { Insn::atomic(width, 1, 2, off, 0) } else { Insn::stx(width, 1, 2, off) }],
        3 => vec![Insn::st(width, 1, off, 77)],
        4 => vec![if tape.once_in(2) { Insn::mov32_imm(0, imm) } else { Insn::mov64_imm(0, imm) }],
        5 => vec![Insn::add64_imm(1, imm)],
        6 => Insn::ld_imm64(2, 0, value).to_vec(),
        // What cannot be relocated: a register operand, a jump, a load of a packet's byte, a 64-bit load of a map.
        7 => vec![Insn::mov64_reg(0, 1)],
        8 => vec![Insn::ja(0)],
        9 => vec![Insn::new(0x30, 0, 0, 0, imm)],
        _ => {
            let [low, high] = Insn::ld_imm64(2, 0, value);
            vec![low, Insn { off: 1, ..high }]
        }
    }
}

//! Random local types.

use super::graph::{Field, Graph, Id, Ty};
use super::tape::Tape;
use crate::btf_builder::kind;

/// Names of types without flavours, some of them odd: what starts or ends with underscores, or has four, has no flavour there.
const NAMES: [&str; 14] =
    ["s", "t", "u", "v", "w", "x", "y", "___a", "a____b", "a___", "a___b___c", "task", "ta", "a___b"];
const FLAVOURS: [&str; 4] = ["___x", "___y", "___2", "___old___er"];
/// Enumerator names; types share them, as only those of one type are compared.
const ENUMERATORS: [&str; 7] = ["A", "B", "C", "D___x", "___E", "F____f", "G"];
/// Enumerator values, before they are fitted to the kind.
pub(super) const VALUES: [u64; 14] = [
    0,
    1,
    2,
    7,
    u64::MAX,
    (-1000i64) as u64,
    i32::MIN as i64 as u64,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    1 << 32,
    3 << 41,
    (-(5i64 << 40)) as u64,
    u64::MAX - 1,
];
/// Array lengths; 0 makes a flexible array where it is the last member, the largest makes offsets that do not fit.
pub(super) const LENGTHS: [u32; 14] = [2, 1, 0, 3, 4, 7, 40, 2, 1, 0, 3, 4, 7, 0x1000_0000];

/// Name, bytes, encoding.
const INTS: [(&str, u32, u8); 11] = [
    ("int", 4, 1),
    ("unsigned int", 4, 0),
    ("long", 8, 1),
    ("unsigned long", 8, 0),
    ("char", 1, 1),
    ("unsigned char", 1, 0),
    ("short", 2, 1),
    ("unsigned short", 2, 0),
    ("_Bool", 1, 4),
    ("char8", 1, 2),
    ("unsigned __int128", 16, 0),
];

/// A type name.
pub(super) fn type_name(tape: &mut Tape<'_>) -> String {
    let flavour = if tape.once_in(4) { tape.pick(&FLAVOURS) } else { "" };
    format!("{}{flavour}", tape.pick(&NAMES))
}

/// Random types; the first ones are integers.
#[must_use]
pub fn random(tape: &mut Tape<'_>) -> Graph {
    let mut graph = Graph::default();
    for (name, size, encoding) in INTS {
        graph.add(Ty::Int { name: name.to_owned(), size, encoding, bit_offset: 0 });
    }
    let mut anonymous: Vec<Id> = Vec::new();
    for number in 0..1 + tape.below(16) {
        if tape.once_in(50) {
            tower(tape, &mut graph);
        } else {
            let ty = one(tape, &graph, &mut anonymous, number);
            graph.add(ty);
        }
    }
    // Pointers may point forward too, and round.
    for id in 1..graph.count() {
        if let Ty::Ptr(to) = *graph.get(id) {
            let to = if tape.once_in(3) { tape.below(graph.count()) } else { to };
            *graph.get_mut(id) = Ty::Ptr(to);
        }
    }
    graph.tame_enums();
    graph
}

/// A type to hold: now and then one that cannot be held, for want of a size.
pub(super) fn part(tape: &mut Tape<'_>, graph: &Graph) -> Id {
    // Every other time one of the types that are no plain integers.
    let id = if tape.once_in(2) {
        graph.count() - 1 - tape.below((graph.count() - 11).max(1))
    } else {
        1 + tape.below(graph.count() - 1)
    };
    if graph.size(id).is_some() || tape.once_in(8) { id } else { 1 }
}

/// Types on types, about as many as may be followed in a row: 31, 32 or 33 of one sort or two, or over 64 steps to a member.
fn tower(tape: &mut Tape<'_>, graph: &mut Graph) {
    let sort = tape.below(8);
    let sorts = [sort, if tape.once_in(3) { tape.below(8) } else { sort }];
    let height = 29 + tape.below(7) + if tape.once_in(3) { 32 } else { 0 };
    let mut top = part(tape, graph);
    for level in 0..height {
        let field = |name| Field { name, ty: top, bit_offset: 8, bits: 0 };
        let size = graph.size(top).unwrap_or(0).wrapping_add(1);
        let composite = |name: String, fields| Ty::Composite { is_union: false, name, size, kind_flag: false, fields };
        let ty = match sorts[level % 2] {
            0 => Ty::Alias { kind: kind::CONST, name: String::new(), to: top },
            1 => Ty::Alias { kind: kind::TYPEDEF, name: format!("level{level}"), to: top },
            2 => Ty::Ptr(top),
            3 => Ty::Array { elem: top, len: 1 },
            4 => composite(format!("level{level}"), vec![field(format!("in{level}"))]),
            5 if level > 0 && matches!(graph.get(top), Ty::Composite { .. }) => {
                composite(String::new(), vec![field(String::new())])
            }
            5 => composite(String::new(), vec![field(format!("in{level}_{top}"))]),
            6 => Ty::Proto { result: 1, params: vec![top] },
            _ => Ty::Proto { result: top, params: Vec::new() },
        };
        top = graph.add(ty);
    }
    let name = type_name(tape);
    let ty = if tape.once_in(2) {
        let field = Field { name: format!("in{top}"), ty: top, bit_offset: 0, bits: 0 };
        Ty::Composite { is_union: false, name, size: 8, kind_flag: false, fields: vec![field] }
    } else {
        Ty::Alias { kind: kind::TYPEDEF, name, to: top }
    };
    graph.add(ty);
}

fn one(tape: &mut Tape<'_>, graph: &Graph, anonymous: &mut Vec<Id>, number: usize) -> Ty {
    match tape.below(16) {
        0..=3 => composite(tape, graph, anonymous, false, number),
        5 => composite(tape, graph, anonymous, true, number),
        6 | 7 => {
            // Anonymous: to be a member of one other, or none.
            anonymous.push(graph.count());
            let is_union = tape.once_in(2);
            let mut ty = composite(tape, graph, anonymous, is_union, number);
            if let Ty::Composite { name, .. } = &mut ty {
                name.clear();
            }
            ty
        }
        8 | 9 => Ty::Array { elem: part(tape, graph), len: tape.pick(&LENGTHS) },
        10 => Ty::Ptr(tape.below(graph.count())),
        11 => Ty::Alias { kind: kind::TYPEDEF, name: type_name(tape), to: part(tape, graph) },
        12 => match tape.below(4) {
            3 => Ty::Alias { kind: kind::TYPE_TAG, name: "user".to_owned(), to: part(tape, graph) },
            which => Ty::Alias {
                kind: [kind::CONST, kind::VOLATILE, kind::RESTRICT][which],
                name: String::new(),
                to: tape.below(graph.count()),
            },
        },
        4 | 13 | 14 => enumeration(tape),
        _ => match tape.below(8) {
            0..=2 => Ty::Fwd { name: type_name(tape), is_union: tape.once_in(2) },
            3 => Ty::Float { name: type_name(tape), size: tape.pick(&[4, 8]) },
            4 => Ty::Int { name: type_name(tape), size: 4, encoding: 0, bit_offset: 3 },
            5 => Ty::Alias { kind: kind::TYPEDEF, name: type_name(tape), to: tape.below(graph.count()) },
            6 => decl(tape, graph),
            _ => Ty::Proto {
                result: tape.below(graph.count()),
                params: (0..tape.below(4)).map(|_| tape.below(graph.count())).collect(),
            },
        },
    }
}

fn decl(tape: &mut Tape<'_>, graph: &Graph) -> Ty {
    let (name, to) = (type_name(tape), tape.below(graph.count()));
    let is_proto = matches!(graph.get(to), Ty::Proto { .. });
    let kind = if is_proto { kind::FUNC } else { tape.pick(&[kind::VAR, kind::DECL_TAG]) };
    Ty::Decl { kind, name, to }
}

fn enumeration(tape: &mut Tape<'_>) -> Ty {
    let is_wide = tape.once_in(3);
    let size = if is_wide { 8 } else { tape.pick(&[4, 4, 4, 1, 2, 8]) };
    let (start, is_signed) = (tape.below(ENUMERATORS.len()), tape.once_in(2));
    let values = (0..1 + tape.below(4))
        .map(|at| (ENUMERATORS[(start + at) % ENUMERATORS.len()].to_owned(), tape.pick(&VALUES)))
        .collect();
    let name = if tape.once_in(8) { String::new() } else { type_name(tape) };
    Ty::Enum { is_wide, name, size, is_signed, values }
}

fn composite(tape: &mut Tape<'_>, graph: &Graph, anonymous: &mut Vec<Id>, is_union: bool, number: usize) -> Ty {
    const LETTERS: [&str; 7] = ["a", "b", "c", "d___x", "___e", "f____f", "g"];
    let mut fields: Vec<Field> = Vec::new();
    let (mut bit, mut size) = (0u32, 0u32);
    for letter in LETTERS.iter().take(1 + tape.below(7)) {
        let ty = part(tape, graph);
        let inner = graph.skip(ty);
        // A composite without a name can be an anonymous member, and of one struct only, so that no name is there twice.
        let place = anonymous.iter().position(|&id| id == inner).filter(|_| !matches!(graph.get(ty), Ty::Array { .. }));
        let name = match place {
            Some(place) if !tape.once_in(4) => {
                anonymous.remove(place);
                String::new()
            }
            _ => format!("{letter}{number}"),
        };
        let byte_size = graph.size(ty).unwrap_or(0);
        let may_be_bits = matches!(graph.get(inner), Ty::Int { .. } | Ty::Enum { .. }) && byte_size <= 8;
        let bits = if may_be_bits && tape.once_in(4) { 1 + tape.below(byte_size as usize * 8) as u8 } else { 0 };
        if bits == 0 {
            let align = match byte_size {
                0 | 1 => 8,
                _ if tape.once_in(8) => 8,
                byte_size => byte_size.min(8).next_power_of_two() * 8,
            };
            bit = bit.next_multiple_of(align);
        } else if tape.once_in(3) {
            bit += tape.below(40) as u32;
        }
        fields.push(Field { name, ty, bit_offset: if is_union { 0 } else { bit }, bits });
        let width = if bits == 0 { byte_size.wrapping_mul(8) & 0x00ff_ffff } else { u32::from(bits) };
        size = if is_union { size.max(width) } else { bit + width };
        bit += if is_union { 0 } else { width };
    }
    let kind_flag = tape.once_in(8);
    Ty::Composite { is_union, name: type_name(tape), size: size.div_ceil(8), kind_flag, fields }
}

//! A copy of the local types, changed at random.

use super::graph::{Field, Graph, Id, Ty, essential};
use super::local::{LENGTHS, VALUES, part, type_name};
use super::tape::Tape;
use crate::btf_builder::kind;

/// Spellings of the integer that a pointer's size is told by, and names that are none of them.
const LONGS: [&str; 6] = ["long", "long int", "unsigned long", "long unsigned int", "unsigned long int", "longer"];

/// A target, and the order in which its types are written.
#[must_use]
pub fn derive(tape: &mut Tape<'_>, local: &Graph) -> (Graph, Vec<Id>) {
    let mut graph = local.clone();
    for _ in 0..tape.below(28) {
        // Never the first type, which is the index type of all arrays.
        let id = 2 + tape.below(graph.count() - 2);
        // Types that the object has names for are the more telling ones: the integers are changed seldom.
        let id = if id < 12 && !tape.once_in(8) { 12 + tape.below(graph.count().saturating_sub(12)) } else { id };
        if id < graph.count() {
            change(tape, &mut graph, id);
        }
    }
    if tape.once_in(3) {
        longs(tape, &mut graph);
    }
    graph.tame_enums();
    plain_where_no_int(&mut graph);
    let mut order: Vec<Id> = (1..graph.count()).collect();
    if tape.once_in(3) {
        order.reverse();
    }
    let start = if tape.once_in(3) { tape.below(order.len()) } else { 0 };
    order.rotate_left(start);
    (graph, order)
}

/// A changed typedef may have left a bitfield of a type that cannot have one; the reference divides by such a type's size, 0.
fn plain_where_no_int(graph: &mut Graph) {
    for id in 1..graph.count() {
        let Ty::Composite { fields, .. } = graph.get(id) else { continue };
        let mut fields = fields.clone();
        for field in &mut fields {
            if !matches!(graph.get(graph.skip(field.ty)), Ty::Int { .. } | Ty::Enum { .. }) {
                field.bits = 0;
            }
        }
        if let Ty::Composite { fields: had, .. } = graph.get_mut(id) {
            *had = fields;
        }
    }
}

/// Another size of `long`, another spelling, or one that does not count.
fn longs(tape: &mut Tape<'_>, graph: &mut Graph) {
    let size = tape.pick(&[4, 8, 2, 16]);
    let (one, other) = (tape.pick(&LONGS), tape.pick(&LONGS));
    for id in 1..graph.count() {
        if let Ty::Int { name, size: had, .. } = graph.get_mut(id) {
            match name.as_str() {
                "long" => (*name, *had) = (one.to_owned(), size),
                "unsigned long" => (*name, *had) = (other.to_owned(), if tape.once_in(3) { 8 } else { size }),
                _ => {}
            }
        }
    }
}

fn change(tape: &mut Tape<'_>, graph: &mut Graph, id: Id) {
    match tape.below(10) {
        0 => candidate(tape, graph, id),
        1 => {
            let name = graph.name(id).to_owned();
            if !name.is_empty() {
                let name = match tape.below(3) {
                    0 => format!("{name}___n"),
                    1 => essential(&name).to_owned(),
                    _ => type_name(tape),
                };
                graph.rename(id, &name);
            }
        }
        _ => shape(tape, graph, id),
    }
}

/// Another type of the same name: the same, one to be changed, or one of another kind.
fn candidate(tape: &mut Tape<'_>, graph: &mut Graph, id: Id) {
    let name = graph.name(id).to_owned();
    if name.is_empty() {
        return;
    }
    let copy = match tape.below(5) {
        0..=2 => graph.get(id).clone(),
        3 => Ty::Fwd { name: name.clone(), is_union: tape.once_in(2) },
        _ => Ty::Alias { kind: kind::TYPEDEF, name: name.clone(), to: part(tape, graph) },
    };
    let copy = graph.add(copy);
    if tape.once_in(3) {
        graph.rename(copy, &format!("{}___z", essential(&name)));
    }
    if tape.once_in(2) {
        shape(tape, graph, copy);
    }
}

/// Makes `id` refer to `to` where that does not make it hold itself.
fn allowed(graph: &Graph, id: Id, to: Id) -> Id {
    if graph.holds(to, id) { 1 } else { to }
}

fn shape(tape: &mut Tape<'_>, graph: &mut Graph, id: Id) {
    let other = part(tape, graph);
    let other = allowed(graph, id, other);
    let any = tape.below(graph.count());
    let any_part = allowed(graph, id, any);
    let count = graph.count();
    match graph.get_mut(id) {
        Ty::Void => {}
        Ty::Int { size, encoding, bit_offset, .. } => match tape.below(5) {
            0 => *size = tape.pick(&[1, 2, 4, 8, 16]),
            // Never two bits at once: the kernel refuses that, and libbpf takes it for unsigned here and signed there.
            1 | 2 => *encoding = u8::from(*encoding != 1),
            3 => *encoding = tape.pick(&[0, 1, 2, 4]),
            _ => *bit_offset = 2,
        },
        Ty::Float { size, .. } => *size = tape.pick(&[4, 8, 16]),
        Ty::Ptr(to) => *to = tape.below(count),
        Ty::Array { elem, len } => match tape.below(3) {
            0 | 1 => *len = tape.pick(&LENGTHS),
            _ => *elem = other,
        },
        Ty::Composite { .. } => composite(tape, graph, id, other),
        Ty::Enum { is_wide, size, is_signed, values, name } => match tape.below(8) {
            0 => {
                *is_wide = !*is_wide;
                *size = if *is_wide { 8 } else { tape.pick(&[4, 8]) };
            }
            1 => *is_signed = !*is_signed,
            7 => name.clear(),
            2 => *size = tape.pick(&[1, 2, 4, 8]),
            3 => {
                let at = tape.below(values.len());
                if let Some((_, value)) = values.get_mut(at) {
                    *value = tape.pick(&VALUES);
                }
            }
            4 => {
                let at = tape.below(values.len());
                values.drain(at..(at + 1).min(values.len()));
            }
            5 => {
                let at = tape.below(values.len());
                if let Some((name, _)) = values.get_mut(at) {
                    *name = if tape.once_in(2) { "Z".to_owned() } else { format!("{}___new", essential(name)) };
                }
            }
            _ => values.insert(0, ("FIRST".to_owned(), 99)),
        },
        Ty::Fwd { name, is_union } => {
            if tape.once_in(2) {
                let (name, is_union) = (name.clone(), *is_union);
                *graph.get_mut(id) = Ty::Composite { is_union, name, size: 4, kind_flag: false, fields: Vec::new() };
            } else {
                *is_union = !*is_union;
            }
        }
        Ty::Alias { kind, to, .. } => match tape.below(3) {
            0 | 1 => *to = any_part,
            _ if *kind == kind::CONST => *kind = kind::VOLATILE,
            _ => {}
        },
        // A function must stay one of a prototype.
        Ty::Decl { kind, to, .. } => {
            if *kind != kind::FUNC {
                *to = any_part;
            }
        }
        Ty::Proto { result, params } => match tape.below(3) {
            0 => *result = any_part,
            1 => params.push(any_part),
            _ => _ = params.pop(),
        },
    }
}

fn composite(tape: &mut Tape<'_>, graph: &mut Graph, id: Id, other: Id) {
    let fresh = graph.count();
    let Ty::Composite { is_union, size, kind_flag, fields, name } = graph.get_mut(id) else { return };
    let at = tape.below(fields.len());
    let last = fields.len().saturating_sub(1);
    let Some(field) = fields.get_mut(at) else { return };
    match tape.below(16) {
        0 => field.bit_offset += 8 * (1 + tape.below(40) as u32),
        1 => {
            let from = tape.below(last + 1);
            let (one, two) = (fields[at].bit_offset, fields[from].bit_offset);
            (fields[at].bit_offset, fields[from].bit_offset) = (two, one);
            fields.swap(at, from);
        }
        2 if !field.name.is_empty() => {
            field.name = if tape.once_in(2) { format!("{}___m", field.name) } else { format!("new{fresh}") };
        }
        3 => _ = fields.remove(at),
        4 => *size += 8,
        // Out of the way, one time in many by more than an instruction's offset holds.
        5 => {
            let by = if tape.once_in(6) { 0x8000 } else { 16 };
            fields.iter_mut().for_each(|field| field.bit_offset += by * 8);
            fields.insert(0, Field { name: format!("front{fresh}"), ty: other, bit_offset: 0, bits: 0 });
        }
        6 | 7 => wrap(tape, graph, id, at),
        8 | 9 => bits(tape, graph, id, at),
        10 => {
            let to = field.ty;
            let kind = tape.pick(&[kind::TYPEDEF, kind::CONST, kind::VOLATILE, kind::TYPE_TAG]);
            let name = if matches!(kind, kind::TYPEDEF | kind::TYPE_TAG) { type_name(tape) } else { String::new() };
            let alias = graph.add(Ty::Alias { kind, name, to });
            set_type(graph, id, at, alias);
        }
        // Anonymous members stay, so that names stay unlike.
        11 | 12 if !field.name.is_empty() && field.bits == 0 => field.ty = other,
        13 if !field.name.is_empty() && field.bits == 0 => {
            let (to, len) = (field.ty, tape.pick(&LENGTHS));
            let made = if tape.once_in(2) { Ty::Ptr(to) } else { Ty::Array { elem: to, len } };
            let made = graph.add(made);
            set_type(graph, id, at, made);
        }
        14 if !name.is_empty() => *is_union = !*is_union,
        _ => *kind_flag = !*kind_flag,
    }
}

fn set_type(graph: &mut Graph, id: Id, at: usize, ty: Id) {
    if let Ty::Composite { fields, .. } = graph.get_mut(id) {
        fields[at].ty = ty;
    }
}

/// Puts a member into an anonymous struct or union of its own, with something before it.
fn wrap(tape: &mut Tape<'_>, graph: &mut Graph, id: Id, at: usize) {
    let fresh = graph.count();
    let is_union = tape.once_in(2);
    let Ty::Composite { fields, .. } = graph.get_mut(id) else { return };
    let bit_offset = fields[at].bit_offset & !7;
    let mut inner = fields[at].clone();
    inner.bit_offset -= bit_offset;
    if !is_union && tape.once_in(2) {
        inner.bit_offset += 32;
    }
    let before = Field { name: format!("before{fresh}"), ty: 1, bit_offset: 0, bits: 0 };
    let wrapped =
        Ty::Composite { is_union, name: String::new(), size: 64, kind_flag: false, fields: vec![before, inner] };
    let wrapped = graph.add(wrapped);
    if let Ty::Composite { fields, .. } = graph.get_mut(id) {
        fields[at] = Field { name: String::new(), ty: wrapped, bit_offset, bits: 0 };
    }
}

/// Makes a bitfield of a member, or a plain member of a bitfield.
fn bits(tape: &mut Tape<'_>, graph: &mut Graph, id: Id, at: usize) {
    let Ty::Composite { fields, .. } = graph.get(id) else { return };
    let mut field = fields[at].clone();
    let inner = graph.skip(field.ty);
    let byte_size = graph.size(inner).unwrap_or(0);
    if !matches!(graph.get(inner), Ty::Int { .. } | Ty::Enum { .. }) || byte_size > 8 {
        return;
    }
    if field.bits == 0 || tape.once_in(2) {
        field.bits = 1 + tape.below(byte_size as usize * 8) as u8;
        field.bit_offset += tape.below(24) as u32;
    } else {
        field.bits = 0;
        field.bit_offset &= !7;
    }
    if let Ty::Composite { fields, .. } = graph.get_mut(id) {
        fields[at] = field;
    }
}

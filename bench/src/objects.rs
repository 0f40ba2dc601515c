//! Objects of any size, and BTF of any number of types.

use corelo_tests::btf_builder::{BtfBuilder, IntEncoding, Member};
use corelo_tests::endian::Endian;
use corelo_tests::insn::{Insn, Width};
use corelo_tests::object_builder::ObjectBuilder;

/// What an object of [`object`] is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Programs, each in a section of its own.
    pub programs: usize,
    /// CO-RE relocations of each program.
    pub relocations: usize,
    /// How many flavours of the root type there are: relocations go round them, so that more flavours make more
    /// distinct relocations (two of each flavour).
    pub flavours: usize,
}

/// An object whose relocations read the two pointers of `struct list_head`, which every kernel has.
///
/// # Panics
/// If a program is to have no instruction that the relocations fit in.
#[must_use]
pub fn object(shape: Shape) -> Vec<u8> {
    let endian = Endian::native();
    let mut object = ObjectBuilder::new(endian);
    let flavours: Vec<u32> = (0..shape.flavours.max(1)).map(|number| declare(&mut object.btf, number)).collect();
    let mut insns: Vec<Insn> =
        (0..shape.relocations).map(|number| Insn::ldx(Width::Dw, 0, 1, offset(number))).collect();
    insns.extend([Insn::mov64_imm(0, 0), Insn::exit()]);
    let mut next = 0;
    for program in 0..shape.programs {
        let name = format!("program_{program}");
        object.program(&format!("kprobe/target_{program}"), &name, &insns);
        for number in 0..shape.relocations {
            let flavour = flavours[next / 2 % flavours.len()];
            object.core_relo(&name, number as u32, flavour, if number % 2 == 0 { "0:0" } else { "0:1" }, 0);
            next += 1;
        }
    }
    object.build()
}

fn offset(number: usize) -> i16 {
    if number.is_multiple_of(2) { 0 } else { 8 }
}

fn declare(btf: &mut BtfBuilder, number: usize) -> u32 {
    let name = if number == 0 { "list_head".to_owned() } else { format!("list_head___{number}") };
    let pointer = btf.ptr(0);
    btf.struct_(&name, 16, &[Member::at("next", pointer, 0), Member::at("prev", pointer, 8)])
}

/// An object whose program calls so many functions of the kernel, and a kernel's BTF that has them.
#[must_use]
pub fn callers(functions: usize) -> (Vec<u8>, Vec<u8>) {
    const STATIC: u32 = 0;
    const EXTERN: u32 = 2;
    let endian = Endian::native();
    let mut object = ObjectBuilder::new(endian);
    let mut kernel = BtfBuilder::new(endian);
    kernel.int("long unsigned int", 8, IntEncoding::Unsigned);
    let (here, there) = (object.btf.func_proto(0, &[]), kernel.func_proto(0, &[]));
    let names: Vec<String> = (0..functions).map(|number| format!("kernel_function_{number}")).collect();
    let listed: Vec<(u32, u32, u32)> = names.iter().map(|name| (object.btf.func(name, here, EXTERN), 0, 0)).collect();
    object.btf.datasec(".ksyms", 0, &listed);
    let mut insns = vec![Insn::call_bpf(-1); functions];
    insns.extend([Insn::mov64_imm(0, 0), Insn::exit()]);
    object.program("raw_tp/sys_enter", "caller", &insns);
    for (number, name) in (0u32..).zip(&names) {
        kernel.func(name, there, STATIC);
        object.call_symbol("caller", number, name);
    }
    (object.build(), kernel.build())
}

/// Only `struct list_head` and a long integer type.
#[must_use]
pub fn seed() -> Vec<u8> {
    let mut btf = BtfBuilder::new(Endian::native());
    btf.int("long unsigned int", 8, IntEncoding::Unsigned);
    declare(&mut btf, 0);
    btf.build()
}

/// A BTF with the header, strings and types of `blob`, and its types again and again until there are `count`; fewer
/// than it has cut it short. What the repeated types name are the first ones, so it is valid BTF where `blob` is one
/// and nothing is cut.
///
/// # Panics
/// If `blob` is not BTF of this machine's byte order with types and then strings, or has an unknown kind.
#[must_use]
pub fn resize(blob: &[u8], count: usize) -> Vec<u8> {
    let word = |at: usize| u32::from_ne_bytes(blob[at..at + 4].try_into().expect("four bytes")) as usize;
    let (header_len, type_off, type_len, str_off, str_len) = (word(4), word(8), word(12), word(16), word(20));
    let types = &blob[header_len + type_off..][..type_len];
    let strings = &blob[header_len + str_off..][..str_len];
    let ends = ends(types);
    let has = ends.len() - 1;
    let mut all = types.repeat(count / has);
    all.extend(&types[..ends[count % has]]);
    let mut made = blob[..24].to_vec();
    for (at, value) in [(4, 24), (8, 0), (12, all.len()), (16, all.len()), (20, str_len)] {
        made[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes());
    }
    made.extend(all);
    made.extend(strings);
    made
}

/// As [`resize`], but what is repeated has other names (without their first byte), so that it answers no query.
///
/// # Panics
/// As [`resize`].
#[must_use]
pub fn pad(blob: &[u8], count: usize) -> Vec<u8> {
    let mut made = resize(blob, count);
    let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let (own, all) = (word(blob, 12) as usize, word(&made, 12) as usize);
    for start in ends(&made[24..24 + all]).into_iter().filter(|&start| (own..all).contains(&start)) {
        let name = word(&made, 24 + start);
        if name != 0 {
            made[24 + start..28 + start].copy_from_slice(&(name + 1).to_ne_bytes());
        }
    }
    made
}

/// Where each type of a type section starts, and the end.
fn ends(types: &[u8]) -> Vec<usize> {
    let mut ends = vec![0];
    let mut at = 0;
    while at < types.len() {
        let info = u32::from_ne_bytes(types[at + 4..at + 8].try_into().expect("four bytes"));
        let (kind, vlen) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
        at += 12
            + match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * vlen,
                6 | 13 => 8 * vlen,
                2 | 7..=12 | 16 | 18 => 0,
                kind => panic!("kind {kind}"),
            };
        ends.push(at);
    }
    ends
}

/// A BTF split on a base of `base_types` types and `base_str_len` bytes of strings, with `count` types: what a module
/// has that knows nothing of `list_head`.
#[must_use]
pub fn module(base_types: u32, base_str_len: u32, count: usize) -> Vec<u8> {
    let mut btf = BtfBuilder::split(Endian::native(), base_types, base_str_len);
    for number in 0..count / 2 {
        let pointer = btf.ptr(0);
        btf.struct_(&format!("module_type_{number}"), 8, &[Member::at("data", pointer, 0)]);
    }
    btf.build()
}

#[cfg(test)]
mod tests {
    use corelo_core::btf::Btf;
    use corelo_core::prepare::Options;

    use super::*;

    #[test]
    fn objects_are_prepared() {
        let file = object(Shape { programs: 3, relocations: 7, flavours: 2 });
        let insns = crate::prepare::cold(&file, &seed(), Options::default(), &mut vec![0; 1 << 16]);
        assert_eq!(insns, 3 * (7 + 2));
    }

    #[test]
    fn padding_answers_no_query() {
        let file = object(Shape { programs: 1, relocations: 2, flavours: 1 });
        let mut visited = Vec::new();
        for kernel in [seed(), pad(&seed(), 100)] {
            let mut buffer = vec![0; 1 << 16];
            let mut arena = corelo_core::arena::Arena::new(&mut buffer);
            let object = corelo_core::object::Object::parse(&file).expect("object");
            let prepared = corelo_core::prepare::prepare(&object, Some(&kernel), Options::default(), &mut arena);
            let prepared = prepared.expect("prepared");
            assert_eq!(prepared.answers().expect("answers").candidates().len(), 1);
            visited.push(prepared.visited());
        }
        assert_eq!(visited, [3, 100]);
    }

    #[test]
    fn resized_btf_has_the_types_asked_for() {
        let seed = seed();
        for count in [1, 3, 4, 100, 1000] {
            let blob = resize(&seed, count);
            let types = Btf::parse(&blob).expect("BTF").iter().filter(Result::is_ok).count();
            assert_eq!(types, count);
        }
    }
}

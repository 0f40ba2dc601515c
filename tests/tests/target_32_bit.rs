//! A kernel of 32 bits: pointers and longs have 4 bytes there and 8 in the object.
//!
//! Expected offsets were read by hand from a raw listing of the blob (bits divided by 8).

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, prepare};
use corelo_core::relo::decision::AccessSizes;
use corelo_core::relo::patch::Patched;
use corelo_tests::btf_builder::{IntEncoding, Member};
use corelo_tests::corpus::corpus;
use corelo_tests::endian::Endian;
use corelo_tests::insn::{Insn, Width, decode};
use corelo_tests::object_builder::ObjectBuilder;
use zerocopy::IntoBytes;

const KERNEL: &str = "armhf-6.1.176-from-dwarf";

/// What the object's own type of the field is.
#[derive(Clone, Copy, PartialEq)]
enum Local {
    Pointer,
    UnsignedLong,
    U64,
    U32,
    S32,
    U16,
    Long,
}
use Local::{Long, Pointer, S32, U16, U32, U64, UnsignedLong};

/// Struct, field, local type, offset there in bytes, width there; `None` where the load is poisoned.
#[rustfmt::skip]
const FIELDS: &[(&str, &str, Local, u32, Option<Width>)] = &[
    ("task_struct", "__state", U32, 4288 / 8, Some(Width::W)),
    ("task_struct", "stack", Pointer, 4320 / 8, Some(Width::W)),
    ("task_struct", "flags", U32, 4384 / 8, Some(Width::W)),
    ("task_struct", "mm", Pointer, 11840 / 8, Some(Width::W)),
    ("task_struct", "pid", S32, 12672 / 8, Some(Width::W)),
    ("task_struct", "tgid", S32, 12704 / 8, Some(Width::W)),
    ("task_struct", "real_parent", Pointer, 12768 / 8, Some(Width::W)),
    ("task_struct", "group_leader", Pointer, 12960 / 8, Some(Width::W)),
    ("task_struct", "start_time", U64, 14592 / 8, Some(Width::Dw)),
    ("task_struct", "files", Pointer, 15712 / 8, Some(Width::W)),
    ("file", "f_inode", Pointer, 128 / 8, Some(Width::W)),
    ("file", "f_op", Pointer, 160 / 8, Some(Width::W)),
    ("file", "f_flags", U32, 256 / 8, Some(Width::W)),
    ("file", "f_cred", Pointer, 768 / 8, Some(Width::W)),
    ("file", "f_version", U64, 1088 / 8, Some(Width::Dw)),
    ("file", "private_data", Pointer, 1184 / 8, Some(Width::W)),
    ("inode", "i_mode", U16, 0, Some(Width::H)),
    ("inode", "i_op", Pointer, 192 / 8, Some(Width::W)),
    ("inode", "i_sb", Pointer, 224 / 8, Some(Width::W)),
    ("inode", "i_ino", UnsignedLong, 320 / 8, Some(Width::W)),
    ("inode", "i_state", UnsignedLong, 1056 / 8, Some(Width::W)),
    ("inode", "i_blocks", U64, 960 / 8, Some(Width::Dw)),
    ("inode", "i_private", Pointer, 3360 / 8, Some(Width::W)),
    // In anonymous unions of the target.
    ("sk_buff", "next", Pointer, 0, Some(Width::W)),
    ("sk_buff", "prev", Pointer, 4, Some(Width::W)),
    ("sk_buff", "len", U32, 672 / 8, Some(Width::W)),
    ("sk_buff", "data_len", U32, 704 / 8, Some(Width::W)),
    ("sk_buff", "head", Pointer, 1344 / 8, Some(Width::W)),
    ("sk_buff", "data", Pointer, 1376 / 8, Some(Width::W)),
    ("sock", "sk_rx_dst", Pointer, 896 / 8, Some(Width::W)),
    ("sock", "sk_rcvbuf", S32, 1728 / 8, Some(Width::W)),
    ("sock", "sk_sndbuf", S32, 1984 / 8, Some(Width::W)),
    ("sock", "sk_mark", U32, 2624 / 8, Some(Width::W)),
    ("sock", "sk_type", U16, 3024 / 8, Some(Width::H)),
    ("sock", "sk_protocol", U16, 3040 / 8, Some(Width::H)),
    ("sock", "sk_socket", Pointer, 3776 / 8, Some(Width::W)),
    ("sock", "sk_user_data", Pointer, 3808 / 8, Some(Width::W)),
    // A signed long would have to be extended by its sign: no load of another width does that.
    ("timespec64", "tv_nsec", Long, 64 / 8, None),
];

/// The sizes of whole structs there.
const SIZES: &[(&str, i32)] = &[("task_struct", 2752), ("file", 168), ("inode", 424), ("sk_buff", 192), ("sock", 552)];

#[test]
fn fields_are_read_where_and_as_wide_as_a_32_bit_kernel_has_them() {
    let Some(corpus) = corpus() else { return };
    let btf = corpus.kernel(KERNEL).btf();
    let mut object = ObjectBuilder::new(Endian::Little);
    let int = object.btf.int("int", 4, IntEncoding::Signed);
    let long = object.btf.int("long", 8, IntEncoding::Signed);
    let ulong = object.btf.int("unsigned long", 8, IntEncoding::Unsigned);
    let u64 = object.btf.int("unsigned long long", 8, IntEncoding::Unsigned);
    let u32 = object.btf.int("unsigned int", 4, IntEncoding::Unsigned);
    let u16 = object.btf.int("unsigned short", 2, IntEncoding::Unsigned);
    let pointer = object.btf.ptr(0);
    for (number, (root, field, local, ..)) in FIELDS.iter().enumerate() {
        let (ty, width) = match local {
            Pointer => (pointer, Width::Dw),
            UnsignedLong => (ulong, Width::Dw),
            Long => (long, Width::Dw),
            U64 => (u64, Width::Dw),
            U32 => (u32, Width::W),
            S32 => (int, Width::W),
            U16 => (u16, Width::H),
        };
        // A flavour of its own for each field, so that each is judged alone.
        let root = object.btf.struct_(&format!("{root}___{number}"), 8, &[Member::at(field, ty, 0)]);
        let name = format!("f{number}");
        object.program("socket", &name, &[Insn::ldx(width, 0, 1, 0), Insn::exit()]);
        object.core_relo(&name, 0, root, "0:0", 0);
    }
    for (number, (root, _)) in SIZES.iter().enumerate() {
        let root = object.btf.struct_(&format!("{root}___size"), 8, &[Member::at("none", int, 0)]);
        let name = format!("s{number}");
        object.program("socket", &name, &[Insn::mov64_imm(0, 8), Insn::exit()]);
        object.core_relo(&name, 0, root, "0", 9);
    }
    let object = object.build();
    let mut buffer = vec![0u8; 1 << 18];
    let mut arena = Arena::new(&mut buffer);
    let parsed = Object::parse(&object).expect("a built object");
    let prepared = prepare(&parsed, Some(&btf), Options::default(), &mut arena).expect("it prepares");
    assert_eq!(prepared.answers().expect("it was asked").types().pointer_size(), 4);
    let relocations: Vec<_> = prepared.relocations().collect();
    assert_eq!(relocations.len(), FIELDS.len() + SIZES.len());
    for (relocation, (root, field, _, offset, width)) in relocations.iter().zip(FIELDS) {
        let insn = decode(relocation.insns().as_bytes(), Endian::Little)[0];
        match width {
            Some(width) => assert_eq!(insn, Insn::ldx(*width, 0, 1, *offset as i16), "{root}.{field}"),
            None => assert_eq!(relocation.outcome, Ok(Patched::Poison), "{root}.{field}"),
        }
    }
    for (relocation, (root, size)) in relocations[FIELDS.len()..].iter().zip(SIZES) {
        let insn = decode(relocation.insns().as_bytes(), Endian::Little)[0];
        assert_eq!(insn, Insn::mov64_imm(0, *size), "size of {root}");
    }
}

/// Objects that were compiled for 64 bits, on that kernel: no load of a field is wider or narrower than the field.
#[test]
fn corpus_objects_load_4_bytes_of_fields_of_4_bytes() {
    let Some(corpus) = corpus() else { return };
    let btf = corpus.kernel(KERNEL).btf();
    let (mut narrowed, mut loads, mut poisoned) = (0u32, 0u32, 0u32);
    for verdict in corpus.verdicts().iter().filter(|verdict| verdict.endian == "LE" && verdict.opens()) {
        let bytes = corpus.read(&verdict.object);
        let mut buffer = vec![0u8; 4 << 20];
        let mut arena = Arena::new(&mut buffer);
        let object = Object::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", verdict.object));
        let prepared = prepare(&object, Some(&btf), Options::default(), &mut arena)
            .unwrap_or_else(|error| panic!("{}: {error}", verdict.object));
        for relocation in prepared.relocations() {
            let compiled = decode(relocation.compiled().as_bytes(), Endian::Little)[0];
            // LDX of memory, by its class and mode.
            if compiled.code & 0xe7 != 0x61 {
                continue;
            }
            loads += 1;
            if relocation.outcome == Ok(Patched::Poison) {
                poisoned += 1;
                continue;
            }
            let insn = decode(relocation.insns().as_bytes(), Endian::Little)[0];
            let width = |code: u8| Width::ALL.into_iter().find(|width| Insn::ldx(*width, 0, 0, 0).code == code);
            let (from, to) = (width(compiled.code).expect("a load"), width(insn.code).expect("a load"));
            let AccessSizes { local, target } = relocation.decision.access_sizes();
            if relocation.outcome == Ok(Patched::Value) && local != target {
                assert_eq!((u32::from(local), u32::from(target)), (from.bytes(), to.bytes()), "{}", verdict.object);
                narrowed += u32::from((from, to) == (Width::Dw, Width::W));
            } else {
                assert_eq!(from, to, "{}", verdict.object);
            }
        }
    }
    println!("{loads} loads: {narrowed} of 8 bytes became loads of 4, {poisoned} are poisoned");
    assert!(narrowed > 20, "{narrowed} of {loads}");
}

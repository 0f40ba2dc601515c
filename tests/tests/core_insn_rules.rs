//! CO-RE on what compilers do not write: instructions, types and targets made by hand, in both byte orders, with libbpf as the
//! second opinion where it is at hand (feature `libbpf`, root).

use corelo_core::arena::Arena;
use corelo_core::insn::Insn as CoreInsn;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, RelocationError, prepare};
use corelo_core::relo::decision::Verdict;
use corelo_core::relo::patch::{PatchError, Patched};
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding, Member};
use corelo_tests::endian::Endian;
use corelo_tests::insn::{Insn, Width, decode};
use corelo_tests::object_builder::ObjectBuilder;
use zerocopy::IntoBytes;

const BYTE_OFFSET: u32 = 0;
const BYTE_SIZE: u32 = 1;
const FIELD_EXISTS: u32 = 2;
const SIGNED: u32 = 3;
const LSHIFT: u32 = 4;
const TYPE_EXISTS: u32 = 8;
const TYPE_SIZE: u32 = 9;
const ENUMVAL_EXISTS: u32 = 10;
const ENUMVAL_VALUE: u32 = 11;
const TYPE_MATCHES: u32 = 12;

/// What is to become of the instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// These slots.
    Insns(Vec<Insn>),
    /// Poison in all slots.
    Poison,
    /// No patch for this reason.
    Patch(PatchError),
    /// No decision.
    Undecided,
}

/// One relocation on one instruction.
struct Case {
    name: &'static str,
    local: fn(&mut BtfBuilder) -> u32,
    target: fn(&mut BtfBuilder),
    insns: Vec<Insn>,
    access: &'static str,
    kind: u32,
    wanted: Wanted,
    /// libbpf's instruction is another or none: why.
    #[cfg_attr(not(feature = "libbpf"), expect(dead_code, reason = "read where libbpf is at hand"))]
    libbpf_differs: Option<&'static str>,
}

fn int(btf: &mut BtfBuilder) -> u32 {
    btf.int("int", 4, IntEncoding::Signed)
}

fn uint(btf: &mut BtfBuilder, byte_size: u32) -> u32 {
    let name = ["", "unsigned char", "unsigned short", "", "unsigned int", "", "", "", "unsigned long long"]
        [byte_size as usize];
    btf.int(name, byte_size, IntEncoding::Unsigned)
}

/// `struct s { T f; }` with `f` at byte 0.
fn local_u32(btf: &mut BtfBuilder) -> u32 {
    let ty = uint(btf, 4);
    btf.struct_("s", 4, &[Member::at("f", ty, 0)])
}

fn target_u32_at_8(btf: &mut BtfBuilder) {
    let ty = uint(btf, 4);
    btf.struct_("s", 12, &[Member::at("f", ty, 8)]);
}

/// A typedef of prototypes that each take the one before.
fn prototypes(btf: &mut BtfBuilder, levels: u32) -> u32 {
    let mut ty = int(btf);
    for _ in 0..levels {
        ty = btf.func_proto(0, &[("f", ty)]);
    }
    btf.typedef("s", ty)
}

fn case(name: &'static str, insn: Insn, kind: u32, wanted: Wanted) -> Case {
    Case {
        name,
        local: local_u32,
        target: target_u32_at_8,
        insns: vec![insn],
        access: if kind >= 6 { "0" } else { "0:0" },
        kind,
        wanted,
        libbpf_differs: None,
    }
}

fn insns(insns: &[Insn]) -> Wanted {
    Wanted::Insns(insns.to_vec())
}

fn sized(
    name: &'static str,
    local: fn(&mut BtfBuilder) -> u32,
    target: fn(&mut BtfBuilder),
    from: Width,
    wanted: Wanted,
) -> Case {
    Case { local, target, ..case(name, Insn::ldx(from, 0, 1, 0), BYTE_OFFSET, wanted) }
}

fn local_ptr(btf: &mut BtfBuilder) -> u32 {
    let ptr = btf.ptr(0);
    btf.struct_("s", 8, &[Member::at("f", ptr, 0)])
}

/// A kernel of 32 bits: its `long` has 4 bytes, and so has a pointer.
fn target_ptr32(btf: &mut BtfBuilder) {
    btf.int("long unsigned int", 4, IntEncoding::Unsigned);
    let ptr = btf.ptr(0);
    btf.struct_("s", 8, &[Member::at("f", ptr, 4)]);
}

/// The search tests the first bytes of names before all else, and a flavour is the second byte of a name of one letter.
fn target_flavoured(btf: &mut BtfBuilder) {
    let ty = uint(btf, 4);
    btf.struct_("s___kernel", 12, &[Member::at("f", ty, 8)]);
}

fn local_flavoured(btf: &mut BtfBuilder) -> u32 {
    let ty = uint(btf, 4);
    btf.struct_("s___mine", 4, &[Member::at("f", ty, 0)])
}

fn local_enum(btf: &mut BtfBuilder) -> u32 {
    btf.enum_("e", 4, false, &[("A", 1)])
}

fn enum_case(
    name: &'static str,
    local: fn(&mut BtfBuilder) -> u32,
    compiled: u64,
    target: fn(&mut BtfBuilder),
    wanted: u64,
) -> Case {
    Case {
        local,
        target,
        insns: Insn::ld_imm64(2, 0, compiled).to_vec(),
        access: "0",
        ..case(name, Insn::exit(), ENUMVAL_VALUE, insns(&Insn::ld_imm64(2, 0, wanted)))
    }
}

#[rustfmt::skip]
fn cases() -> Vec<Case> {
    let ldx = |width, off| Insn::ldx(width, 0, 1, off);
    let mut cases = vec![
        Case {
            target: target_flavoured,
            ..case("a target's flavour on one letter", Insn::mov64_imm(3, 0), BYTE_OFFSET, insns(&[Insn::mov64_imm(3, 8)]))
        },
        Case {
            local: local_flavoured,
            ..case("a local flavour on one letter", Insn::mov64_imm(3, 0), BYTE_OFFSET, insns(&[Insn::mov64_imm(3, 8)]))
        },
        case("a 32-bit move", Insn::mov32_imm(3, 0), BYTE_OFFSET, insns(&[Insn::mov32_imm(3, 8)])),
        case("a 64-bit move", Insn::mov64_imm(3, 0), BYTE_OFFSET, insns(&[Insn::mov64_imm(3, 8)])),
        case("a 64-bit addition", Insn::add64_imm(3, 0), BYTE_OFFSET, insns(&[Insn::add64_imm(3, 8)])),
        case("a move of a size", Insn::mov32_imm(3, 4), BYTE_SIZE, insns(&[Insn::mov32_imm(3, 4)])),
        case("an atomic addition of 4 bytes", Insn::atomic(Width::W, 1, 2, 0, 0), BYTE_OFFSET, insns(&[Insn::atomic(Width::W, 1, 2, 8, 0)])),
        case("a store of a register", Insn::stx(Width::W, 1, 2, 0), BYTE_OFFSET, insns(&[Insn::stx(Width::W, 1, 2, 8)])),
        case("a store of an immediate", Insn::st(Width::W, 1, 0, -7), BYTE_OFFSET, insns(&[Insn::st(Width::W, 1, 8, -7)])),
        case("a sign-extending load", Insn::ldx_signed(Width::W, 0, 1, 0), BYTE_OFFSET, insns(&[Insn::ldx_signed(Width::W, 0, 1, 8)])),
        case("a compiled offset that is not the local one", ldx(Width::W, 4), BYTE_OFFSET, Wanted::Patch(PatchError::UnexpectedValue { found: 4, expected: 0 })),
        case("a compiled immediate that is not the local one", Insn::mov64_imm(1, 5), BYTE_SIZE, Wanted::Patch(PatchError::UnexpectedValue { found: 5, expected: 4 })),
        case("arithmetic on a register", Insn::mov64_reg(1, 2), BYTE_OFFSET, Wanted::Patch(PatchError::UnsupportedInsn { code: 0xbf })),
        case("a jump", Insn::ja(0), BYTE_OFFSET, Wanted::Patch(PatchError::UnsupportedInsn { code: 0x05 })),
        // Access sizes.
        sized("u8 to u16", |b| { let t = uint(b, 1); b.struct_("s", 1, &[Member::at("f", t, 0)]) },
            |b| { let t = uint(b, 2); b.struct_("s", 8, &[Member::at("f", t, 6)]); }, Width::B, insns(&[ldx(Width::H, 6)])),
        sized("u64 to u8", |b| { let t = uint(b, 8); b.struct_("s", 8, &[Member::at("f", t, 0)]) },
            |b| { let t = uint(b, 1); b.struct_("s", 8, &[Member::at("f", t, 3)]); }, Width::Dw, insns(&[ldx(Width::B, 3)])),
        sized("u32 to s64", local_u32,
            |b| { let t = b.int("long long", 8, IntEncoding::Signed); b.struct_("s", 8, &[Member::at("f", t, 0)]); }, Width::W, Wanted::Poison),
        sized("u32 to s32: the same size", local_u32,
            |b| { let t = int(b); b.struct_("s", 8, &[Member::at("f", t, 4)]); }, Width::W, insns(&[ldx(Width::W, 4)])),
        sized("s32 to u64", |b| { let t = int(b); b.struct_("s", 4, &[Member::at("f", t, 0)]) },
            |b| { let t = uint(b, 8); b.struct_("s", 8, &[Member::at("f", t, 0)]); }, Width::W, Wanted::Poison),
        sized("a pointer of 8 bytes to one of 4", local_ptr, target_ptr32, Width::Dw, insns(&[ldx(Width::W, 4)])),
        Case { insns: vec![Insn::mov64_imm(1, 8)], ..Case { kind: BYTE_SIZE, ..sized("the size of a pointer of 4 bytes", local_ptr, target_ptr32, Width::Dw, insns(&[Insn::mov64_imm(1, 4)])) } },
        sized("a load that is narrower than the field", local_ptr, target_ptr32, Width::W, Wanted::Patch(PatchError::UnexpectedAccessSize { found: 4, expected: 8 })),
        sized("an int of 16 bytes there", local_u32,
            |b| { let t = b.int("unsigned __int128", 16, IntEncoding::Unsigned); b.struct_("s", 16, &[Member::at("f", t, 0)]); }, Width::W, Wanted::Patch(PatchError::NoSuchAccessSize { byte_size: 255 })),
        sized("an offset of 32767", local_u32, |b| { let t = uint(b, 4); b.struct_("s", 40000, &[Member::at("f", t, 32767)]); }, Width::W, insns(&[ldx(Width::W, 32767)])),
        sized("an offset of 32768", local_u32, |b| { let t = uint(b, 4); b.struct_("s", 40000, &[Member::at("f", t, 32768)]); }, Width::W, Wanted::Patch(PatchError::OffsetTooBig { value: 32768 })),
        // Candidates and compatibility.
        sized("an old bitfield-style int", local_u32, |b| { let t = b.int_bits("unsigned int", 4, IntEncoding::Unsigned, 8, 4); b.struct_("s", 4, &[Member::at("f", t, 0)]); }, Width::W, Wanted::Poison),
        sized("an int that is a float there", local_u32, |b| { let t = b.float("float", 4); b.struct_("s", 4, &[Member::at("f", t, 0)]); }, Width::W, Wanted::Poison),
        sized("a struct that is a union there is no candidate", local_u32, |b| { let t = uint(b, 4); b.union_("s", 4, &[Member::at("f", t, 0)]); }, Width::W, Wanted::Poison),
        sized("through typedef, const, volatile, restrict, type tag", local_u32, |b| {
            let mut t = uint(b, 4);
            t = b.typedef("u", t); t = b.const_(t); t = b.volatile(t); t = b.restrict(t); t = b.type_tag("user", t, false);
            b.struct_("s", 8, &[Member::at("f", t, 4)]);
        }, Width::W, insns(&[ldx(Width::W, 4)])),
        sized("three anonymous levels", local_u32, |b| {
            let t = uint(b, 4);
            let inner = b.struct_("", 8, &[Member::at("x", t, 0), Member::at("f", t, 4)]);
            let middle = b.union_("", 8, &[Member::at("", inner, 0)]);
            let outer = b.struct_("", 16, &[Member::at("y", t, 0), Member::at("", middle, 8)]);
            b.struct_("s", 32, &[Member::at("z", t, 0), Member::at("", outer, 16)]);
        }, Width::W, insns(&[ldx(Width::W, 28)])),
        sized("a forward declaration is no candidate", local_u32, |b| { b.fwd("s", false); }, Width::W, Wanted::Poison),
        Case { target: |b| { b.fwd("s", false); }, ..case("a forward declaration does not exist as a struct", Insn::mov64_imm(1, 1), TYPE_EXISTS, insns(&[Insn::mov64_imm(1, 0)])) },
        Case { target: |b| { b.fwd("s", false); }, ..case("nor has it a size", Insn::mov64_imm(1, 4), TYPE_SIZE, insns(&[Insn::mov64_imm(1, 0)])) },
        Case { target: |b| { b.fwd("s", false); }, ..case("nor does it match", Insn::mov64_imm(1, 1), TYPE_MATCHES, insns(&[Insn::mov64_imm(1, 0)])) },
        // A candidate that cannot be judged is not left out as one that does not match is: what it would give is not known.
        Case { local: |b| { let t = uint(b, 4); b.typedef("s", t) }, access: "0", target: |b| { let t = uint(b, 4); b.typedef("s", t); b.typedef("s", 0); },
            ..case("a second candidate that has no size", ldx(Width::W, 0), BYTE_OFFSET, Wanted::Undecided) },
        Case { target: |b| { let t = uint(b, 8); b.struct_("s", 16, &[Member::bits("f", t, 62, 5)]); target_u32_at_8(b); },
            ..case("a first candidate whose bitfield is over 8 bytes", Insn::mov64_imm(1, 4), BYTE_SIZE, Wanted::Undecided) },
        Case { local: |b| prototypes(b, 32), target: |b| _ = prototypes(b, 32),
            ..case("prototypes in prototypes, 32 levels", Insn::mov64_imm(1, 1), TYPE_EXISTS, insns(&[Insn::mov64_imm(1, 1)])) },
        Case { local: |b| prototypes(b, 33), target: |b| _ = prototypes(b, 33),
            ..case("prototypes in prototypes, 33 levels", Insn::mov64_imm(1, 1), TYPE_EXISTS, Wanted::Undecided) },
        // Types that no compiler makes.
        Case { target: |b| { let (t, f) = (uint(b, 4), b.float("float", 4)); let inner = b.struct_("", 16, &[Member::at("f", f, 8)]);
                b.struct_("s", 24, &[Member::at("", inner, 0), Member::at("f", t, 16)]); },
            libbpf_differs: Some("libbpf keeps the offset of the first member, and ends with 24"),
            ..case("a name twice, first of a type that does not go with it", ldx(Width::W, 0), BYTE_OFFSET, insns(&[ldx(Width::W, 16)])) },
        Case { local: |b| b.struct_("s", 1 << 31, &[]), access: "0", target: |b| _ = b.struct_("s", 1 << 31, &[]), insns: Insn::ld_imm64(2, 0, 1 << 31).to_vec(),
            libbpf_differs: Some("libbpf takes a size of 2^31 for a negative error"),
            ..case("the size of a type of 2^31 bytes", Insn::exit(), BYTE_SIZE, insns(&Insn::ld_imm64(2, 0, 1 << 31))) },
        // matches: behind a pointer a forward declaration serves.
        Case {
            local: |b| { let t = int(b); let inner = b.struct_("inner", 4, &[Member::at("x", t, 0)]); let p = b.ptr(inner); b.struct_("s", 8, &[Member::at("p", p, 0)]) },
            target: |b| { let inner = b.fwd("inner", false); let p = b.ptr(inner); b.struct_("s", 8, &[Member::at("p", p, 0)]); },
            ..case("behind a pointer a forward declaration of the kind matches", Insn::mov64_imm(1, 1), TYPE_MATCHES, insns(&[Insn::mov64_imm(1, 1)]))
        },
        Case {
            local: |b| { let t = int(b); let inner = b.struct_("inner", 4, &[Member::at("x", t, 0)]); let p = b.ptr(inner); b.struct_("s", 8, &[Member::at("p", p, 0)]) },
            target: |b| { let inner = b.fwd("inner", true); let p = b.ptr(inner); b.struct_("s", 8, &[Member::at("p", p, 0)]); },
            ..case("one of the other kind does not", Insn::mov64_imm(1, 1), TYPE_MATCHES, insns(&[Insn::mov64_imm(1, 0)]))
        },
        Case { target: |b| { let t = int(b); b.struct_("s", 4, &[Member::at("f", t, 0)]); },
            ..case("an int of the other sign does not match", Insn::mov64_imm(1, 1), TYPE_MATCHES, insns(&[Insn::mov64_imm(1, 0)])) },
        // Bitfields.
        Case { target: |b| { let t = int(b); b.struct_("s", 8, &[Member::bits("f", t, 37, 5)]); }, ..case("a field that is a signed bitfield there: sign", Insn::mov64_imm(1, 0), SIGNED, insns(&[Insn::mov64_imm(1, 1)])) },
        Case { target: |b| { let t = uint(b, 8); b.struct_("s", 16, &[Member::bits("f", t, 62, 5)]); }, ..case("a bitfield over 8 bytes", Insn::mov64_imm(1, 4), BYTE_SIZE, Wanted::Undecided) },
        sized("a load of a field that is a bitfield there", local_u32, |b| { let t = uint(b, 4); b.struct_("s", 8, &[Member::bits("f", t, 35, 5)]); }, Width::W, Wanted::Poison),
        // Enumerators.
        enum_case("an enum that is an enum64 there", local_enum, 1, |b| { b.enum64("e", false, &[("A", 5 << 33)]); }, 5 << 33),
        enum_case("an enum64 that is an enum there", |b| b.enum64("e", false, &[("A", 7 << 40)]), 7 << 40, |b| { b.enum_("e", 4, false, &[("A", 9)]); }, 9),
        enum_case("a signed enumerator is sign-extended", |b| b.enum_("e", 4, true, &[("A", -3)]), (-3i64).cast_unsigned(), |b| { b.enum_("e", 4, true, &[("A", -9)]); }, (-9i64).cast_unsigned()),
        Case { libbpf_differs: Some("libbpf sign-extends every 32-bit enumerator"),
            ..enum_case("an unsigned one is not", local_enum, 1, |b| { b.enum_("e", 4, false, &[("A", -2)]); }, 0xffff_fffe) },
        enum_case("halves join as unsigned", |b| b.enum64("e", false, &[("A", 0x1_8000_0000)]), 0x1_8000_0000, |b| { b.enum64("e", false, &[("A", 0x2_9000_0000)]); }, 0x2_9000_0000),
        Case { wanted: Wanted::Poison, ..enum_case("a missing enumerator: both halves are poisoned", local_enum, 1, |b| { b.enum_("e", 4, false, &[("B", 2)]); }, 0) },
        Case { insns: vec![Insn::mov64_imm(1, 1)], kind: ENUMVAL_EXISTS, wanted: insns(&[Insn::mov64_imm(1, 0)]), ..enum_case("a missing enumerator does not exist", local_enum, 1, |b| { b.enum_("e", 4, false, &[("B", 2)]); }, 0) },
        Case { insns: vec![Insn::mov64_imm(1, 1)], wanted: insns(&[Insn::mov64_imm(1, -9)]), ..enum_case("a negative value in a 32-bit immediate", local_enum, 1, |b| { b.enum_("e", 4, true, &[("A", -9)]); }, 0) },
        Case { insns: vec![Insn::mov64_imm(1, 1)], wanted: Wanted::Patch(PatchError::ImmediateTooBig { value: 1 << 40 }),
            libbpf_differs: Some("libbpf writes the low half without a word"),
            ..enum_case("a value that a 32-bit immediate cannot hold", local_enum, 1, |b| { b.enum64("e", false, &[("A", 1 << 40)]); }, 0) },
        Case { insns: vec![Insn::mov64_imm(1, 1)], wanted: Wanted::Patch(PatchError::ImmediateTooBig { value: 0xffff_ffff }),
            libbpf_differs: Some("libbpf writes the low half without a word"),
            ..enum_case("nor one that it would sign-extend", local_enum, 1, |b| { b.enum64("e", false, &[("A", 0xffff_ffff)]); }, 0) },
        Case { insns: vec![Insn::new(0x18, 1, 1, 0, 1), Insn::new(0, 0, 0, 0, 0)], wanted: Wanted::Patch(PatchError::BadLdImm64),
            ..enum_case("a 64-bit load with a pseudo source", local_enum, 1, |b| { b.enum_("e", 4, false, &[("A", 2)]); }, 0) },
    ];
    // Malformed access strings (CASES 6), and a string beyond 64 steps.
    for access in ["-1", "0:-1", "0:4294967296", "0::1", "0:1:", "", "0:1", "0:0:0", "0x0"] {
        let libbpf_differs = matches!(access, "0:4294967296").then_some("libbpf reads numbers modulo 2^32");
        cases.push(Case { access, libbpf_differs, ..case("malformed or unfitting access", ldx(Width::W, 0), BYTE_OFFSET, Wanted::Undecided) });
    }
    // Fields that do not exist.
    for (kind, compiled, wanted) in [(FIELD_EXISTS, 1, Some(0)), (BYTE_SIZE, 4, None), (SIGNED, 0, None), (LSHIFT, 32, None)] {
        let wanted = wanted.map_or(Wanted::Poison, |value| insns(&[Insn::mov64_imm(1, value)]));
        cases.push(Case { target: |b| { let t = uint(b, 4); b.struct_("s", 4, &[Member::at("g", t, 0)]); }, ..case("a missing field", Insn::mov64_imm(1, compiled), kind, wanted) });
    }
    cases
}

fn build(case: &Case, endian: Endian) -> (Vec<u8>, Vec<u8>) {
    let mut object = ObjectBuilder::new(endian);
    let root = (case.local)(&mut object.btf);
    let mut insns = case.insns.clone();
    insns.extend([Insn::mov64_imm(0, 0), Insn::exit()]);
    object.program("socket", "prog", &insns);
    object.core_relo("prog", 0, root, case.access, case.kind);
    let mut target = BtfBuilder::new(endian);
    (case.target)(&mut target);
    (object.build(), target.build())
}

fn to_insns(insns: &[CoreInsn], endian: Endian) -> Vec<Insn> {
    decode(insns.as_bytes(), endian)
}

fn relocate(case: &Case, endian: Endian) -> Wanted {
    let (object, target) = build(case, endian);
    let mut buffer = vec![0u8; 1 << 16];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(&object).expect("a built object");
    let prepared = prepare(&object, Some(&target), Options::default(), &mut arena).expect(case.name);
    let relocation = prepared.relocations().next().expect("one record");
    match relocation.outcome {
        Ok(Patched::Value) => Wanted::Insns(to_insns(relocation.insns(), endian)),
        Ok(Patched::Poison) => {
            let poison = Insn::call_helper(0x0bad_2310);
            assert_eq!(to_insns(relocation.insns(), endian), vec![poison; case.insns.len()], "{}", case.name);
            Wanted::Poison
        }
        Err(RelocationError::Patch(error)) => Wanted::Patch(error),
        Err(RelocationError::Undecided(verdict)) => {
            assert!(matches!(verdict, Verdict::BadSpec | Verdict::Fault { .. }), "{}: {verdict:?}", case.name);
            Wanted::Undecided
        }
    }
}

#[test]
fn hand_made_cases_follow_the_rules_in_both_byte_orders() {
    for case in cases() {
        for endian in Endian::BOTH {
            assert_eq!(
                relocate(&case, endian),
                case.wanted,
                "{} ({:?} kind {}, {endian:?})",
                case.name,
                case.access,
                case.kind
            );
        }
    }
    println!("{} cases in both byte orders", cases().len());
}

/// Left shifts, by hand: a field of 5 bits, 3 bits into an int of 4 bytes.
#[test]
fn left_shifts_count_from_the_end_that_the_byte_order_has() {
    for (endian, wanted) in [(Endian::Little, 64 - (3 + 5)), (Endian::Big, (8 - 4) * 8 + 3)] {
        let case = Case {
            target: |b| {
                let t = uint(b, 4);
                b.struct_("s", 8, &[Member::bits("f", t, 35, 5)]);
            },
            ..case("a left shift", Insn::lsh64_imm(1, 32), LSHIFT, Wanted::Poison)
        };
        assert_eq!(relocate(&case, endian), insns(&[Insn::lsh64_imm(1, wanted)]), "{endian:?}");
    }
}

/// The caller may say how large the kernel's pointers are; without a word and without a `long` they have 8 bytes.
#[test]
fn the_pointer_size_can_be_given() {
    let case = Case {
        target: |b| {
            let ptr = b.ptr(0);
            b.struct_("s", 8, &[Member::at("f", ptr, 4)]);
        },
        ..sized("given", local_ptr, target_ptr32, Width::Dw, Wanted::Poison)
    };
    let (object, target) = build(&case, Endian::Little);
    for (given, width) in [(None, Width::Dw), (Some(8), Width::Dw), (Some(4), Width::W)] {
        let mut buffer = vec![0u8; 1 << 16];
        let mut arena = Arena::new(&mut buffer);
        let object = Object::parse(&object).expect("a built object");
        let options = Options { target_pointer_size: given, ..Options::default() };
        let prepared = prepare(&object, Some(&target), options, &mut arena).expect("it prepares");
        let relocation = prepared.relocations().next().expect("one record");
        assert_eq!(to_insns(relocation.insns(), Endian::Little), [Insn::ldx(width, 0, 1, 4)], "{given:?}");
    }
}

#[test]
fn long_is_known_under_every_spelling() {
    for name in ["long", "long int", "unsigned long", "long unsigned int", "unsigned long int"] {
        let mut object = ObjectBuilder::new(Endian::Little);
        let root = local_ptr(&mut object.btf);
        object.program("socket", "prog", &[Insn::ldx(Width::Dw, 0, 1, 0), Insn::exit()]);
        object.core_relo("prog", 0, root, "0:0", BYTE_OFFSET);
        let mut target = BtfBuilder::new(Endian::Little);
        target.int("int", 4, IntEncoding::Signed);
        target.int(name, 4, IntEncoding::Unsigned);
        let ptr = target.ptr(0);
        target.struct_("s", 8, &[Member::at("f", ptr, 4)]);
        let (object, target) = (object.build(), target.build());
        let mut buffer = vec![0u8; 1 << 16];
        let mut arena = Arena::new(&mut buffer);
        let object = Object::parse(&object).expect("a built object");
        let prepared = prepare(&object, Some(&target), Options::default(), &mut arena).expect("it prepares");
        let relocation = prepared.relocations().next().expect("one record");
        assert_eq!(to_insns(relocation.insns(), Endian::Little), [Insn::ldx(Width::W, 0, 1, 4)], "{name}");
    }
}

#[cfg(feature = "libbpf")]
#[test]
fn hand_made_cases_are_what_libbpf_makes_of_them() {
    use corelo_tests::{kernel, libbpf};
    if !kernel::require_kernel("prepare built objects with libbpf") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let (mut same, mut explained) = (0, 0);
    // A negative index makes libbpf read in front of the members, and end there.
    for case in cases().into_iter().filter(|case| !case.access.contains('-')) {
        let (object, target) = build(&case, Endian::native());
        let (object_path, target_path) = (dir.path().join("prog.o"), dir.path().join("target.btf"));
        std::fs::write(&object_path, object).expect("a file");
        std::fs::write(&target_path, target).expect("a file");
        let outcome = libbpf::open_and_prepare(&object_path, Some(&target_path)).expect(case.name);
        let program = outcome.program("prog").expect("one program");
        let theirs = decode(&program.insns, Endian::native());
        let theirs = &theirs[..case.insns.len()];
        let agrees = match (&case.wanted, &outcome.failed) {
            (Wanted::Insns(wanted), None) => theirs == wanted,
            (Wanted::Poison, None) => theirs.iter().all(|insn| insn.imm == 0x0bad_2310),
            (Wanted::Patch(_) | Wanted::Undecided, Some(_)) => true,
            _ => false,
        };
        match case.libbpf_differs {
            None => assert!(
                agrees,
                "{} {:?}: wanted {:?}, libbpf {:?} {theirs:?}\n{}",
                case.name, case.access, case.wanted, outcome.failed, outcome.log
            ),
            Some(why) => assert!(!agrees, "{}: no difference any more: {why}", case.name),
        }
        if agrees {
            same += 1;
        } else {
            explained += 1;
        }
    }
    println!("{same} cases as libbpf, {explained} differ as explained");
}

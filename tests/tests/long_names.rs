//! Names of megabytes, which thousands of types share: every one of these tests took minutes and more where such a name was
//! read to its end for each type or comparison.

use corelo_core::arena::Arena;
use corelo_core::btf::BtfError;
use corelo_core::min_btf::{SliceSource, minimal, stream};
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Plan, Prepared, prepare};
use corelo_core::relo::SpecError;
use corelo_core::relo::decision::Verdict;
use corelo_tests::btf_builder::{IntEncoding, Member};
use corelo_tests::endian::Endian;
use corelo_tests::insn::Insn;
use corelo_tests::object_builder::ObjectBuilder;

const STRUCT: u32 = 4 << 24;
const ENUM: u32 = 6 << 24;
const MEGABYTES: usize = 32 << 20;

/// BTF of these words of types.
fn blob(types: &[u32], strings: &[u8], e: Endian) -> Vec<u8> {
    let len = types.len() as u32 * 4;
    let mut blob = e.u16(0xeb9f).to_vec();
    blob.extend([1, 0]);
    for word in [24, 0, len, len, strings.len() as u32].iter().chain(types) {
        blob.extend(e.u32(*word));
    }
    blob.extend(strings);
    blob
}

/// An object that asks whether struct `name` exists, and for the offset of its member `m`, an enumeration called `e`.
fn object(name: &str, e: Endian) -> Vec<u8> {
    let mut object = ObjectBuilder::new(e);
    let int = object.btf.int("int", 4, IntEncoding::Signed);
    let enumeration = object.btf.enum_("e", 4, false, &[("one", 1)]);
    let root = object.btf.struct_(name, 8, &[Member::at("n", int, 0), Member::at("m", enumeration, 4)]);
    object.program("xdp", "p", &[Insn::mov64_imm(0, 1), Insn::mov64_imm(1, 4), Insn::exit()]);
    object.core_relo("p", 0, root, "0", 8);
    object.core_relo("p", 1, root, "0:1", 0);
    object.build()
}

fn verdicts(prepared: &Prepared<'_>) -> Vec<(Verdict, u64)> {
    prepared.relocations().map(|it| (it.decision.verdict(), it.decision.target_value())).collect()
}

/// The verdicts with the kernel's BTF as a whole, which are the same with what is left of it when it is read piece by piece.
fn answers(object: &[u8], kernel: &[u8]) -> Vec<(Verdict, u64)> {
    let mut buffer = vec![0u8; 16 << 20];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(object).expect("an object");
    let whole = {
        let prepared = prepare(&object, Some(kernel), Options::default(), &mut arena.scratch());
        verdicts(&prepared.expect("it is prepared"))
    };
    let small = {
        let mut arena = arena.scratch();
        let plan = Plan::new(&object, Options::default(), &mut arena).expect("a plan");
        minimal(&[plan.needs()], kernel, None, &mut arena).expect("a minimal BTF").blob.to_vec()
    };
    let prepared = prepare(&object, Some(&small), Options::default(), &mut arena.scratch());
    assert_eq!(verdicts(&prepared.expect("it is prepared")), whole);
    let plan = Plan::new(&object, Options::default(), &mut arena).expect("a plan");
    let made = stream(SliceSource(kernel), plan.needs(), 4096, &mut arena).expect("a minimal BTF");
    let search = plan.search(made.btf().expect("valid BTF"), &mut arena).expect("a search");
    assert_eq!(verdicts(&search.finish()), whole);
    whole
}

#[test]
fn types_whose_name_is_too_long_for_a_kernel_are_no_candidates() {
    for e in Endian::BOTH {
        // One string for all, of which each has another part: "s", its flavours, and what only starts like it.
        let mut strings = b"\0s\0n\0m\0e\0int\0".to_vec();
        let flavours = strings.len() as u32;
        strings.extend(b"s___".repeat(MEGABYTES / 4));
        strings.extend(b"x\0");
        let mut types = vec![9, 1 << 24, 4, 0x0100_0020, 7, ENUM, 4];
        types.extend([1, STRUCT | 2, 8, 3, 1, 0, 5, 2, 32]);
        for number in 0..100_000 {
            types.extend([flavours + number * 4, STRUCT, 4]);
        }
        let wanted = [(Verdict::Value, 1), (Verdict::Value, 4)];
        assert_eq!(answers(&object("s", e), &blob(&types, &strings, e)), wanted);
    }
}

/// The longest name that the kernel takes, and one byte more.
#[test]
fn names_of_511_bytes_are_names() {
    for e in Endian::BOTH {
        for (len, wanted) in [(511, 1), (512, 0)] {
            // The flavour is part of a name for the kernel, and not for who looks for it.
            let mut strings = b"\0n\0m\0e\0int\0s___".to_vec();
            let name = strings.len() as u32 - 4;
            strings.extend(b"x".repeat(len - 4));
            strings.push(0);
            let mut types = vec![7, 1 << 24, 4, 0x0100_0020, 5, ENUM, 4];
            types.extend([name, STRUCT | 2, 8, 1, 1, 0, 3, 2, 32]);
            let got = answers(&object("s", e), &blob(&types, &strings, e));
            assert_eq!(got[0], (Verdict::Value, wanted), "{len}");
            assert_eq!(got[1].0, if wanted == 1 { Verdict::Value } else { Verdict::Poison }, "{len}");
        }
    }
}

#[test]
fn an_enumeration_with_a_name_of_megabytes_is_compared_as_fast_as_others() {
    let e = Endian::Little;
    let mut strings = b"\0s\0n\0m\0int\0".to_vec();
    let long = strings.len() as u32;
    strings.extend(b"e".repeat(MEGABYTES));
    strings.push(0);
    let mut types = vec![7, 1 << 24, 4, 0x0100_0020, long, ENUM, 4];
    for _ in 0..20_000 {
        types.extend([1, STRUCT | 2, 8, 3, 1, 0, 5, 2, 32]);
    }
    let wanted = [(Verdict::Value, 1), (Verdict::Poison, 0)];
    let mut buffer = vec![0u8; 16 << 20];
    let bytes = object("s", e);
    let kernel = blob(&types, &strings, e);
    let object = Object::parse(&bytes).expect("an object");
    let mut arena = Arena::new(&mut buffer);
    let prepared = prepare(&object, Some(&kernel), Options::default(), &mut arena).expect("it is prepared");
    assert_eq!(verdicts(&prepared), wanted);
}

/// The object's own names: refused, as the kernel refuses its BTF, and not read for every candidate.
#[test]
fn an_object_whose_type_has_a_name_of_megabytes_is_told_so() {
    let mut buffer = vec![0u8; 16 << 20];
    let bytes = object(&"s".repeat(600), Endian::Little);
    let object = Object::parse(&bytes).expect("an object");
    let mut arena = Arena::new(&mut buffer);
    let kernel = blob(&[5, 1 << 24, 4, 0x0100_0020], b"\0int\0int\0", Endian::Little);
    let prepared = prepare(&object, Some(&kernel), Options::default(), &mut arena).expect("it is prepared");
    for relocation in prepared.relocations() {
        assert_eq!(relocation.decision.verdict(), Verdict::BadSpec);
        let error = prepared.decisions().spec_error(prepared.local().expect("its BTF"), relocation.decision);
        assert!(matches!(error, Err(SpecError::Btf(BtfError::NameTooLong { .. }))), "{error:?}");
    }
}

/// Many candidates of one name and many relocations: what is done is their product, and no more.
#[test]
fn a_hundred_thousand_candidates_of_one_name_are_judged_once() {
    let e = Endian::Little;
    let mut strings = b"\0s\0n\0m\0e\0int\0".to_vec();
    let mut types = vec![9, 1 << 24, 4, 0x0100_0020, 7, ENUM, 4];
    for number in 0..100_000 {
        let name = strings.len() as u32;
        strings.extend(format!("s___{number}\0").bytes());
        types.extend([name, STRUCT | 2, 8, 3, 1, 0, 5, 2, 32]);
    }
    let wanted = [(Verdict::Value, 1), (Verdict::Value, 4)];
    assert_eq!(answers(&object("s", e), &blob(&types, &strings, e)), wanted);
}

//! How loaders have failed their users, each fault a test: an input that provokes it, the right result, which is another one
//! when nothing is relocated, and a run in exactly the arena that was reported and in one byte less.

mod exact;

use std::fmt::Write as _;

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::{Btf, BtfError, TypeId, Types};
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Plan, PrepareError, prepare};
use corelo_core::relo::SpecError;
use corelo_core::relo::decision::{TargetType, Verdict};
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding, KindLayout, Member};
use corelo_tests::elf_builder::Bind;
use corelo_tests::elf_reader::section_data;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;
use corelo_tests::insn::{Insn, Width, decode};
use corelo_tests::object_builder::{MapDef, ObjectBuilder};

const POISON: i32 = 0x0bad_2310;

fn is_poison(insn: &Insn) -> bool {
    *insn == Insn::call_helper(POISON)
}

/// Both byte orders, each in its exact arena; `check` gets the instructions of each program, in the order of the object.
/// They must not all be as they were compiled.
fn relocated(
    name: &str,
    object: impl Fn(&mut ObjectBuilder),
    target: impl Fn(&mut BtfBuilder),
    check: impl Fn(&[(String, Result<Vec<Insn>, String>)]),
) {
    for endian in Endian::BOTH {
        let (mut builder, mut btf) = (ObjectBuilder::new(endian), BtfBuilder::new(endian));
        object(&mut builder);
        target(&mut btf);
        let (object, target) = (builder.build(), btf.build());
        let (programs, _, _) = exact::exactly(name, &object, Some(&target), Options::default());
        let compiled = code_of(&object);
        let is_as_compiled = programs.iter().all(|(_, linked)| {
            linked.as_ref().is_ok_and(|bytes| compiled.windows(bytes.len()).any(|window| window == bytes))
        });
        assert!(!is_as_compiled, "{name}: nothing was relocated");
        let programs: Vec<_> =
            programs.into_iter().map(|(name, linked)| (name, linked.map(|bytes| decode(&bytes, endian)))).collect();
        check(&programs);
    }
}

fn code_of(object: &[u8]) -> Vec<u8> {
    let sections = ["socket", "tc", ".text"].iter().filter_map(|name| section_data(object, name));
    sections.flatten().copied().collect()
}

fn ok<'p>(programs: &'p [(String, Result<Vec<Insn>, String>)], name: &str) -> &'p [Insn] {
    let found = programs.iter().find(|program| program.0 == name).unwrap_or_else(|| panic!("no program {name}"));
    found.1.as_ref().unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn error<'p>(programs: &'p [(String, Result<Vec<Insn>, String>)], name: &str) -> &'p str {
    let found = programs.iter().find(|program| program.0 == name).unwrap_or_else(|| panic!("no program {name}"));
    found.1.as_ref().expect_err("it is refused")
}

fn int(btf: &mut BtfBuilder) -> u32 {
    btf.int("int", 4, IntEncoding::Signed)
}

/// `struct NAME` with int members at these byte offsets.
fn ints(btf: &mut BtfBuilder, name: &str, byte_size: u32, members: &[(&str, u32)]) -> u32 {
    let int = int(btf);
    let members: Vec<Member<'_>> = members.iter().map(|&(name, at)| Member::at(name, int, at)).collect();
    btf.struct_(name, byte_size, &members)
}

fn load(off: i16) -> [Insn; 2] {
    [Insn::ldx(Width::W, 0, 1, off), Insn::exit()]
}

/// A program of one load of member `member` of `root`, compiled as at `off`.
fn load_program(object: &mut ObjectBuilder, name: &str, root: u32, member: u32, off: i16) {
    object.program("socket", name, &load(off));
    object.core_relo(name, 0, root, &format!("0:{member}"), 0);
}

#[test]
fn two_layouts_of_one_name_are_never_mixed() {
    // The first has a and c, the second b and c elsewhere; two relocations on a, one on b, one on c.
    let target = |btf: &mut BtfBuilder| {
        ints(btf, "adapter", 16, &[("a", 4), ("c", 8)]);
        ints(btf, "adapter", 32, &[("b", 16), ("c", 20)]);
    };
    let orders = [["a1", "a2", "b", "c"], ["b", "c", "a2", "a1"], ["c", "b", "a1", "a2"]];
    for order in orders {
        relocated(
            "two layouts of one name",
            |object| {
                let root = ints(&mut object.btf, "adapter", 12, &[("a", 0), ("b", 4), ("c", 8)]);
                for program in order {
                    let member = match program {
                        "b" => 1,
                        "c" => 2,
                        _ => 0,
                    };
                    load_program(object, program, root, member, member as i16 * 4);
                }
            },
            target,
            |programs| {
                assert_eq!(ok(programs, "a1"), load(4));
                assert_eq!(ok(programs, "a2"), load(4));
                assert_eq!(ok(programs, "c"), load(8), "of the layout that has a");
                assert!(is_poison(&ok(programs, "b")[0]), "the chosen layout has no b");
            },
        );
    }
    // One relocation each: neither layout is better, and what differs is an error that names both.
    relocated(
        "two layouts of one name, a tie",
        |object| {
            let root = ints(&mut object.btf, "adapter", 12, &[("a", 0), ("b", 4), ("c", 8)]);
            load_program(object, "a", root, 0, 0);
            load_program(object, "b", root, 1, 4);
        },
        target,
        |programs| {
            for program in ["a", "b"] {
                assert!(error(programs, program).contains("ambiguous, candidates [2] and [4] differ"), "{programs:?}");
            }
        },
    );
}

#[test]
fn a_guarded_field_that_is_missing_does_not_fail_the_program() {
    relocated(
        "a guarded field that is missing",
        |object| {
            let root = ints(&mut object.btf, "s", 8, &[("here", 0), ("gone", 4)]);
            let insns =
                [Insn::mov64_imm(2, 1), Insn::new(0x15, 2, 0, 1, 0), Insn::ldx(Width::W, 0, 1, 4), Insn::exit()];
            object.program("socket", "prog", &insns);
            object.core_relo("prog", 0, root, "0:1", 2).core_relo("prog", 2, root, "0:1", 0);
        },
        |btf| {
            ints(btf, "s", 4, &[("here", 0)]);
        },
        |programs| {
            let insns = ok(programs, "prog");
            assert_eq!(insns[0], Insn::mov64_imm(2, 0));
            assert!(is_poison(&insns[2]));
        },
    );
}

#[test]
fn hundreds_of_copies_of_a_type_take_no_time() {
    // Copies with graphs of their own: each points to its own inner struct.
    relocated(
        "copies of a type",
        |object| {
            let int = int(&mut object.btf);
            let inner = object.btf.struct_("inner", 4, &[Member::at("x", int, 0)]);
            let ptr = object.btf.ptr(inner);
            let root = object.btf.struct_("outer", 16, &[Member::at("p", ptr, 0), Member::at("f", int, 8)]);
            load_program(object, "prog", root, 1, 8);
            object.program("socket", "exists", &[Insn::mov64_imm(0, 0), Insn::exit()]);
            object.core_relo("exists", 0, root, "0", 12);
        },
        |btf| {
            let int = int(btf);
            for copy in 0..600 {
                let inner = btf.struct_("inner", 8, &[Member::at("y", int, 0), Member::at("x", int, 4)]);
                let ptr = btf.ptr(inner);
                let name = format!("outer___{copy}");
                btf.struct_(&name, 24, &[Member::at("p", ptr, 8), Member::at("f", int, 16)]);
            }
        },
        |programs| {
            assert_eq!(ok(programs, "prog"), load(16));
        },
    );
    // Anonymous members that hold two of their like each: 2^24 paths to look for a name on.
    let started = std::time::Instant::now();
    for endian in Endian::BOTH {
        let (mut object, mut btf) = (ObjectBuilder::new(endian), BtfBuilder::new(endian));
        let root = ints(&mut object.btf, "s", 4, &[("f", 0)]);
        load_program(&mut object, "prog", root, 0, 0);
        let mut level = ints(&mut btf, "", 4, &[("other", 0)]);
        for _ in 0..24 {
            level = btf.union_("", 4, &[Member::at("", level, 0), Member::at("", level, 0)]);
        }
        btf.struct_("s", 4, &[Member::at("", level, 0)]);
        let (programs, _, _) =
            exact::exactly("copies of a type, twice as many", &object.build(), Some(&btf.build()), Options::default());
        let said = programs[0].1.as_ref().expect_err("refused, not searched to the end");
        assert!(said.contains("candidate"), "{said}");
    }
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn candidates_that_differ_are_an_error_that_names_them() {
    relocated(
        "candidates that differ",
        |object| {
            let root = ints(&mut object.btf, "s", 4, &[("f", 0)]);
            let other = ints(&mut object.btf, "t", 4, &[("f", 0)]);
            load_program(object, "differ", root, 0, 0);
            load_program(object, "agree", other, 0, 0);
            object.program("socket", "size", &[Insn::mov64_imm(0, 4), Insn::exit()]);
            object.core_relo("size", 0, other, "0", 9);
        },
        |btf| {
            ints(btf, "s", 12, &[("f", 4)]);
            ints(btf, "s", 12, &[("f", 8)]);
            ints(btf, "t", 8, &[("f", 4)]);
            ints(btf, "t", 16, &[("f", 4)]);
        },
        |programs| {
            assert!(error(programs, "differ").contains("ambiguous, candidates [2] and [4] differ"));
            assert_eq!(ok(programs, "agree"), load(4), "equal offsets in structs of different size");
            assert!(error(programs, "size").contains("ambiguous, candidates [6] and [8] differ"));
        },
    );
}

#[test]
fn a_missing_enumerator_exists_not_and_has_no_value() {
    relocated(
        "a missing enumerator",
        |object| {
            let root = object.btf.enum_("e", 4, false, &[("A___mine", 1), ("GONE", 2)]);
            let exists = [Insn::mov64_imm(1, 1), Insn::mov64_imm(2, 1), Insn::exit()];
            object.program("socket", "exists", &exists);
            object.core_relo("exists", 0, root, "0", 10).core_relo("exists", 1, root, "1", 10);
            let mut value = Insn::ld_imm64(1, 0, 1).to_vec();
            value.extend(Insn::ld_imm64(2, 0, 2));
            value.push(Insn::exit());
            object.program("socket", "value", &value);
            object.core_relo("value", 0, root, "0", 11).core_relo("value", 2, root, "1", 11);
        },
        |btf| {
            btf.enum_("e", 4, false, &[("B", 5), ("A___theirs", 7)]);
        },
        |programs| {
            assert_eq!(ok(programs, "exists")[..2], [Insn::mov64_imm(1, 1), Insn::mov64_imm(2, 0)]);
            let value = ok(programs, "value");
            assert_eq!(value[..2], Insn::ld_imm64(1, 0, 7));
            assert!(is_poison(&value[2]) && is_poison(&value[3]) && value.len() == 5);
        },
    );
}

#[test]
fn malformed_access_strings_are_refused_where_they_go_wrong() {
    let long = ["0"; 65].join(":");
    let rows: [(&str, SpecError); 7] = [
        ("-1", SpecError::BadAccessString { at: 0 }),
        ("0:-1", SpecError::BadAccessString { at: 2 }),
        ("0:4294967296", SpecError::BadAccessString { at: 11 }),
        ("0::1", SpecError::BadAccessString { at: 2 }),
        ("0:1:", SpecError::BadAccessString { at: 4 }),
        ("", SpecError::BadAccessString { at: 0 }),
        (&long, SpecError::TooManySteps),
    ];
    for (access, wanted) in rows {
        for endian in Endian::BOTH {
            let (mut object, mut btf) = (ObjectBuilder::new(endian), BtfBuilder::new(endian));
            // Nested deeply enough for the long one, and a second program that is sound.
            let (int, mut inner) = (int(&mut object.btf), 0);
            for depth in 0..70 {
                inner = object.btf.struct_("", 4, &[Member::at("x", if depth == 0 { int } else { inner }, 0)]);
            }
            let root = object.btf.struct_("s", 8, &[Member::at("x", inner, 0), Member::at("f", int, 4)]);
            object.program("socket", "bad", &load(0));
            object.core_relo("bad", 0, root, access, 0);
            load_program(&mut object, "good", root, 1, 4);
            ints(&mut btf, "s", 16, &[("f", 12)]);
            let (object, target) = (object.build(), btf.build());
            let (programs, _, _) = exact::exactly(access, &object, Some(&target), Options::default());
            assert!(
                programs[0].1.as_ref().is_err_and(|error| error.contains("access does not fit")),
                "{access:?}: {programs:?}"
            );
            assert_eq!(decode(programs[1].1.as_ref().expect("good"), endian), load(12), "{access:?}");
            let mut buffer = vec![0u8; 1 << 16];
            let mut arena = Arena::new(&mut buffer);
            let parsed = Object::parse(&object).expect("a built object");
            let prepared = prepare(&parsed, Some(&target), Options::default(), &mut arena).expect("it prepares");
            let bad = prepared.relocations().next().expect("two relocations");
            assert_eq!(bad.decision.verdict(), Verdict::BadSpec);
            let said = prepared.decisions().spec_error(prepared.local().expect("BTF"), bad.decision);
            match (said, wanted) {
                // 70 levels of one member each: the 65th step is one too many wherever it leads.
                (Err(said), wanted) => assert_eq!(said, wanted, "{access:?}"),
                (Ok(()), _) => panic!("{access:?} is taken"),
            }
        }
    }
}

#[test]
fn an_unknown_kind_poisons_its_instruction_alone() {
    relocated(
        "an unknown kind",
        |object| {
            let root = ints(&mut object.btf, "s", 4, &[("f", 0)]);
            object.program(
                "socket",
                "prog",
                &[Insn::ldx(Width::W, 0, 1, 0), Insn::ldx(Width::W, 2, 1, 0), Insn::exit()],
            );
            object.core_relo("prog", 0, root, "0:0", 13).core_relo("prog", 1, root, "0:0", 0);
        },
        |btf| {
            ints(btf, "s", 12, &[("f", 8)]);
        },
        |programs| {
            let insns = ok(programs, "prog");
            assert!(is_poison(&insns[0]));
            assert_eq!(insns[1], Insn::ldx(Width::W, 2, 1, 8));
        },
    );
}

#[test]
fn a_kernel_of_32_bits_has_pointers_of_4_bytes() {
    let object = |object: &mut ObjectBuilder| {
        let long = object.btf.int("long", 8, IntEncoding::Signed);
        let ulong = object.btf.int("unsigned long", 8, IntEncoding::Unsigned);
        let ptr = object.btf.ptr(0);
        let members = [Member::at("p", ptr, 0), Member::at("u", ulong, 8), Member::at("l", long, 16)];
        let root = object.btf.struct_("s", 24, &members);
        let loads = [0, 8, 16].map(|off| Insn::ldx(Width::Dw, 0, 1, off));
        object.program("socket", "prog", &[loads[0], loads[1], loads[2], Insn::mov64_imm(0, 24), Insn::exit()]);
        for member in 0..3 {
            object.core_relo("prog", member, root, &format!("0:{member}"), 0);
        }
        object.core_relo("prog", 3, root, "0", 9);
    };
    relocated(
        "a kernel of 32 bits",
        object,
        |btf| {
            let ulong = btf.int("long unsigned int", 4, IntEncoding::Unsigned);
            let long = btf.int("long int", 4, IntEncoding::Signed);
            let ptr = btf.ptr(0);
            let array = btf.array(ptr, ulong, 3);
            let members = [
                Member::at("more", array, 0),
                Member::at("p", ptr, 12),
                Member::at("u", ulong, 16),
                Member::at("l", long, 20),
            ];
            btf.struct_("s", 24, &members);
        },
        |programs| {
            let insns = ok(programs, "prog");
            assert_eq!(insns[0], Insn::ldx(Width::W, 0, 1, 12), "a pointer");
            assert_eq!(insns[1], Insn::ldx(Width::W, 0, 1, 16), "unsigned");
            assert!(is_poison(&insns[2]), "a signed field of another size");
            assert_eq!(insns[3], Insn::mov64_imm(0, 24));
        },
    );
}

#[test]
fn bitfields_follow_the_member_and_the_byte_order() {
    for endian in Endian::BOTH {
        let f = fixture("core_bitfields", endian);
        let (object, target) = (f.read(), f.read_target().expect("a target"));
        exact::exactly("bitfields", &object, Some(&target), Options::default());
        let mut buffer = vec![0u8; 1 << 18];
        let mut arena = Arena::new(&mut buffer);
        let parsed = Object::parse(&object).expect("a fixture");
        let prepared = prepare(&parsed, Some(&target), Options::default(), &mut arena).expect("a fixture");
        let value = |program: &str, kind: u32| {
            let found = prepared.relocations().find(|relocation| {
                relocation.relo.kind.number() == kind
                    && relocation
                        .function
                        .and_then(|id| prepared.declared().function(id))
                        .is_some_and(|function| prepared.function_name(function) == program.as_bytes())
            });
            found.unwrap_or_else(|| panic!("{program}: no kind {kind}")).decision.target_value()
        };
        // Sign of the member's own type: a signed int, an enum by its kind_flag, a plain one that becomes a bitfield.
        assert_eq!(
            ["bit_sign", "bit_signed_enum", "splain_becomes_bit", "bit_enum", "bit_flag"].map(|p| value(p, 3)),
            [1, 1, 1, 0, 0]
        );
        // 20 bits from bit 32 on: a load of 4 bytes; 45 bits from bit 74 on: one of 8.
        assert_eq!((value("bit_straddle", 0), value("bit_straddle", 1)), (4, 4));
        assert_eq!((value("bit_wide", 0), value("bit_wide", 1), value("bit_wide", 5)), (8, 8, 19));
        let lshift = if endian == Endian::Little { 64 - (10 + 45) } else { 10 };
        assert_eq!(value("bit_wide", 4), lshift);
        assert_eq!(
            (value("bit_becomes_plain", 0), value("bit_becomes_plain", 5)),
            (20, 32),
            "a bitfield here, plain there"
        );
        assert_eq!((value("plain_becomes_bit", 0), value("plain_becomes_bit", 5)), (24, 53), "and the reverse");
    }
}

#[test]
fn values_of_64_bits_keep_their_upper_half() {
    relocated(
        "values of 64 bits",
        |object| {
            let wide = object.btf.enum64("wide", false, &[("W", 0x1234_5678_9abc_def0)]);
            let signed = object.btf.enum_("signed", 4, true, &[("S", -1)]);
            let unsigned = object.btf.enum_("unsigned", 4, false, &[("U", -1)]);
            let mut insns = Vec::new();
            for value in [0x1234_5678_9abc_def0, u64::MAX, 0xffff_ffff] {
                insns.extend(Insn::ld_imm64(1, 0, value));
            }
            insns.push(Insn::mov64_imm(1, -1));
            insns.push(Insn::exit());
            object.program("socket", "prog", &insns);
            for (slot, root) in [(0, wide), (2, signed), (4, unsigned), (6, signed)] {
                object.core_relo("prog", slot, root, "0", 11);
            }
            object.program("socket", "too_big", &[Insn::mov64_imm(1, -1), Insn::exit()]);
            let again = object.btf.enum_("again", 4, true, &[("T", -1)]);
            object.core_relo("too_big", 0, again, "0", 11);
        },
        |btf| {
            btf.enum64("wide", false, &[("W", 0x8000_0001_8000_0002)]);
            btf.enum_("signed", 4, true, &[("S", -2)]);
            btf.enum_("unsigned", 4, false, &[("U", -2)]);
            btf.enum64("again", true, &[("T", 0x8000_0000)]);
        },
        |programs| {
            let insns = ok(programs, "prog");
            assert_eq!(insns[0..2], Insn::ld_imm64(1, 0, 0x8000_0001_8000_0002));
            assert_eq!(insns[2..4], Insn::ld_imm64(1, 0, (-2i64).cast_unsigned()));
            assert_eq!(insns[4..6], Insn::ld_imm64(1, 0, 0xffff_fffe));
            assert_eq!(insns[6], Insn::mov64_imm(1, -2));
            assert!(
                error(programs, "too_big").contains("0x80000000 is not the sign extension"),
                "{}",
                error(programs, "too_big")
            );
        },
    );
}

#[test]
fn poisoning_a_two_slot_instruction_moves_no_jump() {
    relocated(
        "a poisoned two-slot instruction",
        |object| {
            let root = object.btf.enum_("e", 4, false, &[("GONE", 1)]);
            let mut insns = vec![Insn::new(0x15, 1, 0, 3, 0)];
            insns.extend(Insn::ld_imm64(2, 0, 1));
            insns.extend([Insn::mov64_imm(0, 1), Insn::mov64_imm(0, 2), Insn::exit()]);
            object.program("socket", "prog", &insns);
            object.core_relo("prog", 1, root, "0", 11);
        },
        |btf| {
            btf.enum_("e", 4, false, &[("OTHER", 1)]);
        },
        |programs| {
            let insns = ok(programs, "prog");
            assert_eq!(insns.len(), 6);
            assert!(is_poison(&insns[1]) && is_poison(&insns[2]));
            assert_eq!(insns[0], Insn::new(0x15, 1, 0, 3, 0));
            assert_eq!(insns[3..], [Insn::mov64_imm(0, 1), Insn::mov64_imm(0, 2), Insn::exit()]);
        },
    );
}

#[test]
fn relocations_in_functions_are_found_by_place() {
    // Two programs of two sections share a function; another, of a type that is missing, is called by nobody. Offsets repeat in
    // each section, and one program has the name of the other's section.
    relocated(
        "relocations in functions",
        |object| {
            let root = ints(&mut object.btf, "s", 8, &[("f", 0), ("g", 4)]);
            let missing = ints(&mut object.btf, "missing", 4, &[("f", 0)]);
            object.function(".text", "shared", Bind::Local, true, &load(0));
            object.core_relo("shared", 0, root, "0:0", 0);
            object.function(".text", "never_called", Bind::Local, true, &load(0));
            object.core_relo("never_called", 0, missing, "0:0", 0);
            for (section, name) in [("socket", "tc"), ("tc", "socket_too")] {
                object.program(section, name, &[Insn::ldx(Width::W, 6, 1, 4), Insn::call_bpf(-1), Insn::exit()]);
                object.core_relo(name, 0, root, "0:1", 0);
                object.call_symbol(name, 1, "shared");
            }
        },
        |btf| {
            ints(btf, "s", 32, &[("f", 16), ("g", 24)]);
        },
        |programs| {
            for name in ["tc", "socket_too"] {
                let wanted = [Insn::ldx(Width::W, 6, 1, 24), Insn::call_bpf(1), Insn::exit(), load(16)[0], load(16)[1]];
                assert_eq!(ok(programs, name), wanted, "{name}");
            }
        },
    );
    for endian in Endian::BOTH {
        let f = fixture("core_subprogs", endian);
        let (programs, _, _) =
            exact::exactly("core_subprogs", &f.read(), f.read_target().as_deref(), Options::default());
        assert!(programs.len() >= 7 && programs.iter().all(|program| program.1.is_ok()), "{programs:?}");
    }
}

#[test]
fn local_type_ids_stay_as_they_are() {
    relocated(
        "local type ids",
        |object| {
            for n in 0..9 {
                object.btf.int(&format!("filler{n}"), 4, IntEncoding::Unsigned);
            }
            let root = ints(&mut object.btf, "s", 4, &[("f", 0)]);
            object.program("socket", "prog", &[Insn::mov64_imm(1, 7), Insn::mov64_imm(2, 7), Insn::exit()]);
            object.core_relo("prog", 0, root, "0", 6).core_relo("prog", 1, root, "0", 7);
            assert_eq!(root, 11);
        },
        |btf| {
            ints(btf, "s", 4, &[("f", 0)]);
        },
        |programs| assert_eq!(ok(programs, "prog")[..2], [Insn::mov64_imm(1, 11), Insn::mov64_imm(2, 2)]),
    );
}

#[test]
fn prototypes_are_told_apart_by_their_arguments() {
    relocated(
        "prototypes",
        |object| {
            let int = int(&mut object.btf);
            let two = object.btf.func_proto(0, &[("a", int), ("b", int)]);
            let two = object.btf.ptr(two);
            let two = object.btf.typedef("btf_trace_x___two", two);
            let three = object.btf.func_proto(0, &[("a", int), ("b", int), ("c", int)]);
            let three = object.btf.ptr(three);
            let three = object.btf.typedef("btf_trace_x___three", three);
            object.program("socket", "prog", &[Insn::mov64_imm(1, 1), Insn::mov64_imm(2, 1), Insn::exit()]);
            object.core_relo("prog", 0, two, "0", 12).core_relo("prog", 1, three, "0", 12);
        },
        |btf| {
            let int = int(btf);
            let proto = btf.func_proto(0, &[("", int), ("", int), ("", int)]);
            let ptr = btf.ptr(proto);
            btf.typedef("btf_trace_x", ptr);
        },
        |programs| assert_eq!(ok(programs, "prog")[..2], [Insn::mov64_imm(1, 0), Insn::mov64_imm(2, 1)]),
    );
}

#[test]
fn modules_are_searched_for_what_vmlinux_does_not_have() {
    for endian in Endian::BOTH {
        let mut object = ObjectBuilder::new(endian);
        let in_module = ints(&mut object.btf, "m", 4, &[("f", 0)]);
        let in_both = ints(&mut object.btf, "v", 4, &[("f", 0)]);
        load_program(&mut object, "module", in_module, 0, 0);
        load_program(&mut object, "both", in_both, 0, 0);
        let object = object.build();
        let mut vmlinux = BtfBuilder::new(endian);
        ints(&mut vmlinux, "v", 12, &[("f", 8)]);
        let mut module = vmlinux.split_on();
        let wanted = module.struct_("m", 24, &[Member::at("f", 1, 20)]);
        module.struct_("v", 24, &[Member::at("f", 1, 16)]);
        let (vmlinux_blob, module) = (vmlinux.build(), module.build());
        let empty = vmlinux.split_on().build();

        let link = |size: usize| -> Result<(Vec<Vec<Insn>>, usize), PrepareError> {
            let mut words = vec![0u64; size.div_ceil(8)];
            let mut arena = Arena::new(&mut zerocopy::IntoBytes::as_mut_bytes(words.as_mut_slice())[..size]);
            let parsed = Object::parse(&object).expect("a built object");
            let plan = Plan::new(&parsed, Options::default(), &mut arena)?;
            let mut search = plan.search(Btf::parse(&vmlinux_blob).expect("built"), &mut arena)?;
            assert!(search.wants_modules());
            let blobs: [&[u8]; 5] = [b"", &module[..24], &empty, &module, b"no BTF at all"];
            for look in 0..2 {
                for (number, blob) in (1..).zip(blobs) {
                    let seen = match look {
                        0 => search.weigh_module(blob, None, number, &mut arena),
                        _ => search.search_module(blob, None, number, &mut arena),
                    };
                    match seen {
                        Err(PrepareError::Arena(full)) => return Err(full.into()),
                        // An unreadable one is left out by the caller, with a note.
                        Err(error) => assert!(matches!(number, 1 | 2 | 5), "module {number}: {error}"),
                        Ok(()) => assert!(matches!(number, 3 | 4), "module {number} is not readable"),
                    }
                }
            }
            let prepared = search.finish();
            let mut programs = Vec::new();
            for (number, _) in prepared.declared().programs() {
                let mut scratch = arena.scratch();
                let linked = prepared.program(number, &mut scratch).map_err(|error| match error.cause {
                    corelo_core::link::LinkCause::Arena(full) => PrepareError::from(full),
                    cause => panic!("{cause}"),
                })?;
                programs.push(decode(zerocopy::IntoBytes::as_bytes(&*linked.insns), endian));
            }
            let targets: Vec<_> = prepared.decisions().list().iter().map(|decision| decision.target()).collect();
            let target = |id, btf| Some(TargetType { id: TypeId(id), btf });
            assert_eq!(targets, [target(wanted, 4), target(2, 0)], "the id, and whose BTF it is in");
            Ok((programs, arena.high_water()))
        };
        let (programs, high_water) = link(1 << 16).expect("room to spare");
        assert_eq!(programs, [load(20), load(8)], "vmlinux first");
        assert_eq!(link(high_water).expect("exactly enough"), (programs, high_water));
        assert!(matches!(link(high_water - 1), Err(PrepareError::Arena(_))), "one byte too few");
    }
}

#[test]
fn the_shapes_of_2026_are_read() {
    let object = |object: &mut ObjectBuilder| {
        let root = ints(&mut object.btf, "s", 8, &[("f", 0), ("odd", 4)]);
        let large = ints(&mut object.btf, "large", 4, &[("m69999", 0)]);
        object.program(
            "socket",
            "prog",
            &[Insn::ldx(Width::W, 2, 1, 0), Insn::ldx(Width::W, 2, 1, 4), Insn::mov64_imm(3, 0), Insn::exit()],
        );
        object
            .core_relo("prog", 0, root, "0:0", 0)
            .core_relo("prog", 1, root, "0:1", 0)
            .core_relo("prog", 2, large, "0:0", 0);
    };
    let types = |btf: &mut BtfBuilder| {
        btf.wide_info();
        let mut rows = KindLayout::known();
        rows.resize(101, KindLayout::default());
        rows[100] = KindLayout::new(8, 4);
        btf.layout(rows);
        let int = int(btf);
        let unknown = btf.raw(100, "beyond", 3, true, 0, &[1, 2, 3, 4, 5]);
        btf.decl_tag("attr", int, -1, true);
        let tagged = btf.type_tag("attr", int, true);
        btf.struct_("s", 32, &[Member::at("odd", unknown, 0), Member::at("f", tagged, 24)]);
        let names: Vec<String> = (0..70_000).map(|n| format!("m{n}")).collect();
        let members: Vec<Member<'_>> = names.iter().zip(0..).map(|(name, n)| Member::at(name, int, n * 4)).collect();
        btf.struct_("large", 280_000, &members);
    };
    let check = |programs: &[(String, Result<Vec<Insn>, String>)]| {
        let insns = ok(programs, "prog");
        assert_eq!(insns[0], Insn::ldx(Width::W, 2, 1, 24), "through a type tag with kind_flag");
        assert!(is_poison(&insns[1]), "what reaches an unknown kind");
        assert_eq!(insns[2], Insn::mov64_imm(3, 4 * 69_999), "the last of 70,000 members");
    };
    relocated("the shapes of 2026", object, types, check);
    relocated(
        "the shapes of 2026, a header of 40 bytes",
        object,
        |btf| {
            types(btf);
            btf.header_tail(&[0; 8]);
        },
        check,
    );

    // Without a layout section: a clear error. A longer header with something in it: refused.
    let mut btf = BtfBuilder::new(Endian::Little);
    btf.wide_info();
    int(&mut btf);
    btf.raw(100, "beyond", 0, false, 0, &[]);
    let blob = btf.build();
    let mut buffer = vec![0u8; 4096];
    let indexed = Types::index(
        Btf::parse(&blob).expect("the header is sound"),
        8,
        None,
        &mut Arena::new(&mut buffer),
        Part::LocalIndex,
    );
    let error = indexed.expect_err("no layout");
    assert_eq!(error, BtfError::UnknownKind { id: TypeId(2), offset: 16, kind: 100 });
    assert!(error.to_string().contains('2') && error.to_string().contains("100"), "{error}");
    let mut btf = BtfBuilder::new(Endian::Little);
    int(&mut btf);
    btf.header_tail(&[0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(Btf::parse(&btf.build()).expect_err("not known"), BtfError::UnknownHeaderField { offset: 37 });
}

/// Prepares and links all of it, whatever comes: an error is as good as a result.
fn survive(name: &str, object: &[u8], target: Option<&[u8]>) -> String {
    match exact::run(object, target, Options::default(), 1 << 20) {
        exact::Run::Done(programs, _) => programs.iter().fold(String::new(), |mut said, (_, linked)| {
            if let Err(error) = linked {
                write!(said, "{error}; ").expect("a string takes all");
            }
            said
        }),
        exact::Run::Full(full) => panic!("{name}: {full}"),
        exact::Run::Failed(error) => error,
    }
}

#[test]
fn hostile_numbers_are_refused_or_harmless() {
    let sound = |object: &mut ObjectBuilder| {
        let root = ints(&mut object.btf, "s", 8, &[("f", 0)]);
        load_program(object, "prog", root, 0, 0);
    };
    let mut plain = BtfBuilder::new(Endian::Little);
    ints(&mut plain, "s", 12, &[("f", 8)]);
    let target = plain.build();
    // Rings of types, in the object and in the kernel.
    let rings: [fn(&mut BtfBuilder) -> u32; 5] = [
        |b| {
            let id = b.next_id();
            b.typedef("s", id)
        },
        |b| {
            let first = b.next_id();
            b.const_(first + 1);
            b.const_(first);
            b.typedef("s", first)
        },
        |b| {
            let id = b.next_id();
            b.struct_("s", 8, &[Member::at("f", id, 0), Member::at("", id, 0)])
        },
        |b| {
            let id = b.next_id();
            b.array(id, id, 4);
            b.struct_("s", 8, &[Member::at("f", id, 0)])
        },
        |b| {
            let id = b.next_id();
            b.ptr(id);
            b.struct_("s", 8, &[Member::at("f", id, 0)])
        },
    ];
    for (number, ring) in rings.into_iter().enumerate() {
        for kind in [0, 1, 2, 3, 8, 9, 12] {
            let access = if kind >= 8 { "0" } else { "0:0" };
            let mut object = ObjectBuilder::new(Endian::Little);
            let root = ring(&mut object.btf);
            object.program("socket", "prog", &load(0));
            object.core_relo("prog", 0, root, access, kind);
            let mut btf = BtfBuilder::new(Endian::Little);
            ring(&mut btf);
            survive(&format!("ring {number} here and there"), &object.build(), Some(&btf.build()));
            survive(&format!("ring {number} here"), &object.build(), Some(&target));
            let mut object = ObjectBuilder::new(Endian::Little);
            sound(&mut object);
            survive(&format!("ring {number} there"), &object.build(), Some(&btf.build()));
        }
    }
    // A size that wraps: an array of 2^31 elements of 2^31 elements.
    let mut object = ObjectBuilder::new(Endian::Little);
    let int = int(&mut object.btf);
    let inner = object.btf.array(int, int, 1 << 31);
    let outer = object.btf.array(inner, int, 1 << 31);
    let root = object.btf.struct_("s", u32::MAX, &[Member::at("f", outer, u32::MAX / 8)]);
    object.program("socket", "prog", &load(0));
    object.core_relo("prog", 0, root, "2147483647:0:2147483647", 0);
    assert!(survive("sizes that wrap", &object.build(), Some(&target)).contains("does not fit"));
    // A 64-bit load in the last slot, with a relocation.
    let mut object = ObjectBuilder::new(Endian::Little);
    let root = ints(&mut object.btf, "s", 8, &[("f", 0)]);
    object.map_def(MapDef { name: "m", map_type: 2, key_size: 4, value_size: 4, max_entries: 1 });
    object.program("socket", "prog", &[Insn::ld_imm64(1, 0, 0)[0]]);
    object.load_symbol("prog", 0, "m");
    assert!(survive("half a load", &object.build(), None).contains("64-bit load has no second half"));
    object.core_relo("prog", 0, root, "0", 6);
    assert!(!survive("half a load, relocated", &object.build(), Some(&target)).is_empty());

    // Every word of the file that is a number somewhere, made large or odd: headers, sections, symbols, records.
    let mut object = ObjectBuilder::new(Endian::Little);
    sound(&mut object);
    object.map_def(MapDef { name: "m", map_type: 2, key_size: 4, value_size: 4, max_entries: 1 });
    object.function(".text", "sub", Bind::Local, true, &load(0));
    object.program("socket", "second", &[Insn::call_bpf(-1), Insn::exit()]);
    object.call_symbol("second", 0, "sub");
    let object = object.build();
    let mut outcomes = std::collections::BTreeMap::new();
    for at in (0..object.len().saturating_sub(8)).step_by(2) {
        for word in [0u64, 1, 0x7fff_ffff, 0xffff_ffff, u64::MAX, u64::MAX - 7, 1 << 63] {
            let mut bytes = object.clone();
            let len = if word > u64::from(u32::MAX) { 8 } else { 4 };
            bytes[at..at + len].copy_from_slice(&word.to_le_bytes()[..len]);
            *outcomes
                .entry(survive(&format!("object {at} {word:#x}"), &bytes, Some(&target)).is_empty())
                .or_insert(0u32) += 1;
        }
    }
    for at in 0..target.len() - 4 {
        for word in [0u32, 1, 0x7fff_ffff, u32::MAX, u32::MAX - 23] {
            let mut bytes = target.clone();
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            *outcomes
                .entry(survive(&format!("target {at} {word:#x}"), &object, Some(&bytes)).is_empty())
                .or_insert(0u32) += 1;
        }
    }
    println!("words made odd: {} went well, {} were refused", outcomes[&true], outcomes[&false]);
    assert!(outcomes[&false] > 1000);
}

#[test]
fn objects_with_half_of_their_btf_are_read_as_far_as_they_go() {
    for endian in Endian::BOTH {
        for (name, wanted) in
            [("no_btf_ext", None), ("btf_ext_no_btf", Some("-g")), ("maps_no_btf", Some("-g")), ("no_btf", None)]
        {
            let said = survive(name, &fixture(name, endian).read(), None);
            match wanted {
                None => assert_eq!(said, "", "{name}"),
                Some(word) => assert!(said.contains(word), "{name}: {said}"),
            }
        }
    }
    // Built ones, where only the records are missing or dropped.
    for (btf, ext) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut object = ObjectBuilder::new(Endian::Little);
        let root = ints(&mut object.btf, "s", 4, &[("f", 0)]);
        load_program(&mut object, "prog", root, 0, 0);
        object.keep(btf, ext);
        let mut target = BtfBuilder::new(Endian::Little);
        ints(&mut target, "s", 12, &[("f", 8)]);
        let (programs, _, _) =
            exact::exactly("half of the BTF", &object.build(), Some(&target.build()), Options::default());
        let wanted = if btf && ext { load(8) } else { load(0) };
        assert_eq!(decode(programs[0].1.as_ref().expect("it links"), Endian::Little), wanted, "btf {btf}, ext {ext}");
    }
    // .BTF.ext whose header stops before core_relo.
    let mut object = ObjectBuilder::new(Endian::Little);
    let root = ints(&mut object.btf, "s", 4, &[("f", 0)]);
    load_program(&mut object, "prog", root, 0, 0);
    object.btf_ext_sizes(24, 8, 16, 16);
    assert_eq!(survive("a short .BTF.ext", &object.build(), None), "");
    // Records larger than we know.
    let mut object = ObjectBuilder::new(Endian::Little);
    let root = ints(&mut object.btf, "s", 4, &[("f", 0)]);
    load_program(&mut object, "prog", root, 0, 0);
    object.btf_ext_sizes(40, 16, 32, 24);
    let mut target = BtfBuilder::new(Endian::Little);
    ints(&mut target, "s", 12, &[("f", 8)]);
    let (programs, _, _) = exact::exactly("large records", &object.build(), Some(&target.build()), Options::default());
    assert_eq!(decode(programs[0].1.as_ref().expect("it links"), Endian::Little), load(8));
}

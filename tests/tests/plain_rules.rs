//! Rules that small wrong changes broke unnoticed, or that only random objects had shown: one plain test each.

mod exact;

use corelo_core::btf::ext::{BtfExt, ExtError};
use corelo_core::prepare::Options;
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding, Member};
use corelo_tests::btf_ext_builder::BtfExtBuilder;
use corelo_tests::endian::Endian;
use corelo_tests::insn::{Insn, Width, decode};
use corelo_tests::object_builder::ObjectBuilder;

/// What becomes of the one program of an object, in both byte orders.
fn linked(
    object: impl Fn(&mut ObjectBuilder),
    target: impl Fn(&mut BtfBuilder),
    check: impl Fn(Result<Vec<Insn>, String>),
) {
    for endian in Endian::BOTH {
        let (mut builder, mut btf) = (ObjectBuilder::new(endian), BtfBuilder::new(endian));
        object(&mut builder);
        target(&mut btf);
        let (mut programs, _, _) =
            exact::exactly("a plain rule", &builder.build(), Some(&btf.build()), Options::default());
        check(programs.remove(0).1.map(|bytes| decode(&bytes, endian)));
    }
}

fn int(btf: &mut BtfBuilder) -> u32 {
    btf.int("int", 4, IntEncoding::Signed)
}

fn load(off: i16) -> [Insn; 2] {
    [Insn::ldx(Width::W, 0, 1, off), Insn::exit()]
}

/// A program that loads member `f` at 0 of the local `struct s`.
fn loads_f(object: &mut ObjectBuilder) {
    let int = int(&mut object.btf);
    let root = object.btf.struct_("s", 4, &[Member::at("f", int, 0)]);
    object.program("socket", "program", &load(0));
    object.core_relo("program", 0, root, "0:0", 0);
}

#[test]
fn a_64_bit_load_whose_offset_is_not_zero_is_not_relocated() {
    for (first, second) in [(0, 0), (1, 0), (0, 1), (-1, 0)] {
        linked(
            |object| {
                let root = object.btf.enum_("e", 4, false, &[("A", 1)]);
                let mut insns = Insn::ld_imm64(1, 0, 1);
                (insns[0].off, insns[1].off) = (first, second);
                object.program("socket", "program", &[insns[0], insns[1], Insn::exit()]);
                object.core_relo("program", 0, root, "0", 11);
            },
            |btf| {
                btf.enum_("e", 4, false, &[("A", 5)]);
            },
            |linked| match linked {
                Ok(insns) => {
                    assert_eq!((first, second), (0, 0));
                    assert_eq!(insns[..2], Insn::ld_imm64(1, 0, 5));
                }
                Err(said) => {
                    assert_ne!((first, second), (0, 0));
                    assert!(said.contains("64-bit load has an unexpected form"), "{said}");
                }
            },
        );
    }
}

#[test]
fn a_path_through_the_target_has_at_most_64_steps() {
    // The index on the root and the member itself are two, each anonymous struct between them is one.
    for anonymous in [61, 62, 63, 64] {
        linked(
            loads_f,
            |btf| {
                let int = int(btf);
                let mut at = btf.struct_("", 8, &[Member::at("g", int, 0), Member::at("f", int, 4)]);
                for _ in 1..anonymous {
                    at = btf.struct_("", 8, &[Member::at("", at, 0)]);
                }
                btf.struct_("s", 8, &[Member::at("", at, 0)]);
            },
            |linked| match linked {
                Ok(insns) => {
                    assert!(anonymous <= 62, "{anonymous}");
                    assert_eq!(insns, load(4));
                }
                Err(said) => {
                    assert!(anonymous > 62, "{anonymous}: {said}");
                    assert!(said.contains("more than 64 steps"), "{said}");
                }
            },
        );
    }
}

#[test]
fn records_are_whole_words() {
    for endian in Endian::BOTH {
        for (func, line, core) in [(10, 16, 16), (8, 18, 16), (8, 16, 17), (8, 16, 18), (8, 16, 19)] {
            let mut object = ObjectBuilder::new(endian);
            loads_f(&mut object);
            object.btf_ext_sizes(32, func, line, core);
            let file = object.build();
            let ext = corelo_tests::elf_reader::section_data(&file, ".BTF.ext").unwrap();
            let endian = match endian {
                Endian::Little => corelo_core::bytes::Endian::Little,
                Endian::Big => corelo_core::bytes::Endian::Big,
            };
            let found = BtfExt::parse(ext, endian).map(|_| ());
            if (func, line, core) == (8, 18, 16) {
                // There are no lines, whose list may then say anything.
                assert_eq!(found, Ok(()));
                continue;
            }
            assert!(matches!(found, Err(ExtError::BadRecordSize { found: 10 | 17..=19, .. })), "{core}: {found:?}");
        }
    }
}

#[test]
fn a_section_of_records_has_some() {
    for endian in Endian::BOTH {
        let order = match endian {
            Endian::Little => corelo_core::bytes::Endian::Little,
            Endian::Big => corelo_core::bytes::Endian::Big,
        };
        let record =
            corelo_tests::btf_ext_builder::CoreReloRecord { insn_off: 0, type_id: 1, access_str_off: 1, kind: 0 };
        let parse = |fill: &dyn Fn(&mut BtfExtBuilder)| {
            let mut ext = BtfExtBuilder::new(endian);
            fill(&mut ext);
            BtfExt::parse(&ext.build(), order).map(|ext| ext.core_relos.count())
        };
        assert_eq!(parse(&|ext| _ = ext.core_relo(1, &[record])), Ok(1));
        let empty = [
            parse(&|ext| _ = ext.core_relo(1, &[])),
            parse(&|ext| _ = ext.core_relo(1, &[record]).core_relo(1, &[])),
            parse(&|ext| _ = ext.func_info(1, &[])),
            parse(&|ext| _ = ext.line_info(1, &[])),
        ];
        for found in empty {
            assert!(matches!(found, Err(ExtError::Truncated { .. })), "{found:?}");
        }
    }
}

#[test]
fn a_candidate_at_fault_beside_one_that_matches_ends_the_relocation() {
    linked(
        loads_f,
        |btf| {
            let int = int(btf);
            btf.struct_("s", 8, &[Member::at("f", int, 4)]);
            // The other has its member behind more steps than are taken.
            let mut at = btf.struct_("", 8, &[Member::at("f", int, 4)]);
            for _ in 0..70 {
                at = btf.struct_("", 8, &[Member::at("", at, 0)]);
            }
            btf.struct_("s", 8, &[Member::at("", at, 0)]);
        },
        |linked| {
            let said = linked.expect_err("not the one that matches alone");
            assert!(said.contains("candidate [74]") && said.contains("64 steps"), "{said}");
        },
    );
}

#[test]
fn of_a_member_name_twice_the_compatible_one_counts_from_the_start() {
    linked(
        loads_f,
        |btf| {
            let int = int(btf);
            let other = btf.struct_("other", 8, &[]);
            let first = btf.struct_("", 8, &[Member::at("f", other, 0)]);
            btf.struct_("s", 24, &[Member::at("", first, 8), Member::at("f", int, 20)]);
        },
        |linked| assert_eq!(linked, Ok(load(20).to_vec())),
    );
}

#[test]
fn thirty_one_typedefs_in_a_row_are_followed() {
    for typedefs in [31, 32] {
        linked(
            loads_f,
            |btf| {
                let mut at = int(btf);
                for number in 0..typedefs {
                    at = btf.typedef(&format!("t{number}"), at);
                }
                btf.struct_("s", 8, &[Member::at("f", at, 4)]);
            },
            |linked| match (typedefs, linked) {
                (31, Ok(insns)) => assert_eq!(insns, load(4)),
                (32, Err(said)) => assert!(said.contains("candidate [34]"), "{said}"),
                (typedefs, linked) => panic!("{typedefs}: {linked:?}"),
            },
        );
    }
}

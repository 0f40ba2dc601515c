//! What CO-RE's rules say about our fixtures, written by hand from their sources, beside what we make of them and what libbpf
//! made of them (`fixtures/libbpf.tsv`).
//!
//! Each program is linked against its target BTF and run by an interpreter, so that a value counts only if it came to where the
//! program uses it. Both byte orders.

use std::collections::BTreeMap;

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Prepared, prepare};
use corelo_tests::corpus::workspace_root;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;
use corelo_tests::interp::{Machine, Stop};
use zerocopy::IntoBytes;

/// What a program is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// It runs and stores these.
    Out(&'static [u64]),
    /// As `Out`, behind the two type ids that depend on the compiler's numbering.
    AfterIds(&'static [u64]),
    /// It runs and returns this.
    Returns(u64),
    /// It is not linked, or comes to a poisoned instruction.
    Refused,
}
use Wanted::{AfterIds, Out, Refused, Returns};

/// Byte `i` of the memory that loads read is `i % 251`: four bytes from `i` on, as a little-endian number.
const fn word(i: u64) -> u64 {
    (i % 251) | ((i + 1) % 251) << 8 | ((i + 2) % 251) << 16 | ((i + 3) % 251) << 24
}

/// Offset, size, exists, signed, left shift, right shift (little endian), as the sources count them.
#[rustfmt::skip]
const RULES: &[(&str, &str, Wanted)] = &[
    // a: int at 12. b: u64 at 0. c: char (signed) at 18. d: s16 at 16.
    ("core_fields", "plain_a", Out(&[12, 4, 1, 1, 32, 32])),
    ("core_fields", "plain_b", Out(&[0, 8, 1, 0, 0, 0])),
    ("core_fields", "plain_c", Out(&[18, 1, 1, 1, 56, 56])),
    ("core_fields", "plain_d", Out(&[16, 2, 1, 1, 48, 48])),
    ("core_fields", "size_grows", Out(&[24, 8, 1, 0, 0, 0])),
    ("core_fields", "size_shrinks", Out(&[32, 2, 1, 0, 48, 48])),
    // anon_a: int at 40. u1: int at 12. u2: u64 at 16. in.z: u64 at 24.
    ("core_fields", "nested_anonymous", Out(&[40, 4, 1, 1, 32, 32, 12, 4, 1, 1, 32, 32, 16, 8, 1, 0, 0, 0, 24, 8, 1, 0, 0, 0])),
    ("core_fields", "pointers", Out(&[16, 8, 1, 8, 8, 1, 0, 0])),
    ("core_fields", "typedefs_and_modifiers", Out(&[4, 4, 1, 0, 32, 32, 8, 8, 1])),
    ("core_fields", "union_root", Out(&[0, 4, 1, 0, 32, 32, 3, 1, 1])),
    ("core_fields", "typedef_root", Out(&[24, 4, 1, 1, 32, 32, 20, 4, 1, 1, 32, 32])),
    // Two structs of 56 bytes before: 112 + 12, 112 + 0.
    ("core_fields", "root_index", Out(&[124, 4, 1, 1, 32, 32, 112, 8, 1, 0, 0, 0])),
    ("core_fields", "exists_other_kind", Out(&[0])),
    ("core_fields", "exists_missing_field", Out(&[0])),
    ("core_fields", "exists_missing_type", Out(&[0])),
    ("core_fields", "guarded_missing_field", Returns(7)),
    ("core_fields", "guarded_missing_type", Returns(8)),
    ("core_fields", "load_a", Returns(word(12))),
    ("core_fields", "load_b", Returns(word(0))),
    // A u32 that is a u64 there is loaded whole and cut; a u64 that is a u16 is loaded as two bytes.
    ("core_fields", "load_grows", Returns(word(24))),
    ("core_fields", "load_shrinks", Returns(word(32) & 0xffff)),
    ("core_fields", "load_pointer", Out(&[word(20) << 32 | word(16)])),
    ("core_fields", "load_anonymous", Returns(word(12))),
    ("core_fields", "load_root_index", Returns(word(124))),
    ("core_fields", "live_missing_field", Refused),
    ("core_fields", "live_missing_type", Refused),
    ("core_fields", "live_signed_resized", Refused),
    ("core_fields", "live_other_kind", Refused),
    ("core_fields", "live_missing_offset", Refused),
    ("core_fields", "live_missing_size", Refused),
    ("core_fields", "live_missing_signed", Refused),
    ("core_fields", "live_missing_lshift", Refused),
    ("core_fields", "live_missing_rshift", Refused),
    // first: 3 bits at 6. 64 - (6 + 3), 64 - 3.
    ("core_bitfields", "bit_first", Out(&[0, 4, 1, 0, 55, 61])),
    ("core_bitfields", "bit_middle", Out(&[0, 4, 1, 0, 41, 57])),
    ("core_bitfields", "bit_sign", Out(&[0, 4, 1, 1, 48, 57])),
    ("core_bitfields", "bit_straddle", Out(&[4, 4, 1, 0, 44, 44])),
    // wide: 45 bits at 74, of a u64 at byte 8: 64 - (10 + 45), 64 - 45.
    ("core_bitfields", "bit_wide", Out(&[8, 8, 1, 0, 9, 19])),
    ("core_bitfields", "bit_flag", Out(&[16, 1, 1, 0, 56, 63])),
    ("core_bitfields", "bit_enum", Out(&[16, 4, 1, 0, 57, 60])),
    ("core_bitfields", "bit_signed_enum", Out(&[16, 4, 1, 1, 61, 61])),
    ("core_bitfields", "bit_becomes_plain", Out(&[20, 4, 1, 0, 32, 32])),
    ("core_bitfields", "plain_becomes_bit", Out(&[24, 4, 1, 0, 53, 53])),
    ("core_bitfields", "splain_becomes_bit", Out(&[24, 4, 1, 1, 41, 52])),
    ("core_bitfields", "bit_missing", Out(&[0])),
    // Read as programs do it: word(0) = 0x03020100, bits 6 to 8: 4 = 0b100. sign: bits 9 to 15: 0.
    ("core_bitfields", "read_first", Out(&[4])),
    ("core_bitfields", "read_sign", Out(&[0])),
    ("core_bitfields", "read_straddle", Out(&[word(4) & 0xf_ffff])),
    ("core_bitfields", "read_wide", Out(&[(word(12) << 32 | word(8)) >> 10 & ((1 << 45) - 1)])),
    ("core_arrays", "line", Out(&[16, 40, 1, 36, 4, 1])),
    // square: 56, 4 * 7 * 4 bytes; [2]: 56 + 2 * 28; [2][3]: 112 + 12.
    ("core_arrays", "square", Out(&[56, 112, 1, 112, 28, 1, 124, 4, 1])),
    ("core_arrays", "cells", Out(&[204, 12, 1, 208, 4, 1, 0, 32, 32])),
    ("core_arrays", "deep", Out(&[268, 4, 1, 0, 32, 32])),
    ("core_arrays", "flexible", Out(&[52, 4, 1])),
    ("core_arrays", "flexible_structs", Out(&[36, 4, 1, 0, 32, 32])),
    ("core_arrays", "shrunk_inside", Out(&[8, 4, 1])),
    ("core_arrays", "shrunk_outside", Out(&[0])),
    ("core_arrays", "array_or_not", Out(&[0])),
    ("core_arrays", "not_last_outside", Out(&[0])),
    // 300 + 56 + 28 + 8.
    ("core_arrays", "root_and_array", Out(&[392, 4, 1])),
    ("core_arrays", "load_element", Returns(word(124))),
    // Clang relocates deep[1] (252) and y (4), and adds the second index as 8 bytes of the local cell, which no record names.
    ("core_arrays", "load_cell", Returns(word(252 + 4 + 8))),
    ("core_arrays", "load_flexible", Returns(word(28))),
    ("core_arrays", "element_signed", Refused),
    ("core_arrays", "element_lshift", Refused),
    ("core_arrays", "element_rshift", Refused),
    ("core_arrays", "index_left_out", Refused),
    // Exists, size, matches.
    ("core_types", "t_same", AfterIds(&[1, 16, 1])),
    ("core_types", "t_wider", AfterIds(&[1, 16, 1])),
    ("core_types", "t_unlike", AfterIds(&[1, 4, 0])),
    ("core_types", "t_reordered", AfterIds(&[1, 16, 1])),
    ("core_types", "t_other_int", AfterIds(&[1, 8, 0])),
    ("core_types", "t_behind", AfterIds(&[1, 8, 1])),
    ("core_types", "t_behind_other", AfterIds(&[1, 8, 0])),
    ("core_types", "t_missing", AfterIds(&[0, 0, 0])),
    ("core_types", "t_union", AfterIds(&[1, 8, 1])),
    ("core_types", "t_was_struct", AfterIds(&[0, 0, 0])),
    ("core_types", "t_enum", AfterIds(&[1, 4, 1])),
    ("core_types", "t_enum_less", AfterIds(&[1, 4, 0])),
    ("core_types", "t_td_int", AfterIds(&[1, 4, 1])),
    ("core_types", "t_td_resized", AfterIds(&[1, 4, 0])),
    ("core_types", "t_td_struct", AfterIds(&[1, 16, 1])),
    ("core_types", "t_td_ptr", AfterIds(&[1, 8, 1])),
    ("core_types", "t_td_array", AfterIds(&[1, 32, 1])),
    ("core_types", "t_td_array_other", AfterIds(&[1, 16, 0])),
    ("core_types", "t_td_func", AfterIds(&[1, 8, 1])),
    ("core_types", "t_td_func_args", AfterIds(&[0, 0, 0])),
    ("core_types", "t_td_func_ret", AfterIds(&[0, 0, 0])),
    ("core_types", "t_td_missing", AfterIds(&[0, 0, 0])),
    ("core_types", "t_td_float", AfterIds(&[0, 0, 0])),
    ("core_types", "t_td_twice", AfterIds(&[1, 4, 1])),
    ("core_types", "t_td_enum", AfterIds(&[1, 4, 1])),
    ("core_enums", "num_b", Out(&[1, 20])),
    ("core_enums", "num_flavoured", Out(&[1, 30])),
    ("core_enums", "sign_neg", Out(&[1, (-1000i64).cast_unsigned()])),
    ("core_enums", "sign_min", Out(&[1, (i32::MIN as i64).cast_unsigned()])),
    ("core_enums", "big_a", Out(&[1, 3 << 41])),
    ("core_enums", "big_max", Out(&[1, u64::MAX - 1])),
    ("core_enums", "bigneg_a", Out(&[1, (-(5i64 << 40)).cast_unsigned()])),
    ("core_enums", "grew_a", Out(&[1, 7 << 36])),
    ("core_enums", "shrank_a", Out(&[1, 12])),
    ("core_enums", "flav_a", Out(&[1, 100])),
    ("core_enums", "flav_b", Out(&[1, 200])),
    ("core_enums", "anon_b", Out(&[1, 41])),
    ("core_enums", "num_typedef", Out(&[1, 10])),
    ("core_enums", "gone_exists", Out(&[0])),
    ("core_enums", "nowhere_exists", Out(&[0])),
    ("core_enums", "gone_guarded", Returns(9)),
    ("core_enums", "live_gone", Refused),
    // An unsigned enumerator is not sign-extended.
    ("core_enums", "u32_top", Out(&[0xffff_fffe])),
    ("core_flavours", "old_shape", Out(&[0, 1])),
    ("core_flavours", "new_shape", Out(&[8, 4, 1, 1, 32, 32])),
    ("core_flavours", "no_flavour", Out(&[12, 4, 1, 1, 32, 32])),
    ("core_flavours", "last_counts", Out(&[16, 4, 1, 1, 32, 32])),
    ("core_flavours", "leading", Out(&[20, 4, 1, 1, 32, 32])),
    ("core_flavours", "trailing", Out(&[24, 4, 1, 1, 32, 32])),
    ("core_flavours", "four", Out(&[28, 4, 1, 1, 32, 32])),
    ("core_flavours", "target_flavour", Out(&[36, 4, 1, 1, 32, 32])),
    ("core_flavours", "member_flavour", Out(&[0])),
    ("core_flavours", "either_shape", Returns(word(8))),
    ("core_candidates", "agreeing", Out(&[8, 4, 1, 1, 32, 32])),
    ("core_candidates", "only_one_has", Out(&[24, 4, 1, 1, 32, 32])),
    ("core_candidates", "offset_agrees", Out(&[0, 1])),
    ("core_candidates", "other_kinds", Out(&[12, 4, 1, 1, 32, 32])),
    ("core_candidates", "enum_agrees", Out(&[6])),
    ("core_candidates", "differing", Refused),
    ("core_candidates", "size_differs", Refused),
    ("core_candidates", "enum_differs", Refused),
    // All relocations of `struct adapter` are judged together: the layout that has `a` matches more of them.
    ("core_candidates", "adapter_a", Returns(word(4))),
    ("core_candidates", "adapter_b", Returns(0)),
    ("core_insns", "alu_move", Out(&[16])),
    ("core_insns", "alu32_return", Returns(8)),
    ("core_insns", "ldx_b", Returns(28)),
    ("core_insns", "ldx_h", Returns(word(24) & 0xffff)),
    ("core_insns", "ldx_w", Returns(word(16))),
    ("core_insns", "ldx_dw", Out(&[word(12) << 32 | word(8)])),
    ("core_insns", "ldx_signed", Out(&[29, word(26) & 0xffff, word(20)])),
    ("core_insns", "stx", Returns(0)),
    ("core_insns", "atomic", Returns(0)),
    ("core_insns_v4", "ldsx_b", Out(&[29])),
    ("core_insns_v4", "ldsx_h", Out(&[word(26) & 0xffff])),
    ("core_insns_v4", "ldsx_w", Out(&[word(20)])),
    ("core_insns_v4", "st_imm", Returns(0)),
    // thing: a 16, b 4, c 0 with 4 bytes.
    ("core_subprogs", "in_static", Returns(100 + 16)),
    ("core_subprogs", "in_global", Returns(100 + 4)),
    ("core_subprogs", "in_nested", Returns(100 + 4)),
    ("core_subprogs", "shared_one", Returns(1 + 16 + 2)),
    ("core_subprogs", "shared_two", Returns(3 + 4 + 16)),
    ("core_subprogs", "in_callback", Returns(3 * 4)),
    ("core_subprogs", "in_map_callback", Returns(4)),
];

/// Where libbpf's answer is another: program, why.
const LIBBPF_DIFFERS: &[(&str, &str)] = &[
    ("u32_top", "libbpf sign-extends every 32-bit enumerator, and then misses the compiled value"),
    ("adapter_b", "libbpf judges the relocations of one loaded program, we those of the whole object"),
];

/// What a program did.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Did {
    Ran { returned: u64, out: Vec<u64> },
    Refused(String),
}

fn target_of(name: &str, endian: Endian) -> Vec<u8> {
    let name = if name == "core_insns_v4" { "core_insns" } else { name };
    fixture(name, endian).read_target().expect("CO-RE fixtures have a target")
}

fn with_prepared<T>(name: &str, endian: Endian, then: impl FnOnce(&Prepared<'_>, &mut Arena<'_>) -> T) -> T {
    let (object, target) = (fixture(name, endian).read(), target_of(name, endian));
    let mut buffer = vec![0u8; 1 << 20];
    let mut arena = Arena::new(&mut buffer);
    let parsed = Object::parse(&object).expect("a fixture");
    let prepared = prepare(&parsed, Some(&target), Options::default(), &mut arena).expect("a fixture");
    let mut rest = vec![0u8; 1 << 20];
    then(&prepared, &mut Arena::new(&mut rest))
}

/// Links and runs every program of a fixture.
fn run_all(name: &str, endian: Endian) -> BTreeMap<String, (Did, Machine)> {
    with_prepared(name, endian, |prepared, arena| {
        let mut all = BTreeMap::new();
        for (number, function) in prepared.declared().programs() {
            let name = String::from_utf8_lossy(prepared.function_name(function)).into_owned();
            let mut machine = Machine::new(endian);
            let did = match prepared.program(number, &mut arena.scratch()) {
                Err(error) => Did::Refused(error.to_string()),
                Ok(linked) => match machine.run(linked.insns.as_bytes()) {
                    Ok(returned) => Did::Ran { returned, out: machine.out() },
                    Err(Stop::Poison { slot }) => Did::Refused(format!("poison in slot {slot}")),
                    Err(stop) => panic!("{name}: {stop:?}"),
                },
            };
            all.insert(name, (did, machine));
        }
        all
    })
}

fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = RULES.iter().map(|rule| rule.0).collect();
    names.dedup();
    names
}

#[test]
fn little_endian_fixtures_do_what_the_rules_say() {
    let mut checked = 0;
    for name in names() {
        let did = run_all(name, Endian::Little);
        for (_, program, wanted) in RULES.iter().filter(|rule| rule.0 == name) {
            let (did, _) = did.get(*program).unwrap_or_else(|| panic!("{name} has no program {program}"));
            let is_right = match (wanted, did) {
                (Out(wanted), Did::Ran { out, .. }) => out == wanted,
                (AfterIds(wanted), Did::Ran { out, .. }) => out.get(2..) == Some(*wanted),
                (Returns(wanted), Did::Ran { returned, .. }) => returned & 0xffff_ffff == *wanted,
                (Refused, Did::Refused(_)) => true,
                _ => false,
            };
            assert!(is_right, "{name}: {program}: {did:x?}, wanted {wanted:x?}");
            checked += 1;
        }
        let unnamed: Vec<_> =
            did.keys().filter(|program| !RULES.iter().any(|rule| rule.0 == name && rule.1 == **program)).collect();
        assert!(unnamed.is_empty() || unnamed == ["ld_imm64"], "{name}: programs without a rule: {unnamed:?}");
    }
    println!("{checked} programs do what the rules say");
}

#[test]
fn little_endian_fixtures_do_what_libbpf_makes_of_them() {
    let path = workspace_root().join("tests/fixtures/libbpf.tsv");
    let table = std::fs::read_to_string(&path).expect("libbpf.tsv is part of the repository");
    let mut runs: BTreeMap<String, BTreeMap<String, (Did, Machine)>> = BTreeMap::new();
    let (mut rows, mut different) = (0, Vec::new());
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (name, program) = (columns[0].strip_suffix("-el.o").expect("little endian"), columns[1]);
        let did = runs.entry(name.to_owned()).or_insert_with(|| run_all(name, Endian::Little));
        let (did, _) = &did[program];
        let out: Vec<u64> = match columns.get(4) {
            Some(text) if !text.is_empty() => text.split(',').map(|n| n.parse().expect("a number")).collect(),
            _ => Vec::new(),
        };
        let is_same = match (columns[2], did) {
            ("0", Did::Ran { returned, out: ours }) => {
                let wanted: u64 = columns[3].parse().expect("a number");
                returned & 0xffff_ffff == wanted && *ours == out
            }
            ("-22", Did::Refused(_)) => true,
            _ => false,
        };
        if !is_same {
            different.push(program.to_owned());
            assert!(LIBBPF_DIFFERS.iter().any(|known| known.0 == program), "{line}\n{did:?}");
        }
        rows += 1;
    }
    assert_eq!(different.len(), LIBBPF_DIFFERS.len(), "explained differences that are none: {different:?}");
    println!("{rows} rows of libbpf.tsv compared, {} differ as explained", different.len());
}

/// Values of one fixture, in the order of its records.
fn values(name: &str, endian: Endian) -> Vec<(String, u32, u32, String, Option<u64>)> {
    with_prepared(name, endian, |prepared, _| {
        let value = |relocation: corelo_core::prepare::Relocation<'_>| {
            let function = relocation.function.and_then(|id| prepared.declared().function(id));
            let function = function.map_or(&b""[..], |function| prepared.function_name(function));
            let access = prepared.local().expect("BTF").string(relocation.relo.access_str_off).expect("a string");
            (
                String::from_utf8_lossy(function).into_owned(),
                relocation.relo.kind.number(),
                relocation.relo.type_id.0,
                String::from_utf8_lossy(access).into_owned(),
                relocation.outcome.is_ok().then(|| relocation.decision.target_value()),
            )
        };
        prepared.relocations().map(value).collect()
    })
}

/// The same source against the same types in the other byte order: all values are the same but for left shifts, which count from
/// the other end of the loaded integer.
#[test]
fn big_endian_fixtures_get_the_same_values() {
    let (mut same, mut shifts) = (0, 0);
    for name in names() {
        let (little, big) = (values(name, Endian::Little), values(name, Endian::Big));
        let key = |row: &(String, u32, u32, String, Option<u64>)| (row.0.clone(), row.1, row.3.clone());
        let of = |rows: &[(String, u32, u32, String, Option<u64>)]| {
            let mut map: BTreeMap<_, Vec<_>> = BTreeMap::new();
            rows.iter().for_each(|row| map.entry(key(row)).or_default().push(row.4));
            map
        };
        let (little, big) = (of(&little), of(&big));
        assert_eq!(little.keys().collect::<Vec<_>>(), big.keys().collect::<Vec<_>>(), "{name}: records");
        for ((program, kind, access), little_values) in &little {
            let big_values = &big[&(program.clone(), *kind, access.clone())];
            if *kind != 4 {
                // Type ids are the compiler's: the two builds number their types alike.
                assert_eq!(little_values, big_values, "{name}: {program}: kind {kind} of {access}");
                same += 1;
                continue;
            }
            let other = |kind| little.get(&(program.clone(), kind, access.clone())).and_then(|values| values[0]);
            let (Some(size), Some(rshift), Some(lshift)) = (other(1), other(5), little_values[0]) else {
                assert_eq!(little_values, big_values, "{name}: {program}: refused in both");
                continue;
            };
            if little_values.len() != 1 {
                continue;
            }
            // Bits before the field are 64 - rshift fewer than what the left shift leaves of 64.
            let lead = rshift - lshift;
            assert_eq!(big_values[0], Some((8 - size) * 8 + lead), "{name}: {program}: left shift of {access}");
            shifts += 1;
        }
    }
    println!("{same} values are the same in both byte orders, {shifts} left shifts follow their rule");
    assert!(same > 200 && shifts > 20);
}

/// Programs of big-endian fixtures run to the same results where no memory is read.
#[test]
fn big_endian_fixtures_do_what_the_rules_say() {
    let mut checked = 0;
    for name in names() {
        let did = run_all(name, Endian::Big);
        for (_, program, wanted) in RULES.iter().filter(|rule| rule.0 == name) {
            let (did, machine) = &did[*program];
            match (wanted, did) {
                (Out(_) | AfterIds(_), Did::Ran { out, .. }) if out.is_empty() => {
                    panic!("{name}: {program} stores nothing")
                }
                // Loads read other numbers of the same bytes.
                (Out(_), Did::Ran { .. }) if program.starts_with("read_") || program.starts_with("ld") => continue,
                (Out(_), Did::Ran { .. }) if program.starts_with("load_") => continue,
                (Out(wanted), Did::Ran { out, .. }) => {
                    assert_eq!(out.len(), wanted.len(), "{name}: {program}");
                    // Left shifts follow a rule of their own; all else is the same.
                    let differs = out.iter().zip(*wanted).filter(|(one, other)| one != other).count();
                    assert!(differs <= wanted.len().div_ceil(6), "{name}: {program}: {out:?}, {wanted:?}");
                }
                (AfterIds(wanted), Did::Ran { out, .. }) => assert_eq!(&out[2..], *wanted, "{name}: {program}"),
                (Returns(wanted), Did::Ran { returned, .. }) => {
                    let is_load = program.starts_with("load_") || program.starts_with("ldx_");
                    if !is_load && !matches!(*program, "either_shape" | "adapter_a") {
                        assert_eq!(returned & 0xffff_ffff, *wanted, "{name}: {program}");
                    }
                }
                (Refused, Did::Refused(_)) => {}
                _ => panic!("{name}: {program}: {did:?}, wanted {wanted:?}"),
            }
            assert!(machine.mem.len() == 1024);
            checked += 1;
        }
    }
    println!("{checked} programs of the big-endian fixtures");
}

/// Stores and atomics reach the target's offsets with their own widths.
#[test]
fn stores_reach_the_target_fields() {
    let did = run_all("core_insns_v4", Endian::Little);
    let (_, machine) = &did["st_imm"];
    assert_eq!(machine.mem[28], 0x11);
    assert_eq!(machine.mem[24..26], [0x22; 2]);
    assert_eq!(machine.mem[16..20], [0x33; 4]);
    assert_eq!(machine.mem[8..16], 0x4444_4444u64.to_le_bytes());
    assert_eq!((machine.mem[0..8].to_vec(), machine.mem[29]), ((0..8).collect(), 29), "no other byte");
    let did = run_all("core_insns", Endian::Little);
    let (_, machine) = &did["atomic"];
    assert_eq!((machine.mem[16], machine.mem[8]), (17, 10));
    let (_, machine) = &did["stx"];
    assert!([8..20, 24..26, 28..29].into_iter().all(|range| machine.mem[range].iter().all(|&byte| byte == 0)));
    assert_eq!(did["ld_imm64"].0, Did::Ran { returned: 0, out: vec![4242, 1] });
}

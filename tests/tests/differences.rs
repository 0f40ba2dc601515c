//! The README's table "We differ on purpose, and only here": every row has a test that shows it, and is known here.

use std::collections::BTreeSet;
use std::path::Path;

/// What a row begins with, and the tests that show what it says of Corelo: file, and function.
const SHOWN: &[(&str, &[(&str, &str)])] = &[
    ("several kernel types of one name", &[("tests/tests/cases.rs", "two_layouts_of_one_name_are_never_mixed")]),
    ("relocation kind that is not known", &[("tests/tests/cases.rs", "an_unknown_kind_poisons_its_instruction_alone")]),
    ("access string", &[("tests/tests/cases.rs", "malformed_access_strings_are_refused_where_they_go_wrong")]),
    (
        "unsigned 32-bit enumerator",
        &[("tests/tests/core_insn_rules.rs", "hand_made_cases_follow_the_rules_in_both_byte_orders")],
    ),
    (
        "value for an ALU immediate",
        &[("tests/tests/core_insn_rules.rs", "hand_made_cases_follow_the_rules_in_both_byte_orders")],
    ),
    (
        "a member name twice in a flattened struct",
        &[("tests/tests/plain_rules.rs", "of_a_member_name_twice_the_compatible_one_counts_from_the_start")],
    ),
    (
        "offset of 2^32 bits and more; a size of 2^31 bytes and more",
        &[("tests/tests/core_insn_rules.rs", "hand_made_cases_follow_the_rules_in_both_byte_orders")],
    ),
    (
        "32 and more typedefs, modifiers and arrays in a row",
        &[("tests/tests/plain_rules.rs", "thirty_one_typedefs_in_a_row_are_followed")],
    ),
    (
        "legacy `maps` sections",
        &[
            ("tests/tests/legacy_maps.rs", "words_beyond_five_count_only_where_btf_names_them"),
            ("tests/tests/legacy_maps.rs", "a_static_map_is_the_one_that_is_referred_to"),
        ],
    ),
    (
        "a reference with an offset into a map's definition",
        &[("tests/tests/legacy_maps.rs", "a_section_symbol_with_an_offset_finds_what_lies_there_or_nothing")],
    ),
    (
        "more than 256 subprograms, or 64 maps, in a program",
        &[
            ("tests/tests/link_bounds.rs", "a_program_has_as_many_subprograms_as_the_kernel_takes"),
            ("tests/tests/link_bounds.rs", "a_program_refers_to_as_many_maps_as_the_kernel_takes"),
        ],
    ),
    (
        "`LINUX_HAS_SYSCALL_WRAPPER` on a kernel without kprobes",
        &[("std-loader/src/kernel/kallsyms.rs", "wrappers_of_system_calls")],
    ),
    (
        "a `LINUX_` extern that cannot be found out",
        &[
            ("std-loader/src/kernel/kconfig/tests.rs", "what_cannot_be_asked_is_neither_yes_nor_no"),
            ("targets/agent/tests/old_kernels.rs", "names_of_functions_that_are_hidden_say_nothing"),
        ],
    ),
    (
        "byte order of `lshift_u64`",
        &[("tests/tests/core_insn_rules.rs", "left_shifts_count_from_the_end_that_the_byte_order_has")],
    ),
    (
        "relocation that fails in a function that no loaded program calls",
        &[("tests/tests/cases.rs", "relocations_in_functions_are_found_by_place")],
    ),
    (
        "global data that no loaded program uses",
        &[("tests/tests/objects/data.rs", "each_section_is_a_map_of_its_own_made_when_used_and_frozen_when_read_only")],
    ),
    (
        "the object's BTF is refused with ENOMEM, EAGAIN or the like",
        &[("std-loader/src/load.rs", "a_refusal_of_btf_that_may_pass_is_reported_as_itself")],
    ),
    (
        "a second reader of one ring buffer",
        &[("std-loader/tests/kernel_objects.rs", "ring_buffers_wrap_and_a_second_reader_goes_on")],
    ),
    ("a descriptor whose number is 0", &[("std-loader/src/sys/bpf/tests.rs", "standard_input_is_not_taken_for_none")]),
    (
        "name of more than 511 bytes",
        &[("tests/tests/long_names.rs", "types_whose_name_is_too_long_for_a_kernel_are_no_candidates")],
    ),
    (
        "initial slot of a program that is not loaded",
        &[
            ("tests/tests/objects/maps.rs", "a_slot_for_a_program_that_is_not_loaded_stays_empty"),
            ("targets/agent/tests/told.rs", "a_slot_whose_program_is_not_loaded"),
        ],
    ),
    ("section name that libbpf took before 1.0", &[("core/src/object/section_name.rs", "older_names_are_known_apart")]),
];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The first cells of the table's rows.
fn rows(readme: &str) -> Vec<&str> {
    let (_, table) = readme.split_once("| what | libbpf | Corelo |\n| --- | --- | --- |\n").unwrap();
    let lines = table.lines().take_while(|line| line.starts_with("| "));
    lines.map(|line| line.trim_start_matches("| ").split(" | ").next().unwrap()).collect()
}

#[test]
fn every_difference_to_libbpf_that_the_readme_names_has_its_test() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let rows = rows(&readme);
    let mut unused: BTreeSet<&str> = SHOWN.iter().map(|(begin, _)| *begin).collect();
    for row in &rows {
        let found: Vec<_> = SHOWN.iter().filter(|(begin, _)| row.starts_with(begin)).collect();
        let [(begin, tests)] = found[..] else { panic!("{} tests are known for the row {row:?}", found.len()) };
        unused.remove(begin);
        assert!(!tests.is_empty(), "{row}");
        for (file, name) in *tests {
            let source = std::fs::read_to_string(root().join(file)).unwrap();
            let function = format!("fn {name}()");
            let at = source.find(&function).unwrap_or_else(|| panic!("{row}: {file} has no {function}"));
            let before = source[..at].lines().rev().map(str::trim);
            let is_test =
                before.take_while(|line| line.is_empty() || line.starts_with(['#', '/'])).any(|line| line == "#[test]");
            assert!(is_test, "{row}: {name} of {file} is no test");
        }
    }
    assert!(unused.is_empty(), "the README has no row {unused:?}");
    assert!(rows.len() >= 16, "{rows:?}");
}

//! Section names, classified by Corelo and by libbpf.

use corelo_core::object::section_name::{names, parse};
use corelo_tests::libbpf::{classify_section, section_definitions, version};

/// Ends that make of a table's name something to be taken or refused.
const ENDS: [&str; 14] =
    ["", "/", "/x", "/x/y", "/x:y", "x", "_x", ".s", ".s/x", "+", "/ingress", "/devmap", ".w/x", "/x+0x8"];

/// What libbpf took after 1.7, until 2026-07.
const NEWER: [&str; 11] = [
    "tracepoint.s",
    "tp.s",
    "raw_tracepoint.s",
    "raw_tp.s",
    "tp_btf.s",
    "fentry.multi",
    "fentry.multi.s",
    "fexit.multi",
    "fexit.multi.s",
    "fsession.multi",
    "fsession.multi.s",
];

fn is_newer(section: &str) -> bool {
    NEWER.iter().any(|name| section.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

#[test]
fn the_table_has_libbpfs_names_and_no_others() {
    let libbpf = section_definitions();
    let ours: Vec<String> = names()
        .filter(|(name, _)| !NEWER.contains(name))
        .map(|(name, takes_target)| format!("{name}{}", if takes_target { "+" } else { "" }))
        .collect();
    let missing: Vec<_> = libbpf.iter().filter(|name| !ours.contains(name)).collect();
    let extra: Vec<_> = ours.iter().filter(|name| !libbpf.contains(name)).collect();
    assert!(missing.is_empty() && extra.is_empty(), "missing {missing:?}, not in libbpf {extra:?}");
    println!("{} names as in libbpf {}", ours.len(), version());
}

#[test]
fn every_name_and_its_variants_are_classified_alike() {
    let (mut known, mut unknown) = (0, 0);
    for (name, _) in names() {
        for end in ENDS {
            let section = format!("{name}{end}");
            let ours = parse(section.as_bytes());
            let found = ours.map(|kind| (kind.prog_type.0, kind.expected_attach_type.0));
            let wanted = if is_newer(&section) { found } else { classify_section(&section) };
            assert_eq!(found, wanted, "{section}");
            *if found.is_some() { &mut known } else { &mut unknown } += 1;
        }
        for shorter in 1..name.len() {
            let section = &name[..shorter];
            let found = parse(section.as_bytes()).map(|kind| (kind.prog_type.0, kind.expected_attach_type.0));
            let wanted = if is_newer(section) { found } else { classify_section(section) };
            assert_eq!(found, wanted, "{section}");
        }
    }
    assert!(known > 200 && unknown > 200, "{known} known, {unknown} unknown");
    println!("{known} names classified alike, {unknown} refused alike");
}

//! Every CO-RE relocation of every object of the corpus against every kernel there, beside what libbpf made of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use corelo_core::arena::Arena;
use corelo_core::insn::Insn as CoreInsn;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Prepared, Relocation, RelocationError, prepare};
use corelo_core::relo::patch::Patched;
use corelo_tests::corpus::{CoreRow, CoreStatus, Corpus, corpus};
use corelo_tests::endian::Endian;
use corelo_tests::insn::{decode, encode};
use zerocopy::IntoBytes;

/// Where libbpf's answer is not ours, and why: object, program, kind, access string, reason. None is known.
const EXPLAINED: &[(&str, &str, &str, &str, &str)] = &[];

/// Ours, in the words of the oracle.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: &'static str,
    kind: u32,
    local_value: Option<u64>,
    target_value: Option<u64>,
    insn: Vec<u8>,
}

fn kind_number(name: &str) -> u32 {
    const NAMES: [&str; 13] = [
        "field_byte_offset",
        "field_byte_size",
        "field_exists",
        "field_signed",
        "field_lshift_u64",
        "field_rshift_u64",
        "local_type_id",
        "target_type_id",
        "type_exists",
        "type_size",
        "enumval_exists",
        "enumval_value",
        "type_matches",
    ];
    let number = NAMES.iter().position(|known| *known == name);
    number.unwrap_or_else(|| panic!("the oracle has a kind {name}")) as u32
}

/// The bytes of instructions in little-endian order, as the oracle has them.
fn little(insns: &[CoreInsn], endian: Endian) -> Vec<u8> {
    let bytes = insns.as_bytes();
    encode(&decode(bytes, endian), Endian::Little)
}

fn ours(relocation: &Relocation<'_>, endian: Endian) -> Answer {
    let status = match relocation.outcome {
        Ok(Patched::Value) => "ok",
        Ok(Patched::Poison) => "poison",
        Err(RelocationError::Patch(_)) => "patch_fail",
        Err(RelocationError::Undecided(_)) => "resolve_fail",
    };
    let is_resolved = status != "resolve_fail";
    Answer {
        status,
        kind: relocation.relo.kind.number(),
        local_value: is_resolved.then_some(relocation.decision.local_value()),
        target_value: is_resolved.then_some(relocation.decision.target_value()),
        insn: little(relocation.insns(), endian),
    }
}

fn libbpfs(row: &CoreRow) -> Answer {
    let status = match row.status {
        CoreStatus::Ok => "ok",
        CoreStatus::Poison => "poison",
        CoreStatus::PatchFail => "patch_fail",
        CoreStatus::ResolveFail(_) => "resolve_fail",
    };
    let is_resolved = status != "resolve_fail";
    Answer {
        status,
        kind: kind_number(&row.kind),
        local_value: row.local_value.filter(|_| is_resolved),
        target_value: row.target_value.filter(|_| is_resolved),
        insn: row.target_insn.clone(),
    }
}

fn text<'p>(prepared: &Prepared<'p>, relocation: &Relocation<'_>) -> (&'p str, &'p str) {
    let of = |bytes: &'p [u8]| std::str::from_utf8(bytes).expect("names of the corpus are UTF-8");
    let section = of(prepared.object().section_name(relocation.section));
    let function = relocation.function.and_then(|number| prepared.declared().function(number));
    (section, function.map_or("", |function| of(prepared.function_name(function))))
}

#[derive(Default)]
struct Count {
    rows: usize,
    objects: usize,
    differences: String,
    different: usize,
}

fn compare_object(corpus: &Corpus, object: &str, rows: &[CoreRow], btf: &[u8], endian: Endian, count: &mut Count) {
    let bytes = corpus.read(object);
    let mut buffer = vec![0u8; 4 << 20];
    let mut arena = Arena::new(&mut buffer);
    let parsed = Object::parse(&bytes).unwrap_or_else(|error| panic!("{object}: {error}"));
    let prepared =
        prepare(&parsed, Some(btf), Options::default(), &mut arena).unwrap_or_else(|error| panic!("{object}: {error}"));
    let mut by_place = BTreeMap::new();
    for row in rows {
        let key = (row.section.as_str(), row.relo_idx);
        assert!(by_place.insert(key, row).is_none(), "{object}: two rows of {key:?}");
    }
    let mut compared = 0;
    for relocation in prepared.relocations() {
        let (section, function) = text(&prepared, &relocation);
        let Some(row) = by_place.remove(&(section, relocation.relo_idx)) else {
            panic!("{object}: libbpf has no relocation #{} of section {section}", relocation.relo_idx);
        };
        compared += 1;
        assert_eq!(
            (function, relocation.insn_idx, relocation.relo.insn_off),
            (row.program.as_str(), row.insn_idx, row.insn_off),
            "{object}: place of #{} of {section}",
            row.relo_idx
        );
        assert_eq!(little(relocation.compiled(), endian), row.local_insn, "{object}: {function} as compiled");
        let (ours, libbpfs) = (ours(&relocation, endian), libbpfs(row));
        let explained = EXPLAINED.iter().any(|known| {
            (known.0, known.1, known.2, known.3) == (object, function, row.kind.as_str(), row.access.as_str())
        });
        if ours != libbpfs && !explained {
            count.different += 1;
            if count.different <= 20 {
                let CoreRow { kind, local_type, access, status, .. } = row;
                let verdict = relocation.decision.verdict();
                let outcome = relocation.outcome;
                writeln!(
                    count.differences,
                    "{object}: {function} #{} {kind} {local_type} {access}\n  ours   {ours:x?} {verdict:?} {outcome:?}\n  libbpf {libbpfs:x?} {status:?} {}",
                    row.relo_idx, row.note
                )
                .expect("a string takes all");
            }
        }
    }
    assert!(by_place.is_empty(), "{object}: rows that we have no relocation for: {:?}", by_place.keys());
    assert_eq!(compared, rows.len());
    count.rows += compared;
    count.objects += 1;
}

/// Compares the rows of one kernel; returns how many there were.
fn compare_kernel(corpus: &Corpus, name: &str) -> usize {
    let kernel = corpus.kernel(name);
    let btf = kernel.btf();
    let mut by_object: BTreeMap<String, Vec<CoreRow>> = BTreeMap::new();
    for row in corpus.core_rows(name) {
        by_object.entry(row.object.clone()).or_default().push(row);
    }
    let mut count = Count::default();
    for (object, rows) in &by_object {
        compare_object(corpus, object, rows, &btf, kernel.endian(), &mut count);
    }
    println!("{name}: {} rows of {} objects compared, {} differ", count.rows, count.objects, count.different);
    assert_eq!(count.different, 0, "{name}:\n{}", count.differences);
    assert!(count.rows > 0, "{name} has no rows");
    count.rows
}

fn compare_kernels(wanted: impl Fn(&str) -> bool) {
    let Some(corpus) = corpus() else { return };
    let names: Vec<String> =
        corpus.core_tables().into_iter().filter(|name| !name.starts_with("local-") && wanted(name)).collect();
    assert!(!names.is_empty(), "no tables to compare");
    let rows: usize = names.iter().map(|name| compare_kernel(&corpus, name)).sum();
    println!("{rows} rows in all of {names:?}");
}

#[test]
fn amd64_agrees_with_libbpf() {
    compare_kernels(|name| name.starts_with("amd64-"));
}

#[test]
fn arm64_agrees_with_libbpf() {
    compare_kernels(|name| name.starts_with("arm64-"));
}

#[test]
fn big_endian_objects_agree_with_libbpf() {
    compare_kernels(|name| name.starts_with("s390x-"));
}

#[test]
fn other_architectures_agree_with_libbpf() {
    compare_kernels(|name| !["amd64-", "arm64-", "s390x-"].iter().any(|arch| name.starts_with(arch)));
}

/// Rows of one kernel against the types of another: a comparison that finds nothing there would find nothing anywhere.
#[test]
fn rows_of_another_kernel_differ() {
    let Some(corpus) = corpus() else { return };
    let btf = corpus.kernel("amd64-7.2.13").btf();
    let mut count = Count::default();
    let mut by_object: BTreeMap<String, Vec<CoreRow>> = BTreeMap::new();
    for row in corpus.core_rows("amd64-5.10.223") {
        by_object.entry(row.object.clone()).or_default().push(row);
    }
    for (object, rows) in &by_object {
        compare_object(&corpus, object, rows, &btf, Endian::Little, &mut count);
    }
    println!("{} of {} rows differ", count.different, count.rows);
    assert!(count.different > 500, "only {} of {} rows differ", count.different, count.rows);
}

/// The rows that were recorded against a kernel whose BTF is not in the corpus: compared on that kernel only.
#[test]
fn the_running_kernel_agrees_with_libbpf() {
    let Some(corpus) = corpus() else { return };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let tables = corpus.core_tables();
    let Some(table) = tables.iter().find(|name| name.strip_prefix("local-amd64-") == Some(release)) else {
        let why = format!("the running kernel is {release}, the corpus has rows of {tables:?}");
        return corelo_tests::kernel::not_here("libbpf's recorded relocations of this kernel", &why);
    };
    if !corelo_tests::kernel::has(&[corelo_tests::kernel::Feature::KernelBtf]) {
        return;
    }
    let btf = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let mut by_object: BTreeMap<String, Vec<CoreRow>> = BTreeMap::new();
    for row in corpus.core_rows(table) {
        by_object.entry(row.object.clone()).or_default().push(row);
    }
    let mut count = Count::default();
    for (object, rows) in &by_object {
        compare_object(&corpus, object, rows, &btf, Endian::Little, &mut count);
    }
    println!("{table}: {} rows of {} objects compared, {} differ", count.rows, count.objects, count.different);
    assert_eq!(count.different, 0, "{table}:\n{}", count.differences);
}

/// Objects that libbpf opens are objects that we plan; what it refuses to open may differ.
#[test]
fn every_object_that_libbpf_opens_is_planned() {
    let Some(corpus) = corpus() else { return };
    let mut refused = String::new();
    let verdicts = corpus.verdicts();
    let mut planned = 0;
    for verdict in &verdicts {
        let bytes = corpus.read(&verdict.object);
        let mut buffer = vec![0u8; 4 << 20];
        let mut arena = Arena::new(&mut buffer);
        let result = Object::parse(&bytes).map_err(|error| error.to_string()).and_then(|object| {
            corelo_core::prepare::Plan::new(&object, Options::default(), &mut arena)
                .map(|_| ())
                .map_err(|error| error.to_string())
        });
        match result {
            Ok(()) => planned += 1,
            Err(error) if verdict.opens() => {
                writeln!(refused, "{}: {error}", verdict.object).expect("a string takes all");
            }
            Err(error) => println!("{}: both refuse: {error} / {}", verdict.object, verdict.open),
        }
    }
    println!("{planned} of {} objects planned", verdicts.len());
    assert!(refused.is_empty(), "libbpf opens what we refuse:\n{refused}");
}

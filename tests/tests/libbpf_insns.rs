//! The final instructions of every program, beside those that libbpf ends with when it prepares the same object.
//!
//! What stands for a descriptor, an address or a kernel's id is left out of the comparison: see [`normal`].

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use corelo_core::arena::Arena;
use corelo_core::link::{InfoRecords, LinkedProgram, ReferenceKind};
use corelo_core::object::{ExternKind, Object};
use corelo_core::prepare::{Options, Prepared, prepare};
use corelo_core::relo::patch::Patched;
use corelo_tests::corpus::corpus;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixtures;
use corelo_tests::insn::{Insn, decode, encode};
use corelo_tests::kernel;
use corelo_tests::libbpf::{self, Autoload, Outcome};
use zerocopy::IntoBytes;

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Instructions with all references zeroed: of a map or its value the descriptor, of an extern both halves and the
/// pseudo source, as libbpf writes what it found in the running kernel there.
fn normal(linked: &LinkedProgram<'_>, prepared: &Prepared<'_>, bytes: &[u8], endian: Endian) -> Vec<Insn> {
    let mut insns = decode(bytes, endian);
    for reference in linked.references {
        let at = reference.insn_idx as usize;
        match reference.kind() {
            ReferenceKind::Map(_) | ReferenceKind::MapValue(_) => insns[at].imm = 0,
            ReferenceKind::ExternCall(_) => insns[at] = Insn { off: 0, src: 0, imm: 0, ..insns[at] },
            ReferenceKind::ExternLoad(id) => {
                assert_ne!(prepared.declared().external(id).unwrap().kind(), ExternKind::Kconfig);
                insns[at].imm = 0;
                insns[at].src = 0;
                insns[at + 1].imm = 0;
            }
        }
    }
    insns
}

/// Slots of linked instructions whose CO-RE record is about the left shift, which libbpf computes for its own byte order.
fn lshift_slots(prepared: &Prepared<'_>, linked: &LinkedProgram<'_>) -> Vec<usize> {
    let mut slots = Vec::new();
    for relocation in prepared.relocations().filter(|relocation| relocation.relo.kind.number() == 4) {
        for place in linked.placements {
            if relocation.function == Some(place.function) && relocation.outcome == Ok(Patched::Value) {
                slots.push((place.insn_start + relocation.insn_idx) as usize);
            }
        }
    }
    slots
}

/// Where libbpf's instructions are not ours, on purpose: object, program, why.
const ON_PURPOSE: &[(&str, &str, &str)] = &[(
    "core_candidates",
    "adapter_b",
    "libbpf judges the relocations of the programs that it loads; we judge all of the object, so that adapter_a and adapter_b never see two layouts of one struct",
)];

#[derive(Default)]
struct Count {
    programs: usize,
    insns: usize,
    records: usize,
    different: usize,
    differences: String,
}

impl Count {
    fn differs(&mut self, text: &str) {
        self.different += 1;
        if self.different <= 20 {
            writeln!(self.differences, "{text}").expect("a string takes all");
        }
    }
}

fn records<const N: usize>(info: InfoRecords<'_>, endian: Endian) -> Vec<[u32; N]> {
    let words = |record: &[u8]| std::array::from_fn(|word| endian.read_u32(record, word * 4).expect("whole words"));
    info.bytes.chunks_exact((info.record_size as usize).max(1)).map(words).collect()
}

fn compare(
    name: &str,
    object: &[u8],
    endian: Endian,
    btf: &[u8],
    outcome: &Outcome,
    only: &dyn Fn(&str) -> bool,
    count: &mut Count,
) {
    let mut buffer = vec![0u8; 8 << 20];
    let mut arena = Arena::new(&mut buffer);
    let parsed = Object::parse(object).unwrap_or_else(|error| panic!("{name}: {error}"));
    let prepared =
        prepare(&parsed, Some(btf), Options::default(), &mut arena).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut numbers = BTreeMap::new();
    for (number, function) in prepared.declared().programs() {
        numbers.insert(String::from_utf8_lossy(prepared.function_name(function)).into_owned(), number);
    }
    let names: Vec<&String> = outcome.programs.iter().map(|program| &program.name).collect();
    assert_eq!(numbers.len(), names.len(), "{name}: programs {names:?} and {:?}", numbers.keys());
    for program in &outcome.programs {
        let number = *numbers.get(&program.name).unwrap_or_else(|| panic!("{name}: no program {}", program.name));
        let is_known = ON_PURPOSE.iter().any(|known| name.starts_with(known.0) && known.1 == program.name);
        if !program.autoload || !only(&program.name) || is_known {
            continue;
        }
        let mut scratch = arena.scratch();
        let linked = match prepared.program(number, &mut scratch) {
            Ok(linked) => linked,
            Err(error) => {
                count.differs(&format!("{name}: {}: {error}, libbpf prepares it", program.name));
                continue;
            }
        };
        let host = if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little };
        if linked.insns.len() * 8 != program.insns.len() {
            let (ours, theirs) = (linked.insns.len(), program.insns.len() / 8);
            count.differs(&format!("{name}: {}: {ours} instructions, libbpf {theirs}", program.name));
            continue;
        }
        let ours = encode(&normal(&linked, &prepared, linked.insns.as_bytes(), endian), host);
        let theirs = encode(&normal(&linked, &prepared, &program.insns, host), host);
        let skipped = if endian == host { Vec::new() } else { lshift_slots(&prepared, &linked) };
        for (slot, (one, other)) in ours.chunks(8).zip(theirs.chunks(8)).enumerate() {
            if one != other && !skipped.contains(&slot) {
                count.differs(&format!("{name}: {} slot {slot}: {one:x?}, libbpf {other:x?}", program.name));
            }
        }
        let (func_info, line_info) = (records::<2>(linked.func_info, endian), records::<4>(linked.line_info, endian));
        if func_info != program.func_info && !program.func_info.is_empty() {
            count.differs(&format!("{name}: {} func_info {func_info:?}, libbpf {:?}", program.name, program.func_info));
        }
        if line_info != program.line_info && !program.line_info.is_empty() {
            let at = line_info.iter().zip(&program.line_info).position(|(one, other)| one != other);
            count.differs(&format!(
                "{name}: {} line_info from {at:?} on: {} records, libbpf {}",
                program.name,
                line_info.len(),
                program.line_info.len()
            ));
        }
        count.programs += 1;
        count.insns += ours.len() / 8;
        count.records += program.func_info.len() + program.line_info.len();
    }
}

/// Prepares an object with libbpf, program by program where it fails as a whole: a failure that comes after the
/// instructions are final (maps) does no harm.
fn prepare_with_libbpf(
    name: &str,
    path: &Path,
    custom_btf: Option<&Path>,
    mut compare: impl FnMut(&Outcome, &dyn Fn(&str) -> bool),
) -> usize {
    let run = |autoload: Autoload| {
        libbpf::run(
            path,
            &libbpf::Options {
                custom_btf: custom_btf.map(Path::to_owned),
                autoload,
                size_maps: true,
                ..Default::default()
            },
        )
    };
    let whole = match run(Autoload::AsDeclared) {
        Ok(outcome) => outcome,
        Err(error) => {
            println!("{name}: libbpf does not open it: {}", error.lines().next().unwrap_or_default());
            return 0;
        }
    };
    let is_final = |outcome: &Outcome| outcome.failed.is_none() || came_to_the_maps(&outcome.log);
    if is_final(&whole) && whole.programs.iter().all(|program| program.autoload) {
        compare(&whole, &|_| true);
        return 0;
    }
    let mut unprepared = 0;
    for program in whole.programs.iter().map(|program| program.name.clone()) {
        let outcome = run(Autoload::Only(vec![program.clone()])).expect("it was opened before");
        if is_final(&outcome) {
            compare(&outcome, &|name| name == program);
        } else {
            unprepared += 1;
        }
    }
    unprepared
}

/// Whether libbpf failed only when the instructions were final: creating maps or loading BTF.
fn came_to_the_maps(log: &str) -> bool {
    ["failed to create", "Error loading .BTF", "map '", "failed to load"]
        .iter()
        .any(|word| log.lines().rev().take(3).any(|line| line.contains(word)))
        && !["failed to relocate", "failed to perform CO-RE", "failed to resolve", "extern"]
            .iter()
            .any(|word| log.lines().rev().take(6).any(|line| line.contains(word)))
}

#[test]
fn fixtures_end_with_the_same_instructions() {
    if !kernel::require_kernel("prepare fixtures with libbpf") {
        return;
    }
    let running = std::fs::read(VMLINUX).expect("require_kernel saw it");
    let (mut count, mut unprepared, mut skipped) = (Count::default(), 0, 0);
    for fixture in fixtures() {
        let target = match fixture.name.as_str() {
            "core_insns_v4" => corelo_tests::fixtures::fixture("core_insns", fixture.endian).target_btf,
            _ => fixture.target_btf.clone(),
        };
        let bytes = fixture.read();
        let btf = target.as_ref().map_or(running.clone(), |path| std::fs::read(path).expect("a fixture"));
        // The BTF of another byte order is refused on purpose; libbpf does not look.
        let is_foreign = corelo_core::btf::Btf::parse(&btf).expect("valid BTF").endian()
            != Object::parse(&bytes).map_or(corelo_core::bytes::Endian::host(), |object| object.endian());
        if is_foreign {
            skipped += 1;
            continue;
        }
        let name = format!("{}-{:?}", fixture.name, fixture.endian);
        unprepared += prepare_with_libbpf(&name, &fixture.path, target.as_deref(), |outcome, only| {
            compare(&name, &bytes, fixture.endian, &btf, outcome, only, &mut count);
        });
    }
    println!(
        "{} programs, {} instructions, {} func_info and line_info records compared, {} differ; {unprepared} programs that libbpf refuses, {skipped} objects of the other byte order without a BTF",
        count.programs, count.insns, count.records, count.different
    );
    assert_eq!(count.different, 0, "{}", count.differences);
    assert!(count.programs > 200 && count.records > 0, "{} programs", count.programs);
}

#[test]
fn corpus_objects_end_with_the_same_instructions() {
    if !kernel::require_kernel("prepare the corpus with libbpf") {
        return;
    }
    let Some(corpus) = corpus() else { return };
    let btf = std::fs::read(VMLINUX).expect("require_kernel saw it");
    let (mut count, mut unprepared, mut objects) = (Count::default(), 0, 0);
    for verdict in corpus.verdicts().iter().filter(|verdict| verdict.endian == "LE" && verdict.opens()) {
        let bytes = corpus.read(&verdict.object);
        let path = corpus.path(&verdict.object);
        objects += 1;
        unprepared += prepare_with_libbpf(&verdict.object, &path, None, |outcome, only| {
            compare(&verdict.object, &bytes, Endian::Little, &btf, outcome, only, &mut count);
        });
    }
    println!(
        "{objects} objects: {} programs, {} instructions, {} func_info and line_info records compared, {} differ; {unprepared} programs that libbpf refuses",
        count.programs, count.insns, count.records, count.different
    );
    assert_eq!(count.different, 0, "{}", count.differences);
    assert!(count.programs > 300, "{} programs", count.programs);
}

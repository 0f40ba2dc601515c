//! Minimal BTF beside the tools that others use: libbpf relocates against it as against the whole, and bpftool makes its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use corelo_core::arena::Arena;
use corelo_core::min_btf::minimal;
use corelo_core::object::Object;
use corelo_core::prepare::{AttachTarget, Options, Plan};
use corelo_tests::corpus::corpus;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::{fixture, fixtures};
use corelo_tests::insn::{decode, without_references};
use corelo_tests::kernel;
use corelo_tests::libbpf::{self, Autoload, LogStatus, Outcome};

/// The minimal BTF for some objects; `None` where none of them asks.
fn minimal_btf(objects: &[Vec<u8>], btf: &[u8]) -> Option<Vec<u8>> {
    let mut buffer = vec![0u8; 64 << 20];
    let mut arena = Arena::new(&mut buffer);
    let objects: Vec<Object<'_>> = objects.iter().filter_map(|bytes| Object::parse(bytes).ok()).collect();
    let mut plans = Vec::new();
    for object in &objects {
        plans.extend(Plan::new(object, Options::default(), &mut arena).ok().filter(Plan::asks_kernel));
    }
    if plans.is_empty() {
        return None;
    }
    let needs: Vec<_> = plans.iter().map(Plan::needs).collect();
    Some(minimal(&needs, btf, None, &mut arena).ok()?.blob.to_vec())
}

fn prepare(object: &Path, btf: &Path) -> Option<Outcome> {
    let options = libbpf::Options {
        custom_btf: Some(btf.to_owned()),
        autoload: Autoload::All,
        size_maps: true,
        ..Default::default()
    };
    libbpf::run(object, &options).ok()
}

/// What became of a relocation, without ids of the BTF.
fn status(status: &LogStatus) -> String {
    match status {
        LogStatus::Failed(_) => "failed".into(),
        status => format!("{status:?}"),
    }
}

#[derive(Debug, Default)]
struct Count {
    objects: usize,
    relocations: usize,
    insns: usize,
}

fn compare(name: &str, object: &Path, whole_path: &Path, small_path: &Path, count: &mut Count) {
    let Some(whole) = prepare(object, whole_path) else { return };
    let small = prepare(object, small_path).unwrap_or_else(|| panic!("{name}: libbpf opened it before"));
    let refused = ["failed to parse target BTF", "failed to get BTF", "Invalid BTF", "failed to load BTF"];
    assert!(!refused.iter().any(|text| small.log.contains(text)), "{name}: {}", small.log);
    let (before, after) = (whole.core_relos(), small.core_relos());
    let is_id = |kind: &str| kind.contains("type_id");
    let mut ids = BTreeSet::new();
    assert_eq!(before.len(), after.len(), "{name}: {:?}, {:?}", whole.failed, small.failed);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((&before.program, before.relo_idx), (&after.program, after.relo_idx), "{name}");
        if is_id(&before.kind) {
            ids.insert(before.program.clone());
            continue;
        }
        assert_eq!(status(&before.status), status(&after.status), "{name}: {before:?}\n{after:?}");
        count.relocations += 1;
    }
    for (before, after) in whole.programs.iter().zip(&small.programs) {
        let insns = |bytes: &[u8]| decode(&without_references(bytes, Endian::Little), Endian::Little);
        let (one, other) = (insns(&before.insns), insns(&after.insns));
        assert_eq!(one.len(), other.len(), "{name}: {}", before.name);
        let has_ids = !ids.is_empty();
        for (slot, (one, other)) in one.iter().zip(&other).enumerate() {
            // An id of a type is another one in another BTF.
            if one != other
                && has_ids
                && (one.code, one.dst, one.src, one.off) == (other.code, other.dst, other.src, other.off)
            {
                continue;
            }
            assert_eq!(one, other, "{name}: {} slot {slot}", before.name);
            count.insns += 1;
        }
    }
    count.objects += 1;
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).expect("a temporary file");
    path
}

#[test]
fn libbpf_takes_it_and_gives_the_same_instructions() {
    if !kernel::require_kernel("prepare objects with libbpf") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut count = Count::default();
    for item in fixtures().into_iter().filter(|item| item.endian == Endian::Little) {
        let target = match item.name.as_str() {
            "core_insns_v4" => fixture("core_insns", item.endian).target_btf,
            _ => item.target_btf.clone(),
        };
        let target = target.unwrap_or_else(|| PathBuf::from("/sys/kernel/btf/vmlinux"));
        let btf = std::fs::read(&target).expect("a BTF");
        let Some(blob) = minimal_btf(&[item.read()], &btf) else { continue };
        compare(&item.name, &item.path, &target, &write(dir.path(), "small.btf", &blob), &mut count);
    }
    println!("fixtures: {count:?}");
    assert!(count.relocations > 150);
    let Some(corpus) = corpus() else { return };
    for name in ["amd64-5.10.223", "amd64-7.2.13"] {
        let kernel = corpus.kernel(name);
        let btf = kernel.btf();
        let mut count = Count::default();
        for verdict in corpus.verdicts().iter().filter(|verdict| verdict.endian == "LE" && verdict.opens()) {
            let object = corpus.path(&verdict.object);
            let Some(blob) = minimal_btf(&[corpus.read(&verdict.object)], &btf) else { continue };
            let small = write(dir.path(), "small.btf", &blob);
            compare(&format!("{} on {name}", verdict.object), &object, &kernel.btf_path(), &small, &mut count);
        }
        println!("{name}: {count:?}");
        assert!(count.relocations > 1000);
    }
}

/// A BTF made for another object is no BTF for this one: the comparison above sees that.
#[test]
fn libbpf_sees_when_the_types_are_those_of_another_object() {
    if !kernel::require_kernel("prepare objects with libbpf") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let item = fixture("core_fields", Endian::Little);
    let whole = item.target_btf.clone().expect("it has a target");
    let other = fixture("core_enums", Endian::Little);
    let blob = minimal_btf(&[other.read()], &other.read_target().expect("it has a target")).expect("it asks");
    let small = write(dir.path(), "small.btf", &blob);
    let statuses = |btf: &Path| -> Vec<String> {
        let outcome = prepare(&item.path, btf).expect("libbpf opens it");
        outcome.core_relos().iter().map(|relo| status(&relo.status)).collect()
    };
    assert_ne!(statuses(&whole), statuses(&small));
}

/// Bytes of `long unsigned int` and its name.
const LONG_TYPE: usize = 16 + 18;

fn asks_relocations_only(object: &[u8], btf: &[u8]) -> bool {
    let mut buffer = vec![0u8; 8 << 20];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(object).expect("it was planned before");
    let Ok(prepared) = corelo_core::prepare::prepare(&object, Some(btf), Options::default(), &mut arena) else {
        return false;
    };
    let programs = prepared.declared().programs().map(|(number, _)| number);
    let mut targets = programs.map(|number| prepared.attach_target(number));
    targets.all(|target| target == AttachTarget::None) && prepared.declared().externs().is_empty()
}

#[test]
fn sizes_beside_bpftool() {
    let Some(corpus) = corpus() else { return };
    if !kernel::has_bpftool() {
        kernel::skip("sizes beside bpftool", "no bpftool");
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let theirs_path = dir.path().join("theirs.btf");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    for name in ["amd64-6.12.117", "s390x-7.2.13"] {
        let kernel = corpus.kernel(name);
        let (btf, btf_path) = (kernel.btf(), text(&kernel.btf_path()));
        let endian = if kernel.endian() == Endian::Big { "BE" } else { "LE" };
        let (mut ours, mut theirs, mut objects, mut refused) = (0, 0, 0, 0);
        // Those that ask for nothing but CO-RE relocations, which is all that bpftool looks at.
        let (mut core_ours, mut core_theirs, mut core_objects) = (0, 0, 0);
        for verdict in corpus.verdicts().iter().filter(|verdict| verdict.endian == endian) {
            let bytes = corpus.read(&verdict.object);
            let Some(blob) = minimal_btf(std::slice::from_ref(&bytes), &btf) else { continue };
            let object = text(&corpus.path(&verdict.object));
            if kernel::bpftool_plain(&["gen", "min_core_btf", &btf_path, &text(&theirs_path), &object]).is_err() {
                refused += 1;
                continue;
            }
            let size = std::fs::metadata(&theirs_path).map_or(0, |meta| meta.len() as usize);
            objects += 1;
            ours += blob.len();
            theirs += size;
            if asks_relocations_only(&bytes, &btf) {
                core_objects += 1;
                core_ours += blob.len();
                core_theirs += size;
                // The long integer type, which bpftool leaves out: libbpf then takes 8 bytes for a pointer.
                assert!(blob.len() <= size + LONG_TYPE, "{object}: {} bytes, bpftool {size}", blob.len());
            }
        }
        println!(
            "{name}: {objects} objects: {ours} bytes, bpftool {theirs}; {core_objects} with relocations only: {core_ours} bytes, bpftool {core_theirs}; bpftool refuses {refused}"
        );
        assert!(objects + refused > 0);
    }
}

//! Raw dumps compared line by line with bpftool's, on every BTF at hand.

use std::path::Path;

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::{Btf, DEFAULT_STRIDE, Types, raw};
use corelo_tests::corpus::corpus;
use corelo_tests::elf_reader::section_data;
use corelo_tests::fixtures::fixtures;
use corelo_tests::kernel::{bpftool_plain, has_bpftool, skip};

fn can_run() -> bool {
    if !has_bpftool() {
        skip("compare dumps with bpftool", "bpftool cannot be run");
    }
    has_bpftool()
}

fn arena_bytes(blob: &[u8]) -> Vec<u8> {
    vec![0; blob.len() / 12 + 4096]
}

fn compare(what: &str, types: &Types<'_>, bpftool: &str) -> usize {
    let mut ours = String::new();
    raw::dump(types, &mut ours).unwrap_or_else(|error| panic!("{what}: {error}"));
    for (number, (ours, theirs)) in ours.lines().zip(bpftool.lines()).enumerate() {
        assert_eq!(ours, theirs, "{what}, line {}", number + 1);
    }
    assert_eq!(ours.lines().count(), bpftool.lines().count(), "{what}");
    ours.lines().count()
}

fn run_bpftool(path: &Path, base: Option<&Path>) -> Result<String, String> {
    let path = path.to_str().expect("a UTF-8 path");
    match base.map(|base| base.to_str().expect("a UTF-8 path")) {
        Some(base) => bpftool_plain(&["-B", base, "btf", "dump", "file", path, "format", "raw"]),
        None => bpftool_plain(&["btf", "dump", "file", path, "format", "raw"]),
    }
}

#[test]
fn kernels_and_modules_are_dumped_as_bpftool_does() {
    let Some(corpus) = corpus().filter(|_| can_run()) else {
        return;
    };
    let (mut kernels, mut modules, mut lines, mut refused) = (0, 0, 0, Vec::new());
    for kernel in corpus.kernels() {
        let blob = kernel.btf();
        let mut buffer = arena_bytes(&blob);
        let mut arena = Arena::new(&mut buffer);
        let btf = Btf::parse(&blob).expect(&kernel.name);
        let base = Types::index(btf, DEFAULT_STRIDE, None, &mut arena, Part::KernelIndex).expect(&kernel.name);
        match run_bpftool(&kernel.btf_path(), None) {
            Ok(text) => {
                lines += compare(&kernel.name, &base, &text);
                kernels += 1;
            }
            Err(error) => refused.push(format!("{}: {error}", kernel.name)),
        }
        for module in kernel.modules() {
            let what = format!("{} {module}", kernel.name);
            let blob = kernel.module_btf(&module);
            let mut buffer = arena_bytes(&blob);
            let mut arena = Arena::new(&mut buffer);
            let btf = Btf::parse_split(&blob, &base).expect(&what);
            let types = Types::index(btf, DEFAULT_STRIDE, Some(&base), &mut arena, Part::KernelIndex).expect(&what);
            match run_bpftool(&kernel.module_path(&module), Some(&kernel.btf_path())) {
                Ok(text) => {
                    lines += compare(&what, &types, &text);
                    modules += 1;
                }
                Err(error) => refused.push(format!("{what}: {error}")),
            }
        }
    }
    println!("{kernels} kernels and {modules} modules, {lines} lines as bpftool; bpftool cannot read {refused:?}");
    assert!(kernels > 0 && modules > 0 && lines > 1_000_000);
}

#[test]
fn objects_are_dumped_as_bpftool_does() {
    if !can_run() {
        return;
    }
    let (mut objects, mut lines, mut refused) = (0, 0, Vec::new());
    let dir = tempfile::tempdir().expect("a temporary directory");
    for fixture in fixtures() {
        let object = fixture.read();
        let Some(blob) = section_data(&object, ".BTF") else {
            continue;
        };
        let what = format!("{fixture:?}");
        let path = dir.path().join("fixture.btf");
        std::fs::write(&path, blob).expect("a writable temporary directory");
        let mut buffer = arena_bytes(blob);
        let mut arena = Arena::new(&mut buffer);
        let types =
            Btf::parse(blob).and_then(|btf| Types::index(btf, DEFAULT_STRIDE, None, &mut arena, Part::LocalIndex));
        match (types, run_bpftool(&path, None)) {
            (Ok(types), Ok(text)) => {
                lines += compare(&what, &types, &text);
                objects += 1;
            }
            (Err(error), Ok(_)) => panic!("{what}: {error}, but bpftool reads it"),
            (_, Err(error)) => refused.push(format!("{what}: {error}")),
        }
    }
    println!("{objects} objects, {lines} lines as bpftool; bpftool cannot read {refused:?}");
    assert!(objects > 20);
}

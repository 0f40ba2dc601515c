//! What the command says of objects that are at fault, or to be remarked on: what it is, and what to do about it.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{corelo, fixture, has_kernel, lines};
use corelo_loader::loader::Loader;
use corelo_loader::prepare::Kernel;
use corelo_tests::fake_kernel::{FakeKernel, require_fake_kernel};

/// The one line on standard error of a command that fails with `code`.
#[track_caller]
fn told(args: &[&str], code: i32) -> String {
    let run = corelo(args);
    assert_eq!((run.code, run.stderr.lines().count()), (code, 1), "{args:?}: {}", run.stderr);
    run.stderr
}

#[track_caller]
fn says(text: &str, wanted: &[&str]) {
    for wanted in wanted {
        assert!(text.contains(wanted), "{wanted:?} is not in {text:?}");
    }
}

#[test]
fn a_section_without_the_target_that_its_type_is_loaded_for() {
    if !has_kernel() {
        return;
    }
    let text = told(&["load", &fixture("told_no_target-el.o")], 1);
    says(&text, &["program program (section fentry): no target is given", r#"SEC("fentry/NAME")"#]);
}

#[test]
fn a_malformed_target_is_an_error_and_an_absent_one_a_note() {
    if !has_kernel() {
        return;
    }
    let text = told(&["run", &fixture("told_malformed_target-el.o"), "--for", "0.1"], 1);
    says(&text, &["program program (section kprobe/do_nanosleep+-4): cannot be attached", "malformed"]);
    let text = told(&["run", &fixture("told_absent_target-el.o"), "--for", "0.1"], 0);
    says(&text, &["note: ", "program program (section kprobe): not attached: its section names no target"]);
    // It can be loaded, as with libbpf, and attached by hand.
    assert_eq!(corelo(&["load", &fixture("told_malformed_target-el.o")]).code, 0);
}

#[test]
fn a_program_that_replaces_a_function_of_another() {
    if !has_kernel() {
        return;
    }
    let object = fixture("obj_replace-el.o");
    let text = told(&["load", &object], 1);
    says(&text, &["program new_add (section freplace/weak_add): its target is a program", "--replace PROGRAM=TARGET"]);
    let text = told(&["load", &object, "--replace", "new_add=/sys/fs/bpf/corelo_no_such_pin"], 2);
    says(&text, &["--replace new_add=/sys/fs/bpf/corelo_no_such_pin: ", "not found (ENOENT)"]);
    let text = told(&["load", &object, "--replace", "new_add=id:4294967295"], 2);
    says(&text, &["--replace new_add=id:4294967295: not found (ENOENT)"]);
    // A target that is there, for a program that is not.
    let weak = std::fs::read(fixture("obj_weak-el.o")).unwrap();
    let kernel = Kernel::running();
    let mut buffer = vec![0; 1 << 20];
    let weak = Loader::new(&weak).load(&kernel, &mut buffer).unwrap();
    let id = weak.program("calls").unwrap().info().unwrap().id;
    let text = told(&["load", &object, "--replace", &format!("other=id:{id}")], 2);
    says(&text, &["the object has no program other; it has new_add"]);
}

#[test]
fn a_refused_program_comes_with_the_verifiers_log_its_source_lines_and_the_last_state() {
    if !has_kernel() {
        return;
    }
    let run = corelo(&["load", &fixture("refused-el.o")]);
    assert_eq!(run.code, 1);
    let (first, log) = run.stderr.split_once('\n').unwrap();
    says(first, &["program no_null_check (section socket)", "the verifier says: R"]);
    says(log, &["the verifier's log:", "; return *n;", "map_value_or_null"]);
    assert!(log.lines().skip(1).all(|line| line.starts_with("  ")), "{log}");
}

#[test]
fn a_pin_without_a_bpf_file_system() {
    if !has_kernel() {
        return;
    }
    let script = "while umount /sys/fs/bpf 2>/dev/null; do :; done; exec \"$0\" load \"$1\"";
    let object = fixture("told_pin-el.o");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_corelo"), &object])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    says(&text, &["map corelo_told_pin: /sys/fs/bpf/corelo_told_pin: ", "mount -t bpf bpf /sys/fs/bpf"]);
}

#[test]
fn a_slot_whose_program_is_not_loaded() {
    if !has_kernel() {
        return;
    }
    let run = corelo(&["load", &fixture("told_empty_slot-el.o"), "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    says(&run.stderr, &["note: ", "map jumps: slot 0 stays empty: program left_out is not loaded\n"]);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    let maps = lines(&run.stdout)[0]["maps"].clone();
    assert_eq!((&maps[0]["name"], &maps[0]["type"]), (&"jumps".into(), &"prog_array".into()));
}

#[test]
fn maps_of_global_data_bear_the_objects_name_as_with_libbpf() {
    if !has_kernel() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let object = directory.path().join("watch.bpf.o");
    std::fs::copy(fixture("obj_globals-el.o"), &object).unwrap();
    let run = corelo(&["load", object.to_str().unwrap(), "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let maps = lines(&run.stdout)[0]["maps"].clone();
    let ids: Vec<_> = maps.as_array().unwrap().iter().map(|map| map["kernel_name"].as_str().unwrap()).collect();
    for wanted in ["watch.rodata", "watch.data", "watch.bss"] {
        assert!(ids.contains(&wanted), "{wanted}: {ids:?}");
    }
}

#[test]
fn a_poisoned_relocation_says_why_in_text_as_in_json() {
    let object = fixture("told_missing_field-el.o");
    let arguments = ["relocs", &object, "--btf", &fixture("core_fields-target-el.btf")];
    let run = corelo(&arguments);
    assert_eq!(run.code, 0, "{}", run.stderr);
    says(&run.stdout, &["poisoned", ": no candidate\n"]);

    // The fixture of fields has one that only the local type has.
    let object = fixture("core_fields-el.o");
    let arguments = ["relocs", &object, "--btf", &fixture("core_fields-target-el.btf")];
    let (text, json) = (corelo(&arguments), corelo(&[&arguments[..], &["--json"]].concat()));
    let rows = lines(&json.stdout);
    let poisoned: Vec<_> = rows.iter().filter(|row| row["status"] == "poisoned").collect();
    assert!(!poisoned.is_empty());
    for (row, line) in rows.iter().zip(text.stdout.lines()) {
        for candidate in row["candidates"].as_array().unwrap().iter().filter(|_| row["status"] == "poisoned") {
            says(line, &[candidate["result"].as_str().unwrap()]);
        }
    }
}

/// A copy of a fixture in which `change` was made to the header of each section of this name.
fn bent(object: &str, section: &[u8], change: impl Fn(&mut [u8])) -> (tempfile::TempDir, PathBuf) {
    let mut bytes = std::fs::read(fixture(object)).unwrap();
    let number = |bytes: &[u8], at: usize, len: usize| {
        let mut word = [0; 8];
        word[..len].copy_from_slice(&bytes[at..at + len]);
        u64::from_le_bytes(word) as usize
    };
    let (headers, count, names) = (number(&bytes, 40, 8), number(&bytes, 60, 2), number(&bytes, 62, 2));
    let names = number(&bytes, headers + 64 * names + 24, 8);
    let mut changed = false;
    for header in (0..count).map(|index| headers + 64 * index) {
        let name = names + number(&bytes, header, 4);
        if bytes[name..].starts_with(&[section, b"\0"].concat()) {
            change(&mut bytes[header..header + 64]);
            changed = true;
        }
    }
    assert!(changed);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bent.o");
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

#[test]
fn what_is_no_bpf_object_says_what_it_is() {
    let program = env!("CARGO_BIN_EXE_corelo");
    let text = told(&["relocs", program], 2);
    says(&text, &["not a 64-bit relocatable BPF object", "compile it with clang -target bpf"]);
    if cfg!(target_arch = "x86_64") {
        says(&text, &["an object for x86-64"]);
    }
}

#[test]
fn compressed_and_huge_sections_are_named_as_such() {
    let compressed = |header: &mut [u8]| header[9] |= 8;
    for section in [&b".rodata"[..], b".BTF", b".BTF.ext"] {
        let (_directory, path) = bent("obj_globals-el.o", section, compressed);
        let text = told(&["budget", path.to_str().unwrap()], 2);
        says(&text, &["is compressed"]);
    }
    let (_directory, path) = bent("obj_globals-el.o", b".bss", |header| header[36] = 2);
    let text = told(&["budget", path.to_str().unwrap()], 1);
    says(&text, &["has more data than the 4 GiB of a map", "`.bss`"]);
}

#[test]
fn struct_ops_without_btf() {
    let nameless = |header: &mut [u8]| header[..4].fill(0);
    let (_directory, path) = bent("obj_struct_ops-el.o", b".BTF", nameless);
    let text = told(&["budget", path.to_str().unwrap()], 1);
    says(&text, &["of struct_ops tables needs BTF", "compile it with -g", "`.struct_ops`"]);
}

#[test]
fn attach_types_have_names() {
    if !has_kernel() {
        return;
    }
    let run = corelo(&["load", &fixture("told_empty_slot-el.o"), "--json"]);
    let programs = lines(&run.stdout)[0]["programs"].clone();
    assert_eq!((&programs[0]["type"], &programs[0]["attach_type"]), (&"xdp".into(), &"xdp".into()));
    let run = corelo(&["load", &fixture("refused-el.o"), "--skip", "no_null_check", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let run = corelo(&["load", &fixture("told_pin-el.o"), "--json"]);
    assert_eq!(lines(&run.stdout)[0]["programs"][0]["attach_type"], serde_json::Value::Null);
    std::fs::remove_file("/sys/fs/bpf/corelo_told_pin").unwrap();
}

#[test]
fn models_of_inner_maps_are_named_as_with_libbpf() {
    if !require_fake_kernel("look at the maps that are created") || !has_kernel() {
        return;
    }
    let object = fixture("obj_maps-el.o");
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelo"));
    // As new as this one: nothing is refused.
    let (output, log) = FakeKernel::new(9, 9).run(command.args(["load", &object]));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    const MAP_CREATE: u32 = 0;
    // `map_name` is at byte 28 of the argument block.
    let names: Vec<String> = log
        .taken(MAP_CREATE)
        .map(|call| {
            let name: Vec<u8> = (28..44).step_by(4).flat_map(|at| call.word(at).to_ne_bytes()).collect();
            String::from_utf8(name).unwrap().trim_end_matches('\0').to_owned()
        })
        .collect();
    assert!(names.iter().any(|name| name.ends_with(".inner") || name.ends_with(".inn")), "{names:?}");
    assert!(names.iter().all(|name| !name.is_empty()), "{names:?}");
}

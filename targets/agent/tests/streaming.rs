//! Where the kernel's BTF comes from: mapped, read piece by piece, read whole. What is made of the object never depends
//! on it.
//!
//! Kernels before 6.16 refuse to map their BTF. That refusal is had from any kernel by strace, which lets this one call
//! fail; targets/ci-qemu.sh has kernels that refuse by themselves.

mod common;

use std::process::Command;

use common::{Run, corelo, fixture, has_kernel, lines};
use corelo_tests::kernel::skip;

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// Runs `corelo` on a kernel that refuses to map its BTF; `before` is a shell command that is done first in the mount
/// namespace that it runs in.
fn refused_after(before: &str, args: &[&str]) -> Run {
    let strace =
        ["strace", "-f", "-o", "/dev/null", "-P", VMLINUX, "-e", "trace=mmap", "-e", "inject=mmap:error=ENODEV"];
    let script = format!("{before} && exec \"$@\"");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script, "sh"])
        .args(strace)
        .arg(env!("CARGO_BIN_EXE_corelo"))
        .args(args)
        .output()
        .unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn refused(args: &[&str]) -> Run {
    refused_after("true", args)
}

/// Whether strace is here and may trace; says so where not, and fails where it must.
fn can_refuse() -> bool {
    if !has_kernel() {
        return false;
    }
    match Command::new("strace").args(["-o", "/dev/null", "true"]).status() {
        Ok(status) if status.success() => return true,
        Ok(status) => skip("let a call fail", &format!("strace does not trace: {status}")),
        Err(error) => skip("let a call fail", &format!("strace: {error}")),
    }
    false
}

/// How this kernel's BTF comes into a process when nothing else is asked for.
fn by_default() -> (&'static str, &'static str) {
    let whole = lines(&corelo(&["load", &fixture("many_progs-el.o"), "--json", "--read"]).stdout);
    if whole[0]["btf_source"] == "mmap" { ("mmap", "mmap") } else { ("streamed", "read") }
}

#[test]
fn the_source_is_told_as_it_is() {
    if !can_refuse() {
        return;
    }
    let object = fixture("many_progs-el.o");
    let (by_default, with_read) = by_default();
    let rows: [(&[&str], &str, &str); 4] = [
        (&[], by_default, "streamed"),
        (&["--read"], with_read, "read"),
        (&["--stream"], "streamed", "streamed"),
        (&["--stream", "--window", "16384"], "streamed", "streamed"),
    ];
    for (more, here, where_refused) in rows {
        let args = [&["load", &object, "--json"], more].concat();
        for (run, wanted) in [(corelo(&args), here), (refused(&args), where_refused)] {
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{more:?}");
            let loaded = &lines(&run.stdout)[0];
            assert_eq!(loaded["btf_source"], wanted, "{more:?}");
            assert_eq!((&loaded["patched"], &loaded["poisoned"]), (&90.into(), &0.into()), "{more:?}");
        }
    }
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(VMLINUX, copy.path()).unwrap();
    let copy = copy.path().to_str().unwrap();
    for (more, wanted) in [(&[][..], "file"), (&["--read"], "file"), (&["--stream"], "streamed")] {
        let run = corelo(&[&["load", &object, "--json", "--btf", copy], more].concat());
        assert_eq!(lines(&run.stdout)[0]["btf_source"], wanted, "{more:?}: {}", run.stderr);
    }
    let asks_nothing = fixture("nothing_asked-el.o");
    for more in [&[][..], &["--read"], &["--stream"]] {
        let args = [&["load", &asks_nothing, "--json"], more].concat();
        for run in [corelo(&args), refused(&args)] {
            assert_eq!(lines(&run.stdout)[0]["btf_source"], "not needed", "{more:?}: {}", run.stderr);
        }
    }
    let summary = |run: Run| lines(&run.stdout).last().unwrap()["summary"].clone();
    assert_eq!(summary(refused(&["run", "--for", "0.3", "--json"]))["btf_source"], "streamed");
    assert_eq!(summary(refused(&["run", "--for", "0.3", "--json", "--read"]))["btf_source"], "read");
}

#[test]
fn relocations_and_instructions_are_the_same_from_every_source() {
    if !can_refuse() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut compared = 0;
    let monitor = format!("{}/bpf/exec_monitor.bpf.o", env!("CARGO_MANIFEST_DIR"));
    let names = ["many_progs", "obj_trampolines", "obj_ksyms", "obj_kfunc", "obj_struct_ops", "obj_iter", "core_types"];
    for object in names.map(|name| fixture(&format!("{name}-el.o"))).into_iter().chain([monitor]) {
        let relocs = ["relocs", &object, "--json"];
        let wanted = corelo(&relocs);
        for (what, run) in [
            ("refused", refused(&relocs)),
            ("refused, read", refused(&["relocs", &object, "--json", "--read"])),
            ("streamed", corelo(&["relocs", &object, "--json", "--stream"])),
            ("streamed, small", corelo(&["relocs", &object, "--json", "--stream", "--window", "1024"])),
        ] {
            assert_eq!((run.code, &run.stderr), (wanted.code, &wanted.stderr), "{object}, {what}");
            assert!(run.stdout == wanted.stdout, "{object}, {what}: {}\n{}", run.stdout, wanted.stdout);
            compared += run.stdout.lines().count();
        }
        let insns = |number: u32, run: &dyn Fn(&[&str]) -> Run| {
            let out = dir.path().join(number.to_string());
            let code = run(&["insns", &object, "--out", out.to_str().unwrap()]).code;
            let files = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
            let mut files: Vec<_> = files.map(|path| (path.file_name().unwrap().to_owned(), path)).collect();
            files.sort();
            let files: Vec<_> = files.into_iter().map(|(name, path)| (name, std::fs::read(path).unwrap())).collect();
            std::fs::remove_dir_all(out).unwrap();
            (code, files)
        };
        assert!(insns(0, &corelo) == insns(1, &refused), "{object}");
    }
    assert!(compared > 400, "{compared}");
}

/// BTF of a module that has nothing but `struct absent { TYPE_2 a; }`, at bit 64, split on a kernel whose strings take
/// `base_strings` bytes.
fn module_with(name: &str, base_strings: u32) -> Vec<u8> {
    assert_eq!(name.len(), 6);
    let strings = &format!("{name}\0a\0").into_bytes();
    let struct_words = [base_strings, 4 << 24 | 1, 12, base_strings + 7, 2, 64];
    let type_bytes = size_of_val(&struct_words) as u32;
    let mut bytes = [0x9f, 0xeb, 1, 0].to_vec();
    for word in [24, 0, type_bytes, type_bytes, strings.len() as u32].into_iter().chain(struct_words) {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(strings);
    bytes
}

/// The two BTF files, in a directory, of a kernel that lacks `struct absent` and a module that has it.
fn kernel_and_module() -> (tempfile::TempDir, String, String) {
    let kernel = fixture("core_fields-target-el.btf");
    let bytes = std::fs::read(&kernel).unwrap();
    let base_strings = u32::from_le_bytes(*bytes[20..].first_chunk().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let module = dir.path().join("other.btf");
    std::fs::write(&module, module_with("absent", base_strings)).unwrap();
    // What nobody asks for.
    std::fs::write(dir.path().join("idle.btf"), module_with("idlers", base_strings)).unwrap();
    let module = module.to_str().unwrap().to_owned();
    (dir, kernel, module)
}

fn has_absent(run: &Run) -> bool {
    let rows = lines(&run.stdout);
    let row = rows.iter().find(|row| row["spec"] == "struct absent.a" && row["kind"] == "byte_off").unwrap();
    row["target_value"] == 8
}

#[test]
fn modules_are_searched_and_faults_told_with_stream_too() {
    let (dir, kernel, module) = kernel_and_module();
    let object = fixture("core_fields-el.o");
    let named = format!("other={module}");
    let relocs = |more: &[&str]| corelo(&[&["relocs", &object, "--json", "--btf", &kernel], more].concat());
    let without = relocs(&[]);
    assert!(!has_absent(&without));
    // Nothing to search: it stays streamed, and nothing is to be noted.
    let streamed = relocs(&["--stream"]);
    assert_eq!((&streamed.stdout, &streamed.stderr), (&without.stdout, &without.stderr));

    // Faults are told in the same words.
    let foreign = fixture("core_fields-target-eb.btf");
    for btf in [foreign.as_str(), "/nonexistent", "/proc/version"] {
        let whole = corelo(&["relocs", &object, "--btf", btf]);
        let streamed = corelo(&["relocs", &object, "--btf", btf, "--stream"]);
        assert_eq!((whole.code, &whole.stderr), (2, &streamed.stderr), "{btf}");
        assert_eq!((streamed.code, streamed.stderr.lines().count()), (2, 1), "{btf}");
    }

    let with = relocs(&["--module-btf", &named]);
    assert!(has_absent(&with));
    let streamed = relocs(&["--module-btf", &named, "--stream"]);
    assert_eq!((streamed.code, &streamed.stdout), (with.code, &with.stdout));
    let note = format!(
        "corelo: note: {object} asks for what module other may have, which takes the kernel's BTF as a whole: --stream is \
         given up\n"
    );
    assert_eq!(streamed.stderr, format!("{note}{}", with.stderr));

    // A module that has nothing of what is asked does not cost the whole; it is left out, and the other is found behind it.
    let idle = format!("idle={}", dir.path().join("idle.btf").display());
    let streamed = relocs(&["--module-btf", &idle, "--stream"]);
    assert_eq!((&streamed.stdout, &streamed.stderr), (&without.stdout, &without.stderr));
    let both = relocs(&["--module-btf", &idle, "--module-btf", &named]);
    assert_eq!((both.code, &both.stdout, &both.stderr), (with.code, &with.stdout, &with.stderr));
}

#[test]
fn modules_are_searched_where_the_kernel_refuses_to_be_mapped() {
    if !can_refuse() {
        return;
    }
    let (_dir, kernel, module) = kernel_and_module();
    let object = fixture("core_fields-el.o");
    let place = format!("mount -t tmpfs none /sys/kernel/btf && cp {kernel} {VMLINUX}");
    let with_module = format!("{place} && cp {module} /sys/kernel/btf/other");
    let relocs = ["relocs", &object, "--json"];
    let with = refused_after(&with_module, &relocs);
    let named = corelo(&["relocs", &object, "--json", "--btf", &kernel, "--module-btf", &format!("other={module}")]);
    assert!(has_absent(&with));
    assert_eq!((with.code, &with.stdout, &with.stderr), (named.code, &named.stdout, &named.stderr));
    let without = refused_after(&place, &relocs);
    assert!(!has_absent(&without));
    assert_eq!(without.stdout, corelo(&["relocs", &object, "--json", "--btf", &kernel]).stdout);
}

#[test]
fn modules_that_cannot_be_listed_are_none() {
    if !can_refuse() {
        return;
    }
    let object = fixture("core_fields-el.o");
    let said = corelo(&["relocs", &object, "--json"]);
    let output = Command::new("strace")
        .args([
            "-f",
            "-o",
            "/dev/null",
            "-P",
            "/sys/kernel/btf",
            "-e",
            "trace=openat",
            "-e",
            "inject=openat:error=EACCES",
        ])
        .args([env!("CARGO_BIN_EXE_corelo"), "relocs", &object, "--json"])
        .output()
        .unwrap();
    let note = "corelo: note: modules are not searched: /sys/kernel/btf: access denied (EACCES)\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("{note}{}", said.stderr));
    assert_eq!((output.status.code(), String::from_utf8(output.stdout).unwrap()), (Some(said.code), said.stdout));
}

#[test]
fn a_budget_for_streaming_is_exact() {
    let kernel = fixture("core_fields-target-el.btf");
    let (_dir, _, module) = kernel_and_module();
    let named = format!("other={module}");
    let object = |name: &str| fixture(&format!("{name}-el.o"));
    let (enums, enums_btf) = (object("core_enums"), fixture("core_enums-target-el.btf"));
    let (arrays, arrays_btf) = (object("core_arrays"), fixture("core_arrays-target-el.btf"));
    let fields = object("core_fields");
    let rows: [&[&str]; 6] = [
        &[&enums, "--btf", &enums_btf],
        &[&arrays, "--btf", &arrays_btf],
        &[&fields, "--btf", &kernel],
        // What streaming took before it was given up counts too, as does what comes after.
        &[&fields, "--btf", &kernel, "--module-btf", &named],
        &[&fields, "--btf", &kernel, "--module-btf", &named, "--window", "1024"],
        &[&object("nothing_asked"), "--btf", "/nonexistent"],
    ];
    let mut compared = 0;
    for row in rows {
        let budget = |more: &[&str]| corelo(&[&["budget"], row, &["--stream"], more].concat());
        let run = budget(&["--json"]);
        if run.code != 0 {
            // Some programs of these are made to fail; then there is no budget, but a reason.
            assert!(run.stderr.contains("relocation of"), "{row:?}: {}", run.stderr);
            continue;
        }
        let parts = &lines(&run.stdout)[0];
        let bytes = parts["arena_bytes"].as_u64().unwrap();
        let sum: u64 = parts["parts"].as_object().unwrap().values().map(|part| part.as_u64().unwrap()).sum();
        assert_eq!(sum, bytes, "{row:?}: {parts}");
        let exact = budget(&["--arena", &bytes.to_string()]);
        assert_eq!(exact.code, 0, "{row:?}, {bytes}: {}", exact.stderr);
        assert!(exact.stdout.contains(&format!("{bytes:>10}  bytes of arena")), "{row:?}: {}", exact.stdout);
        let short = budget(&["--arena", &(bytes - 1).to_string()]);
        assert_eq!(short.code, 1, "{row:?}, {bytes}: {}", short.stderr);
        assert!(short.stderr.contains("corelo: arena too small: "), "{}", short.stderr);
        compared += 1;
    }
    assert!(compared >= 5, "{compared}");
}

#[test]
fn with_the_budget_it_streams_and_with_a_byte_less_it_does_not() {
    if !can_refuse() {
        return;
    }
    let monitor = format!("{}/bpf/exec_monitor.bpf.o", env!("CARGO_MANIFEST_DIR"));
    let names = ["many_progs", "many_progs_legacy", "nothing_asked", "obj_kconfig", "obj_run"];
    for object in names.map(|name| fixture(&format!("{name}-el.o"))).into_iter().chain([monitor]) {
        let bytes_of = |run: Run| {
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{object}");
            lines(&run.stdout)[0]["arena_bytes"].as_u64().unwrap()
        };
        for window in ["1024", "4096"] {
            let bytes = bytes_of(corelo(&["budget", &object, "--json", "--stream", "--window", window]));
            let load = |bytes: u64| {
                let bytes = bytes.to_string();
                corelo(&["load", &object, "--stream", "--window", window, "--arena", &bytes, "--json"])
            };
            let exact = load(bytes);
            assert_eq!(exact.code, 0, "{object}, {bytes}: {}", exact.stderr);
            assert_eq!(lines(&exact.stdout)[0]["arena_used"], bytes, "{object}");
            let short = load(bytes - 1);
            assert_eq!(short.code, 1, "{object}, {}: {}", bytes - 1, short.stderr);
            assert!(short.stderr.starts_with("corelo: arena too small: "), "{}", short.stderr);
        }
        // The other budget does not depend on what the kernel maps, and is enough where it maps nothing. Streaming by
        // default, through a window of 4096 bytes, may do with less.
        let bytes = bytes_of(corelo(&["budget", &object, "--json"]));
        assert_eq!(bytes, bytes_of(refused(&["budget", &object, "--json"])), "{object}");
        let load = |bytes: u64| refused(&["load", &object, "--arena", &bytes.to_string(), "--json"]);
        let enough = load(bytes);
        assert_eq!((enough.code, enough.stderr.as_str()), (0, ""), "{object}, {bytes}");
        let least = bytes.min(bytes_of(corelo(&["budget", &object, "--json", "--stream"])));
        let exact = load(least);
        assert_eq!((exact.code, exact.stderr.as_str()), (0, ""), "{object}, {least}");
        let short = load(least - 1);
        assert_eq!(short.code, 1, "{object}, {}: {}", least - 1, short.stderr);
        assert!(short.stderr.starts_with("corelo: arena too small: "), "{}", short.stderr);
    }
}

#[test]
fn an_arena_that_is_too_small_for_streaming_may_do_for_the_whole() {
    if !can_refuse() {
        return;
    }
    // With few types an index of all of them is smaller than a window.
    let (object, dir) = (fixture("many_progs-el.o"), tempfile::tempdir().unwrap());
    let small = dir.path().join("small.btf").display().to_string();
    assert_eq!(corelo(&["min-btf", &object, "--btf", VMLINUX, "-o", &small]).code, 0);
    let bytes_of = |more: &[&str]| {
        let budget = [&["budget", &object, "--json", "--btf", &small], more].concat();
        lines(&corelo(&budget).stdout)[0]["arena_bytes"].as_u64().unwrap()
    };
    let (whole, streamed) = (bytes_of(&[]), bytes_of(&["--stream"]));
    assert!(whole < streamed, "{whole}, {streamed}");
    let source_in = |bytes: u64| {
        let args = ["load", &object, "--arena", &bytes.to_string(), "--json"];
        let run = refused_after(&format!("mount --bind {small} {VMLINUX}"), &args);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{bytes}");
        lines(&run.stdout)[0]["btf_source"].as_str().map(str::to_owned)
    };
    assert_eq!(source_in(streamed).as_deref(), Some("streamed"));
    assert_eq!(source_in(streamed - 1).as_deref(), Some("read"));
    assert_eq!(source_in(whole).as_deref(), Some("read"));
}

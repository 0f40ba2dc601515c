//! The commands that need neither root nor bpf(2), as a user calls them.

mod common;

use common::{corelo, fixture, lines};

#[test]
fn exit_codes() {
    let object = fixture("nothing_asked-el.o");
    let rows: [(&[&str], i32); 12] = [
        (&["--help"], 0),
        (&["relocs", "--help"], 0),
        (&["--version"], 0),
        (&[], 2),
        (&["fly"], 2),
        (&["relocs"], 2),
        (&["relocs", "/nonexistent"], 2),
        (&["relocs", "/proc/self/exe"], 2),
        (&["relocs", &object, "--nonsense"], 2),
        (&["relocs", &object], 0),
        (&["btf", "dump", &object, "--json"], 2),
        (&["btf", "find", &object, "no_such_type"], 1),
    ];
    for (args, code) in rows {
        let run = corelo(args);
        assert_eq!(run.code, code, "{args:?}: {}", run.stderr);
        assert_eq!(run.stderr.is_empty(), code == 0, "{args:?}: {}", run.stderr);
        assert!(run.stderr.lines().count() <= 1, "{args:?}: {}", run.stderr);
    }
}

/// Types that share a name of megabytes: reading it for each took hours, and printing it terabytes.
#[test]
fn a_type_is_found_among_names_of_megabytes() {
    let mut strings = vec![0];
    strings.extend(vec![b'a'; 32 << 20]);
    strings.push(0);
    let words = (0..100_000u32).flat_map(|number| [1 + number, 4 << 24, 0]).chain([(32 << 20) - 1, 4 << 24, 0]);
    let types: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    let mut blob = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
        blob.extend(word.to_le_bytes());
    }
    blob.extend(types);
    blob.extend(strings);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), blob).unwrap();
    let path = file.path().to_str().unwrap();
    let run = corelo(&["btf", "find", path, "aa"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "[100001] STRUCT 'aa' size=0 vlen=0\n"), "{}", run.stderr);
    let run = corelo(&["btf", "dump", path]);
    assert!(run.code == 0 && run.stdout.starts_with("[1] STRUCT '(too long)' size=0 vlen=0\n"), "{}", run.stderr);
}

#[test]
fn files_without_end_are_refused_with_the_limit() {
    let object = fixture("core_fields-el.o");
    for command in
        [&["relocs", "/dev/zero"][..], &["budget", "/dev/zero"], &["load", "/dev/zero"], &["run", "/dev/zero"]]
    {
        let run = corelo(command);
        assert_eq!(run.code, 2, "{command:?}: {}", run.stderr);
        assert!(
            run.stderr.contains("/dev/zero: larger than 64 MiB, which no object is"),
            "{command:?}: {}",
            run.stderr
        );
    }
    let rows = [&["relocs", &object, "--btf", "/dev/zero"][..], &["btf", "dump", "/dev/zero"]];
    for command in rows {
        let run = corelo(command);
        assert_eq!(run.code, 2, "{command:?}: {}", run.stderr);
        assert!(run.stderr.contains("/dev/zero: neither BTF nor an ELF file"), "{command:?}: {}", run.stderr);
    }
    let large = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(large.path(), [0x9f, 0xeb, 1, 0]).unwrap();
    large.as_file().set_len((256 << 20) + 1).unwrap();
    let path = large.path().to_str().unwrap();
    let module = format!("m={path}");
    let rows = [
        &["relocs", &object, "--btf", path][..],
        &["btf", "dump", path],
        &["btf", "dump", &object, "--base", path],
        &["min-btf", &object, "--btf", path, "-o", "/dev/null"],
        &[
            "relocs",
            &fixture("core_fields-el.o"),
            "--btf",
            &fixture("core_fields-target-el.btf"),
            "--module-btf",
            &module,
        ],
    ];
    for command in rows {
        let run = corelo(command);
        assert_eq!(run.code, 2, "{command:?}: {}", run.stderr);
        let wanted = format!("{path}: larger than 256 MiB, which no BTF is");
        assert!(run.stderr.contains(&wanted), "{command:?}: {}", run.stderr);
    }
}

#[test]
fn relocs_json_has_the_keys_that_are_promised() {
    let run =
        corelo(&["relocs", &fixture("core_fields-el.o"), "--btf", &fixture("core_fields-target-el.btf"), "--json"]);
    let rows = lines(&run.stdout);
    assert!(rows.len() > 50);
    for row in &rows {
        let keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "program",
                "section",
                "insn_idx",
                "kind",
                "spec",
                "candidates",
                "status",
                "local_value",
                "target_value",
                "insn",
                "error"
            ]
        );
    }
    // struct plain.a moved from 0 to 12; `r2 = 12`.
    let first = &rows[0];
    assert_eq!(
        (&first["program"], &first["insn_idx"], &first["kind"], &first["spec"]),
        (&"plain_a".into(), &0.into(), &"byte_off".into(), &"struct plain.a".into())
    );
    assert_eq!(
        (&first["status"], &first["local_value"], &first["target_value"], &first["insn"]),
        (&"patched".into(), &0.into(), &12.into(), &"b70200000c000000".into())
    );
    let poisoned: Vec<_> = rows.iter().filter(|row| row["status"] == "poisoned").collect();
    assert!(!poisoned.is_empty());
    for row in &poisoned {
        assert!(row["error"].is_null() && row["insn"].as_str().unwrap().starts_with("850000001023ad0b"), "{row}");
    }
    let missing = poisoned.iter().find(|row| row["candidates"].as_array().unwrap().is_empty()).unwrap();
    assert!(missing["target_value"].is_null(), "{missing}");
    let has_failed = rows.iter().any(|row| row["status"] == "failed");
    assert_eq!(run.code, i32::from(has_failed));
}

#[test]
fn both_byte_orders_give_the_same_values() {
    let of = |order: &str| {
        let object = fixture(&format!("core_fields-{order}.o"));
        let btf = fixture(&format!("core_fields-target-{order}.btf"));
        let mut rows = lines(&corelo(&["relocs", &object, "--btf", &btf, "--json"]).stdout);
        for row in &mut rows {
            // Instructions and the shift to the top of a register differ as they must.
            let row = row.as_object_mut().unwrap();
            row.remove("insn");
            row.remove("error");
            if row["kind"] == "lshift_u64" {
                row.remove("local_value");
                row.remove("target_value");
                row.remove("candidates");
            }
        }
        rows
    };
    assert_eq!(of("el"), of("eb"));
}

#[test]
fn a_failed_relocation_names_all_there_is_to_know() {
    let run = corelo(&[
        "relocs",
        &fixture("core_candidates-el.o"),
        "--btf",
        &fixture("core_candidates-target-el.btf"),
        "--json",
    ]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    let rows = lines(&run.stdout);
    let row = rows.iter().find(|row| row["program"] == "differing" && row["kind"] == "byte_off").unwrap();
    assert_eq!(row["status"], "failed");
    assert_eq!(row["spec"], "struct differ.v");
    assert!(row["target_value"].is_null());
    let error = row["error"].as_str().unwrap();
    let ids: Vec<u64> = row["candidates"].as_array().unwrap().iter().map(|one| one["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), 2);
    for id in ids {
        assert!(error.contains(&format!("[{id}] struct differ in vmlinux: matches with value ")), "{error}");
    }
}

#[test]
fn insns_says_of_each_program_why_it_failed_and_writes_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let object = fixture("core_candidates-el.o");
    let run = corelo(&["insns", &object, "--btf", &fixture("core_candidates-target-el.btf"), "--out", out]);
    assert_eq!(run.code, 1);
    let wanted = format!(
        "corelo: {object}: program differing (section ?socket), instruction 0: byte_off relocation of struct differ.v: \
         ambiguous, candidates ["
    );
    assert!(run.stderr.contains(&wanted), "{}", run.stderr);
    assert!(!dir.path().join("differing.insns").exists());
    let written = std::fs::read_dir(dir.path()).unwrap().count();
    assert!(written > 3, "{written}");
}

#[test]
fn an_object_that_asks_nothing_needs_no_btf() {
    let object = fixture("nothing_asked-el.o");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    for args in [&["relocs", &object][..], &["insns", &object, "--out", out], &["budget", &object]] {
        let run = corelo(&[args, &["--btf", "/nonexistent"]].concat());
        assert_eq!(run.code, 0, "{args:?}: {}", run.stderr);
    }
    let insns = std::fs::read(dir.path().join("count_packets.insns")).unwrap();
    assert!(!insns.is_empty() && insns.len().is_multiple_of(8));
    let asks = corelo(&["relocs", &fixture("many_progs-el.o"), "--btf", "/nonexistent"]);
    assert_eq!(asks.code, 2);
    assert_eq!(asks.stderr, "corelo: /nonexistent: cannot read: not found (ENOENT)\n");
}

#[test]
fn faults_of_objects_are_told_by_name() {
    let rows = [
        ("bad_static_map-el.o", "variable [14] is `faulty`"),
        ("bad_map_attribute-el.o", "`no_such_attribute`"),
        ("bad_undefined_call-el.o", "`no_such_function`"),
        ("maps_no_btf-el.o", "-g"),
    ];
    for (name, wanted) in rows {
        let run = corelo(&["relocs", &fixture(name)]);
        assert_eq!(run.code, 1, "{name}: {}", run.stderr);
        assert!(run.stderr.contains(wanted) && run.stderr.contains(name), "{name}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    }
}

#[test]
fn the_budget_is_exact() {
    let btf = |name: &str| fixture(&format!("{name}-target-el.btf"));
    let many = ["core_fields", "core_bitfields", "core_arrays", "core_types", "core_enums", "core_subprogs"];
    let mut rows: Vec<(String, String)> =
        many.iter().map(|name| (fixture(&format!("{name}-el.o")), btf(name))).collect();
    rows.push((fixture("nothing_asked-el.o"), "/nonexistent".into()));
    rows.push((fixture("nothing_asked-eb.o"), "/nonexistent".into()));
    let mut compared = 0;
    for (object, btf) in rows {
        let run = corelo(&["budget", &object, "--btf", &btf, "--json"]);
        if run.code != 0 {
            // Some programs of these are made to fail; then there is no budget, but a reason.
            assert!(run.stderr.contains("relocation of"), "{object}: {}", run.stderr);
            continue;
        }
        let budget = &lines(&run.stdout)[0];
        let bytes = budget["arena_bytes"].as_u64().unwrap();
        let sum: u64 = budget["parts"].as_object().unwrap().values().map(|part| part.as_u64().unwrap()).sum();
        assert_eq!(sum, bytes, "{object}: {budget}");
        let give = |bytes: u64| corelo(&["budget", &object, "--btf", &btf, "--arena", &bytes.to_string()]);
        let exact = give(bytes);
        assert_eq!(exact.code, 0, "{object}, {bytes}: {}", exact.stderr);
        let short = give(bytes - 1);
        assert_eq!(short.code, 1, "{object}, {}: {}", bytes - 1, short.stderr);
        assert!(short.stderr.contains("arena too small: "), "{}", short.stderr);
        assert!(short.stderr.contains(" bytes wanted for ") && short.stderr.contains(" left"), "{}", short.stderr);
        compared += 1;
    }
    assert!(compared >= 4, "{compared}");
}

#[test]
fn a_budget_becomes_rust_source() {
    let object = fixture("nothing_asked-el.o");
    let bytes = lines(&corelo(&["budget", &object, "--json"]).stdout)[0]["arena_bytes"].clone();
    let run = corelo(&["budget", &object, "--emit", "rust"]);
    let constant = format!("pub const ARENA_BYTES: usize = {bytes};");
    assert!(run.stdout.lines().any(|line| line == constant), "{}", run.stdout);
}

#[test]
fn types_are_dumped_and_found() {
    let btf = fixture("core_fields-target-el.btf");
    let dump = corelo(&["btf", "dump", &btf]);
    assert!(dump.code == 0 && dump.stdout.starts_with("[1] "), "{}", dump.stderr);
    let found = corelo(&["btf", "find", &btf, "plain"]);
    assert_eq!(found.code, 0, "{}", found.stderr);
    assert!(found.stdout.starts_with("[1] STRUCT 'plain' size="), "{}", found.stdout);
    assert!(dump.stdout.contains(&found.stdout));
    // An object's own types, out of its ELF file.
    let own = corelo(&["btf", "find", &fixture("core_fields-el.o"), "plain"]);
    assert!(own.stdout.contains("STRUCT 'plain'"), "{}", own.stderr);
    let bad = corelo(&["btf", "dump", &fixture("no_btf-el.o")]);
    assert_eq!(bad.code, 2);
    assert!(bad.stderr.contains("an ELF file without a .BTF section"), "{}", bad.stderr);
}

#[test]
fn min_btf_serves_as_the_whole_did() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("small.btf");
    let out = out.to_str().unwrap();
    for endian in ["el", "eb"] {
        let object = fixture(&format!("core_fields-{endian}.o"));
        let whole = fixture(&format!("core_fields-target-{endian}.btf"));
        let run = corelo(&["min-btf", &object, "--btf", &whole, "-o", out]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
        let small_len = std::fs::metadata(out).unwrap().len();
        assert!(small_len < std::fs::metadata(&whole).unwrap().len());
        let insns = |btf: &str, extra: &[&str]| -> Vec<serde_json::Value> {
            let run = corelo(&[&["relocs", &object, "--btf", btf, "--json"], extra].concat());
            lines(&run.stdout).iter().map(|row| serde_json::json!([row["status"], row["insn"]])).collect()
        };
        let before = insns(&whole, &[]);
        assert!(before.len() > 50);
        assert_eq!(before, insns(out, &[]));
        assert_eq!(before, insns(&whole, &["--stream"]));
        assert_eq!(before, insns(&whole, &["--stream", "--window", "1024"]));
    }
    let object = fixture("core_fields-el.o");
    let foreign = fixture("core_fields-target-eb.btf");
    let run = corelo(&["min-btf", &object, "--btf", &foreign, "-o", out]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("byte orders"), "{}", run.stderr);
}

/// A file system of one page.
struct Tiny(tempfile::TempDir);

impl Tiny {
    /// `None`, and it is said, where this process may not mount.
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4k", "corelo-test"])
            .arg(dir.path())
            .stderr(std::process::Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(dir));
        }
        corelo_tests::kernel::skip("fill a disk", "mounting a tmpfs takes root");
        None
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    let Some(disk) = Tiny::mount() else { return };
    let out = disk.0.path().join("main.insns");
    std::fs::write(&out, "the old one").unwrap();
    let object = fixture("many_progs-el.o");
    let btf = fixture("core_fields-target-el.btf");
    let path = out.display().to_string();
    let min = corelo(&["min-btf", &fixture("core_fields-el.o"), "--btf", &btf, "-o", &path]);
    assert_ne!(min.code, 0, "{}", min.stdout);
    assert!(min.stderr.contains("No space left"), "{}", min.stderr);
    assert_eq!(std::fs::read(&out).unwrap(), b"the old one");
    let insns = corelo(&["insns", &object, "--btf", &btf, "--out", &disk.0.path().display().to_string()]);
    assert_ne!(insns.code, 0);
    assert_eq!(std::fs::read_dir(disk.0.path()).unwrap().count(), 1, "{}", insns.stderr);
    assert_eq!(std::fs::read(&out).unwrap(), b"the old one");
}

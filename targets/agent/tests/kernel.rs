//! The commands that load into the running kernel. They need root and a kernel with BTF.

mod common;

use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use common::{corelo, fixture, has_kernel, lines};
use corelo_tests::kernel::{not_here, skip};

/// Tests that flood the machine with processes, and those that look for their own among all: one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn run_reports_the_processes_that_the_test_starts() {
    if !has_kernel() {
        return;
    }
    let _alone = alone();
    let run = Command::new(env!("CARGO_BIN_EXE_corelo"))
        .args(["run", "--for", "3", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_it_waits(&run);
    let mut started = Vec::new();
    for code in [0, 7, 255] {
        let mut child = Command::new("/bin/sh").args(["-c", &format!("exit {code}")]).spawn().unwrap();
        started.push((child.id(), code, 0));
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
    let mut killed = Command::new("/bin/sleep").arg("100").spawn().unwrap();
    sleep(Duration::from_millis(100));
    killed.kill().unwrap();
    killed.wait().unwrap();

    let output = run.wait_with_output().unwrap();
    assert!(output.status.success());
    let rows = lines(std::str::from_utf8(&output.stdout).unwrap());
    // Records name processes as the root namespace does.
    let is_root_namespace = std::fs::read_link("/proc/self/ns/pid").unwrap().as_os_str() == "pid:[4026531836]";
    if !is_root_namespace {
        return skip("compare pids", "this test runs in a pid namespace");
    }
    let parent = std::process::id();
    let find = |event: &str, pid: u32| {
        rows.iter()
            .find(|row| row["event"] == event && row["pid"] == pid)
            .unwrap_or_else(|| panic!("no {event} of {pid}"))
    };
    for (pid, code, signal) in started {
        let exec = find("exec", pid);
        assert_eq!(
            (&exec["ppid"], &exec["comm"], &exec["filename"]),
            (&parent.into(), &"sh".into(), &"/bin/sh".into())
        );
        let exit = find("exit", pid);
        assert_eq!((&exit["ppid"], &exit["comm"]), (&parent.into(), &"sh".into()));
        assert_eq!((&exit["exit_code"], &exit["exit_signal"]), (&code.into(), &signal.into()));
        let duration = exit["duration_ns"].as_u64().unwrap();
        assert!((1..3_000_000_000).contains(&duration), "{duration}");
    }
    let exit = find("exit", killed.id());
    assert_eq!((&exit["exit_code"], &exit["exit_signal"]), (&0.into(), &9.into()));
    assert!(exit["duration_ns"].as_u64().unwrap() >= 90_000_000);

    let summary = &rows.last().unwrap()["summary"];
    assert_eq!((&summary["programs"], &summary["attached"]), (&2.into(), &2.into()));
    assert!(summary["patched"].as_u64().unwrap() > 0 && summary["poisoned"] == 0, "{summary}");
    assert!(["mmap", "streamed"].iter().any(|source| summary["btf_source"] == *source), "{summary}");
    let bytes = |name: &str| summary[name].as_u64().unwrap();
    assert_eq!(bytes("arena_used"), bytes("arena_kept") + bytes("arena_scratch"));
    assert!(bytes("arena_used") <= bytes("arena_bytes"));
    for phase in ["object", "kernel_pass", "prepare", "maps", "programs", "attach"] {
        assert!(summary["ms"][phase].is_f64(), "{summary}");
    }
    assert_eq!(bytes("events"), rows.len() as u64 - 1);
}

#[test]
fn run_ends_at_an_interrupt_with_its_summary() {
    if !has_kernel() {
        return;
    }
    let _alone = alone();
    let run = Command::new(env!("CARGO_BIN_EXE_corelo")).arg("run").stdout(Stdio::piped()).spawn().unwrap();
    wait_until_it_waits(&run);
    assert!(Command::new("/bin/true").status().unwrap().success());
    end(&run, "-INT");
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("EVENT "), "{text}");
    assert!(text.contains("exec  ") && text.contains("programs     2 loaded, 2 attached"), "{text}");
}

#[test]
fn run_prints_an_objects_own_records() {
    if !has_kernel() {
        return;
    }
    let _alone = alone();
    let object = format!("{}/bpf/exec_monitor.bpf.o", env!("CARGO_MANIFEST_DIR"));
    for (args, is_wanted) in [
        (
            &["--record", "event"][..],
            Box::new(|text: &str| text.contains("events: kind=1 pid=") && text.contains("comm=\"true\""))
                as Box<dyn Fn(&str) -> bool>,
        ),
        (
            &["--record", "event", "--json"],
            Box::new(|text: &str| {
                lines(text).iter().any(|row| row["ring"] == "events" && row["record"]["comm"] == "true")
            }),
        ),
        (&[], Box::new(|text: &str| text.contains("events: 0100000") && text.contains("true..."))),
    ] {
        let run = Command::new(env!("CARGO_BIN_EXE_corelo"))
            .args(["run", &object, "--for", "1.5"])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until_it_waits(&run);
        assert!(Command::new("/bin/true").status().unwrap().success());
        let output = run.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && is_wanted(&text), "{args:?}: {text}");
    }
    let missing = corelo(&["run", &object, "--record", "no_such_struct"]);
    assert_eq!(missing.code, 2, "{}", missing.stderr);
    assert!(missing.stderr.contains("no_such_struct"), "{}", missing.stderr);
}

#[test]
fn run_dumps_the_maps_that_it_is_asked_for() {
    if !has_kernel() {
        return;
    }
    // A raw tracepoint that counts system calls in the one element of an array.
    let object = fixture("obj_run-el.o");
    let skipped = ["run_xdp", "run_tc", "run_socket", "run_cgroup_egress", "run_cgroup_sock"];
    let mut args = vec!["run", &object, "--for", "0.3", "--dump", "runs"];
    args.extend(skipped.iter().flat_map(|program| ["--skip", program]));
    let as_text = corelo(&args);
    assert_eq!(as_text.code, 0, "{}", as_text.stderr);
    let entries: Vec<_> = as_text.stdout.lines().filter(|line| line.starts_with("runs: ")).collect();
    assert_eq!(entries.len(), 1, "{}", as_text.stdout);
    assert!(entries[0].starts_with("runs: key 00000000 value "), "{}", entries[0]);

    args.push("--json");
    let as_json = corelo(&args);
    assert_eq!(as_json.code, 0, "{}", as_json.stderr);
    let rows = lines(&as_json.stdout);
    let entries: Vec<_> = rows.iter().filter(|row| row["map"] == "runs").collect();
    assert_eq!((entries.len(), &entries[0]["key"]), (1, &"00000000".into()));
    let count = entries[0]["value"].as_str().unwrap();
    assert_eq!(count.len(), 16);
    assert_ne!(count, "0000000000000000", "no system call in 0.3 seconds");
    let summary = &rows.last().unwrap()["summary"];
    assert_eq!((&summary["programs"], &summary["attached"]), (&1.into(), &1.into()));

    for (option, name) in [("--dump", "no_such_map"), ("--skip", "no_such_program")] {
        let unknown = corelo(&["run", &object, "--for", "0.1", option, name]);
        assert_eq!(unknown.code, 2, "{}", unknown.stderr);
        assert!(unknown.stderr.contains(name), "{}", unknown.stderr);
    }
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    if !has_kernel() {
        return;
    }
    // Where the user nobody can read it.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("corelo");
    std::fs::copy(env!("CARGO_BIN_EXE_corelo"), &copy).unwrap();
    use std::os::unix::fs::PermissionsExt;
    for path in [dir.path(), copy.as_path()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    use std::os::unix::process::CommandExt;
    let output = Command::new(&copy).args(["run", "--for", "1"]).uid(65534).gid(65534).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("EPERM") && stderr.contains("run as root, or with CAP_BPF"), "{stderr}");
}

#[test]
fn a_kernel_without_btf_is_told_with_the_ways_out() {
    if !has_kernel() {
        return;
    }
    // A mount namespace of its own, where the kernel's BTF is hidden.
    let hidden = |line: &str| {
        let script = format!("mount -t tmpfs none /sys/kernel/btf && exec {} {line}", env!("CARGO_BIN_EXE_corelo"));
        let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    if std::path::Path::new(&format!("/boot/vmlinux-{}", release.trim())).exists() {
        return not_here("a kernel whose BTF is hidden", "its image lies in /boot and has BTF");
    }
    let object = fixture("many_progs-el.o");
    for command in [format!("relocs {object}"), format!("load {object}"), "run --for 1".into()] {
        let (code, stderr) = hidden(&command);
        assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{stderr}");
        for wanted in
            [" relocation of struct ", release.trim(), "--btf FILE", "CONFIG_DEBUG_INFO_BTF", "`corelo min-btf`"]
        {
            assert!(stderr.contains(wanted), "{wanted}: {stderr}");
        }
    }
    let (code, stderr) = hidden(&format!("load {}", fixture("nothing_asked-el.o")));
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn load_says_what_the_kernel_made_of_the_object() {
    if !has_kernel() {
        return;
    }
    for name in ["many_progs-el.o", "many_progs_legacy-el.o"] {
        let object = fixture(name);
        let run = corelo(&["load", &object, "--json"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let loaded = &lines(&run.stdout)[0];
        let programs = loaded["programs"].as_array().unwrap();
        assert_eq!((programs.len(), loaded["patched"].clone(), loaded["poisoned"].clone()), (30, 90.into(), 0.into()));
        assert_eq!(programs[0]["name"], "prog_00");
        assert_eq!(programs[0]["type"], "kprobe");
        let map = &loaded["maps"][0];
        assert_eq!((&map["name"], &map["type"]), (&"seen".into(), &"hash".into()));
        assert_eq!(programs[7]["map_ids"][0], map["id"]);
        let skipped = corelo(&["load", &object, "--json", "--skip", "prog_00", "--skip", "prog_29"]);
        assert_eq!(lines(&skipped.stdout)[0]["programs"].as_array().unwrap().len(), 28);
        assert_eq!(corelo(&["load", &object, "--skip", "prog_99"]).code, 2);
    }
}

#[test]
fn an_object_that_asks_nothing_loads_without_btf() {
    if !has_kernel() {
        return;
    }
    let run = corelo(&["load", &fixture("nothing_asked-el.o"), "--btf", "/nonexistent", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(lines(&run.stdout)[0]["btf_source"], "not needed");
}

#[test]
fn with_the_budget_it_loads_and_with_a_byte_less_it_does_not() {
    if !has_kernel() {
        return;
    }
    let monitor = format!("{}/bpf/exec_monitor.bpf.o", env!("CARGO_MANIFEST_DIR"));
    let names =
        ["many_progs", "many_progs_legacy", "nothing_asked", "obj_globals", "obj_kconfig", "obj_callbacks", "obj_run"];
    for object in names.map(|name| fixture(&format!("{name}-el.o"))).into_iter().chain([monitor]) {
        let budget = corelo(&["budget", &object, "--json"]);
        assert_eq!(budget.code, 0, "{object}: {}", budget.stderr);
        let budget = &lines(&budget.stdout)[0];
        let bytes = budget["arena_bytes"].as_u64().unwrap();
        let sum: u64 = budget["parts"].as_object().unwrap().values().map(|part| part.as_u64().unwrap()).sum();
        assert_eq!(sum, bytes, "{budget}");
        let load = |bytes: u64| corelo(&["load", &object, "--arena", &bytes.to_string(), "--json"]);
        let exact = load(bytes);
        assert_eq!(exact.code, 0, "{object}, {bytes}: {}", exact.stderr);
        assert_eq!(lines(&exact.stdout)[0]["arena_used"], bytes, "{object}");
        let short = load(bytes - 1);
        assert_eq!(short.code, 1, "{object}, {}: {}", bytes - 1, short.stderr);
        assert!(short.stderr.starts_with("corelo: arena too small: "), "{}", short.stderr);
    }
}

#[test]
fn a_refused_program_comes_with_the_verifiers_reason() {
    if !has_kernel() {
        return;
    }
    let run = corelo(&["load", &fixture("refused-el.o")]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("program no_null_check (section socket)"), "{}", run.stderr);
    assert!(run.stderr.contains("the verifier says: R"), "{}", run.stderr);
}

#[test]
fn poison_that_is_reached_is_explained() {
    if !has_kernel() {
        return;
    }
    // Against types that lack every one of the object's.
    let run = corelo(&["load", &fixture("core_fields-el.o"), "--btf", &fixture("core_arrays-target-el.btf")]);
    assert_eq!(run.code, 1);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    for wanted in [
        "program plain_a (section socket)",
        "instruction 0: byte_off relocation of struct plain.a: the kernel lacks it",
        "195896080",
    ] {
        assert!(run.stderr.contains(wanted), "{wanted}: {}", run.stderr);
    }
}

/// The pin that the fixture makes, in /sys/fs/bpf.
const PIN: &str = "/sys/fs/bpf/corelo_pinned";

#[test]
fn load_says_which_pins_it_leaves_and_a_run_that_is_ended_leaves_none() {
    if !has_kernel() {
        return;
    }
    let _ = std::fs::remove_file(PIN);
    let object = fixture(if cfg!(target_endian = "big") { "pins_sound-eb.o" } else { "pins_sound-el.o" });
    let run = || {
        let mut child = Command::new(env!("CARGO_BIN_EXE_corelo"))
            .args(["run", &object, "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until_it_waits(&child);
        assert!(std::path::Path::new(PIN).exists());
        end(&child, "-TERM");
        assert!(child.wait().unwrap().success());
    };
    run();
    assert!(!std::path::Path::new(PIN).exists(), "the run's pin is left");
    let fault = object.replace("pins_sound", "pins_program");
    assert_eq!(corelo(&["load", &fault]).code, 1);
    assert!(!std::path::Path::new(PIN).exists(), "the failed load's pin is left");
    let loaded = corelo(&["load", &object]);
    assert!(loaded.stdout.contains(&format!("pin of map corelo_pinned: {PIN} stays")), "{}", loaded.stdout);
    assert!(std::path::Path::new(PIN).exists());
    let again = corelo(&["load", &object, "--json"]);
    let pin = &lines(&again.stdout)[0]["maps"][0]["pin"];
    assert_eq!((&pin["path"], &pin["was_there"]), (&PIN.into(), &true.into()), "{}", again.stdout);
    run();
    assert!(std::path::Path::new(PIN).exists(), "what was there before is gone");
    std::fs::remove_file(PIN).unwrap();
    assert!(corelo(&["load", "--help"]).stdout.contains("/sys/fs/bpf"));
}

/// Waits, for at most twenty seconds, until a run has attached its programs and waits for records: only then has it
/// the epoll instance of its rings. A signal that comes before the run catches any would kill it.
fn wait_until_it_waits(run: &Child) {
    let fds = format!("/proc/{}/fd", run.id());
    for _ in 0..2000 {
        let mut targets = std::fs::read_dir(&fds).into_iter().flatten().flatten().map(|fd| fd.path().read_link());
        if targets.any(|target| target.is_ok_and(|target| target.as_os_str() == "anon_inode:[eventpoll]")) {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("it never waits for records");
}

fn end(run: &Child, signal: &str) {
    let kill = Command::new("/bin/kill").args([signal, &run.id().to_string()]).status().unwrap();
    assert!(kill.success());
}

/// A run of the monitor whose output nobody reads, with more events behind it than pipe and ring have room for.
fn blocked(args: &[&str]) -> Child {
    let run = Command::new(env!("CARGO_BIN_EXE_corelo"))
        .args(["run", "--json"])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_it_waits(&run);
    // Each is an exec and an exit: two records of 184 bytes in a ring of 128 KiB, and as many lines in a pipe of 64 KiB.
    let many = "i=0; while [ $i -lt 1200 ]; do /bin/true; i=$((i+1)); done";
    assert!(Command::new("/bin/sh").args(["-c", many]).status().unwrap().success());
    run
}

#[test]
fn what_found_no_room_is_counted_and_told() {
    if !has_kernel() {
        return;
    }
    let _alone = alone();
    let mut run = blocked(&[]);
    let stdout = run.stdout.take().unwrap();
    let reader = std::thread::spawn(move || std::io::read_to_string(stdout).unwrap());
    // Time for what is in the ring to be printed.
    sleep(Duration::from_millis(700));
    end(&run, "-TERM");
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let rows = lines(&reader.join().unwrap());
    let summary = &rows.last().unwrap()["summary"];
    let (events, lost) = (summary["events"].as_u64().unwrap(), summary["lost"].as_u64().unwrap());
    assert_eq!(events, rows.len() as u64 - 1);
    assert!(lost > 0 && events + lost >= 2400, "{summary}");
    let ring = &summary["rings"][0];
    assert_eq!((&ring["ring"], &ring["bytes"]), (&"events".into(), &131_072.into()));
    assert!(ring["times_full"].as_u64().unwrap() > 0, "{summary}");
    assert!(ring["most_unread"].as_u64().unwrap() > 130_000, "{summary}");
}

#[test]
fn nothing_lost_is_told_too() {
    if !has_kernel() {
        return;
    }
    let _alone = alone();
    let run = corelo(&["run", "--for", "0.2", "--json"]);
    let summary = &lines(&run.stdout).pop().unwrap()["summary"];
    assert_eq!((&summary["lost"], &summary["rings"][0]["times_full"]), (&0.into(), &0.into()), "{summary}");
    let run = corelo(&["run", "--for", "0.2"]);
    assert!(run.stdout.contains("lost         0 records found no room"), "{}", run.stdout);
}

#[test]
fn a_run_that_nobody_reads_ends_all_the_same() {
    if !has_kernel() {
        return;
    }
    let _alone = alone();
    for (args, is_ended) in [(&[][..], true), (&["--for", "6"], false)] {
        let mut run = blocked(args);
        if is_ended {
            assert_eq!(run.try_wait().unwrap(), None, "its output is read");
            end(&run, "-TERM");
        }
        let start = std::time::Instant::now();
        let status = loop {
            if let Some(status) = run.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > Duration::from_secs(20) {
                run.kill().unwrap();
                panic!("{args:?}: it does not end");
            }
            sleep(Duration::from_millis(20));
        };
        let words = std::io::read_to_string(run.stderr.take().unwrap()).unwrap();
        assert_eq!(status.code(), Some(1), "{words}");
        assert!(words.contains("nobody reads standard output"), "{words}");
    }
}

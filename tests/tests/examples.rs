//! The loader's examples (`std-loader/examples`), run as a user runs them: what each prints, and what it does.
//!
//! Needs root and what each example needs of the kernel: without that it says why it is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use corelo_loader::kernel::KernelVersion;
use corelo_tests::corpus::workspace_root;
use corelo_tests::kernel::{Feature, has, not_here, skip};

/// The programs, as cargo builds them from what is there now.
static BUILT: LazyLock<BTreeMap<String, PathBuf>> = LazyLock::new(|| {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "-q", "-p", "corelo-loader", "--examples", "--features", "tokio"]);
    build.args(["--profile", "test", "--message-format", "json"]);
    let output = build.current_dir(workspace_root()).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "the examples do not build: {}", String::from_utf8_lossy(&output.stdout));
    let messages = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let programs = messages.filter_map(|line| {
        let message: serde_json::Value = serde_json::from_slice(line).unwrap();
        let is_example = message["target"]["kind"][0] == "example";
        let program = message["executable"].as_str().filter(|_| is_example)?;
        Some((message["target"]["name"].as_str()?.to_owned(), program.into()))
    });
    programs.collect()
});

fn program(name: &str) -> &'static Path {
    BUILT.get(name).unwrap_or_else(|| panic!("there is no example {name}"))
}

/// Runs it, does something once its first line is there, and gives all its lines. `then` gets its process id.
fn run(mut command: Command, then: impl FnOnce(u32)) -> Vec<String> {
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = command.spawn().unwrap();
    // Its ends of the pipe.
    drop(command);
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    let mut said: Vec<_> = lines.next().into_iter().collect();
    then(child.id());
    said.extend(lines);
    let status = child.wait().unwrap();
    assert!(status.success() && !said.is_empty(), "{status}: {said:#?}");
    println!("{said:#?}");
    said
}

fn run_example(name: &str, words: &[&str], then: impl FnOnce(u32)) -> Vec<String> {
    let mut command = Command::new(program(name));
    command.args(words);
    run(command, then)
}

/// In this shell, which must end well.
fn shell(script: &str, words: &[&str]) -> String {
    let output = Command::new("bash").args(["-c", script, "bash"]).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}: {said}");
    said
}

/// A process starts; its id.
fn start_one() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    assert!(child.wait().unwrap().success());
    pid
}

#[test]
fn watch_and_its_explicit_steps() {
    if !has(&[Feature::Bpf, Feature::KernelBtf, Feature::RingBuffers]) {
        return;
    }
    let me = std::process::id().to_string();
    let mut pid = 0;
    let said = run_example("watch", &["2", &me], |_| pid = start_one());
    assert_eq!(said[0], "watching for 2 s");
    assert!(said.contains(&format!("{pid} true, of {me}")), "{pid}: {said:?}");
    assert!(said[1..said.len() - 1].iter().all(|line| line.ends_with(&format!(", of {me}"))), "{said:?}");
    assert_eq!(said.last().unwrap(), "0 records found no room");
    let said = run_example("steps", &["2"], |_| pid = start_one());
    assert!(said[0] == "attached: on_exec" && said.contains(&format!("{pid} true")), "{pid}: {said:?}");
}

#[test]
fn tokio() {
    if !has(&[Feature::Bpf, Feature::KernelBtf, Feature::RingBuffers]) {
        return;
    }
    let mut pid = 0;
    let said = run_example("tokio", &["2"], |_| pid = start_one());
    assert!(said[0] == "watching for 2 s" && said.contains(&format!("{pid} true")), "{pid}: {said:?}");
}

#[test]
fn no_heap() {
    if !has(&[Feature::Bpf, Feature::KernelBtf, Feature::RingBuffers]) {
        return;
    }
    let said = run_example("no_heap", &["2"], |_| _ = start_one());
    assert!(said[0] == "watching for 2 s" && said.iter().any(|line| line == "true"), "{said:?}");
    let (records, allocations) = said.last().unwrap().split_once(" records, ").unwrap();
    assert!(records.parse::<u32>().unwrap() > 0 && allocations == "0 allocations", "{said:?}");
}

/// What an example says of a network interface on which three datagrams of six bytes were sent: it has that for itself.
fn on_lo(name: &str) -> Option<Vec<(String, u64, u64)>> {
    for (tool, word) in [("unshare", "--version"), ("nsenter", "--version"), ("ip", "-V"), ("bash", "--version")] {
        if let Err(error) = Command::new(tool).arg(word).stdout(Stdio::null()).status() {
            skip("have a network of its own", &format!("{tool}: {error}"));
            return None;
        }
    }
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", "ip link set lo up && exec \"$0\" lo 2"]).arg(program(name));
    let said = run(command, |pid| {
        let script =
            "nsenter --net=/proc/$1/ns/net bash -c 'for each in 1 2 3; do echo hello >/dev/udp/127.0.0.1/9; done'";
        shell(script, &[&pid.to_string()]);
    });
    assert_eq!(said[0], "counting on lo for 2 s");
    let count = |line: &String| {
        let (what, counts) = line.split_once(": ").unwrap();
        let (packets, bytes) = counts.split_once(" packets, ").unwrap();
        let bytes = bytes.strip_suffix(" bytes").unwrap();
        (what.to_owned(), packets.parse().unwrap(), bytes.parse().unwrap())
    };
    Some(said[1..].iter().map(count).collect())
}

/// Of a datagram with the headers of Ethernet, IPv4 and UDP.
const DATAGRAM: u64 = 14 + 20 + 8 + 6;

#[test]
fn xdp() {
    if !has(&[Feature::Bpf, Feature::XdpLinks]) {
        return;
    }
    let Some(counts) = on_lo("xdp") else { return };
    let names: Vec<_> = counts.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["IPv4", "IPv6", "ARP", "other"]);
    assert!(counts[0].1 >= 3 && counts[0].2 >= 3 * DATAGRAM, "{counts:?}");
    assert_eq!((counts[2].1, counts[3].1), (0, 0), "{counts:?}");
}

#[test]
fn tc() {
    if !has(&[Feature::Bpf, Feature::Tcx]) {
        return;
    }
    let Some(counts) = on_lo("tc") else { return };
    let [received, sent] = &counts[..] else { panic!("{counts:?}") };
    assert_eq!((received.0.as_str(), sent.0.as_str()), ("received", "sent"));
    assert!(sent.1 >= 3 && sent.2 >= 3 * DATAGRAM, "{counts:?}");
    assert_eq!((received.1, received.2), (sent.1, sent.2), "what goes out of lo comes in");
}

#[test]
fn guard() {
    if !has(&[Feature::Bpf, Feature::RingBuffers, Feature::Cgroup2]) {
        return;
    }
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
    let cgroup = format!("{}/corelo-example-{}", mount.split(' ').nth(1).unwrap(), std::process::id());
    fs::create_dir(&cgroup).unwrap();
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (guarded, free) = (listen(), listen());
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port().to_string();
    let said = run_example("guard", &[&cgroup, &port(&guarded), "2"], |_| {
        // Outside of the cgroup nothing is refused.
        shell(": </dev/tcp/127.0.0.1/$1", &[&port(&guarded)]);
        shell("echo $$ >$2/cgroup.procs && : </dev/tcp/127.0.0.1/$1", &[&port(&free), &cgroup]);
        let refused = shell("echo $$ >$2/cgroup.procs; ! : </dev/tcp/127.0.0.1/$1", &[&port(&guarded), &cgroup]);
        assert!(refused.contains("Operation not permitted"), "{refused}");
    });
    fs::remove_dir(&cgroup).unwrap();
    assert_eq!(said[0], format!("guarding port {} for 2 s", port(&guarded)));
    assert!(said.len() == 2 && said[1].starts_with("refused: ") && said[1].ends_with(" bash"), "{said:?}");
}

#[test]
fn uprobe() {
    if !cfg!(target_env = "gnu") {
        return not_here("functions of libc.so.6", "not this C library");
    }
    if !has(&[Feature::Bpf, Feature::Uprobes]) {
        return;
    }
    let said = run_example("uprobe", &["2"], |_| {
        _ = shell("printf corelo_caller >/proc/$$/comm && cd / && cd /proc && cd /", &[]);
    });
    assert_eq!(said[0], "counting calls of chdir in libc.so.6 for 2 s");
    assert!(said.iter().any(|line| line == "corelo_caller: 3"), "{said:?}");
}

#[test]
fn usdt() {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return not_here("the probe of the example", "it is written for x86-64 and arm64 only");
    }
    if has(&[Feature::Bpf, Feature::RingBuffers, Feature::Uprobes, Feature::Cookies]) {
        assert_eq!(run_example("usdt", &[], |_| ()), ["request 1: status 200", "request 2: status -5"]);
    }
}

#[test]
fn iter() {
    if !has(&[Feature::Bpf, Feature::TaskIterators]) {
        return;
    }
    let said = run_example("iter", &[], |_| ());
    assert_eq!(said[0], "    PID    PPID  NAME");
    let is_line = |line: &String| {
        let words: Vec<_> = line.split_whitespace().take(2).collect();
        words.len() == 2 && words.iter().all(|word| word.parse::<u32>().is_ok())
    };
    assert!(said[1..].iter().all(is_line) && said.iter().any(|line| line.ends_with("  iter")), "{said:?}");
}

#[test]
fn struct_ops() {
    if !has(&[Feature::Bpf, Feature::KernelBtf]) {
        return;
    }
    if !cfg!(target_arch = "x86_64") || KernelVersion::running() < KernelVersion::new(6, 4, 0) {
        return not_here("links of struct_ops", "Linux 6.4 and BPF trampolines");
    }
    let said = run_example("struct_ops", &[], |_| ());
    let [before, sent, after] = &said[..] else { panic!("{said:?}") };
    assert!(before.starts_with("available: ") && before.ends_with(" corelo_counted"), "{said:?}");
    assert_eq!(after, before.strip_suffix(" corelo_counted").unwrap());
    let times =
        sent.strip_prefix("1048576 bytes sent, the window was to grow ").unwrap().strip_suffix(" times").unwrap();
    assert!(times.parse::<u64>().unwrap() > 0, "{said:?}");
}

#[test]
fn pinned() {
    if !has(&[Feature::Bpf]) {
        return;
    }
    const ROOT: &str = "/sys/fs/bpf/corelo-example";
    if !Path::new(ROOT).parent().is_some_and(|mount| mount.exists()) {
        return skip("pin a map", "there is no /sys/fs/bpf");
    }
    let remove = || match fs::remove_dir_all(ROOT) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{ROOT}: {error}"),
        _ => {}
    };
    remove();
    let mut counts = Vec::new();
    for _ in 0..2 {
        let said = run_example("pinned", &["1"], |_| _ = start_one());
        for (line, end) in said.iter().zip(["the runs before", "all runs"]) {
            let count = line.strip_suffix(&format!(" processes started in {end}")).unwrap();
            counts.push(count.parse::<u64>().unwrap());
        }
    }
    remove();
    assert_eq!((counts.len(), counts[0], counts[2]), (4, 0, counts[1]), "{counts:?}");
    assert!(counts[1] > 0 && counts[3] > counts[2], "{counts:?}");
}

#[test]
fn each_example_is_run_here_and_told_in_the_readme() {
    let root = workspace_root().join("std-loader");
    let here = include_str!("examples.rs");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let names: BTreeSet<_> = fs::read_dir(root.join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
        .collect();
    assert!(names.contains("watch") && names.len() > 10, "{names:?}");
    for name in names {
        assert!(here.contains(&format!("(\"{name}\"")), "the example {name} is not run");
        assert!(readme.contains(&format!("[`{name}`](examples/{name}.rs)")), "README.md has no {name}");
    }
}

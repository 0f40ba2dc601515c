//! The peers side by side: each does the same work on the same object and kernel, in processes of its own, in turn.
//!
//! `cargo run --release -p corelo-bench --features peers --bin peers -- --markdown bench/RESULTS.md --markdown README.md`
//! builds the peers' programs, measures, and writes the table between the markers `peers` of the files named. It needs
//! root, valgrind and strace. `--rounds N` is how many processes of each are timed.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use corelo_bench::markdown::{grouped, replace, table};
use corelo_bench::run::{allocations, bpf_calls, instructions, output, peak_heap, peer, sibling};
use corelo_bench::rusage::user_time;
use corelo_bench::stats::median;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;

const PEERS: [&str; 3] = ["corelo", "libbpf", "aya"];

/// What was measured of a peer. Times in nanoseconds.
struct Figures {
    reading: u64,
    prepare: u64,
    warm: Option<u64>,
    /// Time, and peak resident set in KiB.
    streamed: Option<(u64, u64)>,
    load: u64,
    /// In user space.
    load_user: u64,
    prepare_insns: u64,
    load_insns: u64,
    allocations: (u64, u64),
    peak_heap: u64,
    rss_kib: u64,
    bpf: (u64, u64),
    prepare_bpf: (u64, u64),
    binary: u64,
}

/// Processes whose time in user space is summed up: the kernel tells it from time in the kernel by samples.
const USER_ROUNDS: u32 = 400;

/// What is measured in turn: nanoseconds, and resident sets in KiB.
#[derive(Clone, Default)]
struct Times {
    reading: Vec<u64>,
    prepare: Vec<u64>,
    warm: Vec<u64>,
    streamed: Vec<u64>,
    streamed_rss: Vec<u64>,
    load: Vec<u64>,
    rss: Vec<u64>,
}

fn main() -> ExitCode {
    let (mut files, mut rounds) = (Vec::new(), 41);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("--markdown", Some(file)) => files.push(PathBuf::from(file)),
            ("--rounds", Some(count)) => rounds = count.parse().expect("a number of rounds"),
            _ => {
                eprintln!("usage: peers [--rounds N] [--markdown FILE]...");
                return ExitCode::from(2);
            }
        }
    }
    build();
    let object = fixture("many_progs", Endian::native()).path;
    let programs = PEERS.map(|name| sibling(&format!("peer_{name}")));
    let figures = measure(&programs, &object, rounds);
    let text = report(&figures, rounds, &programs);
    print!("{text}");
    for file in files {
        replace(&file, "peers", &text);
    }
    ExitCode::SUCCESS
}

/// The programs of the peers, built as this one is.
fn build() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "-p", "corelo-bench", "--features", "peers"]);
    for name in PEERS {
        command.arg("--bin").arg(format!("peer_{name}"));
    }
    // This program lies in TARGET/release.
    if let Some(target) = sibling("").ancestors().nth(1).filter(|dir| dir.is_dir()) {
        command.arg("--target-dir").arg(target);
    }
    let _ = output(&mut command);
}

fn measure(programs: &[PathBuf; 3], object: &Path, rounds: usize) -> Vec<Figures> {
    let mut times = vec![Times::default(); programs.len()];
    for _ in 0..rounds {
        for (program, times) in programs.iter().zip(&mut times) {
            times.reading.extend(peer(program, "read", object, 1).nanoseconds);
            times.prepare.extend(peer(program, "prepare", object, 1).nanoseconds);
            let loaded = peer(program, "load", object, 1);
            times.load.extend(loaded.nanoseconds);
            times.rss.push(loaded.rss_kib);
            times.warm.push(median(peer(program, "warm", object, 21).nanoseconds));
            let streamed = peer(program, "streamed", object, 1);
            times.streamed_rss.push(streamed.rss_kib);
            times.streamed.extend(streamed.nanoseconds);
        }
    }
    let figures = programs.iter().zip(times).zip(PEERS).map(|((program, times), name)| {
        let command = |stage: &'static str| [program.as_os_str(), OsStr::new(stage), object.as_os_str()];
        let idle = instructions(&command("idle"));
        let (idle_count, idle_bytes) = allocations(&command("idle"));
        let (count, bytes) = allocations(&command("load"));
        let user = |stage| user_time(&command(stage), USER_ROUNDS);
        Figures {
            reading: median(times.reading),
            prepare: median(times.prepare),
            warm: (name != "libbpf").then(|| median(times.warm)),
            streamed: (name == "corelo").then(|| (median(times.streamed), median(times.streamed_rss))),
            load: median(times.load),
            load_user: user("load").saturating_sub(user("idle")),
            prepare_insns: instructions(&command("prepare")) - idle,
            load_insns: instructions(&command("load")) - idle,
            allocations: (count - idle_count, bytes - idle_bytes),
            peak_heap: peak_heap(&command("load")),
            rss_kib: median(times.rss),
            bpf: bpf_calls(&command("load")),
            prepare_bpf: bpf_calls(&command("prepare")),
            binary: std::fs::metadata(program).map_or(0, |file| file.len()),
        }
    });
    figures.collect()
}

fn report(figures: &[Figures], rounds: usize, programs: &[PathBuf; 3]) -> String {
    let (libbpf, _) = output(Command::new(&programs[1]).arg("version"));
    let versions = [
        format!("Corelo {}", env!("CARGO_PKG_VERSION")),
        format!("libbpf {} (libbpf-sys)", libbpf.trim().trim_start_matches('v')),
        format!("aya {}", locked_version("aya")),
    ];
    let ms = |nanoseconds: u64| format!("{:.3}", nanoseconds as f64 / 1e6);
    let row = |title: &str, cell: &dyn Fn(&Figures) -> String| {
        std::iter::once(title.to_owned()).chain(figures.iter().map(cell)).collect::<Vec<String>>()
    };
    let head = std::iter::once(String::new()).chain(versions).collect();
    let rows = vec![
        head,
        row("the kernel's BTF read into memory, no more, ms", &|f| ms(f.reading)),
        row("prepare, cold, ms", &|f| ms(f.prepare)),
        row("prepare, kernel BTF kept, ms", &|f| f.warm.map_or("no API".to_owned(), ms)),
        row("prepare, cold, BTF read through a window of 16 KiB, ms", &|f| {
            f.streamed.map_or("no API".to_owned(), |(time, _)| ms(time))
        }),
        row("whole load, ms", &|f| ms(f.load)),
        row("load: time in user space, ms", &|f| ms(f.load_user)),
        row("prepare: instructions", &|f| grouped(f.prepare_insns)),
        row("load: instructions in user space", &|f| grouped(f.load_insns)),
        row("load: allocations", &|f| grouped(f.allocations.0)),
        row("load: bytes allocated", &|f| grouped(f.allocations.1)),
        row("load: peak heap, bytes", &|f| grouped(f.peak_heap)),
        row("load: peak RSS of the process, KiB", &|f| grouped(f.rss_kib)),
        row("prepare through a window: peak RSS of the process, KiB", &|f| {
            f.streamed.map_or("no API".to_owned(), |(_, rss)| grouped(rss))
        }),
        row("program, stripped, bytes (dynamic, opt-level 3)", &|f| grouped(f.binary)),
        row("load: bpf(2) calls", &|f| f.bpf.0.to_string()),
        row("load: CPU time inside bpf(2), ms", &|f| format!("{:.3}", f.bpf.1 as f64 / 1e3)),
        row("prepare: bpf(2) calls", &|f| f.prepare_bpf.0.to_string()),
    ];
    let [own, libbpf, aya] = figures else { panic!("three peers") };
    let ratio = |theirs: u64, ours: u64| format!("{:.1}", theirs as f64 / ours.max(1) as f64);
    let without_calls = libbpf.prepare.saturating_sub(libbpf.prepare_bpf.1 * 1000);
    let ratios = vec![
        vec!["how many times Corelo's".to_owned(), "libbpf".to_owned(), "aya".to_owned()],
        vec!["prepare, cold".to_owned(), ratio(libbpf.prepare, own.prepare), ratio(aya.prepare, own.prepare)],
        vec![
            "prepare, cold, bpf(2) taken off".to_owned(),
            ratio(without_calls, own.prepare),
            ratio(aya.prepare, own.prepare),
        ],
        vec![
            "their cold prepare / our warm one".to_owned(),
            ratio(libbpf.prepare, own.warm.unwrap_or(0)),
            ratio(aya.prepare, own.warm.unwrap_or(0)),
        ],
        vec!["whole load".to_owned(), ratio(libbpf.load, own.load), ratio(aya.load, own.load)],
        vec![
            "prepare: instructions".to_owned(),
            ratio(libbpf.prepare_insns, own.prepare_insns),
            ratio(aya.prepare_insns, own.prepare_insns),
        ],
    ];
    let kernel = output(Command::new("uname").arg("-srm")).0;
    format!(
        "Object: many_progs (30 kprobe programs, 90 CO-RE relocations, 1 map). Kernel: {}. \
         Times are medians of {rounds} fresh processes each, in turn (of the medians of 21 rounds for the kernel BTF kept); counts are of \
         callgrind, memcheck, DHAT and strace, what an idle process of the same program counts taken off instructions and allocations. \
         Time in user space is the mean of {USER_ROUNDS} processes by getrusage, an idle one's taken off. \
         libbpf's prepare includes loading the object's BTF, creating the map and probing the kernel.\n\n{}\n{}",
        kernel.trim(),
        table(&rows),
        table(&ratios),
    )
}

/// The version of a package in the workspace's lock file.
fn locked_version(package: &str) -> String {
    let lock = std::fs::read_to_string(corelo_tests::corpus::workspace_root().join("Cargo.lock")).unwrap_or_default();
    let version =
        lock.split_once(&format!("name = \"{package}\"\nversion = \"")).and_then(|(_, rest)| rest.split_once('"'));
    version.map_or("of unknown version".to_owned(), |(version, _)| version.to_owned())
}

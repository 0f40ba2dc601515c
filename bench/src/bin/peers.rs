//! The peers side by side: each does the same work on the same object and kernel, in processes of its own, in turn.
//!
//! `cargo run --release -p corelo-bench --features peers --bin peers -- --markdown bench/RESULTS.md --markdown README.md
//! --svg bench/peers.svg` builds the peers' programs, measures, and writes the table between the markers `peers` of the
//! files named, and a picture of it. It needs root, valgrind and strace. `--rounds N` is how many processes of each are
//! timed.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use corelo_bench::figures::{Figures, PEERS, measure};
use corelo_bench::markdown::{grouped, replace, table};
use corelo_bench::picture::picture;
use corelo_bench::run::{output, sibling};
use corelo_tests::corpus::workspace_root;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;

fn main() -> ExitCode {
    let (mut files, mut pictures, mut rounds) = (Vec::new(), Vec::new(), 41);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("--markdown", Some(file)) => files.push(PathBuf::from(file)),
            ("--svg", Some(file)) => pictures.push(PathBuf::from(file)),
            ("--rounds", Some(count)) => rounds = count.parse().expect("a number of rounds"),
            _ => {
                eprintln!("usage: peers [--rounds N] [--markdown FILE]... [--svg FILE]...");
                return ExitCode::from(2);
            }
        }
    }
    build();
    let programs = PEERS.map(|name| sibling(&format!("peer_{name}")));
    let many = measure(&programs, &fixture("many_progs", Endian::native()).path, rounds);
    let monitor = measure(&programs, &workspace_root().join("targets/agent/bpf/exec_monitor.bpf.o"), rounds);
    let text =
        format!("{}\n{}\n{}\n{}", intro(rounds), all(&many, &programs), ratios(&many), some(&monitor, &programs));
    print!("{text}");
    for file in files {
        replace(&file, "peers", &text);
    }
    for file in pictures {
        let svg = picture(&format!("<!-- peers -->\n{text}<!-- /peers -->\n"));
        std::fs::write(&file, svg).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
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

fn intro(rounds: usize) -> String {
    let kernel = output(Command::new("uname").arg("-srm")).0;
    format!(
        "Object: many_progs (30 kprobe programs, 90 CO-RE relocations, 1 map). Kernel: {}. \
         Times are medians of {rounds} fresh processes each, in turn (of the medians of 21 rounds for the kernel BTF kept); counts are of \
         callgrind, memcheck, DHAT and strace, what an idle process of the same program counts taken off instructions and allocations. \
         What is inside bpf(2) is timed by a library that is preloaded; the rest is a peer's own work and its system calls for files and memory. \
         libbpf's prepare includes loading the object's BTF, creating the map and probing the kernel.\n",
        kernel.trim()
    )
}

/// A row: its title, and a cell of each peer.
type Row<'r> = (&'r str, &'r dyn Fn(&Figures) -> String);

fn rows(title: &str, programs: &[PathBuf; 3], figures: &[Figures], rows: &[Row<'_>]) -> String {
    let (libbpf, _) = output(Command::new(&programs[1]).arg("version"));
    let head = vec![
        title.to_owned(),
        format!("Corelo {}", env!("CARGO_PKG_VERSION")),
        format!("libbpf {} (libbpf-sys)", libbpf.trim().trim_start_matches('v')),
        format!("aya {}", locked_version("aya")),
    ];
    let cells = rows.iter().map(|(title, cell)| {
        std::iter::once((*title).to_owned()).chain(figures.iter().map(cell)).collect::<Vec<String>>()
    });
    table(&std::iter::once(head).chain(cells).collect::<Vec<_>>())
}

fn ms(nanoseconds: u64) -> String {
    format!("{:.3}", nanoseconds as f64 / 1e6)
}

fn all(figures: &[Figures], programs: &[PathBuf; 3]) -> String {
    let no_api = || "no API".to_owned();
    let table: &[Row<'_>] = &[
        ("the kernel's BTF read into memory, no more, ms", &|f| ms(f.reading)),
        ("prepare, cold, ms", &|f| ms(f.prepare)),
        ("prepare, kernel BTF kept, ms", &|f| f.warm.map_or_else(no_api, ms)),
        ("prepare, cold, BTF read through a window of 4 KiB, ms", &|f| {
            f.streamed.map_or_else(no_api, |(time, _)| ms(time))
        }),
        ("whole load, ms", &|f| ms(f.load)),
        ("load: inside bpf(2), ms", &|f| ms(f.load_parts.0)),
        ("load: the rest, outside bpf(2), ms", &|f| ms(f.load_parts.1)),
        ("load: bpf(2) calls", &|f| f.bpf_calls.0.to_string()),
        ("prepare: bpf(2) calls", &|f| f.bpf_calls.1.to_string()),
        ("prepare: instructions", &|f| grouped(f.prepare_insns)),
        ("load: instructions in user space", &|f| grouped(f.load_insns)),
        ("load: allocations", &|f| grouped(f.allocations.0)),
        ("load: bytes allocated", &|f| grouped(f.allocations.1)),
        ("load: peak heap, bytes", &|f| grouped(f.peak_heap)),
        ("load: peak RSS of the process, KiB", &|f| grouped(f.rss_kib)),
        ("prepare through a window: peak RSS of the process, KiB", &|f| {
            f.streamed.map_or_else(no_api, |(_, rss)| grouped(rss))
        }),
        ("program, stripped, bytes (dynamic, opt-level 3)", &|f| grouped(f.binary)),
    ];
    rows("", programs, figures, table)
}

/// What differs for an object of two programs.
fn some(figures: &[Figures], programs: &[PathBuf; 3]) -> String {
    let table: &[Row<'_>] = &[
        ("prepare, cold, ms", &|f| ms(f.prepare)),
        ("whole load, ms", &|f| ms(f.load)),
        ("load: bpf(2) calls", &|f| f.bpf_calls.0.to_string()),
        ("prepare: instructions", &|f| grouped(f.prepare_insns)),
        ("load: allocations", &|f| grouped(f.allocations.0)),
        ("load: peak heap, bytes", &|f| grouped(f.peak_heap)),
        ("load: peak RSS of the process, KiB", &|f| grouped(f.rss_kib)),
    ];
    rows("the monitor of `corelo run`: 2 raw tracepoints, a ring buffer", programs, figures, table)
}

fn ratios(figures: &[Figures]) -> String {
    let [own, libbpf, aya] = figures else { panic!("three peers") };
    let ratio = |theirs: u64, ours: u64| format!("{:.2}", theirs as f64 / ours.max(1) as f64);
    let row =
        |title: &str, libbpf: u64, aya: u64, ours: u64| vec![title.to_owned(), ratio(libbpf, ours), ratio(aya, ours)];
    let without_calls = libbpf.prepare.saturating_sub(libbpf.prepare_inside);
    let warm = own.warm.unwrap_or(0);
    table(&[
        vec!["how many times Corelo's".to_owned(), "libbpf".to_owned(), "aya".to_owned()],
        row("prepare, cold", libbpf.prepare, aya.prepare, own.prepare),
        row("prepare, cold, bpf(2) taken off", without_calls, aya.prepare, own.prepare),
        row("their cold prepare / our warm one", libbpf.prepare, aya.prepare, warm),
        row("whole load", libbpf.load, aya.load, own.load),
        row("prepare: instructions", libbpf.prepare_insns, aya.prepare_insns, own.prepare_insns),
    ])
}

/// The version of a package in the workspace's lock file.
fn locked_version(package: &str) -> String {
    let lock = std::fs::read_to_string(workspace_root().join("Cargo.lock")).unwrap_or_default();
    let version =
        lock.split_once(&format!("name = \"{package}\"\nversion = \"")).and_then(|(_, rest)| rest.split_once('"'));
    version.map_or("of unknown version".to_owned(), |(version, _)| version.to_owned())
}

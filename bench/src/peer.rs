//! What the program of each peer does: `PEER STAGE OBJECT [ROUNDS]`, where STAGE is `idle` (nothing, to take off what
//! any process costs), `read` (the kernel's BTF into memory, no more), `prepare`, `warm` (one prepare, then ROUNDS more
//! with the kernel's BTF kept), `streamed` (one prepare, the kernel's BTF read through a small window) or `load`. It
//! prints the nanoseconds of each round and the peak resident set of the process.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Only what any process does.
    Idle,
    /// Only the kernel's BTF read into memory.
    Read,
    /// From opening the kernel's BTF to the last final instruction.
    Prepare,
    /// The same again, with the kernel's BTF kept.
    Warm,
    /// From opening the kernel's BTF to the last final instruction, the BTF never being in memory as a whole.
    Streamed,
    /// Into the kernel.
    Load,
}

impl Stage {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "idle" => Self::Idle,
            "read" => Self::Read,
            "prepare" => Self::Prepare,
            "warm" => Self::Warm,
            "streamed" => Self::Streamed,
            "load" => Self::Load,
            _ => return None,
        })
    }
}

/// Runs `work` as the command line says; it calls its third argument once around each round.
#[must_use]
pub fn main(work: impl FnOnce(Stage, &Path, usize, &mut dyn FnMut(u64))) -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(stage), Some(object)) = (args.next().and_then(|stage| Stage::parse(&stage)), args.next()) else {
        eprintln!("usage: PEER idle|read|prepare|warm|streamed|load OBJECT [ROUNDS]");
        return ExitCode::from(2);
    };
    let rounds = args.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let mut times = Vec::with_capacity(rounds + 1);
    match stage {
        Stage::Idle => {}
        Stage::Read => {
            let read = || std::fs::read("/sys/kernel/btf/vmlinux").expect("the kernel has BTF").len();
            let (len, nanoseconds) = timed(read);
            assert_ne!(len, 0);
            times.push(nanoseconds);
        }
        _ => work(stage, Path::new(&object), rounds, &mut |nanoseconds| times.push(nanoseconds)),
    }
    let rss = peak_rss_kib();
    for time in times {
        println!("ns {time}");
    }
    println!("rss_kib {rss}");
    ExitCode::SUCCESS
}

/// What `round` returns, and how long it took in nanoseconds.
pub fn timed<T>(round: impl FnOnce() -> T) -> (T, u64) {
    let start = Instant::now();
    let result = round();
    let nanoseconds = start.elapsed().as_nanos();
    (result, u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// The most memory of this process that was ever resident, in KiB (`VmHWM`); 0 where /proc does not say.
#[must_use]
pub fn peak_rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

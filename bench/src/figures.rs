//! What is measured of each peer, for one object: times in turn, so that a busy machine is busy for all of them, and
//! counts by the tools that count.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::run::{allocations, bpf_calls, bpf_timer, inside_bpf, instructions, peak_heap, peer};
use crate::stats::median;

/// The peers, as their programs are named.
pub const PEERS: [&str; 3] = ["corelo", "libbpf", "aya"];

/// What was measured of a peer. Times in nanoseconds, sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// The kernel's BTF read into memory, no more.
    pub reading: u64,
    /// Prepare, cold.
    pub prepare: u64,
    /// Prepare with the kernel's BTF kept, where the peer has a way to.
    pub warm: Option<u64>,
    /// Prepare with the kernel's BTF read through a window: time, and peak resident set in KiB.
    pub streamed: Option<(u64, u64)>,
    /// Whole load.
    pub load: u64,
    /// Instructions of a prepare.
    pub prepare_insns: u64,
    /// Instructions of a load, in user space.
    pub load_insns: u64,
    /// Allocations of a load, and their bytes.
    pub allocations: (u64, u64),
    /// The most that was on the heap.
    pub peak_heap: u64,
    /// Peak resident set of a load, in KiB.
    pub rss_kib: u64,
    /// bpf(2) calls of a load, and of a prepare.
    pub bpf_calls: (u64, u64),
    /// The part of a load that is inside bpf(2), and the rest: all own work, and the system calls for files and memory.
    pub load_parts: (u64, u64),
    /// The part of a prepare that is inside bpf(2).
    pub prepare_inside: u64,
    /// The program, stripped.
    pub binary: u64,
}

/// What is measured in turn: nanoseconds, and resident sets in KiB.
#[derive(Clone, Default)]
struct Times {
    reading: Vec<u64>,
    prepare: Vec<u64>,
    warm: Vec<u64>,
    streamed: Vec<u64>,
    streamed_rss: Vec<u64>,
    load: Vec<u64>,
    load_inside: Vec<u64>,
    load_outside: Vec<u64>,
    prepare_inside: Vec<u64>,
    rss: Vec<u64>,
}

/// Measures the peers' programs on `object`; `rounds` processes of each are timed.
///
/// # Panics
/// If one fails, or a tool is missing.
#[must_use]
pub fn measure(programs: &[PathBuf; 3], object: &Path, rounds: usize) -> Vec<Figures> {
    let timer = bpf_timer();
    let mut times = vec![Times::default(); programs.len()];
    for _ in 0..rounds {
        for (program, times) in programs.iter().zip(&mut times) {
            times.reading.extend(peer(program, "read", object, 1).nanoseconds);
            times.prepare.extend(peer(program, "prepare", object, 1).nanoseconds);
            let loaded = peer(program, "load", object, 1);
            times.load.extend(loaded.nanoseconds);
            times.rss.push(loaded.rss_kib);
            let (all, inside) = inside_bpf(&timer, program, "load", object);
            times.load_inside.push(inside);
            times.load_outside.push(all.saturating_sub(inside));
            times.prepare_inside.push(inside_bpf(&timer, program, "prepare", object).1);
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
        Figures {
            reading: median(times.reading),
            prepare: median(times.prepare),
            warm: (name != "libbpf").then(|| median(times.warm)),
            streamed: (name == "corelo").then(|| (median(times.streamed), median(times.streamed_rss))),
            load: median(times.load),
            prepare_insns: instructions(&command("prepare")) - idle,
            load_insns: instructions(&command("load")) - idle,
            allocations: (count - idle_count, bytes - idle_bytes),
            peak_heap: peak_heap(&command("load")),
            rss_kib: median(times.rss),
            bpf_calls: (bpf_calls(&command("load")), bpf_calls(&command("prepare"))),
            load_parts: (median(times.load_inside), median(times.load_outside)),
            prepare_inside: median(times.prepare_inside),
            binary: std::fs::metadata(program).map_or(0, |file| file.len()),
        }
    });
    figures.collect()
}

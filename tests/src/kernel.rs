//! What this machine can do, and what the kernel holds for this process.
//!
//! Whether the kernel refuses something is asked with the smallest program of that kind ([`Feature`]); ids come from
//! `/proc/self/fdinfo`, and the rest from `bpftool` where it is installed.

pub mod bpf;
mod features;

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process::Command;

pub use bpf::without_auxiliary_vector;
pub use features::{Feature, Refused, btf_id};

fn status_field(name: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|rest| rest.trim().to_owned()))
}

/// Whether the effective user is root.
#[must_use]
pub fn is_root() -> bool {
    status_field("Uid").and_then(|ids| ids.split_whitespace().nth(1).map(|id| id == "0")).unwrap_or(false)
}

/// Whether `CORELO_REQUIRE_KERNEL=1` turns skipped kernel tests into failures.
#[must_use]
pub fn kernel_is_required() -> bool {
    std::env::var("CORELO_REQUIRE_KERNEL").is_ok_and(|value| value == "1")
}

/// Whether the kernel has all of these, each asked with the smallest program of its kind. A line says what it refuses.
///
/// # Panics
/// Instead of saying so, where `CORELO_REQUIRE_KERNEL=1` and a plain kernel of that version always has it ([`Feature`]).
#[must_use]
pub fn has(features: &[Feature]) -> bool {
    features.iter().all(|feature| match feature.ask() {
        Ok(()) => true,
        Err(refused) => {
            let is_excused = feature.is_excused(&refused, features::running_version());
            assert!(is_excused || !kernel_is_required(), "CORELO_REQUIRE_KERNEL=1, but {feature}: {refused}");
            println!("skipped: {feature}: {refused}");
            false
        }
    })
}

/// Whether a test that loads whole objects may go on: bpf(2) works, and the kernel has BTF. `reason` says what for.
///
/// # Panics
/// As [`has`].
#[must_use]
pub fn require_kernel(reason: &str) -> bool {
    let goes_on = has(&[Feature::Bpf, Feature::KernelBtf]);
    if !goes_on {
        println!("cannot {reason}");
    }
    goes_on
}

/// Prints that a test is skipped for want of something that whoever runs the tests can bring: a tool, a mount.
///
/// # Panics
/// Instead of printing, when `CORELO_REQUIRE_KERNEL=1`.
pub fn skip(reason: &str, obstacle: &str) {
    assert!(!kernel_is_required(), "CORELO_REQUIRE_KERNEL=1, but cannot {reason}: {obstacle}");
    println!("skipped: {reason}: {obstacle}");
}

/// Prints that a test does not apply to this machine or to how the test was built: its architecture, its C library, what its
/// kernel was built with. Where the tests run in guests, targets/guest-skips.tsv says which these may be.
pub fn not_here(what: &str, why: &str) {
    println!("skipped: {what}: {why}");
}

/// What the descriptors of this process point to, sorted: to be compared before and after. Tests of one process share the
/// descriptors, so a leak test is alone in its process or its file.
#[must_use]
pub fn fds() -> Vec<String> {
    let own = format!("/proc/{}/fd", std::process::id());
    let mut links: Vec<String> = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|link| link.to_string_lossy().into_owned())
        // The directory that is being read here.
        .filter(|link| *link != own && link != "/proc/self/fd")
        .collect();
    links.sort();
    links
}

/// The descriptors of [`fds`] that belong to BPF or perf: programs, maps, links, BTF, events. Other threads of a test process
/// that open files do not disturb it.
#[must_use]
pub fn bpf_fds() -> Vec<String> {
    fds().into_iter().filter(|link| ["bpf", "btf", "perf"].iter().any(|word| link.contains(word))).collect()
}

fn fdinfo_id(fd: BorrowedFd<'_>, key: &str) -> Option<u32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix(key)?.trim_start_matches(':').trim().parse().ok())
}

/// The id of the program behind a descriptor.
#[must_use]
pub fn prog_id(fd: BorrowedFd<'_>) -> Option<u32> {
    fdinfo_id(fd, "prog_id")
}

/// The id of the map behind a descriptor.
#[must_use]
pub fn map_id(fd: BorrowedFd<'_>) -> Option<u32> {
    fdinfo_id(fd, "map_id")
}

/// Whether bpftool can be run.
#[must_use]
pub fn has_bpftool() -> bool {
    Command::new("bpftool").arg("version").output().is_ok_and(|out| out.status.success())
}

/// What `bpftool -j` prints with these arguments: JSON text.
///
/// # Errors
/// A text with what bpftool said.
pub fn bpftool(args: &[&str]) -> Result<String, String> {
    let out = run_bpftool(Command::new("bpftool").arg("-j").args(args))?;
    String::from_utf8(out).map_err(|error| error.to_string())
}

/// What bpftool prints with these arguments, as plain text.
///
/// # Errors
/// A text with what bpftool said.
pub fn bpftool_plain(args: &[&str]) -> Result<String, String> {
    let out = run_bpftool(Command::new("bpftool").args(args))?;
    String::from_utf8(out).map_err(|error| error.to_string())
}

fn run_bpftool(command: &mut Command) -> Result<Vec<u8>, String> {
    let out = command.output().map_err(|error| format!("bpftool: {error}"))?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    // With -j an error is on stdout.
    Err(format!(
        "bpftool: {} {} {}",
        out.status,
        String::from_utf8_lossy(&out.stdout).trim(),
        String::from_utf8_lossy(&out.stderr).trim()
    ))
}

/// The instructions of a loaded program after the verifier rewrote them, as raw bytes in the machine's order.
///
/// # Errors
/// A text, if the descriptor is no program's or bpftool refuses.
pub fn xlated_insns(prog: BorrowedFd<'_>) -> Result<Vec<u8>, String> {
    let id = prog_id(prog).ok_or("the descriptor is not a program's")?;
    let file = std::env::temp_dir().join(format!("corelo-xlated-{}-{id}", std::process::id()));
    let file_name = file.to_str().ok_or("the temporary directory's name is not UTF-8")?;
    let dumped = bpftool(&["prog", "dump", "xlated", "id", &id.to_string(), "file", file_name]);
    let bytes = dumped.and_then(|_| fs::read(&file).map_err(|error| error.to_string()));
    // The file is not there when the dump failed.
    let _ = fs::remove_file(&file);
    bytes
}

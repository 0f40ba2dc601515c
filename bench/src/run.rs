//! Running programs and reading what tools say of them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What one run of a peer printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// Nanoseconds of each round.
    pub nanoseconds: Vec<u64>,
    /// Peak resident set in KiB.
    pub rss_kib: u64,
}

/// The output of a program that succeeds, and what it wrote to standard error.
///
/// # Panics
/// If it cannot be started or fails.
#[must_use]
pub fn output(command: &mut Command) -> (String, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{error}", output.status);
    (out, error)
}

/// A file beside this program.
///
/// # Panics
/// If this program's place is not known.
#[must_use]
pub fn sibling(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("this program has a path");
    here.with_file_name(name)
}

/// Runs a peer once.
///
/// # Panics
/// If it fails or prints anything else.
#[must_use]
pub fn peer(program: &Path, stage: &str, object: &Path, rounds: usize) -> Printed {
    let (out, _) = output(Command::new(program).arg(stage).arg(object).arg(rounds.to_string()));
    let mut printed = Printed { nanoseconds: Vec::new(), rss_kib: 0 };
    for line in out.lines() {
        let (name, value) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
        match name {
            "ns" => printed.nanoseconds.push(value),
            _ => printed.rss_kib = value,
        }
    }
    printed
}

/// Instructions of a run in user space, as callgrind counts them.
///
/// # Panics
/// If valgrind is missing or the program fails.
#[must_use]
pub fn instructions(command: &[&std::ffi::OsStr]) -> u64 {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).args(command);
    let (_, log) = output(&mut valgrind);
    number_after(&log, "Collected :").unwrap_or_else(|| panic!("callgrind says no number: {log}"))
}

/// Allocations and bytes allocated on the heap, as memcheck counts them.
///
/// # Panics
/// If valgrind is missing or the program fails.
#[must_use]
pub fn allocations(command: &[&std::ffi::OsStr]) -> (u64, u64) {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=memcheck", "--undef-value-errors=no"]).args(command);
    let (_, log) = output(&mut valgrind);
    let count = number_after(&log, "total heap usage:");
    let bytes = log.split_once("frees,").and_then(|(_, rest)| first_number(rest));
    count.zip(bytes).unwrap_or_else(|| panic!("memcheck says no numbers: {log}"))
}

/// The most bytes that were on the heap at once, as DHAT counts them.
///
/// # Panics
/// If valgrind is missing or the program fails.
#[must_use]
pub fn peak_heap(command: &[&std::ffi::OsStr]) -> u64 {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=dhat", "--dhat-out-file=/dev/null"]).args(command);
    let (_, log) = output(&mut valgrind);
    number_after(&log, "At t-gmax:").unwrap_or_else(|| panic!("dhat says no number: {log}"))
}

/// How many bpf(2) calls a run makes.
///
/// # Panics
/// If strace is missing or the program fails.
#[must_use]
pub fn bpf_calls(command: &[&std::ffi::OsStr]) -> u64 {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-c", "-U", "name,calls", "-e", "trace=bpf"]).args(command);
    let (_, log) = output(&mut strace);
    let line = log.lines().find(|line| line.trim_start().starts_with("bpf "));
    line.map_or(0, |line| first_number(line).unwrap_or_else(|| panic!("{line}")))
}

/// Builds the library that tells how long a program is inside bpf(2) (`bpf_time.c`): its path.
///
/// # Panics
/// If there is no C compiler or it fails.
#[must_use]
pub fn bpf_timer() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf_time.c");
    let library = sibling("bpf_time.so");
    let _ = output(Command::new("cc").args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source));
    library
}

/// Runs a peer once, with the timer: nanoseconds in all, and of them inside bpf(2).
///
/// # Panics
/// If it fails or prints anything else.
#[must_use]
pub fn inside_bpf(timer: &Path, program: &Path, stage: &str, object: &Path) -> (u64, u64) {
    let mut command = Command::new(program);
    let (out, log) = output(command.arg(stage).arg(object).env("LD_PRELOAD", timer));
    let all = number_after(&out, "ns ").unwrap_or_else(|| panic!("no time: {out}"));
    (all, number_after(&log, "bpf_ns ").unwrap_or_else(|| panic!("no time inside bpf(2): {log}")))
}

fn number_after(text: &str, marker: &str) -> Option<u64> {
    first_number(text.split_once(marker)?.1)
}

/// The first number, with or without commas.
fn first_number(text: &str) -> Option<u64> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let digits: String =
        text[start..].chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_logs() {
        let log = "==7==   total heap usage: 1,234 allocs, 1,230 frees, 56,789 bytes allocated";
        assert_eq!(number_after(log, "total heap usage:"), Some(1234));
        assert_eq!(log.split_once("frees,").and_then(|(_, rest)| first_number(rest)), Some(56_789));
        assert_eq!(number_after(log, "no such"), None);
    }
}

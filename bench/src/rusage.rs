//! What the kernel says of the processor time of programs that have ended.

use std::ffi::OsStr;

use nix::sys::resource::{UsageWho, getrusage};

/// The mean time that a run of `command` spends in user space, in nanoseconds, over `rounds` runs.
///
/// # Panics
/// If it cannot be started or fails.
#[must_use]
pub fn user_time(command: &[&OsStr], rounds: u32) -> u64 {
    let before = children();
    for _ in 0..rounds {
        let (program, args) = command.split_first().expect("a command");
        let _ = crate::run::output(std::process::Command::new(program).args(args));
    }
    u64::try_from((children() - before) * 1000 / i64::from(rounds)).unwrap_or(0)
}

/// Microseconds in user space of all children that were waited for.
fn children() -> i64 {
    let time = getrusage(UsageWho::RUSAGE_CHILDREN).expect("rusage").user_time();
    time.tv_sec() * 1_000_000 + time.tv_usec()
}

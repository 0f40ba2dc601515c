//! Kprobes on system calls, by the call's own name: the function behind it has another name on each architecture.
//!
//! Linux 4.1; CAP_BPF and CAP_PERFMON

use core::fmt::Write;
use std::os::fd::BorrowedFd;

use super::{Link, LinkError, kprobe};
use crate::kernel::kallsyms;
use crate::sys::Errno;

/// Attaches to the entry of a system call, or to its return: to `__x64_sys_NAME` and its like where the kernel has such wrappers
/// ([`kallsyms::syscall_wrapper_prefix`]), else to `__se_sys_NAME`. Calls of 32-bit
/// processes on a 64-bit kernel go by other functions and are not seen.
///
/// # Errors
/// [`LinkError::NoSyscall`], [`LinkError::Kallsyms`], and those of [`kprobe::attach`].
pub fn attach(program: BorrowedFd<'_>, syscall: &str, returns: bool, cookie: u64) -> Result<Link, LinkError> {
    let prefix = kallsyms::syscall_wrapper_prefix().map_err(LinkError::Kallsyms)?;
    let function = function(prefix, syscall).ok_or(LinkError::NoSyscall)?;
    let probe = kprobe::Kprobe { function: &function, offset: 0, returns, cookie };
    kprobe::attach(program, probe).map_err(|error| match error {
        LinkError::Kernel { call: "perf_event_open", errno: Errno::ENOENT }
        | LinkError::File { file: "kprobe_events", errno: Errno::ENOENT } => LinkError::NoSyscall,
        error => error,
    })
}

/// `None` for a name that no function can have: the kernel's have at most 511 bytes.
fn function(prefix: Option<&str>, syscall: &str) -> Option<heapless::String<512>> {
    let mut function = heapless::String::new();
    write!(function, "{}{syscall}", prefix.unwrap_or("__se_sys_")).ok()?;
    Some(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions() {
        assert_eq!(function(Some("__x64_sys_"), "openat").unwrap(), "__x64_sys_openat");
        assert_eq!(function(None, "openat").unwrap(), "__se_sys_openat");
        assert_eq!(function(None, &"x".repeat(600)), None);
    }
}

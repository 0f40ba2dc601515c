//! The only `unsafe` of the crate and its only raw system calls.
//!
//! No crate offers bpf(2) or perf_event_open(2): `attr` has their argument blocks, [`bpf`] and [`perf`] the calls.
//! Everything else goes through rustix. What the rest of the crate sees is safe: descriptors are `OwnedFd` and
//! `BorrowedFd`, buffers are slices, and where the kernel writes as much as a map's value size, the size is held beside
//! the descriptor ([`bpf::MapFd`]).
//!
//! Nothing here uses the heap.
//!
//! The calls, with all of the `unsafe`:
//!
//! - [`bpf`]: bpf(2), one safe function per command
//! - [`perf`]: perf_event_open(2) and its ioctls
//! - `attr`: the argument blocks of both
//! - `errno`: a kernel's error number ([`Errno`])
//! - [`mmap`]: mappings that end with their owner
//! - `ring`: the shared pages of ring buffers and perf rings
//! - [`fd_table`]: descriptors in memory of the caller's
//! - `fd_list`: descriptors whose number is not known before
//! - `env`: environment variables where they lie
//! - `owned_list`: values whose number is not known before, dropped with their list
//! - `again`: a job that is done once more in the same buffer
//! - `watched`: a descriptor that a tokio runtime watches (feature `tokio`)
//!
//! What the calls need, without:
//!
//! - `cpus`: which CPUs there are: the kernel writes per-CPU values for each
//! - `version`: which kernel this is: what a descriptor holds is told apart by it
//! - `files`: small files and paths
//! - `lines`: text that comes in pieces, cut into lines
//! - `list`: numbers and bytes whose count is not known before

#![expect(unsafe_code, reason = "system calls and shared memory: the one place for them")]

pub(crate) mod again;
pub(crate) mod attr;
pub mod bpf;
pub(crate) mod cpus;
pub(crate) mod env;
mod errno;
#[cfg(test)]
pub(crate) mod fake;
#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod fake_probe;
pub(crate) mod fd_list;
pub mod fd_table;
pub(crate) mod files;
pub(crate) mod lines;
pub(crate) mod list;
pub mod mmap;
pub(crate) mod owned_list;
pub mod perf;
pub(crate) mod ring;
pub(crate) mod version;
#[cfg(feature = "tokio")]
pub(crate) mod watched;

pub use errno::Errno;

use std::os::fd::{FromRawFd, OwnedFd};

/// bpf(2) on an argument block of any family.
///
/// # Safety
/// Every pointer in `attr` must be valid for what `cmd` reads and writes through it, until the call returns.
pub(crate) unsafe fn raw_bpf<A: zerocopy::IntoBytes + zerocopy::FromBytes>(
    cmd: u32,
    attr: &mut A,
) -> Result<u32, Errno> {
    #[cfg(test)]
    if let Some(answer) = fake::answer(cmd, attr.as_mut_bytes()) {
        return answer;
    }
    // SAFETY: `attr` is a live block of the size given; the caller vouches for the pointers in it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            libc::c_long::from(cmd as i32),
            std::ptr::from_mut(attr),
            size_of::<A>() as libc::c_long,
        )
    };
    number(result)
}

/// perf_event_open(2).
pub(crate) fn raw_perf_event_open(
    attr: &attr::PerfEventAttr,
    pid: i32,
    cpu: i32,
    group_fd: i32,
    flags: u32,
) -> Result<OwnedFd, Errno> {
    // SAFETY: `attr` is a live block whose `size` field says its length; the kernel only reads it and what it points to.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attr),
            pid as libc::c_long,
            cpu as libc::c_long,
            group_fd as libc::c_long,
            flags as libc::c_long,
        )
    };
    let fd = number(result)?;
    // SAFETY: the kernel has just made this descriptor for us, so nobody else owns it.
    above_standard(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The first number that a descriptor of ours may have. Those before are standard input, output and error, which a daemon
/// closes and something else may put there at any time; and 0 is "none" to many commands of bpf(2).
const FIRST_FD: i32 = 3;

/// The descriptor, or where its number is that of standard input, output or error, a second one in its place (libbpf:
/// `ensure_good_fd`).
fn above_standard(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    use std::os::fd::AsRawFd;
    if fd.as_raw_fd() >= FIRST_FD { Ok(fd) } else { Ok(rustix::io::fcntl_dupfd_cloexec(&fd, FIRST_FD)?) }
}

/// A second descriptor, close-on-exec and never standard input, output or error.
pub(crate) fn dup(fd: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, FIRST_FD)?)
}

/// A system call's result, or this thread's errno.
fn number(result: libc::c_long) -> Result<u32, Errno> {
    if result < 0 { Err(Errno::last()) } else { Ok(result as u32) }
}

/// The size of a page, in bytes: 4096 here, 16384 or 65536 on other kernels.
#[must_use]
pub fn page_size() -> usize {
    rustix::param::page_size()
}

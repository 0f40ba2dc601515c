//! Iterators: programs that the kernel runs for each task, map element, socket and so on, writing text to be read
//! ([`events::IterReader`](crate::events::IterReader)).
//!
//! Linux 5.8; CAP_BPF and CAP_PERFMON

use std::os::fd::BorrowedFd;

use corelo_core::uapi::AttachType;

use super::{Link, LinkError, create};
use crate::sys::bpf;

/// Attaches an iterator that needs nothing beyond its program.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach(program: BorrowedFd<'_>) -> Result<Link, LinkError> {
    attach_with(program, &[])
}

/// Attaches an iterator over one map's elements.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach_map(program: BorrowedFd<'_>, map: BorrowedFd<'_>) -> Result<Link, LinkError> {
    // union bpf_iter_link_info: map_fd is its first word.
    attach_with(program, &bpf::target_fd(map).to_ne_bytes())
}

/// Attaches an iterator with `union bpf_iter_link_info` as the caller filled it (tasks by pid, cgroup trees).
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach_with(program: BorrowedFd<'_>, info: &[u8]) -> Result<Link, LinkError> {
    create(program, 0, AttachType::TRACE_ITER.0, 0, &bpf::LinkTarget::Iter(info))
}

//! Tracepoints by tracefs: `tp/CATEGORY/NAME`.
//!
//! Linux 4.7; CAP_BPF and CAP_PERFMON

use std::os::fd::BorrowedFd;

use super::{Link, LinkError, Scope, perf_event, tracefs};

/// Attaches to a tracepoint, on all CPUs and for all tasks. A cookie other than 0 needs Linux 5.15.
///
/// # Errors
/// [`LinkError::NoTracefs`], [`LinkError::NoTracepoint`], [`LinkError::Kernel`].
pub fn attach(program: BorrowedFd<'_>, category: &str, name: &str, cookie: u64) -> Result<Link, LinkError> {
    let id = tracefs::event_id(category, name)?;
    perf_event::attach_event(id, program, cookie, Scope::cpu(0), None)
}

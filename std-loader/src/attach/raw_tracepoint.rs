//! Raw tracepoints: `raw_tp/NAME`, where the program gets the tracepoint's own arguments.
//!
//! Linux 4.17; CAP_BPF and CAP_PERFMON

use std::os::fd::BorrowedFd;

use super::{Link, LinkError, call};
use crate::sys::bpf;
use crate::sys::files::CPath;

/// Attaches to a raw tracepoint. (`tp_btf` has its target from the load: [`super::tracing`].) A cookie other than 0 needs
/// Linux 6.10.
///
/// # Errors
/// [`LinkError::Kernel`]: ENOENT where there is no such tracepoint.
pub fn attach(program: BorrowedFd<'_>, name: &str, cookie: u64) -> Result<Link, LinkError> {
    let name = CPath::from_bytes(name.as_bytes()).map_err(|_| LinkError::NoTracepoint)?;
    bpf::raw_tracepoint_open(Some(name.as_c_str()), program, cookie)
        .map(Link::from_fd)
        .map_err(call("BPF_RAW_TRACEPOINT_OPEN"))
}

//! Programs whose target was fixed when they were loaded: tp_btf, fentry, fexit, fmod_ret, LSM; and freplace, whose
//! target may still be changed.
//!
//! Linux 5.5, fmod_ret and LSM 5.7, freplace 5.6; CAP_BPF and CAP_PERFMON, of freplace CAP_NET_ADMIN too

use std::os::fd::BorrowedFd;

use super::{Link, LinkError, call, create};
use crate::sys::bpf;

/// Attaches to what the program was loaded for. A cookie other than 0 needs Linux 5.18 and a link of its own kind.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach(program: BorrowedFd<'_>, expected_attach_type: u32, cookie: u64) -> Result<Link, LinkError> {
    if cookie == 0 {
        // Every kernel that has such programs has this way.
        return bpf::raw_tracepoint_open(None, program, 0).map(Link::from_fd).map_err(call("BPF_RAW_TRACEPOINT_OPEN"));
    }
    let how = bpf::LinkTarget::Tracing { target_btf_id: 0, cookie };
    create(program, 0, expected_attach_type, 0, &how)
}

/// Attaches a freplace program to a function of another loaded program.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach_to_program(
    program: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    target_btf_id: u32,
) -> Result<Link, LinkError> {
    let how = bpf::LinkTarget::Tracing { target_btf_id, cookie: 0 };
    create(program, bpf::target_fd(target), 0, 0, &how)
}

//! Programs on sockets, sock maps and network namespaces.
//!
//! Linux 4.14 for sock maps, 5.8 for flow dissectors, 5.9 for socket lookups; CAP_BPF and CAP_NET_ADMIN

use std::os::fd::{AsFd, BorrowedFd};

use super::{Kind, Link, LinkError, call, create};
use crate::sys::bpf;

/// Attaches sk_skb and sk_msg programs to a sock map or sock hash by BPF_PROG_ATTACH, which all kernels have.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach_sockmap(program: BorrowedFd<'_>, map: BorrowedFd<'_>, attach_type: u32) -> Result<Link, LinkError> {
    let dup = |fd: BorrowedFd<'_>| crate::sys::dup(fd).map_err(call("dup"));
    let (target, program) = (dup(map)?, dup(program)?);
    bpf::prog_attach(target.as_fd(), program.as_fd(), attach_type, 0).map_err(call("BPF_PROG_ATTACH"))?;
    Ok(Link::new(Kind::Attached { target, program, attach_type }))
}

/// Attaches flow dissectors and socket lookups to a network namespace (a descriptor of /proc/PID/ns/net), by a link
/// (Linux 5.8).
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach_netns(program: BorrowedFd<'_>, netns: BorrowedFd<'_>, attach_type: u32) -> Result<Link, LinkError> {
    let target = bpf::target_fd(netns);
    create(program, target, attach_type, 0, &bpf::LinkTarget::Plain)
}

//! Netfilter hooks.
//!
//! Linux 6.4; CAP_BPF and CAP_NET_ADMIN

use std::os::fd::BorrowedFd;

use corelo_core::uapi::AttachType;

use super::{Link, LinkError, create};
use crate::sys::bpf;

/// Which hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// NFPROTO_IPV4 (2) or NFPROTO_IPV6 (10).
    pub family: u32,
    /// NF_INET_PRE_ROUTING (0) to NF_INET_POST_ROUTING (4).
    pub hook: u32,
    /// The place among the other users of the hook.
    pub priority: i32,
    /// Sees whole packets only: BPF_F_NETFILTER_IP_DEFRAG (Linux 6.6).
    pub defragment: bool,
}

/// Attaches to a hook of this network namespace.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach(program: BorrowedFd<'_>, hook: Hook) -> Result<Link, LinkError> {
    let how = bpf::LinkTarget::Netfilter {
        pf: hook.family,
        hooknum: hook.hook,
        priority: hook.priority,
        flags: u32::from(hook.defragment),
    };
    create(program, 0, AttachType::NETFILTER.0, 0, &how)
}

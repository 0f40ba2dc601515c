//! tcx (Linux 6.6) and netkit (6.7): programs in an order on a network interface.

use std::os::fd::BorrowedFd;

use super::{Link, LinkError, create};
use crate::sys::bpf;

/// The place among the programs that are there already.
#[derive(Debug, Clone, Copy, Default)]
pub enum Order<'a> {
    /// The last.
    #[default]
    Append,
    /// The first.
    First,
    /// Before another program.
    Before(BorrowedFd<'a>),
    /// After another program.
    After(BorrowedFd<'a>),
}

impl Order<'_> {
    pub(super) fn parts(self) -> (u32, u32) {
        /// BPF_F_BEFORE, BPF_F_AFTER.
        const BEFORE: u32 = 1 << 3;
        const AFTER: u32 = 1 << 4;
        match self {
            Order::Append => (0, 0),
            Order::First => (BEFORE, 0),
            Order::Before(other) => (BEFORE, bpf::target_fd(other)),
            Order::After(other) => (AFTER, bpf::target_fd(other)),
        }
    }
}

/// Attaches to an interface. `attach_type` is the program's: tcx ingress or egress, netkit primary or peer.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach(program: BorrowedFd<'_>, ifindex: u32, attach_type: u32, order: Order<'_>) -> Result<Link, LinkError> {
    let (flags, relative) = order.parts();
    let how = bpf::LinkTarget::Ordered { relative, expected_revision: 0 };
    create(program, ifindex, attach_type, flags, &how)
}

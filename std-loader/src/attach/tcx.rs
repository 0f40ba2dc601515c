//! tcx and netkit: programs in an order on a network interface.
//!
//! Linux 6.6, netkit 6.7; CAP_BPF and CAP_NET_ADMIN

use std::os::fd::BorrowedFd;

use super::{Link, LinkError, call, create};
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
    /// Flags, and the other program.
    pub(super) fn parts(self) -> Result<(u32, u32), LinkError> {
        /// BPF_F_BEFORE, BPF_F_AFTER.
        const BEFORE: u32 = 1 << 3;
        const AFTER: u32 = 1 << 4;
        let (flags, other) = match self {
            Order::Append => (0, None),
            Order::First => (BEFORE, None),
            Order::Before(other) => (BEFORE, Some(other)),
            Order::After(other) => (AFTER, Some(other)),
        };
        Ok((flags, bpf::given(other).map_err(call("BPF_LINK_CREATE"))?))
    }
}

/// Attaches to an interface. `attach_type` is the program's: tcx ingress or egress, netkit primary or peer.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach(program: BorrowedFd<'_>, ifindex: u32, attach_type: u32, order: Order<'_>) -> Result<Link, LinkError> {
    let (flags, relative) = order.parts()?;
    let how = bpf::LinkTarget::Ordered { relative, expected_revision: 0 };
    create(program, ifindex, attach_type, flags, &how)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fake::{install, some_fd, u32_at};
    use std::os::fd::{AsFd, AsRawFd};
    use std::sync::Mutex;

    #[test]
    fn the_kernel_is_told_the_place() {
        static ASKED: Mutex<Option<[u32; 5]>> = Mutex::new(None);
        let null = std::fs::File::open("/dev/null").unwrap();
        let other = std::fs::File::open("/dev/null").unwrap();
        let number = other.as_raw_fd().cast_unsigned();
        let _guard = install(|command, block| {
            assert_eq!(command, bpf::cmd::LINK_CREATE);
            // Target, attach type, flags, the other program and its upper half.
            *ASKED.lock().unwrap() = Some([4, 8, 12, 16, 20].map(|at| u32_at(block, at)));
            Some(Ok(some_fd()))
        });
        for (order, flags, relative) in [
            (Order::Append, 0, 0),
            (Order::First, 8, 0),
            (Order::Before(other.as_fd()), 8, number),
            (Order::After(other.as_fd()), 16, number),
        ] {
            drop(attach(null.as_fd(), 7, 46, order).unwrap());
            assert_eq!(ASKED.lock().unwrap().take(), Some([7, 46, flags, relative, 0]), "{order:?}");
        }
    }
}

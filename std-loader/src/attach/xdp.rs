//! XDP on a network interface, by a link.
//!
//! Linux 5.9; CAP_BPF and CAP_NET_ADMIN

use std::os::fd::BorrowedFd;

use corelo_core::uapi::AttachType;

use super::{Link, LinkError, create};
use crate::sys::bpf;

/// Where the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// In the driver where it can, else in the stack.
    #[default]
    Any,
    /// In the network stack, for every driver: XDP_FLAGS_SKB_MODE.
    Generic,
    /// In the driver: XDP_FLAGS_DRV_MODE.
    Driver,
    /// On the device: XDP_FLAGS_HW_MODE.
    Hardware,
}

/// Attaches to an interface by its index ([`super::interface_index`]).
///
/// # Errors
/// [`LinkError::Kernel`]: EBUSY where another program is there.
pub fn attach(program: BorrowedFd<'_>, ifindex: u32, mode: Mode) -> Result<Link, LinkError> {
    let flags = match mode {
        Mode::Any => 0,
        Mode::Generic => 1 << 1,
        Mode::Driver => 1 << 2,
        Mode::Hardware => 1 << 3,
    };
    create(program, ifindex, AttachType::XDP.0, flags, &bpf::LinkTarget::Plain)
}

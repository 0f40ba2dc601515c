//! struct_ops: registering a table of programs (a congestion control, a scheduler) with the kernel.
//!
//! Linux 5.6, by links 6.4; CAP_BPF and CAP_PERFMON

use std::os::fd::{AsFd, BorrowedFd};

use corelo_core::uapi::{AttachType, BPF_F_LINK};

use super::{Kind, Link, LinkError, call, create};
use crate::objects::MapFd;
use crate::sys::fd_table::MapRef;
use crate::sys::{Errno, bpf};

/// Writes the table into its map and registers it: at once, or (a map made with [`BPF_F_LINK`]) by a link.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach(map: &MapFd, value: &[u8]) -> Result<Link, LinkError> {
    let by_link = map.map_flags() & BPF_F_LINK != 0;
    match map.update(&0u32.to_ne_bytes(), value, 0) {
        Ok(()) => {}
        // The table is in it already, of an earlier link.
        Err(Errno::EBUSY) if by_link => {}
        Err(errno) => return Err(call("BPF_MAP_UPDATE_ELEM")(errno)),
    }
    if by_link {
        return create(map.as_fd(), 0, AttachType::STRUCT_OPS.0, 0, &bpf::LinkTarget::Plain);
    }
    match crate::sys::dup(map.as_fd()) {
        Ok(copy) => Ok(Link::new(Kind::StructOps(copy))),
        Err(errno) => {
            unregister(map.as_fd());
            Err(call("dup")(errno))
        }
    }
}

/// Deleting the one element unregisters.
pub(super) fn unregister(map: BorrowedFd<'_>) {
    // Without a second descriptor, of which there may be none left. Nobody to tell.
    if let Ok(map) = MapRef::new(map) {
        let _ = map.delete(&0u32.to_ne_bytes());
    }
}

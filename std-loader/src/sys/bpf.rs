//! bpf(2), one safe function per command.
//!
//! Each builds its argument block from descriptors and slices, so that every pointer in it is valid for the length
//! beside it, and turns the result into an `OwnedFd` or an [`Errno`]. Nothing is retried here except where it says so.

mod link;
mod map;
mod object;
mod prog;

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use zerocopy::{FromBytes, IntoBytes};

use super::{Errno, raw_bpf};

pub use link::{CStrAddress, Functions, link_detach, link_update};
pub(crate) use link::{LinkTarget, iter_create, link_create, raw_tracepoint_open, target_fd};
pub use map::MapFd;
pub(crate) use map::{freeze, is_per_cpu, map_create, update_array};
pub(crate) use object::btf_load;
pub use object::{
    BtfInfo, LinkInfo, MapInfo, ObjectKind, ProgInfo, btf_info, fd_by_id, kind_of, link_info, map_info, next_id,
    obj_get, obj_pin, prog_info, prog_map_ids, prog_xlated,
};
pub(crate) use prog::{ProgLoad, prog_attach, prog_detach, prog_load};
pub use prog::{TestRun, TestRunResult, prog_bind_map, prog_test_run};

/// Command numbers: `enum bpf_cmd` of the uapi.
pub(crate) mod cmd {
    pub(crate) const MAP_CREATE: u32 = 0;
    pub(crate) const MAP_LOOKUP_ELEM: u32 = 1;
    pub(crate) const MAP_UPDATE_ELEM: u32 = 2;
    pub(crate) const MAP_DELETE_ELEM: u32 = 3;
    pub(crate) const MAP_GET_NEXT_KEY: u32 = 4;
    pub(crate) const PROG_LOAD: u32 = 5;
    pub(crate) const OBJ_PIN: u32 = 6;
    pub(crate) const OBJ_GET: u32 = 7;
    pub(crate) const PROG_ATTACH: u32 = 8;
    pub(crate) const PROG_DETACH: u32 = 9;
    pub(crate) const PROG_TEST_RUN: u32 = 10;
    pub(crate) const PROG_GET_NEXT_ID: u32 = 11;
    pub(crate) const MAP_GET_NEXT_ID: u32 = 12;
    pub(crate) const PROG_GET_FD_BY_ID: u32 = 13;
    pub(crate) const MAP_GET_FD_BY_ID: u32 = 14;
    pub(crate) const OBJ_GET_INFO_BY_FD: u32 = 15;
    pub(crate) const RAW_TRACEPOINT_OPEN: u32 = 17;
    pub(crate) const BTF_LOAD: u32 = 18;
    pub(crate) const BTF_GET_FD_BY_ID: u32 = 19;
    pub(crate) const MAP_LOOKUP_AND_DELETE_ELEM: u32 = 21;
    pub(crate) const MAP_FREEZE: u32 = 22;
    pub(crate) const BTF_GET_NEXT_ID: u32 = 23;
    pub(crate) const LINK_CREATE: u32 = 28;
    pub(crate) const LINK_UPDATE: u32 = 29;
    pub(crate) const LINK_GET_FD_BY_ID: u32 = 30;
    pub(crate) const LINK_GET_NEXT_ID: u32 = 31;
    pub(crate) const ITER_CREATE: u32 = 33;
    pub(crate) const LINK_DETACH: u32 = 34;
    pub(crate) const PROG_BIND_MAP: u32 = 35;
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// A descriptor where 0 is "none": standard input, which the kernel would take for that, is refused.
pub(crate) fn given(fd: Option<BorrowedFd<'_>>) -> Result<u32, Errno> {
    match fd.map(raw) {
        Some(0) => Err(Errno::EBADF),
        number => Ok(number.unwrap_or(0)),
    }
}

/// A slice's address as the uapi wants it; an empty slice is a null pointer, which is how "not given" is written.
fn address<T>(slice: &[T]) -> u64 {
    if slice.is_empty() { 0 } else { slice.as_ptr().expose_provenance() as u64 }
}

fn address_mut<T>(slice: &mut [T]) -> u64 {
    if slice.is_empty() { 0 } else { slice.as_mut_ptr().expose_provenance() as u64 }
}

fn c_address(text: &CStr) -> u64 {
    text.as_ptr().expose_provenance() as u64
}

fn length(bytes: &[u8]) -> Result<u32, Errno> {
    u32::try_from(bytes.len()).map_err(|_| Errno::E2BIG)
}

/// # Safety
/// As for `raw_bpf`, and `command` must return a new descriptor.
unsafe fn bpf_fd<A: IntoBytes + FromBytes>(command: u32, block: &mut A) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's promise.
    let fd = unsafe { raw_bpf(command, block)? };
    // SAFETY: the kernel has just made this descriptor for us; bpf(2) makes all of them close-on-exec.
    super::above_standard(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests;

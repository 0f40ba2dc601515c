//! The running kernel's BTF, mapped or streamed.

use std::ffi::CStr;

use rustix::fs::OFlags;

use super::places::{VMLINUX, from_images};
use super::{KernelBtf, KernelBtfError, StreamedBtf};
use crate::sys::Errno;
use crate::sys::files;

/// The running kernel's BTF, in the way that takes the least memory.
#[derive(Debug)]
pub enum LeanBtf {
    /// Mapped (Linux 6.16 and newer), or of a kernel image on disk where sysfs has none.
    Whole(KernelBtf),
    /// To be read piece by piece: the kernel refuses to map it.
    Streamed(StreamedBtf),
}

impl LeanBtf {
    /// Maps what sysfs has, or where the kernel refuses that, opens it for reading; an image of this release on disk is
    /// the last resort.
    ///
    /// # Errors
    /// As [`KernelBtf::open`].
    pub fn open() -> Result<LeanBtf, KernelBtfError> {
        match LeanBtf::from_sysfs(VMLINUX) {
            Err(KernelBtfError::Open(Errno::ENOENT)) => from_images(KernelBtf::from_c_path).map(LeanBtf::Whole),
            result => result,
        }
    }

    pub(super) fn from_sysfs(path: &CStr) -> Result<LeanBtf, KernelBtfError> {
        let fd = files::open(path, OFlags::RDONLY).map_err(KernelBtfError::Open)?;
        Ok(match KernelBtf::mapped(&fd) {
            Some(mapped) => LeanBtf::Whole(mapped),
            None => LeanBtf::Streamed(StreamedBtf::whole(fd)?),
        })
    }
}

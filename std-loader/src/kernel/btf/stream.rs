//! BTF that stays where it is and is read piece by piece.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use corelo_core::min_btf;
use rustix::fs::OFlags;

use super::places::{VMLINUX, from_images, module_path};
use super::section::find_section;
use super::{KernelBtf, KernelBtfError, MAX_BYTES};
use crate::sys::Errno;
use crate::sys::files::{self, CPath, stated_size};

/// A kernel's BTF that stays in its file and is read piece by piece: see [`corelo_core::min_btf::stream`]. It takes no
/// memory but the window.
#[derive(Debug)]
pub struct StreamedBtf {
    fd: OwnedFd,
    start: u64,
    len: u64,
}

impl StreamedBtf {
    /// That of the running kernel: sysfs, else an image of this release on disk.
    ///
    /// # Errors
    /// [`KernelBtfError::Missing`], [`KernelBtfError::NoSysfs`], [`KernelBtfError::Open`]
    pub fn open() -> Result<StreamedBtf, KernelBtfError> {
        match files::open(VMLINUX, OFlags::RDONLY) {
            Err(Errno::ENOENT) => from_images(StreamedBtf::from_c_path),
            Err(errno) => Err(KernelBtfError::Open(errno)),
            Ok(fd) => StreamedBtf::whole(fd),
        }
    }

    /// A loaded module's, which is split on vmlinux's.
    ///
    /// # Errors
    /// `Open(ENOENT)` where the module is not loaded or has none.
    pub fn open_module(name: &str) -> Result<StreamedBtf, KernelBtfError> {
        let path = module_path(name)?;
        StreamedBtf::whole(files::open(path.as_c_str(), OFlags::RDONLY).map_err(KernelBtfError::Open)?)
    }

    /// A file of the user's: BTF as it is, or ELF with a `.BTF` section.
    ///
    /// # Errors
    /// All but [`KernelBtfError::Missing`] and [`KernelBtfError::Memory`].
    pub fn from_file(path: &Path) -> Result<StreamedBtf, KernelBtfError> {
        let path = CPath::new(path).map_err(KernelBtfError::Open)?;
        StreamedBtf::from_c_path(path.as_c_str())
    }

    fn from_c_path(path: &CStr) -> Result<StreamedBtf, KernelBtfError> {
        let fd = files::open(path, OFlags::RDONLY).map_err(KernelBtfError::Open)?;
        let mut start = [0; 64];
        let len = files::read_at(&fd, &mut start, 0).map_err(KernelBtfError::Read)?;
        match &start[..len] {
            [0x9f, 0xeb, ..] | [0xeb, 0x9f, ..] => StreamedBtf::whole(fd),
            [0x7f, b'E', b'L', b'F', ..] => {
                let (start, len) = find_section(&fd, &start[..len], b".BTF\0")?;
                Ok(StreamedBtf { fd, start, len: len as u64 })
            }
            _ => Err(KernelBtfError::NotBtf),
        }
    }

    pub(super) fn whole(fd: OwnedFd) -> Result<StreamedBtf, KernelBtfError> {
        // A size that is not told is no limit: the file's end is.
        let len = match stated_size(&fd) {
            0 => MAX_BYTES,
            size if size > MAX_BYTES => return Err(KernelBtfError::TooLarge),
            size => size,
        };
        Ok(StreamedBtf { fd, start: 0, len: len as u64 })
    }
}

impl min_btf::Source for StreamedBtf {
    type Error = Errno;

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = buffer.len().min(left);
        files::read_at(&self.fd, &mut buffer[..len], self.start.saturating_add(offset))
    }
}

/// BTF that is looked through piece by piece, wherever it is: of one type, so that what reads it is compiled once.
#[derive(Debug)]
pub(crate) enum Pieces<'k> {
    /// In memory.
    Whole(&'k KernelBtf),
    /// In its file.
    Streamed(StreamedBtf),
}

impl min_btf::Source for Pieces<'_> {
    type Error = Errno;

    fn len(&self) -> u64 {
        match self {
            Pieces::Whole(btf) => btf.as_bytes().len() as u64,
            Pieces::Streamed(btf) => btf.len(),
        }
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Pieces::Whole(btf) => {
                let Ok(len) = min_btf::SliceSource(btf).read_at(offset, buffer);
                Ok(len)
            }
            Pieces::Streamed(btf) => btf.read_at(offset, buffer),
        }
    }
}

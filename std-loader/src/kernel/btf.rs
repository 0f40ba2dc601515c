//! Where the kernel's BTF comes from.
//!
//! Linux 6.16 and newer let /sys/kernel/btf/vmlinux be mapped: not a byte is copied. Older ones refuse in different ways
//! (ENODEV, EINVAL, EPERM): there [`KernelBtf`] reads the file into one private mapping, which counts as memory but is
//! no heap, and [`LeanBtf`] leaves it where it is, to be read piece by piece. A kernel without that file may have its
//! image with a `.BTF` section on disk, in the places that libbpf looks at. Module BTF lies beside vmlinux's; each is
//! opened on its own and dropped before the next.

mod error;
mod lean;
mod object;
mod places;
mod section;
mod stream;

use core::fmt;
use core::ops::Deref;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::OFlags;

use crate::sys::Errno;
use crate::sys::files::{self, CPath, WholeError, stated_size};
use crate::sys::mmap::{AnonMap, SysfsMap};
use places::{VMLINUX, from_images, module_path};
use section::find_section;

pub use error::KernelBtfError;
pub use lean::LeanBtf;
pub use object::btf_object;
pub use places::modules;
pub(crate) use stream::Pieces;
pub use stream::StreamedBtf;

/// A BTF blob of a kernel, kept alive by this value.
#[derive(Debug)]
pub struct KernelBtf {
    bytes: Bytes,
    source: Source,
}

#[derive(Debug)]
enum Bytes {
    Mapped(SysfsMap),
    Read { memory: AnonMap, len: usize },
}

/// How a blob came into this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The kernel's own pages, mapped.
    Mmap,
    /// Read from sysfs into private memory.
    Read,
    /// From a file: the user's, or a kernel image.
    File,
    /// Not at all: it is read piece by piece from where it is.
    Streamed,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Mmap => "mmap",
            Source::Read => "read",
            Source::File => "file",
            Source::Streamed => "streamed",
        })
    }
}

impl Deref for KernelBtf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Read { memory, len } => &memory[..*len],
        }
    }
}

/// Bytes that sysfs hands out at a time, where pages have so many: reading through a larger window takes as many system
/// calls.
pub(crate) const PIECE: usize = 4 << 10;

const MAX_BYTES: usize = 256 << 20;

impl KernelBtf {
    /// The running kernel's BTF: sysfs, else an image of this release on disk.
    ///
    /// # Errors
    /// [`KernelBtfError::Missing`] or [`KernelBtfError::NoSysfs`] where no place has it; otherwise what went wrong with the first that does.
    pub fn open() -> Result<KernelBtf, KernelBtfError> {
        match KernelBtf::from_sysfs(VMLINUX) {
            Err(KernelBtfError::Open(Errno::ENOENT)) => from_images(KernelBtf::from_c_path),
            result => result,
        }
    }

    /// A loaded module's BTF, which is split on vmlinux's.
    ///
    /// # Errors
    /// `Open(ENOENT)` where the module is not loaded or has none.
    pub fn open_module(name: &str) -> Result<KernelBtf, KernelBtfError> {
        let path = module_path(name)?;
        KernelBtf::from_sysfs(path.as_c_str())
    }

    /// A file of the user's: BTF as it is, or ELF with a `.BTF` section, of either byte order. It is read, never
    /// mapped: it may change under us.
    ///
    /// # Errors
    /// All but [`KernelBtfError::Missing`].
    pub fn from_file(path: &Path) -> Result<KernelBtf, KernelBtfError> {
        let path = CPath::new(path).map_err(KernelBtfError::Open)?;
        KernelBtf::from_c_path(path.as_c_str())
    }

    /// The distilled base that a module's file has beside its own BTF: section `.BTF.base`. `None` for a file without
    /// one, and for BTF that is no ELF file.
    ///
    /// # Errors
    /// [`KernelBtfError`]
    pub fn base_in_file(path: &Path) -> Result<Option<KernelBtf>, KernelBtfError> {
        let path = CPath::new(path).map_err(KernelBtfError::Open)?;
        let fd = files::open(path.as_c_str(), OFlags::RDONLY).map_err(KernelBtfError::Open)?;
        let mut start = [0; 64];
        let len = files::read_at(&fd, &mut start, 0).map_err(KernelBtfError::Read)?;
        match &start[..len] {
            start @ [0x7f, b'E', b'L', b'F', ..] => match read_section(&fd, start, b".BTF.base\0") {
                Err(KernelBtfError::NoSection) => Ok(None),
                read => read.map(Some),
            },
            _ => Ok(None),
        }
    }

    /// How it came into this process.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// The bytes, the same as by dereferencing.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self
    }

    fn from_sysfs(path: &CStr) -> Result<KernelBtf, KernelBtfError> {
        let fd = files::open(path, OFlags::RDONLY).map_err(KernelBtfError::Open)?;
        match KernelBtf::mapped(&fd) {
            Some(mapped) => Ok(mapped),
            None => read_all(&fd, stated_size(&fd), Source::Read),
        }
    }

    /// A file of sysfs in its own pages; `None` where the kernel refuses that, with whatever number: they disagree on it.
    fn mapped(fd: &OwnedFd) -> Option<KernelBtf> {
        let size = stated_size(fd);
        if size == 0 || size > MAX_BYTES {
            return None;
        }
        let map = SysfsMap::new(fd.as_fd(), size).ok()?;
        Some(KernelBtf { bytes: Bytes::Mapped(map), source: Source::Mmap })
    }

    fn from_c_path(path: &CStr) -> Result<KernelBtf, KernelBtfError> {
        let fd = files::open(path, OFlags::RDONLY).map_err(KernelBtfError::Open)?;
        let mut start = [0; 64];
        let len = files::read_at(&fd, &mut start, 0).map_err(KernelBtfError::Read)?;
        match &start[..len] {
            [0x9f, 0xeb, ..] | [0xeb, 0x9f, ..] => read_all(&fd, stated_size(&fd), Source::File),
            [0x7f, b'E', b'L', b'F', ..] => read_section(&fd, &start[..len], b".BTF\0"),
            _ => Err(KernelBtfError::NotBtf),
        }
    }
}

/// Reads to the end of the file, whatever its length was said to be: sysfs hands out 4 KiB at a time.
fn read_all(fd: &OwnedFd, hint: usize, source: Source) -> Result<KernelBtf, KernelBtfError> {
    let (memory, len) = files::read_whole(fd, hint, MAX_BYTES).map_err(|error| match error {
        WholeError::Read(errno) => KernelBtfError::Read(errno),
        WholeError::Memory(errno) => KernelBtfError::Memory(errno),
        WholeError::TooLarge => KernelBtfError::TooLarge,
    })?;
    Ok(KernelBtf { bytes: Bytes::Read { memory, len }, source })
}

/// Reads one section alone: kernel images with debug information have hundreds of megabytes.
fn read_section(fd: &OwnedFd, start: &[u8], name: &[u8]) -> Result<KernelBtf, KernelBtfError> {
    let (offset, size) = find_section(fd, start, name)?;
    let mut memory = AnonMap::new(size).map_err(KernelBtfError::Memory)?;
    let len = files::read_at(fd, &mut memory[..size], offset).map_err(KernelBtfError::Read)?;
    if len < size {
        return Err(KernelBtfError::Elf);
    }
    Ok(KernelBtf { bytes: Bytes::Read { memory, len }, source: Source::File })
}

#[cfg(test)]
mod tests;

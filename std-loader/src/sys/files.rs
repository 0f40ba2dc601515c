//! Small files and paths without the heap.

#![forbid(unsafe_code)]

use core::fmt;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::sys::mmap::AnonMap;
use crate::sys::{Errno, page_size};

/// A path with its NUL on the stack, as long as the kernel takes paths.
pub(crate) struct CPath {
    bytes: heapless::Vec<u8, 4096>,
}

impl CPath {
    pub(crate) fn new(path: &Path) -> Result<CPath, Errno> {
        CPath::from_bytes(path.as_os_str().as_bytes())
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<CPath, Errno> {
        let mut path = CPath { bytes: heapless::Vec::new() };
        if bytes.contains(&0) {
            return Err(Errno::EINVAL);
        }
        path.push(bytes)?;
        path.push(&[0])?;
        Ok(path)
    }

    /// Parts of a path, one after the other.
    pub(crate) fn join(parts: &[&[u8]]) -> Result<CPath, Errno> {
        let mut path = CPath { bytes: heapless::Vec::new() };
        for part in parts {
            path.push(part)?;
        }
        if path.bytes.contains(&0) {
            return Err(Errno::EINVAL);
        }
        path.push(&[0])?;
        Ok(path)
    }

    /// A path put together from parts, none of which may hold a NUL.
    pub(crate) fn format(parts: fmt::Arguments<'_>) -> Result<CPath, Errno> {
        let mut path = CPath { bytes: heapless::Vec::new() };
        fmt::write(&mut path, parts).map_err(|_| Errno::ENAMETOOLONG)?;
        if path.bytes.contains(&0) {
            return Err(Errno::EINVAL);
        }
        path.push(&[0])?;
        Ok(path)
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        self.bytes.extend_from_slice(bytes).map_err(|_| Errno::ENAMETOOLONG)
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        // Built with exactly one NUL, at the end.
        CStr::from_bytes_with_nul(&self.bytes).unwrap_or_default()
    }
}

impl fmt::Write for CPath {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

pub(crate) fn open(path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    loop {
        match openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Whether a file is there: it is looked for as it would be opened, with the effective ids, and neither read nor written.
pub(crate) fn exists(path: &CStr) -> Result<bool, Errno> {
    match open(path, OFlags::PATH) {
        Ok(_) => Ok(true),
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_full(fd: impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut len = 0;
    while len < buffer.len() {
        match rustix::io::read(&fd, &mut buffer[len..]) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(len)
}

/// Why a file is not read as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WholeError {
    Read(Errno),
    Memory(Errno),
    TooLarge,
}

/// Reads to the end of the file, of `limit` bytes at most, into memory of its own, and says how many bytes there were. `hint`
/// is the length that the file system tells: of sysfs too much, of pipes and devices nothing.
pub(crate) fn read_whole(fd: &OwnedFd, hint: usize, limit: usize) -> Result<(AnonMap, usize), WholeError> {
    if hint > limit {
        return Err(WholeError::TooLarge);
    }
    let mut memory = AnonMap::new(hint + page_size()).map_err(WholeError::Memory)?;
    let mut len = 0;
    loop {
        len += read_full(fd, &mut memory[len..]).map_err(WholeError::Read)?;
        if len > limit {
            return Err(WholeError::TooLarge);
        }
        if len < memory.len() {
            return Ok((memory, len));
        }
        memory.grow((2 * len).min(limit + page_size())).map_err(WholeError::Memory)?;
    }
}

/// The size that the file system tells, in bytes; 0 where it does not.
pub(crate) fn stated_size(fd: &OwnedFd) -> usize {
    let size = rustix::fs::fstat(fd).map_or(0, |stat| stat.st_size);
    // What is too much for a number of this machine is too much for all who ask.
    usize::try_from(size.max(0)).unwrap_or(usize::MAX)
}

/// Reads `buffer.len()` bytes at an offset, fewer only where the file ends.
pub(crate) fn read_at(fd: impl AsFd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut len = 0;
    while len < buffer.len() {
        match rustix::io::pread(&fd, &mut buffer[len..], offset.wrapping_add(len as u64)) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(len)
}

/// The start of a small file, as much as the buffer holds.
pub(crate) fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let fd = open(path, OFlags::RDONLY)?;
    let len = read_full(fd, buffer)?;
    Ok(&buffer[..len])
}

/// The decimal number that a small file starts with, spaces before and after it ignored.
pub(crate) fn read_number(path: &CStr) -> Result<u64, Errno> {
    let mut buffer = [0; 64];
    let text = read_file(path, &mut buffer)?.trim_ascii();
    core::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Errno::EINVAL)
}

/// Writes all of `text` in one write, as tracefs wants it.
pub(crate) fn append_line(path: &CStr, text: &[u8]) -> Result<(), Errno> {
    let fd = open(path, OFlags::WRONLY | OFlags::APPEND)?;
    loop {
        match rustix::io::write(&fd, text) {
            Ok(count) if count == text.len() => return Ok(()),
            Ok(_) => return Err(Errno::EIO),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_end_with_one_nul() {
        let path = CPath::format(format_args!("/sys/{}/id", "x")).unwrap();
        assert_eq!(path.as_c_str(), c"/sys/x/id");
        assert_eq!(CPath::from_bytes(b"a\0b").err(), Some(Errno::EINVAL));
        assert_eq!(CPath::format(format_args!("{:5000}", 1)).err(), Some(Errno::ENAMETOOLONG));
        assert_eq!(CPath::from_bytes(&[b'a'; 4096]).err(), Some(Errno::ENAMETOOLONG));
        assert!(CPath::from_bytes(&[b'a'; 4095]).is_ok());
    }
}

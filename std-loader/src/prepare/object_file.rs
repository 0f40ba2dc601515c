//! An object's file, in memory.

use core::fmt;
use core::ops::Deref;
use std::path::Path;

use rustix::fs::OFlags;

use crate::sys::Errno;
use crate::sys::files::{self, CPath, WholeError};
use crate::sys::mmap::AnonMap;

/// The largest object that is read, in bytes. The largest in use have a tenth of it; a device must not run out of memory
/// over a path that leads elsewhere.
pub const MAX_OBJECT_BYTES: usize = 64 << 20;

/// Why an object's file is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectFileError {
    /// It cannot be opened.
    Open(Errno),
    /// It cannot be read to its end.
    Read(Errno),
    /// Memory for it cannot be had.
    Memory(Errno),
    /// It has more than [`MAX_OBJECT_BYTES`].
    TooLarge,
}

impl ObjectFileError {
    /// The kernel's number; EFBIG for [`ObjectFileError::TooLarge`].
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            ObjectFileError::Open(errno) | ObjectFileError::Read(errno) | ObjectFileError::Memory(errno) => *errno,
            ObjectFileError::TooLarge => Errno::EFBIG,
        }
    }
}

impl fmt::Display for ObjectFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectFileError::Open(errno) | ObjectFileError::Read(errno) => errno.fmt(f),
            ObjectFileError::Memory(errno) => write!(f, "no memory to read it into: {errno}"),
            ObjectFileError::TooLarge => write!(f, "larger than {} MiB, which no object is", MAX_OBJECT_BYTES >> 20),
        }
    }
}

impl core::error::Error for ObjectFileError {}

/// The bytes of an object's file, read into memory of their own that is no heap. What never ends, as /dev/zero, is refused
/// as what is too large.
#[derive(Debug)]
pub struct ObjectFile {
    memory: AnonMap,
    len: usize,
}

impl ObjectFile {
    /// Reads a file, a pipe or a device to its end.
    ///
    /// # Errors
    /// [`ObjectFileError`]
    pub fn read(path: &Path) -> Result<ObjectFile, ObjectFileError> {
        let path = CPath::new(path).map_err(ObjectFileError::Open)?;
        let fd = files::open(path.as_c_str(), OFlags::RDONLY).map_err(ObjectFileError::Open)?;
        match files::read_whole(&fd, files::stated_size(&fd), MAX_OBJECT_BYTES) {
            Ok((memory, len)) => Ok(ObjectFile { memory, len }),
            Err(WholeError::Read(errno)) => Err(ObjectFileError::Read(errno)),
            Err(WholeError::Memory(errno)) => Err(ObjectFileError::Memory(errno)),
            Err(WholeError::TooLarge) => Err(ObjectFileError::TooLarge),
        }
    }
}

impl Deref for ObjectFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn files_are_read_up_to_the_limit() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        assert_eq!(*ObjectFile::read(file.path()).unwrap(), [7; 10_000]);
        // No block of it is on the disk.
        file.as_file().set_len(MAX_OBJECT_BYTES as u64).unwrap();
        assert_eq!(ObjectFile::read(file.path()).unwrap().len(), MAX_OBJECT_BYTES);
        for size in [MAX_OBJECT_BYTES as u64 + 1, 1 << 40] {
            file.as_file().set_len(size).unwrap();
            assert_eq!(ObjectFile::read(file.path()).err(), Some(ObjectFileError::TooLarge), "{size}");
        }
    }

    #[test]
    fn what_tells_no_size_is_read_up_to_the_limit() {
        assert_eq!(ObjectFile::read(Path::new("/dev/null")).unwrap().len(), 0);
        assert_eq!(ObjectFile::read(Path::new("/dev/zero")).err(), Some(ObjectFileError::TooLarge));
        let (reader, mut writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let thread = std::thread::spawn(move || writer.write_all(&[3; 100_000]).unwrap());
        assert_eq!(*ObjectFile::read(Path::new(&path)).unwrap(), [3; 100_000]);
        thread.join().unwrap();
        assert!(matches!(ObjectFile::read(Path::new("/")).err(), Some(ObjectFileError::Read(_))));
        assert_eq!(ObjectFile::read(Path::new("/nonexistent/x")).err(), Some(ObjectFileError::Open(Errno::ENOENT)));
    }
}

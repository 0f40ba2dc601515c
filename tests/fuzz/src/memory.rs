//! Files that are in memory only.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use rustix::fs::MemfdFlags;

/// A file of these bytes, and a name by which it can be opened while it is there. Its position is its start.
///
/// # Panics
/// Where the kernel has no memory for it.
#[must_use]
pub fn file(bytes: &[u8]) -> (File, PathBuf) {
    let fd = rustix::fs::memfd_create("input", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut file = File::from(fd);
    file.write_all(bytes).expect("a file in memory");
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).expect("a file in memory");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    (file, path)
}

//! The text of an iterator, read as the kernel's walk goes on.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crate::attach::{Link, LinkError, call};
use crate::sys::{Errno, bpf};

/// One walk of an iterator: a [`Read`](std::io::Read) of what it writes.
#[derive(Debug)]
pub struct IterReader(OwnedFd);

impl AsFd for IterReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for IterReader {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl IterReader {
    /// Starts a walk. It goes on when the link is dropped.
    ///
    /// # Errors
    /// [`LinkError::Kernel`].
    pub fn new(link: &Link) -> Result<IterReader, LinkError> {
        let link = link.fd().ok_or(Errno::EBADF).map_err(call("BPF_ITER_CREATE"))?;
        bpf::iter_create(link).map(IterReader).map_err(call("BPF_ITER_CREATE"))
    }
}

/// How often a kernel may say that it has shown nothing yet.
const MOST_TRIES: u32 = 1000;

impl std::io::Read for IterReader {
    /// What the walk writes next; 0 at its end. A kernel that says EAGAIN ("no object shown yet, go on") is asked again at
    /// most 1000 times.
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        for _ in 1..MOST_TRIES {
            match rustix::io::read(&self.0, &mut *buffer) {
                Err(rustix::io::Errno::AGAIN) => {}
                result => return Ok(result?),
            }
        }
        Ok(rustix::io::read(&self.0, buffer)?)
    }
}

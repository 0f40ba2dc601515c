//! The text of an iterator, read as the kernel's walk goes on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::attach::{Link, LinkError, call};
use crate::sys::files;
use crate::sys::{Errno, bpf};

/// One walk of an iterator.
#[derive(Debug)]
pub struct IterReader(OwnedFd);

impl AsFd for IterReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl IterReader {
    /// Starts a walk.
    ///
    /// # Errors
    /// [`LinkError::Kernel`].
    pub fn new(link: &Link) -> Result<IterReader, LinkError> {
        let link = link.fd().ok_or(Errno::EBADF).map_err(call("BPF_ITER_CREATE"))?;
        bpf::iter_create(link).map(IterReader).map_err(call("BPF_ITER_CREATE"))
    }

    /// Reads until the buffer is full or the walk is over; 0 at the end. A kernel that says EAGAIN ("no object shown yet, go
    /// on") is asked again at most 1000 times.
    ///
    /// # Errors
    /// [`LinkError::Kernel`].
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, LinkError> {
        for _ in 0..1000 {
            match files::read_full(&self.0, buffer) {
                Err(Errno::EAGAIN) => {}
                result => return result.map_err(call("read")),
            }
        }
        Err(call("read")(Errno::EAGAIN))
    }
}

impl std::io::Read for IterReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        Ok(rustix::io::read(&self.0, buffer)?)
    }
}

//! Iterators: programs that the kernel runs for each task, map element, socket and so on, writing text to be read.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use corelo_core::uapi::AttachType;

use super::{Link, LinkError, call, create};
use crate::sys::files;
use crate::sys::{Errno, bpf};

/// Attaches an iterator that needs nothing beyond its program.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach(program: BorrowedFd<'_>) -> Result<Link, LinkError> {
    attach_with(program, &[])
}

/// Attaches an iterator over one map's elements.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach_map(program: BorrowedFd<'_>, map: BorrowedFd<'_>) -> Result<Link, LinkError> {
    // union bpf_iter_link_info: map_fd is its first word.
    attach_with(program, &bpf::target_fd(map).to_ne_bytes())
}

/// Attaches an iterator with `union bpf_iter_link_info` as the caller filled it (tasks by pid, cgroup trees).
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach_with(program: BorrowedFd<'_>, info: &[u8]) -> Result<Link, LinkError> {
    create(program, 0, AttachType::TRACE_ITER.0, 0, &bpf::LinkTarget::Iter(info))
}

/// One walk of an iterator.
#[derive(Debug)]
pub struct Reader(OwnedFd);

impl AsFd for Reader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Reader {
    /// Starts a walk.
    ///
    /// # Errors
    /// [`LinkError::Kernel`].
    pub fn new(link: &Link) -> Result<Reader, LinkError> {
        let link = link.fd().ok_or(Errno::EBADF).map_err(call("BPF_ITER_CREATE"))?;
        bpf::iter_create(link).map(Reader).map_err(call("BPF_ITER_CREATE"))
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

impl std::io::Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        Ok(rustix::io::read(&self.0, buffer)?)
    }
}

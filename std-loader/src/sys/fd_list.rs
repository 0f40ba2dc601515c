//! Descriptors whose number is not known before, outside the heap, closed when their list goes.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

use super::Errno;
use crate::sys::list::Numbers;

/// A list of descriptors that it owns.
#[derive(Debug, Default)]
pub(crate) struct FdList {
    fds: Numbers,
}

impl FdList {
    pub(crate) const fn new() -> FdList {
        FdList { fds: Numbers::new() }
    }

    /// Takes it; ENOMEM, and it is closed, where there is no more memory.
    pub(crate) fn push(&mut self, fd: OwnedFd) -> Result<(), Errno> {
        use std::os::fd::AsRawFd;
        self.fds.push(fd.as_raw_fd() as u64)?;
        let _ = fd.into_raw_fd();
        Ok(())
    }
}

impl Drop for FdList {
    fn drop(&mut self) {
        for fd in self.fds.as_slice() {
            // SAFETY: `push` gave up its ownership of each, and the list, which goes, is their only owner.
            drop(unsafe { OwnedFd::from_raw_fd(*fd as RawFd) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

    #[test]
    fn all_are_closed() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut list = FdList::new();
        for _ in 0..10 {
            list.push(writer.try_clone().unwrap().into()).unwrap();
        }
        list.push(writer.into()).unwrap();
        assert_eq!(list.fds.as_slice().len(), 11);
        let ended = |reader: BorrowedFd<'_>| {
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(reader, rustix::event::PollFlags::IN)];
            let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut fds, Some(&none)).unwrap() == 1
        };
        assert!(!ended(reader.as_fd()), "{}", reader.as_raw_fd());
        drop(list);
        assert!(ended(reader.as_fd()));
    }
}

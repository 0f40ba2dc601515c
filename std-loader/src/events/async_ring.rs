//! A ring buffer's records for programs that run on tokio (feature `tokio`).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::ring_buffer::{RingBuffer, RingError, call};
use crate::sys::watched::Watched;
use crate::sys::{self, Errno};

/// A ring buffer that is waited for without holding up the thread.
///
/// ```no_run
/// # use corelo_loader::events::{AsyncRing, RingBuffer};
/// # async fn watch(ring: RingBuffer) -> Result<(), corelo_loader::events::RingError> {
/// let mut ring = AsyncRing::new(ring)?;
/// loop {
///     let pid = ring.next(|record| record.first_chunk().map(|pid| u32::from_ne_bytes(*pid))).await?;
///     println!("{pid:?}");
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncRing {
    ring: RingBuffer,
    watched: Watched,
}

impl AsFd for AsyncRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl AsRawFd for AsyncRing {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl AsyncRing {
    /// Puts a ring under the watch of the tokio runtime that this is called in.
    ///
    /// # Errors
    /// [`RingError::Kernel`]: what epoll_ctl(2) says.
    ///
    /// # Panics
    /// Outside of a tokio runtime, and in one without `enable_io`.
    #[track_caller]
    pub fn new(ring: RingBuffer) -> Result<AsyncRing, RingError> {
        let own = sys::dup(ring.as_fd()).map_err(call("dup"))?;
        let watched = Watched::new(own).map_err(failed("epoll_ctl"))?;
        Ok(AsyncRing { ring, watched })
    }

    /// The next record, handed to `read` where it lies and given back to the kernel when that returns; waits until there is
    /// one. It may be dropped while it waits, as `select!` and a timeout do: no record is lost.
    ///
    /// # Errors
    /// [`RingError::Corrupt`]; EIO where the runtime goes.
    pub async fn next<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Result<T, RingError> {
        let mut read = Some(read);
        loop {
            // Asked for before the ring is looked at: a record that comes in between is news again.
            let mut ready = self.watched.readable().await.map_err(failed("epoll_wait"))?;
            // Called once at most, for what it gives is given back at once.
            if let Some(result) = self.ring.next(|bytes| read.take().map(|read| read(bytes)))?.flatten() {
                return Ok(result);
            }
            // The kernel tells of a record when it sees that all before it were given back, and it tells once.
            if !self.ring.has_record_after_all() {
                ready.clear_ready();
            }
        }
    }

    /// The ring: what is in it can be read at once ([`RingBuffer::consume`]).
    pub fn get_mut(&mut self) -> &mut RingBuffer {
        &mut self.ring
    }

    /// The ring, which tokio watches no longer.
    #[must_use]
    pub fn into_inner(self) -> RingBuffer {
        self.ring
    }
}

fn failed(name: &'static str) -> impl Fn(std::io::Error) -> RingError {
    // What is no number of the kernel's is tokio's own: the runtime is going.
    move |error| call(name)(error.raw_os_error().map_or(Errno::EIO, Errno))
}

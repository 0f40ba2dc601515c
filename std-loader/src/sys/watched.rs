//! A descriptor that a tokio runtime watches (feature `tokio`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

/// Watched for being readable.
#[derive(Debug)]
pub(crate) struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// # Panics
    /// Outside of a tokio runtime, and in one without input and output.
    #[track_caller]
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Watched> {
        // SAFETY: an `OwnedFd` has one open descriptor all its life, and nobody gets this one to put another in its place.
        let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        Ok(Watched(watched?))
    }

    /// Waits until it is readable, or was when it was last looked at.
    pub(crate) async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.0.readable().await
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

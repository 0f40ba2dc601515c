//! Text and JSON on standard output, with errors instead of panics when nobody reads it.

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::Value;

use crate::failure::Failure;

/// Standard output, locked and buffered.
#[derive(Debug)]
pub(crate) struct Out {
    writer: BufWriter<Stdout>,
    error: Option<io::Error>,
}

/// Standard output, which may take nothing for as long as its reader likes.
#[derive(Debug)]
struct Stdout {
    lock: StdoutLock<'static>,
    until: Option<Until>,
}

/// What ends the wait for a reader.
#[derive(Debug)]
pub(crate) struct Until {
    /// Readable when it is to end.
    pub(crate) stop: OwnedFd,
    /// When it ends by itself.
    pub(crate) deadline: Option<Instant>,
}

/// How long a reader is waited for once the end has come.
const GRACE: Duration = Duration::from_millis(200);

/// What a pipe takes without blocking once poll(2) says that it takes something: PIPE_BUF.
const CHUNK: usize = 4096;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(until) = &self.until else { return self.lock.write(bytes) };
        until.wait(self.lock.as_fd())?;
        let chunk = bytes.get(..CHUNK).unwrap_or(bytes);
        Ok(rustix::io::write(&self.lock, chunk)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lock.flush()
    }
}

impl Until {
    /// Waits until `out` takes something; an error where the end comes before.
    fn wait(&self, out: std::os::fd::BorrowedFd<'_>) -> io::Result<()> {
        let mut grace = None;
        loop {
            let ends = match grace {
                Some(grace) => Some(grace),
                None => self.deadline,
            };
            let left = ends.map(|ends| ends.saturating_duration_since(Instant::now()));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [
                PollFd::from_borrowed_fd(out, PollFlags::OUT),
                PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            ];
            // Once the end has come, only the output is waited for.
            let watched = if grace.is_some() { fds.split_at_mut(1).0 } else { &mut fds[..] };
            match rustix::event::poll(watched, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            // Also for an error, which the write will tell.
            if watched.first().is_some_and(|out| !out.revents().is_empty()) {
                return Ok(());
            }
            let is_over = ends.is_some_and(|ends| ends <= Instant::now());
            if grace.is_some() && is_over {
                let words = "nobody reads standard output, and the end of the run has come";
                return Err(io::Error::new(io::ErrorKind::TimedOut, words));
            }
            let has_stopped = watched.get(1).is_some_and(|stop| !stop.revents().is_empty());
            if is_over || has_stopped {
                grace = Some(Instant::now() + GRACE);
            }
        }
    }
}

impl Out {
    pub(crate) fn new() -> Self {
        Self::with(None)
    }

    /// Output that waits for its reader no longer than until then.
    pub(crate) fn until(until: Until) -> Self {
        Self::with(Some(until))
    }

    fn with(until: Option<Until>) -> Self {
        Self { writer: BufWriter::new(Stdout { lock: io::stdout().lock(), until }), error: None }
    }

    /// A line of text.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        Ok(writeln!(self.writer, "{text}")?)
    }

    /// A JSON value on a line of its own.
    pub(crate) fn json(&mut self, value: &Value) -> Result<(), Failure> {
        self.line(value)
    }

    /// Hands over what is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        match self.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(self.writer.flush()?),
        }
    }
}

/// The error of a refused write is kept for [`Out::flush`].
impl fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.writer.write_all(text.as_bytes()).map_err(|error| {
            self.error = Some(error);
            fmt::Error
        })
    }
}

/// Prints a whole text.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = Out::new();
    out.line(text)?;
    out.flush()
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A name of the object's as text.
pub(crate) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

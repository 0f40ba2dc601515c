//! Load, attach, and the loop over ring buffer, signals and watchdog.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use corelo_loader::events::RingBuffer;
use corelo_loader::loader::{Error, Loader};
use corelo_loader::prepare::{Kernel, KernelOptions};
use corelo_loader::sys::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What an agent watches besides its ring buffer.
pub trait Surroundings {
    /// Readable once the agent is to end.
    fn end(&self) -> std::os::fd::BorrowedFd<'_>;

    /// Loaded and attached: so many programs, so many bytes of arena at most.
    fn ready(&mut self, programs: usize, arena_used: usize);

    /// Called at least once a second while all is well: the place to feed a watchdog.
    fn tick(&mut self);

    /// A record.
    fn record(&mut self, record: &[u8]);
}

/// Loads `bytes` in `buffer`, attaches it, and hands on the records of `ring` (`None`: of no ring) until `around` says
/// end or `length` is over; then detaches and closes everything.
///
/// # Errors
/// [`Error`]; nothing stays in the kernel.
pub fn run(
    bytes: &[u8],
    btf: Option<&std::path::Path>,
    buffer: &mut [u8],
    ring: Option<&str>,
    length: Option<Duration>,
    around: &mut dyn Surroundings,
) -> Result<(), Error> {
    let kernel = Kernel::new(btf.map_or(KernelOptions::RUNNING, KernelOptions::file));
    // No log: a device has nobody to read what the verifier says. Leave that out while developing.
    let mut collection = Loader::new(bytes).name("agent").log_limit(0).load(&kernel, buffer)?;
    let attached = collection.attach_all()?;
    let mut ring = ring.map(|name| collection.ring(name)).transpose()?;
    around.ready(attached, collection.arena_bytes().high_water);
    watch(ring.as_mut(), length.map(|length| Instant::now() + length), around)
}

/// The longest wait, and so the longest time between two ticks.
const TICK: Duration = Duration::from_secs(1);

fn watch(mut ring: Option<&mut RingBuffer>, end: Option<Instant>, around: &mut dyn Surroundings) -> Result<(), Error> {
    loop {
        around.tick();
        if let Some(ring) = &mut ring {
            ring.consume(|record| around.record(record))?;
        }
        let left = end.map_or(TICK, |end| end.saturating_duration_since(Instant::now()).min(TICK));
        if left.is_zero() {
            return Ok(());
        }
        let signals = PollFd::from_borrowed_fd(around.end(), PollFlags::IN);
        let mut fds = [signals.clone(), signals];
        let watched = match &ring {
            Some(ring) => {
                let [_, second] = &mut fds;
                *second = PollFd::from_borrowed_fd(ring.as_fd(), PollFlags::IN);
                &mut fds[..]
            }
            None => fds.split_at_mut(1).0,
        };
        let timeout = Timespec::try_from(left).ok();
        match poll(watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Errno::from(errno).into()),
        }
        if watched.first().is_some_and(|signals| !signals.revents().is_empty()) {
            return Ok(());
        }
    }
}

/// A watchdog device, fed with every tick; closed with the letter that says that it is on purpose.
#[derive(Debug)]
pub struct Watchdog(std::fs::File);

impl Watchdog {
    /// Opens it, which starts it.
    ///
    /// # Errors
    /// What open(2) says.
    pub fn open(path: &std::path::Path) -> io::Result<Self> {
        std::fs::OpenOptions::new().write(true).open(path).map(Self)
    }

    /// Feeds it. A failure is left to the watchdog: it will bite.
    pub fn feed(&self) {
        let _ = rustix::io::write(&self.0, b".");
    }

    /// Ends it, where the driver allows that (WDIOF_MAGICCLOSE).
    pub fn stop(self) {
        let _ = rustix::io::write(&self.0, b"V");
    }
}

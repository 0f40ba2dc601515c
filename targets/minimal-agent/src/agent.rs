//! Load, attach, and the loop over ring buffer, signals and watchdog.

use core::fmt;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use corelo_core::arena::Arena;
use corelo_core::object::{Object, ObjectError};
use corelo_core::prepare::Options;
use corelo_loader::attach::{Link, LinkError};
use corelo_loader::events::{RingBuffer, RingError};
use corelo_loader::load::{Collection, LoadError, LoadOptions};
use corelo_loader::objects::GrowingLog;
use corelo_loader::prepare::{Kernel, KernelError, KernelOptions};
use corelo_loader::sys::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What ends the agent early. Small and `Copy`, like all errors below it: saying it needs no heap either.
#[derive(Debug, Clone, Copy)]
pub enum AgentError {
    /// The object cannot be parsed.
    Object(ObjectError),
    /// It cannot be prepared for this kernel.
    Kernel(KernelError),
    /// It cannot be loaded.
    Load(LoadError),
    /// It cannot be attached.
    Attach(LinkError),
    /// There is no such map.
    Map(Errno),
    /// The ring buffer cannot be read.
    Ring(RingError),
    /// poll(2) failed.
    Poll(Errno),
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(error) => error.fmt(f),
            Self::Kernel(error) => error.fmt(f),
            Self::Load(error) => error.fmt(f),
            Self::Attach(error) => write!(f, "attach: {error}"),
            Self::Map(errno) => write!(f, "map: {errno}"),
            Self::Ring(error) => write!(f, "ring buffer: {error}"),
            Self::Poll(errno) => write!(f, "poll: {errno}"),
        }
    }
}

impl core::error::Error for AgentError {}

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
/// [`AgentError`]; nothing stays in the kernel.
pub fn run(
    bytes: &[u8],
    btf: Option<&std::path::Path>,
    buffer: &mut [u8],
    ring: Option<&str>,
    length: Option<Duration>,
    around: &mut dyn Surroundings,
) -> Result<(), AgentError> {
    let kernel = Kernel::new(btf.map_or(KernelOptions::RUNNING, KernelOptions::file));
    loop {
        match attempt(bytes, &kernel, buffer, ring, length, around) {
            // Where the kernel's BTF cannot be mapped it is read piece by piece, in arena that the whole does not take.
            Err(AgentError::Kernel(error)) if kernel.takes_whole_after(&error) => {}
            result => return result,
        }
    }
}

fn attempt(
    bytes: &[u8],
    kernel: &Kernel<'_>,
    buffer: &mut [u8],
    ring: Option<&str>,
    length: Option<Duration>,
    around: &mut dyn Surroundings,
) -> Result<(), AgentError> {
    let mut arena = Arena::new(buffer);
    let object = Object::parse(bytes).map_err(AgentError::Object)?;
    let made = kernel.prepare(&object, Options::default(), &mut arena).map_err(AgentError::Kernel)?;
    let prepared = &made.prepared;
    let options = LoadOptions { modules: made.modules.names(), ..LoadOptions::new(b"agent") };
    let mut collection = Collection::create(prepared, &options, &mut arena).map_err(AgentError::Load)?;
    // 0 bytes: a device has nobody to read a verifier log. Give it some while developing.
    let mut log = GrowingLog::new(0, 0);
    collection.load_programs(&options, &mut arena, &mut log).map_err(AgentError::Load)?;
    let mut links: [Option<Link>; MAX_LINKS] = [const { None }; MAX_LINKS];
    let mut attached = 0;
    for ((number, _), place) in prepared.declared().programs().zip(&mut links) {
        *place = collection.attach(number).map_err(AgentError::Attach)?;
        attached += usize::from(place.is_some());
    }
    let mut ring = match ring {
        Some(name) => {
            let map = collection.map(name).map_err(AgentError::Map)?;
            Some(RingBuffer::new(map.as_fd()).map_err(AgentError::Ring)?)
        }
        None => None,
    };
    around.ready(attached, arena.high_water());
    watch(ring.as_mut(), length.map(|length| Instant::now() + length), around)
}

/// More programs than this are not attached: as many as the object has, in a program of your own.
const MAX_LINKS: usize = 32;

/// The longest wait, and so the longest time between two ticks.
const TICK: Duration = Duration::from_secs(1);

fn watch(
    mut ring: Option<&mut RingBuffer>,
    end: Option<Instant>,
    around: &mut dyn Surroundings,
) -> Result<(), AgentError> {
    loop {
        around.tick();
        if let Some(ring) = &mut ring {
            ring.consume(|record| around.record(record)).map_err(AgentError::Ring)?;
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
            Err(errno) => return Err(AgentError::Poll(errno.into())),
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

//! The consumer of BPF_MAP_TYPE_RINGBUF maps (Linux 5.8).
//!
//! Records are handed out where they lie, in the kernel's pages: the data is mapped twice in a row, so even one that
//! wraps is one slice. A record that the program is still filling (busy) stops the reader, so order is kept; discarded
//! ones are stepped over. There is one reader of a ring, and a second one in the same process is refused. Of two processes
//! that consume from the same (pinned) map, each takes the other's records, and sees bytes change that it is reading.

use core::fmt;
use core::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll};

use corelo_core::uapi::map_type;

use crate::objects::map_info;
use crate::sys::Errno;
use crate::sys::list::Numbers;
use crate::sys::ring::{RingPages, Stop};

/// Why a ring, of either kind, cannot be opened or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingError {
    /// A system call failed.
    Kernel {
        /// Which: its name.
        call: &'static str,
        /// How.
        errno: Errno,
    },
    /// The map is of another type.
    WrongMapType(u32),
    /// Positions or lengths that no kernel writes: something else consumes from this ring.
    Corrupt,
    /// This process has a reader of the ring already.
    HasReader,
    /// The pages of a perf ring are not a power of two.
    BadPageCount(u32),
    /// More CPUs are online than there is room for rings.
    TooManyCpus {
        /// Rings needed.
        wanted: u32,
        /// Rings there is room for.
        room: u32,
    },
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RingError::Kernel { call, errno } => write!(f, "{call}: {errno}"),
            RingError::WrongMapType(found) => {
                write!(f, "a map of type {found} is no ring of this kind")
            }
            RingError::Corrupt => f.write_str("positions that no kernel writes: something else reads this ring"),
            RingError::HasReader => f.write_str("this process has a reader of the ring already"),
            RingError::BadPageCount(pages) => write!(f, "{pages} pages are not a power of two"),
            RingError::TooManyCpus { wanted, room } => {
                write!(f, "{wanted} CPUs are online, there is room for {room} rings")
            }
        }
    }
}

impl core::error::Error for RingError {}

/// For `map_err`: names the call that failed.
pub(crate) fn call<E: Into<Errno>>(call: &'static str) -> impl Fn(E) -> RingError {
    move |errno| RingError::Kernel { call, errno: errno.into() }
}

fn timespec(timeout: Duration) -> Timespec {
    // Two years are as good as longer, and fit any kernel's time_t.
    let timeout = timeout.min(Duration::from_secs(1 << 26));
    Timespec { tv_sec: timeout.as_secs() as _, tv_nsec: timeout.subsec_nanos() as _ }
}

/// Waits for the first events of an epoll instance, at most `timeout` (`None`: for ever); none where the time is over or
/// a signal came.
pub(crate) fn wait<'e>(
    epoll: &OwnedFd,
    events: &'e mut [MaybeUninit<epoll::Event>],
    timeout: Option<Duration>,
) -> Result<&'e mut [epoll::Event], RingError> {
    match epoll::wait(epoll, events, timeout.map(timespec).as_ref()) {
        Ok((ready, _)) => Ok(ready),
        Err(rustix::io::Errno::INTR) => Ok(&mut []),
        Err(errno) => Err(call("epoll_wait")(errno)),
    }
}

/// One ring buffer.
#[derive(Debug)]
pub struct RingBuffer {
    map: OwnedFd,
    pages: RingPages,
    /// What keeps other readers away, after the pages. None in tests, whose rings are files.
    _reader: Option<Reader>,
    fill: Fill,
}

/// How full a ring was found. The kernel keeps no count of what found no room in it: only the program that reserves knows,
/// and [`Collection::lost`](crate::load::Collection::lost) is for those that count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fill {
    /// The most bytes that ever waited to be read.
    pub most_unread: u32,
    /// How many times the ring filled up: a record as large as the largest seen would have found no room.
    pub times_full: u32,
    /// Bytes of the largest record seen, its header counted.
    largest: u32,
    /// Whether it was full when last looked at.
    is_full: bool,
}

impl Fill {
    fn note(&mut self, size: u32, unread: u32) {
        self.most_unread = self.most_unread.max(unread);
        // The smallest record that there is has a header and 8 bytes.
        let is_full = size.saturating_sub(unread) < self.largest.max(16);
        self.times_full = self.times_full.saturating_add(u32::from(is_full && !self.is_full));
        self.is_full = is_full;
    }
}

/// The right to be the reader of one map's ring in this process. A second reader that gives records back would let the
/// kernel write behind the first one's slices.
#[derive(Debug)]
struct Reader {
    map_id: u32,
}

/// The ids of the maps that have a reader; 0 for a place that is free.
static READERS: Mutex<Numbers> = Mutex::new(Numbers::new());

impl Reader {
    fn of(map_id: u32) -> Result<Reader, RingError> {
        let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = u64::from(map_id);
        if readers.as_slice().contains(&wanted) {
            return Err(RingError::HasReader);
        }
        match readers.as_mut_slice().iter_mut().find(|place| **place == 0) {
            Some(place) => *place = wanted,
            None => readers.push(wanted).map_err(call("mmap"))?,
        }
        Ok(Reader { map_id })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
        let own = u64::from(self.map_id);
        readers.as_mut_slice().iter_mut().filter(|place| **place == own).for_each(|place| *place = 0);
    }
}

impl AsFd for RingBuffer {
    /// A descriptor that is readable when there are records: for the caller's own poll or epoll.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl AsRawFd for RingBuffer {
    fn as_raw_fd(&self) -> RawFd {
        self.map.as_raw_fd()
    }
}

impl RingBuffer {
    /// Maps the ring of a map, whose type and size are asked of the kernel. Reading goes on where the last reader of the
    /// map stopped. The map may be closed afterwards.
    ///
    /// # Errors
    /// [`RingError::WrongMapType`], [`RingError::HasReader`], or what the kernel says to the descriptor or the mapping.
    pub fn new(map: BorrowedFd<'_>) -> Result<RingBuffer, RingError> {
        let info = map_info(map).map_err(call("BPF_OBJ_GET_INFO_BY_FD"))?;
        if info.map_type != map_type::RINGBUF {
            return Err(RingError::WrongMapType(info.map_type));
        }
        let reader = Reader::of(info.id)?;
        RingBuffer::from_parts(map, info.max_entries, Some(reader))
    }

    fn from_parts(map: BorrowedFd<'_>, byte_size: u32, reader: Option<Reader>) -> Result<RingBuffer, RingError> {
        Ok(RingBuffer {
            map: crate::sys::dup(map).map_err(call("dup"))?,
            pages: RingPages::new(map, byte_size).map_err(call("mmap"))?,
            _reader: reader,
            fill: Fill::default(),
        })
    }

    /// The ring's size in bytes.
    #[must_use]
    pub fn byte_size(&self) -> u32 {
        self.pages.size()
    }

    /// Bytes that wait to be read, headers and unfinished records included.
    #[must_use]
    pub fn unread(&self) -> u32 {
        self.pages.unread()
    }

    /// How full it was found so far.
    #[must_use]
    pub fn fill(&self) -> Fill {
        self.fill
    }

    /// The next record, if one is complete; it is given back to the kernel when `read` returns.
    ///
    /// # Errors
    /// [`RingError::Corrupt`].
    pub fn next<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>, RingError> {
        loop {
            self.fill.note(self.pages.size(), self.pages.unread());
            let (bytes, step) = match self.pages.peek() {
                Ok(record) => record,
                Err(Stop::Empty | Stop::Busy) => return Ok(None),
                Err(Stop::Corrupt) => return Err(RingError::Corrupt),
            };
            self.fill.largest = self.fill.largest.max(step);
            match bytes {
                Some(bytes) => {
                    let result = read(bytes);
                    self.pages.advance(step);
                    return Ok(Some(result));
                }
                None => self.pages.advance(step),
            }
        }
    }

    /// Whether there is a record though [`RingBuffer::next`] found none. The kernel tells of one only where it sees that all
    /// before it were given back: what was given back must be seen by every CPU before this one looks again, or the record
    /// comes unannounced. Who waits for a state, not for news, need not ask.
    #[cfg(feature = "tokio")]
    pub(super) fn has_record_after_all(&self) -> bool {
        core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
        !matches!(self.pages.peek(), Err(Stop::Empty | Stop::Busy))
    }

    /// All complete records, without waiting; the result is how many.
    ///
    /// # Errors
    /// [`RingError::Corrupt`].
    pub fn consume(&mut self, mut each: impl FnMut(&[u8])) -> Result<u32, RingError> {
        let mut count = 0;
        while self.next(&mut each)?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// All complete records, after waiting for the first of them for at most `timeout` (`None`: for ever). A signal ends the
    /// wait early; the result is how many records there were.
    ///
    /// # Errors
    /// What poll(2) says; [`RingError::Corrupt`].
    pub fn poll(&mut self, timeout: Option<Duration>, mut each: impl FnMut(&[u8])) -> Result<u32, RingError> {
        let count = self.consume(&mut each)?;
        if count > 0 {
            return Ok(count);
        }
        if self.wait(timeout)? { self.consume(each) } else { Ok(0) }
    }

    /// Waits for a record for at most `timeout` (`None`: for ever); false where none came. A signal ends the wait early.
    ///
    /// # Errors
    /// What poll(2) says.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, RingError> {
        let timeout = timeout.map(timespec);
        let mut fds = [PollFd::new(&self.map, PollFlags::IN)];
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(call("poll")(errno)),
        }
    }
}

/// Several ring buffers behind one epoll descriptor.
#[derive(Debug)]
pub struct RingSet<'r> {
    epoll: OwnedFd,
    rings: &'r mut [RingBuffer],
}

impl AsFd for RingSet<'_> {
    /// The epoll descriptor: readable when any ring has records.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for RingSet<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

impl<'r> RingSet<'r> {
    /// Watches the caller's rings.
    ///
    /// # Errors
    /// What epoll_create1(2) or epoll_ctl(2) says.
    pub fn new(rings: &'r mut [RingBuffer]) -> Result<RingSet<'r>, RingError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(call("epoll_create1"))?;
        for (index, ring) in rings.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, ring, data, epoll::EventFlags::IN).map_err(call("epoll_ctl"))?;
        }
        Ok(RingSet { epoll, rings })
    }

    /// All complete records of all rings, without waiting; `each` gets the ring's index with the record.
    ///
    /// # Errors
    /// [`RingError::Corrupt`].
    pub fn consume(&mut self, mut each: impl FnMut(usize, &[u8])) -> Result<u32, RingError> {
        let mut count = 0;
        for (index, ring) in self.rings.iter_mut().enumerate() {
            count += ring.consume(|bytes| each(index, bytes))?;
        }
        Ok(count)
    }

    /// As [`RingBuffer::poll`], for all rings.
    ///
    /// # Errors
    /// What epoll_wait(2) says; [`RingError::Corrupt`].
    pub fn poll(&mut self, timeout: Option<Duration>, mut each: impl FnMut(usize, &[u8])) -> Result<u32, RingError> {
        let count = self.consume(&mut each)?;
        if count > 0 {
            return Ok(count);
        }
        let mut events = [const { MaybeUninit::uninit() }; 16];
        let mut count = 0;
        for event in wait(&self.epoll, &mut events, timeout)? {
            let index = event.data.u64() as usize;
            if let Some(ring) = self.rings.get_mut(index) {
                count += ring.consume(|bytes| each(index, bytes))?;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::ring::{BUSY, DISCARDED, tests::ring_file};

    #[test]
    fn records_in_order_until_one_is_busy() {
        let file = ring_file(
            4096,
            (1 << 32) - 24,
            &[(0, b"first"), (DISCARDED, &[0; 100]), (0, &[]), (0, b"third"), (BUSY, b"no")],
        );
        let mut ring = RingBuffer::from_parts(file.as_fd(), 4096, None).unwrap();
        assert_eq!(ring.next(<[u8]>::len).unwrap(), Some(5));
        let mut seen = Vec::new();
        assert_eq!(ring.consume(|bytes| seen.push(bytes.to_vec())).unwrap(), 2);
        assert_eq!(seen, [b"".to_vec(), b"third".to_vec()]);
        assert_eq!((ring.unread(), ring.byte_size()), (16, 4096));
    }

    #[test]
    fn that_a_ring_was_full_is_known_from_its_positions() {
        let records: Vec<(u32, &[u8])> = vec![(0, &[7; 240]); 16];
        // 16 records of 248 bytes: 128 bytes are left of 4096.
        let file = ring_file(4096, 0, &records);
        let mut ring = RingBuffer::from_parts(file.as_fd(), 4096, None).unwrap();
        assert_eq!(ring.fill(), Fill::default());
        // How large records are is known with the first of them.
        assert_eq!(ring.next(<[u8]>::len).unwrap(), Some(240));
        assert_eq!((ring.fill().most_unread, ring.fill().times_full), (3968, 0));
        assert_eq!(ring.consume(|_| {}).unwrap(), 15);
        assert_eq!(ring.fill().most_unread, 3968);
        let mut fill = Fill { largest: 248, ..Fill::default() };
        for unread in [0, 3968, 4000, 3000, 3847, 3849, 4096, 0] {
            fill.note(4096, unread);
        }
        assert_eq!((fill.most_unread, fill.times_full), (4096, 2));
    }

    #[test]
    fn a_corrupt_ring_is_an_error() {
        let file = ring_file(4096, 0, &[(4000, b"x")]);
        let mut ring = RingBuffer::from_parts(file.as_fd(), 4096, None).unwrap();
        assert_eq!(ring.consume(|_| {}), Err(RingError::Corrupt));
    }
}

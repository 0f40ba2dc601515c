//! The shared pages of the two kinds of ring, BPF ring buffer and perf buffer: positions with their memory ordering,
//! and bounds-checked views of records.
//!
//! Positions only ever grow. The kernel's are `unsigned long` in the BPF ring and 64-bit fields, fed from an `unsigned
//! long`, in the perf ring. How much is unread is less than 4 GiB in both, so it is told from the low 32 bits alone,
//! whatever the width of kernel and process. Only the consumer's own position of the BPF ring must be written as wide as
//! the kernel reads it: see [`Wide`].

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use super::mmap::Region;
use super::{Errno, page_size};

/// Set in a record's length while the program fills it.
pub(crate) const BUSY: u32 = 1 << 31;
/// Set in the length of a record that the program threw away.
pub(crate) const DISCARDED: u32 = 1 << 30;
/// Bytes before a record's own: length and page offset.
pub(crate) const RECORD_HEADER: u32 = 8;

/// Where the low and the high 32 bits of a 64-bit number are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wide {
    low: usize,
    /// `None` where the kernel's word has 32 bits and the bytes beside it are somebody else's.
    high: Option<usize>,
}

impl Wide {
    /// For a field that is a u64 on every kernel.
    pub(crate) const U64: Wide =
        if cfg!(target_endian = "big") { Wide { low: 4, high: Some(0) } } else { Wide { low: 0, high: Some(4) } };

    const U32: Wide = Wide { low: 0, high: None };

    /// For an `unsigned long` of the running kernel.
    pub(crate) fn kernel_long() -> Wide {
        if cfg!(target_pointer_width = "64") || kernel_is_64_bit() { Wide::U64 } else { Wide::U32 }
    }
}

/// Whether a 32-bit process runs on a 64-bit kernel, by uname's machine.
fn kernel_is_64_bit() -> bool {
    let uname = rustix::system::uname();
    machine_is_64_bit(uname.machine().to_bytes())
}

fn machine_is_64_bit(machine: &[u8]) -> bool {
    // armv8l is what an arm64 kernel tells a process with the 32-bit personality.
    machine.windows(2).any(|two| two == b"64") || matches!(machine, b"s390x" | b"armv8l")
}

/// A page-aligned shared range read and written in 32-bit words.
#[derive(Debug)]
pub(crate) struct Words(Region);

impl Words {
    pub(crate) fn new(fd: BorrowedFd<'_>, offset: usize, len: usize, writable: bool) -> Result<Words, Errno> {
        let prot = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        Region::file(fd, offset as u64, len, prot, MapFlags::SHARED).map(Words)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && offset < self.0.len() && self.0.len() - offset >= 4,
            "a word outside of the ring"
        );
        // SAFETY: inside the mapping and aligned, by the assertion and because mappings start on a page.
        unsafe { AtomicU32::from_ptr(self.0.start().add(offset).cast()) }
    }

    /// The low half of the position at `offset`: what was written before it is visible after it.
    pub(crate) fn low(&self, offset: usize, wide: Wide) -> u32 {
        self.word(offset + wide.low).load(Ordering::Acquire)
    }

    /// The whole position at `offset`, where nobody but us writes it.
    pub(crate) fn own(&self, offset: usize, wide: Wide) -> u64 {
        let high = wide.high.map_or(0, |high| self.word(offset + high).load(Ordering::Relaxed));
        u64::from(high) << 32 | u64::from(self.low(offset, wide))
    }

    /// Publishes our position: what was read before it stays ours until it.
    #[cfg(target_pointer_width = "64")]
    pub(crate) fn publish(&self, offset: usize, wide: Wide, position: u64) {
        debug_assert!(wide == Wide::U64 && offset.is_multiple_of(8));
        assert!(offset < self.0.len() && self.0.len() - offset >= 8, "a word outside of the ring");
        // SAFETY: inside the mapping and aligned, as in `word`.
        let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(self.0.start().add(offset).cast()) };
        word.store(position, Ordering::Release);
    }

    /// As above, on hosts that write 32 bits at a time.
    #[cfg(not(target_pointer_width = "64"))]
    pub(crate) fn publish(&self, offset: usize, wide: Wide, position: u64) {
        self.publish_halves(offset, wide, position);
    }

    /// The high half first: between the two stores the position is 4 GiB ahead of the producer's, which the kernel takes
    /// for a full ring (it drops a record), never for more room than there is.
    #[cfg(any(test, not(target_pointer_width = "64")))]
    pub(crate) fn publish_halves(&self, offset: usize, wide: Wide, position: u64) {
        if let Some(high) = wide.high {
            let word = self.word(offset + high);
            let value = (position >> 32) as u32;
            if word.load(Ordering::Relaxed) != value {
                word.store(value, Ordering::Release);
            }
        }
        self.word(offset + wide.low).store(position as u32, Ordering::Release);
    }

    /// Bytes of a record that the producer has let go of.
    ///
    /// The caller keeps the producer away: from acquiring a position beyond the record to publishing one beyond it.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Option<&[u8]> {
        let end = offset.checked_add(len)?;
        if end > self.0.len() {
            return None;
        }
        // SAFETY: inside the mapping. Neither the kernel nor a program writes there before our position passes it, and
        // that is published after the last use of the slice: both rings hand records out for the length of a call.
        Some(unsafe { std::slice::from_raw_parts(self.0.start().add(offset), len) })
    }
}

/// The pages of one BPF ring buffer.
#[derive(Debug)]
pub(crate) struct RingPages {
    consumer: Words,
    /// The producer's position, then the data, mapped twice in a row so that no record ever wraps.
    producer: Words,
    size: u32,
    data: usize,
    wide: Wide,
    position: u64,
}

/// Why a ring gave no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Everything was read.
    Empty,
    /// The next record is being filled.
    Busy,
    /// Positions or lengths that no kernel writes: somebody else consumes from this ring, or it is none.
    Corrupt,
}

impl RingPages {
    /// Maps the ring buffer behind `fd`, of `size` bytes (a power of two, whole pages).
    pub(crate) fn new(fd: BorrowedFd<'_>, size: u32) -> Result<RingPages, Errno> {
        let page = page_size();
        let len = (size as usize).checked_mul(2).and_then(|both| both.checked_add(page)).ok_or(Errno::E2BIG)?;
        let consumer = Words::new(fd, 0, page, true)?;
        let producer = Words::new(fd, page, len, false)?;
        RingPages::from_parts(consumer, producer, size, Wide::kernel_long())
    }

    fn from_parts(consumer: Words, producer: Words, size: u32, wide: Wide) -> Result<RingPages, Errno> {
        if !size.is_power_of_two() || size < RECORD_HEADER {
            return Err(Errno::EINVAL);
        }
        let data = producer.0.len() - 2 * size as usize;
        let position = consumer.own(0, wide);
        Ok(RingPages { consumer, producer, size, data, wide, position })
    }

    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Bytes that the producer is ahead.
    pub(crate) fn unread(&self) -> u32 {
        self.producer.low(0, self.wide).wrapping_sub(self.position as u32)
    }

    /// The next record: its bytes (`None` for a discarded one) and how far the position moves.
    pub(crate) fn peek(&self) -> Result<(Option<&[u8]>, u32), Stop> {
        let unread = self.unread();
        if unread == 0 {
            return Err(Stop::Empty);
        }
        if unread > self.size || unread < RECORD_HEADER {
            return Err(Stop::Corrupt);
        }
        let start = self.data + (self.position as u32 & (self.size - 1)) as usize;
        if !start.is_multiple_of(4) {
            return Err(Stop::Corrupt);
        }
        let word = self.producer.word(start).load(Ordering::Acquire);
        if word & BUSY != 0 {
            return Err(Stop::Busy);
        }
        let len = word & !DISCARDED;
        let step = len
            .checked_add(RECORD_HEADER)
            .and_then(|whole| whole.checked_next_multiple_of(8))
            .filter(|step| *step <= unread)
            .ok_or(Stop::Corrupt)?;
        if word & DISCARDED != 0 {
            return Ok((None, step));
        }
        let bytes = self.producer.bytes(start + RECORD_HEADER as usize, len as usize).ok_or(Stop::Corrupt)?;
        Ok((Some(bytes), step))
    }

    /// Gives `step` bytes back to the producer.
    pub(crate) fn advance(&mut self, step: u32) {
        self.position = self.position.wrapping_add(u64::from(step));
        self.consumer.publish(0, self.wide, self.position);
    }
}

/// The pages of one perf ring.
#[derive(Debug)]
pub(crate) struct PerfPages {
    words: Words,
    page: usize,
    size: u32,
    position: u64,
}

/// A record's type, its bytes in two pieces, and how far the position moves.
type PerfPeek<'a> = (u32, &'a [u8], &'a [u8], u32);

/// `data_head` and `data_tail` of `struct perf_event_mmap_page`: bytes from its start.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

impl PerfPages {
    /// Maps a perf event's ring of `pages` data pages (a power of two).
    pub(crate) fn new(fd: BorrowedFd<'_>, pages: u32) -> Result<PerfPages, Errno> {
        let page = page_size();
        let size = u32::try_from(page)
            .ok()
            .and_then(|page| page.checked_mul(pages))
            .filter(|size| size.is_power_of_two())
            .ok_or(Errno::EINVAL)?;
        let words = Words::new(fd, 0, page + size as usize, true)?;
        Ok(PerfPages::from_words(words, page, size))
    }

    fn from_words(words: Words, page: usize, size: u32) -> PerfPages {
        let position = words.own(DATA_TAIL, Wide::U64);
        PerfPages { words, page, size, position }
    }

    /// The next record's type and its bytes after the 8-byte header, in two pieces where it wraps, with how far the
    /// position moves.
    pub(crate) fn peek(&self) -> Result<PerfPeek<'_>, Stop> {
        let unread = self.words.low(DATA_HEAD, Wide::U64).wrapping_sub(self.position as u32);
        if unread == 0 {
            return Err(Stop::Empty);
        }
        let at = (self.position as u32 & (self.size - 1)) as usize;
        // A header has 8 bytes and records are aligned to 8, so a header never wraps.
        if unread > self.size || unread < 8 || !at.is_multiple_of(8) {
            return Err(Stop::Corrupt);
        }
        let header = self.words.bytes(self.page + at, 8).ok_or(Stop::Corrupt)?;
        let record_type = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let len = u32::from(u16::from_ne_bytes([header[6], header[7]]));
        if len < 8 || len > unread {
            return Err(Stop::Corrupt);
        }
        let body = len as usize - 8;
        let first = body.min(self.size as usize - at - 8);
        let head = self.words.bytes(self.page + at + 8, first).ok_or(Stop::Corrupt)?;
        let tail = self.words.bytes(self.page, body - first).ok_or(Stop::Corrupt)?;
        Ok((record_type, head, tail, len))
    }

    pub(crate) fn advance(&mut self, step: u32) {
        self.position = self.position.wrapping_add(u64::from(step));
        self.words.publish(DATA_TAIL, Wide::U64, self.position);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    /// A ring in a file: consumer page, producer page, data twice.
    pub(crate) fn ring_file(size: u64, position: u64, records: &[(u32, &[u8])]) -> File {
        let page = page_size() as u64;
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * page + 2 * size).unwrap();
        file.write_all_at(&position.to_ne_bytes(), 0).unwrap();
        let mut at = position;
        for (flags, bytes) in records {
            let mut record = Vec::from((bytes.len() as u32 | flags).to_ne_bytes());
            record.extend([0; 4]);
            record.extend(*bytes);
            record.resize(record.len().next_multiple_of(8), 0);
            for (i, byte) in record.iter().enumerate() {
                for copy in [0, size] {
                    let here = 2 * page + copy + at.wrapping_add(i as u64) % size;
                    file.write_all_at(&[*byte], here).unwrap();
                }
            }
            at = at.wrapping_add(record.len() as u64);
        }
        file.write_all_at(&at.to_ne_bytes(), page).unwrap();
        // What newer kernels keep right behind the producer's position must not be taken for its high half.
        if cfg!(target_pointer_width = "32") {
            file.write_all_at(&u32::MAX.to_ne_bytes(), page + 4).unwrap();
        }
        file
    }

    pub(crate) fn pages(file: &File, size: u32) -> RingPages {
        RingPages::new(file.as_fd(), size).unwrap()
    }

    fn drain(ring: &mut RingPages) -> (Vec<Vec<u8>>, Stop) {
        let mut out = Vec::new();
        loop {
            let step = match ring.peek() {
                Ok((bytes, step)) => {
                    out.extend(bytes.map(Vec::from));
                    step
                }
                Err(stop) => return (out, stop),
            };
            ring.advance(step);
        }
    }

    #[test]
    fn discarded_records_are_skipped_and_a_busy_one_stops() {
        let file = ring_file(4096, 0, &[(0, b"one"), (DISCARDED, b"two"), (0, b"three"), (BUSY, b"x")]);
        let mut ring = pages(&file, 4096);
        let (records, stop) = drain(&mut ring);
        assert_eq!(records, [b"one".to_vec(), b"three".to_vec()]);
        assert_eq!(stop, Stop::Busy);
        // The busy record is committed; a new reader of the ring goes on where the first one stopped.
        let busy_at = 2 * page_size() as u64 + 16 + 16 + 16;
        file.write_all_at(&1u32.to_ne_bytes(), busy_at).unwrap();
        drop(ring);
        let (records, stop) = drain(&mut pages(&file, 4096));
        assert_eq!(records, [b"x".to_vec()]);
        assert_eq!(stop, Stop::Empty);
    }

    /// The ring as a kernel of either width has it.
    fn pages_of(file: &File, size: u32, wide: Wide) -> RingPages {
        let page = page_size();
        let consumer = Words::new(file.as_fd(), 0, page, true).unwrap();
        let producer = Words::new(file.as_fd(), page, page + 2 * size as usize, false).unwrap();
        RingPages::from_parts(consumer, producer, size, wide).unwrap()
    }

    #[test]
    fn positions_pass_four_gibibytes_and_records_wrap() {
        // A 64-bit process has a 64-bit kernel.
        let widths: &[Wide] = if cfg!(all(target_pointer_width = "32", target_endian = "little")) {
            &[Wide::U64, Wide::U32]
        } else {
            &[Wide::U64]
        };
        for &wide in widths {
            for start in [4096 - 8, (1 << 32) - 8, (1 << 32) - 4096 - 8, u64::MAX - 7] {
                let record = [7u8; 40];
                let file = ring_file(4096, start, &[(0, &record), (0, b"after")]);
                let mut ring = pages_of(&file, 4096, wide);
                let (records, stop) = drain(&mut ring);
                assert_eq!(records, [record.to_vec(), b"after".to_vec()], "{start:#x}");
                assert_eq!(stop, Stop::Empty);
                let mut written = [0; 8];
                file.read_exact_at(&mut written, 0).unwrap();
                let end = start.wrapping_add(48 + 16);
                // What comes after a position of 32 bits is not ours.
                let want = if wide == Wide::U64 { end } else { start >> 32 << 32 | u64::from(end as u32) };
                assert_eq!(u64::from_ne_bytes(written), want, "{start:#x} {wide:?}");
            }
        }
    }

    #[test]
    fn impossible_positions_and_lengths_are_corrupt() {
        // A length beyond what the producer has written.
        let file = ring_file(4096, 0, &[(0, b"abc")]);
        file.write_all_at(&100u32.to_ne_bytes(), 2 * page_size() as u64).unwrap();
        assert_eq!(pages(&file, 4096).peek(), Err(Stop::Corrupt));
        // A length that overflows.
        file.write_all_at(&0x3fff_ffffu32.to_ne_bytes(), 2 * page_size() as u64).unwrap();
        assert_eq!(pages(&file, 4096).peek(), Err(Stop::Corrupt));
        // A producer further ahead than the ring is long, and one that is behind.
        for (consumer, producer) in [(0u64, 8192u64), (64, 8)] {
            let file = ring_file(4096, consumer, &[]);
            file.write_all_at(&producer.to_ne_bytes(), page_size() as u64).unwrap();
            assert_eq!(pages(&file, 4096).peek(), Err(Stop::Corrupt));
        }
        assert!(RingPages::new(file.as_fd(), 4095).is_err());
    }

    #[test]
    fn positions_are_written_as_wide_as_the_kernel_reads() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(page_size() as u64).unwrap();
        let words = Words::new(file.as_fd(), 0, page_size(), true).unwrap();
        words.publish_halves(0, Wide::U64, 0x1234_5678_9abc_def0);
        assert_eq!(words.own(0, Wide::U64), 0x1234_5678_9abc_def0);
        let mut whole = [0; 8];
        file.read_exact_at(&mut whole, 0).unwrap();
        assert_eq!(u64::from_ne_bytes(whole), 0x1234_5678_9abc_def0);
        words.publish_halves(8, Wide::U32, 0x1_0000_0008);
        file.read_exact_at(&mut whole, 8).unwrap();
        assert_eq!(whole[..4], 8u32.to_ne_bytes());
        assert_eq!(whole[4..], [0; 4]);
    }

    #[test]
    fn machines() {
        for (machine, wide) in [
            (&b"x86_64"[..], true),
            (b"aarch64", true),
            (b"armv8l", true),
            (b"ppc64", true),
            (b"s390x", true),
            (b"armv7l", false),
            (b"ppc", false),
            (b"mips", false),
            (b"i686", false),
        ] {
            assert_eq!(machine_is_64_bit(machine), wide);
        }
    }

    /// A perf ring in a file: control page, then data.
    pub(crate) fn perf_file(size: u64, position: u64, records: &[(u32, &[u8])]) -> File {
        let page = page_size() as u64;
        let file = tempfile::tempfile().unwrap();
        file.set_len(page + size).unwrap();
        let mut at = position;
        for (record_type, body) in records {
            let mut record = Vec::from(record_type.to_ne_bytes());
            record.extend(0u16.to_ne_bytes());
            record.extend((body.len() as u16 + 8).to_ne_bytes());
            record.extend(*body);
            assert!(record.len().is_multiple_of(8));
            for (i, byte) in record.iter().enumerate() {
                file.write_all_at(&[*byte], page + at.wrapping_add(i as u64) % size).unwrap();
            }
            at = at.wrapping_add(record.len() as u64);
        }
        file.write_all_at(&at.to_ne_bytes(), DATA_HEAD as u64).unwrap();
        file.write_all_at(&position.to_ne_bytes(), DATA_TAIL as u64).unwrap();
        file
    }

    #[test]
    fn perf_records_come_in_two_pieces_where_they_wrap() {
        let size = page_size() as u64;
        let file = perf_file(size, (1 << 32) - 16, &[(9, &[1; 24]), (2, &[2; 16])]);
        let mut ring = PerfPages::new(file.as_fd(), 1).unwrap();
        let (kind, head, tail, step) = ring.peek().unwrap();
        assert_eq!((kind, head.len(), tail.len(), step), (9, 8, 16, 32));
        ring.advance(step);
        let (kind, head, tail, step) = ring.peek().unwrap();
        assert_eq!((kind, head, tail, step), (2, &[2; 16][..], &[][..], 24));
        ring.advance(step);
        assert_eq!(ring.peek(), Err(Stop::Empty));
        let mut tail = [0; 8];
        file.read_exact_at(&mut tail, DATA_TAIL as u64).unwrap();
        assert_eq!(u64::from_ne_bytes(tail), (1 << 32) - 16 + 56);
        assert!(PerfPages::new(file.as_fd(), 3).is_err());
    }
}

//! The consumer of BPF_MAP_TYPE_PERF_EVENT_ARRAY maps: one ring per CPU, for kernels without BPF ring buffers and for
//! programs written for them.
//!
//! A record that wraps comes in two pieces; they are put together in a buffer of the caller's.

use core::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::epoll;

use corelo_core::uapi::map_type;

use crate::events::ring_buffer::{RingError, call, wait};
use crate::kernel::Cpus;
use crate::objects::MapFd;
use crate::sys::perf;
use crate::sys::ring::{PerfPages, Stop};

const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_SAMPLE: u32 = 9;

/// One thing out of a perf ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerfRecord<'b> {
    /// What the program wrote; the kernel pads it to a multiple of 8 bytes less 4.
    Sample(&'b [u8]),
    /// So many records found no room.
    Lost(u64),
    /// A record wrapped and the caller's buffer was too short for it.
    Skipped {
        /// The buffer it takes, in bytes.
        byte_size: u32,
    },
}

/// The ring of one CPU.
#[derive(Debug)]
pub struct PerfRing {
    cpu: u32,
    pages: PerfPages,
    event: OwnedFd,
    /// Whether the kernel tells how many were lost.
    tells_lost: bool,
    /// What its records say of that.
    lost: u64,
}

impl AsFd for PerfRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl AsRawFd for PerfRing {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

impl PerfRing {
    fn open(cpu: u32, pages: u32) -> Result<PerfRing, RingError> {
        let (event, tells_lost) = perf::bpf_output(cpu, 1).map_err(call("perf_event_open"))?;
        let pages = PerfPages::new(event.as_fd(), pages).map_err(call("mmap"))?;
        let ring = PerfRing { cpu, pages, event, tells_lost, lost: 0 };
        perf::enable(ring.event.as_fd()).map_err(call("PERF_EVENT_IOC_ENABLE"))?;
        Ok(ring)
    }

    /// The CPU.
    #[must_use]
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// How many records found no room in the ring so far. Before Linux 6.0 those that are lost last are known once another
    /// record finds room and is read.
    ///
    /// # Errors
    /// What read(2) says to the event.
    pub fn lost(&self) -> Result<u64, RingError> {
        if !self.tells_lost {
            return Ok(self.lost);
        }
        perf::lost(self.event.as_fd()).map_err(call("read"))
    }

    /// The next record; false where there is none.
    fn next(&mut self, scratch: &mut [u8], each: &mut impl FnMut(u32, PerfRecord<'_>)) -> Result<bool, RingError> {
        let (record_type, head, tail, step) = match self.pages.peek() {
            Ok(record) => record,
            Err(Stop::Empty | Stop::Busy) => return Ok(false),
            Err(Stop::Corrupt) => return Err(RingError::Corrupt),
        };
        let whole = head.len() + tail.len();
        let body = if tail.is_empty() {
            Some(head)
        } else {
            scratch.get_mut(..whole).map(|buffer| {
                let (first, second) = buffer.split_at_mut(head.len());
                first.copy_from_slice(head);
                second.copy_from_slice(tail);
                &*buffer
            })
        };
        match body {
            None => each(self.cpu, PerfRecord::Skipped { byte_size: whole as u32 }),
            Some(body) => {
                if let Some(record) = decode(record_type, body)? {
                    if let PerfRecord::Lost(count) = record {
                        self.lost = self.lost.saturating_add(count);
                    }
                    each(self.cpu, record);
                }
            }
        }
        self.pages.advance(step);
        Ok(true)
    }
}

/// Other record types than the two that a BPF output event makes are stepped over.
fn decode(record_type: u32, body: &[u8]) -> Result<Option<PerfRecord<'_>>, RingError> {
    match record_type {
        PERF_RECORD_SAMPLE => {
            let (size, data) = body.split_first_chunk().ok_or(RingError::Corrupt)?;
            let size = u32::from_ne_bytes(*size) as usize;
            let data = data.get(..size).ok_or(RingError::Corrupt)?;
            Ok(Some(PerfRecord::Sample(data)))
        }
        PERF_RECORD_LOST => {
            // The event's id, then the count.
            let lost = body.get(8..16).and_then(|bytes| bytes.try_into().ok()).ok_or(RingError::Corrupt)?;
            Ok(Some(PerfRecord::Lost(u64::from_ne_bytes(lost))))
        }
        _ => Ok(None),
    }
}

/// The rings of all online CPUs behind one epoll descriptor.
#[derive(Debug)]
pub struct PerfBuffer<'r> {
    map: MapFd,
    epoll: OwnedFd,
    rings: &'r mut [Option<PerfRing>],
}

impl AsFd for PerfBuffer<'_> {
    /// The epoll descriptor: readable when any ring has records.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for PerfBuffer<'_> {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

impl<'r> PerfBuffer<'r> {
    /// Opens a ring of `pages` data pages (of this kernel's page size; a power of two) on each online CPU that the map has
    /// an entry for, and puts it there. `rings` is room for them: one place for each such CPU.
    ///
    /// # Errors
    /// [`RingError`]; nothing stays open then.
    pub fn open(map: &MapFd, pages: u32, rings: &'r mut [Option<PerfRing>]) -> Result<PerfBuffer<'r>, RingError> {
        if map.map_type() != map_type::PERF_EVENT_ARRAY {
            return Err(RingError::WrongMapType(map.map_type()));
        }
        if !pages.is_power_of_two() {
            return Err(RingError::BadPageCount(pages));
        }
        let online = Cpus::online().map_err(call("/sys/devices/system/cpu/online"))?;
        let cpus = online.iter().take_while(|cpu| *cpu < map.max_entries());
        let wanted = cpus.clone().count();
        if wanted > rings.len() {
            return Err(RingError::TooManyCpus { wanted: wanted as u32, room: rings.len() as u32 });
        }
        rings.fill_with(|| None);
        // From here on, dropping it takes out again what was put in.
        let buffer = PerfBuffer {
            map: map.try_clone().map_err(call("dup"))?,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(call("epoll_create1"))?,
            rings,
        };
        for (index, cpu) in cpus.enumerate() {
            let ring = PerfRing::open(cpu, pages)?;
            let fd = ring.as_raw_fd();
            buffer.map.update(&cpu.to_ne_bytes(), &fd.to_ne_bytes(), 0).map_err(call("BPF_MAP_UPDATE_ELEM"))?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&buffer.epoll, &ring, data, epoll::EventFlags::IN).map_err(call("epoll_ctl"))?;
            buffer.rings[index] = Some(ring);
        }
        Ok(buffer)
    }

    /// All records of all rings, without waiting; the result is how many. `scratch` takes records that wrap: 64 KiB hold
    /// any, less will do where the program's are shorter.
    ///
    /// # Errors
    /// [`RingError::Corrupt`].
    pub fn consume(&mut self, scratch: &mut [u8], mut each: impl FnMut(u32, PerfRecord<'_>)) -> Result<u32, RingError> {
        let mut count = 0;
        for ring in self.rings.iter_mut().flatten() {
            while ring.next(scratch, &mut each)? {
                count += 1;
            }
        }
        Ok(count)
    }

    /// How many records found no room in the rings so far: see [`PerfRing::lost`].
    ///
    /// # Errors
    /// What read(2) says to an event.
    pub fn lost(&self) -> Result<u64, RingError> {
        self.rings.iter().flatten().try_fold(0u64, |sum, ring| Ok(sum.saturating_add(ring.lost()?)))
    }

    /// As [`PerfBuffer::consume`], after waiting for the first record for at most `timeout` (`None`: for ever). A signal
    /// ends the wait early.
    ///
    /// # Errors
    /// What epoll_wait(2) says; [`RingError::Corrupt`].
    pub fn poll(
        &mut self,
        timeout: Option<Duration>,
        scratch: &mut [u8],
        mut each: impl FnMut(u32, PerfRecord<'_>),
    ) -> Result<u32, RingError> {
        let count = self.consume(scratch, &mut each)?;
        if count > 0 {
            return Ok(count);
        }
        let mut events = [const { MaybeUninit::uninit() }; 16];
        wait(&self.epoll, &mut events, timeout)?;
        self.consume(scratch, each)
    }
}

impl Drop for PerfBuffer<'_> {
    fn drop(&mut self) {
        for ring in self.rings.iter_mut() {
            if let Some(ring) = ring.take() {
                // Gone already where the map was made without BPF_F_PRESERVE_ELEMS and its other users have left.
                let _ = self.map.delete(&ring.cpu.to_ne_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::page_size;
    use crate::sys::ring::tests::perf_file;

    fn sample(data: &[u8]) -> Vec<u8> {
        let mut body = Vec::from((data.len() as u32).to_ne_bytes());
        body.extend(data);
        assert!(body.len().is_multiple_of(8));
        body
    }

    fn lost(count: u64) -> Vec<u8> {
        [77u64.to_ne_bytes(), count.to_ne_bytes()].concat()
    }

    #[test]
    fn samples_losses_and_wrapped_records_are_told_apart() {
        let long = sample(&[8; 60]);
        let file = perf_file(
            page_size() as u64,
            page_size() as u64 - 32,
            &[(9, &sample(&[1; 4])), (9, &long), (2, &lost(5)), (1, &[0; 8])],
        );
        let open = || PerfRing {
            cpu: 3,
            pages: PerfPages::new(file.as_fd(), 1).unwrap(),
            event: file.try_clone().unwrap().into(),
            tells_lost: false,
            lost: 0,
        };
        let run = |scratch: &mut [u8]| {
            let mut seen = Vec::new();
            let mut ring = open();
            while ring.next(scratch, &mut |cpu, record| seen.push(format!("{cpu} {record:?}"))).unwrap() {}
            seen
        };
        // Too short for the record that wraps: said so, and the rest still arrives. Nothing is consumed twice.
        let first = run(&mut [0; 63]);
        assert_eq!(first[0], "3 Sample([1, 1, 1, 1])");
        assert_eq!(first[1], "3 Skipped { byte_size: 64 }");
        assert_eq!(first[2..], ["3 Lost(5)"]);
        assert!(run(&mut [0; 64]).is_empty());
    }

    #[test]
    fn a_wrapped_perf_record_is_put_together() {
        let data: Vec<u8> = (0..60).collect();
        let file = perf_file(page_size() as u64, page_size() as u64 - 16, &[(9, &sample(&data))]);
        let mut ring = PerfRing {
            cpu: 0,
            pages: PerfPages::new(file.as_fd(), 1).unwrap(),
            event: file.try_clone().unwrap().into(),
            tells_lost: false,
            lost: 0,
        };
        let mut seen = Vec::new();
        let mut each = |_: u32, record: PerfRecord<'_>| match record {
            PerfRecord::Sample(bytes) => seen.extend_from_slice(bytes),
            other => panic!("{other:?}"),
        };
        assert!(ring.next(&mut [0; 64], &mut each).unwrap());
        assert_eq!(seen, data);
    }

    #[test]
    fn damaged_records() {
        assert_eq!(decode(9, &[1, 0]), Err(RingError::Corrupt));
        assert_eq!(decode(9, &[255, 255, 0, 0, 1]), Err(RingError::Corrupt));
        assert_eq!(decode(2, &[0; 15]), Err(RingError::Corrupt));
        assert_eq!(decode(5, &[0; 3]), Ok(None));
    }
}

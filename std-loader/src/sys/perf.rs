//! perf_event_open(2) and the ioctls on its descriptors.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::ioctl::{IntegerSetter, Opcode, opcode};

use zerocopy::IntoBytes;

use super::attr::{PERF_FLAG_FREQ, PerfEventAttr, perf_flag, zeroed};
use super::{Errno, raw_perf_event_open};

/// PERF_TYPE_SOFTWARE.
pub const TYPE_SOFTWARE: u32 = 1;
/// PERF_TYPE_TRACEPOINT.
pub const TYPE_TRACEPOINT: u32 = 2;
/// PERF_COUNT_SW_BPF_OUTPUT.
const SW_BPF_OUTPUT: u64 = 10;
/// PERF_SAMPLE_RAW.
const SAMPLE_RAW: u64 = 1 << 10;
/// PERF_FORMAT_LOST.
const FORMAT_LOST: u64 = 1 << 4;
/// PERF_FLAG_FD_CLOEXEC.
const FD_CLOEXEC: u32 = 1 << 3;

const ENABLE: Opcode = opcode::none(b'$', 0);
const DISABLE: Opcode = opcode::none(b'$', 1);
const SET_BPF: Opcode = opcode::write::<u32>(b'$', 8);

/// Which tasks and CPUs an event counts: one of the two must be a real one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// A process (thread) id, 0 for the calling thread, or `None` for every task.
    pub pid: Option<u32>,
    /// A CPU number, or `None` for every CPU.
    pub cpu: Option<u32>,
}

impl Scope {
    /// Every task on the CPU: what tracepoints and probes, which fire on all CPUs, take with CPU 0.
    #[must_use]
    pub fn cpu(cpu: u32) -> Scope {
        Scope { pid: None, cpu: Some(cpu) }
    }

    /// One task on every CPU.
    #[must_use]
    pub fn pid(pid: u32) -> Scope {
        Scope { pid: Some(pid), cpu: None }
    }
}

/// How often an event samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// Every so many counts.
    Period(u64),
    /// About so many times a second.
    Frequency(u64),
}

fn open(attr: &PerfEventAttr, scope: Scope) -> Result<OwnedFd, Errno> {
    // A number too large for the kernel is not its -1, which is every task or CPU.
    let number = |value: Option<u32>| value.map_or(Ok(-1), |value| i32::try_from(value).map_err(|_| Errno::EINVAL));
    raw_perf_event_open(attr, number(scope.pid)?, number(scope.cpu)?, -1, FD_CLOEXEC)
}

fn event(event_type: u32, config: u64) -> PerfEventAttr {
    PerfEventAttr { event_type, config, size: size_of::<PerfEventAttr>() as u32, ..zeroed() }
}

/// A tracepoint, by the number in its tracefs `id` file.
pub(crate) fn tracepoint(id: u64, scope: Scope) -> Result<OwnedFd, Errno> {
    let attr =
        PerfEventAttr { sample_period: 1, sample_type: SAMPLE_RAW, wakeup_events: 1, ..event(TYPE_TRACEPOINT, id) };
    open(&attr, scope)
}

/// A counter or clock of any PMU, sampling. `config` is the PMU's.
pub(crate) fn counter(event_type: u32, config: u64, sampling: Sampling, scope: Scope) -> Result<OwnedFd, Errno> {
    let (sample_period, flags) = match sampling {
        Sampling::Period(period) => (period, 0),
        Sampling::Frequency(hertz) => (hertz, perf_flag(PERF_FLAG_FREQ)),
    };
    let attr = PerfEventAttr { sample_period, flags, ..event(event_type, config) };
    open(&attr, scope)
}

/// A probe of the kprobe or uprobe PMU. `name` is a function (or `None`: `offset` is an address) or a file.
pub(crate) fn probe(
    pmu_type: u32,
    config: u64,
    name: Option<&CStr>,
    offset: u64,
    scope: Scope,
) -> Result<OwnedFd, Errno> {
    let attr = PerfEventAttr {
        config1: name.map_or(0, |name| name.as_ptr().expose_provenance() as u64),
        config2: offset,
        ..event(pmu_type, config)
    };
    open(&attr, scope)
}

/// The ring that bpf_perf_event_output writes on one CPU; a reader is woken for every `wakeup_events` records. The second
/// result is whether the event tells how many were lost ([`lost`]).
pub(crate) fn bpf_output(cpu: u32, wakeup_events: u32) -> Result<(OwnedFd, bool), Errno> {
    let attr = PerfEventAttr {
        sample_period: u64::from(wakeup_events),
        sample_type: SAMPLE_RAW,
        wakeup_events,
        ..event(TYPE_SOFTWARE, SW_BPF_OUTPUT)
    };
    match open(&PerfEventAttr { read_format: FORMAT_LOST, ..attr }, Scope::cpu(cpu)) {
        // Before Linux 6.0.
        Err(Errno::EINVAL) => open(&attr, Scope::cpu(cpu)).map(|event| (event, false)),
        opened => opened.map(|event| (event, true)),
    }
}

/// How many records found no room in the ring of an event that tells it.
pub(crate) fn lost(event: BorrowedFd<'_>) -> Result<u64, Errno> {
    // The event's own count, then the lost ones.
    let mut words = [0u64; 2];
    match rustix::io::read(event, words.as_mut_bytes())? {
        16 => Ok(words[1]),
        _ => Err(Errno::EIO),
    }
}

/// PERF_EVENT_IOC_ENABLE.
pub(crate) fn enable(event: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: this ioctl takes a number, no pointer.
    unsafe { rustix::ioctl::ioctl(event, IntegerSetter::<ENABLE>::new_usize(0)) }.map_err(Errno::from)
}

/// PERF_EVENT_IOC_DISABLE.
pub(crate) fn disable(event: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: this ioctl takes a number, no pointer.
    unsafe { rustix::ioctl::ioctl(event, IntegerSetter::<DISABLE>::new_usize(0)) }.map_err(Errno::from)
}

/// PERF_EVENT_IOC_SET_BPF: the program lives with the event; there is no taking it off but closing the event.
pub(crate) fn set_bpf(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let fd = program.as_fd().as_raw_fd() as usize;
    // SAFETY: this ioctl takes a descriptor's number, no pointer.
    unsafe { rustix::ioctl::ioctl(event, IntegerSetter::<SET_BPF>::new_usize(fd)) }.map_err(Errno::from)
}

//! The verifier's log, asked for only where it is needed.
//!
//! The first try of every load has no log: the verifier then writes none, and good programs are the rule. On failure it
//! is tried again with the caller's buffer. The kernel says ENOSPC where that is too short and, from 6.4 on, how long it
//! must be; the buffer grows as far as its owner lets it, a bounded number of times. Whatever happens to the log, the
//! errno reported is that of the try without one.

use core::fmt;
use std::os::fd::OwnedFd;

use crate::sys::Errno;
use crate::sys::mmap::AnonMap;

/// How many loads with a log there are at most.
pub const LOG_TRIES: u32 = 8;

/// Where a verifier log goes.
pub trait LogBuffer {
    /// The buffer as it is; empty for none.
    fn bytes(&mut self) -> &mut [u8];

    /// Asks for `wanted` bytes; false where it stays as it is.
    fn grow(&mut self, wanted: usize) -> bool;
}

/// A buffer of fixed size; kernels from 6.4 on keep the log's tail in it, older ones its start.
impl LogBuffer for &mut [u8] {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }

    fn grow(&mut self, _: usize) -> bool {
        false
    }
}

/// A log in private memory that is mapped when the first program fails, and no heap.
#[derive(Debug)]
pub struct GrowingLog {
    map: Option<AnonMap>,
    start: usize,
    limit: usize,
}

impl GrowingLog {
    /// Starts at `start` bytes and grows to at most `limit`.
    #[must_use]
    pub const fn new(start: usize, limit: usize) -> GrowingLog {
        GrowingLog { map: None, start, limit }
    }

    /// The log's bytes: `&log.as_bytes()[failure.log_range()]`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

impl LogBuffer for GrowingLog {
    fn bytes(&mut self) -> &mut [u8] {
        if self.map.is_none() {
            self.map = AnonMap::new(self.start.min(self.limit)).ok();
        }
        self.map.as_deref_mut().unwrap_or_default()
    }

    fn grow(&mut self, wanted: usize) -> bool {
        let Some(map) = &mut self.map else {
            return false;
        };
        let wanted = wanted.min(self.limit);
        wanted > map.len() && map.grow(wanted).is_ok()
    }
}

/// The kernel refused a program or a BTF blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadFailure {
    /// The kernel's answer to the try without a log.
    pub errno: Errno,
    /// Bytes of the log at the start of the buffer, without the NUL.
    pub log_len: u32,
    /// The whole log's length as the kernel states it (6.4 and newer), NUL included; else 0.
    pub log_true_size: u32,
    /// The log did not fit.
    pub truncated: bool,
    /// ENOMEM stands for something else: the kernel was built without a JIT (CONFIG_BPF_JIT), and so without the trampolines that
    /// fentry, fexit, fmod_ret and LSM programs are called through.
    pub no_jit: bool,
}

impl LoadFailure {
    /// Where the log is in the buffer.
    #[must_use]
    pub fn log_range(&self) -> core::ops::Range<usize> {
        0..self.log_len as usize
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel refuses it: {}", self.errno)?;
        if self.no_jit {
            f.write_str(
                ": the kernel has no BPF JIT, without which there are no fentry, fexit, fmod_ret and LSM programs",
            )?;
        }
        Ok(())
    }
}

impl core::error::Error for LoadFailure {}

/// The common course: without a log, then with one until it fits. `load` gets a buffer and says how long the log is.
pub(super) fn with_log(
    mut load: impl FnMut(&mut [u8], &mut u32) -> Result<OwnedFd, Errno>,
    log: &mut dyn LogBuffer,
) -> Result<OwnedFd, LoadFailure> {
    let mut true_size = 0;
    let errno = match load(&mut [], &mut true_size) {
        Ok(fd) => return Ok(fd),
        Err(errno) => errno,
    };
    let mut failure = LoadFailure { errno, log_len: 0, log_true_size: 0, truncated: false, no_jit: false };
    for _ in 0..LOG_TRIES {
        let buffer = log.bytes();
        let len = buffer.len();
        if len == 0 {
            break;
        }
        // Kernels leave the buffer alone when they refuse before they verify.
        buffer[0] = 0;
        buffer[len - 1] = 0;
        let result = load(buffer, &mut true_size);
        let text = buffer.iter().position(|byte| *byte == 0).unwrap_or(len);
        failure.log_len = text as u32;
        failure.log_true_size = true_size;
        match result {
            // It was a passing trouble, or one of the environment.
            Ok(fd) => return Ok(fd),
            Err(Errno::ENOSPC) => {
                failure.truncated = true;
                let wanted = match true_size as usize {
                    size if size > len => size,
                    _ => len.saturating_mul(2),
                };
                if !log.grow(wanted) {
                    break;
                }
            }
            Err(_) => {
                failure.truncated = true_size as usize > len;
                break;
            }
        }
    }
    Err(failure)
}

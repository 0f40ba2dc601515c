//! Which CPUs there are: the possible ones size per-CPU values and perf event arrays, the online ones get perf rings.

#![forbid(unsafe_code)]

use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys::Errno;
use crate::sys::files;

/// A set of CPU numbers below 8192 (the kernel's own limit), in 1 KiB.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cpus {
    words: [u64; 128],
}

impl core::fmt::Debug for Cpus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Cpus {
    /// The CPUs that may ever come up: /sys/devices/system/cpu/possible.
    ///
    /// # Errors
    /// The error of opening or reading that file; EINVAL where it does not read as a list.
    pub fn possible() -> Result<Cpus, Errno> {
        Cpus::from_file(c"/sys/devices/system/cpu/possible")
    }

    /// The CPUs that run now: /sys/devices/system/cpu/online.
    ///
    /// # Errors
    /// As [`Cpus::possible`].
    pub fn online() -> Result<Cpus, Errno> {
        Cpus::from_file(c"/sys/devices/system/cpu/online")
    }

    fn from_file(path: &CStr) -> Result<Cpus, Errno> {
        // Even 8192 CPUs of which every other one is there are not written like that by any machine in existence.
        let mut buffer = [0; 4096];
        let text = files::read_file(path, &mut buffer)?;
        Cpus::parse(text).ok_or(Errno::EINVAL)
    }

    /// A list such as `0-3,5`; `None` where it is none, is empty, or names a CPU above 8191.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Cpus> {
        let text = core::str::from_utf8(text).ok()?.trim();
        let mut words = [0u64; 128];
        for range in text.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let first: usize = first.parse().ok()?;
            let last: usize = last.parse().ok()?;
            if first > last || last >= 64 * words.len() {
                return None;
            }
            for cpu in first..=last {
                words[cpu / 64] |= 1 << (cpu % 64);
            }
        }
        Some(Cpus { words })
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether `cpu` is among them.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get(cpu as usize / 64).is_some_and(|word| word >> (cpu % 64) & 1 != 0)
    }

    /// Their numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        (0..64 * self.words.len() as u32).filter(|cpu| self.contains(*cpu))
    }
}

/// The number of possible CPUs, read once per process: it never changes.
///
/// # Errors
/// As [`Cpus::possible`].
pub fn possible_cpus() -> Result<u32, Errno> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    match COUNT.load(Ordering::Relaxed) {
        0 => {
            let count = Cpus::possible()?.count();
            COUNT.store(count, Ordering::Relaxed);
            Ok(count)
        }
        count => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        for (text, want) in [
            ("0\n", Some(1)),
            ("0-3,5\n", Some(5)),
            ("0-3,5,70-71", Some(7)),
            ("8191", Some(1)),
            ("8192", None),
            ("", None),
            ("\n", None),
            ("3-1", None),
            ("0,,1", None),
            ("a", None),
            ("-1", None),
        ] {
            assert_eq!(Cpus::parse(text.as_bytes()).map(|cpus| cpus.count()), want, "{text:?}");
        }
        let cpus = Cpus::parse(b"0-2,64").unwrap();
        assert!(cpus.iter().eq([0, 1, 2, 64]));
        assert!(!cpus.contains(100_000));
    }

    #[test]
    fn this_machine_has_some() {
        assert!(possible_cpus().unwrap() >= Cpus::online().unwrap().count());
        assert!(Cpus::online().unwrap().count() >= 1);
    }
}

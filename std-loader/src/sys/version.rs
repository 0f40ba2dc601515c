//! The running kernel's version, as libbpf's `get_kernel_version()` finds it.
//!
//! Distributions put their own numbers into uname's release: Ubuntu has the upstream version at the end of
//! /proc/version_signature, Debian in uname's `version` field. Kernels before 5.0 compare the version that a kprobe
//! program states with their own.

#![forbid(unsafe_code)]

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys::Errno;
use crate::sys::files;

/// A version as LINUX_VERSION_CODE has it: major << 16, minor << 8, patch at most 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32);

impl KernelVersion {
    /// From the three numbers.
    #[must_use]
    pub const fn new(major: u32, minor: u32, patch: u32) -> KernelVersion {
        let patch = if patch > 255 { 255 } else { patch };
        KernelVersion((major << 16) + (minor << 8) + patch)
    }

    /// The running kernel's; 0.0.0 where nothing tells. Read once per process.
    #[must_use]
    pub fn running() -> KernelVersion {
        static VERSION: AtomicU32 = AtomicU32::new(u32::MAX);
        match VERSION.load(Ordering::Relaxed) {
            u32::MAX => {
                let version = KernelVersion::find().unwrap_or_else(|_| find(None));
                VERSION.store(version.0, Ordering::Relaxed);
                version
            }
            code => KernelVersion(code),
        }
    }

    /// The running kernel's to the last number; 0.0.0 where nothing tells. Of an Ubuntu kernel that does not show its
    /// signature, [`KernelVersion::running`] has the first two numbers right, which is what features go by.
    ///
    /// # Errors
    /// That of opening or reading /proc/version_signature where it is there.
    pub fn find() -> Result<KernelVersion, Errno> {
        let mut buffer = [0; 256];
        match files::read_file(c"/proc/version_signature", &mut buffer) {
            Ok(signature) => Ok(find(Some(signature))),
            Err(Errno::ENOENT) => Ok(find(None)),
            Err(errno) => Err(errno),
        }
    }

    /// The major number.
    #[must_use]
    pub const fn major(self) -> u32 {
        self.0 >> 16
    }

    /// The minor number.
    #[must_use]
    pub const fn minor(self) -> u32 {
        self.0 >> 8 & 0xff
    }

    /// The patch number, at most 255.
    #[must_use]
    pub const fn patch(self) -> u32 {
        self.0 & 0xff
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major(), self.minor(), self.patch())
    }
}

fn find(signature: Option<&[u8]>) -> KernelVersion {
    let uname = rustix::system::uname();
    from_texts(signature, uname.version().to_bytes(), uname.release().to_bytes())
}

fn from_texts(signature: Option<&[u8]>, version: &[u8], release: &[u8]) -> KernelVersion {
    let ubuntu = signature.and_then(|text| {
        let last = text.trim_ascii().rsplit(|byte| *byte == b' ').next()?;
        numbers(last)
    });
    let debian = || {
        let word = b"Debian ";
        let at = version.windows(word.len()).position(|window| window == word)?;
        numbers(&version[at + word.len()..])
    };
    ubuntu.or_else(debian).or_else(|| numbers(release)).unwrap_or(KernelVersion(0))
}

/// `6.1.176-armmp`, `7.2-rc1`, `4.19`: two numbers at least.
fn numbers(text: &[u8]) -> Option<KernelVersion> {
    let mut found = [0u32; 3];
    let mut rest = text;
    for (i, number) in found.iter_mut().enumerate() {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let Some(value) = core::str::from_utf8(&rest[..digits]).ok().and_then(|digits| digits.parse().ok()) else {
            if i == 2 {
                break;
            }
            return None;
        };
        *number = value;
        rest = &rest[digits..];
        match rest {
            [b'.', tail @ ..] => rest = tail,
            _ if i == 0 => return None,
            _ => break,
        }
    }
    let [major, minor, patch] = found;
    (major < 0x1_0000 && minor < 0x100).then(|| KernelVersion::new(major, minor, patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors() {
        for (signature, version, release, want) in [
            (None, "#1 SMP", "6.18.44-fc-v669", "6.18.44"),
            (None, "#1 SMP", "7.2-rc1", "7.2.0"),
            (None, "#1 SMP", "4.9.337", "4.9.255"),
            (None, "#1 SMP Debian 6.1.176-1 (2026-05-01)", "6.1.0-50-armmp", "6.1.176"),
            (Some("Ubuntu 4.15.0-55.60-generic 4.15.18\n"), "#60-Ubuntu SMP", "4.15.0-55-generic", "4.15.18"),
            (Some("something else\n"), "#1", "5.10.1-v8+", "5.10.1"),
            (None, "#1 SMP PREEMPT", "5.4.0_android-x", "5.4.0"),
            (None, "", "garbage", "0.0.0"),
            (None, "", "5", "0.0.0"),
            (None, "Debian ", "3.2.1", "3.2.1"),
        ] {
            let found = from_texts(signature.map(str::as_bytes), version.as_bytes(), release.as_bytes());
            assert_eq!(found.to_string(), want, "{release}");
        }
        assert!(KernelVersion::new(5, 11, 0) > KernelVersion::new(5, 10, 999));
    }

    #[test]
    fn this_kernel_has_one() {
        assert!(KernelVersion::running() > KernelVersion::new(3, 0, 0));
    }
}

//! A kernel's error number.

use core::fmt;

/// An error number of the running kernel, positive. A newtype and not an enum: kernels return numbers that no list
/// has, among them 524 (ENOTSUPP).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! names {
    ($($name:ident $text:literal)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno(libc::$name);)*

            /// The number's C name, where it is one of those that loading meets.
            #[must_use]
            pub fn name(self) -> Option<&'static str> {
                $(if self == Errno::$name { return Some(stringify!($name)); })*
                (self == Errno::ENOTSUPP).then_some("ENOTSUPP")
            }

            /// What the number says, in a few words.
            #[must_use]
            pub fn text(self) -> Option<&'static str> {
                $(if self == Errno::$name { return Some($text); })*
                (self == Errno::ENOTSUPP).then_some("not supported by this kernel")
            }
        }
    };
}

names! {
    EPERM "operation not permitted"
    ENOENT "not found"
    ESRCH "no such process"
    EINTR "interrupted"
    EIO "input or output error"
    ENXIO "no such device or address"
    E2BIG "argument too big"
    EBADF "bad file descriptor"
    EAGAIN "try again"
    ENOMEM "out of memory"
    EACCES "access denied"
    EFAULT "bad address"
    EBUSY "in use"
    EEXIST "already exists"
    ENODEV "no such device"
    ENOTDIR "not a directory"
    EINVAL "invalid argument"
    EMFILE "too many open files"
    ENFILE "too many open files in the system"
    EFBIG "file too large"
    ENOSPC "no space left"
    ERANGE "out of range"
    ENAMETOOLONG "name too long"
    ENOSYS "no such system call"
    EOVERFLOW "value too large"
    EILSEQ "invalid byte sequence"
    EOPNOTSUPP "operation not supported"
    ETIMEDOUT "timed out"
    EADDRINUSE "address in use"
    EPROTO "protocol error"
    ESTALE "stale"
}

impl Errno {
    /// The kernel's own "not supported", which no C header of user space has.
    pub const ENOTSUPP: Errno = Errno(524);

    pub(crate) fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.text(), self.name()) {
            (Some(text), Some(name)) => write!(f, "{text} ({name})"),
            _ => write!(f, "error {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl core::error::Error for Errno {}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Errno(errno.raw_os_error())
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        std::io::Error::from_raw_os_error(errno.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        assert_eq!(Errno::EPERM.to_string(), "operation not permitted (EPERM)");
        assert_eq!(Errno(524).to_string(), "not supported by this kernel (ENOTSUPP)");
        assert_eq!(Errno(9999).to_string(), "error 9999");
        assert_eq!(format!("{:?}", Errno::ENOSPC), "ENOSPC");
    }
}

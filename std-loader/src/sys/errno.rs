//! A kernel's error number.

use core::fmt;

/// An error number of the running kernel, positive. A newtype and not an enum: kernels return numbers that no list
/// has, among them 524 (ENOTSUPP).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

macro_rules! names {
    ($($name:ident $text:literal)* ; $($other:ident)*) => {
        /// Numbers and C names, in no order.
        const NAMES: &[(i32, &str)] =
            &[$((libc::$name, stringify!($name)),)* $((libc::$other, stringify!($other)),)* (524, "ENOTSUPP")];

        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno(libc::$name);)*


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
    EADDRNOTAVAIL "address not available"
    EPROTO "protocol error"
    ESTALE "stale"
    ;
    // Loading hardly meets these: the name alone.
    ECHILD ENOTBLK EXDEV EISDIR ENFILE ENOTTY ETXTBSY ESPIPE EROFS
    EMLINK EPIPE EDOM EDEADLK ENOLCK ENOTEMPTY ELOOP ENOMSG EIDRM
    ENOSTR ENODATA ETIME ENOSR ENONET EREMOTE ENOLINK ECOMM EMULTIHOP
    EBADMSG ENOTUNIQ EBADFD EREMCHG EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE
    ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EPFNOSUPPORT EAFNOSUPPORT ENETDOWN ENETUNREACH ENETRESET ECONNABORTED
    ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ECONNREFUSED EHOSTDOWN EHOSTUNREACH
    EALREADY EINPROGRESS EUCLEAN EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY
    EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON ENOPKG ENOEXEC
    ENOCSI EL2NSYNC EL2HLT EADV ENAVAIL EBADR EDOTDOT ENOANO ECHRNG
    ELIBBAD EBADE EUNATCH ENOTNAM ELNRNG EXFULL ESRMNT EL3RST ELIBMAX
    EBADSLT EBADRQC ELIBACC ELIBSCN EISNAM ESTRPIPE ELIBEXEC EL3HLT ERESTART
    EBFONT
}

impl Errno {
    /// The kernel's own "not supported", which no C header of user space has.
    pub const ENOTSUPP: Errno = Errno(524);

    /// The number's C name; `None` for one that no header has.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
    }

    pub(crate) fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.text(), self.name()) {
            (Some(text), Some(name)) => write!(f, "{text} ({name})"),
            (None, Some(name)) => write!(f, "error {} ({name})", self.0),
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
        assert_eq!(Errno(99).to_string(), "address not available (EADDRNOTAVAIL)");
        assert_eq!(Errno(libc::ECONNREFUSED).to_string(), "error 111 (ECONNREFUSED)");
        assert_eq!(Errno(9999).to_string(), "error 9999");
        assert_eq!(format!("{:?}", Errno::ENOSPC), "ENOSPC");
    }

    #[test]
    fn every_number_that_the_c_library_has_words_for_has_a_name() {
        let unknown = ["Unknown error", "No error information"];
        let known = |number| {
            let words = std::io::Error::from_raw_os_error(number).to_string();
            !unknown.iter().any(|unknown| words.starts_with(unknown))
        };
        assert!(known(libc::EADDRNOTAVAIL) && !known(9999));
        let unnamed: Vec<i32> = (1..200).filter(|&number| known(number) && Errno(number).name().is_none()).collect();
        assert_eq!(unnamed, [], "numbers without names");
    }
}

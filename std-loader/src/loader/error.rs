//! Why something with an object did not work, in words that name what it is about.

use core::fmt;
use std::error::Error as StdError;

use corelo_core::arena::ArenaFull;
use corelo_core::object::ObjectError;
use corelo_core::prepare::PrepareError;

use super::text::Text;
use crate::attach::LinkError;
use crate::events::RingError;
use crate::kernel::KernelBtfError;
use crate::load::LoadError;
use crate::objects::SizeMismatch;
use crate::objects::pin::PinError;
use crate::prepare::KernelError;
use crate::sys::Errno;

/// What is behind an [`Error`]: small and `Copy`, with indices and the kernel's numbers in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The object is at fault.
    Object(ObjectError),
    /// It cannot be prepared for the kernel.
    Kernel(KernelError),
    /// It cannot be loaded.
    Load(LoadError),
    /// A program cannot be attached.
    Attach(LinkError),
    /// The program's section names nothing to attach it to.
    NoTarget,
    /// The object has no program, map or variable of the name.
    Unknown,
    /// The object has it, and it is not in the kernel: a program or map that was not wanted, a section of variables that no
    /// loaded program uses.
    NotLoaded,
    /// A map, or a variable, has other sizes than the types given.
    Size(SizeMismatch),
    /// A pin cannot be made or opened.
    Pin(PinError),
    /// A ring buffer cannot be read.
    Ring(RingError),
    /// The kernel refuses what was asked of it.
    Kernels(Errno),
}

impl Cause {
    /// The error that it was made from.
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Object(error) => Some(error),
            Self::Kernel(error) => Some(error),
            Self::Load(error) => Some(error),
            Self::Attach(error) => Some(error),
            Self::Size(error) => Some(error),
            Self::Pin(error) => Some(error),
            Self::Ring(error) => Some(error),
            Self::Kernels(errno) => Some(errno),
            Self::NoTarget | Self::Unknown | Self::NotLoaded => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(error) => error.fmt(f),
            Self::Kernel(error) => error.fmt(f),
            Self::Load(error) => error.fmt(f),
            Self::Attach(error) => error.fmt(f),
            Self::NoTarget => f.write_str("its section names nothing to attach it to"),
            Self::Unknown => f.write_str("there is none of this name"),
            Self::NotLoaded => f.write_str("it was not loaded"),
            Self::Size(error) => error.fmt(f),
            Self::Pin(error) => error.fmt(f),
            Self::Ring(error) => error.fmt(f),
            Self::Kernels(errno) => errno.fmt(f),
        }
    }
}

/// Why something with an object did not work.
///
/// Its text says what it is about by name (program, section, map, variable, extern) and, where that is the cause, which
/// capability or kernel version is missing; of a program that the verifier refuses it has the last lines of the log.
/// Without the crate's feature `names` it has indices instead of names, and a program that is linked statically is 40 KB
/// smaller. `{}` and `{:?}` are the same text, so that a `main` that returns it says it, too. The text lies in a private mapping of its
/// own: making it takes no heap, and an `Error` borrows from nothing.
pub struct Error {
    cause: Cause,
    text: Text,
}

impl Error {
    /// With the words that `write` writes.
    pub(crate) fn new(cause: Cause, write: impl FnOnce(&mut Text) -> fmt::Result) -> Self {
        let mut text = Text::default();
        if cfg!(feature = "names") {
            // What does not fit is cut, and says so.
            let _ = write(&mut text);
        }
        Self { cause, text }
    }

    /// What is behind it.
    #[must_use]
    pub fn cause(&self) -> &Cause {
        &self.cause
    }

    /// The shortage, where the buffer is too small: a larger one may do.
    #[must_use]
    pub fn arena_full(&self) -> Option<ArenaFull> {
        match self.cause {
            Cause::Object(ObjectError::Arena(full))
            | Cause::Kernel(KernelError::Prepare(PrepareError::Arena(full)))
            | Cause::Load(LoadError::Arena(full)) => Some(full),
            _ => None,
        }
    }

    /// What the kernel answered, where it is the kernel that refuses something.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self.cause {
            Cause::Load(error) => error.errno(),
            Cause::Attach(error) => error.errno(),
            Cause::Pin(error) => error.errno(),
            Cause::Kernels(errno) | Cause::Ring(RingError::Kernel { errno, .. }) => Some(errno),
            Cause::Kernel(KernelError::Btf(
                KernelBtfError::Open(errno) | KernelBtfError::Read(errno) | KernelBtfError::Memory(errno),
            )) => Some(errno),
            _ => None,
        }
    }
}

macro_rules! from_cause {
    ($($of:ty => $cause:ident),*) => {
        $(impl From<$of> for Error {
            fn from(error: $of) -> Self {
                Self::new(Cause::$cause(error), |_| Ok(()))
            }
        })*
    };
}

// Of calls that know no names: what a map, a ring or a link says of itself.
from_cause!(Errno => Kernels, KernelError => Kernel, RingError => Ring, LinkError => Attach, PinError => Pin, SizeMismatch => Size);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.as_str() {
            // There was no memory for words.
            "" => self.cause.fmt(f),
            text => f.write_str(text),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_small_and_may_go_to_another_thread() {
        fn goes_anywhere<T: Send + Sync + 'static>() {}
        goes_anywhere::<Error>();
        // What clippy calls large, in the signatures of users.
        assert!(size_of::<Error>() < 128, "{}", size_of::<Error>());
    }

    #[test]
    fn the_text_is_what_is_said_and_the_cause_where_there_is_none() {
        let said = Error::new(Cause::Kernels(Errno::EPERM), |text| fmt::Write::write_str(text, "map x: no"));
        assert_eq!((said.to_string(), format!("{said:?}")), ("map x: no".into(), "map x: no".into()));
        assert_eq!(said.source().unwrap().to_string(), Errno::EPERM.to_string());
        assert_eq!(Error::new(Cause::Unknown, |_| Ok(())).to_string(), Cause::Unknown.to_string());
    }
}

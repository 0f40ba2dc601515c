//! Why a BTF that is read piece by piece cannot be used.

use core::fmt;

use super::borrowed::{MinimalError, TOO_COMPLEX};
use super::source::{MAX_PASSES, MIN_WINDOW};
use crate::arena::ArenaFull;
use crate::btf::BtfError;

/// Why no minimal BTF can be made of a source.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError<E> {
    /// The source cannot be read.
    Read(E),
    /// The source ends early.
    Short {
        /// Where, in bytes from its start.
        offset: u64,
    },
    /// What it holds is at fault.
    Btf(BtfError),
    /// The object has another byte order.
    ByteOrder,
    /// The window is smaller than [`MIN_WINDOW`].
    Window,
    /// More than [`MAX_PASSES`] would be needed: types nest too deep.
    Passes,
    /// More pairs of types would have to be compared than are compared for one object.
    TooComplex,
    /// The arena is too small.
    Arena(ArenaFull),
}

impl<E: fmt::Display> fmt::Display for StreamError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "kernel BTF cannot be read: {error}"),
            Self::Short { offset } => write!(f, "kernel BTF ends at byte {offset}, too early"),
            Self::Btf(error) => error.fmt(f),
            Self::ByteOrder => f.write_str("object and kernel BTF have different byte orders"),
            Self::Window => write!(f, "window is smaller than {MIN_WINDOW} bytes"),
            Self::Passes => write!(f, "kernel BTF would have to be read more than {MAX_PASSES} times"),
            Self::TooComplex => f.write_str(TOO_COMPLEX),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> core::error::Error for StreamError<E> {}

impl<E> From<BtfError> for StreamError<E> {
    fn from(error: BtfError) -> Self {
        match error {
            BtfError::Arena(full) => Self::Arena(full),
            error => Self::Btf(error),
        }
    }
}

impl<E> From<ArenaFull> for StreamError<E> {
    fn from(full: ArenaFull) -> Self {
        Self::Arena(full)
    }
}

impl<E> From<MinimalError> for StreamError<E> {
    fn from(error: MinimalError) -> Self {
        match error {
            MinimalError::Btf(error) => error.into(),
            MinimalError::ByteOrder { .. } => Self::ByteOrder,
            MinimalError::TooComplex => Self::TooComplex,
            MinimalError::Arena(full) => Self::Arena(full),
        }
    }
}

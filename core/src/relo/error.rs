//! Why a relocation cannot be decided.

use core::fmt;

use crate::btf::{BtfError, Kind, TypeId};

/// A fault of an access string, or of the local type that it is read against.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// The string is not numbers from 0 to 2^31 - 1 with single colons between.
    BadAccessString {
        /// The byte at which it stops being that.
        at: u32,
    },
    /// More than 64 steps.
    TooManySteps,
    /// A relocation about a whole type has an access string other than `0`.
    NotWholeType,
    /// A relocation about an enumerator is on another kind of type, or has more than one step.
    NotEnumerator {
        /// The type.
        id: TypeId,
        /// Its kind.
        kind: Kind,
    },
    /// The type has no member, element or enumerator with this number.
    OutOfRange {
        /// The type.
        id: TypeId,
        /// The number.
        index: u32,
    },
    /// A step goes into a type that has no parts.
    NotAggregate {
        /// The type.
        id: TypeId,
        /// Its kind.
        kind: Kind,
    },
    /// The offset does not fit into 32 bits.
    OffsetOverflow,
    /// The root type has no name, so no candidate can be looked for.
    AnonymousRoot {
        /// The type.
        id: TypeId,
    },
    /// The bitfield cannot be read with one load of at most 8 bytes.
    BitfieldTooWide,
    /// This kind of relocation cannot be about an array element.
    ArrayElement,
    /// The object's BTF cannot be read.
    Btf(BtfError),
}

impl From<BtfError> for SpecError {
    fn from(error: BtfError) -> Self {
        Self::Btf(error)
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadAccessString { at } => write!(f, "access string is malformed at byte {at}"),
            Self::TooManySteps => f.write_str("access string has more than 64 steps"),
            Self::NotWholeType => f.write_str("access string of a type relocation is not \"0\""),
            Self::NotEnumerator { id, kind } => {
                write!(f, "enumerator relocation on type [{id}] of kind {kind}")
            }
            Self::OutOfRange { id, index } => write!(f, "local type [{id}] has no part {index}"),
            Self::NotAggregate { id, kind } => {
                write!(f, "access goes into local type [{id}] of kind {kind}, which has no parts")
            }
            Self::OffsetOverflow => f.write_str("offset of the access does not fit into 32 bits"),
            Self::AnonymousRoot { id } => write!(f, "local root type [{id}] has no name"),
            Self::BitfieldTooWide => f.write_str("bitfield cannot be read with one load of at most 8 bytes"),
            Self::ArrayElement => f.write_str("this kind of relocation cannot be about an array element"),
            Self::Btf(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SpecError {}

/// Two types cannot be compared to an end.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompareError {
    /// They nest more than 32 levels deep.
    TooDeep,
    /// More than 65,536 pairs of types would have to be compared.
    TooComplex,
    /// The path through the target has more than 64 steps.
    TooManySteps,
    /// The offset in the target does not fit into 32 bits.
    OffsetOverflow,
    /// One of the BTFs cannot be read.
    Btf(BtfError),
}

impl From<BtfError> for CompareError {
    fn from(error: BtfError) -> Self {
        Self::Btf(error)
    }
}

impl fmt::Display for CompareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep => f.write_str("types nest more than 32 levels deep"),
            Self::TooComplex => f.write_str("types are too complex to compare: more than 65536 pairs"),
            Self::TooManySteps => f.write_str("path through the target type has more than 64 steps"),
            Self::OffsetOverflow => f.write_str("offset in the target type does not fit into 32 bits"),
            Self::Btf(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for CompareError {}

/// Why a candidate, found and chosen, gives no value. One byte in a kept decision.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum TargetFault {
    /// [`CompareError::TooDeep`]
    TooDeep = 1,
    /// [`CompareError::TooComplex`]
    TooComplex,
    /// [`CompareError::TooManySteps`]
    TooManySteps,
    /// [`CompareError::OffsetOverflow`]
    OffsetOverflow,
    /// The target's bitfield cannot be read with one load of at most 8 bytes.
    BitfieldTooWide,
    /// The target type has no size.
    NoSize,
    /// The target's BTF cannot be read at this type, or has a kind there that is not known.
    Unreadable,
}

impl TargetFault {
    #[expect(clippy::as_conversions, reason = "the number of a variant, as declared")]
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    pub(crate) const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::TooDeep,
            2 => Self::TooComplex,
            3 => Self::TooManySteps,
            4 => Self::OffsetOverflow,
            5 => Self::BitfieldTooWide,
            6 => Self::NoSize,
            _ => Self::Unreadable,
        }
    }
}

impl fmt::Display for TargetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooDeep => "types nest more than 32 levels deep",
            Self::TooComplex => "types are too complex to compare",
            Self::TooManySteps => "path through the target type has more than 64 steps",
            Self::OffsetOverflow => "offset in the target type does not fit into 32 bits",
            Self::BitfieldTooWide => "target bitfield cannot be read with one load of at most 8 bytes",
            Self::NoSize => "target type has no size",
            Self::Unreadable => "target BTF cannot be read at this type",
        })
    }
}

impl From<BtfError> for TargetFault {
    fn from(error: BtfError) -> Self {
        match error {
            BtfError::NoSize { .. } => Self::NoSize,
            BtfError::ChainTooLong { .. } => Self::TooDeep,
            _ => Self::Unreadable,
        }
    }
}

impl From<CompareError> for TargetFault {
    fn from(error: CompareError) -> Self {
        match error {
            CompareError::TooDeep => Self::TooDeep,
            CompareError::TooComplex => Self::TooComplex,
            CompareError::TooManySteps => Self::TooManySteps,
            CompareError::OffsetOverflow => Self::OffsetOverflow,
            CompareError::Btf(error) => error.into(),
        }
    }
}

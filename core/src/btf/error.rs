//! What can be wrong with a BTF blob.

use core::fmt;

use super::TypeId;
use crate::arena::ArenaFull;

/// A section of a BTF blob.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The types.
    Types,
    /// The strings.
    Strings,
    /// The shapes of the kinds (headers of 32 bytes and more).
    Layout,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Types => "type",
            Self::Strings => "string",
            Self::Layout => "layout",
        })
    }
}

/// A fault of a BTF blob. Offsets are in bytes, from the start of the section named or of the blob.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BtfError {
    /// The blob ends inside its header.
    HeaderTruncated {
        /// Bytes of the blob.
        len: usize,
    },
    /// The first two bytes are not BTF's magic number in either byte order.
    BadMagic {
        /// What they are, read as little endian.
        found: u16,
    },
    /// The version is not 1.
    UnsupportedVersion {
        /// What it is.
        found: u8,
    },
    /// The header says that it is shorter than the shortest header there is, or longer than the blob.
    BadHeaderLen {
        /// What it says, in bytes.
        found: u32,
    },
    /// The header is longer than known, and not all of the unknown bytes are zero.
    UnknownHeaderField {
        /// Offset of the first such byte in the blob.
        offset: u32,
    },
    /// A section does not lie within the blob.
    SectionOutOfBounds {
        /// Which section.
        section: Section,
        /// Its offset from the end of the header.
        offset: u32,
        /// Its length in bytes.
        len: u32,
    },
    /// The type section does not start at a multiple of four.
    MisalignedTypes {
        /// Its offset from the end of the header.
        offset: u32,
    },
    /// The string section does not start or does not end with a NUL.
    BadStrings,
    /// The blob ends inside a type.
    TypeTruncated {
        /// The type's id.
        id: TypeId,
        /// Its offset in the type section.
        offset: u32,
    },
    /// A type has a kind that is not known, and no layout section says how long it is.
    UnknownKind {
        /// The type's id.
        id: TypeId,
        /// Its offset in the type section.
        offset: u32,
        /// The number of the kind.
        kind: u8,
    },
    /// No type has this id.
    NoSuchType {
        /// The id.
        id: TypeId,
    },
    /// No string starts at this offset.
    BadStringOffset {
        /// The offset in the string section, the base's strings included.
        offset: u32,
    },
    /// The string at this offset is longer than what it is there for: a name has 511 bytes at most for the kernel.
    NameTooLong {
        /// The offset in the string section, the base's strings included.
        offset: u32,
    },
    /// Modifiers, typedefs or arrays refer to each other too many times in a row, or in a ring.
    ChainTooLong {
        /// The id at which the chain was entered.
        id: TypeId,
    },
    /// A type has no size: void, a function, a forward declaration, or one whose size overflows.
    NoSize {
        /// The type's id.
        id: TypeId,
    },
    /// A split BTF was made for another base: its first id or string offset lies beyond the base's.
    BaseMismatch,
    /// The arena is too small.
    Arena(ArenaFull),
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HeaderTruncated { len } => write!(f, "BTF header cut short: {len} bytes"),
            Self::BadMagic { found } => write!(f, "not BTF: magic {found:#06x}, wanted 0xeb9f"),
            Self::UnsupportedVersion { found } => write!(f, "BTF version {found} is not supported, only 1 is"),
            Self::BadHeaderLen { found } => write!(f, "BTF header length {found} is below 24 or beyond the blob"),
            Self::UnknownHeaderField { offset } => {
                write!(f, "BTF header has a field at byte {offset} that is not known and not zero")
            }
            Self::SectionOutOfBounds { section, offset, len } => {
                write!(f, "BTF {section} section at {offset} of {len} bytes lies outside the blob")
            }
            Self::MisalignedTypes { offset } => {
                write!(f, "BTF type section at {offset} is not aligned to 4 bytes")
            }
            Self::BadStrings => f.write_str("BTF string section does not start and end with a NUL"),
            Self::TypeTruncated { id, offset } => {
                write!(f, "BTF type [{id}] at offset {offset} is cut short")
            }
            Self::UnknownKind { id, offset, kind } => write!(
                f,
                "BTF type [{id}] at offset {offset} has unknown kind {kind}, and no layout section says how long it is"
            ),
            Self::NoSuchType { id } => write!(f, "BTF has no type [{id}]"),
            Self::BadStringOffset { offset } => write!(f, "BTF has no string at offset {offset}"),
            Self::NameTooLong { offset } => {
                write!(f, "BTF string at offset {offset} is longer than names are (511 bytes)")
            }
            Self::ChainTooLong { id } => {
                write!(f, "BTF type [{id}] leads to itself or through more than 32 types in a row")
            }
            Self::NoSize { id } => write!(f, "BTF type [{id}] has no size"),
            Self::BaseMismatch => f.write_str("split BTF does not belong to this base BTF"),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

impl core::error::Error for BtfError {}

impl From<ArenaFull> for BtfError {
    fn from(full: ArenaFull) -> Self {
        Self::Arena(full)
    }
}

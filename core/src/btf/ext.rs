//! `.BTF.ext`: what the compiler knows about instructions: function info, line info, CO-RE relocations.
//!
//! Each of the three is a list of code sections, each with records of one size. Records may be longer than known here:
//! the known fields come first (kernel doc: `Documentation/bpf/btf.rst`).

use core::fmt;

use super::TypeId;
use super::header::MAGIC;
use crate::bytes::{Bytes, Endian};
use crate::numbers::{to_u32, to_usize};

/// Bytes of the header up to and with `line_info_len`.
const SHORT_HEADER: u32 = 24;
/// Bytes of the header with `core_relo_off` and `core_relo_len`.
const CORE_HEADER: u32 = 32;

/// One of the three lists.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Info {
    /// Function info: `bpf_func_info`.
    Func,
    /// Line info: `bpf_line_info`.
    Line,
    /// CO-RE relocations: `bpf_core_relo`.
    CoreRelo,
}

impl Info {
    const fn min_record_size(self) -> u32 {
        match self {
            Self::Func => 8,
            Self::Line | Self::CoreRelo => 16,
        }
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Func => "func_info",
            Self::Line => "line_info",
            Self::CoreRelo => "core_relo",
        })
    }
}

/// A fault of `.BTF.ext`. Offsets are in bytes from the start of the list named.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtError {
    /// The section ends inside its header, or the header says that it is shorter than 24 bytes or longer than the
    /// section.
    BadHeader,
    /// The first two bytes are not BTF's magic number, or are in the other byte order than `.BTF`.
    BadMagic {
        /// What they are, read in the order of `.BTF`.
        found: u16,
    },
    /// The version is not 1.
    UnsupportedVersion {
        /// What it is.
        found: u8,
    },
    /// A list does not lie within the section.
    OutOfBounds {
        /// Which list.
        info: Info,
    },
    /// The size of a list's records is too small or not a multiple of 4.
    BadRecordSize {
        /// Which list.
        info: Info,
        /// The size in bytes.
        found: u32,
    },
    /// A list ends inside a code section's head or records, or a code section has none.
    Truncated {
        /// Which list.
        info: Info,
        /// Where the code section's entry starts.
        offset: u32,
    },
}

impl fmt::Display for ExtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadHeader => f.write_str(".BTF.ext header is cut short or of a bad length"),
            Self::BadMagic { found } => write!(f, ".BTF.ext has magic {found:#06x}, wanted 0xeb9f"),
            Self::UnsupportedVersion { found } => write!(f, ".BTF.ext version {found} is not supported, only 1 is"),
            Self::OutOfBounds { info } => write!(f, ".BTF.ext {info} lies outside the section"),
            Self::BadRecordSize { info, found } => write!(f, ".BTF.ext {info} has records of {found} bytes"),
            Self::Truncated { info, offset } => {
                write!(f, ".BTF.ext {info} is cut short in the entry at offset {offset}")
            }
        }
    }
}

impl core::error::Error for ExtError {}

/// The three lists of a `.BTF.ext` section.
#[derive(Clone, Copy, Debug)]
pub struct BtfExt<'obj> {
    /// Function info.
    pub func_info: InfoList<'obj>,
    /// Line info.
    pub line_info: InfoList<'obj>,
    /// CO-RE relocations.
    pub core_relos: InfoList<'obj>,
}

impl<'obj> BtfExt<'obj> {
    /// No lists at all: what an object without the section has.
    #[must_use]
    pub fn empty(endian: Endian) -> Self {
        let list = InfoList { record_size: 0, entries: Bytes::new(&[], endian) };
        Self { func_info: list, line_info: list, core_relos: list }
    }

    /// Reads the section's bytes; `endian` is that of the object.
    ///
    /// # Errors
    /// Any [`ExtError`]: all lists are walked once, so that reading them later cannot fail.
    pub fn parse(section: &'obj [u8], endian: Endian) -> Result<Self, ExtError> {
        let section = Bytes::new(section, endian);
        let magic = section.u16(0).ok_or(ExtError::BadHeader)?;
        if magic != MAGIC {
            return Err(ExtError::BadMagic { found: magic });
        }
        let version = section.u8(2).ok_or(ExtError::BadHeader)?;
        if version != 1 {
            return Err(ExtError::UnsupportedVersion { found: version });
        }
        let header_len = section.u32(4).ok_or(ExtError::BadHeader)?;
        if header_len < SHORT_HEADER {
            return Err(ExtError::BadHeader);
        }
        let body = usize::try_from(header_len).ok().and_then(|len| section.tail(len)).ok_or(ExtError::BadHeader)?;
        let list = |info: Info, at: usize| -> Result<InfoList<'obj>, ExtError> {
            let find = || {
                let offset = usize::try_from(section.u32(at)?).ok()?;
                let len = usize::try_from(section.u32(at.wrapping_add(4))?).ok()?;
                body.slice(offset, len)
            };
            InfoList::parse(info, find().ok_or(ExtError::OutOfBounds { info })?)
        };
        Ok(Self {
            func_info: list(Info::Func, 8)?,
            line_info: list(Info::Line, 16)?,
            core_relos: if header_len >= CORE_HEADER {
                list(Info::CoreRelo, 24)?
            } else {
                Self::empty(endian).core_relos
            },
        })
    }
}

/// One of the three lists: entries for code sections.
#[derive(Clone, Copy, Debug)]
pub struct InfoList<'obj> {
    record_size: u32,
    entries: Bytes<'obj>,
}

impl<'obj> InfoList<'obj> {
    fn parse(info: Info, list: Bytes<'obj>) -> Result<Self, ExtError> {
        if list.is_empty() {
            return Ok(Self { record_size: 0, entries: list });
        }
        let record_size = list.u32(0).ok_or(ExtError::Truncated { info, offset: 0 })?;
        if record_size < info.min_record_size() || record_size % 4 != 0 {
            return Err(ExtError::BadRecordSize { info, found: record_size });
        }
        let entries = list.tail(4).ok_or(ExtError::Truncated { info, offset: 0 })?;
        let parsed = Self { record_size, entries };
        let mut rest = parsed.sections();
        loop {
            let offset = to_u32(rest.offset);
            let Some(section) = rest.next() else { break };
            if section.count == 0 {
                return Err(ExtError::Truncated { info, offset });
            }
        }
        if rest.offset != entries.len() {
            return Err(ExtError::Truncated { info, offset: to_u32(rest.offset) });
        }
        Ok(parsed)
    }

    /// Bytes of each record.
    #[must_use]
    pub fn record_size(&self) -> u32 {
        self.record_size
    }

    /// The code sections that have records.
    #[must_use]
    pub fn sections(&self) -> Sections<'obj> {
        Sections { list: *self, offset: 0 }
    }

    /// The code section whose entry starts at `offset` of the list.
    pub(crate) fn at(&self, offset: usize) -> Option<SectionRecords<'obj>> {
        Sections { list: *self, offset }.next()
    }

    /// How many records there are in all.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sections().map(|section| to_usize(section.count)).sum()
    }
}

/// Iterates over the code sections of a list. See [`InfoList::sections`].
#[derive(Clone, Debug)]
pub struct Sections<'obj> {
    list: InfoList<'obj>,
    offset: usize,
}

impl Sections<'_> {
    /// Where the next entry starts.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
}

impl<'obj> Iterator for Sections<'obj> {
    type Item = SectionRecords<'obj>;

    fn next(&mut self) -> Option<Self::Item> {
        let entries = self.list.entries;
        let name_off = entries.u32(self.offset)?;
        let count = entries.u32(self.offset.checked_add(4)?)?;
        let len = usize::try_from(count).ok()?.checked_mul(usize::try_from(self.list.record_size).ok()?)?;
        let start = self.offset.checked_add(8)?;
        let records = entries.slice(start, len)?;
        self.offset = start.checked_add(len)?;
        Some(SectionRecords { name_off, count, record_size: self.list.record_size, records })
    }
}

/// The records of one code section.
#[derive(Clone, Copy, Debug)]
pub struct SectionRecords<'obj> {
    /// Where the section's name is in the strings of `.BTF`.
    pub name_off: u32,
    /// How many records there are.
    pub count: u32,
    /// Bytes of each record.
    pub record_size: u32,
    /// The records.
    pub records: Bytes<'obj>,
}

impl<'obj> SectionRecords<'obj> {
    /// The bytes of one record.
    #[must_use]
    pub fn record(&self, index: u32) -> Option<Bytes<'obj>> {
        if index >= self.count {
            return None;
        }
        let size = usize::try_from(self.record_size).ok()?;
        self.records.slice(usize::try_from(index).ok()?.checked_mul(size)?, size)
    }

    /// The byte offset of the instruction that a record is about: the first field of all three kinds.
    #[must_use]
    pub fn insn_off(&self, index: u32) -> Option<u32> {
        self.record(index)?.u32(0)
    }

    /// The indexes of the first record at or after `start` and of the first one at or after `end`, both in bytes. Of use
    /// only where the records [are in order](Self::is_sorted), as compilers write them.
    #[must_use]
    pub fn range(&self, start: u32, end: u32) -> core::ops::Range<u32> {
        self.lower_bound(start)..self.lower_bound(end)
    }

    fn lower_bound(&self, insn_off: u32) -> u32 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.insn_off(middle).is_some_and(|found| found < insn_off) {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low
    }

    /// Whether the records are in the order of their instructions.
    #[must_use]
    pub fn is_sorted(&self) -> bool {
        (0..self.count).map(|index| self.insn_off(index)).is_sorted()
    }

    /// One record as a CO-RE relocation.
    #[must_use]
    pub fn core_relo(&self, index: u32) -> Option<CoreRelo> {
        let record = self.record(index)?;
        Some(CoreRelo {
            insn_off: record.u32(0)?,
            type_id: TypeId(record.u32(4)?),
            access_str_off: record.u32(8)?,
            kind: ReloKind::from_number(record.u32(12)?),
        })
    }
}

/// What a CO-RE relocation asks for (UAPI: `enum bpf_core_relo_kind`).
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReloKind {
    /// Offset of a field, in bytes.
    FieldByteOffset,
    /// Size of a field, in bytes.
    FieldByteSize,
    /// Whether a field exists.
    FieldExists,
    /// Whether a field is signed.
    FieldSigned,
    /// Left shift that brings a field to the top of 64 bits.
    FieldLshiftU64,
    /// Right shift that brings it down again.
    FieldRshiftU64,
    /// Id of a type in the object.
    TypeIdLocal,
    /// Id of a type in the kernel.
    TypeIdTarget,
    /// Whether a type exists.
    TypeExists,
    /// Size of a type, in bytes.
    TypeSize,
    /// Whether an enumerator exists.
    EnumvalExists,
    /// Value of an enumerator.
    EnumvalValue,
    /// Whether a type matches in all that the local one says.
    TypeMatches,
    /// A kind that did not exist when this was written.
    Unknown(u32),
}

impl ReloKind {
    /// The kind with this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number {
            0 => Self::FieldByteOffset,
            1 => Self::FieldByteSize,
            2 => Self::FieldExists,
            3 => Self::FieldSigned,
            4 => Self::FieldLshiftU64,
            5 => Self::FieldRshiftU64,
            6 => Self::TypeIdLocal,
            7 => Self::TypeIdTarget,
            8 => Self::TypeExists,
            9 => Self::TypeSize,
            10 => Self::EnumvalExists,
            11 => Self::EnumvalValue,
            12 => Self::TypeMatches,
            unknown => Self::Unknown(unknown),
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::FieldByteOffset => 0,
            Self::FieldByteSize => 1,
            Self::FieldExists => 2,
            Self::FieldSigned => 3,
            Self::FieldLshiftU64 => 4,
            Self::FieldRshiftU64 => 5,
            Self::TypeIdLocal => 6,
            Self::TypeIdTarget => 7,
            Self::TypeExists => 8,
            Self::TypeSize => 9,
            Self::EnumvalExists => 10,
            Self::EnumvalValue => 11,
            Self::TypeMatches => 12,
            Self::Unknown(number) => number,
        }
    }

    /// Whether it is about a field.
    #[must_use]
    pub const fn is_field(self) -> bool {
        matches!(
            self,
            Self::FieldByteOffset
                | Self::FieldByteSize
                | Self::FieldExists
                | Self::FieldSigned
                | Self::FieldLshiftU64
                | Self::FieldRshiftU64
        )
    }

    /// Whether it is about a whole type.
    #[must_use]
    pub const fn is_type(self) -> bool {
        matches!(self, Self::TypeIdLocal | Self::TypeIdTarget | Self::TypeExists | Self::TypeSize | Self::TypeMatches)
    }

    /// Whether it is about an enumerator.
    #[must_use]
    pub const fn is_enumval(self) -> bool {
        matches!(self, Self::EnumvalExists | Self::EnumvalValue)
    }

    /// The name that libbpf's messages have for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FieldByteOffset => "byte_off",
            Self::FieldByteSize => "byte_sz",
            Self::FieldExists => "field_exists",
            Self::FieldSigned => "signed",
            Self::FieldLshiftU64 => "lshift_u64",
            Self::FieldRshiftU64 => "rshift_u64",
            Self::TypeIdLocal => "local_type_id",
            Self::TypeIdTarget => "target_type_id",
            Self::TypeExists => "type_exists",
            Self::TypeSize => "type_size",
            Self::EnumvalExists => "enumval_exists",
            Self::EnumvalValue => "enumval_value",
            Self::TypeMatches => "type_matches",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl fmt::Display for ReloKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(number) => write!(f, "unknown({number})"),
            known => f.write_str(known.name()),
        }
    }
}

/// A CO-RE relocation record (UAPI: `struct bpf_core_relo`).
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreRelo {
    /// Byte offset of the instruction in its code section.
    pub insn_off: u32,
    /// The local root type.
    pub type_id: TypeId,
    /// Where the access string is in the strings of `.BTF`.
    pub access_str_off: u32,
    /// What is asked for.
    pub kind: ReloKind,
}

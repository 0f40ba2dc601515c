//! BTF, the kernel's and the object's: a borrowed blob of types, read where it lies.
//!
//! [`Btf`] is a blob whose header was checked; nothing of it is copied. [`Types`] adds a sparse index, with which ids
//! are found, and the base that a split BTF builds on. A [`Type`] is a small `Copy` view of one record.

pub mod context;
mod error;
pub mod ext;
pub(crate) mod header;
mod index;
pub(crate) mod info;
pub mod lookup;
mod pass;
mod query;
pub mod raw;
mod rows;
pub mod sanitize;
pub mod split;
pub mod strings;
mod types;

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use error::{BtfError, Section};
pub use index::{DEFAULT_LOCAL_STRIDE, DEFAULT_STRIDE, Types};
pub use info::{Info, Kind};
pub use sanitize::KernelBtfFeatures;
pub use types::{Array, Enumerator, Member, Param, SectionVar, Type};

use crate::bytes::{Bytes, Endian};
use crate::numbers::{to_u32, to_usize};
use info::{KNOWN_KINDS, SHAPES, Shape};

/// Bytes of a type that every kind has: name, info, size or type.
pub(crate) const FIXED: usize = 12;

/// The id of a type. 0 is `void`; the ids of a split BTF go on after its base's last one.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct TypeId(pub u32);

impl TypeId {
    /// The id that stands for `void`.
    pub const VOID: Self = Self(0);
}

impl fmt::Display for TypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A BTF blob: its header is checked, its types and strings are borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Btf<'btf> {
    types: Bytes<'btf>,
    strings: Bytes<'btf>,
    layout: Bytes<'btf>,
    strings_at: u32,
    types_at: u32,
    first_id: u32,
    first_string: u32,
    /// Ids of the types in their order, where they do not go on without gaps.
    ids: &'btf [u32],
}

impl<'btf> Btf<'btf> {
    /// A blob that stands alone: vmlinux, or an object's `.BTF`.
    ///
    /// # Errors
    /// Every variant of [`BtfError`] that concerns the header or a section's place. Types are read later.
    pub fn parse(blob: &'btf [u8]) -> Result<Self, BtfError> {
        let btf = Self::parse_at(blob, 1, 0)?;
        if btf.strings.u8(0) != Some(0) {
            return Err(BtfError::BadStrings);
        }
        Ok(btf)
    }

    /// A split blob, whose ids and string offsets go on after those of `base`: a kernel module's. Where it has no layout
    /// section, the base's counts (libbpf: `btf_type_size_unknown`).
    ///
    /// # Errors
    /// As [`Btf::parse`], and [`BtfError::BaseMismatch`] where the base is a part of a blob.
    pub fn parse_split(blob: &'btf [u8], base: &Types<'btf>) -> Result<Self, BtfError> {
        // Of a part it is not known where the ids and strings of the whole end.
        if !base.btf().ids.is_empty() {
            return Err(BtfError::BaseMismatch);
        }
        let mut btf = Self::parse_at(blob, base.end_id(), base.end_string())?;
        if btf.layout.is_empty() {
            btf.layout = base.btf().layout;
        }
        Ok(btf)
    }

    /// A part of a blob that stands alone: its types keep the ids that they had, which are `ids` in rising order.
    ///
    /// # Errors
    /// As [`Btf::parse`].
    pub fn parse_part(blob: &'btf [u8], ids: &'btf [u32]) -> Result<Self, BtfError> {
        Ok(Self { ids, ..Self::parse(blob)? })
    }

    /// The id of the type that would have this one if there were no gaps.
    pub(crate) fn with_gaps(&self, id: u32) -> u32 {
        if self.ids.is_empty() {
            return id;
        }
        let number = id.checked_sub(self.first_id).and_then(|number| usize::try_from(number).ok());
        number.and_then(|number| self.ids.get(number)).copied().unwrap_or(u32::MAX)
    }

    /// How many of its own types come before the one with this id.
    pub(crate) fn number_of(&self, id: TypeId) -> Option<u32> {
        if self.ids.is_empty() {
            return id.0.checked_sub(self.first_id);
        }
        u32::try_from(self.ids.binary_search(&id.0).ok()?).ok()
    }

    fn parse_at(blob: &'btf [u8], first_id: u32, first_string: u32) -> Result<Self, BtfError> {
        let sections = header::Sections::parse(blob)?;
        let strings = sections.strings;
        if strings.data().last().is_some_and(|&last| last != 0) {
            return Err(BtfError::BadStrings);
        }
        Ok(Self {
            types: sections.types,
            strings,
            layout: sections.layout,
            strings_at: sections.strings_at,
            types_at: sections.types_at,
            first_id,
            first_string,
            ids: &[],
        })
    }

    /// The byte order of the blob.
    #[must_use]
    pub fn endian(&self) -> Endian {
        self.types.endian()
    }

    /// The id of its first type: 1, or for a split BTF the one after its base's last.
    #[must_use]
    pub fn first_id(&self) -> TypeId {
        TypeId(self.first_id)
    }

    /// Bytes of its type section.
    #[must_use]
    pub fn types_len(&self) -> usize {
        self.types.len()
    }

    /// Where the strings start in the blob, in bytes.
    #[must_use]
    pub fn strings_at(&self) -> u32 {
        self.strings_at
    }

    /// Where the types start in the blob, in bytes.
    pub(crate) fn types_at(&self) -> u32 {
        self.types_at
    }

    /// The string at `offset` of its own string section, without its NUL.
    #[inline]
    pub(crate) fn own_string(&self, offset: u32) -> Option<&'btf [u8]> {
        self.strings.cstr(usize::try_from(offset.checked_sub(self.first_string)?).ok()?)
    }

    /// Its own strings, from `offset` on.
    #[inline]
    pub(crate) fn strings_from(&self, offset: u32) -> Option<&'btf [u8]> {
        self.strings.data().get(usize::try_from(offset.checked_sub(self.first_string)?).ok()?..)
    }

    /// Its whole own string section.
    #[must_use]
    pub fn strings(&self) -> &'btf [u8] {
        self.strings.data()
    }

    /// All types in the order of their ids.
    #[must_use]
    pub fn iter(&self) -> Iter<'btf> {
        Iter { btf: *self, offset: 0, id: self.first_id }
    }

    /// The type with this id at `offset` of the type section, and the offset of the next one.
    pub(crate) fn type_at(&self, offset: usize, id: u32) -> Result<(Type<'btf>, usize), BtfError> {
        let truncated = || BtfError::TypeTruncated { id: TypeId(id), offset: to_u32(offset) };
        let fixed = self.types.u32x3(offset).ok_or_else(truncated)?;
        let len = self.record_len(fixed[1], offset, id)?;
        let record = self.types.slice(offset, len).ok_or_else(truncated)?;
        let tail = record.tail(FIXED).ok_or_else(truncated)?;
        Ok((Type::new(TypeId(id), fixed, tail), offset.wrapping_add(len)))
    }

    /// Bytes of the record at `offset`, whose info word is given. They may reach beyond the section.
    #[inline]
    pub(crate) fn record_len(&self, info: u32, offset: usize, id: u32) -> Result<usize, BtfError> {
        let info = Info(info);
        let shape = self.shape(info.kind_number()).ok_or(BtfError::UnknownKind {
            id: TypeId(id),
            offset: to_u32(offset),
            kind: info.kind_number(),
        })?;
        // At most 12 + 255 + 255 * 2^24, below 2^32.
        let items = usize::from(shape.each).wrapping_mul(to_usize(info.vlen()));
        Ok(FIXED.wrapping_add(usize::from(shape.once)).wrapping_add(items))
    }

    #[inline]
    pub(crate) fn shape(&self, kind: u8) -> Option<Shape> {
        if kind < KNOWN_KINDS {
            return SHAPES.get(usize::from(kind)).copied();
        }
        // struct btf_layout { u8 info_sz; u8 elem_sz; u16 flags; }
        let shape = self.layout.slice(usize::from(kind).wrapping_mul(4), 4)?;
        let shape = Shape { once: shape.u8(0)?, each: shape.u8(1)? };
        // As libbpf: types consist of whole words.
        (shape.once.is_multiple_of(4) && shape.each.is_multiple_of(4)).then_some(shape)
    }
}

/// Iterates over all types of a blob. See [`Btf::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'btf> {
    btf: Btf<'btf>,
    offset: usize,
    id: u32,
}

impl<'btf> Iterator for Iter<'btf> {
    type Item = Result<Type<'btf>, BtfError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.btf.types.len() {
            return None;
        }
        let item = self.btf.type_at(self.offset, self.btf.with_gaps(self.id));
        match item {
            Ok((_, next)) => {
                self.offset = next;
                self.id = self.id.wrapping_add(1);
            }
            // Nothing after a type whose length is unknown can be read.
            Err(_) => self.offset = self.btf.types.len(),
        }
        Some(item.map(|(ty, _)| ty))
    }
}

//! The BTF header in its two forms: 24 bytes, and since 2026 at least 32 with the layout section.

use super::error::{BtfError, Section};
use crate::bytes::{Bytes, Endian};
use crate::numbers::{to_u64, to_usize};

/// The first two bytes of `.BTF` and of `.BTF.ext`, as an integer of the blob's byte order.
pub(crate) const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
/// Bytes of the header that every version has.
const SHORT_HEADER: u32 = 24;
/// Bytes of the header that ends with `layout_off` and `layout_len`.
const LAYOUT_HEADER: u32 = 32;

/// The sections of a blob, checked to lie within it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sections<'btf> {
    pub(super) types: Bytes<'btf>,
    pub(super) strings: Bytes<'btf>,
    /// Where the strings start in the blob, in bytes.
    pub(super) strings_at: u32,
    /// Where the types start in the blob, in bytes.
    pub(super) types_at: u32,
    pub(super) layout: Bytes<'btf>,
}

impl<'btf> Sections<'btf> {
    /// Reads the header at the start of `blob`.
    pub(super) fn parse(blob: &'btf [u8]) -> Result<Self, BtfError> {
        let extents = Extents::parse(blob, blob.len())?;
        let bytes = Bytes::new(blob, extents.endian);
        let section = |(start, len): (u32, u32)| {
            let find = || bytes.slice(usize::try_from(start).ok()?, usize::try_from(len).ok()?);
            // Within the blob: that was checked.
            find().unwrap_or(Bytes::new(&[], extents.endian))
        };
        Ok(Self {
            types: section(extents.types),
            strings: section(extents.strings),
            strings_at: extents.strings.0,
            types_at: extents.types.0,
            layout: section(extents.layout),
        })
    }
}

/// Where the sections of a blob are: for each its start in the blob and its length, in bytes, checked to lie within it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents {
    pub(crate) endian: Endian,
    pub(crate) types: (u32, u32),
    pub(crate) strings: (u32, u32),
    pub(crate) layout: (u32, u32),
}

impl Extents {
    /// Reads the header at the start of `head`, the first bytes of a blob of `blob_len`.
    ///
    /// The rules are those of libbpf's `btf_parse_hdr`, and of the kernel's `btf_parse_hdr` for what follows the known
    /// fields.
    pub(crate) fn parse(head: &[u8], blob_len: usize) -> Result<Self, BtfError> {
        let truncated = BtfError::HeaderTruncated { len: head.len() };
        let head = Bytes::new(head, byte_order(head)?);
        let version = head.u8(2).ok_or(truncated)?;
        if version != VERSION {
            return Err(BtfError::UnsupportedVersion { found: version });
        }
        let header_len = head.u32(4).ok_or(truncated)?;
        let bad_len = BtfError::BadHeaderLen { found: header_len };
        let known = usize::try_from(header_len).ok().filter(|&len| len <= head.len());
        let body_len = known.and_then(|len| blob_len.checked_sub(len)).ok_or(bad_len)?;
        if header_len < SHORT_HEADER {
            return Err(bad_len);
        }

        let has_layout = header_len >= LAYOUT_HEADER;
        let known_len = if has_layout { LAYOUT_HEADER } else { SHORT_HEADER };
        for offset in known_len..header_len {
            if head.u8(to_usize(offset)) != Some(0) {
                return Err(BtfError::UnknownHeaderField { offset });
            }
        }

        let extent = |at: usize| -> Result<(u32, u32), BtfError> {
            Ok((head.u32(at).ok_or(truncated)?, head.u32(at.wrapping_add(4)).ok_or(truncated)?))
        };
        let place = |section: Section, (offset, len): (u32, u32)| -> Result<(u32, u32), BtfError> {
            let ends = u64::from(offset).saturating_add(u64::from(len)) <= to_u64(body_len);
            let start = header_len.checked_add(offset).filter(|_| ends);
            Ok((start.ok_or(BtfError::SectionOutOfBounds { section, offset, len })?, len))
        };
        let types = extent(8)?;
        if types.0 % 4 != 0 {
            return Err(BtfError::MisalignedTypes { offset: types.0 });
        }
        let strings = extent(16)?;
        let layout = if has_layout { extent(24)? } else { (0, 0) };
        Ok(Self {
            endian: head.endian(),
            types: place(Section::Types, types)?,
            strings: place(Section::Strings, strings)?,
            layout: place(Section::Layout, layout)?,
        })
    }
}

fn byte_order(blob: &[u8]) -> Result<Endian, BtfError> {
    let magic = Bytes::new(blob, Endian::Little).u16(0).ok_or(BtfError::HeaderTruncated { len: blob.len() })?;
    if magic == MAGIC {
        Ok(Endian::Little)
    } else if magic == MAGIC.swap_bytes() {
        Ok(Endian::Big)
    } else {
        Err(BtfError::BadMagic { found: magic })
    }
}

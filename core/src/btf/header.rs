//! The BTF header in its two forms: 24 bytes, and since 2026 at least 32 with the layout section.

use super::error::{BtfError, Section};
use crate::bytes::{Bytes, Endian};

const MAGIC: u16 = 0xeb9f;
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
    ///
    /// The rules are those of libbpf's `btf_parse_hdr`, and of the kernel's `btf_parse_hdr` for what follows the known
    /// fields.
    pub(super) fn parse(blob: &'btf [u8]) -> Result<Self, BtfError> {
        let truncated = BtfError::HeaderTruncated { len: blob.len() };
        let blob = Bytes::new(blob, byte_order(blob)?);
        let version = blob.u8(2).ok_or(truncated)?;
        if version != VERSION {
            return Err(BtfError::UnsupportedVersion { found: version });
        }
        let header_len = blob.u32(4).ok_or(truncated)?;
        if header_len < SHORT_HEADER {
            return Err(BtfError::BadHeaderLen { found: header_len });
        }
        let body = usize::try_from(header_len)
            .ok()
            .and_then(|len| blob.tail(len))
            .ok_or(BtfError::BadHeaderLen { found: header_len })?;

        let has_layout = header_len >= LAYOUT_HEADER;
        let known_len = if has_layout { LAYOUT_HEADER } else { SHORT_HEADER };
        for offset in known_len..header_len {
            if blob.u8(offset as usize) != Some(0) {
                return Err(BtfError::UnknownHeaderField { offset });
            }
        }

        let extent = |at: usize| -> Result<(u32, u32), BtfError> {
            Ok((blob.u32(at).ok_or(truncated)?, blob.u32(at + 4).ok_or(truncated)?))
        };
        let types = extent(8)?;
        if types.0 % 4 != 0 {
            return Err(BtfError::MisalignedTypes { offset: types.0 });
        }
        let strings = extent(16)?;
        let layout = if has_layout { extent(24)? } else { (0, 0) };
        Ok(Self {
            types: section(body, Section::Types, types)?,
            strings: section(body, Section::Strings, strings)?,
            strings_at: header_len.saturating_add(strings.0),
            types_at: header_len.saturating_add(types.0),
            layout: section(body, Section::Layout, layout)?,
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

fn section<'btf>(body: Bytes<'btf>, section: Section, (offset, len): (u32, u32)) -> Result<Bytes<'btf>, BtfError> {
    let find = || body.slice(usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
    find().ok_or(BtfError::SectionOutOfBounds { section, offset, len })
}

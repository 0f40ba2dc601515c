//! A BTF blob that is read through a window: its header, its strings, its types one by one.

use super::error::StreamError;
use super::source::{MAX_PASSES, MIN_WINDOW, Source};
use crate::arena::ArenaFull;
use crate::btf::header::Extents;
use crate::btf::info::{KNOWN_KINDS, SHAPES, Shape};
use crate::btf::{BtfError, FIXED, Info, TypeId};
use crate::bytes::{Bytes, Endian};
use crate::limits::MAX_NAME;
use crate::numbers::{to_u32, to_u64, to_usize};

/// The most bytes of a layout section: four for each of 128 kinds.
const MAX_LAYOUT: usize = 512;

/// In 64 bits, where it always fits.
pub(super) fn sum(start: u32, offset: u32) -> u64 {
    u64::from(start).wrapping_add(u64::from(offset))
}

/// A window that moves over a source.
pub(super) struct Reader<'w, S> {
    source: &'w mut S,
    window: &'w mut [u8],
    start: u64,
    len: usize,
    pub(super) passes: u32,
    pub(super) bytes_read: u64,
}

impl<'w, S: Source> Reader<'w, S> {
    pub(super) fn new(source: &'w mut S, window: &'w mut [u8]) -> Self {
        Self { source, window, start: 0, len: 0, passes: 0, bytes_read: 0 }
    }

    pub(super) fn window_len(&self) -> usize {
        self.window.len()
    }

    pub(super) fn begin_pass(&mut self) -> Result<(), StreamError<S::Error>> {
        self.passes = self.passes.saturating_add(1);
        if self.passes > MAX_PASSES {
            return Err(StreamError::Passes);
        }
        Ok(())
    }

    /// Bytes at `at`; where they are not in the window, up to `ahead` bytes are read with them. Fewer at the end.
    pub(super) fn up_to(&mut self, at: u64, len: usize, ahead: usize) -> Result<&[u8], StreamError<S::Error>> {
        let offset = at.checked_sub(self.start).and_then(|offset| usize::try_from(offset).ok());
        let inside = offset.filter(|offset| offset.saturating_add(len) <= self.len);
        let offset = match inside {
            Some(offset) => offset,
            None => {
                self.fill(at, len.max(ahead))?;
                0
            }
        };
        let end = offset.saturating_add(len).min(self.len);
        Ok(self.window.get(offset..end).unwrap_or_default())
    }

    pub(super) fn exactly(&mut self, at: u64, len: usize, ahead: usize) -> Result<&[u8], StreamError<S::Error>> {
        let bytes = self.up_to(at, len, ahead)?;
        if bytes.len() < len {
            return Err(StreamError::Short { offset: at.saturating_add(to_u64(bytes.len())) });
        }
        // Read again: a shorter borrow than the one that was looked at.
        self.up_to(at, len, ahead)
    }

    fn fill(&mut self, at: u64, wanted: usize) -> Result<(), StreamError<S::Error>> {
        self.start = at;
        self.len = 0;
        let wanted = wanted.min(self.window.len());
        while self.len < wanted {
            let place = self.window.get_mut(self.len..wanted).unwrap_or_default();
            let offset = at.saturating_add(to_u64(self.len));
            match self.source.read_at(offset, place).map_err(StreamError::Read)? {
                0 => break,
                count => {
                    let count = count.min(place.len());
                    self.len = self.len.saturating_add(count);
                    self.bytes_read = self.bytes_read.saturating_add(to_u64(count));
                }
            }
        }
        Ok(())
    }
}

/// What the header says, and the layout section.
pub(super) struct Blob {
    pub(super) extents: Extents,
    layout: [u8; MAX_LAYOUT],
}

impl Blob {
    /// Reads the header of a blob in the byte order `endian`, and checks what [`Btf::parse`](crate::btf::Btf::parse)
    /// checks, or where it is split on a base, [`Btf::parse_split`](crate::btf::Btf::parse_split).
    pub(super) fn open<S: Source>(
        reader: &mut Reader<'_, S>,
        endian: Endian,
        is_split: bool,
    ) -> Result<Self, StreamError<S::Error>> {
        reader.begin_pass()?;
        let len = usize::try_from(reader.source.len()).unwrap_or(usize::MAX);
        let ahead = reader.window.len();
        let head = reader.up_to(0, MIN_WINDOW.min(len), ahead)?;
        let extents = Extents::parse(head, len)?;
        let (start, strings_len) = extents.strings;
        if !is_split && reader.up_to(u64::from(start), to_usize(strings_len.min(1)), 1)? != [0] {
            return Err(BtfError::BadStrings.into());
        }
        if let Some(last) = strings_len.checked_sub(1)
            && reader.up_to(sum(start, last), 1, 1)? != [0]
        {
            return Err(BtfError::BadStrings.into());
        }
        if extents.endian != endian {
            return Err(StreamError::ByteOrder);
        }
        let mut layout = [0; MAX_LAYOUT];
        let layout_len = usize::try_from(extents.layout.1).unwrap_or(usize::MAX).min(MAX_LAYOUT);
        let bytes = reader.exactly(u64::from(extents.layout.0), layout_len, layout_len)?;
        if let Some(place) = layout.get_mut(..layout_len) {
            place.copy_from_slice(bytes);
        }
        Ok(Self { extents, layout })
    }

    /// Passes over the strings: calls `each` with the offset and the bytes of each, up to the first error. Strings longer
    /// than the window are left out.
    pub(super) fn for_each_string<S: Source>(
        &self,
        reader: &mut Reader<'_, S>,
        mut each: impl FnMut(u32, &[u8]) -> Result<(), ArenaFull>,
    ) -> Result<(), StreamError<S::Error>> {
        reader.begin_pass()?;
        let (start, len) = self.extents.strings;
        let mut offset = 0u32;
        let mut is_inside = false;
        while offset < len {
            let window = reader.window.len();
            let wanted = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX).min(window);
            let chunk = reader.exactly(sum(start, offset), wanted, window)?;
            let mut rest = chunk;
            while let Some(end) = rest.iter().position(|&byte| byte == 0) {
                let (name, after) = rest.split_at_checked(end).unwrap_or_default();
                rest = after.get(1..).unwrap_or_default();
                if !core::mem::take(&mut is_inside) && name.len() < MAX_NAME {
                    each(offset, name)?;
                }
                offset = offset.saturating_add(u32::try_from(end).unwrap_or(u32::MAX)).saturating_add(1);
            }
            if rest.len() == wanted {
                // Longer than the window, and than names are: not looked at, to its end.
                is_inside = true;
                offset = offset.saturating_add(u32::try_from(wanted).unwrap_or(u32::MAX));
            } else if wanted < window && !rest.is_empty() {
                return Err(BtfError::BadStrings.into());
            }
        }
        Ok(())
    }

    fn record_len(&self, info: u32, offset: u32, id: u32) -> Result<u64, BtfError> {
        let info = Info(info);
        let kind = info.kind_number();
        let shape = if kind < KNOWN_KINDS {
            SHAPES.get(usize::from(kind)).copied()
        } else {
            let entries = self.layout.get(..to_usize(self.extents.layout.1)).unwrap_or(&self.layout);
            let (entries, _) = entries.as_chunks::<4>();
            let shape = entries.get(usize::from(kind)).map(|&[once, each, ..]| Shape { once, each });
            // As libbpf: types consist of whole words.
            shape.filter(|shape| shape.once.is_multiple_of(4) && shape.each.is_multiple_of(4))
        };
        let shape = shape.ok_or(BtfError::UnknownKind { id: TypeId(id), offset, kind })?;
        let items = u64::from(shape.each).wrapping_mul(u64::from(info.vlen()));
        Ok(items.wrapping_add(to_u64(FIXED)).wrapping_add(u64::from(shape.once)))
    }

    /// The three words at an offset of the type section.
    pub(super) fn fixed<S: Source>(
        &self,
        reader: &mut Reader<'_, S>,
        offset: u32,
        id: u32,
        ahead: usize,
    ) -> Result<[u32; 3], StreamError<S::Error>> {
        let (start, len) = self.extents.types;
        if sum(offset, to_u32(FIXED)) > u64::from(len) {
            return Err(BtfError::TypeTruncated { id: TypeId(id), offset }.into());
        }
        let bytes = reader.exactly(sum(start, offset), FIXED, ahead)?;
        Ok(Bytes::new(bytes, self.extents.endian).u32x3(0).unwrap_or_default())
    }

    pub(super) fn next_offset(&self, info: u32, offset: u32, id: u32) -> Result<u32, BtfError> {
        let next = self.record_len(info, offset, id)?.wrapping_add(u64::from(offset));
        let inside = u32::try_from(next).ok().filter(|&next| next <= self.extents.types.1);
        inside.ok_or(BtfError::TypeTruncated { id: TypeId(id), offset })
    }
}

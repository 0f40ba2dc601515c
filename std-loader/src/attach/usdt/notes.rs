//! The notes of an ELF file that say where its static probes are: section `.note.stapsdt`, of type SHT_NOTE.
//!
//! Each note is named `stapsdt`, is of type 3, and holds three addresses (of the probe, of `.stapsdt.base` when the file was
//! linked, of the semaphore or 0), then three texts that end with a NUL: provider, name, arguments.

use elf::abi;
use elf::endian::{AnyEndian, EndianParse};
use elf::file::Class;

use crate::attach::symbols::{File, SymbolError};
use crate::sys::mmap::AnonMap;

const SECTION: &[u8] = b".note.stapsdt";
const BASE_SECTION: &[u8] = b".stapsdt.base";
/// NT_STAPSDT.
const NOTE_TYPE: u32 = 3;
const NOTE_NAME: &[u8] = b"stapsdt\0";

/// One probe at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note<'n> {
    /// The address of the instruction.
    pub(super) location: u64,
    /// Of the semaphore, 0 for none.
    pub(super) semaphore: u64,
    pub(super) provider: &'n [u8],
    pub(super) name: &'n [u8],
    pub(super) arguments: &'n [u8],
}

/// The notes of a file.
#[derive(Debug)]
pub(super) struct Notes {
    bytes: AnonMap,
    len: usize,
    endian: AnyEndian,
    class: Class,
    /// Where `.stapsdt.base` is now, 0 where it is not there.
    base: u64,
}

impl Notes {
    /// `None` for a file without such a section.
    pub(super) fn read(file: &File) -> Result<Option<Notes>, SymbolError> {
        let Some(names) = file.section_names()? else { return Ok(None) };
        let Some(section) = file.section_named(&names, SECTION)? else { return Ok(None) };
        // A file of debug information only keeps the header.
        if section.sh_type != abi::SHT_NOTE {
            return Ok(None);
        }
        let base = file.section_named(&names, BASE_SECTION)?.map_or(0, |section| section.sh_addr);
        let bytes = file.read_section(&section)?;
        let len = usize::try_from(section.sh_size).map_err(|_| SymbolError::Damaged)?;
        let header = file.header();
        Ok(Some(Notes { bytes, len, endian: header.endianness, class: header.class, base }))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Result<Note<'_>, SymbolError>> {
        let rest = self.bytes.get(..self.len).unwrap_or_default();
        Iter { rest, endian: self.endian, class: self.class, base: self.base }
    }
}

struct Iter<'n> {
    rest: &'n [u8],
    endian: AnyEndian,
    class: Class,
    base: u64,
}

impl<'n> Iter<'n> {
    /// The next note that is a probe.
    fn note(&mut self) -> Option<Option<Note<'n>>> {
        while !self.rest.is_empty() {
            let Some((note_type, name, content)) = self.split() else { return Some(None) };
            if note_type == NOTE_TYPE && name == NOTE_NAME {
                return Some(self.probe(content));
            }
        }
        None
    }

    /// Type, name and content of the next note of whatever kind.
    fn split(&mut self) -> Option<(u32, &'n [u8], &'n [u8])> {
        let (header, rest) = self.rest.split_at_checked(12)?;
        let word = |at: usize| self.endian.parse_u32_at(&mut { at }, header).ok();
        let (name_len, content_len, note_type) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let (name, rest) = take(rest, name_len)?;
        let (content, rest) = take(rest, content_len)?;
        self.rest = rest;
        Some((note_type, name, content))
    }

    fn probe(&self, content: &'n [u8]) -> Option<Note<'n>> {
        let size = match self.class {
            Class::ELF32 => 4,
            Class::ELF64 => 8,
        };
        let (addresses, texts) = content.split_at_checked(3 * size)?;
        let address = |number: usize| {
            let at = number * size;
            match self.class {
                Class::ELF32 => self.endian.parse_u32_at(&mut { at }, addresses).ok().map(u64::from),
                Class::ELF64 => self.endian.parse_u64_at(&mut { at }, addresses).ok(),
            }
        };
        let (provider, texts) = until_nul(texts)?;
        let (name, texts) = until_nul(texts)?;
        let (arguments, _) = until_nul(texts)?;
        if name.is_empty() {
            return None;
        }
        // prelink moves the file's sections and not what notes say: by as much as it has moved the base.
        let moved = match (self.base, address(1)?) {
            (0, _) | (_, 0) => 0,
            (now, then) => now.wrapping_sub(then),
        };
        let semaphore = match address(2)? {
            0 => 0,
            semaphore => semaphore.wrapping_add(moved),
        };
        // Some writers put a colon where nothing is.
        let arguments = if arguments.starts_with(b":") { &[] } else { arguments };
        Some(Note { location: address(0)?.wrapping_add(moved), semaphore, provider, name, arguments })
    }
}

impl<'n> Iterator for Iter<'n> {
    type Item = Result<Note<'n>, SymbolError>;

    fn next(&mut self) -> Option<Self::Item> {
        let note = self.note()?;
        if note.is_none() {
            // Where the next one would start is not known.
            self.rest = &[];
        }
        Some(note.ok_or(SymbolError::Damaged))
    }
}

/// `len` bytes, and what follows them at a multiple of 4.
fn take(bytes: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
    let taken = bytes.get(..len)?;
    Some((taken, bytes.get(len.checked_next_multiple_of(4)?..).unwrap_or_default()))
}

fn until_nul(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(note_type: u32, name: &[u8], content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [name.len() as u32, content.len() as u32, note_type] {
            bytes.extend(word.to_be_bytes());
        }
        for part in [name, content] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    fn content(addresses: [u64; 3], texts: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = addresses.iter().flat_map(|address| address.to_be_bytes()).collect();
        bytes.extend(texts);
        bytes
    }

    fn all(bytes: &[u8], base: u64) -> Vec<Result<Note<'_>, SymbolError>> {
        Iter { rest: bytes, endian: AnyEndian::Big, class: Class::ELF64, base }.collect()
    }

    #[test]
    fn probes_among_other_notes() {
        let first = note(3, NOTE_NAME, &content([0x1000, 0x5000, 0x9000], b"app\0start\x008@%rax\0"));
        let other = [note(1, b"GNU\0", &[1, 2, 3]), note(4, NOTE_NAME, b"x"), note(3, b"stapsdt2", b"y")].concat();
        let second = note(3, NOTE_NAME, &content([0x1010, 0, 0], b"app\0end\0:\0"));
        let bytes = [first, other, second].concat();
        let start =
            Note { location: 0x1000, semaphore: 0x9000, provider: b"app", name: b"start", arguments: b"8@%rax" };
        let end = Note { location: 0x1010, semaphore: 0, provider: b"app", name: b"end", arguments: b"" };
        assert_eq!(all(&bytes, 0), [Ok(start), Ok(end)]);
        assert_eq!(all(&bytes, 0x5000), [Ok(start), Ok(end)]);
        // Prelinked, down and up.
        let moved = |by: u64| Note { location: start.location + by, semaphore: start.semaphore + by, ..start };
        assert_eq!(all(&bytes, 0x5100), [Ok(moved(0x100)), Ok(end)]);
        let down = Note { location: 0xf00, semaphore: 0x8f00, ..start };
        assert_eq!(all(&bytes, 0x4f00), [Ok(down), Ok(end)]);
    }

    #[test]
    fn addresses_of_32_bits() {
        let addresses: Vec<u8> = [0x1000u32, 0, 0x2000].iter().flat_map(|address| address.to_be_bytes()).collect();
        let bytes = note(3, NOTE_NAME, &[&addresses[..], b"p\0n\0a\0"].concat());
        let mut notes = Iter { rest: &bytes, endian: AnyEndian::Big, class: Class::ELF32, base: 0 };
        let wanted = Note { location: 0x1000, semaphore: 0x2000, provider: b"p", name: b"n", arguments: b"a" };
        assert_eq!((notes.next(), notes.next()), (Some(Ok(wanted)), None));
    }

    #[test]
    fn damage_ends_the_walk() {
        let sound = note(3, NOTE_NAME, &content([1, 0, 0], b"p\0n\0\0"));
        assert_eq!(all(&sound, 0).len(), 1);
        // The padding at the end may be missing, nothing else.
        let end = sound.len() - (4 - (24 + 5) % 4);
        for cut in 1..end {
            assert_eq!(all(&sound[..cut], 0), [Err(SymbolError::Damaged)], "{cut}");
        }
        assert!(all(&sound[..end], 0)[0].is_ok());
        for texts in [&b"p\0n\0"[..], b"p\0n", b"p\0\0\0", b"p", b""] {
            let bytes = [note(3, NOTE_NAME, &content([1, 0, 0], texts)), sound.clone()].concat();
            assert_eq!(all(&bytes, 0), [Err(SymbolError::Damaged)], "{texts:?}");
        }
        let mut huge = sound.clone();
        huge[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(all(&huge, 0), [Err(SymbolError::Damaged)]);
    }
}

//! Where a uprobe goes: from a file and a function's name to an offset in the file.
//!
//! Like libbpf's `elf_find_func_offset`: the dynamic symbols are searched first, and what is found there counts; the full table
//! of an unstripped file only where they have nothing. `name@VERSION` asks for a version of a library's function, and without
//! one the default version goes before older ones. A weak symbol gives way to one that is not; two different functions of equal
//! rank are an error and no guess. Symbols of shared libraries and position-independent programs hold addresses relative to the
//! load, others absolute ones: in either case the loaded segment that the address lies in says where it is in the file.
//!
//! The file may change under us, so it is read and never mapped: the names into private memory, the rest through a small buffer.

mod path;
mod pattern;
mod versions;

use core::cell::Cell;
use core::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use elf::abi;
use elf::endian::AnyEndian;
use elf::file::{Class, FileHeader};
use elf::parse::ParseAt;
use elf::section::SectionHeader;
use elf::segment::ProgramHeader;
use elf::symbol::Symbol;
use rustix::fs::OFlags;

use crate::sys::Errno;
use crate::sys::files::{self, CPath};
use crate::sys::mmap::AnonMap;
use versions::Versions;

pub use path::{FoundFile, find_file};
pub use pattern::{Offsets, matching_offsets};

/// The largest table of symbols or names that is read, in bytes: no program comes near.
const MAX_TABLE: u64 = 1 << 31;
/// The most sections that are looked at.
const MAX_SECTIONS: u64 = 1 << 16;
/// The most segments that are looked at: the kernel runs no program whose headers of them take more than 64 KiB.
const MAX_SEGMENTS: u64 = (1 << 16) / 56;

/// Why there is no offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SymbolError {
    /// The file cannot be opened.
    Open(Errno),
    /// Or not read.
    Read(Errno),
    /// It is no ELF file.
    NotElf,
    /// It is ELF, and neither an executable nor a shared library: nothing maps it for execution.
    NotLoadable,
    /// A header or table points outside the file.
    Damaged,
    /// There is no memory for the names.
    Memory(Errno),
    /// A table of symbols or names has more than 2 GiB.
    TooLarge,
    /// It has neither symbol table: stripped.
    NoSymbols,
    /// No function has the name (and the version), or fits the pattern.
    Missing,
    /// Functions at two offsets have the name.
    Ambiguous {
        /// One file offset, in bytes.
        first: u64,
        /// Another.
        second: u64,
    },
    /// The function's address is in no segment that comes from the file.
    NotInFile {
        /// The address.
        address: u64,
    },
}

impl fmt::Display for SymbolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SymbolError::Open(errno) => write!(f, "the file cannot be opened: {errno}"),
            SymbolError::Read(errno) => write!(f, "the file cannot be read: {errno}"),
            SymbolError::NotElf => f.write_str("no ELF file"),
            SymbolError::NotLoadable => f.write_str("neither an executable nor a shared library"),
            SymbolError::Damaged => f.write_str("the ELF file is damaged or cut off"),
            SymbolError::Memory(errno) => write!(f, "no memory for the file's names: {errno}"),
            SymbolError::TooLarge => {
                write!(f, "the file has a table of symbols or names larger than {} MiB", MAX_TABLE >> 20)
            }
            SymbolError::NoSymbols => f.write_str("the file has no symbols: it is stripped"),
            SymbolError::Missing => f.write_str("the file has no function of this name or pattern"),
            SymbolError::Ambiguous { first, second } => {
                write!(f, "the file has two functions of this name, at offsets {first:#x} and {second:#x}")
            }
            SymbolError::NotInFile { address } => {
                write!(f, "address {address:#x} is in no segment of the file")
            }
        }
    }
}

impl core::error::Error for SymbolError {}

/// The offset in bytes, from the start of the file, of the function `name` or `name@VERSION`.
///
/// # Errors
/// [`SymbolError`].
pub fn function_offset(path: &Path, name: &str) -> Result<u64, SymbolError> {
    File::open(path)?.function_offset(name.as_bytes())
}

/// The same for the file that is open; its position does not move.
///
/// # Errors
/// [`SymbolError`].
pub fn function_offset_in(fd: OwnedFd, name: &str) -> Result<u64, SymbolError> {
    File::parse(fd)?.function_offset(name.as_bytes())
}

/// An ELF file that something can be attached to.
pub(crate) struct File {
    fd: OwnedFd,
    header: FileHeader<AnyEndian>,
    sections: u64,
    /// The segment that the last address was in: most functions of a file are in one.
    last_segment: Cell<Option<ProgramHeader>>,
}

/// Where an address of a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Bytes from the start of the file.
    pub(crate) offset: u64,
    /// PF_* of its segment.
    pub(crate) flags: u32,
}

impl File {
    pub(crate) fn open(path: &Path) -> Result<File, SymbolError> {
        let path = CPath::new(path).map_err(SymbolError::Open)?;
        File::parse(files::open(path.as_c_str(), OFlags::RDONLY).map_err(SymbolError::Open)?)
    }

    pub(crate) fn header(&self) -> &FileHeader<AnyEndian> {
        &self.header
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn parse(fd: OwnedFd) -> Result<File, SymbolError> {
        let mut start = [0; 64];
        let len = files::read_at(&fd, &mut start, 0).map_err(SymbolError::Read)?;
        let start = &start[..len];
        if !start.starts_with(&abi::ELFMAGIC) {
            return Err(SymbolError::NotElf);
        }
        let damaged = |_| SymbolError::Damaged;
        let (ident, tail) = start.split_at_checked(16).ok_or(SymbolError::Damaged)?;
        let ident = elf::file::parse_ident::<AnyEndian>(ident).map_err(damaged)?;
        let header = FileHeader::parse_tail(ident, tail).map_err(damaged)?;
        if !matches!(header.e_type, abi::ET_EXEC | abi::ET_DYN) {
            return Err(SymbolError::NotLoadable);
        }
        let mut file = File { fd, header, sections: u64::from(header.e_shnum), last_segment: Cell::new(None) };
        // Files of 65,280 sections and more keep the number in the first of them.
        if header.e_shoff != 0 && header.e_shnum == 0 {
            file.sections = file.section(0)?.sh_size;
        }
        Ok(file)
    }

    fn exact(&self, buffer: &mut [u8], offset: u64) -> Result<(), SymbolError> {
        match files::read_at(&self.fd, buffer, offset) {
            Ok(len) if len == buffer.len() => Ok(()),
            // Offsets beyond what a file can have are EINVAL.
            Ok(_) | Err(Errno::EINVAL | Errno::EOVERFLOW) => Err(SymbolError::Damaged),
            Err(errno) => Err(SymbolError::Read(errno)),
        }
    }

    fn record<P: ParseAt>(&self, table: u64, index: u64, entry: u16) -> Result<P, SymbolError> {
        let mut buffer = [0; 64];
        let bytes = buffer.get_mut(..usize::from(entry)).ok_or(SymbolError::Damaged)?;
        let offset = index
            .checked_mul(u64::from(entry))
            .and_then(|offset| offset.checked_add(table))
            .ok_or(SymbolError::Damaged)?;
        self.exact(bytes, offset)?;
        P::parse_at(self.header.endianness, self.header.class, &mut 0, bytes).map_err(|_| SymbolError::Damaged)
    }

    fn section(&self, index: u64) -> Result<SectionHeader, SymbolError> {
        self.record(self.header.e_shoff, index, self.header.e_shentsize)
    }

    /// The first section that `wanted` says yes to.
    fn find_section(&self, wanted: impl Fn(&SectionHeader) -> bool) -> Result<Option<SectionHeader>, SymbolError> {
        if self.header.e_shoff == 0 {
            return Ok(None);
        }
        for index in 0..self.sections.min(MAX_SECTIONS) {
            let section = self.section(index)?;
            if wanted(&section) {
                return Ok(Some(section));
            }
        }
        Ok(None)
    }

    /// The names of the sections; `None` where they have none.
    pub(crate) fn section_names(&self) -> Result<Option<AnonMap>, SymbolError> {
        let index = match self.header.e_shstrndx {
            0 => return Ok(None),
            // Too large for the header.
            abi::SHN_XINDEX => u64::from(self.section(0)?.sh_link),
            index => u64::from(index),
        };
        self.read_section(&self.section(index)?).map(Some)
    }

    /// The first section of this name, `names` being those of all.
    pub(crate) fn section_named(&self, names: &[u8], name: &[u8]) -> Result<Option<SectionHeader>, SymbolError> {
        self.find_section(|section| {
            let own = usize::try_from(section.sh_name).ok().and_then(|at| names.get(at..));
            own.and_then(|own| own.split(|byte| *byte == 0).next()) == Some(name)
        })
    }

    pub(crate) fn read_section(&self, section: &SectionHeader) -> Result<AnonMap, SymbolError> {
        if section.sh_size > MAX_TABLE {
            return Err(SymbolError::TooLarge);
        }
        // Nothing is mapped for a size that a damaged header made up.
        let end = section.sh_offset.checked_add(section.sh_size);
        let size = rustix::fs::fstat(&self.fd).map_or(0, |stat| stat.st_size);
        if end.is_none_or(|end| end > u64::try_from(size).unwrap_or(0)) {
            return Err(SymbolError::Damaged);
        }
        let len = usize::try_from(section.sh_size).map_err(|_| SymbolError::TooLarge)?;
        let mut bytes = AnonMap::new(len).map_err(SymbolError::Memory)?;
        self.exact(&mut bytes[..len], section.sh_offset)?;
        Ok(bytes)
    }

    fn function_offset(&self, name: &[u8]) -> Result<u64, SymbolError> {
        let (name, version) = match name.iter().position(|byte| *byte == b'@') {
            None => (name, None),
            // `name@@VERSION` is how tools write the default version.
            Some(at) => (&name[..at], Some(after_ats(&name[at..]))),
        };
        let mut any = false;
        for table_type in [abi::SHT_DYNSYM, abi::SHT_SYMTAB] {
            let Some(table) = self.find_section(|section| section.sh_type == table_type)? else {
                continue;
            };
            any = true;
            if let Some(address) = self.search(&table, name, version)? {
                return Ok(address);
            }
        }
        Err(if any { SymbolError::Missing } else { SymbolError::NoSymbols })
    }

    /// Calls `each` with the number of every defined function of a table, its symbol, and the names from its own on, up to
    /// their end. The names are read whole; the symbols come in pieces.
    fn each_function(
        &self,
        table: &SectionHeader,
        mut each: impl FnMut(u64, &Symbol, &[u8]) -> Result<(), SymbolError>,
    ) -> Result<(), SymbolError> {
        if table.sh_size > MAX_TABLE {
            return Err(SymbolError::TooLarge);
        }
        let names = self.section(u64::from(table.sh_link))?;
        let names = self.read_section(&names)?;
        let entry = match self.header.class {
            Class::ELF32 => 16,
            Class::ELF64 => 24,
        };
        let mut buffer = [0; 24 * 160];
        let (count, mut index) = (table.sh_size / entry as u64, 0);
        while index < count {
            let here = usize::try_from(count - index).map_or(160, |left| left.min(160));
            let piece = &mut buffer[..here * entry];
            let offset = table.sh_offset.checked_add(index * entry as u64);
            self.exact(piece, offset.ok_or(SymbolError::Damaged)?)?;
            for (number, bytes) in (index..).zip(piece.chunks_exact(entry)) {
                let symbol = Symbol::parse_at(self.header.endianness, self.header.class, &mut 0, bytes)
                    .map_err(|_| SymbolError::Damaged)?;
                if symbol.st_symtype() != abi::STT_FUNC || symbol.is_undefined() {
                    continue;
                }
                if let Some(text) = usize::try_from(symbol.st_name).ok().and_then(|at| names.get(at..)) {
                    each(number, &symbol, text)?;
                }
            }
            index += here as u64;
        }
        Ok(())
    }

    /// One table, for one name.
    fn search(&self, table: &SectionHeader, name: &[u8], version: Option<&[u8]>) -> Result<Option<u64>, SymbolError> {
        let is_dynamic = table.sh_type == abi::SHT_DYNSYM;
        let versions = if is_dynamic { Versions::of(self)? } else { None };
        let mut best: Option<Match> = None;
        self.each_function(table, |number, symbol, text| {
            let Some(rest) = text.strip_prefix(name) else {
                return Ok(());
            };
            let Some(end) = rest.iter().position(|byte| *byte == 0) else {
                return Ok(());
            };
            let Some(is_old) = is_wanted(&rest[..end], version, number, versions.as_ref())? else {
                return Ok(());
            };
            let found = Match {
                offset: self.file_offset(symbol.st_value)?,
                is_old,
                is_weak: symbol.st_bind() == abi::STB_WEAK,
            };
            best = Some(match best {
                None => found,
                Some(best) => best.or(found)?,
            });
            Ok(())
        })?;
        Ok(best.map(|best| best.offset))
    }

    /// Where the bytes of an address are in the file. (The lowest bit of a Thumb function's address stays: the kernel refuses
    /// such an offset, and an ARM breakpoint among Thumb instructions would end the process.)
    fn file_offset(&self, address: u64) -> Result<u64, SymbolError> {
        self.place(address).map(|place| place.offset)
    }

    /// The same with what the segment may be used for.
    pub(crate) fn place(&self, address: u64) -> Result<Place, SymbolError> {
        let holds = |segment: &ProgramHeader| {
            address.checked_sub(segment.p_vaddr).is_some_and(|inside| inside < segment.p_filesz)
        };
        let segment = match self.last_segment.get().filter(holds) {
            Some(segment) => segment,
            None => self.find_segment(holds)?.ok_or(SymbolError::NotInFile { address })?,
        };
        self.last_segment.set(Some(segment));
        let offset = segment.p_offset.checked_add(address - segment.p_vaddr).ok_or(SymbolError::Damaged)?;
        Ok(Place { offset, flags: segment.p_flags })
    }

    /// The first loaded segment that `wanted` says yes to.
    fn find_segment(&self, wanted: impl Fn(&ProgramHeader) -> bool) -> Result<Option<ProgramHeader>, SymbolError> {
        for index in 0..u64::from(self.header.e_phnum).min(MAX_SEGMENTS) {
            let segment: ProgramHeader = self.record(self.header.e_phoff, index, self.header.e_phentsize)?;
            if segment.p_type == abi::PT_LOAD && wanted(&segment) {
                return Ok(Some(segment));
            }
        }
        Ok(None)
    }
}

/// What comes after one `@` or two.
fn after_ats(text: &[u8]) -> &[u8] {
    let rest = text.strip_prefix(b"@").unwrap_or(text);
    rest.strip_prefix(b"@").unwrap_or(rest)
}

/// Whether a symbol whose name goes on with `rest` is of the version asked for, and then whether that is one that the dynamic
/// linker gives to old programs only.
fn is_wanted(
    rest: &[u8],
    version: Option<&[u8]>,
    index: u64,
    versions: Option<&Versions<'_>>,
) -> Result<Option<bool>, SymbolError> {
    // The full table has the version in the name.
    let in_name = match rest {
        [] => None,
        [b'@', b'@', version @ ..] => Some((version, false)),
        [b'@', version @ ..] => Some((version, true)),
        _ => return Ok(None),
    };
    let (own, is_old) = match (in_name, versions) {
        (Some((own, is_old)), _) => (Some(own), is_old),
        (None, Some(versions)) => {
            let (number, is_hidden) = versions.number(index)?;
            let is_it = match version {
                None => true,
                Some(version) => versions.is_named(number, version)?,
            };
            return Ok(is_it.then_some(is_hidden));
        }
        (None, None) => (None, false),
    };
    Ok((version.is_none() || version == own).then_some(is_old))
}

/// A function that has the name.
#[derive(Clone, Copy)]
struct Match {
    offset: u64,
    is_old: bool,
    is_weak: bool,
}

impl Match {
    /// The better of two. Of two weak ones libbpf, too, takes the first.
    fn or(self, other: Match) -> Result<Match, SymbolError> {
        match (self.rank().cmp(&other.rank()), self.is_weak) {
            (core::cmp::Ordering::Less, _) => Ok(self),
            (core::cmp::Ordering::Greater, _) => Ok(other),
            _ if self.offset == other.offset => Ok(self),
            (_, true) => Ok(self),
            (_, false) => Err(SymbolError::Ambiguous { first: self.offset, second: other.offset }),
        }
    }

    fn rank(self) -> (bool, bool) {
        (self.is_old, self.is_weak)
    }
}

#[cfg(test)]
mod tests;

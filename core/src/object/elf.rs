//! The ELF file under a BPF object, over the `elf` crate: sections, symbols, relocations.

use elf::abi::{
    EM_NONE, ET_REL, SHF_COMPRESSED, SHF_EXECINSTR, SHN_LORESERVE, SHN_UNDEF, SHT_NOBITS, SHT_PROGBITS, SHT_SYMTAB,
    STB_LOCAL, STB_WEAK, STT_FUNC, STT_NOTYPE, STT_SECTION, STV_HIDDEN, STV_INTERNAL,
};
use elf::endian::AnyEndian;
use elf::file::Class;
use elf::section::SectionHeaderTable;
use elf::symbol::SymbolTable;
use elf::{ElfBytes, section::SectionHeader};

use super::error::ObjectError;
use crate::bytes::{Bytes, Endian};
use crate::numbers::{high_u32, to_u32, to_usize};

/// `EM_BPF`, which the `elf` crate has under the same number.
const EM_BPF: u16 = elf::abi::EM_BPF;

/// An ELF file whose header and symbol table were found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elf<'obj> {
    data: &'obj [u8],
    endian: Endian,
    headers: SectionHeaderTable<'obj, AnyEndian>,
    section_names: &'obj [u8],
    /// The symbol table's bytes.
    symbols: &'obj [u8],
    symbol_names: &'obj [u8],
}

/// A name in a string table, whose end is looked for only when the whole name is wanted.
#[derive(Clone, Copy)]
struct Name<'obj> {
    tail: &'obj [u8],
}

impl<'obj> Name<'obj> {
    const NONE: Self = Self { tail: &[] };

    fn at(table: &'obj [u8], offset: u32) -> Option<Self> {
        Some(Self { tail: table.get(to_usize(offset)..).filter(|tail| !tail.is_empty())? })
    }

    fn bytes(self) -> &'obj [u8] {
        super::up_to_nul(self.tail)
    }

    fn is(self, name: &[u8]) -> bool {
        self.tail.strip_prefix(name).is_some_and(|rest| rest.first().is_none_or(|&byte| byte == 0))
    }
}

impl core::fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}", self.bytes().escape_ascii())
    }
}

/// One section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'obj> {
    pub(crate) index: u32,
    header: SectionHeader,
    name: Name<'obj>,
    /// Its bytes in the file; none for `.bss`.
    pub(crate) data: Bytes<'obj>,
}

impl<'obj> Section<'obj> {
    pub(crate) fn name(&self) -> &'obj [u8] {
        self.name.bytes()
    }

    pub(crate) fn is_named(&self, name: &[u8]) -> bool {
        self.name.is(name)
    }

    /// Bytes that it takes, also where the file holds none.
    pub(crate) fn size(&self) -> u64 {
        self.header.sh_size
    }

    pub(crate) fn kind(&self) -> u32 {
        self.header.sh_type
    }

    pub(crate) fn info(&self) -> u32 {
        self.header.sh_info
    }

    pub(crate) fn is_code(&self) -> bool {
        self.header.sh_type == SHT_PROGBITS
            && self.header.sh_flags & u64::from(SHF_EXECINSTR) != 0
            && self.header.sh_size > 0
    }

    /// Whether its bytes are compressed, which only debuggers' sections may be.
    pub(crate) fn is_compressed(&self) -> bool {
        self.header.sh_flags & u64::from(SHF_COMPRESSED) != 0 && !self.name().starts_with(b".debug")
    }

    pub(crate) fn is_nobits(&self) -> bool {
        self.header.sh_type == SHT_NOBITS
    }

    pub(crate) fn is_progbits(&self) -> bool {
        self.header.sh_type == SHT_PROGBITS
    }
}

/// One symbol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol<'obj> {
    pub(crate) index: u32,
    name: Name<'obj>,
    pub(crate) value: u64,
    pub(crate) size: u64,
    /// The section that it lies in; `None` for an undefined or absolute one.
    pub(crate) section: Option<u32>,
    pub(crate) is_undefined: bool,
    kind: u8,
    bind: u8,
    visibility: u8,
}

impl<'obj> Symbol<'obj> {
    pub(crate) fn name(&self) -> &'obj [u8] {
        self.name.bytes()
    }

    pub(crate) fn is_named(&self, name: &[u8]) -> bool {
        self.name.is(name)
    }

    pub(crate) fn is_function(&self) -> bool {
        self.kind == STT_FUNC
    }

    pub(crate) fn is_section(&self) -> bool {
        self.kind == STT_SECTION
    }

    pub(crate) fn is_local(&self) -> bool {
        self.bind == STB_LOCAL
    }

    pub(crate) fn is_weak(&self) -> bool {
        self.bind == STB_WEAK
    }

    /// Whether other objects cannot see it: hidden or internal.
    pub(crate) fn is_hidden(&self) -> bool {
        matches!(self.visibility, STV_HIDDEN | STV_INTERNAL)
    }

    /// Whether it stands for something that the kernel is to provide (libbpf: `sym_is_extern`).
    pub(crate) fn is_extern(&self) -> bool {
        self.is_undefined && !self.is_local() && self.kind == STT_NOTYPE && !self.name.is(b"")
    }
}

/// One relocation entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rel {
    /// The byte in the section that it is about.
    pub(crate) offset: u64,
    pub(crate) symbol: u32,
}

/// The entries of one relocation section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rels<'obj> {
    entries: Bytes<'obj>,
}

/// Bytes of `Elf64_Rel`.
pub(super) const REL_SIZE: usize = 16;

impl<'obj> Rels<'obj> {
    pub(crate) fn parse(section: &Section<'obj>) -> Result<Self, ObjectError> {
        if !section.data.len().is_multiple_of(REL_SIZE) {
            return Err(ObjectError::BadRelocations { section: section.index });
        }
        Ok(Self { entries: section.data })
    }

    /// The entries in `entries`, which were parsed before.
    pub(crate) fn new(entries: Bytes<'obj>) -> Self {
        Self { entries }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() / REL_SIZE
    }

    pub(crate) fn get(&self, index: usize) -> Option<Rel> {
        self.at(index.checked_mul(REL_SIZE)?)
    }

    /// The entry at byte `at`.
    pub(crate) fn at(&self, at: usize) -> Option<Rel> {
        let info = self.entries.u64(at.checked_add(8)?)?;
        Some(Rel { offset: self.entries.u64(at)?, symbol: high_u32(info) })
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Rel> + use<'obj> {
        (0..self.len()).map_while(move |index| self.get(index))
    }

    pub(crate) fn is_sorted(&self) -> bool {
        self.iter().map(|rel| rel.offset).is_sorted()
    }

    /// The number of the first entry at or after `offset`, in sorted entries.
    pub(crate) fn lower_bound(&self, offset: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle).is_some_and(|rel| rel.offset < offset) {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low
    }
}

impl<'obj> Elf<'obj> {
    pub(crate) fn parse(data: &'obj [u8]) -> Result<Self, ObjectError> {
        let file = ElfBytes::<AnyEndian>::minimal_parse(data).map_err(|_| ObjectError::NotElf)?;
        let is_bpf = file.ehdr.class == Class::ELF64
            && file.ehdr.e_type == ET_REL
            && matches!(file.ehdr.e_machine, EM_BPF | EM_NONE);
        if !is_bpf {
            return Err(ObjectError::NotBpf { elf_type: file.ehdr.e_type, machine: file.ehdr.e_machine });
        }
        let endian = match file.ehdr.endianness {
            AnyEndian::Little => Endian::Little,
            AnyEndian::Big => Endian::Big,
        };
        let headers = file.section_headers().ok_or(ObjectError::NotElf)?;
        if headers.len() >= usize::from(SHN_LORESERVE) {
            return Err(ObjectError::TooMany);
        }
        let names_index = u32::from(file.ehdr.e_shstrndx);
        let strings = |section: u32| -> Result<&'obj [u8], ObjectError> {
            let bad = ObjectError::BadSection { section };
            let header = headers.get(to_usize(section)).map_err(|_| bad)?;
            let bytes = section_bytes(data, &header).ok_or(bad)?;
            // Every name in a table whose last byte is NUL ends within it.
            if bytes.last() == Some(&0) { Ok(bytes) } else { Err(bad) }
        };
        let section_names = strings(names_index)?;
        let mut tables = (0u32..).zip(headers.iter()).filter(|(_, header)| header.sh_type == SHT_SYMTAB);
        let (Some((index, table)), None) = (tables.next(), tables.next()) else {
            return Err(ObjectError::SymbolTable);
        };
        let symbols = section_bytes(data, &table).ok_or(ObjectError::BadSection { section: index })?;
        let symbol_names = strings(table.sh_link)?;
        Ok(Self { data, endian, headers, section_names, symbols, symbol_names })
    }

    pub(crate) fn data(&self) -> &'obj [u8] {
        self.data
    }

    pub(crate) fn endian(&self) -> Endian {
        self.endian
    }

    pub(crate) fn section_count(&self) -> u32 {
        to_u32(self.headers.len())
    }

    fn symbol_table(&self) -> SymbolTable<'obj, AnyEndian> {
        let endian = match self.endian {
            Endian::Little => AnyEndian::Little,
            Endian::Big => AnyEndian::Big,
        };
        SymbolTable::new(endian, Class::ELF64, self.symbols)
    }

    pub(crate) fn symbol_count(&self) -> u32 {
        to_u32(self.symbol_table().len())
    }

    pub(crate) fn section(&self, index: u32) -> Result<Section<'obj>, ObjectError> {
        let bad = ObjectError::BadSection { section: index };
        let header = self.headers.get(to_usize(index)).map_err(|_| bad)?;
        let name = Name::at(self.section_names, header.sh_name).ok_or(bad)?;
        let data = section_bytes(self.data, &header).ok_or(bad)?;
        Ok(Section { index, header, name, data: Bytes::new(data, self.endian) })
    }

    /// All sections but the null one.
    pub(crate) fn sections(&self) -> impl Iterator<Item = Result<Section<'obj>, ObjectError>> + use<'obj> {
        let elf = *self;
        (1..self.section_count()).map(move |index| elf.section(index))
    }

    pub(crate) fn section_by_name(&self, name: &[u8]) -> Result<Option<Section<'obj>>, ObjectError> {
        for section in self.sections() {
            let section = section?;
            if section.is_named(name) {
                return Ok(Some(section));
            }
        }
        Ok(None)
    }

    pub(crate) fn symbol(&self, index: u32) -> Result<Symbol<'obj>, ObjectError> {
        let bad = ObjectError::BadSymbol { symbol: index };
        let symbol = self.symbol_table().get(to_usize(index)).map_err(|_| bad)?;
        let name =
            if symbol.st_name == 0 { Name::NONE } else { Name::at(self.symbol_names, symbol.st_name).ok_or(bad)? };
        let is_undefined = symbol.st_shndx == SHN_UNDEF;
        let section = (!is_undefined && symbol.st_shndx < SHN_LORESERVE).then_some(u32::from(symbol.st_shndx));
        Ok(Symbol {
            index,
            name,
            value: symbol.st_value,
            size: symbol.st_size,
            section,
            is_undefined,
            kind: symbol.st_symtype(),
            bind: symbol.st_bind(),
            visibility: symbol.st_vis(),
        })
    }

    /// All symbols but the null one.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = Result<Symbol<'obj>, ObjectError>> + use<'obj> {
        let elf = *self;
        (1..self.symbol_count()).map(move |index| elf.symbol(index))
    }
}

fn section_bytes<'obj>(data: &'obj [u8], header: &SectionHeader) -> Option<&'obj [u8]> {
    if header.sh_type == SHT_NOBITS {
        return Some(&[]);
    }
    let start = usize::try_from(header.sh_offset).ok()?;
    let end = start.checked_add(usize::try_from(header.sh_size).ok()?)?;
    data.get(start..end)
}

//! Sections and symbols of an ELF64 file in either byte order: a second reader, apart from the one under test.

use crate::endian::Endian;

/// A section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfSection<'a> {
    /// Name.
    pub name: &'a str,
    /// `sh_type`
    pub sh_type: u32,
    /// `sh_flags`
    pub flags: u64,
    /// Where the contents start in the file.
    pub offset: u64,
    /// `sh_size`
    pub size: u64,
    /// Contents, empty for NOBITS.
    pub data: &'a [u8],
    /// `sh_link`
    pub link: u32,
    /// `sh_info`
    pub info: u32,
}

/// A symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfSymbol<'a> {
    /// Name.
    pub name: &'a str,
    /// `st_value`
    pub value: u64,
    /// `st_size`
    pub size: u64,
    /// Binding: 0 local, 1 global, 2 weak.
    pub bind: u8,
    /// Type: 0 none, 1 object, 2 function, 3 section.
    pub sym_type: u8,
    /// `st_other`
    pub other: u8,
    /// Section index.
    pub section: u16,
}

/// A relocation entry of a REL section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElfRelocation {
    /// Byte offset in the section that is relocated.
    pub offset: u64,
    /// Index in the symbol table.
    pub symbol: u32,
    /// `R_BPF_*`
    pub r_type: u32,
}

/// An ELF64 file.
#[derive(Debug, Clone)]
pub struct ElfFile<'a> {
    /// Byte order of the file.
    pub endian: Endian,
    /// Sections by index; the first one is the empty section 0.
    pub sections: Vec<ElfSection<'a>>,
}

fn text(bytes: &[u8], offset: u32) -> &str {
    let rest = bytes.get(offset as usize..).unwrap_or_default();
    let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
    std::str::from_utf8(&rest[..end]).unwrap_or("")
}

impl<'a> ElfFile<'a> {
    /// Reads the section headers, or says what is wrong.
    ///
    /// # Errors
    /// A text for the test's message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        if bytes.get(..5) != Some(&[0x7f, b'E', b'L', b'F', 2]) {
            return Err("not an ELF64 file".to_owned());
        }
        let e = match bytes.get(5) {
            Some(1) => Endian::Little,
            Some(2) => Endian::Big,
            other => return Err(format!("byte order {other:?}")),
        };
        Self::parse_in(bytes, e).ok_or_else(|| "a header or section ends outside the file".to_owned())
    }

    fn parse_in(bytes: &'a [u8], e: Endian) -> Option<Self> {
        let table = usize::try_from(e.read_u64(bytes, 0x28)?).ok()?;
        let entry = usize::from(e.read_u16(bytes, 0x3a)?);
        let count = usize::from(e.read_u16(bytes, 0x3c)?);
        let names_index = usize::from(e.read_u16(bytes, 0x3e)?);
        let mut sections = Vec::new();
        let mut name_offs = Vec::new();
        for i in 0..count {
            let h = bytes.get(table.checked_add(i * entry)?..)?;
            let (offset, size) = (e.read_u64(h, 24)?, e.read_u64(h, 32)?);
            let sh_type = e.read_u32(h, 4)?;
            let data = if sh_type == 8 || sh_type == 0 {
                &[]
            } else {
                let start = usize::try_from(offset).ok()?;
                bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?)?
            };
            name_offs.push(e.read_u32(h, 0)?);
            sections.push(ElfSection {
                name: "",
                sh_type,
                flags: e.read_u64(h, 8)?,
                offset,
                size,
                data,
                link: e.read_u32(h, 40)?,
                info: e.read_u32(h, 44)?,
            });
        }
        let names = sections.get(names_index)?.data;
        for (section, off) in sections.iter_mut().zip(name_offs) {
            section.name = text(names, off);
        }
        Some(ElfFile { endian: e, sections })
    }

    /// The first section of that name.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&ElfSection<'a>> {
        self.sections.iter().find(|s| s.name == name)
    }

    /// The symbols, the empty symbol 0 included.
    #[must_use]
    pub fn symbols(&self) -> Vec<ElfSymbol<'a>> {
        let Some(table) = self.sections.iter().find(|s| s.sh_type == 2) else {
            return Vec::new();
        };
        let names = self.sections.get(table.link as usize).map_or(&[][..], |s| s.data);
        let e = self.endian;
        let read = |raw: &[u8]| {
            Some(ElfSymbol {
                name: text(names, e.read_u32(raw, 0)?),
                bind: raw[4] >> 4,
                sym_type: raw[4] & 15,
                other: raw[5],
                section: e.read_u16(raw, 6)?,
                value: e.read_u64(raw, 8)?,
                size: e.read_u64(raw, 16)?,
            })
        };
        table.data.chunks_exact(24).filter_map(read).collect()
    }

    /// The REL entries that apply to the section of that index.
    #[must_use]
    pub fn relocations(&self, section: usize) -> Vec<ElfRelocation> {
        let e = self.endian;
        let read = |raw: &[u8]| {
            let info = e.read_u64(raw, 8)?;
            Some(ElfRelocation { offset: e.read_u64(raw, 0)?, symbol: (info >> 32) as u32, r_type: info as u32 })
        };
        let of_section = |s: &&ElfSection<'_>| s.sh_type == 9 && s.info as usize == section;
        self.sections.iter().filter(of_section).flat_map(|s| s.data.chunks_exact(16)).filter_map(read).collect()
    }
}

/// The bytes of a section of an ELF64 file, if it has one of that name.
#[must_use]
pub fn section_data<'a>(elf: &'a [u8], name: &str) -> Option<&'a [u8]> {
    ElfFile::parse(elf).ok()?.section(name).map(|s| s.data)
}

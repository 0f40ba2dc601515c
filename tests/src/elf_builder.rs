//! ELF64 relocatable files written by hand, in either byte order.

use crate::endian::Endian;

/// `SHT_PROGBITS`
pub const SHT_PROGBITS: u32 = 1;
/// `SHT_SYMTAB`
pub const SHT_SYMTAB: u32 = 2;
/// `SHT_STRTAB`
pub const SHT_STRTAB: u32 = 3;
/// `SHT_NOBITS`
pub const SHT_NOBITS: u32 = 8;
/// `SHT_REL`
pub const SHT_REL: u32 = 9;
/// `SHF_WRITE`
pub const SHF_WRITE: u64 = 1;
/// `SHF_ALLOC`
pub const SHF_ALLOC: u64 = 2;
/// `SHF_EXECINSTR`
pub const SHF_EXECINSTR: u64 = 4;
/// `EM_BPF`
pub const EM_BPF: u16 = 247;
/// `R_BPF_64_64`: the immediates of an LD_IMM64.
pub const R_BPF_64_64: u32 = 1;
/// `R_BPF_64_ABS64`: a 64-bit address in data.
pub const R_BPF_64_ABS64: u32 = 2;
/// `R_BPF_64_32`: the immediate of a call.
pub const R_BPF_64_32: u32 = 10;

/// Symbol binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bind {
    /// `STB_LOCAL`
    Local,
    /// `STB_GLOBAL`
    Global,
    /// `STB_WEAK`
    Weak,
}

/// Symbol type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymType {
    /// `STT_NOTYPE`, also of an extern
    NoType,
    /// `STT_OBJECT`
    Object,
    /// `STT_FUNC`
    Func,
    /// `STT_SECTION`
    Section,
}

/// A symbol to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Name.
    pub name: String,
    /// Offset in its section.
    pub value: u64,
    /// Size in bytes.
    pub size: u64,
    /// Binding.
    pub bind: Bind,
    /// Type.
    pub sym_type: SymType,
    /// Visibility (`st_other`): 0 default, 2 hidden.
    pub other: u8,
    /// Section index, 0 when undefined.
    pub section: u16,
}

impl Symbol {
    /// A global one of default visibility.
    #[must_use]
    pub fn global(name: &str, section: u16, value: u64, size: u64, sym_type: SymType) -> Self {
        Self { name: name.to_owned(), value, size, bind: Bind::Global, sym_type, other: 0, section }
    }
}

/// A section to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Name.
    pub name: String,
    /// `sh_type`
    pub sh_type: u32,
    /// `sh_flags`
    pub flags: u64,
    /// Contents; of a NOBITS section only the length counts.
    pub data: Vec<u8>,
    /// `sh_link`
    pub link: u32,
    /// `sh_info`
    pub info: u32,
    /// `sh_entsize`
    pub entsize: u64,
    /// `sh_addralign`
    pub align: u64,
}

impl Section {
    /// A PROGBITS section aligned to 8 bytes.
    #[must_use]
    pub fn progbits(name: &str, flags: u64, data: Vec<u8>) -> Self {
        Section { name: name.to_owned(), sh_type: SHT_PROGBITS, flags, data, link: 0, info: 0, entsize: 0, align: 8 }
    }

    /// A NOBITS section of so many bytes.
    #[must_use]
    pub fn nobits(name: &str, byte_size: usize) -> Self {
        let data = vec![0; byte_size];
        Section { sh_type: SHT_NOBITS, ..Section::progbits(name, SHF_ALLOC | SHF_WRITE, data) }
    }
}

#[derive(Debug, Clone, Copy)]
struct Relocation {
    section: u16,
    offset: u64,
    symbol: usize,
    r_type: u32,
}

/// Writes an `ET_REL` file. Sections keep the order in which they were added, from 1; `.rel*`, `.symtab` and `.strtab` come after
/// them.
#[derive(Debug, Clone)]
pub struct ElfBuilder {
    endian: Endian,
    machine: u16,
    sections: Vec<Section>,
    symbols: Vec<Symbol>,
    relocations: Vec<Relocation>,
}

fn align_to(out: &mut Vec<u8>, align: usize) {
    out.resize(out.len().next_multiple_of(align.max(1)), 0);
}

fn add_name(table: &mut Vec<u8>, name: &str) -> u32 {
    if name.is_empty() {
        return 0;
    }
    let off = table.len() as u32;
    table.extend_from_slice(name.as_bytes());
    table.push(0);
    off
}

impl ElfBuilder {
    /// An empty BPF object.
    #[must_use]
    pub fn new(endian: Endian) -> Self {
        ElfBuilder { endian, machine: EM_BPF, sections: Vec::new(), symbols: Vec::new(), relocations: Vec::new() }
    }

    /// Sets `e_machine`.
    pub fn machine(&mut self, machine: u16) -> &mut Self {
        self.machine = machine;
        self
    }

    /// Adds a section and returns its index.
    pub fn section(&mut self, section: Section) -> u16 {
        self.sections.push(section);
        self.sections.len() as u16
    }

    /// The section at an index that [`ElfBuilder::section`] returned.
    ///
    /// # Panics
    /// If there is none.
    pub fn section_mut(&mut self, index: u16) -> &mut Section {
        &mut self.sections[usize::from(index) - 1]
    }

    /// Adds a symbol and returns a handle for [`ElfBuilder::relocation`]. In the file local symbols come first.
    pub fn symbol(&mut self, symbol: Symbol) -> usize {
        self.symbols.push(symbol);
        self.symbols.len() - 1
    }

    /// Adds a REL entry for `section` at a byte offset.
    pub fn relocation(&mut self, section: u16, offset: u64, symbol: usize, r_type: u32) -> &mut Self {
        self.relocations.push(Relocation { section, offset, symbol, r_type });
        self
    }

    /// The file: header, section contents, section headers.
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let e = self.endian;
        let mut order: Vec<usize> = (0..self.symbols.len()).collect();
        order.sort_by_key(|&i| self.symbols[i].bind != Bind::Local);
        let mut final_index = vec![0u64; self.symbols.len()];
        for (place, &i) in order.iter().enumerate() {
            final_index[i] = place as u64 + 1;
        }
        let locals = self.symbols.iter().filter(|s| s.bind == Bind::Local).count() as u32;

        let mut sections = self.sections.clone();
        let mut with_relocations: Vec<u16> = self.relocations.iter().map(|r| r.section).collect();
        with_relocations.sort_unstable();
        with_relocations.dedup();
        let symtab_index = (sections.len() + with_relocations.len() + 1) as u32;
        for target in with_relocations {
            let mut data = Vec::new();
            for r in self.relocations.iter().filter(|r| r.section == target) {
                data.extend_from_slice(&e.u64(r.offset));
                data.extend_from_slice(&e.u64(final_index[r.symbol] << 32 | u64::from(r.r_type)));
            }
            let name = format!(".rel{}", self.sections[usize::from(target) - 1].name);
            sections.push(Section {
                sh_type: SHT_REL,
                link: symtab_index,
                info: u32::from(target),
                entsize: 16,
                ..Section::progbits(&name, 0x40, data)
            });
        }

        let mut strtab = vec![0];
        let mut symtab = vec![0; 24];
        for &i in &order {
            let symbol = &self.symbols[i];
            let bind = match symbol.bind {
                Bind::Local => 0,
                Bind::Global => 1,
                Bind::Weak => 2,
            };
            let sym_type = match symbol.sym_type {
                SymType::NoType => 0,
                SymType::Object => 1,
                SymType::Func => 2,
                SymType::Section => 3,
            };
            symtab.extend_from_slice(&e.u32(add_name(&mut strtab, &symbol.name)));
            symtab.extend_from_slice(&[bind << 4 | sym_type, symbol.other]);
            symtab.extend_from_slice(&e.u16(symbol.section));
            symtab.extend_from_slice(&e.u64(symbol.value));
            symtab.extend_from_slice(&e.u64(symbol.size));
        }
        sections.push(Section {
            sh_type: SHT_SYMTAB,
            link: symtab_index + 1,
            info: locals + 1,
            entsize: 24,
            ..Section::progbits(".symtab", 0, symtab)
        });
        let mut names: Vec<u32> = sections.iter().map(|s| add_name(&mut strtab, &s.name)).collect();
        names.push(add_name(&mut strtab, ".strtab"));
        sections.push(Section { sh_type: SHT_STRTAB, align: 1, ..Section::progbits(".strtab", 0, strtab) });

        let mut out = vec![0u8; 64];
        let mut headers = vec![0u8; 64];
        for (section, name_off) in sections.iter().zip(names) {
            align_to(&mut out, section.align as usize);
            let offset = out.len() as u64;
            if section.sh_type != SHT_NOBITS {
                out.extend_from_slice(&section.data);
            }
            headers.extend_from_slice(&e.u32(name_off));
            headers.extend_from_slice(&e.u32(section.sh_type));
            for word in [section.flags, 0, offset, section.data.len() as u64] {
                headers.extend_from_slice(&e.u64(word));
            }
            headers.extend_from_slice(&e.u32(section.link));
            headers.extend_from_slice(&e.u32(section.info));
            headers.extend_from_slice(&e.u64(section.align));
            headers.extend_from_slice(&e.u64(section.entsize));
        }
        align_to(&mut out, 8);
        let headers_off = out.len() as u64;
        out.extend_from_slice(&headers);

        let mut header = vec![0x7f, b'E', b'L', b'F', 2, if e == Endian::Little { 1 } else { 2 }, 1];
        header.resize(16, 0);
        header.extend_from_slice(&e.u16(1)); // ET_REL
        header.extend_from_slice(&e.u16(self.machine));
        header.extend_from_slice(&e.u32(1));
        for word in [0, 0, headers_off] {
            header.extend_from_slice(&e.u64(word));
        }
        header.extend_from_slice(&e.u32(0));
        for half in [64, 0, 0, 64, sections.len() as u16 + 1, sections.len() as u16] {
            header.extend_from_slice(&e.u16(half));
        }
        out[..64].copy_from_slice(&header);
        out
    }
}

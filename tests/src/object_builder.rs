//! A BPF object with hand-chosen instructions and CO-RE records.
//!
//! ```
//! use corelo_tests::{btf_builder::{IntEncoding, Member}, endian::Endian, insn::{Insn, Width}, object_builder::ObjectBuilder};
//!
//! let mut object = ObjectBuilder::new(Endian::Little);
//! let int = object.btf.int("int", 4, IntEncoding::Signed);
//! let task = object.btf.struct_("task_struct", 8, &[Member::at("pid", int, 4)]);
//! object.program("socket", "prog", &[Insn::ldx(Width::W, 0, 1, 4), Insn::exit()]);
//! object.core_relo("prog", 0, task, "0:0", 0);
//! let elf = object.build();
//! assert_eq!(&elf[..4], b"\x7fELF");
//! ```

use crate::btf_builder::{BtfBuilder, IntEncoding, Member};
use crate::btf_ext_builder::{BtfExtBuilder, CoreReloRecord};
use crate::elf_builder::{
    Bind, ElfBuilder, R_BPF_64_32, R_BPF_64_64, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, Section, SymType, Symbol,
};
use crate::endian::Endian;
use crate::insn::{Insn, encode};

/// A BTF-defined map of fixed sizes, for `.maps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapDef<'a> {
    /// Name.
    pub name: &'a str,
    /// `enum bpf_map_type`
    pub map_type: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Entries.
    pub max_entries: u32,
}

#[derive(Debug, Clone)]
struct Function {
    name: String,
    section: String,
    insn_off: u32,
    byte_size: u32,
    bind: Bind,
    /// Declares a FUNC in BTF and a func_info record.
    typed: bool,
}

#[derive(Debug, Clone)]
struct CodeReference {
    section: String,
    insn_off: u32,
    symbol: String,
    r_type: u32,
}

/// Puts an object together. Types go into [`ObjectBuilder::btf`]; everything else is named by strings.
#[derive(Debug, Clone)]
pub struct ObjectBuilder {
    endian: Endian,
    /// The object's BTF.
    pub btf: BtfBuilder,
    license: Option<String>,
    /// (name, instructions so far), in the order of first use
    code: Vec<(String, Vec<u8>)>,
    functions: Vec<Function>,
    relos: Vec<(String, CoreReloRecord)>,
    references: Vec<CodeReference>,
    maps: Vec<(String, [u32; 4])>,
    legacy_maps: Vec<(String, Vec<u32>)>,
    data: Vec<Section>,
    ext: BtfExtBuilder,
    with_btf: bool,
    with_btf_ext: bool,
}

impl ObjectBuilder {
    /// An object without programs and with the licence GPL.
    #[must_use]
    pub fn new(endian: Endian) -> Self {
        ObjectBuilder {
            endian,
            btf: BtfBuilder::new(endian),
            license: Some("GPL".to_owned()),
            code: Vec::new(),
            functions: Vec::new(),
            relos: Vec::new(),
            references: Vec::new(),
            maps: Vec::new(),
            legacy_maps: Vec::new(),
            data: Vec::new(),
            ext: BtfExtBuilder::new(endian),
            with_btf: true,
            with_btf_ext: true,
        }
    }

    /// Sets the licence, or leaves the section out.
    pub fn license(&mut self, license: Option<&str>) -> &mut Self {
        self.license = license.map(str::to_owned);
        self
    }

    /// Leaves `.BTF`, `.BTF.ext` or both out of the file.
    pub fn keep(&mut self, btf: bool, btf_ext: bool) -> &mut Self {
        self.with_btf = btf;
        self.with_btf_ext = btf_ext;
        self
    }

    /// The header and record sizes of `.BTF.ext`; see [`BtfExtBuilder`].
    pub fn btf_ext_sizes(&mut self, header_len: u32, func_info: u32, line_info: u32, core_relo: u32) -> &mut Self {
        self.ext.header_len(header_len).record_sizes(func_info, line_info, core_relo);
        self
    }

    /// Adds a global function to a section (after those that are there): an entry program in a section that is not `.text`.
    pub fn program(&mut self, section: &str, name: &str, insns: &[Insn]) -> &mut Self {
        self.function(section, name, Bind::Global, true, insns)
    }

    /// Adds a function with a binding of choice. Untyped ones get no FUNC in BTF and no func_info.
    pub fn function(&mut self, section: &str, name: &str, bind: Bind, typed: bool, insns: &[Insn]) -> &mut Self {
        let index = self.code.iter().position(|(s, _)| s == section).unwrap_or_else(|| {
            self.code.push((section.to_owned(), Vec::new()));
            self.code.len() - 1
        });
        let bytes = encode(insns, self.endian);
        let code = &mut self.code[index].1;
        self.functions.push(Function {
            name: name.to_owned(),
            section: section.to_owned(),
            insn_off: code.len() as u32,
            byte_size: bytes.len() as u32,
            bind,
            typed,
        });
        code.extend_from_slice(&bytes);
        self
    }

    fn place(&self, function: &str, insn_idx: u32) -> (String, u32) {
        let f = self.functions.iter().rfind(|f| f.name == function);
        let f = f.unwrap_or_else(|| panic!("no function {function} in the object under construction"));
        (f.section.clone(), f.insn_off + insn_idx * 8)
    }

    /// Adds a CO-RE record for an instruction of a function added before (the last of that name).
    ///
    /// # Panics
    /// If there is no such function.
    pub fn core_relo(&mut self, function: &str, insn_idx: u32, type_id: u32, access: &str, kind: u32) -> &mut Self {
        let (section, insn_off) = self.place(function, insn_idx);
        let access_str_off = self.btf.str_off(access);
        self.core_relo_record(&section, CoreReloRecord { insn_off, type_id, access_str_off, kind })
    }

    /// Adds a CO-RE record as it is.
    pub fn core_relo_record(&mut self, section: &str, record: CoreReloRecord) -> &mut Self {
        self.relos.push((section.to_owned(), record));
        self
    }

    /// Makes an LD_IMM64 of a function refer to a symbol: a map, a data symbol, a function.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn load_symbol(&mut self, function: &str, insn_idx: u32, symbol: &str) -> &mut Self {
        self.reference(function, insn_idx, symbol, R_BPF_64_64)
    }

    /// Makes a call of a function refer to a symbol.
    ///
    /// # Panics
    /// If there is no such function.
    pub fn call_symbol(&mut self, function: &str, insn_idx: u32, symbol: &str) -> &mut Self {
        self.reference(function, insn_idx, symbol, R_BPF_64_32)
    }

    fn reference(&mut self, function: &str, insn_idx: u32, symbol: &str, r_type: u32) -> &mut Self {
        let (section, insn_off) = self.place(function, insn_idx);
        self.references.push(CodeReference { section, insn_off, symbol: symbol.to_owned(), r_type });
        self
    }

    /// Adds a BTF-defined map to `.maps`.
    pub fn map_def(&mut self, map: MapDef<'_>) -> &mut Self {
        self.maps.push((map.name.to_owned(), [map.map_type, map.key_size, map.value_size, map.max_entries]));
        self
    }

    /// Adds a map to the legacy section `maps`: type, key size, value size, entries, flags and whatever follows. All definitions
    /// of one object have the same number of words.
    pub fn legacy_map(&mut self, name: &str, words: &[u32]) -> &mut Self {
        self.legacy_maps.push((name.to_owned(), words.to_vec()));
        self
    }

    /// Adds a section with one global object symbol named `symbol` that covers it.
    pub fn data_section(&mut self, section: Section, symbol: &str) -> &mut Self {
        self.references.push(CodeReference {
            section: section.name.clone(),
            insn_off: u32::MAX,
            symbol: symbol.to_owned(),
            r_type: 0,
        });
        self.data.push(section);
        self
    }

    /// The BTF of `.maps` in the form that libbpf's `__uint` macros give: each attribute a pointer to an array whose number of
    /// elements is the value.
    fn declare_maps(&self, btf: &mut BtfBuilder, int: u32) {
        if self.maps.is_empty() {
            return;
        }
        let mut vars = Vec::new();
        for (i, (name, values)) in self.maps.iter().enumerate() {
            let mut members = Vec::new();
            for (place, (attribute, &value)) in
                ["type", "key_size", "value_size", "max_entries"].into_iter().zip(values).enumerate()
            {
                let array = btf.array(int, int, value);
                let ptr = btf.ptr(array);
                members.push(Member::at(attribute, ptr, place as u32 * 8));
            }
            let definition = btf.struct_("", 32, &members);
            let var = btf.var(name, definition, 1);
            vars.push((var, i as u32 * 32, 32));
        }
        btf.datasec(".maps", vars.len() as u32 * 32, &vars);
    }

    /// The file.
    ///
    /// # Panics
    /// If a reference names no symbol of the object and is not to stay undefined (undefined symbols are added as externs).
    #[must_use]
    pub fn build(&self) -> Vec<u8> {
        let mut btf = self.btf.clone();
        let mut ext = self.ext.clone();
        let mut elf = ElfBuilder::new(self.endian);
        let mut symbols: Vec<(String, usize)> = Vec::new();
        let mut int = None;
        if self.functions.iter().any(|f| f.typed) || !self.maps.is_empty() {
            int = Some(btf.int("int", 4, IntEncoding::Signed));
        }
        let mut indexes = Vec::new();
        for (name, code) in &self.code {
            let index = elf.section(Section::progbits(name, SHF_ALLOC | SHF_EXECINSTR, code.clone()));
            indexes.push((name.clone(), index));
            let name_off = btf.str_off(name);
            let mut funcs = Vec::new();
            for f in self.functions.iter().filter(|f| &f.section == name) {
                let symbol = Symbol {
                    bind: f.bind,
                    ..Symbol::global(&f.name, index, u64::from(f.insn_off), u64::from(f.byte_size), SymType::Func)
                };
                symbols.push((f.name.clone(), elf.symbol(symbol)));
                if let (true, Some(int)) = (f.typed, int) {
                    let ctx = btf.ptr(0);
                    let proto = btf.func_proto(int, &[("ctx", ctx)]);
                    let linkage = u32::from(f.bind != Bind::Local);
                    funcs.push((f.insn_off, btf.func(&f.name, proto, linkage)));
                }
            }
            if !funcs.is_empty() {
                ext.func_info(name_off, &funcs);
            }
        }
        let mut relo_sections: Vec<&String> = self.relos.iter().map(|(section, _)| section).collect();
        relo_sections.sort();
        relo_sections.dedup();
        for section in relo_sections {
            let records: Vec<CoreReloRecord> =
                self.relos.iter().filter(|(s, _)| s == section).map(|&(_, record)| record).collect();
            let name_off = btf.str_off(section);
            ext.core_relo(name_off, &records);
        }
        if let Some(int) = int {
            self.declare_maps(&mut btf, int);
        }
        if !self.maps.is_empty() {
            let data = vec![0; self.maps.len() * 32];
            let index = elf.section(Section::progbits(".maps", SHF_ALLOC | SHF_WRITE, data));
            for (i, (name, _)) in self.maps.iter().enumerate() {
                symbols
                    .push((name.clone(), elf.symbol(Symbol::global(name, index, i as u64 * 32, 32, SymType::Object))));
            }
        }
        if !self.legacy_maps.is_empty() {
            let mut data = Vec::new();
            let mut places = Vec::new();
            for (name, words) in &self.legacy_maps {
                places.push((name, data.len() as u64, words.len() as u64 * 4));
                data.extend(words.iter().flat_map(|&word| self.endian.u32(word)));
            }
            let index = elf.section(Section::progbits("maps", SHF_ALLOC | SHF_WRITE, data));
            for (name, offset, size) in places {
                symbols.push((name.clone(), elf.symbol(Symbol::global(name, index, offset, size, SymType::Object))));
            }
        }
        for section in &self.data {
            let size = section.data.len() as u64;
            let index = elf.section(section.clone());
            let is_its_symbol = |r: &&CodeReference| r.insn_off == u32::MAX && r.section == section.name;
            for r in self.references.iter().filter(is_its_symbol) {
                symbols
                    .push((r.symbol.clone(), elf.symbol(Symbol::global(&r.symbol, index, 0, size, SymType::Object))));
            }
        }
        for r in self.references.iter().filter(|r| r.insn_off != u32::MAX) {
            let known = symbols.iter().find(|(name, _)| *name == r.symbol).map(|&(_, handle)| handle);
            let handle = known.unwrap_or_else(|| {
                let handle = elf.symbol(Symbol::global(&r.symbol, 0, 0, 0, SymType::NoType));
                symbols.push((r.symbol.clone(), handle));
                handle
            });
            let section = indexes.iter().find(|(name, _)| *name == r.section).map(|&(_, index)| index);
            elf.relocation(section.expect("a function's section"), u64::from(r.insn_off), handle, r.r_type);
        }
        if let Some(license) = &self.license {
            let mut bytes = license.clone().into_bytes();
            bytes.push(0);
            elf.section(Section::progbits("license", SHF_ALLOC | SHF_WRITE, bytes));
        }
        if self.with_btf {
            elf.section(Section::progbits(".BTF", 0, btf.build()));
        }
        if self.with_btf_ext {
            elf.section(Section::progbits(".BTF.ext", 0, ext.build()));
        }
        elf.build()
    }
}

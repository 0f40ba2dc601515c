//! What can be wrong with an object file.

use core::fmt;

use crate::arena::ArenaFull;
use crate::btf::ext::ExtError;
use crate::btf::{BtfError, TypeId};

/// A fault of an object file. Sections and symbols are named by their numbers in the ELF file, which
/// [`Object::section_name`](super::Object::section_name) and [`Object::symbol_name`](super::Object::symbol_name) turn
/// into names.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectError {
    /// The file is not ELF, or is cut short before its section headers end.
    NotElf,
    /// The file is ELF, but no relocatable 64-bit BPF object.
    NotBpf {
        /// The file's type; 1 is wanted.
        elf_type: u16,
        /// The file's machine; 247 (BPF) or 0 is wanted.
        machine: u16,
    },
    /// There is no symbol table, or more than one.
    SymbolTable,
    /// A section does not lie within the file, or its name is not in the string table.
    BadSection {
        /// The section.
        section: u32,
    },
    /// A section is compressed: BPF objects have only debuggers' sections so.
    Compressed {
        /// The section.
        section: u32,
    },
    /// A section of global data is larger than the value of a map can be: 4 GiB.
    DataTooLarge {
        /// The section.
        section: u32,
    },
    /// A symbol does not exist, or its name is not in the string table.
    BadSymbol {
        /// The symbol.
        symbol: u32,
    },
    /// A function does not lie within its section, is empty, or is no whole number of instructions.
    BadFunction {
        /// The function's symbol.
        symbol: u32,
    },
    /// A static function stands in a program section, where only programs may be.
    StaticProgram {
        /// The function's symbol.
        symbol: u32,
    },
    /// A relocation section names no code section, or its size is no whole number of entries.
    BadRelocations {
        /// The relocation section.
        section: u32,
    },
    /// The `.maps` section needs BTF to be understood, and there is none: the object was compiled without `-g`.
    MapsWithoutBtf,
    /// A section of struct_ops tables needs BTF to be understood, and there is none.
    StructOpsWithoutBtf {
        /// The section.
        section: u32,
    },
    /// The `.maps` section is not in the BTF, or a symbol in it is not.
    MapsNotInBtf,
    /// A definition of a map is not a struct of the form that `.maps` has.
    BadMapDefinition {
        /// The type of the definition.
        id: TypeId,
    },
    /// A map is static. Only global maps can be found by name.
    StaticMap {
        /// The variable in the BTF.
        id: TypeId,
    },
    /// A map's definition says nothing of the map's type.
    MapWithoutType {
        /// The variable in the BTF.
        id: TypeId,
    },
    /// A map's attribute is not known, or is not of the form that it should have.
    BadMapAttribute {
        /// The variable in the BTF.
        id: TypeId,
        /// The number of the member in the definition.
        member: u32,
    },
    /// The size that a definition gives for a key or value is not that of its type.
    MapSizeConflict {
        /// The variable in the BTF.
        id: TypeId,
        /// The number of the member in the definition.
        member: u32,
        /// The size given before, in bytes.
        given: u32,
        /// The size that follows, in bytes.
        found: u32,
    },
    /// An inner map defines an inner map of its own.
    InnerOfInner {
        /// The variable in the BTF.
        id: TypeId,
    },
    /// A pointer in a map's definition is none that fills a slot: the map holds neither maps nor programs, it has no
    /// `values`, the place is not that of a slot, or what is pointed to is not what the map holds.
    BadSlot {
        /// What is pointed to.
        symbol: u32,
        /// Where in the section the pointer is, in bytes.
        offset: u64,
    },
    /// A definition in a legacy `maps` section does not lie within it, or is shorter than the five words that all have.
    BadLegacyMaps {
        /// The section.
        section: u32,
    },
    /// A legacy map's definition has a value behind its first five words, and what it means is not certain.
    LegacyMapWord {
        /// The map's symbol.
        symbol: u32,
        /// The word of the definition, the first being 0.
        word: u32,
        /// What it holds.
        value: u32,
    },
    /// An extern is not described in the BTF.
    ExternNotInBtf {
        /// The extern's symbol.
        symbol: u32,
    },
    /// An extern is in a section that is neither `.kconfig` nor `.ksyms`.
    UnknownExternSection {
        /// The extern's symbol.
        symbol: u32,
    },
    /// A `.kconfig` extern has a type that no configuration value can have.
    BadKconfigType {
        /// The extern's symbol.
        symbol: u32,
    },
    /// There are more than 65,534 sections, functions or maps.
    TooMany,
    /// `.BTF` is at fault.
    Btf(BtfError),
    /// `.BTF.ext` is at fault.
    Ext(ExtError),
    /// The arena is too small.
    Arena(ArenaFull),
}

impl From<BtfError> for ObjectError {
    fn from(error: BtfError) -> Self {
        match error {
            BtfError::Arena(full) => Self::Arena(full),
            error => Self::Btf(error),
        }
    }
}

impl From<ExtError> for ObjectError {
    fn from(error: ExtError) -> Self {
        Self::Ext(error)
    }
}

impl From<ArenaFull> for ObjectError {
    fn from(full: ArenaFull) -> Self {
        Self::Arena(full)
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotElf => f.write_str("not an ELF file, or one that is cut short"),
            Self::NotBpf { elf_type, machine } => {
                write!(f, "not a 64-bit relocatable BPF object: ELF type {elf_type}, machine {machine}")
            }
            Self::SymbolTable => f.write_str("object has no symbol table, or more than one"),
            Self::BadSection { section } => write!(f, "section [{section}] lies outside the file or has no name"),
            Self::Compressed { section } => write!(f, "section [{section}] is compressed"),
            Self::DataTooLarge { section } => write!(f, "section [{section}] has more data than the 4 GiB of a map"),
            Self::BadSymbol { symbol } => write!(f, "symbol [{symbol}] does not exist or has no name"),
            Self::BadFunction { symbol } => {
                write!(f, "function of symbol [{symbol}] does not lie within its section as whole instructions")
            }
            Self::StaticProgram { symbol } => {
                write!(f, "function of symbol [{symbol}] is static, but stands in a program section")
            }
            Self::BadRelocations { section } => {
                write!(f, "relocation section [{section}] is malformed or belongs to no section")
            }
            Self::MapsWithoutBtf => f.write_str("section .maps needs BTF, which the object lacks: compile it with -g"),
            Self::StructOpsWithoutBtf { section } => {
                write!(
                    f,
                    "section [{section}] of struct_ops tables needs BTF, which the object lacks: compile it with -g"
                )
            }
            Self::MapsNotInBtf => f.write_str("section .maps is not described in the object's BTF"),
            Self::BadMapDefinition { id } => write!(f, "map definition of type [{id}] is not a struct"),
            Self::StaticMap { id } => write!(f, "map of variable [{id}] is static, only global maps are supported"),
            Self::MapWithoutType { id } => write!(f, "map of variable [{id}] has no map type"),
            Self::BadMapAttribute { id, member } => {
                write!(f, "map of variable [{id}] has an unknown or malformed attribute, member {member}")
            }
            Self::MapSizeConflict { id, member, given, found } => write!(
                f,
                "map of variable [{id}] has a size of {found} bytes by member {member}, but {given} were given before"
            ),
            Self::InnerOfInner { id } => write!(f, "map of variable [{id}] nests inner maps more than one level deep"),
            Self::BadSlot { symbol, offset } => write!(
                f,
                "pointer to symbol [{symbol}] at byte {offset} of the map definitions fills no slot of a map that holds it"
            ),
            Self::BadLegacyMaps { section } => {
                write!(
                    f,
                    "section [{section}] of legacy map definitions has one that is shorter than five words or lies outside"
                )
            }
            Self::LegacyMapWord { symbol, word, value } => write!(
                f,
                "legacy map of symbol [{symbol}] has {value} in word {word} of its definition, of which no known layout is certain: \
                 taken are by name in BTF inner_map_idx (of a map of maps) and numa_node of samples/bpf, and pinning 1 of aya; \
                 not iproute2's id, pinning, inner_id, inner_idx"
            ),
            Self::ExternNotInBtf { symbol } => write!(f, "extern of symbol [{symbol}] is not in the object's BTF"),
            Self::UnknownExternSection { symbol } => {
                write!(f, "extern of symbol [{symbol}] is neither in .kconfig nor in .ksyms")
            }
            Self::BadKconfigType { symbol } => {
                write!(f, "extern of symbol [{symbol}] has a type that no kernel configuration value has")
            }
            Self::TooMany => f.write_str("object has more than 65534 sections, functions or maps"),
            Self::Btf(error) => write!(f, ".BTF: {error}"),
            Self::Ext(error) => error.fmt(f),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

impl core::error::Error for ObjectError {}

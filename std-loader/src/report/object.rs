//! What is wrong with an object.

use core::fmt;

use corelo_core::object::{Object, ObjectError};

use super::names::{map_attribute, type_name, write_known};

/// An [`ObjectError`] of `object`, with the names of what it numbers.
#[derive(Clone, Copy, Debug)]
pub struct ObjectReport<'r> {
    /// The object; `None` where it could not be parsed at all.
    pub object: Option<&'r Object<'r>>,
    /// What is wrong with it.
    pub error: ObjectError,
}

impl fmt::Display for ObjectReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        if let ObjectError::NotBpf { machine, .. } = self.error {
            return write_machine(f, machine);
        }
        let Some(object) = self.object else { return Ok(()) };
        match self.error {
            ObjectError::BadSection { section }
            | ObjectError::BadRelocations { section }
            | ObjectError::Compressed { section }
            | ObjectError::DataTooLarge { section }
            | ObjectError::StructOpsWithoutBtf { section }
            | ObjectError::BadLegacyMaps { section } => {
                write_known(f, "section", section, object.section_name(section))
            }
            ObjectError::BadSymbol { symbol }
            | ObjectError::BadFunction { symbol }
            | ObjectError::StaticProgram { symbol }
            | ObjectError::ExternNotInBtf { symbol }
            | ObjectError::UnknownExternSection { symbol }
            | ObjectError::BadKconfigType { symbol }
            | ObjectError::LegacyMapWord { symbol, .. }
            | ObjectError::BadSlot { symbol, .. } => write_known(f, "symbol", symbol, object.symbol_name(symbol)),
            ObjectError::StaticMap { id } | ObjectError::MapWithoutType { id } | ObjectError::InnerOfInner { id } => {
                write_known(f, "variable", id.0, type_name(object, id))
            }
            ObjectError::BadMapDefinition { id } => write_known(f, "type", id.0, type_name(object, id)),
            ObjectError::BadMapAttribute { id, member } | ObjectError::MapSizeConflict { id, member, .. } => {
                write_known(f, "variable", id.0, type_name(object, id))?;
                let name = map_attribute(object, id, member);
                write_known(f, "member", member, name)
            }
            _ => Ok(()),
        }
    }
}

/// Whose code an ELF file of another machine holds, and how it would be BPF's.
fn write_machine(f: &mut fmt::Formatter<'_>, machine: u16) -> fmt::Result {
    let name = match machine {
        elf::abi::EM_386 => "x86",
        elf::abi::EM_X86_64 => "x86-64",
        elf::abi::EM_ARM => "32-bit ARM",
        elf::abi::EM_AARCH64 => "64-bit ARM",
        elf::abi::EM_MIPS => "MIPS",
        elf::abi::EM_PPC | elf::abi::EM_PPC64 => "PowerPC",
        elf::abi::EM_RISCV => "RISC-V",
        elf::abi::EM_S390 => "s390",
        elf::abi::EM_LOONGARCH => "LoongArch",
        _ => return Ok(()),
    };
    write!(f, ": an object for {name}; compile it with clang -target bpf")
}

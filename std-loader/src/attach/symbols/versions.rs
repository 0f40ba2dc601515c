//! Versions of a shared library's symbols: the sections `.gnu.version` (a number for each dynamic symbol) and `.gnu.version_d`
//! (the names of the numbers).

use elf::abi;
use elf::endian::AnyEndian;
use elf::gnu_symver::{VerDefIterator, VersionIndex};
use elf::section::SectionHeader;

use super::{File, SymbolError};
use crate::sys::mmap::AnonMap;

pub(super) struct Versions<'f> {
    file: &'f File,
    numbers: SectionHeader,
    definitions: Option<Definitions>,
}

struct Definitions {
    bytes: AnonMap,
    count: u64,
    names: AnonMap,
}

impl<'f> Versions<'f> {
    /// `None` where the file has no versions.
    pub(super) fn of(file: &'f File) -> Result<Option<Versions<'f>>, SymbolError> {
        let find = |section_type| file.find_section(|section| section.sh_type == section_type);
        let Some(numbers) = find(abi::SHT_GNU_VERSYM)? else {
            return Ok(None);
        };
        let definitions = match find(abi::SHT_GNU_VERDEF)? {
            None => None,
            Some(section) => {
                let names = file.section(u64::from(section.sh_link))?;
                Some(Definitions {
                    bytes: file.read_section(&section)?,
                    count: u64::from(section.sh_info),
                    names: file.read_section(&names)?,
                })
            }
        };
        Ok(Some(Versions { file, numbers, definitions }))
    }

    /// The version's number of a dynamic symbol, and whether it is not the default one.
    pub(super) fn number(&self, symbol: u64) -> Result<(u16, bool), SymbolError> {
        let index: VersionIndex = self.file.record(self.numbers.sh_offset, symbol, 2)?;
        Ok((index.index(), index.is_hidden()))
    }

    /// Whether the number stands for the version of this name.
    pub(super) fn is_named(&self, number: u16, name: &[u8]) -> Result<bool, SymbolError> {
        let Some(definitions) = &self.definitions else {
            return Ok(false);
        };
        let header = &self.file.header;
        let iter: VerDefIterator<'_, AnyEndian> =
            VerDefIterator::new(header.endianness, header.class, definitions.count, 0, &definitions.bytes);
        for (definition, mut names) in iter {
            if definition.vd_ndx != number {
                continue;
            }
            // The first name is the version's own, others are those it is built on.
            let first = names.next().ok_or(SymbolError::Damaged)?;
            let text = usize::try_from(first.vda_name)
                .ok()
                .and_then(|at| definitions.names.get(at..))
                .ok_or(SymbolError::Damaged)?;
            return Ok(text.strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0)));
        }
        Ok(false)
    }
}

//! All functions of a file whose names fit a pattern, for one link to many places: libbpf's `elf_resolve_pattern_offsets`.

use std::path::Path;

use elf::abi;

use super::{File, SymbolError};
use crate::attach::glob;
use crate::sys::list::Numbers;

/// File offsets in ascending order, each once, held without the heap.
#[derive(Debug)]
pub struct Offsets(Numbers);

impl Offsets {
    /// Them.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        self.0.as_slice()
    }
}

/// The offsets in bytes, from the start of the file, of all functions whose names fit `pattern`: `*` is any characters, `?` one.
///
/// As libbpf does it, the full table of symbols is searched first, and the dynamic one only where nothing in the former fits. A
/// pattern is held against the name with its version (`f@@VERSION`, as full tables have it) and without. Several names of one
/// function give one offset, and so one run of the program; functions that are in no segment of the file are left out.
///
/// # Errors
/// [`SymbolError`]; [`SymbolError::Missing`] where nothing fits.
pub fn matching_offsets(path: &Path, pattern: &str) -> Result<Offsets, SymbolError> {
    File::open(path)?.matching_offsets(pattern.as_bytes())
}

impl File {
    fn matching_offsets(&self, pattern: &[u8]) -> Result<Offsets, SymbolError> {
        let mut any = false;
        for table_type in [abi::SHT_SYMTAB, abi::SHT_DYNSYM] {
            let Some(table) = self.find_section(|section| section.sh_type == table_type)? else {
                continue;
            };
            any = true;
            let mut offsets = Numbers::new();
            self.each_function(&table, |_, symbol, text| {
                let Some(end) = text.iter().position(|byte| *byte == 0) else {
                    return Ok(());
                };
                if !fits(pattern, &text[..end]) {
                    return Ok(());
                }
                match self.file_offset(symbol.st_value) {
                    Ok(offset) => offsets.push(offset).map_err(SymbolError::Memory),
                    Err(SymbolError::NotInFile { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            })?;
            if !offsets.as_slice().is_empty() {
                offsets.sort_and_dedup();
                return Ok(Offsets(offsets));
            }
        }
        Err(if any { SymbolError::Missing } else { SymbolError::NoSymbols })
    }
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let bare = name.split(|byte| *byte == b'@').next().unwrap_or(name);
    glob::matches(pattern, name) || (bare.len() < name.len() && glob::matches(pattern, bare))
}

//! A section of an ELF file, found without reading more than headers and names: kernel images have hundreds of megabytes.

use std::os::fd::OwnedFd;

use elf::endian::AnyEndian;
use elf::file::FileHeader;
use elf::parse::ParseAt;
use elf::section::SectionHeader;

use super::{KernelBtfError, MAX_BYTES};
use crate::sys::files;

/// Where the section `wanted`, its NUL included, of an ELF file is, and its size, in bytes.
pub(super) fn find_section(fd: &OwnedFd, start: &[u8], wanted: &[u8]) -> Result<(u64, usize), KernelBtfError> {
    let damaged = |_| KernelBtfError::Elf;
    let ident = start.get(..16).ok_or(KernelBtfError::Elf)?;
    let ident = elf::file::parse_ident::<AnyEndian>(ident).map_err(damaged)?;
    let header = FileHeader::parse_tail(ident, &start[16..]).map_err(damaged)?;
    let entry = usize::from(header.e_shentsize);
    let mut buffer = [0; 64];
    let mut section = |index: u64| -> Result<SectionHeader, KernelBtfError> {
        let bytes = buffer.get_mut(..entry).ok_or(KernelBtfError::Elf)?;
        let offset = index
            .checked_mul(entry as u64)
            .and_then(|offset| offset.checked_add(header.e_shoff))
            .ok_or(KernelBtfError::Elf)?;
        if files::read_at(fd, bytes, offset).map_err(KernelBtfError::Read)? < entry {
            return Err(KernelBtfError::Elf);
        }
        SectionHeader::parse_at(header.endianness, header.class, &mut 0, bytes).map_err(damaged)
    };
    if header.e_shoff == 0 {
        return Err(KernelBtfError::NoSection);
    }
    // Files of 65,280 sections and more keep the two numbers in the first section header.
    let first = section(0)?;
    let count = match header.e_shnum {
        0 => first.sh_size,
        count => u64::from(count),
    };
    let names = match header.e_shstrndx {
        0xffff => first.sh_link,
        index => u32::from(index),
    };
    let names = section(u64::from(names))?;
    for index in 1..count.min(1 << 20) {
        let header = section(index)?;
        let mut name = [0; 10];
        let name = name.get_mut(..wanted.len()).ok_or(KernelBtfError::Elf)?;
        let offset = names.sh_offset.checked_add(u64::from(header.sh_name)).ok_or(KernelBtfError::Elf)?;
        let len = files::read_at(fd, name, offset).map_err(KernelBtfError::Read)?;
        if name.get(..len) != Some(wanted) {
            continue;
        }
        let size =
            usize::try_from(header.sh_size).ok().filter(|size| *size <= MAX_BYTES).ok_or(KernelBtfError::TooLarge)?;
        return Ok((header.sh_offset, size));
    }
    Err(KernelBtfError::NoSection)
}

//! Why a kernel's BTF cannot be had.

use core::fmt;

use crate::sys::Errno;

/// Why there is no kernel BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelBtfError {
    /// Neither sysfs nor any of the places for kernel images has BTF: the kernel was built without
    /// CONFIG_DEBUG_INFO_BTF.
    Missing,
    /// There is no sysfs on /sys, where the kernel shows its BTF, and no image of this release on disk.
    NoSysfs,
    /// The file cannot be opened.
    Open(Errno),
    /// The file cannot be read.
    Read(Errno),
    /// Memory for it cannot be had.
    Memory(Errno),
    /// The file is larger than 256 MiB, which no BTF is.
    TooLarge,
    /// The file is neither BTF nor ELF.
    NotBtf,
    /// The file is ELF, but damaged.
    Elf,
    /// The file is ELF without a `.BTF` section.
    NoSection,
}

impl fmt::Display for KernelBtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelBtfError::Missing => f.write_str(
                "this kernel has no BTF (/sys/kernel/btf/vmlinux is missing: built without CONFIG_DEBUG_INFO_BTF)",
            ),
            KernelBtfError::NoSysfs => f.write_str(
                "nothing is known of this kernel's BTF (there is no /sys/kernel: mount -t sysfs sysfs /sys)",
            ),
            KernelBtfError::Open(errno) => write!(f, "cannot open the kernel's BTF: {errno}"),
            KernelBtfError::Read(errno) => write!(f, "cannot read the kernel's BTF: {errno}"),
            KernelBtfError::Memory(errno) => {
                write!(f, "no memory to read the kernel's BTF into: {errno}")
            }
            KernelBtfError::TooLarge => f.write_str("larger than 256 MiB, which no BTF is"),
            KernelBtfError::NotBtf => f.write_str("neither BTF nor an ELF file"),
            KernelBtfError::Elf => f.write_str("a damaged ELF file"),
            KernelBtfError::NoSection => f.write_str("an ELF file without a .BTF section"),
        }
    }
}

impl core::error::Error for KernelBtfError {}

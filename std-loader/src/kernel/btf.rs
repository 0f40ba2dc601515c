//! Where the kernel's BTF comes from.
//!
//! Linux 6.16 and newer let /sys/kernel/btf/vmlinux be mapped: not a byte is copied. Older ones refuse in different ways
//! (ENODEV, EINVAL, EPERM): there [`KernelBtf`] reads the file into one private mapping, which counts as memory but is
//! no heap, and [`LeanBtf`] leaves it where it is, to be read piece by piece. A kernel without that file may have its
//! image with a `.BTF` section on disk, in the places that libbpf looks at. Module BTF lies beside vmlinux's; each is
//! opened on its own and dropped before the next.

use core::fmt;
use core::ops::{ControlFlow, Deref};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use corelo_core::min_btf;
use elf::endian::AnyEndian;
use elf::file::FileHeader;
use elf::parse::ParseAt;
use elf::section::SectionHeader;
use rustix::fs::{OFlags, RawDir};

use crate::sys::Errno;
use crate::sys::bpf::{self, ObjectKind};
use crate::sys::files::{self, CPath, WholeError, stated_size};
use crate::sys::mmap::{AnonMap, SysfsMap};

/// A BTF blob of a kernel, kept alive by this value.
#[derive(Debug)]
pub struct KernelBtf {
    bytes: Bytes,
    source: Source,
}

#[derive(Debug)]
enum Bytes {
    Mapped(SysfsMap),
    Read { memory: AnonMap, len: usize },
}

/// How a blob came into this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The kernel's own pages, mapped.
    Mmap,
    /// Read from sysfs into private memory.
    Read,
    /// From a file: the user's, or a kernel image.
    File,
    /// Not at all: it is read piece by piece from where it is.
    Streamed,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Mmap => "mmap",
            Source::Read => "read",
            Source::File => "file",
            Source::Streamed => "streamed",
        })
    }
}

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

impl Deref for KernelBtf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Read { memory, len } => &memory[..*len],
        }
    }
}

/// The places that libbpf's `btf__load_vmlinux_btf()` searches after sysfs; `{}` is uname's release.
const IMAGES: [(&str, &str); 7] = [
    ("/boot/vmlinux-", ""),
    ("/lib/modules/", "/vmlinux-{}"),
    ("/lib/modules/", "/build/vmlinux"),
    ("/usr/lib/modules/", "/kernel/vmlinux"),
    ("/usr/lib/debug/boot/vmlinux-", ""),
    ("/usr/lib/debug/boot/vmlinux-", ".debug"),
    ("/usr/lib/debug/lib/modules/", "/vmlinux"),
];

const VMLINUX: &CStr = c"/sys/kernel/btf/vmlinux";

/// Bytes that sysfs hands out at a time, where pages have so many: reading through a larger window takes as many system
/// calls.
pub(crate) const PIECE: usize = 4 << 10;

const MAX_BYTES: usize = 256 << 20;

/// What `open` makes of the first image of the running kernel that has BTF.
fn from_images<T>(open: impl Fn(&CStr) -> Result<T, KernelBtfError>) -> Result<T, KernelBtfError> {
    let uname = rustix::system::uname();
    let release = uname.release().to_str().unwrap_or_default();
    for (before, after) in IMAGES {
        let path = match after.split_once("{}") {
            Some((after, _)) => CPath::format(format_args!("{before}{release}{after}{release}")),
            None => CPath::format(format_args!("{before}{release}{after}")),
        };
        let Ok(path) = path else { continue };
        // As libbpf: an image without BTF (or that we may not read) is not the last word, the next place may have it.
        if let Ok(found) = open(path.as_c_str()) {
            return Ok(found);
        }
    }
    // Nothing is missing where nothing is shown.
    match files::exists(c"/sys/kernel") {
        Ok(true) => Err(KernelBtfError::Missing),
        Ok(false) => Err(KernelBtfError::NoSysfs),
        Err(errno) => Err(KernelBtfError::Open(errno)),
    }
}

/// Where a loaded module's BTF is.
fn module_path(name: &str) -> Result<CPath, KernelBtfError> {
    // A name and no path: what lies elsewhere is no module's.
    if name.is_empty() || name.contains('/') || matches!(name, "." | "..") {
        return Err(KernelBtfError::Open(Errno::ENOENT));
    }
    CPath::format(format_args!("/sys/kernel/btf/{name}")).map_err(KernelBtfError::Open)
}

impl KernelBtf {
    /// The running kernel's BTF: sysfs, else an image of this release on disk.
    ///
    /// # Errors
    /// [`KernelBtfError::Missing`] or [`KernelBtfError::NoSysfs`] where no place has it; otherwise what went wrong with the first that does.
    pub fn open() -> Result<KernelBtf, KernelBtfError> {
        match KernelBtf::from_sysfs(VMLINUX) {
            Err(KernelBtfError::Open(Errno::ENOENT)) => from_images(KernelBtf::from_c_path),
            result => result,
        }
    }

    /// A loaded module's BTF, which is split on vmlinux's.
    ///
    /// # Errors
    /// `Open(ENOENT)` where the module is not loaded or has none.
    pub fn open_module(name: &str) -> Result<KernelBtf, KernelBtfError> {
        let path = module_path(name)?;
        KernelBtf::from_sysfs(path.as_c_str())
    }

    /// A file of the user's: BTF as it is, or ELF with a `.BTF` section, of either byte order. It is read, never
    /// mapped: it may change under us.
    ///
    /// # Errors
    /// All but [`KernelBtfError::Missing`].
    pub fn from_file(path: &Path) -> Result<KernelBtf, KernelBtfError> {
        let path = CPath::new(path).map_err(KernelBtfError::Open)?;
        KernelBtf::from_c_path(path.as_c_str())
    }

    /// The distilled base that a module's file has beside its own BTF: section `.BTF.base`. `None` for a file without
    /// one, and for BTF that is no ELF file.
    ///
    /// # Errors
    /// [`KernelBtfError`]
    pub fn base_in_file(path: &Path) -> Result<Option<KernelBtf>, KernelBtfError> {
        let path = CPath::new(path).map_err(KernelBtfError::Open)?;
        let fd = files::open(path.as_c_str(), OFlags::RDONLY).map_err(KernelBtfError::Open)?;
        let mut start = [0; 64];
        let len = files::read_at(&fd, &mut start, 0).map_err(KernelBtfError::Read)?;
        match &start[..len] {
            start @ [0x7f, b'E', b'L', b'F', ..] => match read_section(&fd, start, b".BTF.base\0") {
                Err(KernelBtfError::NoSection) => Ok(None),
                read => read.map(Some),
            },
            _ => Ok(None),
        }
    }

    /// How it came into this process.
    #[must_use]
    pub fn source(&self) -> Source {
        self.source
    }

    /// The bytes, the same as by dereferencing.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self
    }

    fn from_sysfs(path: &CStr) -> Result<KernelBtf, KernelBtfError> {
        let fd = files::open(path, OFlags::RDONLY).map_err(KernelBtfError::Open)?;
        match KernelBtf::mapped(&fd) {
            Some(mapped) => Ok(mapped),
            None => read_all(&fd, stated_size(&fd), Source::Read),
        }
    }

    /// A file of sysfs in its own pages; `None` where the kernel refuses that, with whatever number: they disagree on it.
    fn mapped(fd: &OwnedFd) -> Option<KernelBtf> {
        let size = stated_size(fd);
        if size == 0 || size > MAX_BYTES {
            return None;
        }
        let map = SysfsMap::new(fd.as_fd(), size).ok()?;
        Some(KernelBtf { bytes: Bytes::Mapped(map), source: Source::Mmap })
    }

    fn from_c_path(path: &CStr) -> Result<KernelBtf, KernelBtfError> {
        let fd = files::open(path, OFlags::RDONLY).map_err(KernelBtfError::Open)?;
        let mut start = [0; 64];
        let len = files::read_at(&fd, &mut start, 0).map_err(KernelBtfError::Read)?;
        match &start[..len] {
            [0x9f, 0xeb, ..] | [0xeb, 0x9f, ..] => read_all(&fd, stated_size(&fd), Source::File),
            [0x7f, b'E', b'L', b'F', ..] => read_section(&fd, &start[..len], b".BTF\0"),
            _ => Err(KernelBtfError::NotBtf),
        }
    }
}

/// Reads to the end of the file, whatever its length was said to be: sysfs hands out 4 KiB at a time.
fn read_all(fd: &OwnedFd, hint: usize, source: Source) -> Result<KernelBtf, KernelBtfError> {
    let (memory, len) = files::read_whole(fd, hint, MAX_BYTES).map_err(|error| match error {
        WholeError::Read(errno) => KernelBtfError::Read(errno),
        WholeError::Memory(errno) => KernelBtfError::Memory(errno),
        WholeError::TooLarge => KernelBtfError::TooLarge,
    })?;
    Ok(KernelBtf { bytes: Bytes::Read { memory, len }, source })
}

/// Reads one section alone: kernel images with debug information have hundreds of megabytes.
fn read_section(fd: &OwnedFd, start: &[u8], name: &[u8]) -> Result<KernelBtf, KernelBtfError> {
    let (offset, size) = find_section(fd, start, name)?;
    let mut memory = AnonMap::new(size).map_err(KernelBtfError::Memory)?;
    let len = files::read_at(fd, &mut memory[..size], offset).map_err(KernelBtfError::Read)?;
    if len < size {
        return Err(KernelBtfError::Elf);
    }
    Ok(KernelBtf { bytes: Bytes::Read { memory, len }, source: Source::File })
}

/// Where the section `wanted`, its NUL included, of an ELF file is, and its size, in bytes.
fn find_section(fd: &OwnedFd, start: &[u8], wanted: &[u8]) -> Result<(u64, usize), KernelBtfError> {
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

/// A kernel's BTF that stays in its file and is read piece by piece: see [`corelo_core::min_btf::stream`]. It takes no
/// memory but the window.
#[derive(Debug)]
pub struct StreamedBtf {
    fd: OwnedFd,
    start: u64,
    len: u64,
}

impl StreamedBtf {
    /// That of the running kernel: sysfs, else an image of this release on disk.
    ///
    /// # Errors
    /// [`KernelBtfError::Missing`], [`KernelBtfError::NoSysfs`], [`KernelBtfError::Open`]
    pub fn open() -> Result<StreamedBtf, KernelBtfError> {
        match files::open(VMLINUX, OFlags::RDONLY) {
            Err(Errno::ENOENT) => from_images(StreamedBtf::from_c_path),
            Err(errno) => Err(KernelBtfError::Open(errno)),
            Ok(fd) => StreamedBtf::whole(fd),
        }
    }

    /// A loaded module's, which is split on vmlinux's.
    ///
    /// # Errors
    /// `Open(ENOENT)` where the module is not loaded or has none.
    pub fn open_module(name: &str) -> Result<StreamedBtf, KernelBtfError> {
        let path = module_path(name)?;
        StreamedBtf::whole(files::open(path.as_c_str(), OFlags::RDONLY).map_err(KernelBtfError::Open)?)
    }

    /// A file of the user's: BTF as it is, or ELF with a `.BTF` section.
    ///
    /// # Errors
    /// All but [`KernelBtfError::Missing`] and [`KernelBtfError::Memory`].
    pub fn from_file(path: &Path) -> Result<StreamedBtf, KernelBtfError> {
        let path = CPath::new(path).map_err(KernelBtfError::Open)?;
        StreamedBtf::from_c_path(path.as_c_str())
    }

    fn from_c_path(path: &CStr) -> Result<StreamedBtf, KernelBtfError> {
        let fd = files::open(path, OFlags::RDONLY).map_err(KernelBtfError::Open)?;
        let mut start = [0; 64];
        let len = files::read_at(&fd, &mut start, 0).map_err(KernelBtfError::Read)?;
        match &start[..len] {
            [0x9f, 0xeb, ..] | [0xeb, 0x9f, ..] => StreamedBtf::whole(fd),
            [0x7f, b'E', b'L', b'F', ..] => {
                let (start, len) = find_section(&fd, &start[..len], b".BTF\0")?;
                Ok(StreamedBtf { fd, start, len: len as u64 })
            }
            _ => Err(KernelBtfError::NotBtf),
        }
    }

    fn whole(fd: OwnedFd) -> Result<StreamedBtf, KernelBtfError> {
        // A size that is not told is no limit: the file's end is.
        let len = match stated_size(&fd) {
            0 => MAX_BYTES,
            size if size > MAX_BYTES => return Err(KernelBtfError::TooLarge),
            size => size,
        };
        Ok(StreamedBtf { fd, start: 0, len: len as u64 })
    }
}

impl min_btf::Source for StreamedBtf {
    type Error = Errno;

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = buffer.len().min(left);
        files::read_at(&self.fd, &mut buffer[..len], self.start.saturating_add(offset))
    }
}

/// BTF that is looked through piece by piece, wherever it is: of one type, so that what reads it is compiled once.
#[derive(Debug)]
pub(crate) enum Pieces<'k> {
    /// In memory.
    Whole(&'k KernelBtf),
    /// In its file.
    Streamed(StreamedBtf),
}

impl min_btf::Source for Pieces<'_> {
    type Error = Errno;

    fn len(&self) -> u64 {
        match self {
            Pieces::Whole(btf) => btf.as_bytes().len() as u64,
            Pieces::Streamed(btf) => btf.len(),
        }
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Pieces::Whole(btf) => {
                let Ok(len) = min_btf::SliceSource(btf).read_at(offset, buffer);
                Ok(len)
            }
            Pieces::Streamed(btf) => btf.read_at(offset, buffer),
        }
    }
}

/// The running kernel's BTF, in the way that takes the least memory.
#[derive(Debug)]
pub enum LeanBtf {
    /// Mapped (Linux 6.16 and newer), or of a kernel image on disk where sysfs has none.
    Whole(KernelBtf),
    /// To be read piece by piece: the kernel refuses to map it.
    Streamed(StreamedBtf),
}

impl LeanBtf {
    /// Maps what sysfs has, or where the kernel refuses that, opens it for reading; an image of this release on disk is
    /// the last resort.
    ///
    /// # Errors
    /// As [`KernelBtf::open`].
    pub fn open() -> Result<LeanBtf, KernelBtfError> {
        match LeanBtf::from_sysfs(VMLINUX) {
            Err(KernelBtfError::Open(Errno::ENOENT)) => from_images(KernelBtf::from_c_path).map(LeanBtf::Whole),
            result => result,
        }
    }

    fn from_sysfs(path: &CStr) -> Result<LeanBtf, KernelBtfError> {
        let fd = files::open(path, OFlags::RDONLY).map_err(KernelBtfError::Open)?;
        Ok(match KernelBtf::mapped(&fd) {
            Some(mapped) => LeanBtf::Whole(mapped),
            None => LeanBtf::Streamed(StreamedBtf::whole(fd)?),
        })
    }
}

/// Calls `each` with the name of every loaded module that has BTF, until it breaks. The blobs are not opened:
/// [`KernelBtf::open_module`] does that for those that the caller wants, one at a time.
///
/// # Errors
/// The error of reading /sys/kernel/btf; a kernel without that directory (before 5.4) or without module BTF (before
/// 5.11) has no modules to name, which is no error.
pub fn modules<B>(mut each: impl FnMut(&str) -> ControlFlow<B>) -> Result<ControlFlow<B>, Errno> {
    let fd = match files::open(c"/sys/kernel/btf", OFlags::RDONLY | OFlags::DIRECTORY) {
        Err(Errno::ENOENT) => return Ok(ControlFlow::Continue(())),
        result => result?,
    };
    let mut buffer = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(fd, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if matches!(name, "." | ".." | "vmlinux") {
            continue;
        }
        if let ControlFlow::Break(found) = each(name) {
            return Ok(ControlFlow::Break(found));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// A descriptor and the id of the BTF object that the kernel calls `name`: a module's, for kfuncs (the fd array) and
/// attach targets. `None` where there is none. For vmlinux no descriptor is needed: 0 stands for it.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, which is what walking the kernel's ids takes; EINVAL before Linux 5.11.
pub fn btf_object(name: &str) -> Result<Option<(OwnedFd, u32)>, Errno> {
    let mut id = 0;
    while let Some(next) = bpf::next_id(ObjectKind::Btf, id)? {
        id = next;
        let fd = match bpf::fd_by_id(ObjectKind::Btf, id) {
            // It went away between the two calls.
            Err(Errno::ENOENT) => continue,
            result => result?,
        };
        let mut buffer = [0; 64];
        let info = match bpf::btf_info(fd.as_fd(), &mut [], &mut buffer) {
            Err(Errno::ENOSPC) => continue,
            result => result?,
        };
        let end = buffer.iter().position(|byte| *byte == 0);
        if info.kernel_btf && end.is_some_and(|end| &buffer[..end] == name.as_bytes()) {
            return Ok(Some((fd, id)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use corelo_tests::kernel::{Feature, has};

    use super::*;
    use crate::sys::page_size;
    use std::io::Write;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    /// ELF of one class and order with the sections given.
    fn elf(wide: bool, big: bool, sections: &[(&str, &[u8])]) -> Vec<u8> {
        let u = |value: u64, len: usize| -> Vec<u8> {
            let mut bytes = value.to_le_bytes()[..len].to_vec();
            if big {
                bytes.reverse();
            }
            bytes
        };
        let long = if wide { 8 } else { 4 };
        let mut names = vec![0u8];
        let mut data = Vec::<u8>::new();
        let head = if wide { 64 } else { 52 };
        let mut headers = vec![vec![0u8; if wide { 64 } else { 40 }]];
        let mut all: Vec<(&str, Vec<u8>)> = sections.iter().map(|(n, b)| (*n, b.to_vec())).collect();
        for (name, _) in &all {
            names.extend(name.bytes());
            names.push(0);
        }
        names.extend(b".shstrtab\0");
        all.push((".shstrtab", names));
        let mut name_at = 1u64;
        for (name, bytes) in &all {
            let mut header = u(name_at, 4);
            header.extend(u(1, 4));
            header.extend(u(0, long));
            header.extend(u(0, long));
            header.extend(u((head + data.len()) as u64, long));
            header.extend(u(bytes.len() as u64, long));
            header.extend(u(0, 8));
            header.extend(u(1, long));
            header.extend(u(0, long));
            headers.push(header);
            data.extend(bytes);
            name_at += name.len() as u64 + 1;
        }
        let mut file = vec![0x7f, b'E', b'L', b'F', if wide { 2 } else { 1 }, if big { 2 } else { 1 }, 1];
        file.resize(16, 0);
        file.extend(u(1, 2));
        file.extend(u(247, 2));
        file.extend(u(1, 4));
        file.extend(u(0, long));
        file.extend(u(0, long));
        file.extend(u((head + data.len()) as u64, long));
        file.extend(u(0, 4));
        file.extend(u(head as u64, 2));
        file.extend(u(0, 4));
        file.extend(u(if wide { 64 } else { 40 }, 2));
        file.extend(u(headers.len() as u64, 2));
        file.extend(u(headers.len() as u64 - 1, 2));
        assert_eq!(file.len(), head);
        file.extend(data);
        file.extend(headers.concat());
        file
    }

    #[test]
    fn raw_files_of_both_orders() {
        for magic in [[0x9f, 0xeb], [0xeb, 0x9f]] {
            let mut bytes = magic.to_vec();
            bytes.resize(10_000, 3);
            let btf = KernelBtf::from_file(file(&bytes).path()).unwrap();
            assert_eq!((&btf[..], btf.source()), (&bytes[..], Source::File));
        }
    }

    #[test]
    fn elf_files_of_both_classes_and_orders() {
        for wide in [false, true] {
            for big in [false, true] {
                let bytes = elf(wide, big, &[(".text", b"abc"), (".BTF.ext", b"no"), (".BTF", b"the one")]);
                let btf = KernelBtf::from_file(file(&bytes).path()).unwrap();
                assert_eq!((&btf[..], btf.source()), (&b"the one"[..], Source::File));
                let without = elf(wide, big, &[(".text", b"abc")]);
                assert_eq!(KernelBtf::from_file(file(&without).path()).err(), Some(KernelBtfError::NoSection));
                for len in 4..bytes.len() {
                    let error = KernelBtf::from_file(file(&bytes[..len]).path()).err();
                    assert_eq!(error, Some(KernelBtfError::Elf), "cut at {len}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_btf() {
        for (bytes, want) in
            [(&b""[..], KernelBtfError::NotBtf), (b"\x9f", KernelBtfError::NotBtf), (b"hello", KernelBtfError::NotBtf)]
        {
            assert_eq!(KernelBtf::from_file(file(bytes).path()).err(), Some(want));
        }
        assert_eq!(KernelBtf::from_file(Path::new("/nonexistent/x")).err(), Some(KernelBtfError::Open(Errno::ENOENT)));
        assert!(matches!(KernelBtf::from_file(Path::new("/")).err(), Some(KernelBtfError::Read(Errno(libc::EISDIR)))));
    }

    #[test]
    fn case_22_reading_goes_on_beyond_the_stated_size() {
        let bytes = vec![5u8; 3 * page_size() + 17];
        let named = file(&bytes);
        for hint in [0, 1, bytes.len(), 10 * bytes.len()] {
            let fd = files::open(CPath::new(named.path()).unwrap().as_c_str(), OFlags::RDONLY).unwrap();
            let btf = read_all(&fd, hint, Source::Read).unwrap();
            assert_eq!(&btf[..], &bytes[..]);
        }
    }

    #[test]
    fn streams_give_the_bytes_of_their_file_or_section() {
        use min_btf::Source as _;
        let blob = [0x9f, 0xeb, 1, 0, 5, 6, 7, 8, 9];
        for bytes in
            [blob.to_vec(), elf(true, false, &[(".BTF", &blob)]), elf(false, true, &[(".x", b"y"), (".BTF", &blob)])]
        {
            let named = file(&bytes);
            let mut streamed = StreamedBtf::from_file(named.path()).unwrap();
            assert_eq!(streamed.len(), 9);
            let mut buffer = [0; 16];
            assert_eq!(streamed.read_at(4, &mut buffer), Ok(5));
            assert_eq!(buffer[..5], blob[4..]);
            assert_eq!(streamed.read_at(9, &mut buffer), Ok(0));
            assert_eq!(streamed.read_at(u64::MAX, &mut buffer), Ok(0));
        }
        let named = file(b"hello");
        assert_eq!(StreamedBtf::from_file(named.path()).err(), Some(KernelBtfError::NotBtf));
    }

    #[test]
    fn case_22_mapped_and_read_agree() {
        if !has(&[Feature::KernelBtf]) {
            return;
        }
        let fd = files::open(VMLINUX, OFlags::RDONLY).unwrap();
        let read = read_all(&fd, 0, Source::Read).unwrap();
        let open = KernelBtf::open().unwrap();
        assert_eq!(&read[..2], 0xeb9fu16.to_ne_bytes());
        assert!(read[..] == open[..], "the two sources differ");
        match LeanBtf::open().unwrap() {
            LeanBtf::Whole(whole) => assert!(whole.source() == Source::Mmap && whole[..] == read[..]),
            LeanBtf::Streamed(streamed) => assert!(open.source() == Source::Read && bytes_of(streamed) == read[..]),
        }
        assert!(bytes_of(StreamedBtf::open().unwrap()) == read[..], "the stream differs");
    }

    fn bytes_of(mut streamed: StreamedBtf) -> Vec<u8> {
        use min_btf::Source as _;
        let (mut bytes, mut buffer) = (Vec::new(), [0; 5000]);
        loop {
            match streamed.read_at(bytes.len() as u64, &mut buffer).unwrap() {
                0 => return bytes,
                len => bytes.extend(&buffer[..len]),
            }
        }
    }

    #[test]
    fn what_is_refused_to_be_mapped_is_streamed_by_the_lean_and_read_by_the_other() {
        // A file of sysfs has a size of one page and attributes that no kernel maps; one of procfs tells no size.
        for path in [c"/sys/kernel/fscaps", c"/proc/version"] {
            let wanted = std::fs::read(path.to_str().unwrap()).unwrap();
            let LeanBtf::Streamed(streamed) = LeanBtf::from_sysfs(path).unwrap() else {
                panic!("{path:?} was mapped");
            };
            assert_eq!(bytes_of(streamed), wanted, "{path:?}");
            let read = KernelBtf::from_sysfs(path).unwrap();
            assert_eq!((&read[..], read.source()), (&wanted[..], Source::Read), "{path:?}");
        }
        let missing = LeanBtf::from_sysfs(c"/sys/kernel/btf/no_such_module").err();
        assert_eq!(missing, Some(KernelBtfError::Open(Errno::ENOENT)));
    }

    #[test]
    fn what_no_btf_can_be_is_refused_before_it_is_read() {
        let whole = |path: &Path| KernelBtf::from_file(path).err();
        let streamed = |path: &Path| StreamedBtf::from_file(path).err();
        for path in ["/dev/zero", "/dev/null"].map(Path::new) {
            assert_eq!([whole(path), streamed(path)], [Some(KernelBtfError::NotBtf); 2], "{path:?}");
        }
        let named = file(&[0x9f, 0xeb, 1, 0]);
        for (size, error) in [(MAX_BYTES as u64 + 1, KernelBtfError::TooLarge), (1 << 40, KernelBtfError::TooLarge)] {
            // No block of it is on the disk.
            std::fs::OpenOptions::new().write(true).open(named.path()).unwrap().set_len(size).unwrap();
            assert_eq!([whole(named.path()), streamed(named.path())], [Some(error); 2], "{size}");
        }
    }
}

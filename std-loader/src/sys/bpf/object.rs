//! What maps, programs, links and BTF have in common: ids, pins, what the kernel says of them. And loading BTF.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::super::attr;
use super::super::{Errno, raw_bpf};
use super::{address, address_mut, bpf_fd, c_address, cmd, length, raw};
use crate::sys::version::KernelVersion;

/// BPF_BTF_LOAD.
pub(crate) fn btf_load(btf: &[u8], log: &mut [u8], log_level: u32, log_true_size: &mut u32) -> Result<OwnedFd, Errno> {
    let mut block = attr::BtfLoad {
        btf: address(btf),
        btf_log_buf: address_mut(log),
        btf_size: length(btf)?,
        btf_log_size: length(log)?,
        btf_log_level: if log.is_empty() { 0 } else { log_level },
        ..attr::zeroed()
    };
    // SAFETY: both slices have the lengths given beside them; the result is a new descriptor.
    let result = unsafe { bpf_fd(cmd::BTF_LOAD, &mut block) };
    *log_true_size = block.btf_log_true_size;
    result
}

/// BPF_OBJ_PIN: gives the object a name on a bpf file system.
///
/// # Errors
/// EEXIST where the name is taken, EPERM where the path is on no bpf file system, ENOENT for a missing directory.
pub fn obj_pin(fd: BorrowedFd<'_>, path: &CStr) -> Result<(), Errno> {
    let mut block = attr::Obj { pathname: c_address(path), bpf_fd: raw(fd), ..attr::zeroed() };
    // SAFETY: the path is NUL-terminated.
    unsafe { raw_bpf(cmd::OBJ_PIN, &mut block) }.map(drop)
}

/// BPF_OBJ_GET: a descriptor of a pinned map, program or link.
///
/// # Errors
/// ENOENT, EACCES, or EINVAL for a file that is no pin.
pub fn obj_get(path: &CStr) -> Result<OwnedFd, Errno> {
    let mut block = attr::Obj { pathname: c_address(path), ..attr::zeroed() };
    // SAFETY: the path is NUL-terminated; the result is a new descriptor.
    unsafe { bpf_fd(cmd::OBJ_GET, &mut block) }
}

/// The kinds of object that the kernel numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// Programs.
    Program,
    /// Maps.
    Map,
    /// BTF objects, the kernel's own and its modules' among them.
    Btf,
    /// Links.
    Link,
}

/// BPF_*_GET_NEXT_ID: the first id above `id`, or `None`.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
pub fn next_id(kind: ObjectKind, id: u32) -> Result<Option<u32>, Errno> {
    let command = match kind {
        ObjectKind::Program => cmd::PROG_GET_NEXT_ID,
        ObjectKind::Map => cmd::MAP_GET_NEXT_ID,
        ObjectKind::Btf => cmd::BTF_GET_NEXT_ID,
        ObjectKind::Link => cmd::LINK_GET_NEXT_ID,
    };
    let mut block = attr::Id { id, ..attr::zeroed() };
    // SAFETY: no pointers.
    match unsafe { raw_bpf(command, &mut block) } {
        Ok(_) => Ok(Some(block.next_id)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// BPF_*_GET_FD_BY_ID.
///
/// # Errors
/// ENOENT where the object is gone meanwhile, EPERM without CAP_SYS_ADMIN.
pub fn fd_by_id(kind: ObjectKind, id: u32) -> Result<OwnedFd, Errno> {
    let command = match kind {
        ObjectKind::Program => cmd::PROG_GET_FD_BY_ID,
        ObjectKind::Map => cmd::MAP_GET_FD_BY_ID,
        ObjectKind::Btf => cmd::BTF_GET_FD_BY_ID,
        ObjectKind::Link => cmd::LINK_GET_FD_BY_ID,
    };
    let mut block = attr::Id { id, ..attr::zeroed() };
    // SAFETY: no pointers; the result is a new descriptor.
    unsafe { bpf_fd(command, &mut block) }
}

/// The kind of BPF object behind a descriptor, as the kernel says: what BPF_OBJ_GET_INFO_BY_FD reads and writes depends on
/// it, and nothing else tells.
///
/// # Errors
/// EINVAL where `fd` is no BPF object, or one of a kind that is not known here; EBADF.
pub fn kind_of(fd: BorrowedFd<'_>) -> Result<ObjectKind, Errno> {
    /// Bytes that every `struct bpf_map_info` has since Linux 4.18: more than other objects that are not told apart
    /// before (tokens).
    const MAP_INFO: u32 = 80;
    /// Where `struct bpf_prog_info` has its func_info_rec_size, in words: 8 for every program since Linux 5.0, beyond the
    /// end of what the kernel says of others.
    const REC_SIZE: usize = 33;
    let mut found = attr::zeroed::<attr::AnyInfo>();
    let mut block = attr::Info {
        bpf_fd: raw(fd),
        info_len: size_of::<attr::AnyInfo>() as u32,
        info: std::ptr::from_mut(&mut found).expose_provenance() as u64,
    };
    // SAFETY: `found` is a live block of `info_len` bytes; whatever the kernel takes it for, its pointers are null and its
    // counts 0.
    unsafe { raw_bpf(cmd::OBJ_GET_INFO_BY_FD, &mut block)? };
    let (words, len) = (&found.words, block.info_len);
    // All objects have an id behind their type, but BTF has there the upper half of a pointer of ours.
    if words[1] == 0 {
        return Ok(ObjectKind::Btf);
    }
    if words[REC_SIZE] == 8 {
        return Ok(ObjectKind::Program);
    }
    let version = KernelVersion::running();
    if version < KernelVersion::new(5, 0, 0) {
        // Without links; what the kernel says of a program is longer than what it says of a map.
        let map_info = match version {
            version if version >= KernelVersion::new(4, 18, 0) => MAP_INFO,
            version if version >= KernelVersion::new(4, 16, 0) => 64,
            version if version >= KernelVersion::new(4, 15, 0) => 40,
            _ => 24,
        };
        return Ok(if len > map_info { ObjectKind::Program } else { ObjectKind::Map });
    }
    // The program that the link is to get is none: a link says so, and all else that it is no link.
    let mut update = attr::LinkUpdate { link_fd: raw(fd), new_fd: u32::MAX, ..attr::zeroed() };
    // SAFETY: no pointers, and nothing is changed without a program.
    match unsafe { raw_bpf(cmd::LINK_UPDATE, &mut update) } {
        Err(Errno::EBADF) => Ok(ObjectKind::Link),
        Err(Errno::EINVAL) if len >= MAP_INFO => Ok(ObjectKind::Map),
        Ok(_) => Err(Errno::EINVAL),
        Err(errno) => Err(errno),
    }
}

/// EINVAL where `fd` is not of this kind.
fn must_be(kind: ObjectKind, fd: BorrowedFd<'_>) -> Result<(), Errno> {
    if kind_of(fd)? == kind { Ok(()) } else { Err(Errno::EINVAL) }
}

/// # Safety
/// Every pointer inside `info` must be valid for the count or length beside it.
unsafe fn info<T: IntoBytes + FromBytes + Immutable>(fd: BorrowedFd<'_>, info: &mut T) -> Result<(), Errno> {
    let mut block = attr::Info {
        bpf_fd: raw(fd),
        info_len: size_of::<T>() as u32,
        info: std::ptr::from_mut(info).expose_provenance() as u64,
    };
    // SAFETY: `info` is a live block of `info_len` bytes; the caller vouches for the pointers in it.
    unsafe { raw_bpf(cmd::OBJ_GET_INFO_BY_FD, &mut block) }.map(drop)
}

/// What the kernel says of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapInfo {
    /// `enum bpf_map_type`.
    pub map_type: u32,
    /// The kernel's number of it.
    pub id: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value, of one CPU.
    pub value_size: u32,
    /// Entries.
    pub max_entries: u32,
    /// BPF_F_* of creation.
    pub map_flags: u32,
    /// The name, NUL-padded.
    pub name: [u8; 16],
    /// The device it is offloaded to, or 0.
    pub ifindex: u32,
    /// The BTF object's id, or 0.
    pub btf_id: u32,
    /// The key's type there.
    pub btf_key_type_id: u32,
    /// The value's type there.
    pub btf_value_type_id: u32,
    /// The value's type in vmlinux, for struct_ops.
    pub btf_vmlinux_value_type_id: u32,
    /// Type-specific (bloom filters, arenas).
    pub map_extra: u64,
}

/// BPF_OBJ_GET_INFO_BY_FD of a map.
///
/// # Errors
/// EINVAL where `fd` is no map.
pub fn map_info(fd: BorrowedFd<'_>) -> Result<MapInfo, Errno> {
    must_be(ObjectKind::Map, fd)?;
    let mut block = attr::zeroed::<attr::MapInfo>();
    // SAFETY: the block has no pointers.
    unsafe { info(fd, &mut block)? };
    Ok(MapInfo {
        map_type: block.map_type,
        id: block.id,
        key_size: block.key_size,
        value_size: block.value_size,
        max_entries: block.max_entries,
        map_flags: block.map_flags,
        name: block.name,
        ifindex: block.ifindex,
        btf_id: block.btf_id,
        btf_key_type_id: block.btf_key_type_id,
        btf_value_type_id: block.btf_value_type_id,
        btf_vmlinux_value_type_id: block.btf_vmlinux_value_type_id,
        map_extra: block.map_extra,
    })
}

/// What the kernel says of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgInfo {
    /// `enum bpf_prog_type`.
    pub prog_type: u32,
    /// The kernel's number of it.
    pub id: u32,
    /// Hash of its instructions.
    pub tag: [u8; 8],
    /// The name, NUL-padded.
    pub name: [u8; 16],
    /// Bytes of machine code; 0 without a JIT or the right to know.
    pub jited_size: u32,
    /// Bytes of instructions after the verifier rewrote them.
    pub xlated_size: u32,
    /// Load time, nanoseconds since boot.
    pub load_time_ns: u64,
    /// How many maps it uses.
    pub nr_map_ids: u32,
    /// The BTF object's id, or 0.
    pub btf_id: u32,
    /// Functions described in it.
    pub nr_func_info: u32,
    /// Lines described in it.
    pub nr_line_info: u32,
    /// Whether the licence was compatible with the GPL.
    pub gpl_compatible: bool,
    /// Instructions the verifier walked; 0 before Linux 5.16.
    pub verified_insns: u32,
    /// BTF object of the attach target (id), or 0.
    pub attach_btf_obj_id: u32,
    /// Type id of the attach target there, or 0.
    pub attach_btf_id: u32,
}

/// BPF_OBJ_GET_INFO_BY_FD of a program.
///
/// # Errors
/// EINVAL where `fd` is no program.
pub fn prog_info(fd: BorrowedFd<'_>) -> Result<ProgInfo, Errno> {
    must_be(ObjectKind::Program, fd)?;
    let mut block = attr::zeroed::<attr::ProgInfo>();
    // SAFETY: all pointers are null and all counts 0.
    unsafe { info(fd, &mut block)? };
    Ok(ProgInfo {
        prog_type: block.prog_type,
        id: block.id,
        tag: block.tag,
        name: block.name,
        jited_size: block.jited_prog_len,
        xlated_size: block.xlated_prog_len,
        load_time_ns: block.load_time,
        nr_map_ids: block.nr_map_ids,
        btf_id: block.btf_id,
        nr_func_info: block.nr_func_info,
        nr_line_info: block.nr_line_info,
        // A one-bit field in C: the low bit on little-endian hosts, the high one on big-endian ones.
        gpl_compatible: block.gpl_compatible & if cfg!(target_endian = "big") { 1 << 31 } else { 1 } != 0,
        verified_insns: block.verified_insns,
        attach_btf_obj_id: block.attach_btf_obj_id,
        attach_btf_id: block.attach_btf_id,
    })
}

/// The ids of the maps that a program uses, as many as `ids` holds; the result is how many there are in all.
///
/// # Errors
/// EINVAL where `fd` is no program.
pub fn prog_map_ids(fd: BorrowedFd<'_>, ids: &mut [u32]) -> Result<u32, Errno> {
    must_be(ObjectKind::Program, fd)?;
    let count = u32::try_from(ids.len()).map_err(|_| Errno::E2BIG)?;
    let mut block = attr::ProgInfo { nr_map_ids: count, map_ids: address_mut(ids), ..attr::zeroed() };
    // SAFETY: it is a program, and the only pointer has its own slice's length beside it.
    unsafe { info(fd, &mut block)? };
    Ok(block.nr_map_ids)
}

/// The instructions of a program as the verifier left them, as many bytes as `insns` holds (the kernel cuts); the
/// result is how many bytes there are in all.
///
/// # Errors
/// EINVAL where `fd` is no program.
pub fn prog_xlated(fd: BorrowedFd<'_>, insns: &mut [u8]) -> Result<u32, Errno> {
    must_be(ObjectKind::Program, fd)?;
    let mut block =
        attr::ProgInfo { xlated_prog_len: length(insns)?, xlated_prog_insns: address_mut(insns), ..attr::zeroed() };
    // SAFETY: it is a program, and the only pointer has its own slice's length beside it.
    unsafe { info(fd, &mut block)? };
    Ok(block.xlated_prog_len)
}

/// What the kernel says of a BTF object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BtfInfo {
    /// The kernel's number of it.
    pub id: u32,
    /// Its size in bytes.
    pub btf_size: u32,
    /// Whether it belongs to the kernel or a module.
    pub kernel_btf: bool,
    /// Bytes of its name; 0 for an object's BTF and before Linux 5.11.
    pub name_len: u32,
}

/// BPF_OBJ_GET_INFO_BY_FD of a BTF object: its bytes into `data` and its name, with a NUL, into `name`, as far as they go;
/// both may be empty.
///
/// # Errors
/// EINVAL where `fd` is no BTF; ENOSPC where `name` is not empty and too short (it has the name's start then).
pub fn btf_info(fd: BorrowedFd<'_>, data: &mut [u8], name: &mut [u8]) -> Result<BtfInfo, Errno> {
    must_be(ObjectKind::Btf, fd)?;
    let mut block = attr::BtfInfo {
        btf: address_mut(data),
        btf_size: length(data)?,
        name: address_mut(name),
        name_len: length(name)?,
        ..attr::zeroed()
    };
    // SAFETY: it is BTF, and both pointers have their own slice's length beside them.
    unsafe { info(fd, &mut block)? };
    Ok(BtfInfo { id: block.id, btf_size: block.btf_size, kernel_btf: block.kernel_btf != 0, name_len: block.name_len })
}

/// What the kernel says of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkInfo {
    /// `enum bpf_link_type`.
    pub link_type: u32,
    /// The kernel's number of it.
    pub id: u32,
    /// The program's number.
    pub prog_id: u32,
}

/// BPF_OBJ_GET_INFO_BY_FD of a link.
///
/// # Errors
/// EINVAL where `fd` is no link.
pub fn link_info(fd: BorrowedFd<'_>) -> Result<LinkInfo, Errno> {
    must_be(ObjectKind::Link, fd)?;
    let mut block = attr::zeroed::<attr::LinkInfo>();
    // SAFETY: the pointers of the union are null and their lengths 0.
    unsafe { info(fd, &mut block)? };
    Ok(LinkInfo { link_type: block.link_type, id: block.id, prog_id: block.prog_id })
}

//! Maps: creation with what old kernels need, and access by bytes or by plain-old-data types.
//!
//! [`create`] takes a plain [`MapSpec`]; what comes back is a [`MapFd`], whose element operations take byte slices of the
//! map's own sizes. [`Map`] and [`PerCpuMap`] put types on it.

mod typed;

use std::os::fd::{AsFd, BorrowedFd};

use corelo_core::uapi::map_type;

use super::memlock::{Memlock, raised_after};
use crate::sys::bpf::MapFd;
use crate::sys::mmap::ArrayMap;
use crate::sys::{Errno, attr, bpf, page_size};

pub use typed::{Keys, Map, PerCpuMap, SizeMismatch};

/// What a map is to be. `..Default::default()` fills what does not matter.
#[derive(Debug, Clone, Copy, Default)]
pub struct MapSpec<'a> {
    /// Its name, of any length and characters; the kernel gets [`kernel_name`] of it.
    pub name: &'a [u8],
    /// `enum bpf_map_type`.
    pub map_type: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value (of one CPU).
    pub value_size: u32,
    /// Entries; bytes for a ring buffer, pages for an arena. See [`normalized_entries`].
    pub max_entries: u32,
    /// BPF_F_*.
    pub map_flags: u32,
    /// Type-specific.
    pub map_extra: u64,
    /// Counts with [`BPF_F_NUMA_NODE`](corelo_core::uapi::BPF_F_NUMA_NODE) only.
    pub numa_node: u32,
    /// The device to offload to, or 0.
    pub ifindex: u32,
    /// The object's loaded BTF, in which the two type ids below are.
    pub btf_fd: Option<BorrowedFd<'a>>,
    /// The key's type.
    pub btf_key_type_id: u32,
    /// The value's type.
    pub btf_value_type_id: u32,
    /// For struct_ops: the value's type in vmlinux or the module below.
    pub btf_vmlinux_value_type_id: u32,
    /// For struct_ops of a module: its BTF (with [`BPF_F_VTYPE_BTF_OBJ_FD`](corelo_core::uapi::BPF_F_VTYPE_BTF_OBJ_FD) in the flags).
    pub value_type_btf_obj_fd: Option<BorrowedFd<'a>>,
    /// For maps of maps: the shape of the inner ones.
    pub inner_map_fd: Option<BorrowedFd<'a>>,
}

/// A name as kernels take it: 15 bytes at most, letters, digits, `_` and `.`, everything else as `_`; NUL-padded.
#[must_use]
pub fn kernel_name(name: &[u8]) -> [u8; 16] {
    let mut out = [0; 16];
    for (to, from) in out.iter_mut().take(15).zip(name) {
        *to = match *from {
            byte if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.') => byte,
            _ => b'_',
        };
    }
    out
}

/// Whether the size of a map of this type, or of its values here, may depend on the number of possible CPUs.
pub(crate) fn counts_cpus(map_type: u32) -> bool {
    map_type == map_type::PERF_EVENT_ARRAY || bpf::is_per_cpu(map_type)
}

/// The entries that the kernel is asked for: a perf event array of 0 has the possible CPUs; a ring buffer's bytes are
/// rounded up to whole pages and a power of two.
///
/// # Errors
/// E2BIG where rounding leaves 32 bits; the error of reading the CPU list.
pub fn normalized_entries(map_type: u32, max_entries: u32) -> Result<u32, Errno> {
    match map_type {
        map_type::PERF_EVENT_ARRAY if max_entries == 0 => crate::sys::cpus::possible_cpus(),
        map_type::RINGBUF | map_type::USER_RINGBUF if max_entries != 0 => {
            max_entries.max(page_size() as u32).checked_next_power_of_two().ok_or(Errno::E2BIG)
        }
        _ => Ok(max_entries),
    }
}

/// Creates a map with the entries [normalised](normalized_entries). What a kernel refuses for being newer than itself is
/// left out and tried again: the BTF ids, then dots in the name (before 5.2), then the name.
///
/// # Errors
/// The kernel's answer to the first try.
pub fn create(spec: &MapSpec<'_>, memlock: Memlock) -> Result<MapFd, Errno> {
    let mut block = attr::MapCreate {
        map_type: spec.map_type,
        key_size: spec.key_size,
        value_size: spec.value_size,
        max_entries: normalized_entries(spec.map_type, spec.max_entries)?,
        map_flags: spec.map_flags,
        inner_map_fd: bpf::given(spec.inner_map_fd)?,
        numa_node: spec.numa_node,
        map_name: kernel_name(spec.name),
        map_ifindex: spec.ifindex,
        btf_fd: bpf::given(spec.btf_fd)?,
        btf_key_type_id: spec.btf_key_type_id,
        btf_value_type_id: spec.btf_value_type_id,
        btf_vmlinux_value_type_id: spec.btf_vmlinux_value_type_id,
        map_extra: spec.map_extra,
        value_type_btf_obj_fd: bpf::given(spec.value_type_btf_obj_fd)?.cast_signed(),
        ..attr::zeroed()
    };
    let mut result = bpf::map_create(&block);
    if result.as_ref().is_err_and(|errno| raised_after(*errno, memlock)) {
        result = bpf::map_create(&block);
    }
    let first = match result {
        Ok(map) => return Ok(map),
        // These say nothing of what an old kernel does not know.
        Err(errno @ (Errno::EPERM | Errno::ENOMEM | Errno::EMFILE | Errno::EBADF)) => {
            return Err(errno);
        }
        Err(errno) => errno,
    };
    // Kernels before 4.18 have no types at all. A struct_ops map is nothing without its BTF.
    let has_types = [block.btf_fd, block.btf_key_type_id, block.btf_value_type_id] != [0; 3];
    if has_types && block.btf_vmlinux_value_type_id == 0 {
        block.btf_fd = 0;
        block.btf_key_type_id = 0;
        block.btf_value_type_id = 0;
        if let Ok(map) = bpf::map_create(&block) {
            return Ok(map);
        }
    }
    if block.map_name.contains(&b'.') {
        for byte in block.map_name.iter_mut().filter(|byte| **byte == b'.') {
            *byte = b'_';
        }
        if let Ok(map) = bpf::map_create(&block) {
            return Ok(map);
        }
    }
    if block.map_name[0] != 0 {
        block.map_name = [0; 16];
        if let Ok(map) = bpf::map_create(&block) {
            return Ok(map);
        }
    }
    Err(first)
}

/// Maps an array (created with [`BPF_F_MMAPABLE`](corelo_core::uapi::BPF_F_MMAPABLE)) into this process; not writable once it is frozen.
///
/// # Errors
/// EINVAL where the map is no array; EPERM for a writable mapping of a frozen one; ENOTSUPP (524) without the flag.
pub fn mmap(map: &MapFd, writable: bool) -> Result<ArrayMap, Errno> {
    if map.map_type() != map_type::ARRAY {
        return Err(Errno::EINVAL);
    }
    let len = map
        .value_bytes()
        .checked_next_multiple_of(8)
        .and_then(|size| size.checked_mul(map.max_entries() as usize))
        .and_then(|size| size.checked_next_multiple_of(page_size()))
        .ok_or(Errno::E2BIG)?;
    ArrayMap::new(map.as_fd(), len, writable)
}

#[cfg(test)]
mod tests;

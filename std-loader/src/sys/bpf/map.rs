//! Maps: `BPF_MAP_*`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use zerocopy::IntoBytes;

use super::super::attr;
use super::super::{Errno, raw_bpf};
use super::{MapInfo, address, address_mut, bpf_fd, cmd, map_info, raw};

/// A map's descriptor with the sizes that the kernel reads and writes through pointers: the reason why element
/// operations are safe.
#[derive(Debug)]
pub struct MapFd {
    fd: OwnedFd,
    map_type: u32,
    key_size: u32,
    /// Bytes of a value, of one CPU.
    value_size: u32,
    /// Bytes of one value as user space exchanges it: per-CPU maps multiply.
    value_bytes: u32,
    max_entries: u32,
    map_flags: u32,
}

/// What a [`MapFd`] holds beside the descriptor.
pub(in crate::sys) struct MapSizes {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    value_bytes: u32,
    max_entries: u32,
    map_flags: u32,
}

/// The map types with a value for each possible CPU: PERCPU_HASH, PERCPU_ARRAY, LRU_PERCPU_HASH, PERCPU_CGROUP_STORAGE.
pub(crate) const fn is_per_cpu(map_type: u32) -> bool {
    matches!(map_type, 5 | 6 | 10 | 21)
}

fn value_bytes(map_type: u32, value_size: u32) -> Result<u32, Errno> {
    if !is_per_cpu(map_type) {
        return Ok(value_size);
    }
    let cpus = crate::sys::cpus::possible_cpus()?;
    value_size.checked_next_multiple_of(8).and_then(|size| size.checked_mul(cpus)).ok_or(Errno::E2BIG)
}

impl AsFd for MapFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<MapFd> for OwnedFd {
    fn from(map: MapFd) -> OwnedFd {
        map.fd
    }
}

impl MapFd {
    /// Takes a map's descriptor from elsewhere (a pin, an id, another process) and asks the kernel for its sizes: one
    /// bpf(2) call.
    ///
    /// # Errors
    /// The kernel's error: EINVAL where `fd` is no map.
    pub fn from_fd(fd: OwnedFd) -> Result<MapFd, Errno> {
        let sizes = MapFd::sizes(&map_info(fd.as_fd())?)?;
        Ok(MapFd::with_sizes(fd, sizes))
    }

    pub(in crate::sys) fn sizes(info: &MapInfo) -> Result<MapSizes, Errno> {
        Ok(MapSizes {
            map_type: info.map_type,
            key_size: info.key_size,
            value_size: info.value_size,
            value_bytes: value_bytes(info.map_type, info.value_size)?,
            max_entries: info.max_entries,
            map_flags: info.map_flags,
        })
    }

    pub(in crate::sys) fn with_sizes(fd: OwnedFd, sizes: MapSizes) -> MapFd {
        MapFd {
            fd,
            map_type: sizes.map_type,
            key_size: sizes.key_size,
            value_size: sizes.value_size,
            value_bytes: sizes.value_bytes,
            max_entries: sizes.max_entries,
            map_flags: sizes.map_flags,
        }
    }

    /// A second descriptor of the same map.
    ///
    /// # Errors
    /// EMFILE and the like.
    pub fn try_clone(&self) -> Result<MapFd, Errno> {
        Ok(self.with_fd(super::super::dup(self.fd.as_fd())?))
    }

    /// The same map by another of its descriptors.
    pub(in crate::sys) fn with_fd(&self, fd: OwnedFd) -> MapFd {
        MapFd {
            fd,
            map_type: self.map_type,
            key_size: self.key_size,
            value_size: self.value_size,
            value_bytes: self.value_bytes,
            max_entries: self.max_entries,
            map_flags: self.map_flags,
        }
    }

    /// `enum bpf_map_type`.
    #[must_use]
    pub fn map_type(&self) -> u32 {
        self.map_type
    }

    /// Bytes of a key.
    #[must_use]
    pub fn key_size(&self) -> usize {
        self.key_size as usize
    }

    /// Bytes of a value as the map was made with: of one CPU.
    #[must_use]
    pub fn value_size(&self) -> usize {
        self.value_size as usize
    }

    /// Bytes of a value as lookups and updates exchange it; for a per-CPU map, the size rounded up to 8, times the
    /// possible CPUs.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.value_bytes as usize
    }

    /// The number of entries asked for (or found, for a map that was there already).
    #[must_use]
    pub fn max_entries(&self) -> u32 {
        self.max_entries
    }

    /// BPF_F_* of creation.
    #[must_use]
    pub fn map_flags(&self) -> u32 {
        self.map_flags
    }

    fn elem(
        &self,
        command: u32,
        key: Option<&[u8]>,
        value: u64,
        value_len: Option<usize>,
        flags: u64,
    ) -> Result<(), Errno> {
        let key = key.unwrap_or(&[]);
        if key.len() != self.key_size() || value_len.is_some_and(|len| len != self.value_bytes()) {
            return Err(Errno::EINVAL);
        }
        let mut block =
            attr::MapElem { map_fd: raw(self.fd.as_fd()), key: address(key), value, flags, ..attr::zeroed() };
        // SAFETY: the kernel reads key_size bytes of the key, and reads or writes value_bytes of the value: both
        // lengths were just compared, and a map's sizes never change.
        unsafe { raw_bpf(command, &mut block) }.map(drop)
    }

    /// BPF_MAP_LOOKUP_ELEM: `value` is [`MapFd::value_bytes`] long.
    ///
    /// # Errors
    /// ENOENT where there is no such key; EINVAL also where a slice has another length than the map wants.
    pub fn lookup(&self, key: &[u8], value: &mut [u8], flags: u64) -> Result<(), Errno> {
        let len = value.len();
        self.elem(cmd::MAP_LOOKUP_ELEM, Some(key), address_mut(value), Some(len), flags)
    }

    /// BPF_MAP_LOOKUP_AND_DELETE_ELEM: pops from queues and stacks (an empty key), takes out of hash maps.
    ///
    /// # Errors
    /// As [`MapFd::lookup`].
    pub fn lookup_and_delete(&self, key: &[u8], value: &mut [u8], flags: u64) -> Result<(), Errno> {
        let len = value.len();
        self.elem(cmd::MAP_LOOKUP_AND_DELETE_ELEM, Some(key), address_mut(value), Some(len), flags)
    }

    /// BPF_MAP_UPDATE_ELEM. `flags`: 0 any, 1 only new (BPF_NOEXIST), 2 only existing (BPF_EXIST).
    ///
    /// # Errors
    /// EEXIST, ENOENT by `flags`; E2BIG where the map is full; EPERM where it is frozen; EINVAL for a wrong length.
    pub fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        self.elem(cmd::MAP_UPDATE_ELEM, Some(key), address(value), Some(value.len()), flags)
    }

    /// BPF_MAP_DELETE_ELEM.
    ///
    /// # Errors
    /// ENOENT where there is no such key; EINVAL where the type has no deletion.
    pub fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        self.elem(cmd::MAP_DELETE_ELEM, Some(key), 0, None, 0)
    }

    /// BPF_MAP_GET_NEXT_KEY: the key after `key` (the first for `None`) into `next`; false at the end.
    ///
    /// # Errors
    /// The kernel's error, or EINVAL for a wrong length.
    pub fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<bool, Errno> {
        if next.len() != self.key_size() || key.is_some_and(|key| key.len() != self.key_size()) {
            return Err(Errno::EINVAL);
        }
        let mut block = attr::MapElem {
            map_fd: raw(self.fd.as_fd()),
            key: key.map_or(0, address),
            value: address_mut(next),
            ..attr::zeroed()
        };
        // SAFETY: the kernel reads and writes key_size bytes, which is what both slices have.
        match unsafe { raw_bpf(cmd::MAP_GET_NEXT_KEY, &mut block) } {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// BPF_MAP_FREEZE (Linux 5.2): user space may no longer write; programs are not affected.
    ///
    /// # Errors
    /// EBUSY where it is frozen already or mapped writable; EINVAL on older kernels.
    pub fn freeze(&self) -> Result<(), Errno> {
        freeze(self.fd.as_fd())
    }
}

/// Writes the one element of an array map, whose value has `value_size` bytes.
///
/// # Errors
/// EINVAL where `value` has not as many bytes; the kernel's error.
pub(crate) fn update_array(map: BorrowedFd<'_>, value: &[u8], value_size: u32) -> Result<(), Errno> {
    if value.len() != value_size as usize {
        return Err(Errno::EINVAL);
    }
    let key = 0u32;
    let mut block =
        attr::MapElem { map_fd: raw(map), key: address(key.as_bytes()), value: address(value), ..attr::zeroed() };
    // SAFETY: the key has the 4 bytes of an array's, the value as many as the map's; both live until the call returns.
    unsafe { raw_bpf(cmd::MAP_UPDATE_ELEM, &mut block) }.map(drop)
}

/// BPF_MAP_FREEZE by descriptor.
///
/// # Errors
/// The kernel's error.
pub(crate) fn freeze(map: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut block = attr::MapElem { map_fd: raw(map), ..attr::zeroed() };
    // SAFETY: no pointers.
    unsafe { raw_bpf(cmd::MAP_FREEZE, &mut block) }.map(drop)
}

/// BPF_MAP_CREATE.
pub(crate) fn map_create(block: &attr::MapCreate) -> Result<MapFd, Errno> {
    let mut copy = *block;
    let value_bytes = value_bytes(block.map_type, block.value_size)?;
    // SAFETY: no pointers; the result is a new descriptor.
    let fd = unsafe { bpf_fd(cmd::MAP_CREATE, &mut copy)? };
    Ok(MapFd {
        fd,
        map_type: block.map_type,
        key_size: block.key_size,
        value_size: block.value_size,
        value_bytes,
        max_entries: block.max_entries,
        map_flags: block.map_flags,
    })
}

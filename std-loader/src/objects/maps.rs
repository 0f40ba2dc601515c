//! Maps: creation with what old kernels need, and access by bytes or by plain-old-data types.
//!
//! [`create`] takes a plain [`MapSpec`]; what comes back is a [`MapFd`], whose element operations take byte slices of the
//! map's own sizes. [`Map`] and [`PerCpuMap`] put types on it.

use core::fmt;
use core::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};

use super::memlock::{Memlock, raised_after};
use crate::sys::bpf::MapFd;
use crate::sys::fd_table::MapRef;
use crate::sys::mmap::ArrayMap;
use crate::sys::{Errno, attr, bpf, page_size};
use corelo_core::uapi::map_type;
use zerocopy::{FromBytes, Immutable, IntoBytes};

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

/// A map's keys or values are not of the size of the type put on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeMismatch {
    /// Bytes of a key in the map.
    pub key_size: u32,
    /// Bytes of a value in the map, of one CPU.
    pub value_size: u32,
    /// Bytes of the key type.
    pub wanted_key_size: u32,
    /// Bytes of the value type.
    pub wanted_value_size: u32,
}

impl fmt::Display for SizeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the map has keys of {} and values of {} bytes, the types have {} and {}",
            self.key_size, self.value_size, self.wanted_key_size, self.wanted_value_size
        )
    }
}

impl core::error::Error for SizeMismatch {}

fn check<K, V>(map: &MapFd, want_value_bytes: usize) -> Result<(), SizeMismatch> {
    if map.key_size() == size_of::<K>() && map.value_bytes() == want_value_bytes {
        return Ok(());
    }
    Err(SizeMismatch {
        key_size: map.key_size() as u32,
        value_size: map.value_bytes() as u32,
        wanted_key_size: size_of::<K>() as u32,
        wanted_value_size: size_of::<V>() as u32,
    })
}

/// A map seen through a key and a value type, which any bytes are valid for (zerocopy's traits say so).
#[derive(Debug)]
pub struct Map<'m, K, V> {
    map: MapRef<'m>,
    types: PhantomData<fn(K) -> V>,
}

impl<'m, K, V> Map<'m, K, V>
where
    K: FromBytes + IntoBytes + Immutable,
    V: FromBytes + IntoBytes + Immutable,
{
    /// Puts the types on a map.
    ///
    /// # Errors
    /// [`SizeMismatch`]; a per-CPU map's values never fit ([`PerCpuMap`] is for those).
    pub fn new(map: impl Into<MapRef<'m>>) -> Result<Self, SizeMismatch> {
        let map = map.into();
        check::<K, V>(&map, size_of::<V>())?;
        Ok(Map { map, types: PhantomData })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The kernel's, other than ENOENT.
    pub fn get(&self, key: &K) -> Result<Option<V>, Errno> {
        let mut value = V::new_zeroed();
        match self.map.lookup(key.as_bytes(), value.as_mut_bytes(), 0) {
            Ok(()) => Ok(Some(value)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Sets a key's value. `flags`: 0 any, 1 only new, 2 only existing.
    ///
    /// # Errors
    /// The kernel's.
    pub fn insert(&self, key: &K, value: &V, flags: u64) -> Result<(), Errno> {
        self.map.update(key.as_bytes(), value.as_bytes(), flags)
    }

    /// Deletes a key; false where there was none.
    ///
    /// # Errors
    /// The kernel's, other than ENOENT.
    pub fn remove(&self, key: &K) -> Result<bool, Errno> {
        match self.map.delete(key.as_bytes()) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// The keys. What others add or delete meanwhile may be seen or not, and a hash map starts anew where the key at hand
    /// was deleted; so the walk ends after four times as many keys as the map can hold.
    pub fn keys(&self) -> Keys<'_, K> {
        Keys { map: &self.map, at: None, left: u64::from(self.map.max_entries()) * 4 + 1 }
    }

    /// Keys and values; a key deleted between the two calls is left out.
    pub fn iter(&self) -> impl Iterator<Item = Result<(K, V), Errno>> + use<'_, 'm, K, V> {
        self.keys().filter_map(move |key| {
            let key = match key {
                Ok(key) => key,
                Err(errno) => return Some(Err(errno)),
            };
            match self.get(&key) {
                Ok(Some(value)) => Some(Ok((key, value))),
                Ok(None) => None,
                Err(errno) => Some(Err(errno)),
            }
        })
    }
}

/// The iterator of [`Map::keys`].
#[derive(Debug)]
pub struct Keys<'m, K> {
    map: &'m MapFd,
    at: Option<K>,
    left: u64,
}

impl<K: FromBytes + IntoBytes + Immutable> Iterator for Keys<'_, K> {
    type Item = Result<K, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let mut next = K::new_zeroed();
        let at = self.at.as_ref().map(IntoBytes::as_bytes);
        match self.map.next_key(at, next.as_mut_bytes()) {
            Ok(true) => {
                // K need not be Copy: a second one from the same bytes, which always succeeds at the same size.
                self.at = K::read_from_bytes(next.as_bytes()).ok();
                Some(Ok(next))
            }
            Ok(false) => {
                self.left = 0;
                None
            }
            Err(errno) => {
                self.left = 0;
                Some(Err(errno))
            }
        }
    }
}

/// A per-CPU map seen through types: each value has one `V` per possible CPU, 8-byte aligned.
#[derive(Debug)]
pub struct PerCpuMap<'m, K, V> {
    map: MapRef<'m>,
    types: PhantomData<fn(K) -> V>,
}

impl<'m, K, V> PerCpuMap<'m, K, V>
where
    K: FromBytes + IntoBytes + Immutable,
    V: FromBytes + IntoBytes + Immutable,
{
    const STEP: usize = size_of::<V>().next_multiple_of(8);

    /// Puts the types on a per-CPU map.
    ///
    /// # Errors
    /// [`SizeMismatch`]; also where the map is not per-CPU.
    pub fn new(map: impl Into<MapRef<'m>>) -> Result<Self, SizeMismatch> {
        let map = map.into();
        // The map was asked for its bytes with the CPUs counted. No value fits what is not per-CPU.
        let fits = bpf::is_per_cpu(map.map_type()) && map.value_size().next_multiple_of(8) == Self::STEP;
        check::<K, V>(&map, if fits { map.value_bytes() } else { usize::MAX })?;
        Ok(PerCpuMap { map, types: PhantomData })
    }

    /// Bytes that [`PerCpuMap::get`] and [`PerCpuMap::insert`] need as a buffer.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        self.map.value_bytes()
    }

    /// The values of a key, one per possible CPU in ascending order, read into the caller's buffer.
    ///
    /// # Errors
    /// The kernel's other than ENOENT; EINVAL for a buffer shorter than [`PerCpuMap::buffer_len`].
    pub fn get<'b>(
        &self,
        key: &K,
        buffer: &'b mut [u8],
    ) -> Result<Option<impl Iterator<Item = V> + use<'b, K, V>>, Errno> {
        let buffer = buffer.get_mut(..self.buffer_len()).ok_or(Errno::EINVAL)?;
        match self.map.lookup(key.as_bytes(), buffer, 0) {
            Ok(()) => {}
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        let buffer: &'b [u8] = buffer;
        Ok(Some(
            buffer.chunks_exact(Self::STEP).filter_map(|chunk| V::read_from_prefix(chunk).ok().map(|(value, _)| value)),
        ))
    }

    /// Sets the values of a key: `value` is asked for each possible CPU, counted from 0 without gaps.
    ///
    /// # Errors
    /// The kernel's; EINVAL for a buffer shorter than [`PerCpuMap::buffer_len`].
    pub fn insert(&self, key: &K, buffer: &mut [u8], mut value: impl FnMut(u32) -> V, flags: u64) -> Result<(), Errno> {
        let buffer = buffer.get_mut(..self.buffer_len()).ok_or(Errno::EINVAL)?;
        buffer.fill(0);
        for (cpu, chunk) in buffer.chunks_exact_mut(Self::STEP).enumerate() {
            value(cpu as u32).write_to_prefix(chunk).map_err(|_| Errno::EINVAL)?;
        }
        self.map.update(key.as_bytes(), buffer, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fake::{install, some_fd, u32_at};
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn names() {
        for (name, want) in [
            (&b"events"[..], "events"),
            (b"a_very_long_map_name", "a_very_long_map"),
            (b".rodata.str1-1", ".rodata.str1_1"),
            (b"a b\xffc", "a_b_c"),
            (b"", ""),
        ] {
            let got = kernel_name(name);
            assert_eq!(got[15], 0);
            assert_eq!(&got[..want.len()], want.as_bytes());
            assert!(got[want.len()..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn entries() {
        let page = page_size() as u32;
        assert_eq!(normalized_entries(map_type::HASH, 0), Ok(0));
        assert_eq!(normalized_entries(map_type::PERF_EVENT_ARRAY, 7), Ok(7));
        assert_eq!(normalized_entries(map_type::PERF_EVENT_ARRAY, 0), crate::sys::cpus::possible_cpus());
        assert_eq!(normalized_entries(map_type::RINGBUF, 1), Ok(page));
        assert_eq!(normalized_entries(map_type::RINGBUF, 5 * page), Ok(8 * page));
        assert_eq!(normalized_entries(map_type::RINGBUF, u32::MAX), Err(Errno::E2BIG));
    }

    /// Offsets in the argument block of BPF_MAP_CREATE.
    const NAME: usize = 28;
    const BTF_FD: usize = 48;

    fn spec(btf: BorrowedFd<'_>) -> MapSpec<'_> {
        MapSpec {
            name: b"a.b",
            map_type: map_type::HASH,
            key_size: 4,
            value_size: 8,
            max_entries: 1,
            btf_fd: Some(btf),
            btf_key_type_id: 1,
            btf_value_type_id: 2,
            ..MapSpec::default()
        }
    }

    #[test]
    fn what_an_old_kernel_refuses_is_left_out_step_by_step() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&seen);
        let _guard = install(move |_, block| {
            let btf = u32_at(block, BTF_FD) != 0;
            let name = block[NAME..NAME + 3].to_vec();
            log.borrow_mut().push((btf, name.clone()));
            Some(if name == [0; 3] { Ok(some_fd()) } else { Err(Errno::EINVAL) })
        });
        create(&spec(null.as_fd()), Memlock::Keep).unwrap();
        assert_eq!(
            *seen.borrow(),
            [(true, b"a.b".to_vec()), (false, b"a.b".to_vec()), (false, b"a_b".to_vec()), (false, vec![0; 3]),]
        );
    }

    #[test]
    fn the_first_refusal_is_reported_and_eperm_is_final() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let calls = Rc::new(RefCell::new(0));
        let count = Rc::clone(&calls);
        let guard = install(move |_, _| {
            *count.borrow_mut() += 1;
            let errno = if *count.borrow() == 1 { Errno::E2BIG } else { Errno::EINVAL };
            Some(Err(errno))
        });
        let error = create(&spec(null.as_fd()), Memlock::Keep).err();
        assert_eq!((error, *calls.borrow()), (Some(Errno::E2BIG), 4));
        drop(guard);
        let _guard = install(|_, _| Some(Err(Errno::EPERM)));
        let error = create(&spec(null.as_fd()), Memlock::RaiseIfRefused).err();
        assert_eq!(error, Some(Errno::EPERM));
    }

    #[test]
    fn slices_of_the_wrong_length_never_reach_the_kernel() {
        let guard = install(|command, _| (command == bpf::cmd::MAP_CREATE).then(|| Ok(some_fd())));
        let map = create(
            &MapSpec { map_type: map_type::HASH, key_size: 4, value_size: 8, max_entries: 1, ..MapSpec::default() },
            Memlock::Keep,
        )
        .unwrap();
        drop(guard);
        let _guard = install(|_, _| panic!("the kernel was called"));
        assert_eq!(map.lookup(&[0; 3], &mut [0; 8], 0), Err(Errno::EINVAL));
        assert_eq!(map.lookup(&[0; 4], &mut [0; 7], 0), Err(Errno::EINVAL));
        assert_eq!(map.update(&[0; 4], &[0; 9], 0), Err(Errno::EINVAL));
        assert_eq!(map.delete(&[]), Err(Errno::EINVAL));
        assert_eq!(map.next_key(Some(&[0; 4]), &mut [0; 3]), Err(Errno::EINVAL));
        assert_eq!(map.next_key(Some(&[0; 5]), &mut [0; 4]), Err(Errno::EINVAL));
        assert_eq!(
            Map::<u32, u32>::new(&map).unwrap_err().to_string(),
            "the map has keys of 4 and values of 8 bytes, the types have 4 and 4"
        );
        assert!(Map::<u32, u64>::new(&map).is_ok());
        assert!(PerCpuMap::<u32, u64>::new(&map).is_err());
    }
}

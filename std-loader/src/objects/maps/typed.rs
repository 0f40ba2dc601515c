//! Maps whose keys and values have types, plain old data.

use core::fmt;
use core::marker::PhantomData;

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::sys::Errno;
use crate::sys::bpf::{self, MapFd};
use crate::sys::fd_table::MapRef;

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

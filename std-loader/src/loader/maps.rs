//! A created map, by its name, and what it holds as types.

use core::fmt::Write;
use core::marker::PhantomData;
use core::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::error::{Cause, Error};
use super::names::{Names, write_unknown};
use super::text::Text;
use crate::events::{PerfBuffer, PerfRing, RingBuffer};
use crate::load::Collection;
use crate::objects::{Map, PerCpuMap};
use crate::report::Name;
use crate::sys::Errno;
use crate::sys::bpf::MapFd;
use crate::sys::fd_table::MapRef;
use corelo_core::object::MapId;
use corelo_core::uapi::map_type;

/// A map of a collection, in the kernel. Its operations on bytes are those of [`MapFd`].
#[derive(Debug)]
pub struct CollectionMap<'c> {
    collection: &'c Collection<'c>,
    id: MapId,
    map: MapRef<'c>,
}

impl AsFd for CollectionMap<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Deref for CollectionMap<'_> {
    type Target = MapFd;

    fn deref(&self) -> &MapFd {
        &self.map
    }
}

impl<'a> Collection<'a> {
    /// A created map by its name in the source: `stats`, `.bss`.
    ///
    /// # Errors
    /// [`Cause::Unknown`], with the names that there are; [`Cause::NotLoaded`]; [`Cause::Kernels`] where the kernel does not
    /// describe it.
    pub fn raw_map(&self, name: &str) -> Result<CollectionMap<'_>, Error> {
        let names = Names(self.prepared());
        let mut is_there = false;
        for (id, _) in self.prepared().declared().maps_by_id() {
            if names.map(id) == name.as_bytes() {
                is_there = true;
                if let Some(map) = self.map_at(id) {
                    return map;
                }
            }
        }
        Err(match is_there {
            true => Error::new(Cause::NotLoaded, |text| {
                write!(text, "map {name} is not created: it was not wanted, or no loaded program uses it")
            }),
            false => Error::new(Cause::Unknown, |text| write_unknown(text, "map", name, names.maps())),
        })
    }

    /// All created maps, in the object's order.
    pub fn maps(&self) -> impl Iterator<Item = Result<CollectionMap<'_>, Error>> {
        self.prepared().declared().maps_by_id().filter_map(|(id, _)| self.map_at(id))
    }

    fn map_at(&self, id: MapId) -> Option<Result<CollectionMap<'_>, Error>> {
        let fd = self.map_fd(id)?;
        let map = MapRef::new(fd).map(|map| CollectionMap { collection: self, id, map });
        Some(map.map_err(|errno| {
            let name = Names(self.prepared()).map(id);
            map_error(Cause::Kernels(errno), name, |text| write!(text, "the kernel does not describe it: {errno}"))
        }))
    }

    /// A map, seen through the types of its keys and values.
    ///
    /// # Errors
    /// As [`Collection::raw_map`]; [`Cause::Size`] where the types have other sizes than the map. Of a map with a value for
    /// each CPU the types are told by [`Collection::per_cpu_map`].
    pub fn map<K, V>(&self, name: &str) -> Result<Map<'_, K, V>, Error>
    where
        K: FromBytes + IntoBytes + Immutable,
        V: FromBytes + IntoBytes + Immutable,
    {
        self.raw_map(name)?.typed()
    }

    /// A map that has a value for each CPU, seen through the types of its keys and values.
    ///
    /// # Errors
    /// As [`Collection::map`].
    pub fn per_cpu_map<K, V>(&self, name: &str) -> Result<PerCpuMap<'_, K, V>, Error>
    where
        K: FromBytes + IntoBytes + Immutable,
        V: FromBytes + IntoBytes + Immutable,
    {
        self.raw_map(name)?.per_cpu()
    }

    /// The reader of a ring buffer: there is one for each map in a process.
    ///
    /// # Errors
    /// As [`Collection::raw_map`]; [`Cause::Ring`].
    pub fn ring(&self, name: &str) -> Result<RingBuffer, Error> {
        self.raw_map(name)?.ring()
    }

    /// The rings of a map of perf events: one of `pages` data pages (a power of two) on each online CPU, in `rings`, which has
    /// a place for each.
    ///
    /// # Errors
    /// As [`Collection::raw_map`]; [`Cause::Ring`].
    pub fn perf_buffer<'r>(
        &self,
        name: &str,
        pages: u32,
        rings: &'r mut [Option<PerfRing>],
    ) -> Result<PerfBuffer<'r>, Error> {
        self.raw_map(name)?.perf_buffer(pages, rings)
    }

    /// A program array, whose slots take programs.
    ///
    /// # Errors
    /// As [`Collection::raw_map`]; [`Cause::Kernels`] with EINVAL where it is no program array.
    pub fn program_array(&self, name: &str) -> Result<ProgramArray<'_>, Error> {
        let map = self.raw_map(name)?;
        match map.map_type() {
            map_type::PROG_ARRAY => Ok(ProgramArray { map }),
            _ => Err(map.error(Cause::Kernels(Errno::EINVAL), |text| text.write_str("it is no program array"))),
        }
    }

    /// An array or hash of maps, whose entries take maps.
    ///
    /// # Errors
    /// As [`Collection::raw_map`]; [`Cause::Kernels`] with EINVAL where it is none, or its keys are not of the size of `K`.
    pub fn map_of_maps<K: IntoBytes + Immutable>(&self, name: &str) -> Result<MapsOfMaps<'_, K>, Error> {
        let map = self.raw_map(name)?;
        let is_one = matches!(map.map_type(), map_type::ARRAY_OF_MAPS | map_type::HASH_OF_MAPS);
        match is_one && map.key_size() == size_of::<K>() {
            true => Ok(MapsOfMaps { map, keys: PhantomData }),
            false => Err(map.error(Cause::Kernels(Errno::EINVAL), |text| {
                let (found, wanted) = (map.key_size(), size_of::<K>());
                write!(text, "it is no map of maps with keys of {wanted} bytes: its keys have {found}")
            })),
        }
    }
}

impl<'c> CollectionMap<'c> {
    /// Its name in the source.
    #[must_use]
    pub fn name(&self) -> &'c [u8] {
        Names(self.collection.prepared()).map(self.id)
    }

    /// Which of the object's maps it is.
    #[must_use]
    pub fn id(&self) -> MapId {
        self.id
    }

    /// It, seen through the types of its keys and values.
    ///
    /// # Errors
    /// [`Cause::Size`]
    pub fn typed<K, V>(self) -> Result<Map<'c, K, V>, Error>
    where
        K: FromBytes + IntoBytes + Immutable,
        V: FromBytes + IntoBytes + Immutable,
    {
        let name = self.name();
        Map::new(self.map).map_err(|error| map_error(Cause::Size(error), name, |text| write!(text, "{error}")))
    }

    /// It, with a value for each CPU, seen through the types of its keys and values.
    ///
    /// # Errors
    /// [`Cause::Size`]
    pub fn per_cpu<K, V>(self) -> Result<PerCpuMap<'c, K, V>, Error>
    where
        K: FromBytes + IntoBytes + Immutable,
        V: FromBytes + IntoBytes + Immutable,
    {
        let name = self.name();
        PerCpuMap::new(self.map).map_err(|error| map_error(Cause::Size(error), name, |text| write!(text, "{error}")))
    }

    /// The reader of its ring buffer.
    ///
    /// # Errors
    /// [`Cause::Ring`]
    pub fn ring(&self) -> Result<RingBuffer, Error> {
        RingBuffer::new(self.as_fd()).map_err(|error| self.error(Cause::Ring(error), |text| write!(text, "{error}")))
    }

    /// The rings of its perf events: see [`Collection::perf_buffer`].
    ///
    /// # Errors
    /// [`Cause::Ring`]
    pub fn perf_buffer<'r>(&self, pages: u32, rings: &'r mut [Option<PerfRing>]) -> Result<PerfBuffer<'r>, Error> {
        PerfBuffer::open(self, pages, rings)
            .map_err(|error| self.error(Cause::Ring(error), |text| write!(text, "{error}")))
    }

    fn error(&self, cause: Cause, write: impl FnOnce(&mut Text) -> core::fmt::Result) -> Error {
        map_error(cause, self.name(), write)
    }
}

fn map_error(cause: Cause, name: &[u8], write: impl FnOnce(&mut Text) -> core::fmt::Result) -> Error {
    Error::new(cause, |text| {
        write!(text, "map {}: ", Name(name))?;
        write(text)
    })
}

/// A program array: what `bpf_tail_call` jumps into.
#[derive(Debug)]
pub struct ProgramArray<'c> {
    map: CollectionMap<'c>,
}

impl ProgramArray<'_> {
    /// Puts a program into a slot.
    ///
    /// # Errors
    /// [`Cause::Kernels`]: E2BIG for a slot that the array does not have, EINVAL for a program of another type than those that
    /// are in it.
    pub fn set(&self, slot: u32, program: impl AsFd) -> Result<(), Error> {
        let fd = program.as_fd().as_raw_fd();
        self.done(slot, self.map.update(slot.as_bytes(), fd.as_bytes(), 0))
    }

    /// Empties a slot; false where it is empty.
    ///
    /// # Errors
    /// [`Cause::Kernels`]
    pub fn clear(&self, slot: u32) -> Result<bool, Error> {
        match self.map.delete(slot.as_bytes()) {
            Err(Errno::ENOENT) => Ok(false),
            deleted => self.done(slot, deleted).map(|()| true),
        }
    }

    fn done(&self, slot: u32, result: Result<(), Errno>) -> Result<(), Error> {
        result.map_err(|errno| self.map.error(Cause::Kernels(errno), |text| write!(text, "slot {slot}: {errno}")))
    }
}

/// An array or hash of maps.
#[derive(Debug)]
pub struct MapsOfMaps<'c, K> {
    map: CollectionMap<'c>,
    keys: PhantomData<fn(K)>,
}

impl<K: IntoBytes + Immutable> MapsOfMaps<'_, K> {
    /// Puts a map into an entry.
    ///
    /// # Errors
    /// [`Cause::Kernels`]: EINVAL for a map unlike the inner map of the definition, E2BIG for an index that an array does not
    /// have.
    pub fn insert(&self, key: &K, map: impl AsFd) -> Result<(), Error> {
        let fd = map.as_fd().as_raw_fd();
        self.done(self.map.update(key.as_bytes(), fd.as_bytes(), 0))
    }

    /// Empties an entry; false where it is empty.
    ///
    /// # Errors
    /// [`Cause::Kernels`]
    pub fn remove(&self, key: &K) -> Result<bool, Error> {
        match self.map.delete(key.as_bytes()) {
            Err(Errno::ENOENT) => Ok(false),
            deleted => self.done(deleted).map(|()| true),
        }
    }

    fn done(&self, result: Result<(), Errno>) -> Result<(), Error> {
        result.map_err(|errno| self.map.error(Cause::Kernels(errno), |text| write!(text, "an entry of it: {errno}")))
    }
}

//! Global variables of a loaded object, by name.

use std::os::fd::BorrowedFd;

use corelo_core::btf::TypeId;
use corelo_core::object::{Map, MapId, Variable};
use corelo_core::uapi::{BPF_F_MMAPABLE, map_type};
use zerocopy::IntoBytes;

use super::Collection;
use crate::objects::maps;
use crate::sys::Errno;
use crate::sys::fd_table::MapRef;
use crate::sys::mmap::{AnonMap, ArrayMap};

/// A global variable of a loaded object. Where the kernel can map its section (Linux 5.5), it is read and written in
/// place, as programs do; else through the section's whole value.
#[derive(Debug)]
pub struct VariableRef<'c> {
    map: MapRef<'c>,
    mapping: Option<ArrayMap>,
    variable: Variable,
}

/// The map in which a program counts what it found no room for: an array, per CPU or not, of one 64-bit id.
const LOST: &str = "lost";

impl Collection<'_> {
    /// How many records the object's programs found no room for in their rings, by their own count in a map called `lost`
    /// (an array, per CPU or not, of one 64-bit id); `None` where the object has none. The kernel itself counts nothing
    /// of a ring buffer.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn lost(&self) -> Result<Option<u64>, Errno> {
        let mut maps = self.prepared.declared().maps_by_id();
        let is_it =
            |(id, map): &(MapId, &Map)| self.prepared.map_name(map) == LOST.as_bytes() && self.map_fd(*id).is_some();
        let Some(fd) = maps.find(is_it).and_then(|(id, _)| self.map_fd(id)) else { return Ok(None) };
        let map = MapRef::new(fd)?;
        let is_array = matches!(map.map_type(), map_type::ARRAY | map_type::PERCPU_ARRAY);
        if !is_array || (map.value_size(), map.max_entries()) != (8, 1) {
            return Ok(None);
        }
        let mut memory = AnonMap::new(map.value_bytes())?;
        let counts = memory.get_mut(..map.value_bytes()).ok_or(Errno::ENOMEM)?;
        map.lookup(0u32.as_bytes(), counts, 0)?;
        let counts = counts.as_chunks::<8>().0.iter().map(|count| u64::from_ne_bytes(*count));
        Ok(Some(counts.fold(0, u64::saturating_add)))
    }

    /// A global variable that [`Prepared::variable`](corelo_core::prepare::Prepared::variable) found; `None` where its
    /// section is not created, as no loaded program uses it.
    pub(crate) fn variable(&self, variable: Variable) -> Option<Result<VariableRef<'_>, Errno>> {
        Some(VariableRef::new(self.map_fd(variable.map)?, variable))
    }
}

impl<'c> VariableRef<'c> {
    fn new(fd: BorrowedFd<'c>, variable: Variable) -> Result<Self, Errno> {
        let map = MapRef::new(fd)?;
        let mapping = if map.map_flags() & BPF_F_MMAPABLE != 0 {
            let mapped = match maps::mmap(&map, true) {
                // What is frozen can be mapped to be read.
                Err(Errno::EPERM | Errno::EACCES) => maps::mmap(&map, false),
                mapped => mapped,
            };
            match mapped {
                Ok(mapping) => Some(mapping),
                // Kernels that cannot map this map; any other error is one, as the whole value is no full substitute.
                Err(Errno::EINVAL | Errno::ENODEV | Errno::ENOTSUPP | Errno::EPERM | Errno::EACCES) => None,
                Err(errno) => return Err(errno),
            }
        } else {
            None
        };
        Ok(Self { map, mapping, variable })
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        self.variable.byte_size as usize
    }

    /// Its type in the object's BTF.
    #[must_use]
    pub fn type_id(&self) -> TypeId {
        self.variable.type_id
    }

    /// Whether it is mapped into this process.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.mapping.is_some()
    }

    /// Copies its bytes, in the machine's order, into `out`.
    ///
    /// # Errors
    /// EINVAL where `out` has not [`VariableRef::byte_size`] bytes; the kernel's error.
    pub fn read(&self, out: &mut [u8]) -> Result<(), Errno> {
        if out.len() != self.byte_size() {
            return Err(Errno::EINVAL);
        }
        let start = self.variable.byte_offset as usize;
        if let Some(mapping) = &self.mapping {
            return mapping.read(start, out);
        }
        self.whole(|value| {
            out.copy_from_slice(value.get(start..start.saturating_add(out.len())).ok_or(Errno::ERANGE)?);
            Ok(false)
        })
    }

    /// Sets it to `bytes`. Not in place, other variables of its section that programs change meanwhile may be set back.
    ///
    /// # Errors
    /// EINVAL where there are not [`VariableRef::byte_size`] bytes; EACCES or EPERM for one that programs only read.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.len() != self.byte_size() {
            return Err(Errno::EINVAL);
        }
        let start = self.variable.byte_offset as usize;
        if let Some(mapping) = &self.mapping {
            return mapping.write(start, bytes);
        }
        self.whole(|value| {
            let place = value.get_mut(start..start.saturating_add(bytes.len())).ok_or(Errno::ERANGE)?;
            place.copy_from_slice(bytes);
            Ok(true)
        })
    }

    /// Works on a copy of the section's value, which is written back where `work` says so.
    fn whole(&self, work: impl FnOnce(&mut [u8]) -> Result<bool, Errno>) -> Result<(), Errno> {
        let size = self.map.value_bytes();
        let mut memory = AnonMap::new(size)?;
        let value = memory.get_mut(..size).ok_or(Errno::ENOMEM)?;
        let key = 0u32;
        self.map.lookup(key.as_bytes(), value, 0)?;
        if work(value)? { self.map.update(key.as_bytes(), value, 0) } else { Ok(()) }
    }
}

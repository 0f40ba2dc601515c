//! What maps hold from the start: global data with the caller's variables in it, arenas, slots of maps and programs.

use std::os::fd::AsRawFd;

use corelo_core::arena::{Arena, Part};
use corelo_core::object::{Map, MapId, MapOrigin, ProgramId, SlotTarget};
use corelo_core::prepare::Prepared;
use corelo_core::uapi::{BPF_F_RDONLY_PROG, map_type};
use zerocopy::IntoBytes;

use super::error::extern_error;
use super::{Change, Collection, LoadError, LoadOptions};
use crate::kernel::{Feature, Features};
use crate::load::externs::write_kconfig;
use crate::objects::Memlock;
use crate::sys::mmap::ArrayMap;
use crate::sys::{Errno, bpf, page_size};

/// The first contents of a map of global data: the object's own bytes, or a copy with the caller's variables in it.
/// Empty for what starts as zeros.
pub(super) fn contents<'s, 'a: 's>(
    prepared: &Prepared<'a>,
    id: MapId,
    map: &Map,
    options: &LoadOptions<'_>,
    scratch: &mut Arena<'s>,
) -> Result<&'s [u8], LoadError> {
    let data: &'s [u8] = map.initial_data(prepared.object());
    let placed = || {
        options.settings().filter_map(|setting| {
            let Change::Value(bytes) = setting.change else { return None };
            // Checked before: there is such a variable.
            let variable = prepared.variable(setting.name.as_bytes()).ok().flatten()?;
            (variable.map == id).then_some((variable, bytes))
        })
    };
    if placed().next().is_none() {
        return Ok(data);
    }
    let copy = scratch.slice::<u8>(map.value_size as usize, Part::MapData)?;
    if let Some(place) = copy.get_mut(..data.len()) {
        place.copy_from_slice(data);
    }
    for (variable, bytes) in placed() {
        let start = variable.byte_offset as usize;
        if let Some(place) = copy.get_mut(start..start.saturating_add(bytes.len())) {
            place.copy_from_slice(bytes);
        }
    }
    Ok(copy)
}

/// A slot of a program array whose program was not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmptySlot {
    /// The map's index.
    pub map: MapId,
    /// The slot in it.
    pub index: u32,
    /// The program's index as a function.
    pub program: ProgramId,
}

impl<'a> Collection<'a> {
    /// Writes the first contents of global data and arenas, and freezes what programs only read.
    pub(super) fn fill<'s>(
        &mut self,
        id: MapId,
        map: &Map,
        options: &LoadOptions<'_>,
        scratch: &mut Arena<'s>,
    ) -> Result<(), LoadError>
    where
        'a: 's,
    {
        let failed = |errno: Errno| LoadError::MapFill { map: id, errno };
        let data = match map.origin() {
            MapOrigin::Data(_) => contents(&self.prepared, id, map, options, scratch)?,
            MapOrigin::Kconfig => {
                let data = scratch.slice::<u8>(map.value_size as usize, Part::MapData)?;
                write_kconfig(&self.prepared, data, options.memlock).map_err(extern_error)?;
                data
            }
            _ if map.map_type == map_type::ARENA => {
                let pages = options.max_entries(self.prepared.map_name(map)).unwrap_or(map.max_entries);
                return self.map_arena(id, map, pages, options.memlock).map_err(failed);
            }
            _ => return Ok(()),
        };
        let Some(fd) = self.map_fd(id) else { return Ok(()) };
        if !data.is_empty() {
            bpf::update_array(fd, data, map.value_size).map_err(failed)?;
        }
        if map.flags & BPF_F_RDONLY_PROG != 0 {
            match bpf::freeze(fd) {
                // Kernels before 5.2 cannot freeze; the program only reads it all the same.
                Ok(()) | Err(Errno::EINVAL) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }

    /// An arena's addresses are those of its first mapping, so programs load only after that. Its variables are at its
    /// end, so that address 0 of it is none of them, where the kernel can load such addresses; else at its start, which
    /// every kernel can, also one that cannot be asked (libbpf: `bpf_object__relocate`).
    fn map_arena(&mut self, id: MapId, map: &Map, pages: u32, memlock: Memlock) -> Result<(), Errno> {
        let Some(fd) = self.map_fd(id) else { return Ok(()) };
        let data = map.initial_data(self.prepared.object());
        let len = (pages as usize).checked_mul(page_size()).ok_or(Errno::E2BIG)?;
        let at_end = len.checked_sub(data.len().next_multiple_of(page_size())).ok_or(Errno::E2BIG)?;
        let mapping = ArrayMap::arena(fd, len, usize::try_from(map.extra).map_err(|_| Errno::EINVAL)?)?;
        if !data.is_empty() && Features::new(memlock).get(Feature::LdImm64FullRange).is_present() {
            self.arena_data_offset = u32::try_from(at_end).map_err(|_| Errno::E2BIG)?;
        }
        mapping.write(self.arena_data_offset as usize, data)?;
        self.arena = Some(mapping);
        Ok(())
    }

    /// Puts inner maps into the slots that the definitions fill.
    pub(super) fn fill_map_slots(&self) -> Result<(), LoadError> {
        for slot in self.prepared.slots() {
            let slot = slot.map_err(|error| LoadError::Prepare(error.into()))?;
            let (SlotTarget::Map(inner), Some(_)) = (slot.target, self.map_fd(slot.map)) else { continue };
            self.fill_slot(slot.map, slot.index, self.map_fd(inner).map(|fd| fd.as_raw_fd()))?;
        }
        Ok(())
    }

    /// Puts loaded programs into the slots that the definitions fill; the slot of one that was not to be loaded stays
    /// empty.
    pub(super) fn fill_program_slots(&self) -> Result<(), LoadError> {
        for slot in self.prepared.slots() {
            let slot = slot.map_err(|error| LoadError::Prepare(error.into()))?;
            let SlotTarget::Program(program) = slot.target else { continue };
            let (Some(fd), Some(_)) = (self.program_fd(program), self.map_fd(slot.map)) else { continue };
            self.fill_slot(slot.map, slot.index, Some(fd.as_raw_fd()))?;
        }
        Ok(())
    }

    /// The slots that definitions fill with programs that were not loaded, each once: they are empty, and a tail call to
    /// one goes on behind it. Where a map was not created none of its slots is listed.
    pub fn empty_slots(&self) -> impl Iterator<Item = EmptySlot> {
        self.prepared.slots().map_while(Result::ok).filter_map(|slot| {
            let SlotTarget::Program(program) = slot.target else { return None };
            self.map_fd(slot.map)?;
            let empty = EmptySlot { map: slot.map, index: slot.index, program };
            self.program_fd(program).is_none().then_some(empty)
        })
    }

    fn fill_slot(&self, map: MapId, index: u32, fd: Option<i32>) -> Result<(), LoadError> {
        let failed = |errno: Errno| LoadError::Slot { map, index, errno };
        let holder = self.map_fd(map).ok_or(failed(Errno::ENOENT))?;
        let holder = crate::sys::fd_table::MapRef::new(holder).map_err(failed)?;
        let fd = fd.ok_or(failed(Errno::ENOENT))?;
        holder.update(index.as_bytes(), fd.as_bytes(), 0).map_err(failed)
    }
}

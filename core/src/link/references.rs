//! What a program refers to: maps, global data, externs.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::arena::{Arena, Part};
use crate::insn::{Insn, pseudo};
use crate::limits::MAX_USED_MAPS;
use crate::numbers::to_usize;
use crate::object::elf::Symbol;
use crate::object::{ARENA_SECTION, CodeSection, Extern, ExternId, ExternKind, Map, MapId, MapOrigin};
use crate::uapi::map_type;

use super::{LinkCause, LinkError, Linker, Placement};

/// What a reference stands for.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceKind {
    /// A map's descriptor.
    Map(MapId),
    /// A map's descriptor with an offset into its value.
    MapValue(MapId),
    /// A 64-bit load of an extern.
    ExternLoad(ExternId),
    /// A call of an extern.
    ExternCall(ExternId),
}

pub(super) const MAP: u16 = 0;
pub(super) const MAP_VALUE: u16 = 1;
const EXTERN_LOAD: u16 = 2;
const EXTERN_CALL: u16 = 3;

/// An instruction whose immediate the loader fills in.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Reference {
    /// The slot in the linked program.
    pub insn_idx: u32,
    index: u16,
    kind: u16,
}

impl Reference {
    /// What it stands for.
    #[must_use]
    pub fn kind(&self) -> ReferenceKind {
        let index = u32::from(self.index);
        match self.kind {
            MAP => ReferenceKind::Map(MapId::new(index)),
            MAP_VALUE => ReferenceKind::MapValue(MapId::new(index)),
            EXTERN_LOAD => ReferenceKind::ExternLoad(ExternId::new(index)),
            _ => ReferenceKind::ExternCall(ExternId::new(index)),
        }
    }

    /// The map, of a reference to one.
    #[must_use]
    pub fn map(&self) -> Option<MapId> {
        match self.kind() {
            ReferenceKind::Map(map) | ReferenceKind::MapValue(map) => Some(map),
            ReferenceKind::ExternLoad(_) | ReferenceKind::ExternCall(_) => None,
        }
    }
}

/// The maps that one program refers to. The kernel takes no more of them, and an object may have thousands: so a reference
/// is looked for among a few, not among all of the object for every relocation.
#[derive(Default)]
pub(super) struct UsedMaps(heapless::Vec<u16, MAX_USED_MAPS>);

impl UsedMaps {
    /// The index of the first map that is asked for; those that were found before are looked at first.
    #[inline(never)]
    fn find(&mut self, maps: &[Map], wanted: Wanted) -> Result<Option<u16>, LinkCause> {
        let is_it = |map: &Map| match wanted {
            Wanted::Kconfig => map.origin() == MapOrigin::Kconfig,
            // A program with two, of which this may be either, is one that the kernel refuses.
            Wanted::Arena => map.map_type == map_type::ARENA,
            Wanted::At(section, address) => {
                map.section() == section
                    && (matches!(map.origin(), MapOrigin::Data(_)) || map.section_offset() == address)
            }
        };
        let is_known = |&&index: &&u16| maps.get(usize::from(index)).is_some_and(is_it);
        if let Some(&index) = self.0.iter().find(is_known) {
            return Ok(Some(index));
        }
        let found = maps.iter().position(is_it).and_then(|index| u16::try_from(index).ok());
        if let Some(index) = found {
            self.0.push(index).map_err(|_| LinkCause::TooManyMaps)?;
        }
        Ok(found)
    }
}

/// Which map.
#[derive(Clone, Copy)]
enum Wanted {
    Kconfig,
    Arena,
    /// The one that lies there: a section, and a byte of it.
    At(u32, u64),
}

impl<'l> Linker<'l> {
    /// Turns relocations against maps, data and externs into references.
    pub(super) fn apply_references<'s>(
        &self,
        placements: &[Placement],
        insns: &mut [Insn],
        scratch: &mut Arena<'s>,
    ) -> Result<&'s [Reference], LinkError> {
        let mut used = UsedMaps::default();
        let mut references = scratch.grow::<Reference>(Part::References);
        for place in placements {
            let code = self.code(place.function.index());
            for rel in code.rels(self) {
                let insn_idx = code.insn_idx(rel.offset);
                let symbol = self.symbol(&code, insn_idx, rel)?;
                let slot = place.insn_start.saturating_add(insn_idx);
                let Some(pair) = insns.get_mut(to_usize(slot)..) else { continue };
                let applied =
                    self.apply_reference(pair, &symbol, &mut used).map_err(|cause| code.error(insn_idx, cause))?;
                if let Some((kind, index)) = applied {
                    let reference = Reference { insn_idx: slot, index, kind };
                    references.push(reference).map_err(code.arena())?;
                }
            }
        }
        Ok(references.finish().map_err(self.code(0).arena())?)
    }

    /// The kind of the reference that a relocation becomes, and the index of the map or extern.
    pub(super) fn apply_reference(
        &self,
        insns: &mut [Insn],
        symbol: &Symbol<'_>,
        used: &mut UsedMaps,
    ) -> Result<Option<(u16, u16)>, LinkCause> {
        let endian = self.object.endian();
        let (first, rest) = insns.split_first_mut().ok_or(LinkCause::BadLdImm64)?;
        if first.is_call() {
            if !symbol.is_extern() {
                return Ok(None);
            }
            let (index, _) = self.find_extern(symbol)?;
            first.set_src_reg(pseudo::KFUNC_CALL, endian);
            first.set_imm(0, endian);
            return Ok(Some((EXTERN_CALL, index)));
        }
        if !first.is_ld_imm64() {
            return Err(LinkCause::UnsupportedInsn { code: first.code });
        }
        let second = rest.first_mut().ok_or(LinkCause::BadLdImm64)?;
        if symbol.is_extern() {
            let (index, ext) = self.find_extern(symbol)?;
            if first.imm(endian) != 0 {
                return Err(LinkCause::SymbolOffset { symbol: symbol.index });
            }
            second.set_imm(0, endian);
            if ext.kind() != ExternKind::Kconfig {
                return Ok(Some((EXTERN_LOAD, index)));
            }
            first.set_src_reg(pseudo::MAP_VALUE, endian);
            second.set_imm(ext.data_range().byte_offset.cast_signed(), endian);
            let map = used.find(self.declared.maps, Wanted::Kconfig)?;
            let map = map.ok_or(LinkCause::NoMap { symbol: symbol.index })?;
            return Ok(Some((MAP_VALUE, map)));
        }
        let section = symbol.section.ok_or(LinkCause::UndefinedSymbol { symbol: symbol.index })?;
        if self.declared.code.binary_search_by_key(&section, CodeSection::section).is_ok() {
            // A function's address: the rest is done where its place is known.
            first.set_src_reg(pseudo::FUNC, endian);
            return Ok(None);
        }
        // What lies there: the symbol may be the whole section's, and the offset in the instruction.
        let no_map = LinkCause::NoMap { symbol: symbol.index };
        let address = symbol.value.checked_add_signed(i64::from(first.imm(endian))).ok_or(no_map)?;
        let maps = self.declared.maps;
        let found = match used.find(maps, Wanted::At(section, address))? {
            None if self.object.section_name(section) == ARENA_SECTION => used.find(maps, Wanted::Arena)?,
            found => found,
        };
        let Some((index, map)) = found.and_then(|index| Some((index, maps.get(usize::from(index))?))) else {
            return Err(if maps.iter().any(|map| map.section() == section) {
                no_map
            } else {
                LinkCause::UnsupportedSection { symbol: symbol.index }
            });
        };
        // Global data, and what lies in an arena, is reached through the map's value; a map's own variable stands for the map.
        let is_value = map.section() != section || matches!(map.origin(), MapOrigin::Data(_));
        first.set_imm(0, endian);
        if !is_value {
            first.set_src_reg(pseudo::MAP_FD, endian);
            second.set_imm(0, endian);
            return Ok(Some((MAP, index)));
        }
        let size = self.object.elf().section(section).map_err(LinkCause::Object)?.size();
        let offset = u32::try_from(address).ok().filter(|_| address < size).ok_or(no_map)?;
        first.set_src_reg(pseudo::MAP_VALUE, endian);
        second.set_imm(offset.cast_signed(), endian);
        Ok(Some((MAP_VALUE, index)))
    }

    pub(super) fn find_extern(&self, symbol: &Symbol<'_>) -> Result<(u16, &'l Extern), LinkCause> {
        let undefined = LinkCause::UndefinedSymbol { symbol: symbol.index };
        let index = self.declared.externs.iter().position(|ext| ext.symbol() == symbol.index).ok_or(undefined)?;
        let ext = self.declared.externs.get(index).ok_or(undefined)?;
        Ok((u16::try_from(index).map_err(|_| undefined)?, ext))
    }
}

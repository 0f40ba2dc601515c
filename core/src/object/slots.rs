//! What a definition puts into a map from the start: the pointers of `.values = { [0] = &inner }`.
//!
//! The compiler leaves a relocation in `.rel.maps` for each (libbpf: `bpf_object__collect_map_relos`).

use elf::abi::SHT_REL;

use super::elf::{Rel, Rels, Section, Symbol};
use super::error::ObjectError;
use super::{CodeSection, Declared, Function, Map, MapId, MapOrigin, Object, ProgramId};
use crate::btf::Types;
use crate::bytes::Bytes;
use crate::numbers::to_u32;
use crate::uapi::map_type;

/// What fills a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotTarget {
    /// This map.
    Map(MapId),
    /// This program.
    Program(ProgramId),
}

/// A slot of a map that is filled from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The map.
    pub map: MapId,
    /// The index of the slot: the key.
    pub index: u32,
    /// What goes there.
    pub target: SlotTarget,
}

/// Bytes of a pointer in an object, whatever the kernel's are.
const POINTER_SIZE: u64 = 8;

/// The relocations of a section that holds no code.
pub(crate) fn rels_of<'o>(object: &Object<'o>, section: u32) -> Result<Rels<'o>, ObjectError> {
    for rels in object.elf().sections() {
        let rels = rels?;
        if rels.kind() == SHT_REL && rels.info() == section {
            return Rels::parse(&rels);
        }
    }
    Ok(Rels::new(Bytes::new(&[], object.endian())))
}

/// Where in `symbol`'s section a pointer in the data of section `holder` leads: what stands in its place counts from the
/// symbol, which may be the whole section's.
#[inline(never)]
fn pointee(object: &Object<'_>, holder: u32, rel: Rel, symbol: &Symbol<'_>) -> u64 {
    let in_place = |section: Section<'_>| section.data.u64(usize::try_from(rel.offset).ok()?);
    symbol.value.wrapping_add(object.elf().section(holder).ok().and_then(in_place).unwrap_or(0))
}

impl<'buf> Declared<'buf> {
    /// Every slot that is filled from the start, in the order of the relocations.
    pub(crate) fn slots<'s>(
        &'s self,
        object: &'s Object<'_>,
        local: &'s Types<'_>,
    ) -> Result<impl Iterator<Item = Result<Slot, ObjectError>> + use<'s, 'buf>, ObjectError> {
        let section = self.maps.iter().find(|map| map.origin() == MapOrigin::Btf).map_or(0, Map::section);
        let rels = match section {
            0 => Rels::new(Bytes::new(&[], object.endian())),
            section => rels_of(object, section)?,
        };
        Ok((0..rels.len())
            .map_while(move |index| rels.get(index))
            .map(move |rel| self.slot(object, local, section, rel)))
    }

    fn slot(&self, object: &Object<'_>, local: &Types<'_>, section: u32, rel: Rel) -> Result<Slot, ObjectError> {
        let bad = ObjectError::BadSlot { symbol: rel.symbol, offset: rel.offset };
        let symbol = object.elf().symbol(rel.symbol)?;
        let address = pointee(object, section, rel, &symbol);
        let before = |map: &Map| {
            map.origin() == MapOrigin::Btf && map.section() == section && map.section_offset() <= rel.offset
        };
        // The map in which the pointer lies is the last one that starts before it.
        let holders = self.maps_by_id().filter(|(_, map)| before(map));
        let (map_id, map) = holders.max_by_key(|(_, map)| map.section_offset()).ok_or(bad)?;
        let definition = local.get(map.definition())?;
        let values = definition.members().last().ok_or(bad)?;
        if local.string(values.name_off)? != b"values" {
            return Err(bad);
        }
        let start = map.section_offset().saturating_add(u64::from(values.bit_offset / 8));
        let place = rel.offset.checked_sub(start).filter(|place| place.is_multiple_of(POINTER_SIZE)).ok_or(bad)?;
        let index = u32::try_from(place / POINTER_SIZE).map_err(|_| bad)?;
        let target = match map.map_type {
            // A hash has keys that are slot numbers only where they are of that size.
            map_type::HASH_OF_MAPS if map.key_size != 4 => return Err(bad),
            map_type::ARRAY_OF_MAPS | map_type::HASH_OF_MAPS => {
                let is_it = |map: &Map| {
                    map.origin() == MapOrigin::Btf
                        && symbol.section == Some(map.section())
                        && map.section_offset() == address
                };
                SlotTarget::Map(self.maps.iter().position(is_it).map(|index| MapId::new(to_u32(index))).ok_or(bad)?)
            }
            map_type::PROG_ARRAY => {
                let function = self.function_of(symbol.section.ok_or(bad)?, address).ok_or(bad)?;
                if !self.function(function).is_some_and(Function::is_program) {
                    return Err(bad);
                }
                SlotTarget::Program(function)
            }
            _ => return Err(bad),
        };
        Ok(Slot { map: map_id, index, target })
    }

    /// The function that starts at byte `offset` of a section.
    pub(crate) fn function_of(&self, section: u32, offset: u64) -> Option<ProgramId> {
        let code = self.code.binary_search_by_key(&section, CodeSection::section).ok()?;
        self.function_at(code, crate::insn::whole_slot_of(offset)?).map(|index| ProgramId::new(to_u32(index)))
    }
}

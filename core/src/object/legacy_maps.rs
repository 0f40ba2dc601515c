//! Map definitions of before BTF: a `maps` section of C structs, one per symbol.
//!
//! libbpf gave them up with 1.0; cilium/ebpf's and aya-ebpf's objects still have them. The first five words are the
//! same everywhere: type, key size, value size, entries, flags. What follows is not, so that a word beyond the fifth that
//! is not zero is refused, but where the object's BTF says what it is: see [`layouts`].

#[cfg(feature = "foreign-objects")]
mod layouts;

use super::Object;
use super::elf::Section;
use super::error::ObjectError;
use super::map::{Map, MapOrigin};
use crate::arena::Growing;
use crate::btf::Types;

/// Words that every definition has.
const SHARED_WORDS: usize = 5;
/// Bytes of a word.
const WORD: usize = 4;

/// Whether a section holds such definitions.
pub(super) fn is_legacy(name: &[u8]) -> bool {
    name == b"maps" || name.starts_with(b"maps/")
}

/// Reads the definitions of one section.
#[cfg_attr(not(feature = "foreign-objects"), expect(unused_variables, reason = "names of members are not looked at"))]
pub(super) fn read(
    object: &Object<'_>,
    local: Option<&Types<'_>>,
    section: &Section<'_>,
    maps: &mut Growing<'_, '_, Map>,
) -> Result<(), ObjectError> {
    let bad = ObjectError::BadLegacyMaps { section: section.index };
    #[cfg(feature = "foreign-objects")]
    let first = maps.len();
    for symbol in object.elf().symbols() {
        let symbol = symbol?;
        if symbol.section != Some(section.index) || symbol.is_section() || symbol.is_named(b"") {
            continue;
        }
        let find = || section.data.slice(usize::try_from(symbol.value).ok()?, usize::try_from(symbol.size).ok()?);
        // The symbol's size is the definition's: definitions of several layouts may share a section.
        let definition = find().filter(|definition| definition.len() >= SHARED_WORDS * WORD).ok_or(bad)?;
        let word = |index: usize| definition.u32(index.wrapping_mul(WORD)).unwrap_or(0);
        let mut map = Map::new(MapOrigin::Legacy, section.index, symbol.value);
        map.name = symbol.index;
        map.map_type = word(0);
        map.key_size = word(1);
        map.value_size = word(2);
        map.max_entries = word(3);
        map.flags = word(4);
        #[cfg(feature = "foreign-objects")]
        layouts::read(local, section, &symbol, definition, &mut map)?;
        #[cfg(not(feature = "foreign-objects"))]
        refuse_rest(&symbol, definition, |_, _| false)?;
        maps.push(map)?;
    }
    #[cfg(feature = "foreign-objects")]
    layouts::place_inner_maps(maps.items().get_mut(first..).unwrap_or_default(), first)?;
    Ok(())
}

/// Refuses a definition that has something behind the shared words which `is_taken` does not take.
fn refuse_rest(
    symbol: &super::elf::Symbol<'_>,
    definition: crate::bytes::Bytes<'_>,
    mut is_taken: impl FnMut(usize, u32) -> bool,
) -> Result<(), ObjectError> {
    let mut index = SHARED_WORDS;
    while let Some(value) = definition.u32(index.wrapping_mul(WORD)) {
        if !is_taken(index, value) && value != 0 {
            return Err(ObjectError::LegacyMapWord {
                symbol: symbol.index,
                word: crate::numbers::to_u32(index),
                value,
            });
        }
        index = index.wrapping_add(1);
    }
    Ok(())
}

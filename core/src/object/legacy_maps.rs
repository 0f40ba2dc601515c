//! Map definitions of before BTF: a `maps` section of equal C structs, one per symbol.
//!
//! libbpf gave them up with 1.0; cilium/ebpf's and aya-ebpf's objects still have them. The first five words are the
//! same everywhere: type, key size, value size, entries, flags. aya's go on with an id and how to pin.

use super::Object;
use super::elf::Section;
use super::error::ObjectError;
use super::map::{Map, MapOrigin, Pinning};
use crate::arena::Growing;

/// Bytes of the five words that every definition has.
const MIN_DEFINITION: usize = 20;
/// Where aya's definitions have the word that says how to pin.
const PINNING_AT: usize = 24;

/// Whether a section holds such definitions.
pub(super) fn is_legacy(name: &[u8]) -> bool {
    name == b"maps" || name.starts_with(b"maps/")
}

/// Reads the definitions of one section.
pub(super) fn read(
    object: &Object<'_>,
    section: &Section<'_>,
    maps: &mut Growing<'_, '_, Map>,
) -> Result<(), ObjectError> {
    let bad = ObjectError::BadLegacyMaps { section: section.index };
    let mut count = 0usize;
    for symbol in object.elf().symbols() {
        let symbol = symbol?;
        if symbol.section == Some(section.index) && !symbol.is_section() && !symbol.is_named(b"") {
            count = count.wrapping_add(1);
        }
    }
    // In the size of a pointer: a division of 64 bits is a library routine on small processors. What is no such size is
    // refused below, for its bytes are not there.
    let size = usize::try_from(section.size()).unwrap_or(usize::MAX);
    let Some(definition_size) = size.checked_div(count) else { return Ok(()) };
    if definition_size < MIN_DEFINITION || !size.is_multiple_of(count) {
        return Err(bad);
    }
    for symbol in object.elf().symbols() {
        let symbol = symbol?;
        if symbol.section != Some(section.index) || symbol.is_section() || symbol.is_named(b"") {
            continue;
        }
        let find = || {
            let at = usize::try_from(symbol.value).ok()?;
            section.data.slice(at, definition_size)
        };
        let definition = find().ok_or(bad)?;
        let word = |number: usize| definition.u32(number.wrapping_mul(4)).unwrap_or(0);
        let mut map = Map::new(MapOrigin::Legacy, section.index, symbol.value);
        map.name = symbol.index;
        map.map_type = word(0);
        map.key_size = word(1);
        map.value_size = word(2);
        map.max_entries = word(3);
        map.flags = word(4);
        if definition.u32(PINNING_AT) == Some(1) {
            map.set_pinning(Pinning::ByName);
        }
        maps.push(map)?;
    }
    Ok(())
}

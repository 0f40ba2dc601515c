//! Legacy map definitions of more than five words.
//!
//! Layouts of equal size mean different things by the same word. Only the names of the members in the object's BTF tell
//! them apart:
//!
//! | whose | words from the sixth on | taken |
//! |---|---|---|
//! | libbpf before 1.0 | none | |
//! | samples/bpf | inner_map_idx, numa_node | both; the first of a map of maps |
//! | aya | id, pinning | pinning 1: by name |
//! | iproute2 | id, pinning, inner_id, inner_idx | none: its pins and ids are iproute2's own |
//! | gobpf | pinning, a name | none |

use super::refuse_rest;
use crate::btf::{Kind, Types};
use crate::bytes::Bytes;
use crate::limits::MAX_CHAIN;
use crate::numbers::{to_u32, to_usize};
use crate::object::ObjectError;
use crate::object::datasec::find_datasec;
use crate::object::elf::{Section, Symbol};
use crate::object::map::{Map, Pinning};
use crate::uapi::map_type;

/// Bytes of the two layouts of which words are taken.
const SEVEN_WORDS: usize = 28;

fn holds_maps(map: &Map) -> bool {
    matches!(map.map_type, map_type::ARRAY_OF_MAPS | map_type::HASH_OF_MAPS)
}

/// Reads what follows the shared words of a definition.
pub(super) fn read(
    local: Option<&Types<'_>>,
    section: &Section<'_>,
    symbol: &Symbol<'_>,
    definition: Bytes<'_>,
    map: &mut Map,
) -> Result<(), ObjectError> {
    let mut names: [&[u8]; 7] = [b""; 7];
    if let (Some(local), SEVEN_WORDS) = (local, definition.len()) {
        name_words(local, section, symbol, &mut names)?;
    }
    refuse_rest(symbol, definition, |index, value| match (names.get(index).copied().unwrap_or_default(), names) {
        (b"inner_map_idx", _) if holds_maps(map) => {
            map.inner = u16::try_from(value).unwrap_or(u16::MAX).saturating_add(1);
            map.inner != u16::MAX
        }
        (b"numa_node", _) => {
            map.numa_node = value;
            true
        }
        (b"pinning", [_, b"key_size", .., b"id", _]) if value == 1 => {
            map.set_pinning(Pinning::ByName);
            true
        }
        _ => false,
    })
}

/// Turns places among the definitions of a section into numbers of maps; `maps` are those, the first of number `first`.
pub(super) fn place_inner_maps(maps: &mut [Map], first: usize) -> Result<(), ObjectError> {
    for at in 0..maps.len() {
        let Some(map) = maps.get(at) else { break };
        let Some(index) = map.inner() else { continue };
        let place = u64::from(index.get()).saturating_mul(u64::from(to_u32(SEVEN_WORDS)));
        let is_it = |inner: &Map| inner.section_offset == place && !holds_maps(inner);
        let bad = ObjectError::LegacyMapWord { symbol: map.name, word: 5, value: index.get() };
        let found = maps.iter().position(is_it).and_then(|inner| inner.checked_add(first)?.checked_add(1));
        let inner_index = found.and_then(|inner_index| u16::try_from(inner_index).ok()).ok_or(bad)?;
        if let Some(map) = maps.get_mut(at) {
            map.inner = inner_index;
        }
    }
    Ok(())
}

/// The names that the object's BTF has for the words of a definition. aya's definitions are wrapped in structs.
fn name_words<'a>(
    local: &Types<'a>,
    section: &Section<'_>,
    symbol: &Symbol<'_>,
    names: &mut [&'a [u8]],
) -> Result<(), ObjectError> {
    let Some(datasec) = find_datasec(local, section.name())? else { return Ok(()) };
    for place in datasec.section_vars() {
        let var = local.get(place.type_id)?;
        if !local.string_is(var.name_off(), symbol.name()) {
            continue;
        }
        let mut definition = local.skip_modifiers(var.type_id())?;
        for _ in 0..MAX_CHAIN {
            let Some(member) = definition.member(0) else { return Ok(()) };
            let first = local.skip_modifiers(member.type_id)?;
            if first.kind() != Kind::Struct {
                break;
            }
            definition = first;
        }
        for member in definition.members().filter(|member| member.bit_offset.is_multiple_of(32)) {
            if let Some(name) = names.get_mut(to_usize(member.bit_offset / 32)) {
                *name = local.string(member.name_off)?;
            }
        }
        break;
    }
    Ok(())
}

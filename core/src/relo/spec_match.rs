//! The access followed through one candidate (libbpf: `bpf_core_spec_match`).

use super::compat::{Pair, fields_are_compat, types_are_compat};
use super::error::CompareError;
use super::spec::{AccessSpec, Accessor, element_bits, is_flexible};
use super::types_match::types_match;
use crate::btf::ext::ReloKind;
use crate::btf::strings::same_essential;
use crate::btf::{Type, TypeId};
use crate::limits::MAX_ACCESS_STEPS;

/// Where an access leads in the target.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetPath<'btf> {
    /// The candidate.
    pub(super) root: TypeId,
    /// The last step; a step of no type for a relocation about a whole type.
    pub(super) last: Accessor<'btf>,
    /// The offset from the start of the candidate, in bits.
    pub(super) bit_offset: u32,
    raw_steps: usize,
}

/// Follows `spec` through the candidate `target_root`; `None` where it does not match.
pub(super) fn spec_match<'t>(
    pair: &mut Pair<'_, 't>,
    spec: &AccessSpec<'_>,
    target_root: TypeId,
) -> Result<Option<TargetPath<'t>>, CompareError> {
    let nowhere = Accessor { type_id: TypeId::VOID, index: 0, name: None };
    let path = TargetPath { root: target_root, last: nowhere, bit_offset: 0, raw_steps: 0 };
    if spec.kind.is_type() {
        let matched = if spec.kind == ReloKind::TypeMatches {
            types_match(pair, spec.root, target_root)?
        } else {
            types_are_compat(pair, spec.root, target_root)?
        };
        return Ok(matched.then_some(path));
    }
    if spec.kind.is_enumval() {
        return match_enumerator(pair, spec, path);
    }
    match_field(pair, spec, path)
}

fn match_enumerator<'t>(
    pair: &mut Pair<'_, 't>,
    spec: &AccessSpec<'_>,
    mut path: TargetPath<'t>,
) -> Result<Option<TargetPath<'t>>, CompareError> {
    let target = pair.target.skip_modifiers(path.root)?;
    let Some(Accessor { name: Some(local_name), .. }) = spec.accessors.first().copied() else { return Ok(None) };
    if !target.kind().is_enum() {
        return Ok(None);
    }
    pair.spend_names(target.vlen(), local_name.len())?;
    for (index, enumerator) in (0..).zip(target.enumerators()) {
        let Some(name) = pair.target_name(enumerator.name_off)? else { continue };
        pair.spend_names(1, name.len())?;
        if same_essential(local_name, name) {
            path.last = Accessor { type_id: target.id(), index, name: Some(name) };
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn match_field<'t>(
    pair: &mut Pair<'_, 't>,
    spec: &AccessSpec<'_>,
    mut path: TargetPath<'t>,
) -> Result<Option<TargetPath<'t>>, CompareError> {
    let mut at = path.root;
    for (step, local) in spec.accessors.iter().enumerate() {
        let target = pair.target.skip_modifiers(at)?;
        at = match local.name {
            Some(name) => {
                let wanted = Wanted { name, type_id: local_member_type(pair, local)? };
                match match_member(pair, &wanted, target, &mut path)? {
                    Some(next) => next,
                    None => return Ok(None),
                }
            }
            // The first step is an index on a pointer to the root type itself.
            None if step == 0 => path.push_element(pair, target, local.index)?,
            None => {
                let Some(array) = target.array() else { return Ok(None) };
                let is_inside =
                    local.index < array.len || (array.len == 0 && is_flexible(pair.target, Some(&path.last))?);
                if !is_inside {
                    return Ok(None);
                }
                let element = pair.target.skip_modifiers(array.element)?;
                path.push_element(pair, element, local.index)?
            }
        };
    }
    Ok(Some(path))
}

/// A local member, as it is looked for in the target.
struct Wanted<'l> {
    name: &'l [u8],
    type_id: TypeId,
}

fn local_member_type(pair: &Pair<'_, '_>, local: &Accessor<'_>) -> Result<TypeId, CompareError> {
    let holder = pair.local.get(local.type_id)?;
    Ok(holder.member(local.index).map_or(TypeId::VOID, |member| member.type_id))
}

/// Looks for a member by name, through anonymous structs and unions too (libbpf: `bpf_core_match_member`). On success
/// `path` leads to it; its type is returned.
fn match_member<'t>(
    pair: &mut Pair<'_, 't>,
    wanted: &Wanted<'_>,
    target: Type<'t>,
    path: &mut TargetPath<'t>,
) -> Result<Option<TypeId>, CompareError> {
    if !target.kind().is_composite() {
        return Ok(None);
    }
    if path.raw_steps >= MAX_ACCESS_STEPS {
        return Err(CompareError::TooManySteps);
    }
    pair.spend()?;
    pair.spend_names(target.vlen(), wanted.name.len())?;
    let start = *path;
    for (index, member) in (0..).zip(target.members()) {
        let is_anonymous = member.name_off == 0 || pair.target.string_is(member.name_off, b"");
        if !is_anonymous && !pair.target.string_is(member.name_off, wanted.name) {
            continue;
        }
        path.bit_offset = start.bit_offset.checked_add(member.bit_offset).ok_or(CompareError::OffsetOverflow)?;
        path.raw_steps = start.raw_steps.wrapping_add(1);
        if is_anonymous {
            let inner = pair.target.skip_modifiers(member.type_id)?;
            if let Some(found) = match_member(pair, wanted, inner, path)? {
                return Ok(Some(found));
            }
        } else {
            path.last = Accessor { type_id: target.id(), index, name: Some(pair.target.identifier(member.name_off)?) };
            if fields_are_compat(pair, wanted.type_id, member.type_id)? {
                return Ok(Some(member.type_id));
            }
            *path = start;
            return Ok(None);
        }
        *path = start;
    }
    Ok(None)
}

impl<'t> TargetPath<'t> {
    fn push_element(&mut self, pair: &Pair<'_, 't>, element: Type<'t>, index: u32) -> Result<TypeId, CompareError> {
        if self.raw_steps >= MAX_ACCESS_STEPS {
            return Err(CompareError::TooManySteps);
        }
        self.raw_steps = self.raw_steps.wrapping_add(1);
        self.last = Accessor { type_id: element.id(), index, name: None };
        let byte_size = pair.target.byte_size(element.id())?;
        let bits = element_bits(byte_size, index).ok_or(CompareError::OffsetOverflow)?;
        self.bit_offset = self.bit_offset.checked_add(bits).ok_or(CompareError::OffsetOverflow)?;
        Ok(element.id())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::string::String;
    use std::vec::Vec;

    use super::*;
    use crate::arena::{Arena, Part};
    use crate::btf::ext::CoreRelo;
    use crate::btf::{Btf, Info, Kind, Types};
    use crate::limits::MAX_COMPARISONS;

    fn blob(words: &[u32], strings: &[u8]) -> Vec<u8> {
        let mut blob = Vec::from([0x9f, 0xeb, 1, 0]);
        let len = (words.len() * 4) as u32;
        for word in [24, 0, len, len, strings.len() as u32].iter().chain(words) {
            blob.extend(word.to_le_bytes());
        }
        blob.extend(strings);
        blob
    }

    /// Matches an access of the root type 2 of `local` with type `target_id` of `target`; and the pairs counted.
    fn run(
        local: &[u8],
        target: &[u8],
        access_str_off: u32,
        kind: ReloKind,
        target_id: u32,
    ) -> (Result<bool, CompareError>, u32) {
        let mut buffer = std::vec![0u8; 1 << 16];
        let mut arena = Arena::new(&mut buffer);
        let local = Types::index(Btf::parse(local).unwrap(), 8, None, &mut arena, Part::LocalIndex).unwrap();
        let target = Types::index(Btf::parse(target).unwrap(), 8, None, &mut arena, Part::KernelIndex).unwrap();
        let relo = CoreRelo { insn_off: 0, type_id: TypeId(2), access_str_off, kind };
        let spec = AccessSpec::parse(&local, &relo).unwrap();
        let mut pair = Pair::new(&local, &target);
        let matched = spec_match(&mut pair, &spec, TypeId(target_id));
        (matched.map(|path| path.is_some()), MAX_COMPARISONS - pair.left)
    }

    const LOCAL_STRINGS: &[u8] = b"\x00s\x00last\x000:0\x000\x00";

    pub(in crate::relo) fn local_struct() -> Vec<u8> {
        let int = Info::new(Kind::Int, 0, false).0;
        blob(&[1, int, 4, 0x20, 1, Info::new(Kind::Struct, 1, false).0, 4, 3, 1, 0], LOCAL_STRINGS)
    }

    fn local_enum() -> Vec<u8> {
        let int = Info::new(Kind::Int, 0, false).0;
        blob(&[1, int, 4, 0x20, 1, Info::new(Kind::Enum, 1, false).0, 4, 3, 0], LOCAL_STRINGS)
    }

    #[test]
    fn the_last_of_seventy_thousand_members_is_found_and_all_are_counted() {
        let mut words = Vec::from([1, Info::new(Kind::Int, 0, false).0, 4, 0x20]);
        words.extend([1, Info::new(Kind::Struct, 70_000, false).0, 280_000]);
        for index in 0..70_000 {
            words.extend([if index == 69_999 { 3 } else { 1 }, 1, index * 32]);
        }
        let target = blob(&words, b"\0s\0last\0");
        let (matched, spent) = run(&local_struct(), &target, 8, ReloKind::FieldExists, 2);
        assert_eq!(matched, Ok(true));
        assert!(spent > 1000, "{spent}");
    }

    #[test]
    fn wide_structs_that_double_at_each_level_end_early() {
        // Each level has many members, and the next level twice: 4096 structs in all, which alone would be few enough.
        const LEVELS: u32 = 12;
        const MEMBERS: u32 = 2_000;
        let mut words = Vec::from([1, Info::new(Kind::Int, 0, false).0, 4, 0x20]);
        for level in 0..LEVELS {
            let inner = if level + 1 == LEVELS { 1 } else { level + 3 };
            words.extend([1, Info::new(Kind::Struct, MEMBERS + 2, false).0, 4]);
            (0..MEMBERS).for_each(|_| words.extend([1, 1, 0]));
            words.extend([0, inner, 0, 0, inner, 0]);
        }
        let target = blob(&words, b"\0s\0");
        let (matched, _) = run(&local_struct(), &target, 8, ReloKind::FieldExists, 2);
        assert_eq!(matched, Err(CompareError::TooComplex));
    }

    #[test]
    fn enumerators_with_names_of_megabytes_are_none_that_is_looked_for() {
        let strings: Vec<u8> = [b"\0s\0", String::from("x").repeat(1 << 20).as_bytes(), b"\0"].concat();
        let mut words = Vec::from([1, Info::new(Kind::Int, 0, false).0, 4, 0x20]);
        words.extend([1, Info::new(Kind::Enum, 20_000, false).0, 4]);
        (0..20_000).for_each(|index| words.extend([3, index]));
        let target = blob(&words, &strings);
        let (matched, _) = run(&local_enum(), &target, 12, ReloKind::EnumvalExists, 2);
        // Read to the end, they were 20 GB.
        assert_eq!(matched, Ok(false));
    }
}

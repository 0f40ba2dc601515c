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
    pair: &Pair<'_, 't>,
    spec: &AccessSpec<'_>,
    mut path: TargetPath<'t>,
) -> Result<Option<TargetPath<'t>>, CompareError> {
    let target = pair.target.skip_modifiers(path.root)?;
    let Some(Accessor { name: Some(local_name), .. }) = spec.accessors.first().copied() else { return Ok(None) };
    if !target.kind().is_enum() {
        return Ok(None);
    }
    for (index, enumerator) in (0..).zip(target.enumerators()) {
        let name = pair.target.string(enumerator.name_off)?;
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
    for (number, local) in spec.accessors.iter().enumerate() {
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
            None if number == 0 => path.push_element(pair, target, local.index)?,
            None => {
                let Some(array) = target.array() else { return Ok(None) };
                let is_inside = local.index < array.len
                    || (array.len == 0 && is_flexible(pair.target, Some(&path.last))?);
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
    let start = *path;
    for (index, member) in (0..).zip(target.members()) {
        let is_anonymous = member.name_off == 0 || pair.target.string_is(member.name_off, b"");
        if !is_anonymous && !pair.target.string_is(member.name_off, wanted.name) {
            continue;
        }
        path.bit_offset =
            start.bit_offset.checked_add(member.bit_offset).ok_or(CompareError::OffsetOverflow)?;
        path.raw_steps = start.raw_steps + 1;
        if is_anonymous {
            let inner = pair.target.skip_modifiers(member.type_id)?;
            if let Some(found) = match_member(pair, wanted, inner, path)? {
                return Ok(Some(found));
            }
        } else {
            path.last = Accessor { type_id: target.id(), index, name: Some(pair.target.string(member.name_off)?) };
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
    fn push_element(
        &mut self,
        pair: &Pair<'_, 't>,
        element: Type<'t>,
        index: u32,
    ) -> Result<TypeId, CompareError> {
        if self.raw_steps >= MAX_ACCESS_STEPS {
            return Err(CompareError::TooManySteps);
        }
        self.raw_steps += 1;
        self.last = Accessor { type_id: element.id(), index, name: None };
        let byte_size = pair.target.byte_size(element.id())?;
        let bits = element_bits(byte_size, index).ok_or(CompareError::OffsetOverflow)?;
        self.bit_offset = self.bit_offset.checked_add(bits).ok_or(CompareError::OffsetOverflow)?;
        Ok(element.id())
    }
}

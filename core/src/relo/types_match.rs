//! Whether a target type matches in all that the local one says (libbpf: `__bpf_core_types_match`).

use super::compat::Pair;
use super::error::CompareError;
use crate::btf::{Kind, Type, TypeId};
use crate::limits::MAX_TYPE_DEPTH;

/// Whether `target_id` matches `local_id`: what decides `type_matches`.
///
/// Names agree at every level but for flavours; modifiers and typedefs are skipped. Then:
/// - integers: size and sign;
/// - enumerations: size, and every local enumerator has its like by name;
/// - structs and unions: every local member has its like by name that matches in turn; behind a pointer only kind and
///   name count, and a forward declaration of the kind serves as well;
/// - arrays: length, and the elements match;
/// - prototypes: as many parameters, each matching, and a matching result.
///
/// # Errors
/// [`CompareError`] where a type cannot be read, nests more than 32 levels deep, or takes too many comparisons.
pub fn types_match(pair: &mut Pair<'_, '_>, local_id: TypeId, target_id: TypeId) -> Result<bool, CompareError> {
    let (local, target) = (pair.local.get(local_id)?, pair.target.get(target_id)?);
    // The root's own name is compared before typedefs are skipped.
    if !pair.same_essential_name(local.name_off(), target.name_off())? {
        return Ok(false);
    }
    matches(pair, local_id, target_id, false, MAX_TYPE_DEPTH)
}

fn matches(
    pair: &mut Pair<'_, '_>,
    mut local_id: TypeId,
    mut target_id: TypeId,
    mut behind_pointer: bool,
    level: u32,
) -> Result<bool, CompareError> {
    if level == 0 {
        return Err(CompareError::TooDeep);
    }
    for _ in 0..MAX_TYPE_DEPTH {
        pair.spend()?;
        let (local, target) = pair.skip_modifiers(local_id, target_id)?;
        if !pair.same_essential_name(local.name_off(), target.name_off())? {
            return Ok(false);
        }
        let same_kind = local.kind() == target.kind();
        (local_id, target_id) = match local.kind() {
            Kind::Void => return Ok(same_kind),
            Kind::Fwd => return Ok(forward_matches(&local, &target, behind_pointer)),
            Kind::Enum | Kind::Enum64 => return enums_match(pair, &local, &target),
            Kind::Struct | Kind::Union if behind_pointer => {
                return Ok(same_kind || is_forward_of(&target, local.kind()));
            }
            Kind::Struct | Kind::Union => {
                return Ok(same_kind && composites_match(pair, &local, &target, behind_pointer, level)?);
            }
            _ if !same_kind => return Ok(false),
            Kind::Int => {
                return Ok(local.byte_size() == target.byte_size() && local.is_signed_int() == target.is_signed_int());
            }
            Kind::Ptr => {
                behind_pointer = true;
                (local.type_id(), target.type_id())
            }
            Kind::Array => match (local.array(), target.array()) {
                (Some(local), Some(target)) if local.len == target.len => (local.element, target.element),
                _ => return Ok(false),
            },
            Kind::FuncProto => {
                if local.vlen() != target.vlen() {
                    return Ok(false);
                }
                for (local_param, target_param) in local.params().zip(target.params()) {
                    if !matches(
                        pair,
                        local_param.type_id,
                        target_param.type_id,
                        behind_pointer,
                        level.saturating_sub(1),
                    )? {
                        return Ok(false);
                    }
                }
                (local.type_id(), target.type_id())
            }
            _ => return Ok(false),
        };
    }
    Err(CompareError::TooDeep)
}

/// `kind_flag` of a forward declaration says what it declares: a struct, or where set a union.
fn is_forward_of(forward: &Type<'_>, kind: Kind) -> bool {
    forward.kind() == Kind::Fwd && forward.kind_flag() == (kind == Kind::Union)
}

fn forward_matches(local: &Type<'_>, target: &Type<'_>, behind_pointer: bool) -> bool {
    match target.kind() {
        Kind::Fwd => local.kind_flag() == target.kind_flag(),
        kind @ (Kind::Struct | Kind::Union) => behind_pointer && is_forward_of(local, kind),
        _ => false,
    }
}

fn enums_match(pair: &mut Pair<'_, '_>, local: &Type<'_>, target: &Type<'_>) -> Result<bool, CompareError> {
    if !target.kind().is_enum() || local.byte_size() != target.byte_size() || local.vlen() > target.vlen() {
        return Ok(false);
    }
    for local_enumerator in local.enumerators() {
        let mut found = false;
        for target_enumerator in target.enumerators() {
            pair.spend()?;
            if pair.same_essential_name(local_enumerator.name_off, target_enumerator.name_off)? {
                found = true;
                break;
            }
        }
        if !found {
            return Ok(false);
        }
    }
    Ok(true)
}

fn composites_match(
    pair: &mut Pair<'_, '_>,
    local: &Type<'_>,
    target: &Type<'_>,
    behind_pointer: bool,
    level: u32,
) -> Result<bool, CompareError> {
    if local.vlen() > target.vlen() {
        return Ok(false);
    }
    for local_member in local.members() {
        let mut found = false;
        for target_member in target.members() {
            pair.spend()?;
            if !pair.same_essential_name(local_member.name_off, target_member.name_off)? {
                continue;
            }
            if matches(pair, local_member.type_id, target_member.type_id, behind_pointer, level.saturating_sub(1))? {
                found = true;
                break;
            }
        }
        if !found {
            return Ok(false);
        }
    }
    Ok(true)
}

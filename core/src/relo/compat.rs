//! Whether a local and a target type are compatible: for members by what they hold, for whole types by shape.

use super::error::CompareError;
use crate::btf::strings::same_essential;
use crate::btf::{BtfError, Kind, Type, TypeId, Types};
use crate::limits::{MAX_CHAIN, MAX_COMPARISONS, MAX_TYPE_DEPTH};

/// What looking at a name costs beside its bytes, in bytes.
const NAME_WEIGHT: u32 = 64;
/// Bytes of names, and their [`NAME_WEIGHT`], that count as one pair of types.
const NAME_WEIGHT_OF_A_PAIR: u32 = 4096;

/// A local and a target BTF, and how many more pairs of their types may be compared.
#[derive(Clone, Debug)]
pub struct Pair<'l, 't> {
    /// The object's types.
    pub local: &'l Types<'l>,
    /// The kernel's types.
    pub target: &'t Types<'t>,
    pub(super) left: u32,
}

impl<'l, 't> Pair<'l, 't> {
    /// A fresh comparison of types of these two.
    #[must_use]
    pub fn new(local: &'l Types<'l>, target: &'t Types<'t>) -> Self {
        Self { local, target, left: MAX_COMPARISONS }
    }

    /// Counts one pair of types.
    pub(super) fn spend(&mut self) -> Result<(), CompareError> {
        self.spend_many(1)
    }

    fn spend_many(&mut self, pairs: u32) -> Result<(), CompareError> {
        let left = self.left.checked_sub(pairs);
        self.left = left.unwrap_or(0);
        left.map(|_| ()).ok_or(CompareError::TooComplex)
    }

    /// Counts `count` names of `byte_len` bytes that are looked at beside the types: they weigh little, but a hostile
    /// type has millions of them, or some of megabytes.
    pub(super) fn spend_names(&mut self, count: u32, byte_len: usize) -> Result<(), CompareError> {
        let byte_len = u32::try_from(byte_len).unwrap_or(u32::MAX);
        self.spend_many(count.saturating_mul(byte_len.saturating_add(NAME_WEIGHT)) / NAME_WEIGHT_OF_A_PAIR)
    }

    pub(super) fn skip_modifiers(
        &self,
        local_id: TypeId,
        target_id: TypeId,
    ) -> Result<(Type<'l>, Type<'t>), CompareError> {
        Ok((self.local.skip_modifiers(local_id)?, self.target.skip_modifiers(target_id)?))
    }

    /// Whether two names are the same but for their flavours.
    pub(super) fn same_essential_name(&mut self, local_off: u32, target_off: u32) -> Result<bool, CompareError> {
        let local = self.local.identifier(local_off)?;
        let Some(target) = self.target_name(target_off)? else { return Ok(false) };
        self.spend_names(1, local.len().saturating_add(target.len()))?;
        Ok(same_essential(local, target))
    }

    /// A name of the target; `None` for one that is too long to be a kernel's, which is no name that is looked for.
    pub(super) fn target_name(&self, offset: u32) -> Result<Option<&'t [u8]>, CompareError> {
        match self.target.identifier(offset) {
            Ok(name) => Ok(Some(name)),
            Err(BtfError::NameTooLong { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a member of type `local_id` may be read as one of type `target_id` (libbpf: `bpf_core_fields_are_compat`).
///
/// Modifiers and typedefs are skipped on both sides. Then:
/// - any struct or union goes with any struct or union;
/// - pointers go with pointers, floats with floats;
/// - integers go with integers of any size and sign, old bitfield-style ones with an offset excepted;
/// - enumerations and forward declarations go with their like where either is anonymous or the names agree but for
///   flavours;
/// - arrays go with arrays whose elements go together.
///
/// # Errors
/// [`CompareError`] where a type cannot be read, or arrays nest too deep.
pub fn fields_are_compat(pair: &mut Pair<'_, '_>, local_id: TypeId, target_id: TypeId) -> Result<bool, CompareError> {
    let (mut local_id, mut target_id) = (local_id, target_id);
    for _ in 0..MAX_CHAIN {
        pair.spend()?;
        let (local, target) = pair.skip_modifiers(local_id, target_id)?;
        if local.kind().is_composite() && target.kind().is_composite() {
            return Ok(true);
        }
        if !local.kind().is_core_compatible(target.kind()) {
            return Ok(false);
        }
        return match local.kind() {
            Kind::Ptr | Kind::Float => Ok(true),
            Kind::Int => Ok(are_plain_ints(&local, &target)),
            Kind::Enum | Kind::Enum64 | Kind::Fwd => {
                let is_anonymous = pair.local.is_called(&local, b"")? || pair.target.is_called(&target, b"")?;
                Ok(is_anonymous || pair.same_essential_name(local.name_off(), target.name_off())?)
            }
            Kind::Array => {
                let (Some(local), Some(target)) = (local.array(), target.array()) else { return Ok(false) };
                local_id = local.element;
                target_id = target.element;
                continue;
            }
            _ => Ok(false),
        };
    }
    Err(CompareError::TooDeep)
}

/// Whether two types have the same shape (libbpf: `__bpf_core_types_are_compat`): what decides `type_exists`,
/// `type_size` and `type_id_target`. Names are the caller's matter.
///
/// Modifiers and typedefs are skipped; kinds must be the same; pointers and arrays are followed; prototypes must have
/// as many parameters, each compatible, and a compatible result; structs, unions, enumerations and forward
/// declarations go by kind alone.
///
/// # Errors
/// [`CompareError`] where a type cannot be read, or nests more than 32 levels deep.
pub fn types_are_compat(pair: &mut Pair<'_, '_>, local_id: TypeId, target_id: TypeId) -> Result<bool, CompareError> {
    let (local, target) = (pair.local.get(local_id)?, pair.target.get(target_id)?);
    if !local.kind().is_core_compatible(target.kind()) {
        return Ok(false);
    }
    shapes_agree(pair, local_id, target_id, MAX_TYPE_DEPTH)
}

fn shapes_agree(
    pair: &mut Pair<'_, '_>,
    mut local_id: TypeId,
    mut target_id: TypeId,
    level: u32,
) -> Result<bool, CompareError> {
    for _ in 0..MAX_TYPE_DEPTH {
        pair.spend()?;
        let (local, target) = pair.skip_modifiers(local_id, target_id)?;
        if !local.kind().is_core_compatible(target.kind()) {
            return Ok(false);
        }
        (local_id, target_id) = match local.kind() {
            Kind::Void | Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 | Kind::Fwd => return Ok(true),
            Kind::Int => return Ok(are_plain_ints(&local, &target)),
            Kind::Ptr => (local.type_id(), target.type_id()),
            Kind::Array => match (local.array(), target.array()) {
                (Some(local), Some(target)) => (local.element, target.element),
                _ => return Ok(false),
            },
            Kind::FuncProto => {
                if local.vlen() != target.vlen() {
                    return Ok(false);
                }
                for (local_param, target_param) in local.params().zip(target.params()) {
                    if level == 0 {
                        return Err(CompareError::TooDeep);
                    }
                    if !shapes_agree(pair, local_param.type_id, target_param.type_id, level.saturating_sub(1))? {
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

/// Old compilers wrote bitfields as integers with a bit offset of their own; those cannot be relocated.
fn are_plain_ints(local: &Type<'_>, target: &Type<'_>) -> bool {
    local.int_bit_offset() == 0 && target.int_bit_offset() == 0
}

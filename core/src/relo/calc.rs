//! The value that a relocation stands for, on either side (libbpf: `bpf_core_calc_field_relo` and its siblings).

use super::error::{SpecError, TargetFault};
use super::spec::Accessor;
use crate::btf::ext::ReloKind;
use crate::btf::{BtfError, Kind, Type, TypeId, Types};
use crate::bytes::Endian;

/// A value, and what else patching and judging need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value<'btf> {
    pub(super) value: u64,
    /// Bytes that a load or store of the field moves, and the type they are; only for the byte offset of a field that
    /// is no bitfield.
    pub(super) access: Option<Access<'btf>>,
    /// Whether the compiled immediate must be this value.
    pub(super) validate: bool,
}

/// What a load or store of the field moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access<'btf> {
    pub(super) byte_size: u32,
    pub(super) ty: Type<'btf>,
}

impl PartialEq for Access<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.byte_size == other.byte_size && self.ty.id() == other.ty.id()
    }
}
impl Eq for Access<'_> {}

impl Value<'_> {
    pub(super) const fn plain(value: u64, validate: bool) -> Self {
        Self { value, access: None, validate }
    }
}

/// Why there is no value though there is a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CalcError {
    BitfieldTooWide,
    ArrayElement,
    Btf(BtfError),
}

impl From<BtfError> for CalcError {
    fn from(error: BtfError) -> Self {
        Self::Btf(error)
    }
}

impl From<CalcError> for SpecError {
    fn from(error: CalcError) -> Self {
        match error {
            CalcError::BitfieldTooWide => Self::BitfieldTooWide,
            CalcError::ArrayElement => Self::ArrayElement,
            CalcError::Btf(error) => Self::Btf(error),
        }
    }
}

impl From<CalcError> for TargetFault {
    fn from(error: CalcError) -> Self {
        match error {
            CalcError::BitfieldTooWide => Self::BitfieldTooWide,
            CalcError::ArrayElement => Self::Unreadable,
            CalcError::Btf(error) => error.into(),
        }
    }
}

/// Where an access ends, on one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct End<'btf> {
    pub(super) root: TypeId,
    pub(super) last: Accessor<'btf>,
    pub(super) bit_offset: u32,
}

/// The value of `kind` at `end`.
pub(super) fn value<'btf>(
    types: &Types<'btf>,
    kind: ReloKind,
    end: &End<'btf>,
    endian: Endian,
) -> Result<Value<'btf>, CalcError> {
    match kind {
        ReloKind::FieldExists | ReloKind::TypeExists | ReloKind::TypeMatches | ReloKind::EnumvalExists => {
            Ok(Value::plain(1, true))
        }
        // The compiler may have renumbered types since; its immediate is not looked at.
        ReloKind::TypeIdLocal | ReloKind::TypeIdTarget => Ok(Value::plain(u64::from(end.root.0), false)),
        ReloKind::TypeSize => Ok(Value::plain(u64::from(types.byte_size(end.root)?), true)),
        ReloKind::EnumvalValue => {
            let value = types.get(end.last.type_id)?.enumerator(end.last.index).map_or(0, |found| found.value);
            Ok(Value::plain(value, true))
        }
        _ if end.last.name.is_none() => element(types, kind, end),
        _ => field(types, kind, end, endian),
    }
}

/// An array element, or the root type itself: it has an offset and a size, and no more.
fn element<'btf>(types: &Types<'btf>, kind: ReloKind, end: &End<'btf>) -> Result<Value<'btf>, CalcError> {
    match kind {
        ReloKind::FieldByteOffset => {
            let access = access(types, end.last.type_id)?;
            Ok(Value { value: u64::from(end.bit_offset / 8), access: Some(access), validate: true })
        }
        ReloKind::FieldByteSize => Ok(Value::plain(u64::from(types.byte_size(end.last.type_id)?), true)),
        _ => Err(CalcError::ArrayElement),
    }
}

fn field<'btf>(types: &Types<'btf>, kind: ReloKind, end: &End<'btf>, endian: Endian) -> Result<Value<'btf>, CalcError> {
    let holder = types.get(end.last.type_id)?;
    let member = holder.member(end.last.index).ok_or(CalcError::Btf(BtfError::NoSuchType { id: end.last.type_id }))?;
    let ty = types.skip_modifiers(member.type_id)?;
    let bit_offset = end.bit_offset;
    let is_bitfield = member.bitfield_size > 0;
    let byte_size = types.byte_size(ty.id())?;
    let place = if is_bitfield {
        bitfield_place(bit_offset, u32::from(member.bitfield_size), byte_size).ok_or(CalcError::BitfieldTooWide)?
    } else {
        Place { byte_offset: bit_offset / 8, byte_size, bit_size: byte_size.wrapping_mul(8) }
    };
    let Place { byte_offset, byte_size, bit_size } = place;
    // Bits between the start of the load and the field. 32-bit wrapping arithmetic, as libbpf's: the shifts of a field
    // of more than 64 bits make no sense either way.
    let lead = bit_offset.wrapping_sub(byte_offset.wrapping_mul(8));
    match kind {
        ReloKind::FieldByteOffset => Ok(Value {
            value: u64::from(byte_offset),
            access: if is_bitfield { None } else { Some(access(types, ty.id())?) },
            validate: !is_bitfield,
        }),
        ReloKind::FieldByteSize => Ok(Value::plain(u64::from(byte_size), !is_bitfield)),
        ReloKind::FieldSigned => {
            let is_signed = ty.is_signed_int() || (ty.kind().is_enum() && ty.kind_flag());
            Ok(Value::plain(u64::from(is_signed), true))
        }
        ReloKind::FieldLshiftU64 => {
            let shift = match endian {
                Endian::Little => 64u32.wrapping_sub(lead.wrapping_add(bit_size)),
                Endian::Big => 8u32.wrapping_sub(byte_size).wrapping_mul(8).wrapping_add(lead),
            };
            Ok(Value::plain(u64::from(shift), !is_bitfield))
        }
        _ => Ok(Value::plain(u64::from(64u32.wrapping_sub(bit_size)), true)),
    }
}

/// A load that covers a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    byte_offset: u32,
    byte_size: u32,
    bit_size: u32,
}

/// The smallest aligned integer, not smaller than the declared one, that holds the whole bitfield; `None` where 8
/// bytes do not.
fn bitfield_place(bit_offset: u32, bit_size: u32, declared_byte_size: u32) -> Option<Place> {
    let mut byte_size = declared_byte_size;
    loop {
        let byte_offset = (bit_offset / 8).checked_div(byte_size)?.checked_mul(byte_size)?;
        let end = bit_offset.checked_add(bit_size)?.checked_sub(byte_offset.checked_mul(8)?)?;
        if end <= byte_size.checked_mul(8)? {
            return Some(Place { byte_offset, byte_size, bit_size });
        }
        if byte_size >= 8 {
            return None;
        }
        byte_size = byte_size.wrapping_mul(2);
    }
}

/// What a load of a value of this type moves: of an array, one innermost element.
fn access<'btf>(types: &Types<'btf>, id: TypeId) -> Result<Access<'btf>, CalcError> {
    let element = types.innermost_element(id)?;
    Ok(Access { byte_size: types.byte_size(element.id())?, ty: types.skip_modifiers(id)? })
}

/// Whether a load or store compiled for `local` may simply move as many bytes as `target` has: pointers, and integers
/// that are not signed, as both are zero-extended. In all other cases the value read would be wrong.
pub(super) fn may_change_access_size(local: &Access<'_>, target: &Access<'_>) -> bool {
    let both = |kind: Kind| local.ty.kind() == kind && target.ty.kind() == kind;
    both(Kind::Ptr) || (both(Kind::Int) && !local.ty.is_signed_int() && !target.ty.is_signed_int())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitfields_get_the_smallest_aligned_load_that_covers_them() {
        let place = |byte_offset, byte_size, bit_size| Some(Place { byte_offset, byte_size, bit_size });
        // Within one int; in the second int; across two ints, so 8 bytes; across 8 bytes: none.
        assert_eq!(bitfield_place(3, 5, 4), place(0, 4, 5));
        assert_eq!(bitfield_place(35, 5, 4), place(4, 4, 5));
        assert_eq!(bitfield_place(30, 5, 4), place(0, 8, 5));
        assert_eq!(bitfield_place(62, 5, 4), None);
        assert_eq!(bitfield_place(0, 1, 1), place(0, 1, 1));
        // A hostile type of no bytes must not divide by zero.
        assert_eq!(bitfield_place(8, 1, 0), None);
    }
}

//! Writing the blob.

use super::pairs::{Pair, find};
use crate::arena::{ArenaFull, Growing};
use crate::btf::header::MAGIC;
use crate::btf::{FIXED, Info, Kind, Type, TypeId};
use crate::bytes::{Bytes, Endian, u16_bytes, u32_bytes};
use crate::numbers::{to_u32, to_usize};

/// Bytes of the header.
pub(super) const HEADER: usize = 24;

/// Where ids and names go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emit<'e> {
    /// The ids of all kept types in the source, in order: the first becomes 1.
    pub(super) ids: &'e [u32],
    /// Offsets of their names in the source, in order, and in the blob.
    pub(super) names: &'e [Pair],
    /// Whether types keep their ids.
    pub(super) keeps_ids: bool,
    /// The id after the last one of the source.
    pub(super) end_id: u32,
    /// The offset after the last one of the source's strings.
    pub(super) end_string: u32,
    pub(super) endian: Endian,
}

impl Emit<'_> {
    fn id(&self, id: TypeId) -> u32 {
        match self.ids.binary_search(&id.0) {
            // What is not there stays so: this id is none in what is made, either.
            Err(_) if id.0 >= self.end_id => id.0,
            // What was not needed is void.
            Err(_) => 0,
            Ok(_) if self.keeps_ids => id.0,
            Ok(at) => u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1),
        }
    }

    fn name(&self, offset: u32) -> u32 {
        match find(self.names, offset) {
            // Where there is no string there is none in what is made, either.
            _ if offset >= self.end_string => u32::MAX,
            found => found.map_or(0, |pair| pair.value),
        }
    }

    fn word(&self, value: u32, out: &mut Growing<'_, '_, u8>) -> Result<(), ArenaFull> {
        u32_bytes(value, self.endian).into_iter().try_for_each(|byte| out.push(byte))
    }

    /// The header; lengths in bytes.
    pub(super) fn header(&self, types_len: usize, strings_len: usize) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        let word = |value: usize| u32_bytes(u32::try_from(value).unwrap_or(u32::MAX), self.endian);
        let [magic_low, magic_high] = u16_bytes(MAGIC, self.endian);
        let start = [magic_low, magic_high, 1, 0];
        let words = [start, word(HEADER), word(0), word(types_len), word(types_len), word(strings_len)];
        for (place, bytes) in header.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&bytes);
        }
        header
    }

    /// One type, with the members or enumerators that `keeps` says.
    pub(super) fn write(
        &self,
        ty: &Type<'_>,
        keeps: impl Fn(u32) -> bool,
        out: &mut Growing<'_, '_, u8>,
    ) -> Result<(), ArenaFull> {
        let (info, third) = as_written(ty.info(), ty.size_or_type());
        let kind = info.kind();
        let is_filtered = kind.is_composite() || kind.is_enum();
        let vlen = if is_filtered { to_u32((0..ty.vlen()).filter(|&index| keeps(index)).count()) } else { info.vlen() };
        self.word(self.name(ty.name_off()), out)?;
        self.word(Info::new(kind, vlen, info.kind_flag()).0, out)?;
        let third = match kind {
            _ if kind.is_modifier_or_typedef() => self.id(TypeId(third)),
            Kind::Ptr | Kind::Func | Kind::FuncProto | Kind::Var | Kind::DeclTag => self.id(TypeId(third)),
            _ => third,
        };
        self.word(third, out)?;
        let each = (0..ty.vlen()).filter(|&index| keeps(index));
        match kind {
            Kind::Int | Kind::Var | Kind::DeclTag => {
                let word = ty.tail().u32(0).filter(|_| kind == ty.kind());
                self.word(word.unwrap_or(0), out)?;
            }
            Kind::Array => {
                if let Some(array) = ty.array() {
                    self.word(self.id(array.element), out)?;
                    self.word(self.id(array.index), out)?;
                    self.word(array.len, out)?;
                }
            }
            Kind::Struct | Kind::Union => {
                for index in each {
                    let [name_off, type_id, offset] =
                        ty.tail().u32x3(to_usize(index).wrapping_mul(12)).unwrap_or_default();
                    self.word(self.name(name_off), out)?;
                    self.word(self.id(TypeId(type_id)), out)?;
                    self.word(offset, out)?;
                }
            }
            Kind::Enum | Kind::Enum64 => {
                let len = if kind == Kind::Enum { 8 } else { 12 };
                for index in each {
                    let at = to_usize(index).wrapping_mul(len);
                    let enumerator = ty.tail().slice(at, len).unwrap_or(Bytes::new(&[], ty.tail().endian()));
                    self.word(self.name(enumerator.u32(0).unwrap_or(0)), out)?;
                    for value_at in (4..len).step_by(4) {
                        self.word(enumerator.u32(value_at).unwrap_or(0), out)?;
                    }
                }
            }
            Kind::FuncProto => {
                for param in ty.params() {
                    self.word(self.name(param.name_off), out)?;
                    self.word(self.id(param.type_id), out)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// How a type is written that no relocation can end at, and whose contents are of no use or not known: so that whoever is
/// led there by BTF at fault, or by a kind of a later kernel, judges it as before. A kind that is not known becomes a
/// variable of no type, which has no size and is compatible with nothing either.
pub(super) fn as_written(info: Info, third: u32) -> (Info, u32) {
    match info.kind() {
        Kind::Unknown(_) => (Info::new(Kind::Var, 0, false), 0),
        Kind::Datasec => (Info::new(Kind::Datasec, 0, false), third),
        _ => (info, third),
    }
}

/// Calls `each` with the offset of every name of a type that is kept.
pub(super) fn names_of(
    ty: &Type<'_>,
    keeps: impl Fn(u32) -> bool,
    mut each: impl FnMut(u32) -> Result<(), ArenaFull>,
) -> Result<(), ArenaFull> {
    each(ty.name_off())?;
    for (index, member) in (0..).zip(ty.members()) {
        if keeps(index) {
            each(member.name_off)?;
        }
    }
    for (index, enumerator) in (0..).zip(ty.enumerators()) {
        if keeps(index) {
            each(enumerator.name_off)?;
        }
    }
    ty.params().try_for_each(|param| each(param.name_off))
}

/// The first bytes of a blob that is not finished.
pub(super) const PLACEHOLDER: [u8; HEADER] = [0; HEADER];

const _: () = assert!(FIXED == 12);

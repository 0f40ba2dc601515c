//! Views of single types and of what follows them: members, enumerators, parameters, variables.

use super::{Info, Kind, TypeId};
use crate::bytes::Bytes;
use crate::numbers::low_u8;

/// A view of one type: the fixed words, and the bytes that its kind appends.
#[derive(Clone, Copy, Debug)]
pub struct Type<'btf> {
    id: TypeId,
    name_off: u32,
    info: Info,
    size_or_type: u32,
    tail: Bytes<'btf>,
}

impl<'btf> Type<'btf> {
    pub(crate) fn new(id: TypeId, [name_off, info, size_or_type]: [u32; 3], tail: Bytes<'btf>) -> Self {
        Self { id, name_off, info: Info(info), size_or_type, tail }
    }

    /// The type of id 0.
    pub(crate) fn void() -> Self {
        Self::new(TypeId::VOID, [0; 3], Bytes::new(&[], crate::bytes::Endian::Little))
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> TypeId {
        self.id
    }

    /// Where its name is in the string section, in bytes; 0 where it has none.
    #[must_use]
    pub fn name_off(&self) -> u32 {
        self.name_off
    }

    /// The info word.
    #[must_use]
    pub fn info(&self) -> Info {
        self.info
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.info.kind()
    }

    /// How many members, enumerators, parameters or variables it has.
    #[must_use]
    pub fn vlen(&self) -> u32 {
        self.info.vlen()
    }

    /// Bit 31 of the info word.
    #[must_use]
    pub fn kind_flag(&self) -> bool {
        self.info.kind_flag()
    }

    /// The third word where it is a size in bytes: int, struct, union, enum, datasec, float, enum64.
    #[must_use]
    pub fn byte_size(&self) -> u32 {
        self.size_or_type
    }

    /// The third word where it is a type: pointer, typedef, modifier, function (its prototype), prototype (its
    /// result), variable, tag.
    #[must_use]
    pub fn type_id(&self) -> TypeId {
        TypeId(self.size_or_type)
    }

    /// The third word as it is.
    #[must_use]
    pub fn size_or_type(&self) -> u32 {
        self.size_or_type
    }

    /// The bytes after the fixed words.
    #[must_use]
    pub fn tail(&self) -> Bytes<'btf> {
        self.tail
    }

    fn int_word(&self) -> u32 {
        self.tail.u32(0).unwrap_or(0)
    }

    /// Whether it is a signed integer. (An `INT` says so in its encoding; no other kind has one.)
    #[must_use]
    pub fn is_signed_int(&self) -> bool {
        self.kind() == Kind::Int && self.int_encoding() & 1 != 0
    }

    /// The encoding bits of an integer: 1 signed, 2 char, 4 bool.
    #[must_use]
    pub fn int_encoding(&self) -> u8 {
        low_u8(self.int_word() >> 24) & 0x0f
    }

    /// The bit offset of an old bitfield-style integer; 0 for any other integer.
    #[must_use]
    pub fn int_bit_offset(&self) -> u8 {
        low_u8(self.int_word() >> 16)
    }

    /// The number of value bits of an integer.
    #[must_use]
    pub fn int_bits(&self) -> u8 {
        low_u8(self.int_word())
    }

    /// The array's element, index type and length.
    #[must_use]
    pub fn array(&self) -> Option<Array> {
        if self.kind() != Kind::Array {
            return None;
        }
        let [element, index, len] = self.tail.u32x3(0)?;
        Some(Array { element: TypeId(element), index: TypeId(index), len })
    }

    /// The member with this index of a struct or union.
    #[inline]
    #[must_use]
    pub fn member(&self, index: u32) -> Option<Member> {
        if !self.kind().is_composite() {
            return None;
        }
        let [name_off, type_id, offset] = self.item(index)?;
        // With kind_flag the top 8 bits are the bitfield's size (UAPI: BTF_MEMBER_BITFIELD_SIZE).
        let (bit_offset, bitfield_size) =
            if self.kind_flag() { (offset & 0x00ff_ffff, low_u8(offset >> 24)) } else { (offset, 0) };
        Some(Member { name_off, type_id: TypeId(type_id), bit_offset, bitfield_size })
    }

    /// The members of a struct or union, in order.
    pub fn members(&self) -> impl Iterator<Item = Member> + use<'btf> {
        let view = *self;
        (0..view.vlen()).map_while(move |index| view.member(index))
    }

    /// The enumerator with this number.
    ///
    /// A signed 32-bit value (`kind_flag`) is sign-extended, an unsigned one is not.
    #[must_use]
    pub fn enumerator(&self, index: u32) -> Option<Enumerator> {
        if index >= self.vlen() {
            return None;
        }
        match self.kind() {
            Kind::Enum => {
                let at = usize::try_from(index).ok()?.checked_mul(8)?;
                let value = self.tail.u32(at.checked_add(4)?)?;
                let value =
                    if self.kind_flag() { i64::from(value.cast_signed()).cast_unsigned() } else { u64::from(value) };
                Some(Enumerator { name_off: self.tail.u32(at)?, value })
            }
            Kind::Enum64 => {
                let [name_off, low, high] = self.item(index)?;
                Some(Enumerator { name_off, value: u64::from(low) | (u64::from(high) << 32) })
            }
            _ => None,
        }
    }

    /// The enumerators, in order.
    pub fn enumerators(&self) -> impl Iterator<Item = Enumerator> + use<'btf> {
        let view = *self;
        (0..view.vlen()).map_while(move |index| view.enumerator(index))
    }

    /// The parameter with this index of a prototype.
    #[must_use]
    pub fn param(&self, index: u32) -> Option<Param> {
        if self.kind() != Kind::FuncProto || index >= self.vlen() {
            return None;
        }
        let at = usize::try_from(index).ok()?.checked_mul(8)?;
        Some(Param { name_off: self.tail.u32(at)?, type_id: TypeId(self.tail.u32(at.checked_add(4)?)?) })
    }

    /// The parameters of a prototype, in order.
    pub fn params(&self) -> impl Iterator<Item = Param> + use<'btf> {
        let view = *self;
        (0..view.vlen()).map_while(move |index| view.param(index))
    }

    /// The variable with this index of a section.
    #[must_use]
    pub fn section_var(&self, index: u32) -> Option<SectionVar> {
        if self.kind() != Kind::Datasec {
            return None;
        }
        let [type_id, byte_offset, byte_size] = self.item(index)?;
        Some(SectionVar { type_id: TypeId(type_id), byte_offset, byte_size })
    }

    /// The variables of a section, in order.
    pub fn section_vars(&self) -> impl Iterator<Item = SectionVar> + use<'btf> {
        let view = *self;
        (0..view.vlen()).map_while(move |index| view.section_var(index))
    }

    /// The linkage of a variable (its own word) or a function (its vlen): 0 static, 1 global, 2 extern.
    #[must_use]
    pub fn linkage(&self) -> u32 {
        if self.kind() == Kind::Func { self.vlen() } else { self.tail.u32(0).unwrap_or(0) }
    }

    /// The component that a declaration tag is on: a member's or parameter's index, -1 for the whole.
    #[must_use]
    pub fn component_idx(&self) -> i32 {
        self.tail.i32(0).unwrap_or(-1)
    }

    #[inline]
    fn item(&self, index: u32) -> Option<[u32; 3]> {
        if index >= self.vlen() {
            return None;
        }
        self.tail.u32x3(usize::try_from(index).ok()?.checked_mul(12)?)
    }
}

/// What an array holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    /// The type of its elements.
    pub element: TypeId,
    /// The type of its index; of no use but for printing.
    pub index: TypeId,
    /// The number of elements.
    pub len: u32,
}

/// A member of a struct or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where its name is in the string section; 0 for an anonymous struct or union.
    pub name_off: u32,
    /// Its type.
    pub type_id: TypeId,
    /// Its offset from the start of the struct, in bits.
    pub bit_offset: u32,
    /// Its size in bits where it is a bitfield, else 0.
    pub bitfield_size: u8,
}

/// A named value of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enumerator {
    /// Where its name is in the string section.
    pub name_off: u32,
    /// Its value, sign-extended to 64 bits where the enumeration is signed.
    pub value: u64,
}

/// A parameter of a prototype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Where its name is in the string section; 0 for none.
    pub name_off: u32,
    /// Its type; void for the `...` at the end.
    pub type_id: TypeId,
}

/// A variable's place in a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionVar {
    /// The `VAR`, or the `FUNC` of an extern.
    pub type_id: TypeId,
    /// Its offset in the section, in bytes.
    pub byte_offset: u32,
    /// Its size in bytes.
    pub byte_size: u32,
}

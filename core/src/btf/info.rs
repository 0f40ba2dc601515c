//! The info word of a type: its kind, its number of members, its flag. The one home of these masks.
//!
//! Since 2026 the kernel has 24 bits of `vlen` (0-23) and 7 of kind (24-30); before, 16 (0-15) and 5 (24-28). The bits
//! between were unused and zero, so one pair of masks reads both. Bit 31 is `kind_flag` (UAPI: `linux/btf.h`).

use crate::numbers::{low_u8, widened};
use core::fmt;

const VLEN_MASK: u32 = 0x00ff_ffff;
const KIND_SHIFT: u32 = 24;
const KIND_MASK: u32 = 0x7f;
const KIND_FLAG: u32 = 1 << 31;

/// The kind of a BTF type (UAPI: `BTF_KIND_*`).
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Type 0: nothing, or anything behind a pointer.
    Void,
    /// An integer.
    Int,
    /// A pointer.
    Ptr,
    /// An array of fixed length.
    Array,
    /// A struct.
    Struct,
    /// A union.
    Union,
    /// An enumeration of at most 32 bits.
    Enum,
    /// A forward declaration of a struct, or with `kind_flag` of a union.
    Fwd,
    /// A typedef.
    Typedef,
    /// `volatile`
    Volatile,
    /// `const`
    Const,
    /// `restrict`
    Restrict,
    /// A function.
    Func,
    /// A function's prototype.
    FuncProto,
    /// A global variable.
    Var,
    /// A section of global variables.
    Datasec,
    /// A floating point number.
    Float,
    /// A tag on a declaration.
    DeclTag,
    /// A tag on a type.
    TypeTag,
    /// An enumeration of 64 bits.
    Enum64,
    /// A kind that did not exist when this was written; readable only where the blob has a layout section.
    Unknown(u8),
}

impl Kind {
    /// The kind with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Void,
            1 => Self::Int,
            2 => Self::Ptr,
            3 => Self::Array,
            4 => Self::Struct,
            5 => Self::Union,
            6 => Self::Enum,
            7 => Self::Fwd,
            8 => Self::Typedef,
            9 => Self::Volatile,
            10 => Self::Const,
            11 => Self::Restrict,
            12 => Self::Func,
            13 => Self::FuncProto,
            14 => Self::Var,
            15 => Self::Datasec,
            16 => Self::Float,
            17 => Self::DeclTag,
            18 => Self::TypeTag,
            19 => Self::Enum64,
            unknown => Self::Unknown(unknown),
        }
    }

    /// Its number in the UAPI header.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Void => 0,
            Self::Int => 1,
            Self::Ptr => 2,
            Self::Array => 3,
            Self::Struct => 4,
            Self::Union => 5,
            Self::Enum => 6,
            Self::Fwd => 7,
            Self::Typedef => 8,
            Self::Volatile => 9,
            Self::Const => 10,
            Self::Restrict => 11,
            Self::Func => 12,
            Self::FuncProto => 13,
            Self::Var => 14,
            Self::Datasec => 15,
            Self::Float => 16,
            Self::DeclTag => 17,
            Self::TypeTag => 18,
            Self::Enum64 => 19,
            Self::Unknown(number) => number,
        }
    }

    /// Whether it is a struct or a union.
    #[must_use]
    pub const fn is_composite(self) -> bool {
        matches!(self, Self::Struct | Self::Union)
    }

    /// Whether it is an enumeration of either width.
    #[must_use]
    pub const fn is_enum(self) -> bool {
        matches!(self, Self::Enum | Self::Enum64)
    }

    /// Whether it stands for another type and adds nothing to its layout: `const`, `volatile`, `restrict`, type tags
    /// and typedefs.
    #[must_use]
    pub const fn is_modifier_or_typedef(self) -> bool {
        matches!(self, Self::Typedef | Self::Volatile | Self::Const | Self::Restrict | Self::TypeTag)
    }

    /// Whether a local type of this kind can be relocated against a target type of `other` (libbpf:
    /// `btf_kind_core_compat`): the same kind, where the two enumerations count as one.
    #[must_use]
    pub fn is_core_compatible(self, other: Self) -> bool {
        self == other || (self.is_enum() && other.is_enum())
    }

    /// The kind's name as bpftool prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Void => "VOID",
            Self::Int => "INT",
            Self::Ptr => "PTR",
            Self::Array => "ARRAY",
            Self::Struct => "STRUCT",
            Self::Union => "UNION",
            Self::Enum => "ENUM",
            Self::Fwd => "FWD",
            Self::Typedef => "TYPEDEF",
            Self::Volatile => "VOLATILE",
            Self::Const => "CONST",
            Self::Restrict => "RESTRICT",
            Self::Func => "FUNC",
            Self::FuncProto => "FUNC_PROTO",
            Self::Var => "VAR",
            Self::Datasec => "DATASEC",
            Self::Float => "FLOAT",
            Self::DeclTag => "DECL_TAG",
            Self::TypeTag => "TYPE_TAG",
            Self::Enum64 => "ENUM64",
            Self::Unknown(_) => "UNKNOWN",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(number) => write!(f, "UNKNOWN({number})"),
            known => f.write_str(known.name()),
        }
    }
}

/// The info word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info(pub u32);

impl Info {
    /// The word for a type of this kind.
    #[must_use]
    pub const fn new(kind: Kind, vlen: u32, kind_flag: bool) -> Self {
        let flag = if kind_flag { KIND_FLAG } else { 0 };
        Self(flag | (widened(kind.number()) << KIND_SHIFT) | (vlen & VLEN_MASK))
    }

    /// The number of the kind, 0 to 127.
    #[must_use]
    pub const fn kind_number(self) -> u8 {
        low_u8((self.0 >> KIND_SHIFT) & KIND_MASK)
    }

    /// The kind.
    #[must_use]
    pub const fn kind(self) -> Kind {
        Kind::from_number(self.kind_number())
    }

    /// How many members, enumerators, parameters or variables follow.
    #[must_use]
    pub const fn vlen(self) -> u32 {
        self.0 & VLEN_MASK
    }

    /// Bit 31, whose meaning depends on the kind: bitfields, signed enumerators, union, attribute tag.
    #[must_use]
    pub const fn kind_flag(self) -> bool {
        self.0 & KIND_FLAG != 0
    }
}

/// Bytes after the 12 fixed ones of a type: once, and for each of its `vlen` items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) once: u8,
    pub(crate) each: u8,
}

/// How many kinds this crate knows, type 0 included.
pub(crate) const KNOWN_KINDS: u8 = 20;

/// The shapes of the known kinds, by number.
pub(crate) const SHAPES: [Shape; 32] = {
    const fn shape(once: u8, each: u8) -> Shape {
        Shape { once, each }
    }
    let mut shapes = [shape(0, 0); 32];
    shapes[1] = shape(4, 0);
    shapes[3] = shape(12, 0);
    shapes[4] = shape(0, 12);
    shapes[5] = shape(0, 12);
    shapes[6] = shape(0, 8);
    shapes[13] = shape(0, 8);
    shapes[14] = shape(4, 0);
    shapes[15] = shape(0, 12);
    shapes[17] = shape(4, 0);
    shapes[19] = shape(0, 12);
    shapes
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pair_of_masks_reads_both_encodings() {
        // Before 2026: struct of 3 members with kind_flag.
        assert_eq!(Info(0x8400_0003).kind(), Kind::Struct);
        assert_eq!(Info(0x8400_0003).vlen(), 3);
        assert!(Info(0x8400_0003).kind_flag());
        // Since: 70,000 members, and a kind beyond the old five bits.
        assert_eq!(Info(0x0401_1170).vlen(), 70_000);
        assert_eq!(Info(0x6500_0000).kind(), Kind::Unknown(101));
        assert!(!Info(0x6500_0000).kind_flag());
        assert_eq!(Info::new(Kind::Struct, 70_000, false), Info(0x0401_1170));
    }

    #[test]
    fn every_number_is_its_kind() {
        for number in 0..128 {
            assert_eq!(Kind::from_number(number).number(), number);
        }
    }
}

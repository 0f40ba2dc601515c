//! Types as text, in the words of `bpftool btf dump file FILE format raw`.
//!
//! ```text
//! [1] INT 'long unsigned int' size=8 bits_offset=0 nr_bits=64 encoding=(none)
//! [2] STRUCT 'list_head' size=16 vlen=2
//!         'next' type_id=3 bits_offset=0
//!         'prev' type_id=3 bits_offset=64
//! ```

use core::fmt::{self, Write as _};

use super::{BtfError, Kind, Type, Types};

/// Why a dump ended early.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpError {
    /// A type cannot be stepped over.
    Btf(BtfError),
    /// The writer refused.
    Write,
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Btf(error) => error.fmt(f),
            Self::Write => f.write_str("output cannot be written"),
        }
    }
}

impl core::error::Error for DumpError {}

impl From<BtfError> for DumpError {
    fn from(error: BtfError) -> Self {
        Self::Btf(error)
    }
}

impl From<fmt::Error> for DumpError {
    fn from(_: fmt::Error) -> Self {
        Self::Write
    }
}

/// Writes all types of the blob, those of a base left out, one after the other, each with a line end.
///
/// # Errors
/// [`DumpError`]; what came before is written.
pub fn dump(types: &Types<'_>, out: &mut impl fmt::Write) -> Result<(), DumpError> {
    for ty in types.btf().iter() {
        write_type(types, &ty?, out)?;
        out.write_char('\n')?;
    }
    Ok(())
}

/// Writes one of `types` without a line end after its last line. A name that is not in the string section is
/// written as `(null)`, as bpftool does, one of 64 KiB and more as `(too long)`; bytes that are not UTF-8 as U+FFFD.
///
/// # Errors
/// The writer's.
pub fn write_type(types: &Types<'_>, ty: &Type<'_>, out: &mut impl fmt::Write) -> fmt::Result {
    let name = |offset| Name { types, offset };
    write!(out, "[{}] {} '{}'", ty.id(), ty.kind(), name(ty.name_off()))?;
    match ty.kind() {
        Kind::Int => write!(
            out,
            " size={} bits_offset={} nr_bits={} encoding={}",
            ty.byte_size(),
            ty.int_bit_offset(),
            ty.int_bits(),
            int_encoding(ty.int_encoding())
        ),
        Kind::Ptr | Kind::Const | Kind::Volatile | Kind::Restrict | Kind::Typedef | Kind::TypeTag => {
            write!(out, " type_id={}", ty.type_id())
        }
        Kind::Array => match ty.array() {
            Some(array) => {
                write!(out, " type_id={} index_type_id={} nr_elems={}", array.element, array.index, array.len)
            }
            None => Ok(()),
        },
        Kind::Struct | Kind::Union => {
            write!(out, " size={} vlen={}", ty.byte_size(), ty.vlen())?;
            for member in ty.members() {
                let (type_id, bit_offset) = (member.type_id, member.bit_offset);
                write!(out, "\n\t'{}' type_id={type_id} bits_offset={bit_offset}", name(member.name_off))?;
                if member.bitfield_size != 0 {
                    write!(out, " bitfield_size={}", member.bitfield_size)?;
                }
            }
            Ok(())
        }
        Kind::Enum | Kind::Enum64 => write_enum(types, ty, out),
        Kind::Fwd => write!(out, " fwd_kind={}", if ty.kind_flag() { "union" } else { "struct" }),
        Kind::Func => write!(out, " type_id={} linkage={}", ty.type_id(), linkage(ty.linkage())),
        Kind::FuncProto => {
            write!(out, " ret_type_id={} vlen={}", ty.type_id(), ty.vlen())?;
            for param in ty.params() {
                write!(out, "\n\t'{}' type_id={}", name(param.name_off), param.type_id)?;
            }
            Ok(())
        }
        Kind::Var => write!(out, " type_id={}, linkage={}", ty.type_id(), linkage(ty.linkage())),
        Kind::Datasec => {
            write!(out, " size={} vlen={}", ty.byte_size(), ty.vlen())?;
            for var in ty.section_vars() {
                write!(out, "\n\ttype_id={} offset={} size={}", var.type_id, var.byte_offset, var.byte_size)?;
                if let Ok(declared) = types.get(var.type_id) {
                    write!(out, " ({} '{}')", declared.kind(), name(declared.name_off()))?;
                }
            }
            Ok(())
        }
        Kind::Float => write!(out, " size={}", ty.byte_size()),
        Kind::DeclTag => write!(out, " type_id={} component_idx={}", ty.type_id(), ty.component_idx()),
        Kind::Void | Kind::Unknown(_) => Ok(()),
    }
}

fn write_enum(types: &Types<'_>, ty: &Type<'_>, out: &mut impl fmt::Write) -> fmt::Result {
    let encoding = if ty.kind_flag() { "SIGNED" } else { "UNSIGNED" };
    write!(out, " encoding={encoding} size={} vlen={}", ty.byte_size(), ty.vlen())?;
    for enumerator in ty.enumerators() {
        write!(out, "\n\t'{}' val=", Name { types, offset: enumerator.name_off })?;
        if ty.kind_flag() {
            write!(out, "{}", enumerator.value.cast_signed())?;
        } else {
            write!(out, "{}", enumerator.value)?;
        }
        if ty.kind() == Kind::Enum64 {
            out.write_str(if ty.kind_flag() { "LL" } else { "ULL" })?;
        }
    }
    Ok(())
}

fn int_encoding(bits: u8) -> &'static str {
    match bits {
        0 => "(none)",
        1 => "SIGNED",
        2 => "CHAR",
        4 => "BOOL",
        _ => "UNKN",
    }
}

fn linkage(number: u32) -> &'static str {
    match number {
        0 => "static",
        1 => "global",
        2 => "extern",
        _ => "(unknown)",
    }
}

/// The longest string that is written, its NUL counted: no name has a hundredth of it, and tags are no novels. A hundred
/// thousand types may refer to one string.
const MAX_SHOWN: usize = 1 << 16;

/// The string at an offset; `(anon)` at 0, `(too long)` for one of [`MAX_SHOWN`] bytes and more.
struct Name<'t, 'a> {
    types: &'t Types<'a>,
    offset: u32,
}

impl fmt::Display for Name<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offset == 0 {
            return f.write_str("(anon)");
        }
        let name = match self.types.string_within(self.offset, MAX_SHOWN) {
            Ok(name) => name,
            Err(BtfError::NameTooLong { .. }) => return f.write_str("(too long)"),
            Err(_) => return f.write_str("(null)"),
        };
        for chunk in name.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::string::String;
    use std::vec::Vec;

    use super::*;
    use crate::arena::{Arena, Part};
    use crate::btf::{Btf, Info};
    use crate::bytes::{Endian, u16_bytes, u32_bytes};

    fn blob(words: &[u32], strings: &[u8], endian: Endian) -> Vec<u8> {
        let mut blob = Vec::from(u16_bytes(0xeb9f, endian));
        blob.extend([1, 0]);
        let len = (words.len() * 4) as u32;
        for word in [24, 0, len, len, strings.len() as u32].iter().chain(words) {
            blob.extend(u32_bytes(*word, endian));
        }
        blob.extend(strings);
        blob
    }

    #[test]
    fn what_no_kernel_has_is_written_too() {
        let info = |kind, vlen, flag| Info::new(kind, vlen, flag).0;
        let words = [
            [1, info(Kind::Int, 0, false), 1].as_slice(),
            &[0x0f00_0008],
            &[1, info(Kind::Enum64, 1, true), 8, 99, 0xffff_ffff, 0xffff_ffff],
            &[1, info(Kind::Enum, 1, true), 4, 3, 0x8000_0000],
            &[1, info(Kind::Func, 2, false), 7],
            &[3, info(Kind::Var, 0, false), 1, 9],
            &[1, info(Kind::Datasec, 2, false), 8, 5, 0, 4, 77, 4, 4],
            &[1, info(Kind::Fwd, 0, true), 0],
            &[1, info(Kind::DeclTag, 0, false), 1, 2],
        ]
        .concat();
        let wanted = "[1] INT 'a' size=1 bits_offset=0 nr_bits=8 encoding=UNKN\n\
            [2] ENUM64 'a' encoding=SIGNED size=8 vlen=1\n\t'(null)' val=-1LL\n\
            [3] ENUM 'a' encoding=SIGNED size=4 vlen=1\n\t'b\u{fffd}' val=-2147483648\n\
            [4] FUNC 'a' type_id=7 linkage=extern\n\
            [5] VAR 'b\u{fffd}' type_id=1, linkage=(unknown)\n\
            [6] DATASEC 'a' size=8 vlen=2\n\ttype_id=5 offset=0 size=4 (VAR 'b\u{fffd}')\n\ttype_id=77 offset=4 size=4\n\
            [7] FWD 'a' fwd_kind=union\n\
            [8] DECL_TAG 'a' type_id=1 component_idx=2\n";
        for endian in [Endian::Little, Endian::Big] {
            let blob = blob(&words, b"\0a\0b\xff\0", endian);
            let mut buffer = [0u8; 256];
            let mut arena = Arena::new(&mut buffer);
            let types = Types::index(Btf::parse(&blob).unwrap(), 4, None, &mut arena, Part::LocalIndex).unwrap();
            let mut text = String::new();
            dump(&types, &mut text).unwrap();
            assert_eq!(text, wanted);
        }
    }
}

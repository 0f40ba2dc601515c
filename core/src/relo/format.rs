//! A relocation's local side as C-like text: `struct task_struct.real_parent.tgid`.
//!
//! Meant for messages, so nothing here fails: where the record, the access string or the BTF is at fault, what could be
//! read is followed by `?`.

use core::fmt::{self, Write};

use crate::btf::ext::CoreRelo;
use crate::btf::strings::Name;
use crate::btf::{Kind, Type, TypeId, Types};
use crate::limits::{MAX_ACCESS_STEPS, MAX_ACCESS_STRING, MAX_CHAIN};

/// The local access of a relocation record, shown as C has it.
///
/// | access | text |
/// | --- | --- |
/// | field | `struct task_struct.real_parent.tgid` |
/// | array element | `struct s.arr[3]` |
/// | root index above 0 | `struct s[2].f` |
/// | enumerator | `enum e::NAME` |
/// | whole type | `struct task_struct`, `typedef foo` |
///
/// Anonymous members are left out, as C does not name them either.
#[derive(Clone, Copy, Debug)]
pub struct LocalSpec<'s, 'l> {
    local: &'s Types<'l>,
    relo: CoreRelo,
}

impl<'s, 'l> LocalSpec<'s, 'l> {
    /// The access of `relo`, whose types are `local`.
    #[must_use]
    pub fn new(local: &'s Types<'l>, relo: &CoreRelo) -> Self {
        Self { local, relo: *relo }
    }
}

impl fmt::Display for LocalSpec<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_spec(self.local, &self.relo, f)
    }
}

/// A type's name with its C keyword, or `(anon)` where it has none.
#[derive(Clone, Copy, Debug)]
pub struct TypeName<'s, 'l> {
    types: &'s Types<'l>,
    id: TypeId,
}

impl<'s, 'l> TypeName<'s, 'l> {
    /// The name of type `id` of `types`.
    #[must_use]
    pub fn new(types: &'s Types<'l>, id: TypeId) -> Self {
        Self { types, id }
    }
}

impl fmt::Display for TypeName<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_type_name(self.types, self.id, 0, f).map(|_| ())
    }
}

fn write_spec(local: &Types<'_>, relo: &CoreRelo, out: &mut impl Write) -> fmt::Result {
    if !write_type_name(local, relo.type_id, 0, out)? || relo.kind.is_type() {
        return Ok(());
    }
    let Ok(access) = local.string_within(relo.access_str_off, MAX_ACCESS_STRING) else { return out.write_char('?') };
    let Ok(root) = local.skip_modifiers(relo.type_id) else { return out.write_char('?') };
    let mut at = Some(root);
    for (number, step) in access.split(|&byte| byte == b':').enumerate() {
        let index = (number < MAX_ACCESS_STEPS).then(|| read_index(step)).flatten();
        let (Some(ty), Some(index)) = (at, index) else { return out.write_char('?') };
        if number > 0 {
            at = write_step(local, &ty, index, out)?;
        } else if relo.kind.is_enumval() {
            at = None;
            let name = ty.enumerator(index).and_then(|enumerator| local.identifier(enumerator.name_off).ok());
            let Some(name) = name else { return out.write_str("::?") };
            out.write_str("::")?;
            write!(out, "{}", Name(name))?;
            continue;
        } else if index > 0 {
            write!(out, "[{index}]")?;
        }
        if at.is_none() {
            return out.write_char('?');
        }
    }
    Ok(())
}

/// Writes one step into `ty` and gives what it leads to; `None` where `ty` has no such part.
fn write_step<'l>(
    local: &Types<'l>,
    ty: &Type<'l>,
    index: u32,
    out: &mut impl Write,
) -> Result<Option<Type<'l>>, fmt::Error> {
    if let Some(array) = ty.array() {
        write!(out, "[{index}]")?;
        return Ok(local.skip_modifiers(array.element).ok());
    }
    let Some(member) = ty.member(index) else { return Ok(None) };
    if member.name_off != 0 {
        out.write_char('.')?;
        let Ok(name) = local.identifier(member.name_off) else { return out.write_char('?').map(|()| None) };
        write!(out, "{}", Name(name))?;
    }
    Ok(local.skip_modifiers(member.type_id).ok())
}

fn read_index(step: &[u8]) -> Option<u32> {
    core::str::from_utf8(step).ok()?.parse().ok().filter(|&index: &u32| index <= i32::MAX.cast_unsigned())
}

/// Writes keyword and name; false where the type could not be read to the end, which is then said.
fn write_type_name(types: &Types<'_>, id: TypeId, depth: u32, out: &mut impl Write) -> Result<bool, fmt::Error> {
    let ty = types.get(id).ok().filter(|_| depth < MAX_CHAIN);
    let deeper = depth.saturating_add(1);
    let Some(ty) = ty else { return out.write_char('?').map(|()| false) };
    let keyword = match ty.kind() {
        Kind::Void => return out.write_str("void").map(|()| true),
        Kind::Const | Kind::Volatile | Kind::Restrict => {
            out.write_str(match ty.kind() {
                Kind::Const => "const ",
                Kind::Volatile => "volatile ",
                _ => "restrict ",
            })?;
            return write_type_name(types, ty.type_id(), deeper, out);
        }
        Kind::TypeTag => return write_type_name(types, ty.type_id(), deeper, out),
        Kind::Ptr => {
            let is_whole = write_type_name(types, ty.type_id(), deeper, out)?;
            return out.write_str(" *").map(|()| is_whole);
        }
        Kind::Array => {
            let Some(array) = ty.array() else { return out.write_char('?').map(|()| false) };
            let is_whole = write_type_name(types, array.element, deeper, out)?;
            return write!(out, "[{}]", array.len).map(|()| is_whole);
        }
        Kind::Struct => "struct ",
        Kind::Union => "union ",
        Kind::Fwd if ty.kind_flag() => "union ",
        Kind::Fwd => "struct ",
        Kind::Enum | Kind::Enum64 => "enum ",
        Kind::Typedef => "typedef ",
        _ => "",
    };
    out.write_str(keyword)?;
    match types.identifier(ty.name_off()) {
        Ok([]) => out.write_str("(anon)")?,
        Ok(name) => write!(out, "{}", Name(name))?,
        Err(_) => return out.write_char('?').map(|()| false),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::string::{String, ToString};
    use std::vec::Vec;

    use super::*;
    use crate::arena::{Arena, Part};
    use crate::btf::ext::ReloKind;
    use crate::btf::{Btf, Info};

    const STRINGS: &[u8] =
        b"\x00s\x00f\x00inner\x00arr\x00e\x00ONE\x00foo\x000:0\x000:2:3\x002:0\x000:1:0:0\x001\x009\x000:\x000:5\x00";

    fn at(text: &str) -> u32 {
        let wanted = std::format!("\0{text}\0");
        STRINGS.windows(wanted.len()).position(|window| window == wanted.as_bytes()).unwrap() as u32 + 1
    }

    fn blob() -> Vec<u8> {
        let info = |kind, vlen| Info::new(kind, vlen, false).0;
        let words = [
            // [1] int f; [2] struct s { int f; struct { struct inner { int f } inner; }; int arr[4]; }
            [at("f"), info(Kind::Int, 0), 4, 0x20].as_slice(),
            &[at("s"), info(Kind::Struct, 3), 24],
            &[at("f"), 1, 0, 0, 3, 32, at("arr"), 5, 64],
            &[0, info(Kind::Struct, 1), 4, at("inner"), 4, 0],
            &[at("inner"), info(Kind::Struct, 1), 4, at("f"), 1, 0],
            &[0, info(Kind::Array, 0), 0, 1, 1, 4],
            &[at("e"), info(Kind::Enum, 2), 4, at("f"), 0, at("ONE"), 1],
            &[at("foo"), info(Kind::Typedef, 0), 2],
            &[0, info(Kind::Const, 0), 8],
            &[9999, info(Kind::Struct, 0), 0],
        ]
        .concat();
        let mut blob = Vec::from([0x9f, 0xeb, 1, 0]);
        let len = (words.len() * 4) as u32;
        for word in [24, 0, len, len, STRINGS.len() as u32].iter().chain(&words) {
            blob.extend(word.to_le_bytes());
        }
        blob.extend(STRINGS);
        blob
    }

    #[test]
    fn accesses_read_like_c() {
        let blob = blob();
        let mut buffer = [0u8; 256];
        let mut arena = Arena::new(&mut buffer);
        let types = Types::index(Btf::parse(&blob).unwrap(), 4, None, &mut arena, Part::LocalIndex).unwrap();
        let text = |id, access, kind| -> String {
            let relo = CoreRelo { insn_off: 0, type_id: TypeId(id), access_str_off: access, kind };
            LocalSpec::new(&types, &relo).to_string()
        };
        let field = ReloKind::FieldByteOffset;
        let rows = [
            (2, at("0:0"), field, "struct s.f"),
            (2, at("2:0"), field, "struct s[2].f"),
            (2, at("0:1:0:0"), field, "struct s.inner.f"),
            (2, at("0:2:3"), field, "struct s.arr[3]"),
            (7, at("0:0"), field, "typedef foo.f"),
            (7, at("0:0"), ReloKind::TypeExists, "typedef foo"),
            (2, at("0:0"), ReloKind::TypeSize, "struct s"),
            (6, at("1"), ReloKind::EnumvalValue, "enum e::ONE"),
            (6, at("9"), ReloKind::EnumvalValue, "enum e::?"),
            (2, at("0:5"), field, "struct s?"),
            (2, at("0:"), field, "struct s?"),
            (2, at("s"), field, "struct s?"),
            (2, 9999, field, "struct s?"),
            // A const that leads to itself, a name outside the strings, a type that is not there.
            (8, at("0:0"), field, &(String::from("const ").repeat(32) + "?")),
            (9, at("0:0"), field, "struct ?"),
            (77, at("0:0"), field, "?"),
        ];
        for (id, access, kind, wanted) in rows {
            assert_eq!(text(id, access, kind), wanted);
        }
    }
}

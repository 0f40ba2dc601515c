//! Names out of an object, for messages.

use core::fmt;

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::strings::Name;
use corelo_core::btf::{TypeId, Types};
use corelo_core::object::Object;

/// Adds ` (WHAT [NUMBER] is NAME)`, or nothing where there is no name.
pub(super) fn write_known(f: &mut fmt::Formatter<'_>, what: &str, number: u32, name: &[u8]) -> fmt::Result {
    if name.is_empty() { Ok(()) } else { write!(f, " ({what} [{number}] is `{}`)", Name(name)) }
}

/// The object's own types with next to no index, for messages: one entry, and a walk for each type.
fn with_local<R>(object: &Object<'_>, read: impl FnOnce(&Types<'_>) -> R) -> Option<R> {
    let mut buffer = [0u64; 8];
    let mut arena = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut buffer));
    let types = Types::index(object.btf()?, u32::MAX, None, &mut arena, Part::LocalIndex).ok()?;
    Some(read(&types))
}

pub(super) fn type_name<'o>(object: &Object<'o>, id: TypeId) -> &'o [u8] {
    let Some(btf) = object.btf() else { return &[] };
    let ty = btf.iter().map_while(Result::ok).find(|ty| ty.id() == id);
    let name = ty.and_then(|ty| btf_string(object, ty.name_off()));
    name.unwrap_or(&[])
}

fn btf_string<'o>(object: &Object<'o>, offset: u32) -> Option<&'o [u8]> {
    let strings = object.btf()?.strings().get(usize::try_from(offset).ok()?..)?;
    strings.split(|&byte| byte == 0).next()
}

/// The name of a member of the struct that the map variable `id` is of.
pub(super) fn map_attribute<'o>(object: &Object<'o>, id: TypeId, member: u32) -> &'o [u8] {
    let offset = with_local(object, |types| {
        let var = types.get(id).ok()?;
        let definition = types.skip_modifiers(var.type_id()).ok()?;
        Some(definition.member(member)?.name_off)
    });
    offset.flatten().and_then(|offset| btf_string(object, offset)).unwrap_or(&[])
}

/// The name of a member of the struct that type `id` is.
pub(super) fn member_name<'o>(object: &Object<'o>, id: TypeId, member: u32) -> &'o [u8] {
    let offset = with_local(object, |types| Some(types.skip_modifiers(id).ok()?.member(member)?.name_off));
    offset.flatten().and_then(|offset| btf_string(object, offset)).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_on_one_line() {
        assert_eq!(Name(b"a\nb\xff").to_string(), "a\\nb\u{fffd}");
    }
}

//! Sections of variables, by name.

use super::ObjectError;
use crate::btf::{Kind, Type, Types};

/// The `DATASEC` of this name.
pub(super) fn find_datasec<'a>(local: &Types<'a>, name: &[u8]) -> Result<Option<Type<'a>>, ObjectError> {
    for ty in local.btf().iter() {
        let ty = ty?;
        if ty.kind() == Kind::Datasec && local.string_is(ty.name_off(), name) {
            return Ok(Some(ty));
        }
    }
    Ok(None)
}

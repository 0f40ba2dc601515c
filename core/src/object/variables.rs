//! Global variables by name: where they lie in the maps of global data.

use super::datasec::find_datasec;
use super::{Declared, MapOrigin, Object, ObjectError};
use crate::btf::{Kind, TypeId, Types};
use crate::uapi::linkage;

/// A global variable, and its place in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The index of the map that its section is loaded as.
    pub map: usize,
    /// Where it starts in the map's only value, in bytes.
    pub byte_offset: u32,
    /// Bytes that it takes.
    pub byte_size: u32,
    /// Its type in the object's BTF.
    pub type_id: TypeId,
}

impl Declared<'_> {
    /// The global variable of this name; `None` where no map of global data has one. Static variables have no names
    /// that tell them apart, so they are not found.
    pub(crate) fn variable(
        &self,
        object: &Object<'_>,
        local: &Types<'_>,
        name: &[u8],
    ) -> Result<Option<Variable>, ObjectError> {
        for (index, map) in self.maps.iter().enumerate() {
            if !matches!(map.origin(), MapOrigin::Data(_)) {
                continue;
            }
            let section = map.section();
            let Some(datasec) = find_datasec(local, object.section_name(section))? else { continue };
            let mut found = None;
            for place in datasec.section_vars() {
                let var = local.get(place.type_id)?;
                if var.kind() == Kind::Var && var.linkage() != linkage::STATIC && local.string_is(var.name_off(), name)
                {
                    found = Some((place, var));
                    break;
                }
            }
            let Some((place, var)) = found else { continue };
            // Compilers leave the offsets in the BTF at 0; the symbol knows.
            let mut symbol = None;
            for entry in object.elf().symbols() {
                let entry = entry?;
                if entry.section == Some(section) && !entry.is_local() && entry.is_named(name) {
                    symbol = Some(entry);
                    break;
                }
            }
            let byte_offset = symbol.map_or(Some(place.byte_offset), |symbol| u32::try_from(symbol.value).ok());
            let (Some(byte_offset), byte_size) = (byte_offset, local.byte_size(var.type_id())?) else { continue };
            if byte_offset.checked_add(byte_size).is_none_or(|end| end > map.value_size) {
                return Err(ObjectError::BadSection { section });
            }
            return Ok(Some(Variable { map: index, byte_offset, byte_size, type_id: var.type_id() }));
        }
        Ok(None)
    }
}

//! Global variables by name: where they lie in the maps of global data.

use super::datasec::find_datasec;
use super::{Declared, MapId, MapOrigin, Object, ObjectError};
use crate::btf::{Kind, TypeId, Types};
use crate::uapi::linkage;

/// A global variable, and its place in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The map that its section is loaded as.
    pub map: MapId,
    /// Where it starts in the map's only value, in bytes.
    pub byte_offset: u32,
    /// Bytes that it takes.
    pub byte_size: u32,
    /// Its type in the object's BTF.
    pub type_id: TypeId,
}

impl<'buf> Declared<'buf> {
    /// The global variable of this name; `None` where no map of global data has one. Static variables have no names
    /// that tell them apart, so they are not found.
    pub(crate) fn variable<'a>(
        &self,
        object: &Object<'a>,
        local: &Types<'a>,
        name: &[u8],
    ) -> Result<Option<Variable>, ObjectError> {
        let mut variables = self.variables(*object, *local);
        let is_it = |found: &Result<(&[u8], Placed), _>| found.as_ref().map_or(true, |(found, _)| *found == name);
        match variables.find(is_it).transpose()? {
            Some((_, placed)) => placed.locate(object, local).map(Some),
            None => Ok(None),
        }
    }

    /// All global variables with their names, in the order of their maps; static ones left out.
    pub(crate) fn variables<'a>(
        &self,
        object: Object<'a>,
        local: Types<'a>,
    ) -> impl Iterator<Item = Result<(&'a [u8], Placed<'a>), ObjectError>> + use<'a, 'buf> {
        let of_data = self.maps_by_id().filter(|(_, map)| matches!(map.origin(), MapOrigin::Data(_)));
        of_data.flat_map(move |(id, map)| {
            let (datasec, error) = match find_datasec(&local, object.section_name(map.section())) {
                Ok(datasec) => (datasec, None),
                Err(error) => (None, Some(Err(error))),
            };
            let (section, value_size) = (map.section(), map.value_size);
            let vars = datasec.into_iter().flat_map(|datasec| datasec.section_vars());
            error.into_iter().chain(vars.filter_map(move |place| {
                let named = local.get(place.type_id).and_then(|var| {
                    let is_global = var.kind() == Kind::Var && var.linkage() != linkage::STATIC;
                    let name = if is_global { local.string(var.name_off())? } else { b"" };
                    let placed = Placed {
                        map: id,
                        section,
                        value_size,
                        byte_offset: place.byte_offset,
                        type_id: var.type_id(),
                        name,
                    };
                    Ok(is_global.then_some((name, placed)))
                });
                named.map_err(ObjectError::from).transpose()
            }))
        })
    }
}

/// A global variable, as the BTF places it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed<'a> {
    map: MapId,
    section: u32,
    value_size: u32,
    byte_offset: u32,
    type_id: TypeId,
    name: &'a [u8],
}

impl Placed<'_> {
    /// Where it lies: compilers leave the offsets in the BTF at 0; the symbol knows.
    pub(crate) fn locate(&self, object: &Object<'_>, local: &Types<'_>) -> Result<Variable, ObjectError> {
        let section = self.section;
        let mut byte_offset = Some(self.byte_offset);
        for entry in object.elf().symbols() {
            let entry = entry?;
            if entry.section == Some(section) && !entry.is_local() && entry.is_named(self.name) {
                byte_offset = u32::try_from(entry.value).ok();
                break;
            }
        }
        let byte_size = local.byte_size(self.type_id)?;
        match byte_offset {
            Some(byte_offset) if byte_offset.checked_add(byte_size).is_some_and(|end| end <= self.value_size) => {
                Ok(Variable { map: self.map, byte_offset, byte_size, type_id: self.type_id })
            }
            _ => Err(ObjectError::BadSection { section }),
        }
    }
}

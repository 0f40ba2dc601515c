//! Maps: those that `.maps` and legacy sections define, and those that the loader makes for global data.

use super::datasec::find_datasec;
use super::elf::{Elf, Section};
use super::error::ObjectError;
use super::externs::Extern;
use super::map::{DataSection, Map, MapOrigin, Pinning};
use super::{Object, legacy_maps};
use crate::arena::{Arena, Growing, Part};
use crate::btf::{Kind, Member, Type, TypeId, Types};
use crate::uapi::{BPF_F_LINK, BPF_F_MMAPABLE, BPF_F_RDONLY_PROG, linkage, map_type};

/// Reads all maps: defined ones, inner models behind them, global data, `.kconfig`.
pub(super) fn read<'buf>(
    object: &Object<'_>,
    local: Option<&Types<'_>>,
    externs: &[Extern],
    arena: &mut Arena<'buf>,
) -> Result<&'buf [Map], ObjectError> {
    let mut maps = arena.grow::<Map>(Part::Maps);
    for section in object.elf().sections() {
        let section = section?;
        if legacy_maps::is_legacy(section.name()) {
            legacy_maps::read(object, local, &section, &mut maps)?;
        } else if section.is_named(b".maps") {
            let local = local.ok_or(ObjectError::MapsWithoutBtf)?;
            read_btf_maps(local, &section, &mut maps)?;
        }
    }
    let data_types = local.map(DataTypes);
    for section in object.elf().sections() {
        let section = section?;
        if let Some(kind) = data_section(&section) {
            maps.push(data_map(&section, kind, data_types.as_ref())?)?;
        }
    }
    if let Some(kconfig_size) = super::externs::kconfig_size(externs) {
        let mut map = Map::new(MapOrigin::Kconfig, 0, 0);
        map.map_type = map_type::ARRAY;
        map.key_size = 4;
        map.value_size = kconfig_size;
        map.max_entries = 1;
        map.flags = BPF_F_RDONLY_PROG | BPF_F_MMAPABLE;
        map.value_type = match &data_types {
            Some(types) => types.find(b".kconfig")?.map_or(0, |ty| ty.id().0),
            None => 0,
        };
        maps.push(map)?;
    }
    for section in object.elf().sections() {
        let section = section?;
        if is_struct_ops(section.name()) {
            let local = local.ok_or(ObjectError::StructOpsWithoutBtf { section: section.index })?;
            read_struct_ops(local, &section, &mut maps)?;
        }
    }
    if maps.len() >= usize::from(u16::MAX) {
        return Err(ObjectError::TooMany);
    }
    let maps = maps.finish()?;
    if let Some(local) = local {
        place_btf_maps(object.elf(), local, maps)?;
    }
    Ok(maps)
}

fn data_section(section: &Section<'_>) -> Option<DataSection> {
    let is =
        |base: &[u8]| section.name().strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."));
    if section.size() == 0 || section.is_code() {
        return None;
    }
    match () {
        () if section.is_progbits() && is(b".rodata") => Some(DataSection::Rodata),
        () if section.is_progbits() && is(b".data") => Some(DataSection::Data),
        () if section.is_nobits() && is(b".bss") => Some(DataSection::Bss),
        () => None,
    }
}

fn data_map(section: &Section<'_>, kind: DataSection, types: Option<&DataTypes<'_>>) -> Result<Map, ObjectError> {
    let too_large = ObjectError::DataTooLarge { section: section.index };
    let mut map = Map::new(MapOrigin::Data(kind), section.index, 0);
    map.map_type = map_type::ARRAY;
    map.key_size = 4;
    map.value_size = u32::try_from(section.size()).map_err(|_| too_large)?;
    map.max_entries = 1;
    if kind == DataSection::Rodata {
        map.flags = BPF_F_RDONLY_PROG;
    }
    if let Some((types, ty)) = types.and_then(|types| Some((types, types.find(section.name()).ok()??))) {
        map.value_type = ty.id().0;
        if types.has_global(&ty) {
            map.flags |= BPF_F_MMAPABLE;
        }
    }
    Ok(map)
}

/// The `DATASEC`s of an object.
struct DataTypes<'a>(&'a Types<'a>);

impl<'a> DataTypes<'a> {
    fn find(&self, name: &[u8]) -> Result<Option<Type<'a>>, ObjectError> {
        find_datasec(self.0, name)
    }

    /// Whether some variable of the section is visible to other objects: only then is the map of use to user space, and
    /// made mappable (libbpf: `map_is_mmapable`).
    fn has_global(&self, datasec: &Type<'_>) -> bool {
        datasec
            .section_vars()
            .filter_map(|var| self.0.get(var.type_id).ok())
            .any(|var| var.kind() == Kind::Var && var.linkage() != linkage::STATIC)
    }
}

fn read_btf_maps(local: &Types<'_>, section: &Section<'_>, maps: &mut Growing<'_, '_, Map>) -> Result<(), ObjectError> {
    let datasec = find_datasec(local, b".maps")?.ok_or(ObjectError::MapsNotInBtf)?;
    for place in datasec.section_vars() {
        let var = local.get(place.type_id)?;
        if var.kind() != Kind::Var {
            return Err(ObjectError::MapsNotInBtf);
        }
        if var.linkage() != linkage::GLOBAL {
            return Err(ObjectError::StaticMap { id: var.id() });
        }
        let mut map = Map::new(MapOrigin::Btf, section.index, 0);
        map.name = var.name_off();
        let inner = Definition { local, var: var.id(), is_inner: false }.read(var.type_id(), &mut map)?;
        let outer_idx = maps.len();
        maps.push(map)?;
        if let Some(mut inner) = inner {
            inner.name = var.name_off();
            maps.push(inner)?;
            let inner_number = u16::try_from(maps.len()).map_err(|_| ObjectError::TooMany)?;
            if let Some(outer) = maps.items().get_mut(outer_idx) {
                outer.inner = inner_number;
            }
        }
    }
    Ok(())
}

/// Whether a section holds struct_ops tables (libbpf: `bpf_object__elf_collect`); those behind a `?` are made only when
/// asked for.
fn is_struct_ops(name: &[u8]) -> bool {
    matches!(name.strip_prefix(b"?").unwrap_or(name), b".struct_ops" | b".struct_ops.link")
}

/// libbpf: `init_struct_ops_maps`
fn read_struct_ops(
    local: &Types<'_>,
    section: &Section<'_>,
    maps: &mut Growing<'_, '_, Map>,
) -> Result<(), ObjectError> {
    let Some(datasec) = find_datasec(local, section.name())? else { return Ok(()) };
    for place in datasec.section_vars() {
        let var = local.get(place.type_id)?;
        let definition = local.skip_modifiers(var.type_id())?;
        if definition.kind() != Kind::Struct {
            return Err(ObjectError::BadMapDefinition { id: definition.id() });
        }
        let mut map = Map::new(MapOrigin::StructOps, section.index, 0);
        map.name = var.name_off();
        map.definition = definition.id().0;
        map.map_type = map_type::STRUCT_OPS;
        map.key_size = 4;
        map.value_size = definition.byte_size();
        map.max_entries = 1;
        if section.name().ends_with(b".link") {
            map.flags = BPF_F_LINK;
        }
        maps.push(map)?;
    }
    Ok(())
}

/// Gives maps of `.maps` the places that their symbols have: the compiler leaves the offsets in the BTF at 0.
fn place_btf_maps(elf: &Elf<'_>, local: &Types<'_>, maps: &mut [Map]) -> Result<(), ObjectError> {
    for symbol in elf.symbols() {
        let symbol = symbol?;
        let Some(section) = symbol.section.filter(|_| !symbol.is_named(b"") && !symbol.is_section()) else {
            continue;
        };
        maps.iter_mut()
            .filter(|map| matches!(map.origin(), MapOrigin::Btf | MapOrigin::StructOps) && map.section == section)
            .filter(|map| local.string_is(map.name, symbol.name()))
            .for_each(|map| map.section_offset = symbol.value);
    }
    Ok(())
}

/// A map definition being read (libbpf: `parse_btf_map_def`).
struct Definition<'d> {
    local: &'d Types<'d>,
    /// The variable, for messages.
    var: TypeId,
    is_inner: bool,
}

impl Definition<'_> {
    /// Reads the struct `definition`, through typedefs, into `map`; returns the model of inner maps where there is one.
    fn read(&self, definition: TypeId, map: &mut Map) -> Result<Option<Map>, ObjectError> {
        let definition = self.local.skip_modifiers(definition)?;
        if definition.kind() != Kind::Struct {
            return Err(ObjectError::BadMapDefinition { id: definition.id() });
        }
        map.definition = definition.id().0;
        let mut inner = None;
        for (member_idx, member) in (0..).zip(definition.members()) {
            let bad = ObjectError::BadMapAttribute { id: self.var, member: member_idx };
            let is_last = member_idx.wrapping_add(1) == definition.vlen();
            match self.local.string(member.name_off)? {
                b"type" => map.map_type = self.number(&member).ok_or(bad)?,
                b"max_entries" => map.max_entries = self.number(&member).ok_or(bad)?,
                b"map_flags" => map.flags = self.number(&member).ok_or(bad)?,
                b"numa_node" => map.numa_node = self.number(&member).ok_or(bad)?,
                b"map_extra" => map.extra = self.long(&member).ok_or(bad)?,
                b"pinning" => match self.number(&member).ok_or(bad)? {
                    0 => {}
                    1 if !self.is_inner => map.set_pinning(Pinning::ByName),
                    _ => return Err(bad),
                },
                b"key_size" => {
                    let size = self.number(&member).ok_or(bad)?;
                    self.set_size(&mut map.key_size, size, member_idx)?;
                }
                b"value_size" => {
                    let size = self.number(&member).ok_or(bad)?;
                    self.set_size(&mut map.value_size, size, member_idx)?;
                }
                b"key" => {
                    let ty = self.pointee(&member).ok_or(bad)?;
                    self.set_size(&mut map.key_size, self.local.byte_size(ty)?, member_idx)?;
                    map.key_type = ty.0;
                }
                b"value" => {
                    let ty = self.pointee(&member).ok_or(bad)?;
                    self.set_size(&mut map.value_size, self.local.byte_size(ty)?, member_idx)?;
                    map.value_type = ty.0;
                }
                b"values" if is_last => inner = self.read_values(&member, member_idx, map)?,
                _ => return Err(bad),
            }
        }
        if map.map_type == 0 {
            return Err(ObjectError::MapWithoutType { id: self.var });
        }
        Ok(inner)
    }

    fn read_values(&self, member: &Member, member_idx: u32, map: &mut Map) -> Result<Option<Map>, ObjectError> {
        let bad = ObjectError::BadMapAttribute { id: self.var, member: member_idx };
        if self.is_inner {
            return Err(ObjectError::InnerOfInner { id: self.var });
        }
        // Values are descriptors.
        self.set_size(&mut map.value_size, 4, member_idx)?;
        let array = self.local.skip_modifiers(member.type_id)?.array().ok_or(bad)?;
        let element = self.local.skip_modifiers(array.element)?;
        if element.kind() != Kind::Ptr {
            return Err(bad);
        }
        let pointee = self.local.skip_modifiers(element.type_id())?;
        match map.map_type {
            map_type::PROG_ARRAY if pointee.kind() == Kind::FuncProto => Ok(None),
            map_type::ARRAY_OF_MAPS | map_type::HASH_OF_MAPS => {
                let mut inner = Map::new(MapOrigin::Inner, 0, 0);
                Definition { local: self.local, var: self.var, is_inner: true }.read(pointee.id(), &mut inner)?;
                Ok(Some(inner))
            }
            _ => Err(bad),
        }
    }

    /// The number that `__uint(name, number)` wraps: a pointer to an array of so many elements.
    fn number(&self, member: &Member) -> Option<u32> {
        let array = self.local.skip_modifiers(self.pointee(member)?).ok()?.array()?;
        Some(array.len)
    }

    /// As [`Definition::number`], or what `__ulong(name, number)` makes: an enumeration with that one value.
    fn long(&self, member: &Member) -> Option<u64> {
        let ty = self.local.skip_modifiers(member.type_id).ok()?;
        match ty.kind() {
            Kind::Enum | Kind::Enum64 if ty.vlen() == 1 => Some(ty.enumerator(0)?.value),
            Kind::Ptr => self.number(member).map(u64::from),
            _ => None,
        }
    }

    fn pointee(&self, member: &Member) -> Option<TypeId> {
        let pointer = self.local.skip_modifiers(member.type_id).ok()?;
        (pointer.kind() == Kind::Ptr).then(|| pointer.type_id())
    }

    fn set_size(&self, size: &mut u32, found: u32, member: u32) -> Result<(), ObjectError> {
        if *size != 0 && *size != found {
            return Err(ObjectError::MapSizeConflict { id: self.var, member, given: *size, found });
        }
        *size = found;
        Ok(())
    }
}

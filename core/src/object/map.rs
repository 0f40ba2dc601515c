//! A map as an object declares it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{MapId, Object};
use crate::btf::{TypeId, Types};
use crate::numbers::to_usize;
use crate::uapi::map_type;

/// The section of variables that live in the object's arena map.
pub(crate) const ARENA_SECTION: &[u8] = b".addr_space.1";

/// What a map comes from.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MapOrigin {
    /// A variable in `.maps`.
    Btf,
    /// A symbol in a `maps` section.
    Legacy,
    /// The `values` of a map of maps: the model of the maps in it. It has no place of its own.
    Inner,
    /// A section of global data.
    Data(DataSection),
    /// The `.kconfig` externs.
    Kconfig,
    /// A variable in `.struct_ops` or `.struct_ops.link`: a table of programs for the kernel.
    StructOps,
}

/// Which global data a section holds.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSection {
    /// `.rodata` and its like: programs may only read it, and it is frozen when filled.
    Rodata,
    /// `.data` and its like.
    Data,
    /// `.bss` and its like: all zero at first.
    Bss,
}

/// Whether and how a map is pinned (libbpf: `enum libbpf_pin_type`).
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// Not at all.
    None,
    /// In bpffs under the map's own name.
    ByName,
}

/// A map as the object declares it: sizes in bytes, numbers as the kernel's `BPF_MAP_CREATE` takes them.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Map {
    /// Flags beyond those of the first word, for some map types.
    pub extra: u64,
    /// Where in its section the definition stands, in bytes.
    pub(super) section_offset: u64,
    /// String offset (`.maps`), symbol (`maps`) or unused (global data).
    pub(super) name: u32,
    pub(super) section: u32,
    /// `BPF_MAP_TYPE_*`
    pub map_type: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// How many entries it can hold.
    pub max_entries: u32,
    /// `BPF_F_*`
    pub flags: u32,
    /// The NUMA node, where the flags say that it counts.
    pub numa_node: u32,
    pub(super) key_type: u32,
    pub(super) value_type: u32,
    pub(super) definition: u32,
    pub(super) inner: u16,
    pub(super) origin: u8,
    pub(super) pinning: u8,
}

impl Map {
    pub(super) fn new(origin: MapOrigin, section: u32, section_offset: u64) -> Self {
        let origin = match origin {
            MapOrigin::Btf => 0,
            MapOrigin::Legacy => 1,
            MapOrigin::Inner => 2,
            MapOrigin::Kconfig => 3,
            MapOrigin::Data(DataSection::Rodata) => 4,
            MapOrigin::Data(DataSection::Data) => 5,
            MapOrigin::Data(DataSection::Bss) => 6,
            MapOrigin::StructOps => 7,
        };
        Self {
            extra: 0,
            section_offset,
            name: 0,
            section,
            map_type: 0,
            key_size: 0,
            value_size: 0,
            max_entries: 0,
            flags: 0,
            numa_node: 0,
            key_type: 0,
            value_type: 0,
            definition: 0,
            inner: 0,
            origin,
            pinning: 0,
        }
    }

    /// What it comes from.
    #[must_use]
    pub fn origin(&self) -> MapOrigin {
        match self.origin {
            0 => MapOrigin::Btf,
            1 => MapOrigin::Legacy,
            2 => MapOrigin::Inner,
            3 => MapOrigin::Kconfig,
            4 => MapOrigin::Data(DataSection::Rodata),
            5 => MapOrigin::Data(DataSection::Data),
            7 => MapOrigin::StructOps,
            _ => MapOrigin::Data(DataSection::Bss),
        }
    }

    /// Whether the loader makes it for the object: global data and `.kconfig`.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        matches!(self.origin(), MapOrigin::Data(_) | MapOrigin::Kconfig)
    }

    /// Its name as the source has it: the variable's, the symbol's, or the section's.
    #[must_use]
    pub fn name<'obj>(&self, object: &Object<'obj>, local: Option<&Types<'obj>>) -> &'obj [u8] {
        match self.origin() {
            MapOrigin::Btf | MapOrigin::Inner | MapOrigin::StructOps => {
                local.and_then(|types| types.string(self.name).ok()).unwrap_or(&[])
            }
            MapOrigin::Legacy => object.symbol_name(self.name),
            MapOrigin::Data(_) => object.section_name(self.section),
            MapOrigin::Kconfig => b".kconfig",
        }
    }

    /// The type of its keys in the object's BTF, where the definition names one.
    #[must_use]
    pub fn key_type(&self) -> Option<TypeId> {
        (self.key_type != 0).then_some(TypeId(self.key_type))
    }

    /// The type of its values in the object's BTF, where the definition names one: of global data the `DATASEC`.
    #[must_use]
    pub fn value_type(&self) -> Option<TypeId> {
        (self.value_type != 0).then_some(TypeId(self.value_type))
    }

    /// The struct that defines it, in the object's BTF.
    #[must_use]
    pub fn definition(&self) -> TypeId {
        TypeId(self.definition)
    }

    /// How it is pinned.
    #[must_use]
    pub fn pinning(&self) -> Pinning {
        if self.pinning == 1 { Pinning::ByName } else { Pinning::None }
    }

    pub(super) fn set_pinning(&mut self, pinning: Pinning) {
        self.pinning = u8::from(pinning == Pinning::ByName);
    }

    /// The map that is the model of those in this one.
    #[must_use]
    pub fn inner(&self) -> Option<MapId> {
        u32::from(self.inner).checked_sub(1).map(MapId::new)
    }

    /// The section that it stands in.
    #[must_use]
    pub fn section(&self) -> u32 {
        self.section
    }

    /// Where in its section it stands, in bytes.
    #[must_use]
    pub fn section_offset(&self) -> u64 {
        self.section_offset
    }

    /// The first contents of global data, of an arena, or (as the object lays it out) of a struct_ops table; none for `.bss`, which is zero, and for all other maps.
    #[must_use]
    pub fn initial_data<'obj>(&self, object: &Object<'obj>) -> &'obj [u8] {
        match self.origin() {
            MapOrigin::Data(_) => object.elf().section(self.section).map_or(&[], |section| section.data.data()),
            MapOrigin::StructOps => {
                let section = object.elf().section(self.section).map_or(&[][..], |section| section.data.data());
                let start = usize::try_from(self.section_offset).unwrap_or(usize::MAX);
                let end = start.saturating_add(to_usize(self.value_size));
                section.get(start..end).unwrap_or(&[])
            }
            MapOrigin::Btf if self.map_type == map_type::ARENA => {
                let section = object.elf().section_by_name(ARENA_SECTION).ok().flatten();
                section.map_or(&[], |section| section.data.data())
            }
            _ => &[],
        }
    }
}

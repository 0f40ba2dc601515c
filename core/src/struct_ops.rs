//! struct_ops: a table of programs as the object has it, moved to where the kernel's table has its members.
//!
//! The object's struct and the kernel's need not be laid out alike, nor have the same members (libbpf:
//! `bpf_map__init_kern_struct_ops`): members are found by name; those that the kernel lacks are dropped where they are
//! zero, and refused where they are not. A word that a program's address goes to is not zero, whatever the file has there.

use core::fmt;

use crate::btf::{BtfError, Kind, Member, Type, TypeId, Types};
use crate::numbers::to_usize;
use crate::object::elf::{Rel, Rels};
use crate::object::{Declared, Map, MapId, MapOrigin, Object, ObjectError, ProgramId, rels_of};

/// Why a struct_ops table does not fit the kernel. Members are numbered in the object's struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum StructOpsError {
    /// The map is no struct_ops table.
    NoTable,
    /// The kernel has no struct of the table's name.
    NoType,
    /// The kernel has no `bpf_struct_ops_NAME` that holds the struct: it is not one that programs can implement.
    NoValueType,
    /// The kernel's struct lacks a member that is not zero.
    NoMember {
        /// The member.
        member: u32,
    },
    /// A member is a bitfield.
    Bitfield {
        /// The member.
        member: u32,
    },
    /// A member is of another kind in the kernel's struct.
    OtherKind {
        /// The member.
        member: u32,
    },
    /// A member is of another size in the kernel's struct.
    OtherSize {
        /// The member.
        member: u32,
        /// Bytes in the object.
        local_size: u32,
        /// Bytes in the kernel.
        target_size: u32,
    },
    /// A pointer of the table is to something that is no struct_ops program, or is not at a member.
    BadPointer {
        /// What it points to.
        symbol: u32,
        /// Where in the section it is, in bytes.
        offset: u64,
    },
    /// One program is given for members that the kernel numbers differently.
    TwoMembers {
        /// The function.
        function: ProgramId,
    },
    /// The object file is at fault.
    Object(ObjectError),
    /// A type cannot be read.
    Btf(BtfError),
}

impl From<BtfError> for StructOpsError {
    fn from(error: BtfError) -> Self {
        Self::Btf(error)
    }
}

impl From<ObjectError> for StructOpsError {
    fn from(error: ObjectError) -> Self {
        Self::Object(error)
    }
}

impl fmt::Display for StructOpsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoTable => f.write_str("not a struct_ops table"),
            Self::NoType => f.write_str("the kernel has no struct of this name"),
            Self::NoValueType => f.write_str("the kernel's struct is not one that programs can implement"),
            Self::NoMember { member } => write!(f, "member {member} is set, and the kernel's struct lacks it"),
            Self::Bitfield { member } => write!(f, "member {member} is a bitfield"),
            Self::OtherKind { member } => write!(f, "member {member} is of another kind in the kernel's struct"),
            Self::OtherSize { member, local_size, target_size } => {
                write!(f, "member {member} takes {local_size} bytes, in the kernel's struct {target_size}")
            }
            Self::BadPointer { symbol, offset } => write!(
                f,
                "pointer to symbol [{symbol}] at byte {offset} of its section is none from a member to a struct_ops program"
            ),
            Self::TwoMembers { function } => {
                write!(f, "function #{function} is given for members that the kernel numbers differently")
            }
            Self::Object(error) => error.fmt(f),
            Self::Btf(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for StructOpsError {}

/// A member of a kernel's struct that programs implement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelMember {
    /// The struct.
    pub of: TypeId,
    /// The member's index in it.
    pub index: u32,
}

/// A struct_ops table in terms of the kernel's types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructOps {
    /// The struct that programs implement: what they are loaded for.
    pub type_id: TypeId,
    /// The struct that the kernel wraps around it: the map's value.
    pub value_type_id: TypeId,
    /// Bytes of the map's value.
    pub value_size: u32,
    /// Where in the value the table starts, in bytes.
    pub data_offset: u32,
}

/// All that is needed to look at the tables of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables<'t> {
    pub(crate) object: &'t Object<'t>,
    pub(crate) declared: &'t Declared<'t>,
    pub(crate) local: &'t Types<'t>,
    pub(crate) kernel: &'t Types<'t>,
}

/// What goes to a member of the kernel's struct.
enum Content<'o> {
    Bytes(&'o [u8]),
    Program(ProgramId),
    /// Nothing: a null pointer, or a member that the kernel lacks.
    None,
}

impl<'t> Tables<'t> {
    /// Puts the kernel's types together: `type_id` is the struct of the table's name, `value_type_id` what may wrap it.
    pub(crate) fn describe(&self, type_id: TypeId, value_type_id: TypeId) -> Result<StructOps, StructOpsError> {
        let value = self.kernel.get(value_type_id)?;
        let holds = |member: &Member| member.type_id == type_id;
        let data = value.members().find(holds).ok_or(StructOpsError::NoValueType)?;
        Ok(StructOps { type_id, value_type_id, value_size: value.byte_size(), data_offset: data.bit_offset / 8 })
    }

    /// The program that a table has at byte `offset` of its struct.
    fn program_at(&self, rels: Rels<'_>, map: &Map, offset: u32) -> Result<Option<ProgramId>, StructOpsError> {
        let place = map.section_offset().saturating_add(u64::from(offset));
        let rel = rels.iter().find(|rel| rel.offset == place);
        rel.map(|rel| self.program(rel)).transpose()
    }

    /// The program that an entry of a table's relocations names.
    fn program(&self, rel: Rel) -> Result<ProgramId, StructOpsError> {
        let symbol = self.object.elf().symbol(rel.symbol)?;
        let function = symbol.section.and_then(|section| self.declared.function_of(section, symbol.value));
        let is_ours = |&id: &ProgramId| {
            let function = self.declared.function(id);
            function.is_some_and(|function| {
                let section = self.object.section_name(self.declared.section_of(function));
                let section = section.strip_prefix(b"?").unwrap_or(section);
                section.starts_with(b"struct_ops")
            })
        };
        let bad = StructOpsError::BadPointer { symbol: rel.symbol, offset: rel.offset };
        function.filter(is_ours).ok_or(bad)
    }

    /// Every pointer of a table goes from a member that takes functions to a struct_ops program, by a symbol alone
    /// (libbpf: `bpf_object__collect_st_ops_relos`).
    fn check_pointers(&self, map: &Map, local: &Type<'_>, rels: Rels<'_>) -> Result<(), StructOpsError> {
        let range = range(map);
        let data = map.initial_data(self.object);
        for rel in rels.iter().filter(|rel| range.contains(&rel.offset)) {
            let place = rel.offset.saturating_sub(range.start);
            let member = local.members().find(|member| u64::from(member.bit_offset) == place.saturating_mul(8));
            let word = usize::try_from(place).ok().and_then(|start| data.get(start..start.saturating_add(8)));
            let has_addend = word.is_some_and(|word| word.iter().any(|&byte| byte != 0));
            let is_for_functions = match member {
                Some(member) => points_to_function(self.local, member.type_id)?,
                None => false,
            };
            if has_addend || !is_for_functions {
                return Err(StructOpsError::BadPointer { symbol: rel.symbol, offset: rel.offset });
            }
            self.program(rel)?;
        }
        Ok(())
    }

    /// The member of the kernel's struct that has this name, and its index.
    fn counterpart(&self, target: &Type<'_>, name: &[u8]) -> Option<(u32, Member)> {
        (0u32..).zip(target.members()).find(|(_, other)| self.kernel.string_is(other.name_off, name))
    }

    /// The kind that a member and its counterpart must have in common.
    fn kind_of_both(&self, index: u32, member: &Member, other: &Member) -> Result<Kind, StructOpsError> {
        if member.bitfield_size != 0 || other.bitfield_size != 0 {
            return Err(StructOpsError::Bitfield { member: index });
        }
        let kind = self.local.skip_modifiers(member.type_id)?.kind();
        if kind == self.kernel.skip_modifiers(other.type_id)?.kind() {
            Ok(kind)
        } else {
            Err(StructOpsError::OtherKind { member: index })
        }
    }

    /// Calls `each` with the index of every member of the kernel's struct that the table sets, where it is in that
    /// struct, and what goes there.
    fn walk(
        &self,
        map: &Map,
        ops: &StructOps,
        mut each: impl FnMut(u32, u32, Content<'_>) -> Result<(), StructOpsError>,
    ) -> Result<(), StructOpsError> {
        let data = map.initial_data(self.object);
        let rels = rels_of(self.object, map.section())?;
        let local = self.local.get(map.definition())?;
        let target = self.kernel.get(ops.type_id)?;
        self.check_pointers(map, &local, rels)?;
        for (index, member) in (0u32..).zip(local.members()) {
            let byte_offset = member.bit_offset / 8;
            let local_size = self.local.byte_size(member.type_id)?;
            let start = to_usize(byte_offset);
            // A section of zeros only may be left out of the file.
            let bytes = data.get(start..start.saturating_add(to_usize(local_size))).unwrap_or(&[]);
            let program = self.program_at(rels, map, byte_offset)?;
            let name = self.local.string(member.name_off)?;
            let Some((target_index, other)) = self.counterpart(&target, name) else {
                if program.is_some() || bytes.iter().any(|&byte| byte != 0) {
                    return Err(StructOpsError::NoMember { member: index });
                }
                continue;
            };
            let content = if self.kind_of_both(index, &member, &other)? == Kind::Ptr {
                if program.is_some() && !points_to_function(self.kernel, other.type_id)? {
                    return Err(StructOpsError::OtherKind { member: index });
                }
                program.map_or(Content::None, Content::Program)
            } else {
                let target_size = self.kernel.byte_size(other.type_id)?;
                if local_size != target_size {
                    return Err(StructOpsError::OtherSize { member: index, local_size, target_size });
                }
                Content::Bytes(bytes)
            };
            each(target_index, other.bit_offset / 8, content)?;
        }
        Ok(())
    }

    /// Writes the table into `value`, which starts as zeros; calls `program` with the place in `value` and the
    /// function of each member that is a program.
    pub(crate) fn write(
        &self,
        map: &Map,
        ops: &StructOps,
        value: &mut [u8],
        mut program: impl FnMut(&mut [u8], ProgramId),
    ) -> Result<(), StructOpsError> {
        self.walk(map, ops, |_, offset, content| {
            let start = to_usize(ops.data_offset.saturating_add(offset));
            let room = value.get_mut(start..).unwrap_or_default();
            match content {
                Content::Bytes(bytes) => {
                    if let Some(place) = room.get_mut(..bytes.len()) {
                        place.copy_from_slice(bytes);
                    }
                }
                Content::Program(function) => program(room.get_mut(..8).unwrap_or_default(), function),
                Content::None => {}
            }
            Ok(())
        })
    }

    /// Checks a table; calls `each` with every program in it and the index of the kernel's member that it is for.
    pub(crate) fn programs(
        &self,
        map: &Map,
        ops: &StructOps,
        mut each: impl FnMut(ProgramId, u32) -> Result<(), StructOpsError>,
    ) -> Result<(), StructOpsError> {
        self.walk(map, ops, |index, _, content| match content {
            Content::Program(function) => each(function, index),
            Content::Bytes(_) | Content::None => Ok(()),
        })
    }

    /// The kernel's struct and the index of the member that a program implements in those tables that `counts` says;
    /// `None` where none of them has it.
    pub(crate) fn member_of(
        &self,
        function: ProgramId,
        counts: impl Fn(MapId) -> bool,
        describe: impl Fn(MapId) -> Result<StructOps, StructOpsError>,
    ) -> Result<Option<KernelMember>, StructOpsError> {
        let mut found = None;
        let maps = self.declared.maps();
        let is_table = |map: &&Map| map.origin() == MapOrigin::StructOps;
        // Tables of one section follow each other. A pointer belongs to the first table that it lies in.
        for first in maps.chunk_by(|one, next| one.section() == next.section()).filter_map(|maps| maps.first()) {
            if !is_table(&first) {
                continue;
            }
            for rel in rels_of(self.object, first.section())?.iter() {
                if target_of(self.object, self.declared, rel)? != Some(function) {
                    continue;
                }
                let holds =
                    |map: &Map| is_table(&map) && map.section() == first.section() && range(map).contains(&rel.offset);
                let Some((id, map)) = self.declared.maps_by_id().find(|(_, map)| holds(map)) else { continue };
                if !counts(id) {
                    continue;
                }
                self.program(rel)?;
                let ops = describe(id)?;
                let Some(index) = self.member_at(map, &ops, rel)? else { continue };
                let member = KernelMember { of: ops.type_id, index };
                if found.is_some_and(|before| before != member) {
                    return Err(StructOpsError::TwoMembers { function });
                }
                found = Some(member);
            }
        }
        Ok(found)
    }

    /// The index of the kernel's member that the pointer of a relocation goes to; `None` where the kernel has none of
    /// the name, or no member of the table is there.
    fn member_at(&self, map: &Map, ops: &StructOps, rel: Rel) -> Result<Option<u32>, StructOpsError> {
        let local = self.local.get(map.definition())?;
        let target = self.kernel.get(ops.type_id)?;
        let place = rel.offset.saturating_sub(map.section_offset());
        for (index, member) in (0u32..).zip(local.members()) {
            if u64::from(member.bit_offset / 8) != place {
                continue;
            }
            let Some((target_index, other)) = self.counterpart(&target, self.local.string(member.name_off)?) else {
                continue;
            };
            if self.kind_of_both(index, &member, &other)? == Kind::Ptr {
                return Ok(Some(target_index));
            }
        }
        Ok(None)
    }
}

/// Whether a type is a pointer to a function.
fn points_to_function(types: &Types<'_>, id: TypeId) -> Result<bool, BtfError> {
    let pointer = types.skip_modifiers(id)?;
    Ok(pointer.kind() == Kind::Ptr && types.skip_modifiers(pointer.type_id())?.kind() == Kind::FuncProto)
}

/// The bytes of its section that a table takes.
fn range(map: &Map) -> core::ops::Range<u64> {
    map.section_offset()..map.section_offset().saturating_add(u64::from(map.value_size))
}

/// The function that a relocation leads to.
fn target_of(object: &Object<'_>, declared: &Declared<'_>, rel: Rel) -> Result<Option<ProgramId>, StructOpsError> {
    let symbol = object.elf().symbol(rel.symbol)?;
    Ok(symbol.section.and_then(|section| declared.function_of(section, symbol.value)))
}

/// Whether a table names a program at all.
pub(crate) fn has(
    object: &Object<'_>,
    declared: &Declared<'_>,
    map: &Map,
    function: ProgramId,
) -> Result<bool, StructOpsError> {
    for rel in rels_of(object, map.section())?.iter().filter(|rel| range(map).contains(&rel.offset)) {
        if target_of(object, declared, rel)? == Some(function) {
            return Ok(true);
        }
    }
    Ok(false)
}

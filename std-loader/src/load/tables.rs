//! struct_ops tables: checked before anything is created, registered when all programs are loaded.

use std::os::fd::AsRawFd;

use corelo_core::arena::{Arena, ArenaFull, Part};
use corelo_core::object::{Function, Map, MapId, MapOrigin, ProgramId};
use corelo_core::prepare::Prepared;
use corelo_core::struct_ops::{KernelMember, StructOpsError};

use super::{Collection, LoadError, LoadOptions, is_table_made};
use crate::attach::{self, Link, LinkError};
use crate::sys::Errno;
use crate::sys::fd_table::MapRef;
use crate::sys::mmap::AnonMap;

/// One word for every function, for [`check`]; none where there is no table.
pub(super) fn words<'s>(prepared: &Prepared<'_>, scratch: &mut Arena<'s>) -> Result<&'s mut [u64], ArenaFull> {
    let is_table = |map: &Map| map.origin() == MapOrigin::StructOps;
    let len = if prepared.maps().iter().any(is_table) { prepared.declared().functions().len() } else { 0 };
    scratch.slice::<u64>(len, Part::Maps)
}

/// Checks all tables that are made before anything of the object is: that they fit the kernel's structs, and that no
/// program is given for two different members (libbpf: `bpf_object__init_kern_struct_ops_maps`).
pub(super) fn check(
    prepared: &Prepared<'_>,
    options: &LoadOptions<'_>,
    scratch: &mut Arena<'_>,
) -> Result<(), LoadError> {
    let given = words(prepared, scratch)?;
    for (map, declared) in prepared.declared().maps_by_id() {
        if declared.origin() != MapOrigin::StructOps || !is_table_made(prepared, declared, options) {
            continue;
        }
        let failed = |error| LoadError::StructOps { map, error };
        let of = prepared.struct_ops(map).map_err(failed)?.type_id.0;
        let each = |function: ProgramId, member: u32| {
            // No struct has type 0, which is void, so no word that is given is 0.
            let word = u64::from(of) << 32 | u64::from(member);
            match given.get_mut(function.index()) {
                Some(before) if *before != 0 && *before != word => Err(StructOpsError::TwoMembers { function }),
                Some(place) => {
                    *place = word;
                    Ok(())
                }
                None => Ok(()),
            }
        };
        prepared.struct_ops_programs(map, each).map_err(failed)?;
    }
    Ok(())
}

/// The kernel's struct and the member of it that a program is loaded for: of the tables that are made, or of the others
/// for a program that the caller wants without its table.
pub(super) fn member(
    prepared: &Prepared<'_>,
    id: ProgramId,
    options: &LoadOptions<'_>,
) -> Result<Option<KernelMember>, LoadError> {
    let is_made = |map: MapId| prepared.declared().map(map).is_some_and(|map| is_table_made(prepared, map, options));
    let found = match prepared.struct_ops_member(id, is_made) {
        Ok(None) => prepared.struct_ops_member(id, |_| true),
        found => found,
    };
    found.map_err(|error| {
        let mut maps = prepared.declared().maps_by_id().map(|(map, _)| map);
        let has = |&map: &MapId| prepared.table_has(map, id) != Ok(false);
        LoadError::StructOps { map: maps.find(has).unwrap_or_default(), error }
    })
}

/// Whether a table that is made by default has the program; `None` for a program in no table (libbpf:
/// `bpf_object_adjust_struct_ops_autoload`).
pub(super) fn is_in_table(
    prepared: &Prepared<'_>,
    id: ProgramId,
    function: &Function,
    is_made: impl Fn(MapId) -> bool,
) -> Result<Option<bool>, LoadError> {
    let section = prepared.section_name(function);
    let section = section.strip_prefix(b"?").unwrap_or(section);
    if !section.starts_with(b"struct_ops") {
        return Ok(None);
    }
    let mut found = None;
    for (map, declared) in prepared.declared().maps_by_id() {
        if declared.origin() == MapOrigin::StructOps
            && prepared.table_has(map, id).map_err(|error| LoadError::StructOps { map, error })?
        {
            found = Some(found == Some(true) || is_made(map));
        }
    }
    Ok(found)
}

impl Collection<'_> {
    /// Registers a struct_ops table with the kernel, given by its map's index, with the programs that were loaded for
    /// it. Dropping the link takes it back.
    ///
    /// # Errors
    /// ENOENT where there is no such table or it was not created; the kernel's answer.
    pub fn register_table(&self, map: MapId) -> Result<Link, LinkError> {
        let refused = |errno: Errno| LinkError::Kernel { call: "struct_ops", errno };
        let fd = self.map_fd(map).ok_or(refused(Errno::ENOENT))?;
        let ops = self.prepared.struct_ops(map).map_err(|_| refused(Errno::ENOENT))?;
        let size = ops.value_size as usize;
        let mut memory = AnonMap::new(size).map_err(refused)?;
        let value = memory.get_mut(..size).unwrap_or_default();
        let written = self.prepared.write_struct_ops(map, value, |place, function| {
            let fd = self.program_fd(function).map_or(0, |fd| fd.as_raw_fd());
            // The kernel's member is a pointer; it takes the descriptor out of it.
            let fd = u64::from(fd.cast_unsigned()).to_ne_bytes();
            if let Some(place) = place.get_mut(..fd.len()) {
                place.copy_from_slice(&fd);
            }
        });
        written.map_err(|_| refused(Errno::EINVAL))?;
        let map = MapRef::new(fd).map_err(refused)?;
        attach::struct_ops::attach(&map, value)
    }
}

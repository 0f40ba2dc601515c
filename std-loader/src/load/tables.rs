//! struct_ops tables: checked when their maps are created, registered when all programs are loaded.

use std::os::fd::AsRawFd;

use corelo_core::object::{Function, MapOrigin};
use corelo_core::prepare::Prepared;
use corelo_core::struct_ops::{StructOps, StructOpsError};

use super::Collection;
use crate::links::{self, Link, LinkError};
use crate::sys::Errno;
use crate::sys::fd_table::MapRef;
use crate::sys::mmap::AnonMap;

/// A table's place in the kernel's terms, its members checked.
pub(super) fn describe(prepared: &Prepared<'_>, map: usize) -> Result<StructOps, StructOpsError> {
    let ops = prepared.struct_ops(map)?;
    prepared.write_struct_ops(map, &mut [], |_, _| {})?;
    Ok(ops)
}

/// Whether a table that is made by default has the program, in a member that the kernel knows; `None` for a program in
/// no table (libbpf: `bpf_object_adjust_struct_ops_autoload`).
pub(super) fn is_in_table(
    prepared: &Prepared<'_>,
    number: usize,
    function: &Function,
    is_made: impl Fn(usize) -> bool,
) -> Option<bool> {
    let section = prepared.section_name(function);
    let section = section.strip_prefix(b"?").unwrap_or(section);
    if !section.starts_with(b"struct_ops") {
        return None;
    }
    let mut found = None;
    for (map, declared) in prepared.maps().iter().enumerate() {
        if declared.origin() == MapOrigin::StructOps && prepared.table_has(map, number) {
            let known = prepared.struct_ops_member(number).is_ok_and(|member| member.is_some());
            found = Some(found.unwrap_or(false) || (known && is_made(map)));
        }
    }
    found
}

impl Collection<'_, '_> {
    /// Registers a struct_ops table with the kernel, given by its map's number, with the programs that were loaded for
    /// it. Dropping the link takes it back.
    ///
    /// # Errors
    /// ENOENT where there is no such table or it was not created; the kernel's answer.
    pub fn attach_table(&self, map: usize) -> Result<Link, LinkError> {
        let refused = |errno: Errno| LinkError::Kernel { call: "struct_ops", errno };
        let fd = self.maps.get(map).ok_or(refused(Errno::ENOENT))?;
        let ops = self.prepared.struct_ops(map).map_err(|_| refused(Errno::ENOENT))?;
        let size = ops.value_size as usize;
        let mut memory = AnonMap::new(size).map_err(refused)?;
        let value = memory.get_mut(..size).unwrap_or_default();
        let written = self.prepared.write_struct_ops(map, value, |place, function| {
            let fd = self.programs.get(function).map_or(0, |fd| fd.as_raw_fd());
            // The kernel's member is a pointer; it takes the descriptor out of it.
            let fd = u64::from(fd.cast_unsigned()).to_ne_bytes();
            if let Some(place) = place.get_mut(..fd.len()) {
                place.copy_from_slice(&fd);
            }
        });
        written.map_err(|_| refused(Errno::EINVAL))?;
        let map = MapRef::new(fd).map_err(refused)?;
        links::struct_ops::attach(&map, value)
    }

    /// As [`Collection::attach_table`], by the name of the variable in the source.
    ///
    /// # Errors
    /// The same.
    pub fn attach_table_by_name(&self, name: &str) -> Result<Link, LinkError> {
        let is_it = |map: &corelo_core::object::Map| {
            map.origin() == MapOrigin::StructOps && self.prepared.map_name(map) == name.as_bytes()
        };
        let missing = LinkError::Kernel { call: "struct_ops", errno: Errno::ENOENT };
        self.attach_table(self.prepared.maps().iter().position(is_it).ok_or(missing)?)
    }
}

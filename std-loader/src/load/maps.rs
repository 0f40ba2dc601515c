//! The maps of an object: which are created, under which names, and how.

use std::os::fd::{BorrowedFd, OwnedFd};

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::Types;
use corelo_core::object::{Map, MapId, MapOrigin, Object, Pinning};
use corelo_core::prepare::Prepared;
use corelo_core::uapi::{BPF_F_MMAPABLE, map_type};

use super::error::link_error;
use super::{Collection, LoadError, LoadOptions, is_table_made, is_wanted};
use crate::objects::{MapSpec, maps};

impl<'a> Collection<'a> {
    pub(super) fn create_map(&mut self, id: MapId, map: &Map, options: &LoadOptions<'_>) -> Result<(), LoadError> {
        let prepared = self.prepared;
        let map_name = prepared.map_name(map);
        if let Some(given) = options.reused(map_name) {
            // Above the standard descriptors, which 0 could be taken for none of.
            let own = rustix::io::fcntl_dupfd_cloexec(given, 3);
            self.maps.set(id.index(), own.map_err(|errno| LoadError::MapCreate { map: id, errno: errno.into() })?);
            return Ok(());
        }
        // Read once, and then known: what creates maps can say nothing but what the kernel answers.
        let inner_type = map.inner().and_then(|inner| prepared.declared().map(inner)).map(|map| map.map_type);
        let map_type = options.map_type(map_name).unwrap_or(map.map_type);
        if [Some(map_type), inner_type].into_iter().flatten().any(maps::counts_cpus) {
            crate::kernel::possible_cpus().map_err(|errno| LoadError::Cpus { map: id, errno })?;
        }
        let inner = match map.inner().and_then(|inner| Some((inner, self.prepared.declared().map(inner)?))) {
            Some((inner, model)) => {
                // As libbpf names it; what is longer the kernel's 15 bytes cut anyway.
                let mut inner_name = heapless::Vec::<u8, 40>::new();
                inner_name.extend(prepared.map_name(map).iter().take(32).chain(b".inner").copied());
                let spec = self.spec(model, options, &inner_name, None);
                let created = maps::create(&spec, options.memlock);
                Some(OwnedFd::from(created.map_err(|errno| LoadError::MapCreate { map: inner, errno })?))
            }
            None => None,
        };
        let mut name = [0; 16];
        let name = map_name_into(map, prepared.object(), prepared.local(), options.name, &mut name);
        let given = || options.inner_map(map_name);
        let model = inner.as_ref().map(std::os::fd::AsFd::as_fd).or_else(given);
        let mut spec = self.spec(map, options, name, model);
        if map.origin() == MapOrigin::StructOps {
            let ops = prepared.struct_ops(id).map_err(|error| LoadError::StructOps { map: id, error })?;
            spec.value_size = ops.value_size;
            spec.btf_vmlinux_value_type_id = ops.value_type_id.0;
        }
        let created = if map.pinning() == Pinning::ByName {
            let pinned = self.pinned_map(id, map, &spec, options)?;
            self.pins.note(id, &pinned);
            pinned.map
        } else {
            let mut created = maps::create(&spec, options.memlock);
            if created.is_err() && map.is_internal() && map.flags & BPF_F_MMAPABLE != 0 {
                // Kernels before 5.5 cannot map arrays; the variables are there all the same.
                spec.map_flags &= !BPF_F_MMAPABLE;
                created = created.or_else(|errno| maps::create(&spec, options.memlock).map_err(|_| errno));
            }
            created.map_err(|errno| LoadError::MapCreate { map: id, errno })?
        };
        self.maps.set(id.index(), created.into());
        Ok(())
    }

    pub(super) fn spec<'s>(
        &'s self,
        map: &Map,
        options: &LoadOptions<'_>,
        name: &'s [u8],
        inner_map_fd: Option<BorrowedFd<'s>>,
    ) -> MapSpec<'s> {
        use std::os::fd::AsFd;
        // The model of an inner map bears the outer map's name, and what is set is the outer map's.
        let source_name = if map.origin() == MapOrigin::Inner { &[] } else { self.prepared.map_name(map) };
        let map_type = options.map_type(source_name).unwrap_or(map.map_type);
        // Type ids say nothing without the BTF that they are in, and kernels refuse them.
        let has_types = self.btf.is_some() && takes_btf_types(map_type);
        let type_of = |id: Option<corelo_core::btf::TypeId>| id.filter(|_| has_types).map_or(0, |id| id.0);
        MapSpec {
            name,
            map_type,
            key_size: map.key_size,
            value_size: map.value_size,
            max_entries: match (options.max_entries(source_name), map.max_entries) {
                (Some(entries), _) => entries,
                (None, 0) => options.default_max_entries.unwrap_or(0),
                (None, entries) => entries,
            },
            map_flags: options.map_flags(source_name).unwrap_or(map.flags),
            map_extra: map.extra,
            numa_node: map.numa_node,
            btf_fd: self.btf.as_ref().filter(|_| has_types).map(AsFd::as_fd),
            btf_key_type_id: type_of(map.key_type()),
            btf_value_type_id: type_of(map.value_type()),
            inner_map_fd,
            ..MapSpec::default()
        }
    }
}

/// Whether a map is created: global data only where a wanted program uses it (`used`).
pub(super) fn is_made(prepared: &Prepared<'_>, id: MapId, map: &Map, used: &[u8], options: &LoadOptions<'_>) -> bool {
    match map.origin() {
        MapOrigin::Inner => false,
        _ if options.is_created(prepared.map_name(map)) == Some(false) => false,
        MapOrigin::StructOps => is_table_made(prepared, map, options),
        _ => !map.is_internal() || used.get(id.index()).is_some_and(|&used| used != 0),
    }
}

/// The name that the kernel is given for a map: of the plain sections of global data the object's name comes first, as
/// in `monitor.rodata` (libbpf: `internal_map_name`). Of other maps it is the whole name, which
/// [`maps::kernel_name`](crate::objects::maps::kernel_name) cuts.
pub(super) fn map_name_into<'n>(
    map: &Map,
    object: &Object<'n>,
    local: Option<&Types<'n>>,
    object_name: &[u8],
    buffer: &'n mut [u8; 16],
) -> &'n [u8] {
    let name = map.name(object, local);
    if !map.is_internal() {
        return name;
    }
    // A custom section's name stands for itself.
    let prefix = if name.iter().filter(|&&byte| byte == b'.').count() == 1 {
        let room = (buffer.len() - 1).saturating_sub(name.len().max(7));
        object_name.get(..room).unwrap_or(object_name)
    } else {
        &[]
    };
    let mut len = 0;
    for (place, &byte) in buffer.iter_mut().take(15).zip(prefix.iter().chain(name)) {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        *place = if is_plain { byte } else { b'_' };
        len += 1;
    }
    buffer.get(..len).unwrap_or_default()
}

/// The name of a map as libbpf's users know it: the variable's, or for global data the object's and the section's,
/// 15 bytes at most.
#[must_use]
pub fn map_name(
    map: &Map,
    object: &Object<'_>,
    local: Option<&Types<'_>>,
    object_name: &[u8],
) -> heapless::Vec<u8, 64> {
    let mut buffer = [0; 16];
    let name = map_name_into(map, object, local, object_name, &mut buffer);
    heapless::Vec::from_slice(name.get(..name.len().min(64)).unwrap_or_default()).unwrap_or_default()
}

/// Which maps some wanted program refers to: 1 by the map's id. Only global data depends on it, so that objects
/// without any are not searched.
pub(super) fn used_maps<'s>(
    prepared: &Prepared<'_>,
    options: &LoadOptions<'_>,
    scratch: &mut Arena<'s>,
) -> Result<&'s [u8], LoadError> {
    let used = scratch.slice::<u8>(prepared.maps().len(), Part::Maps)?;
    if !prepared.maps().iter().any(Map::is_internal) {
        return Ok(used);
    }
    for (id, function) in prepared.declared().programs() {
        if !is_wanted(prepared, id, function, options)? {
            continue;
        }
        let mark = |map: MapId| {
            if let Some(used) = used.get_mut(map.index()) {
                *used = 1;
            }
        };
        prepared.maps_of(id, &mut scratch.scratch(), mark).map_err(|error| link_error(id, error))?;
    }
    Ok(used)
}

/// Whether the kernel takes types of keys and values for maps of this type (libbpf: `bpf_object__create_map`).
pub(super) fn takes_btf_types(map_type: u32) -> bool {
    use map_type::{
        ARENA, ARRAY_OF_MAPS, CGROUP_ARRAY, CPUMAP, DEVMAP, DEVMAP_HASH, HASH_OF_MAPS, PERF_EVENT_ARRAY, QUEUE,
        SOCKHASH, SOCKMAP, STACK, STACK_TRACE, XSKMAP,
    };
    !matches!(
        map_type,
        ARENA
            | ARRAY_OF_MAPS
            | CGROUP_ARRAY
            | CPUMAP
            | DEVMAP
            | DEVMAP_HASH
            | HASH_OF_MAPS
            | PERF_EVENT_ARRAY
            | QUEUE
            | SOCKHASH
            | SOCKMAP
            | STACK
            | STACK_TRACE
            | XSKMAP
    )
}

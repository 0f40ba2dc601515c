//! Map types, with the names that bpftool and libbpf print, and flags of maps.

use core::fmt;

use crate::numbers::to_usize;

/// `enum bpf_map_type` of the uapi, those that are treated in a way of their own.
pub mod map_type {
    /// BPF_MAP_TYPE_HASH.
    pub const HASH: u32 = 1;
    /// BPF_MAP_TYPE_ARRAY.
    pub const ARRAY: u32 = 2;
    /// BPF_MAP_TYPE_PROG_ARRAY.
    pub const PROG_ARRAY: u32 = 3;
    /// BPF_MAP_TYPE_PERF_EVENT_ARRAY.
    pub const PERF_EVENT_ARRAY: u32 = 4;
    /// BPF_MAP_TYPE_PERCPU_HASH.
    pub const PERCPU_HASH: u32 = 5;
    /// BPF_MAP_TYPE_PERCPU_ARRAY.
    pub const PERCPU_ARRAY: u32 = 6;
    /// BPF_MAP_TYPE_STACK_TRACE.
    pub const STACK_TRACE: u32 = 7;
    /// BPF_MAP_TYPE_CGROUP_ARRAY.
    pub const CGROUP_ARRAY: u32 = 8;
    /// BPF_MAP_TYPE_ARRAY_OF_MAPS.
    pub const ARRAY_OF_MAPS: u32 = 12;
    /// BPF_MAP_TYPE_HASH_OF_MAPS.
    pub const HASH_OF_MAPS: u32 = 13;
    /// BPF_MAP_TYPE_DEVMAP.
    pub const DEVMAP: u32 = 14;
    /// BPF_MAP_TYPE_SOCKMAP.
    pub const SOCKMAP: u32 = 15;
    /// BPF_MAP_TYPE_CPUMAP.
    pub const CPUMAP: u32 = 16;
    /// BPF_MAP_TYPE_XSKMAP.
    pub const XSKMAP: u32 = 17;
    /// BPF_MAP_TYPE_SOCKHASH.
    pub const SOCKHASH: u32 = 18;
    /// BPF_MAP_TYPE_QUEUE.
    pub const QUEUE: u32 = 22;
    /// BPF_MAP_TYPE_STACK.
    pub const STACK: u32 = 23;
    /// BPF_MAP_TYPE_DEVMAP_HASH.
    pub const DEVMAP_HASH: u32 = 25;
    /// BPF_MAP_TYPE_STRUCT_OPS.
    pub const STRUCT_OPS: u32 = 26;
    /// BPF_MAP_TYPE_RINGBUF.
    pub const RINGBUF: u32 = 27;
    /// BPF_MAP_TYPE_USER_RINGBUF.
    pub const USER_RINGBUF: u32 = 31;
    /// BPF_MAP_TYPE_ARENA.
    pub const ARENA: u32 = 33;
}

/// BPF_F_NUMA_NODE: the node that is given counts.
pub const BPF_F_NUMA_NODE: u32 = 1 << 2;
/// BPF_F_RDONLY_PROG: programs only read it.
pub const BPF_F_RDONLY_PROG: u32 = 1 << 7;
/// BPF_F_MMAPABLE: the array can be mapped (Linux 5.5).
pub const BPF_F_MMAPABLE: u32 = 1 << 10;
/// BPF_F_LINK: a struct_ops map that a link registers (Linux 6.4).
pub const BPF_F_LINK: u32 = 1 << 13;
/// BPF_F_VTYPE_BTF_OBJ_FD: the value type of a struct_ops map is in a module's BTF.
pub const BPF_F_VTYPE_BTF_OBJ_FD: u32 = 1 << 15;

/// By number (UAPI: `enum bpf_map_type`, libbpf: `libbpf_bpf_map_type_str`).
const NAMES: [&str; 36] = [
    "unspec",
    "hash",
    "array",
    "prog_array",
    "perf_event_array",
    "percpu_hash",
    "percpu_array",
    "stack_trace",
    "cgroup_array",
    "lru_hash",
    "lru_percpu_hash",
    "lpm_trie",
    "array_of_maps",
    "hash_of_maps",
    "devmap",
    "sockmap",
    "cpumap",
    "xskmap",
    "sockhash",
    "cgroup_storage",
    "reuseport_sockarray",
    "percpu_cgroup_storage",
    "queue",
    "stack",
    "sk_storage",
    "devmap_hash",
    "struct_ops",
    "ringbuf",
    "inode_storage",
    "task_storage",
    "bloom_filter",
    "user_ringbuf",
    "cgrp_storage",
    "arena",
    "insn_array",
    "rhash",
];

/// A map's type, shown by its name; by its number where it has none here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapTypeName(pub u32);

impl fmt::Display for MapTypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.get(to_usize(self.0)) {
            Some(name) => f.write_str(name),
            None => write!(f, "type {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MapTypeName, map_type};
    use std::string::ToString;

    #[test]
    fn names_are_those_of_the_numbers() {
        for (number, name) in [
            (map_type::HASH, "hash"),
            (map_type::SOCKHASH, "sockhash"),
            (map_type::STACK, "stack"),
            (map_type::DEVMAP_HASH, "devmap_hash"),
            (map_type::RINGBUF, "ringbuf"),
            (map_type::USER_RINGBUF, "user_ringbuf"),
            (map_type::ARENA, "arena"),
            (35, "rhash"),
            (36, "type 36"),
        ] {
            assert_eq!(MapTypeName(number).to_string(), name);
        }
    }
}

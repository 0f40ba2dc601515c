//! The names of map types, as bpftool and libbpf have them.

use core::fmt;

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
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "type {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::map_type;
    use super::MapTypeName;

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

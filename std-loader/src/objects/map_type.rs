//! `enum bpf_map_type` of the uapi, those that this crate treats in a way of their own.

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
/// BPF_MAP_TYPE_DEVMAP.
pub const DEVMAP: u32 = 14;
/// BPF_MAP_TYPE_CPUMAP.
pub const CPUMAP: u32 = 16;
/// BPF_MAP_TYPE_XSKMAP.
pub const XSKMAP: u32 = 17;
/// BPF_MAP_TYPE_QUEUE.
pub const QUEUE: u32 = 22;
/// BPF_MAP_TYPE_STACK.
pub const STACK: u32 = 23;
/// BPF_MAP_TYPE_DEVMAP_HASH.
pub const DEVMAP_HASH: u32 = 25;
/// BPF_MAP_TYPE_ARRAY_OF_MAPS.
pub const ARRAY_OF_MAPS: u32 = 12;
/// BPF_MAP_TYPE_HASH_OF_MAPS.
pub const HASH_OF_MAPS: u32 = 13;
/// BPF_MAP_TYPE_SOCKMAP.
pub const SOCKMAP: u32 = 15;
/// BPF_MAP_TYPE_SOCKHASH.
pub const SOCKHASH: u32 = 18;
/// BPF_MAP_TYPE_STRUCT_OPS.
pub const STRUCT_OPS: u32 = 26;
/// BPF_MAP_TYPE_RINGBUF.
pub const RINGBUF: u32 = 27;
/// BPF_MAP_TYPE_USER_RINGBUF.
pub const USER_RINGBUF: u32 = 31;
/// BPF_MAP_TYPE_ARENA.
pub const ARENA: u32 = 33;

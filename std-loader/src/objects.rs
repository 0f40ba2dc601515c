//! Objects of the kernel that a descriptor holds: maps, programs, BTF, and their names on a bpf file system.
//!
//! - `maps`: creation with what old kernels need; access by bytes ([`MapFd`]) or plain-old-data types ([`Map`])
//! - [`map_type`]: numbers of map types
//! - `programs`: BTF and programs loaded, with a verifier log only after a failure ([`load_program`])
//! - [`attach_type`]: numbers of attach types
//! - [`pin`]: names on a bpf file system, and maps shared between loaders
//! - `memlock`: RLIMIT_MEMLOCK, which old kernels count objects against ([`Memlock`])

pub mod attach_type;
pub mod map_type;
pub(crate) mod maps;
pub(crate) mod memlock;
pub mod pin;
pub(crate) mod programs;

pub use crate::sys::bpf::{
    MapFd, MapInfo, ProgInfo, TestRun, TestRunResult, map_info, prog_bind_map, prog_info, prog_map_ids, prog_test_run,
    prog_xlated,
};
pub use maps::{
    BPF_F_MMAPABLE, BPF_F_NUMA_NODE, BPF_F_RDONLY_PROG, BPF_F_VTYPE_BTF_OBJ_FD, Keys, Map, MapSpec, MapTypeName,
    PerCpuMap, SizeMismatch, create as create_map, kernel_name, mmap, normalized_entries,
};
pub use memlock::Memlock;
pub use programs::{
    EAGAIN_TRIES, GrowingLog, LOG_TRIES, LoadFailure, LogBuffer, ProgramSpec, load_btf, load_program, program_by_id,
};

//! Objects of the kernel that a descriptor holds: maps, programs, BTF, and their names on a bpf file system.
//!
//! - `maps`: creation with what old kernels need; access by bytes ([`MapFd`]) or plain-old-data types ([`Map`])
//! - `programs`: BTF and programs loaded, with a verifier log only after a failure ([`load_program`])
//! - [`pin`]: names on a bpf file system, and maps shared between loaders
//! - `memlock`: RLIMIT_MEMLOCK, which old kernels count objects against ([`Memlock`])

pub(crate) mod maps;
pub(crate) mod memlock;
pub mod pin;
pub(crate) mod programs;

pub use crate::sys::bpf::{
    MapFd, MapInfo, ProgInfo, TestRun, TestRunResult, map_info, prog_bind_map, prog_info, prog_map_ids, prog_test_run,
    prog_xlated,
};
pub use maps::{
    Keys, Map, MapSpec, PerCpuMap, SizeMismatch, create as create_map, kernel_name, mmap, normalized_entries,
};
pub use memlock::Memlock;
pub use programs::{
    EAGAIN_TRIES, GrowingLog, LOG_TRIES, LoadFailure, LogBuffer, ProgramSpec, load_btf, load_program, program_by_id,
};

//! Objects of the kernel that a descriptor holds: maps, programs, BTF, and their names on a bpf file system.
//!
//! - `maps`: creation with what old kernels need; access by bytes ([`MapFd`]) or plain-old-data types ([`Map`])
//! - `programs`: programs loaded ([`load_program`]), test runs
//! - `btf`: an object's BTF loaded ([`load_btf`])
//! - `verifier_log`: the log of both, only after a failure ([`GrowingLog`])
//! - [`pin`]: names on a bpf file system, and maps shared between loaders
//! - `memlock`: RLIMIT_MEMLOCK, which old kernels count objects against ([`Memlock`])

mod btf;
pub(crate) mod maps;
pub(crate) mod memlock;
pub mod pin;
mod programs;
mod verifier_log;

pub use crate::sys::bpf::{
    MapFd, MapInfo, ProgInfo, TestRun, TestRunResult, map_info, prog_bind_map, prog_info, prog_map_ids, prog_test_run,
    prog_xlated,
};
pub use btf::load_btf;
pub use maps::{
    Keys, Map, MapSpec, PerCpuMap, SizeMismatch, create as create_map, kernel_name, mmap, normalized_entries,
};
pub use memlock::Memlock;
pub use programs::{EAGAIN_TRIES, ProgramSpec, load_program, program_by_id};
pub use verifier_log::{GrowingLog, LOG_TRIES, LoadFailure, LogBuffer};

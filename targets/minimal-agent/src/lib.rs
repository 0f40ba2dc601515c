//! A firmware agent to copy from.
//!
//! ```text
//! budget   the bytes of arena: what `corelo budget --emit rust` prints for the object
//! agent    load, attach, and the loop over ring buffer, signals and watchdog
//! event    what the object reports, read from a record
//! ```
//!
//! The object is part of the program, the arena a static array of the size that was computed when it was built, and
//! from the first byte of the object to the last record nothing comes from the heap.

pub mod agent;
pub mod budget;
pub mod event;

/// The exec and exit monitor of targets/agent, compiled. Aligned for nothing: core reads it byte by byte.
#[cfg(target_endian = "little")]
pub static OBJECT: &[u8] = include_bytes!("../../agent/bpf/exec_monitor.bpf.o");
/// The exec and exit monitor of targets/agent, compiled for a big-endian machine.
#[cfg(target_endian = "big")]
pub static OBJECT: &[u8] = include_bytes!("../../agent/bpf/exec_monitor-eb.bpf.o");

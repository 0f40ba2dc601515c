//! Records that programs send: read where they lie, in the order in which they came.
//!
//! - `ring_buffer`: BPF ring buffers ([`RingBuffer`]), one or several at a time
//! - `perf_buffer`: per-CPU perf rings ([`PerfBuffer`]), for older kernels and programs

pub(crate) mod perf_buffer;
pub(crate) mod ring_buffer;

pub use perf_buffer::{PerfBuffer, PerfRecord, PerfRing};
pub use ring_buffer::{Fill, RingBuffer, RingError, RingSet};

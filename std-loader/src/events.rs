//! Records that programs send: read where they lie, in the order in which they came.
//!
//! - `ring_buffer`: BPF ring buffers ([`RingBuffer`]), one or several at a time
//! - `perf_buffer`: per-CPU perf rings ([`PerfBuffer`]), for older kernels and programs
//! - `iter_reader`: text that iterators write ([`IterReader`])

mod iter_reader;
mod perf_buffer;
mod ring_buffer;

pub use iter_reader::IterReader;
pub use perf_buffer::{PerfBuffer, PerfRecord, PerfRing};
pub use ring_buffer::{Fill, RingBuffer, RingError, RingSet};

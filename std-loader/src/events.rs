//! Records that programs send: read where they lie, in the order in which they came.

pub(crate) mod perf_buffer;
pub(crate) mod ring_buffer;

pub use perf_buffer::{PerfBuffer, PerfRecord, PerfRing};
pub use ring_buffer::{Fill, RingBuffer, RingError, RingSet};

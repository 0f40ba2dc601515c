//! Records that programs send: read where they lie, in the order in which they came.
//!
//! - `ring_buffer`: BPF ring buffers ([`RingBuffer`]), one or several at a time
//! - `async_ring`: one of them, waited for by a task of tokio (`AsyncRing`, feature `tokio`)
//! - `perf_buffer`: per-CPU perf rings ([`PerfBuffer`]), for older kernels and programs
//! - `iter_reader`: text that iterators write ([`IterReader`])

#[cfg(feature = "tokio")]
mod async_ring;
mod iter_reader;
mod perf_buffer;
mod ring_buffer;

#[cfg(feature = "tokio")]
pub use async_ring::AsyncRing;
pub use iter_reader::IterReader;
pub use perf_buffer::{PerfBuffer, PerfRecord, PerfRing};
pub use ring_buffer::{Fill, RingBuffer, RingError, RingSet};

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn readers_have_descriptors_and_may_go_to_another_thread() {
        fn goes_where_events_are_waited_for<T: AsFd + AsRawFd + Send>() {}
        goes_where_events_are_waited_for::<RingBuffer>();
        goes_where_events_are_waited_for::<RingSet<'_>>();
        #[cfg(feature = "tokio")]
        goes_where_events_are_waited_for::<AsyncRing>();
        goes_where_events_are_waited_for::<PerfRing>();
        goes_where_events_are_waited_for::<PerfBuffer<'_>>();
        goes_where_events_are_waited_for::<IterReader>();
        fn is_read<T: std::io::Read>() {}
        is_read::<IterReader>();
    }
}

#![no_main]
//! Rings that no kernel made: a BPF ring buffer and a perf ring, with any positions and records.

use std::os::fd::AsFd as _;

use corelo_fuzz::input::split;
use corelo_fuzz::{memory, sources};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    const PAGE: usize = 4096;
    let (numbers, [data]) = split::<1>(data);
    // Wherever the reader is, the producer is so many bytes ahead.
    let read = u64::from(u32::from_le_bytes([numbers[1], numbers[2], numbers[3], numbers[4]]));
    let written = read + u64::from(u16::from_le_bytes([numbers[6], numbers[7]]));
    let data = &data[..data.len().min(PAGE)];
    if numbers[0] % 2 == 0 {
        let mut file = vec![0; 4 * PAGE];
        file[..8].copy_from_slice(&read.to_ne_bytes());
        file[PAGE..PAGE + 8].copy_from_slice(&written.to_ne_bytes());
        for start in [2 * PAGE, 3 * PAGE] {
            file[start..start + data.len()].copy_from_slice(data);
        }
        sources::bpf_ring(memory::file(&file).0.as_fd(), PAGE as u32);
    } else {
        let mut file = vec![0; 2 * PAGE];
        file[1024..1032].copy_from_slice(&written.to_ne_bytes());
        file[1032..1040].copy_from_slice(&read.to_ne_bytes());
        file[PAGE..PAGE + data.len()].copy_from_slice(data);
        sources::perf_ring(memory::file(&file).0.as_fd(), 1);
    }
});

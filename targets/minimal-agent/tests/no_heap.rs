//! From the object's first byte to the last record nothing comes from the heap: an allocator that ends the process
//! stands guard over it. And the arena has the bytes that it needs, on this kernel.
//!
//! Needs root and bpf(2): without them it says what the kernel refuses and is skipped, and fails instead where
//! CORELO_REQUIRE_KERNEL=1 and a plain kernel has it.

#![expect(unsafe_code, reason = "a global allocator cannot be written without it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, prepare};
use corelo_loader::kernel::KernelBtf;
use corelo_loader::load::{LoadOptions, rehearse};
use corelo_minimal_agent::agent::{Surroundings, run};
use corelo_minimal_agent::budget::ARENA_BYTES;
use corelo_minimal_agent::{OBJECT, event::Event};
use corelo_tests::kernel::{Feature, has};

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

struct Guarded;

// SAFETY: everything is passed on to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Guarded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if FORBIDDEN.get() {
            std::process::abort();
        }
        // SAFETY: the caller's promise for `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from `alloc` above with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Guarded = Guarded;

struct Watched {
    end: UnixStream,
    programs: usize,
    arena_used: usize,
    ticks: usize,
    events: usize,
}

impl Surroundings for Watched {
    fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    fn ready(&mut self, programs: usize, arena_used: usize) {
        (self.programs, self.arena_used) = (programs, arena_used);
        // Another process, for events; starting it takes heap, which is the test's and not the agent's.
        let was = FORBIDDEN.replace(false);
        assert!(Command::new("true").status().unwrap().success());
        FORBIDDEN.set(was);
    }

    fn tick(&mut self) {
        self.ticks += 1;
    }

    fn record(&mut self, record: &[u8]) {
        self.events += usize::from(Event::read(record).is_some());
    }
}

fn has_kernel() -> bool {
    has(&[Feature::Bpf, Feature::KernelBtf, Feature::RingBuffers])
}

#[test]
fn the_agent_uses_no_heap_from_load_to_end() {
    if !has_kernel() {
        return;
    }
    let (end, _other) = UnixStream::pair().unwrap();
    let mut around = Watched { end, programs: 0, arena_used: 0, ticks: 0, events: 0 };
    let mut buffer = vec![0u64; ARENA_BYTES.div_ceil(8)];
    let buffer = zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..]);
    FORBIDDEN.set(true);
    let result = run(OBJECT, None, buffer, Some("events"), Some(Duration::from_millis(300)), &mut around);
    FORBIDDEN.set(false);
    result.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(around.programs, 2);
    assert!(around.events >= 2, "{} events", around.events);
    assert!(around.ticks >= 2);
    assert!(around.arena_used <= ARENA_BYTES, "{}", around.arena_used);
}

#[test]
fn an_end_is_seen_at_once() {
    if !has_kernel() {
        return;
    }
    let (end, mut other) = UnixStream::pair().unwrap();
    std::io::Write::write_all(&mut other, b"x").unwrap();
    let mut around = Watched { end, programs: 0, arena_used: 0, ticks: 0, events: 0 };
    let mut buffer = vec![0u64; ARENA_BYTES.div_ceil(8)];
    let buffer = zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..]);
    run(OBJECT, None, buffer, Some("events"), None, &mut around).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(around.ticks, 1);
}

/// The constant is what the rehearsal says for the largest kernel of the test corpus, with less than 1 KiB to spare.
#[test]
fn the_arena_fits_the_largest_kernel() {
    let Some(corpus) = corelo_tests::corpus::corpus() else { return };
    let mut largest = 0;
    for entry in std::fs::read_dir(corpus.root().join("btf")).unwrap() {
        let path = entry.unwrap().path();
        // The big-endian kernels cannot take this object.
        if path.extension().is_none_or(|ending| ending != "zst") || path.to_string_lossy().contains("s390x") {
            continue;
        }
        let file = std::fs::File::open(&path).unwrap();
        let mut blob = Vec::new();
        ruzstd::decoding::StreamingDecoder::new(file).unwrap().read_to_end(&mut blob).unwrap();
        let needed = needed(&blob);
        println!("{needed} {}", path.display());
        largest = largest.max(needed);
    }
    assert!((largest..largest + 1024).contains(&ARENA_BYTES), "{largest} bytes needed, {ARENA_BYTES} given");
}

/// And no less than what this one needs.
#[test]
fn the_arena_is_large_enough() {
    if !has(&[Feature::KernelBtf]) {
        return;
    }
    let kernel = KernelBtf::open().unwrap();
    let needed = needed(&kernel);
    println!("{needed} bytes of arena needed here, {ARENA_BYTES} given");
    assert!(needed <= ARENA_BYTES);
}

fn needed(kernel: &[u8]) -> usize {
    let mut buffer = vec![0u64; 1 << 17];
    let mut arena = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..]));
    let object = Object::parse(OBJECT).unwrap();
    let prepared = prepare(&object, Some(kernel), Options::default(), &mut arena).unwrap();
    rehearse(&prepared, &LoadOptions::new(b"agent"), &mut arena).unwrap();
    arena.high_water()
}

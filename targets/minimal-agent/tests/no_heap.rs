//! From the object's first byte to the last record nothing comes from the heap: an allocator that ends the process
//! stands guard over it. And the arena has the bytes that it needs, on this kernel.
//!
//! Needs root and bpf(2): without them it says that it is skipped, and fails instead where CORELO_REQUIRE_KERNEL=1.

#![expect(unsafe_code, reason = "a global allocator cannot be written without it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, prepare};
use corelo_loader::kernel::KernelBtf;
use corelo_loader::load::{LoadOptions, rehearse};
use corelo_minimal_agent::agent::{AgentError, Surroundings, run};
use corelo_minimal_agent::budget::ARENA_BYTES;
use corelo_minimal_agent::{OBJECT, event::Event};

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

fn missing(why: &dyn std::fmt::Display) {
    let required = std::env::var_os("CORELO_REQUIRE_KERNEL").is_some_and(|value| value == "1");
    assert!(!required, "CORELO_REQUIRE_KERNEL=1 and {why}");
    println!("skipped: {why}");
}

#[test]
fn the_agent_uses_no_heap_from_load_to_end() {
    let (end, _other) = UnixStream::pair().unwrap();
    let mut around = Watched { end, programs: 0, arena_used: 0, ticks: 0, events: 0 };
    let mut buffer = vec![0u64; ARENA_BYTES.div_ceil(8)];
    let buffer = zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..]);
    FORBIDDEN.set(true);
    let result = run(OBJECT, None, buffer, Some("events"), Some(Duration::from_millis(300)), &mut around);
    FORBIDDEN.set(false);
    match result {
        Ok(()) => {}
        Err(error @ (AgentError::Kernel(_) | AgentError::Load(_) | AgentError::Attach(_))) => return missing(&error),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(around.programs, 2);
    assert!(around.events >= 2, "{} events", around.events);
    assert!(around.ticks >= 2);
    assert!(around.arena_used <= ARENA_BYTES, "{}", around.arena_used);
}

#[test]
fn an_end_is_seen_at_once() {
    let (end, mut other) = UnixStream::pair().unwrap();
    std::io::Write::write_all(&mut other, b"x").unwrap();
    let mut around = Watched { end, programs: 0, arena_used: 0, ticks: 0, events: 0 };
    let mut buffer = vec![0u64; ARENA_BYTES.div_ceil(8)];
    let buffer = zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..]);
    match run(OBJECT, None, buffer, Some("events"), None, &mut around) {
        Ok(()) => assert_eq!(around.ticks, 1),
        Err(error) => missing(&error),
    }
}

/// The constant is what the rehearsal says for the largest kernel of the test corpus, with less than 1 KiB to spare.
#[test]
fn the_arena_fits_the_largest_kernel() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let corpus = std::env::var_os("CORELO_CORPUS").map_or_else(|| workspace.join("../shared/corpus"), Into::into);
    let Ok(entries) = std::fs::read_dir(corpus.join("btf")) else {
        println!("skipped: no corpus at {}", corpus.display());
        return;
    };
    let mut largest = 0;
    for entry in entries {
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
    let kernel = match KernelBtf::open() {
        Ok(kernel) => kernel,
        Err(error) => return missing(&error),
    };
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

//! No heap: a `static` buffer and object, and an allocator that counts.
//!
//! `cargo run --example no_heap [SECONDS]`, as root: the processes that start, as the example `watch` has them. It fails if
//! anything between the load and the end was allocated.

#![expect(unsafe_code, reason = "a global allocator cannot be written without it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use corelo_loader::loader::{Error, Loader};
use corelo_loader::prepare::Kernel;

#[cfg(target_endian = "little")]
static OBJECT: &[u8] = include_bytes!("bpf/watch.bpf.o");
#[cfg(target_endian = "big")]
static OBJECT: &[u8] = include_bytes!("bpf/watch-eb.bpf.o");
/// Zero pages, of which only those that are used become memory.
static BUFFER: Mutex<[u8; 32 << 10]> = Mutex::new([0; 32 << 10]);

struct Counting;
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise for `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from `alloc` above with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

fn watch(time: Duration, buffer: &mut [u8]) -> Result<u32, Error> {
    let kernel = Kernel::running();
    let mut collection = Loader::new(OBJECT).name("no_heap").load(&kernel, buffer)?;
    collection.attach_all()?;
    // Standard error has no buffer on the heap; standard output has.
    eprintln!("watching for {} s", time.as_secs());
    let mut ring = collection.ring("events")?;
    let end = Instant::now() + time;
    let mut records = 0;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        records += ring.poll(Some(left), |record| {
            // `struct event` of watch.bpf.c: pid, ppid, name.
            let name = record.get(8..).and_then(|name| CStr::from_bytes_until_nul(name).ok()).unwrap_or_default();
            eprintln!("{}", name.to_bytes().escape_ascii());
        })?;
    }
    Ok(records)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |word| word.parse())?;
    let mut buffer = BUFFER.lock().map_err(|_| "the buffer is somebody's")?;
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let records = watch(Duration::from_secs(seconds), &mut *buffer)?;
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    println!("{records} records, {allocations} allocations");
    if allocations == 0 { Ok(()) } else { Err("the heap was used".into()) }
}

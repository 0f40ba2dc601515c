//! From the first byte of an object to its last linked instruction without the allocator: a global allocator that ends the
//! process while it is armed, and an arena over a static array.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait, and the arena's buffer a static")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, prepare};
use corelo_tests::corpus::corpus;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;
use zerocopy::IntoBytes;

/// The whole arena: what a device must find.
const MOST: usize = 64 << 10;
/// And what it is to be at the default stride.
const GOAL: usize = 32 << 10;

static ARMED: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicUsize = AtomicUsize::new(0);

struct Guard;

// SAFETY: every call goes to the system's allocator as it is, or ends the process.
unsafe impl GlobalAlloc for Guard {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        refuse_when_armed();
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        refuse_when_armed();
        // SAFETY: by the caller; it came from the same allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static GUARD: Guard = Guard;

fn refuse_when_armed() {
    CALLS.fetch_add(1, Ordering::Relaxed);
    if ARMED.load(Ordering::Relaxed) {
        std::process::abort();
    }
}

struct Measured {
    programs: usize,
    insns: usize,
    patched: u32,
    poisoned: u32,
    high_water: usize,
}

/// The whole way, in the static buffer, with the allocator armed.
fn measure(object: &[u8], kernel: Option<&[u8]>, buffer: &mut [u8]) -> Result<Measured, &'static str> {
    let mut arena = Arena::new(buffer);
    let object = Object::parse(object).map_err(|_| "the object is refused")?;
    let prepared = prepare(&object, kernel, Options::default(), &mut arena).map_err(|_| "it is not prepared")?;
    let mut measured = Measured { programs: 0, insns: 0, patched: 0, poisoned: 0, high_water: 0 };
    for (number, _) in prepared.declared().programs() {
        let mut scratch = arena.scratch();
        let linked = prepared.program(number, &mut scratch).map_err(|_| "a program is not linked")?;
        measured.programs += 1;
        measured.insns += linked.insns.len();
        measured.patched += linked.patched;
        measured.poisoned += linked.poisoned;
    }
    measured.high_water = arena.high_water();
    Ok(measured)
}

fn main() {
    static mut BUFFER: [u64; MOST / 8] = [0; MOST / 8];
    let place = &raw mut BUFFER;
    // SAFETY: the only reference to it, and this program has one thread.
    let buffer = unsafe { &mut *place }.as_mut_bytes();

    // The allocator does see what allocates.
    let before = CALLS.load(Ordering::Relaxed);
    drop(std::hint::black_box(Vec::<u8>::with_capacity(100)));
    assert!(CALLS.load(Ordering::Relaxed) >= before + 2, "the guard counts nothing");

    let corpus = corpus();
    let mut kernels = Vec::new();
    if corelo_tests::kernel::has(&[corelo_tests::kernel::Feature::KernelBtf]) {
        let btf = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
        kernels.push(("the running kernel".to_owned(), Endian::native(), btf));
    }
    for kernel in corpus.iter().flat_map(|corpus| corpus.kernels()) {
        kernels.push((kernel.name.clone(), kernel.endian(), kernel.btf()));
    }
    // Without either, a kernel that has nothing: all that is asked is absent, and the walk is short.
    if kernels.is_empty() {
        let target = fixture("core_fields", Endian::Little).read_target().expect("a fixture");
        kernels.push(("core_fields-target".to_owned(), Endian::Little, target));
    }
    let mut runs = 0;
    for (name, endian, kernel) in &kernels {
        for object_name in ["many_progs", "many_progs_legacy", "nothing_asked", "no_btf"] {
            let object = fixture(object_name, *endian).read();
            ARMED.store(true, Ordering::Relaxed);
            let measured = measure(&object, Some(kernel), buffer);
            ARMED.store(false, Ordering::Relaxed);
            let measured = measured.unwrap_or_else(|error| panic!("{object_name} on {name}: {error}"));
            let Measured { programs, insns, patched, poisoned, high_water } = measured;
            println!(
                "{object_name} on {name}: {programs} programs, {insns} instructions, {patched} patched, {poisoned} poisoned, {high_water} bytes"
            );
            let is_many = object_name.starts_with("many");
            assert_eq!(programs, if is_many || object_name == "no_btf" { 30 } else { 1 }, "{object_name}");
            assert_eq!(patched + poisoned, if is_many { 90 } else { 0 }, "{object_name} on {name}");
            assert!(high_water <= GOAL, "{object_name} on {name}: {high_water} bytes, {GOAL} are wanted");
            runs += 1;
        }
    }
    println!("{runs} runs without a single allocation, each in less than {GOAL} bytes");
}

//! The way from map and program to records uses no heap: an allocator that ends the process stands guard over it.
//!
//! Needs root and bpf(2): without them it says what the kernel refuses and is skipped, and fails instead where
//! CORELO_REQUIRE_KERNEL=1 and a plain kernel has it.

#![expect(unsafe_code, reason = "a global allocator and static probes cannot be written without it")]

mod probes;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use corelo_core::uapi::map_type;
use corelo_loader::attach::{self, LinkError, UsdtError, symbols};
use corelo_loader::events::{PerfBuffer, RingBuffer, RingSet};
use corelo_loader::kernel::kallsyms::{self, Found};
use corelo_loader::kernel::kconfig::{self, KconfigType, Wanted};
use corelo_loader::kernel::{Cpus, Features, KernelBtf, KernelVersion};
use corelo_loader::loader::{Cause, Loader};
use corelo_loader::objects::{self, GrowingLog, Map, MapSpec, Memlock, ProgramSpec, TestRun, pin};
use corelo_loader::prepare::Kernel;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;
use corelo_tests::insn::{Insn, ring_output};
use corelo_tests::kernel::{self, Feature, has};

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

fn work(object: &[u8], buffer: &mut [u8]) {
    let ring = objects::create_map(
        &MapSpec { name: b"events", map_type: map_type::RINGBUF, max_entries: 4096, ..MapSpec::default() },
        Memlock::RaiseIfRefused,
    )
    .unwrap();
    let insns = ring_output(ring.as_fd(), 0).map(|insn| insn.bytes(Endian::native()));
    let spec = ProgramSpec { name: b"program", ..ProgramSpec::new(17) };
    let mut log = GrowingLog::new(4096, 1 << 20);
    let program = objects::load_program(&spec, insns.as_flattened(), &mut log).unwrap();
    // A program that fails, with a log that grows.
    let bad = [Insn::mov64_reg(0, 7), Insn::exit()].map(|insn| insn.bytes(Endian::native()));
    let failure = objects::load_program(&spec, bad.as_flattened(), &mut log).unwrap_err();
    assert!(failure.log_len > 0);

    let hash = objects::create_map(
        &MapSpec { map_type: map_type::HASH, key_size: 4, value_size: 8, max_entries: 4, ..MapSpec::default() },
        Memlock::RaiseIfRefused,
    )
    .unwrap();
    let typed = Map::<u32, u64>::new(&hash).unwrap();
    typed.insert(&1, &2, 0).unwrap();
    assert_eq!(typed.iter().count(), 1);

    let link = attach::raw_tracepoint::attach(program.as_fd(), "sys_enter", 0).unwrap();
    match attach::tracepoint::attach(program.as_fd(), "sched", "sched_process_exec", 0) {
        // A raw tracepoint program does not go onto a tracepoint; tracefs was read all the same.
        Err(LinkError::Kernel { .. } | LinkError::NoTracefs) => {}
        other => panic!("{other:?}"),
    }
    let mut rings = [RingBuffer::new(ring.as_fd()).unwrap()];
    let mut set = RingSet::new(&mut rings).unwrap();
    let mut records = 0;
    while records == 0 {
        set.poll(Some(Duration::from_secs(5)), |_, bytes| {
            assert_eq!(bytes, [0; 8]);
            records += 1;
        })
        .unwrap();
    }
    drop(link);
    objects::prog_test_run(program.as_fd(), &mut TestRun::default()).unwrap();

    let array = objects::create_map(
        &MapSpec { map_type: map_type::PERF_EVENT_ARRAY, key_size: 4, value_size: 4, ..MapSpec::default() },
        Memlock::RaiseIfRefused,
    )
    .unwrap();
    let mut rings = [const { None }; 256];
    let mut perf = PerfBuffer::open(&array, 1, &mut rings).unwrap();
    perf.poll(Some(Duration::ZERO), &mut [0; 64], |_, _| {}).unwrap();

    assert!(pin::pin(hash.as_fd(), Path::new("/proc/self/no/such/place")).is_err());
    assert!(attach::cgroup::open(Path::new("/proc")).is_err());
    assert!(Cpus::online().unwrap().count() > 0);
    assert!(KernelVersion::running().major() > 0);
    let _ = KernelBtf::open();
    let _ = KernelBtf::from_file(Path::new("/proc/self/exe"));
    let _ = corelo_loader::kernel::modules(|_| std::ops::ControlFlow::<()>::Continue(()));
    let _ = corelo_loader::kernel::btf_object("no_such_module");
    let _ = attach::interface_index("lo");
    attach_by_pattern(program.as_fd());
    static_probes(object, buffer);
    ask_the_kernel();
}

/// The kernel takes no raw tracepoint program for these: what is looked up before it is asked is what counts here.
fn attach_by_pattern(program: BorrowedFd<'_>) {
    for pattern in ["vfs_*", "*", "vfs_read", "corelo_no_such_*"] {
        assert!(attach::kprobe::attach_pattern(program, pattern, false, false).is_err());
    }
    assert!(attach::ksyscall::attach(program, "execve", false, 0).is_err());
    let me = Path::new("/proc/self/exe");
    assert!(symbols::matching_offsets(me, "*main*").unwrap().as_slice().len() > 1);
    assert!(attach::uprobe::attach_pattern(program, me, "*main*", false, false).is_err());
}

/// A whole object, from its bytes to an argument of a probe in its map.
fn static_probes(object: &[u8], buffer: &mut [u8]) {
    if !probes::ARE_THERE {
        return;
    }
    let kernel = Kernel::running();
    let mut told = 0;
    let loader = Loader::new(object).name("obj_usdt").max_entries("seen", 5);
    let mut collection = loader.load_watched(&kernel, buffer, &mut |_| told += 1).unwrap();
    assert!(told > 2);
    let unknown = collection.program("on_operand").map(drop).unwrap_err();
    write!(Nowhere, "{unknown} {unknown:?}").unwrap();
    let operands = collection.program("on_operands").unwrap().attach();
    let guarded = collection.program("on_guarded").unwrap().attach();
    match (operands, guarded) {
        (Ok(operands), Ok(guarded)) => {
            probes::operands_here(5, &[1, 2], 1);
            probes::simple(5, &[1, 2]);
            probes::unreadable();
            probes::operands_there(6);
            assert!(probes::guarded() > 0);
            let seen = collection.map::<u32, [u64; 15]>("seen").unwrap().get(&0).unwrap().unwrap();
            assert_eq!(seen[..4], [2, 1, 0, 6]);
            drop((operands, guarded));
        }
        (Err(error), _) | (_, Err(error)) => match error.cause() {
            // Kernels without uprobes: what is read before is what counts here.
            Cause::Attach(LinkError::NoProbes | LinkError::Kernel { .. }) => {}
            // Nor is a position-independent program's probe found everywhere without attach cookies.
            Cause::Attach(LinkError::Usdt(UsdtError::NeedsProcess)) => {
                assert!(KernelVersion::running() < KernelVersion::new(5, 15, 0));
            }
            other => panic!("{other:?}"),
        },
    }
    assert!(collection.program("unreadable").unwrap().attach().is_err());
    // One of them cannot be attached, so none is.
    assert!(collection.attach_all().is_err() && collection.links().len() == 0);
}

/// Takes words and keeps none.
struct Nowhere;

impl Write for Nowhere {
    fn write_str(&mut self, _: &str) -> std::fmt::Result {
        Ok(())
    }
}

/// What a load asks for when it has to: features, addresses, configuration values, functions of programs.
fn ask_the_kernel() {
    let features = Features::default();
    for feature in corelo_loader::kernel::Feature::ALL {
        let _ = features.get(*feature);
    }
    let _ = features.btf_features();
    let mut found = [Found::default(); 2];
    let _ = kallsyms::lookup(&[b"_text", b"schedule"], &mut found);
    let (mut version, mut value) = ([0; 4], [0; 4]);
    let wanted = |name| Wanted { name, ty: Some(KconfigType::Integer { is_signed: true }), is_weak: true };
    let mut externs = [(wanted(b"LINUX_KERNEL_VERSION"), &mut version[..]), (wanted(b"CONFIG_HZ"), &mut value[..])];
    kconfig::fill(&mut externs[..], &features).unwrap();
    let _ = symbols::function_offset(Path::new("/proc/self/exe"), "main");
    let library = symbols::find_file(Path::new("libc.so.6"));
    let _ = library.map(|file| symbols::function_offset(file.as_path(), "malloc@GLIBC_2.2.5"));
}

#[test]
fn nothing_on_the_way_uses_the_heap() {
    if !has(&[Feature::Bpf, Feature::RingBuffers]) {
        return;
    }
    let object = fixture("obj_usdt", Endian::native()).read();
    let mut buffer = vec![0; 64 << 10];
    FORBIDDEN.set(true);
    work(&object, &mut buffer);
    FORBIDDEN.set(false);
}

/// The same again where prctl(2) does not tell the auxiliary vector, as on Linux before 6.4: the page size came from
/// /proc then, through the heap.
#[test]
fn nor_where_the_kernel_does_not_tell_the_auxiliary_vector() {
    if !has(&[Feature::Bpf, Feature::RingBuffers]) {
        return;
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "nothing_on_the_way_uses_the_heap", "--nocapture"]);
    let status = kernel::without_auxiliary_vector(&mut again).status().unwrap();
    assert!(status.success(), "{status}");
}

//! Maps, programs, rings, links and pins on the running kernel, with instructions put together by hand.
//!
//! Needs root and bpf(2): without them, or without what a test needs beyond, it says what the kernel refuses and is skipped, and
//! fails instead where CORELO_REQUIRE_KERNEL=1 and a plain kernel has it.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use corelo_core::uapi::{AttachType, BPF_F_MMAPABLE, map_type};
use corelo_loader::attach::{self, LinkError};
use corelo_loader::events::{IterReader, PerfBuffer, PerfRecord, RingBuffer, RingError, RingSet};
use corelo_loader::kernel::{self, KernelBtf, KernelBtfError, KernelVersion, Source};
use corelo_loader::objects::pin::{self, PinError, Property};
use corelo_loader::objects::{
    self, GrowingLog, Map, MapFd, MapSpec, Memlock, PerCpuMap, ProgramSpec, TestRun, load_program,
};
use corelo_loader::sys::{Errno, page_size};
use corelo_tests::endian::Endian;
use corelo_tests::insn::{Insn, Width, count_runs, encode, ring_output};
use corelo_tests::kernel::bpf::Mounted;
use corelo_tests::kernel::{Feature, has, not_here, skip};

const SOCKET_FILTER: u32 = 1;
const TRACEPOINT: u32 = 5;
const XDP: u32 = 6;
const RAW_TRACEPOINT: u32 = 17;
const SYSCALL: u32 = 31;

/// One test at a time: the leak check counts this process's descriptors.
static ALONE: Mutex<()> = Mutex::new(());

struct Kernel {
    _alone: MutexGuard<'static, ()>,
    fds: usize,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(open_fds(), self.fds, "descriptors leaked");
        }
    }
}

fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn kernel() -> Option<Kernel> {
    kernel_with(&[])
}

/// A kernel that refuses none of these either.
fn kernel_with(features: &[Feature]) -> Option<Kernel> {
    let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    (has(&[Feature::Bpf]) && has(features)).then(|| Kernel { _alone: alone, fds: open_fds() })
}

fn hash(max_entries: u32) -> Result<MapFd, Errno> {
    create(map_type::HASH, 4, 8, max_entries)
}

fn create(map_type: u32, key_size: u32, value_size: u32, max_entries: u32) -> Result<MapFd, Errno> {
    let spec = MapSpec { name: b"corelo.test-map", map_type, key_size, value_size, max_entries, ..MapSpec::default() };
    objects::create_map(&spec, Memlock::RaiseIfRefused)
}

/// The bytes of a program for this machine.
fn code(insns: &[Insn]) -> Vec<u8> {
    encode(insns, Endian::native())
}

fn load(prog_type: u32, insns: &[u8]) -> std::os::fd::OwnedFd {
    let spec = ProgramSpec { name: b"corelo_test", ..ProgramSpec::new(prog_type) };
    let mut log = GrowingLog::new(4096, 1 << 20);
    load_program(&spec, insns, &mut log).unwrap_or_else(|failure| {
        let text = &log.as_bytes()[failure.log_range()];
        panic!("{failure}\n{}", String::from_utf8_lossy(text))
    })
}

/// Runs a socket filter once on a packet of 64 bytes.
fn run(program: BorrowedFd<'_>) -> u32 {
    let mut run = TestRun { data_in: &[0; 64], ..TestRun::default() };
    objects::prog_test_run(program, &mut run).unwrap().retval
}

#[test]
fn hash_maps_by_types_and_by_bytes() {
    let Some(_kernel) = kernel() else { return };
    let fd = hash(4).unwrap();
    let map = Map::<u32, u64>::new(&fd).unwrap();
    assert_eq!(map.get(&1), Ok(None));
    map.insert(&1, &10, 0).unwrap();
    map.insert(&2, &20, 1).unwrap();
    assert_eq!(map.insert(&2, &21, 1), Err(Errno::EEXIST));
    assert_eq!(map.insert(&3, &30, 2), Err(Errno::ENOENT));
    let mut all: Vec<_> = map.iter().collect::<Result<_, _>>().unwrap();
    all.sort_unstable();
    assert_eq!(all, [(1, 10), (2, 20)]);
    assert_eq!(map.keys().count(), 2);
    assert_eq!(map.remove(&1), Ok(true));
    assert_eq!(map.remove(&1), Ok(false));
    if has(&[Feature::TakenElements]) {
        let mut value = [0; 8];
        fd.lookup_and_delete(&2u32.to_ne_bytes(), &mut value, 0).unwrap();
        assert_eq!(u64::from_ne_bytes(value), 20);
        assert_eq!(map.keys().count(), 0);
    }
    assert!(Map::<u64, u64>::new(&fd).is_err());
    let info = objects::map_info(fd.as_fd()).unwrap();
    assert_eq!(&info.name, b"corelo.test_map\0");
    assert_eq!((info.map_type, info.max_entries), (map_type::HASH, 4));
}

#[test]
fn per_cpu_values() {
    let Some(_kernel) = kernel() else { return };
    let fd = create(map_type::PERCPU_ARRAY, 4, 12, 2).unwrap();
    let cpus = corelo_loader::kernel::possible_cpus().unwrap();
    assert_eq!(fd.value_bytes(), 16 * cpus as usize);
    let map = PerCpuMap::<u32, [u32; 3]>::new(&fd).unwrap();
    let mut buffer = vec![0; map.buffer_len()];
    map.insert(&1, &mut buffer, |cpu| [cpu, 7, cpu * 2], 0).unwrap();
    let values: Vec<_> = map.get(&1, &mut buffer).unwrap().unwrap().collect();
    let want: Vec<_> = (0..cpus).map(|cpu| [cpu, 7, cpu * 2]).collect();
    assert_eq!(values, want);
    assert!(map.get(&2, &mut buffer).unwrap().is_none());
    let short = map.get(&1, &mut [0; 8]).map(|found| found.is_some());
    assert_eq!(short, Err(Errno::EINVAL));
    assert!(Map::<u32, [u32; 3]>::new(&fd).is_err());
}

#[test]
fn arrays_are_mapped_and_frozen() {
    let Some(_kernel) = kernel() else { return };
    let spec = MapSpec {
        name: b".data",
        map_type: map_type::ARRAY,
        key_size: 4,
        value_size: 100,
        max_entries: 1,
        map_flags: BPF_F_MMAPABLE,
        ..MapSpec::default()
    };
    let fd = objects::create_map(&spec, Memlock::RaiseIfRefused).unwrap();
    let memory = objects::mmap(&fd, true).unwrap();
    assert_eq!(memory.byte_size(), page_size());
    memory.write(3, b"written by mmap").unwrap();
    let mut value = [0; 100];
    fd.lookup(&[0; 4], &mut value, 0).unwrap();
    assert_eq!(&value[3..18], b"written by mmap");
    value[0] = 9;
    assert_eq!(fd.freeze(), Err(Errno::EBUSY), "it is mapped writable");
    drop(memory);
    fd.update(&[0; 4], &value, 0).unwrap();
    fd.freeze().unwrap();
    assert_eq!(fd.update(&[0; 4], &value, 0), Err(Errno::EPERM));
    assert_eq!(objects::mmap(&fd, true).unwrap_err(), Errno::EPERM);
    let memory = objects::mmap(&fd, false).unwrap();
    let mut byte = [0];
    memory.read(0, &mut byte).unwrap();
    assert_eq!(byte, [9]);
}

#[test]
fn ring_buffers_wrap_and_a_second_reader_goes_on() {
    let Some(_kernel) = kernel_with(&[Feature::RingBuffers]) else { return };
    let fd = create(map_type::RINGBUF, 0, 0, 1).unwrap();
    let program = load(SOCKET_FILTER, &code(&ring_output(fd.as_fd(), 77)));
    let mut ring = RingBuffer::new(fd.as_fd()).unwrap();
    assert_eq!(ring.byte_size() as usize, page_size());
    // A second one would give back what the first one has in hand.
    let copy = fd.try_clone().unwrap();
    assert_eq!(RingBuffer::new(copy.as_fd()).unwrap_err(), RingError::HasReader);
    assert_eq!(ring.poll(Some(Duration::ZERO), |_| {}), Ok(0));
    // Three times around the ring: 16 bytes a record.
    let rounds = 3 * page_size() / 16;
    for round in 0..rounds {
        assert_eq!(run(program.as_fd()), 0, "round {round}");
        let mut seen = 0;
        let count = ring.poll(Some(Duration::from_secs(5)), |bytes| {
            assert_eq!(bytes, 77u64.to_ne_bytes());
            seen += 1;
        });
        assert_eq!((count, seen), (Ok(1), 1));
    }
    // Full: the helper says so, and nothing is lost of what went in.
    let mut written = 0;
    while run(program.as_fd()) == 0 {
        written += 1;
    }
    assert!(written >= page_size() / 16 - 1);
    assert_eq!(ring.next(<[u8]>::len), Ok(Some(8)));
    drop(ring);
    let mut second = RingBuffer::new(fd.as_fd()).unwrap();
    assert_eq!(second.consume(|_| {}), Ok(written as u32 - 1));
    assert_eq!(second.unread(), 0);
    let hash = hash(1).unwrap();
    assert_eq!(RingBuffer::new(hash.as_fd()).unwrap_err(), RingError::WrongMapType(map_type::HASH));
}

#[test]
fn several_rings_behind_one_epoll() {
    let Some(_kernel) = kernel_with(&[Feature::RingBuffers]) else { return };
    let fds = [0, 1, 2].map(|_| create(map_type::RINGBUF, 0, 0, 4096).unwrap());
    let programs = [0, 1, 2].map(|i| load(SOCKET_FILTER, &code(&ring_output(fds[i].as_fd(), i as i32))));
    let mut rings = [0, 1, 2].map(|i: usize| RingBuffer::new(fds[i].as_fd()).unwrap());
    let mut set = RingSet::new(&mut rings).unwrap();
    assert_eq!(set.poll(Some(Duration::from_millis(1)), |_, _| {}), Ok(0));
    // Written while the reader waits.
    let writer = programs[2].try_clone().unwrap();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        run(writer.as_fd())
    });
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    let mut seen = Vec::new();
    let count = set.poll(Some(Duration::from_secs(10)), |ring, bytes| {
        seen.push((ring, number(bytes)));
    });
    assert_eq!((count, &seen[..]), (Ok(1), &[(2, 2)][..]));
    assert_eq!(thread.join().unwrap(), 0);
    run(programs[0].as_fd());
    run(programs[1].as_fd());
    run(programs[1].as_fd());
    seen.clear();
    let count = set.consume(|ring, bytes| seen.push((ring, number(bytes))));
    assert_eq!((count, &seen[..]), (Ok(3), &[(0, 0), (1, 1), (1, 1)][..]));
}

#[test]
fn perf_buffers_count_what_they_lose() {
    let Some(_kernel) = kernel_with(&[Feature::BoundMaps]) else { return };
    let fd = create(map_type::PERF_EVENT_ARRAY, 4, 4, 0).unwrap();
    assert_eq!(fd.max_entries(), corelo_loader::kernel::possible_cpus().unwrap());
    // A raw tracepoint program with a test run: perf_event_output(ctx, map, this CPU, 12 bytes).
    let [map_low, map_high] = Insn::ld_map(2, fd.as_fd());
    // BPF_F_CURRENT_CPU.
    let [cpu_low, cpu_high] = Insn::ld_imm64(3, 0, 0xffff_ffff);
    let program = load(
        RAW_TRACEPOINT,
        &code(&[
            Insn::st(Width::W, 10, -16, 0x0403_0201),
            Insn::st(Width::W, 10, -12, 5),
            Insn::st(Width::W, 10, -8, 6),
            map_low,
            map_high,
            cpu_low,
            cpu_high,
            Insn::mov64_reg(4, 10),
            Insn::add64_imm(4, -16),
            Insn::mov64_imm(5, 12),
            Insn::call_helper(25),
            Insn::exit(),
        ]),
    );
    let run = || objects::prog_test_run(program.as_fd(), &mut TestRun::default()).unwrap().retval;
    let mut rings = [const { None }; 64];
    assert_eq!(PerfBuffer::open(&fd, 3, &mut rings).unwrap_err(), RingError::BadPageCount(3));
    assert!(matches!(PerfBuffer::open(&fd, 1, &mut []).unwrap_err(), RingError::TooManyCpus { room: 0, .. }));
    let mut buffer = PerfBuffer::open(&fd, 1, &mut rings).unwrap();
    let mut scratch = [0; 256];
    let want: Vec<u8> = [0x0403_0201u32, 5, 6].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let rounds = 3 * page_size() / 24;
    for _ in 0..rounds {
        assert_eq!(run(), 0);
        let count = buffer.poll(Some(Duration::from_secs(5)), &mut scratch, |_, record| {
            assert_eq!(record, PerfRecord::Sample(&want));
        });
        assert_eq!(count, Ok(1));
    }
    // More than fits on any CPU.
    let cpus = corelo_loader::kernel::possible_cpus().unwrap() as usize;
    let total = (page_size() / 24) * (cpus + 1) + 10;
    for _ in 0..total {
        run();
    }
    // Newer kernels tell the loss before anything is read.
    let tells = corelo_loader::kernel::KernelVersion::running() >= corelo_loader::kernel::KernelVersion::new(6, 0, 0);
    let told = buffer.lost().unwrap();
    // Older ones may have it backported (Debian's 5.10 does).
    assert!((10..total as u64).contains(&told) || !tells && told == 0, "{told} of {total}");
    // The loss is told with the next record that finds room.
    let (mut samples, mut lost) = (0, 0);
    for _ in 0..2 {
        buffer
            .consume(&mut scratch, |_, record| match record {
                PerfRecord::Sample(_) => samples += 1,
                PerfRecord::Lost(count) => lost += count as usize,
                other => panic!("{other:?}"),
            })
            .unwrap();
        for _ in 0..cpus * 4 {
            run();
        }
    }
    assert!(samples > 0 && lost > 0, "{samples} samples, {lost} lost");
    drop(buffer);
    assert_ne!(run(), 0, "the ring is still in the map");
}

#[test]
fn a_failing_program_has_its_log_and_its_errno() {
    let Some(_kernel) = kernel() else { return };
    // Many good instructions, so that the log is long, then a read of a register that was never written.
    let mut insns: Vec<Insn> = (0..400).map(|i| Insn::mov64_imm(0, i)).collect();
    insns.extend([Insn::mov64_reg(0, 7), Insn::exit()]);
    let insns = code(&insns);
    let spec = ProgramSpec { name: b"bad", log_level: 2, ..ProgramSpec::new(SOCKET_FILTER) };
    let mut log = GrowingLog::new(256, 1 << 20);
    let failure = load_program(&spec, &insns, &mut log).unwrap_err();
    assert_eq!((failure.errno, failure.truncated), (Errno::EACCES, false));
    let whole = String::from_utf8(log.as_bytes()[failure.log_range()].to_vec()).unwrap();
    assert!(whole.contains("R7 !read_ok"), "{whole}");
    assert!(whole.len() > 4096);
    // Short buffers: the same errno, and the tail where the kernel keeps it.
    let mut short = [0; 512];
    let failure = load_program(&spec, &insns, &mut &mut short[..]).unwrap_err();
    assert_eq!((failure.errno, failure.truncated), (Errno::EACCES, true));
    if failure.log_true_size > 0 {
        assert_eq!(failure.log_true_size as usize, whole.len() + 1);
        let tail = String::from_utf8(short[failure.log_range()].to_vec()).unwrap();
        assert!(whole.ends_with(&tail) && tail.len() > 256, "{tail}");
    }
    // No buffer and one too small to be taken: still the errno.
    for len in [0, 1, 64] {
        let mut tiny = vec![0; len];
        let failure = load_program(&spec, &insns, &mut &mut tiny[..]).unwrap_err();
        assert_eq!(failure.errno, Errno::EACCES, "{len}");
    }
    // A short buffer never makes a good program fail.
    let good = code(&[Insn::mov64_imm(0, 3), Insn::exit()]);
    let program = load_program(&spec, &good, &mut &mut [0u8; 1][..]).unwrap();
    assert_eq!(run(program.as_fd()), 3);
    let info = objects::prog_info(program.as_fd()).unwrap();
    assert_eq!(&info.name, b"bad\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!((info.prog_type, info.xlated_size, info.gpl_compatible), (1, 16, true));
    let mut xlated = [0; 16];
    objects::prog_xlated(program.as_fd(), &mut xlated).unwrap();
    assert_eq!(xlated[..], good[..]);
}

#[test]
fn programs_know_their_maps() {
    let Some(_kernel) = kernel_with(&[Feature::RingBuffers, Feature::BoundMaps]) else { return };
    let fd = create(map_type::RINGBUF, 0, 0, 4096).unwrap();
    let program = load(SOCKET_FILTER, &code(&ring_output(fd.as_fd(), 1)));
    let mut ids = [0; 4];
    assert_eq!(objects::prog_map_ids(program.as_fd(), &mut ids), Ok(1));
    assert_eq!(ids[0], objects::map_info(fd.as_fd()).unwrap().id);
    let other = hash(1).unwrap();
    objects::prog_bind_map(program.as_fd(), other.as_fd()).unwrap();
    assert_eq!(objects::prog_map_ids(program.as_fd(), &mut ids), Ok(2));
}

#[test]
fn a_syscall_program_writes_to_its_context() {
    let Some(_kernel) = kernel_with(&[Feature::SyscallPrograms]) else { return };
    let spec = ProgramSpec {
        flags: 1 << 4, // BPF_F_SLEEPABLE
        ..ProgramSpec::new(SYSCALL)
    };
    // *(u32 *)(r1 + 0) = r2: before Linux 6.3 no constant could be stored into a context.
    let insns = code(&[Insn::mov64_imm(2, 1234), Insn::stx(Width::W, 1, 2, 0), Insn::mov64_imm(0, 5), Insn::exit()]);
    let program = load_program(&spec, &insns, &mut &mut [][..]).unwrap();
    let mut context = [0; 8];
    let mut run = TestRun { ctx_in: &mut context, ..TestRun::default() };
    let result = objects::prog_test_run(program.as_fd(), &mut run).unwrap();
    assert_eq!(result.retval, 5);
    assert_eq!(context[..4], 1234u32.to_ne_bytes());
}

#[test]
fn an_xdp_program_gets_its_packet_back() {
    let Some(_kernel) = kernel_with(&[Feature::XdpLinks]) else { return };
    let spec =
        ProgramSpec { expected_attach_type: AttachType::XDP.0, attach_type_optional: true, ..ProgramSpec::new(XDP) };
    let program = load_program(&spec, &code(&[Insn::mov64_imm(0, 2), Insn::exit()]), &mut &mut [][..]).unwrap();
    let packet: Vec<u8> = (0..64).collect();
    let mut out = [0; 128];
    let mut run = TestRun { data_in: &packet, data_out: &mut out, ..TestRun::default() };
    let result = objects::prog_test_run(program.as_fd(), &mut run).unwrap();
    assert_eq!((result.retval, result.data_size), (2, 64));
    assert_eq!(out[..64], packet[..]);
    let index = attach::interface_index("lo").unwrap();
    let link = attach::xdp::attach(program.as_fd(), index, attach::xdp::Mode::Generic).unwrap();
    let info = attach::link_info(link.fd().unwrap()).unwrap();
    assert_eq!(info.link_type, 6);
    let busy = attach::xdp::attach(program.as_fd(), index, attach::xdp::Mode::Generic);
    assert!(matches!(busy.unwrap_err(), LinkError::Kernel { errno: Errno::EBUSY, .. }));
    link.update(program.as_fd()).unwrap();
    drop(link);
    attach::xdp::attach(program.as_fd(), index, attach::xdp::Mode::Generic).unwrap().detach().unwrap();
    assert_eq!(attach::interface_index("nope0"), Err(LinkError::NoInterface));
}

fn counted(map: &MapFd) -> u64 {
    Map::<u32, u64>::new(map).unwrap().get(&0).unwrap().unwrap()
}

fn start_a_process() {
    let status = std::process::Command::new("/bin/true").status().unwrap();
    assert!(status.success());
}

#[test]
fn tracepoints() {
    let Some(_kernel) = kernel_with(&[Feature::Tracefs]) else { return };
    let map = create(map_type::ARRAY, 4, 8, 1).unwrap();
    let program = load(TRACEPOINT, &code(&count_runs(map.as_fd())));
    let link = attach::tracepoint::attach(program.as_fd(), "sched", "sched_process_exec", 0).unwrap();
    start_a_process();
    let seen = counted(&map);
    assert!(seen >= 1);
    drop(link);
    let seen = counted(&map);
    start_a_process();
    assert_eq!(counted(&map), seen, "detached");
    let absent = attach::tracepoint::attach(program.as_fd(), "sched", "no_such", 0);
    assert_eq!(absent.unwrap_err(), LinkError::NoTracepoint);
}

#[test]
fn raw_tracepoints() {
    let Some(_kernel) = kernel() else { return };
    let map = create(map_type::ARRAY, 4, 8, 1).unwrap();
    let program = load(RAW_TRACEPOINT, &code(&count_runs(map.as_fd())));
    let link = attach::raw_tracepoint::attach(program.as_fd(), "sched_process_exec", 0).unwrap();
    start_a_process();
    assert!(counted(&map) >= 1);
    link.detach().unwrap();
    let seen = counted(&map);
    start_a_process();
    assert_eq!(counted(&map), seen, "detached");
    let absent = attach::raw_tracepoint::attach(program.as_fd(), "no_such", 0);
    assert!(matches!(absent.unwrap_err(), LinkError::Kernel { errno: Errno::ENOENT, .. }));
}

#[test]
fn software_clock_samples() {
    let Some(_kernel) = kernel() else { return };
    let map = create(map_type::ARRAY, 4, 8, 1).unwrap();
    let program = load(7, &code(&count_runs(map.as_fd())));
    let link =
        attach::perf_event::attach(program.as_fd(), 1, 0, attach::Sampling::Frequency(1000), attach::Scope::pid(0), 0)
            .unwrap();
    let start = std::time::Instant::now();
    while counted(&map) == 0 && start.elapsed() < Duration::from_secs(10) {}
    assert!(counted(&map) > 0);
    drop(link);
}

#[test]
fn cgroup_directories_of_version_1_are_named() {
    let Some(_kernel) = kernel_with(&[Feature::Cgroup2]) else { return };
    let not = attach::cgroup::open(Path::new("/proc"));
    assert_eq!(not.unwrap_err(), LinkError::NotCgroup);
    let dir = tempfile::tempdir().unwrap();
    match Mounted::with("cgroup", dir.path(), "none,name=corelo_test") {
        Ok(_mounted) => assert_eq!(attach::cgroup::open(dir.path()).unwrap_err(), LinkError::CgroupV1),
        Err(error) => not_here("cgroup version 1", &error.to_string()),
    }
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
    let root = mount.split(' ').nth(1).unwrap();
    // BPF_PROG_TYPE_CGROUP_SKB, ingress: lets everything pass.
    let program = load(8, &code(&[Insn::mov64_imm(0, 1), Insn::exit()]));
    let order = attach::tcx::Order::Append;
    let link = attach::cgroup::attach(program.as_fd(), Path::new(root), 0, order).unwrap();
    assert_eq!(attach::link_info(link.fd().unwrap()).unwrap().link_type, 3);
}

/// A bpf file system of this test's own.
struct BpfFs {
    // In this order: it is unmounted before its directory is removed.
    _mounted: Mounted,
    dir: tempfile::TempDir,
}

impl BpfFs {
    fn mount() -> Option<BpfFs> {
        let dir = tempfile::tempdir().unwrap();
        match Mounted::new("bpf", dir.path()) {
            Ok(mounted) => Some(BpfFs { _mounted: mounted, dir }),
            Err(error) => {
                skip("mount a bpf file system", &error.to_string());
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

#[test]
fn pins_are_made_found_compared_and_removed() {
    let Some(_kernel) = kernel() else { return };
    let Some(fs) = BpfFs::mount() else { return };
    let path = fs.path("a/b/c/map");
    let spec = MapSpec { name: b"pinned", map_type: map_type::RINGBUF, max_entries: 100, ..MapSpec::default() };
    let (first, reused) = pin::reuse_or_create(&path, &spec, Memlock::RaiseIfRefused).unwrap();
    assert!(!reused);
    let (second, reused) = pin::reuse_or_create(&path, &spec, Memlock::RaiseIfRefused).unwrap();
    assert!(reused);
    let id = |map: &MapFd| objects::map_info(map.as_fd()).unwrap().id;
    assert_eq!(id(&first), id(&second));
    // Another declaration of the same name.
    let other = MapSpec { max_entries: 4 * page_size() as u32, ..spec };
    assert_eq!(
        pin::reuse_or_create(&path, &other, Memlock::RaiseIfRefused).unwrap_err(),
        PinError::Mismatch {
            property: Property::MaxEntries,
            found: page_size() as u64,
            wanted: 4 * page_size() as u64,
        }
    );
    assert_eq!(pin::pin(first.as_fd(), &path), Err(PinError::Pin(Errno::EEXIST)));
    // The map outlives its descriptors.
    let before = id(&first);
    drop((first, second));
    assert_eq!(id(&pin::open_map(&path).unwrap()), before);
    pin::unpin(&path).unwrap();
    assert_eq!(pin::open(&path).unwrap_err(), PinError::Open(Errno::ENOENT));
    // What is pinned is told apart.
    let program = load(SOCKET_FILTER, &code(&[Insn::mov64_imm(0, 0), Insn::exit()]));
    pin::pin(program.as_fd(), &path).unwrap();
    assert_eq!(pin::open_map(&path).unwrap_err(), PinError::NotMap);
    assert_eq!(pin::reuse_or_create(&path, &spec, Memlock::Keep).unwrap_err(), PinError::NotMap);
    assert!(pin::open_program(&path).is_ok());
    pin::unpin(&path).unwrap();
    pin::pin(hash(1).unwrap().as_fd(), &path).unwrap();
    assert_eq!(pin::open_program(&path).unwrap_err(), PinError::NotProgram);
    pin::unpin(&path).unwrap();
    let map = hash(1).unwrap();
    assert_eq!(pin::pin(map.as_fd(), &std::env::temp_dir().join("corelo-pin")), Err(PinError::NotBpfFs(Errno::EPERM)));
}

#[test]
fn two_loaders_pin_at_once() {
    let Some(_kernel) = kernel() else { return };
    let Some(fs) = BpfFs::mount() else { return };
    for round in 0..50 {
        let path = fs.path(&format!("r{round}/map"));
        let ids: Vec<u32> = std::thread::scope(|scope| {
            let threads = [0, 1].map(|_| {
                scope.spawn(|| {
                    let spec = MapSpec {
                        map_type: map_type::HASH,
                        key_size: 4,
                        value_size: 4,
                        max_entries: 1,
                        ..MapSpec::default()
                    };
                    let (map, _) = pin::reuse_or_create(&path, &spec, Memlock::RaiseIfRefused).unwrap();
                    objects::map_info(map.as_fd()).unwrap().id
                })
            });
            threads.map(|thread| thread.join().unwrap()).to_vec()
        });
        assert_eq!(ids[0], ids[1]);
    }
}

#[test]
fn a_pinned_link_outlives_its_owner() {
    let Some(_kernel) = kernel() else { return };
    let Some(fs) = BpfFs::mount() else { return };
    let map = create(map_type::ARRAY, 4, 8, 1).unwrap();
    let program = load(RAW_TRACEPOINT, &code(&count_runs(map.as_fd())));
    let link = attach::raw_tracepoint::attach(program.as_fd(), "sched_process_exec", 0).unwrap();
    let path = fs.path("link");
    pin::pin(link.fd().unwrap(), &path).unwrap();
    drop(link);
    start_a_process();
    assert!(counted(&map) >= 1);
    pin::unpin(&path).unwrap();
    // The kernel detaches when the last reference is gone, which may be a moment later.
    std::thread::sleep(Duration::from_millis(100));
    let seen = counted(&map);
    start_a_process();
    assert_eq!(counted(&map), seen);
}

#[test]
fn the_kernels_btf() {
    let Some(_kernel) = kernel_with(&[Feature::KernelBtf]) else { return };
    let btf = KernelBtf::open().unwrap();
    assert_eq!(btf[..2], 0xeb9fu16.to_ne_bytes());
    println!("{} bytes by {}", btf.len(), btf.source());
    if KernelVersion::running() >= KernelVersion::new(6, 16, 0) {
        assert_eq!(btf.source(), Source::Mmap);
    }
    if has(&[Feature::KernelBtfObject]) {
        let (_fd, id) = kernel::btf_object("vmlinux").unwrap().unwrap();
        assert!(id > 0);
    }
    assert!(kernel::btf_object("no_such_module").unwrap().is_none());
    // The kernel takes the blob's own first bytes for a BTF of nothing? No: a refusal with a log.
    let mut log = GrowingLog::new(256, 1 << 16);
    let failure = objects::load_btf(&btf[..24], &mut log, Memlock::RaiseIfRefused).unwrap_err();
    assert_eq!(failure.errno, Errno::EINVAL);
    assert!(failure.log_len > 0);
}

#[test]
fn module_btf_one_at_a_time() {
    let Some(_kernel) = kernel() else { return };
    let mut count = 0;
    let walked = kernel::modules(|name| {
        let blob = KernelBtf::open_module(name).unwrap();
        assert_eq!(blob[..2], 0xeb9fu16.to_ne_bytes(), "{name}");
        count += 1;
        std::ops::ControlFlow::<()>::Continue(())
    });
    assert!(walked.unwrap().is_continue());
    println!("{count} modules with BTF");
    assert_eq!(KernelBtf::open_module("no_such_module").unwrap_err(), KernelBtfError::Open(Errno::ENOENT));
}

#[inline(never)]
extern "C" fn probed(value: u64) -> u64 {
    std::hint::black_box(value) + 1
}

/// Where `probed` lies in this executable's file.
fn file_offset() -> (PathBuf, u64) {
    let address = probed as *const () as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .find_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let start = u64::from_str_radix(start, 16).ok()?;
            let end = u64::from_str_radix(end, 16).ok()?;
            let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
            let path = PathBuf::from(words.nth(2)?);
            (start..end).contains(&address).then(|| (path, address - start + offset))
        })
        .unwrap()
}

#[test]
fn uprobes_on_entry_and_return() {
    let Some(_kernel) = kernel_with(&[Feature::Uprobes]) else { return };
    let (path, offset) = file_offset();
    // BPF_PROG_TYPE_KPROBE.
    let map = create(map_type::ARRAY, 4, 8, 1).unwrap();
    let program = load(2, &code(&count_runs(map.as_fd())));
    let mut want = 0;
    for (returns, pid) in [(false, None), (true, None), (false, Some(std::process::id()))] {
        let uprobe = attach::uprobe::Uprobe { path: &path, offset, ref_ctr_offset: 0, returns, pid, cookie: 0 };
        let link = attach::uprobe::attach(program.as_fd(), uprobe).unwrap();
        for value in 0..3 {
            assert_eq!(probed(value), value + 1);
        }
        want += 3;
        assert_eq!(counted(&map), want, "{returns} {pid:?}");
        drop(link);
        probed(0);
        assert_eq!(counted(&map), want, "detached");
    }
}

#[test]
fn cookies_reach_the_program() {
    let Some(_kernel) = kernel_with(&[Feature::Uprobes, Feature::Cookies]) else { return };
    let (path, offset) = file_offset();
    let map = create(map_type::ARRAY, 4, 8, 1).unwrap();
    // element 0 = bpf_get_attach_cookie(ctx)
    let [low, high] = Insn::ld_map(1, map.as_fd());
    let program = load(
        2,
        &code(&[
            Insn::call_helper(174),
            Insn::stx(Width::Dw, 10, 0, -16),
            Insn::st(Width::W, 10, -4, 0),
            low,
            high,
            Insn::mov64_reg(2, 10),
            Insn::add64_imm(2, -4),
            Insn::mov64_reg(3, 10),
            Insn::add64_imm(3, -16),
            Insn::mov64_imm(4, 0),
            Insn::call_helper(2),
            Insn::mov64_imm(0, 0),
            Insn::exit(),
        ]),
    );
    let link = attach::uprobe::attach(
        program.as_fd(),
        attach::uprobe::Uprobe {
            path: &path,
            offset,
            ref_ctr_offset: 0,
            returns: false,
            pid: None,
            cookie: 0x1122_3344_5566_7788,
        },
    );
    let _link = link.unwrap();
    probed(1);
    assert_eq!(counted(&map), 0x1122_3344_5566_7788);
}

#[test]
fn kprobes_attach_or_say_why_not() {
    let Some(_kernel) = kernel() else { return };
    let map = create(map_type::ARRAY, 4, 8, 1).unwrap();
    let program = load(2, &code(&count_runs(map.as_fd())));
    let kprobe = |function| attach::kprobe::Kprobe { function, offset: 0, returns: false, cookie: 0 };
    let made = attach::kprobe::attach(program.as_fd(), kprobe("do_exit"));
    if has(&[Feature::Kprobes]) {
        let link = made.unwrap();
        start_a_process();
        assert!(counted(&map) >= 1);
        drop(link);
        let absent = attach::kprobe::attach(program.as_fd(), kprobe("no_such_function"));
        assert!(matches!(absent, Err(LinkError::Kernel { .. })), "{absent:?}");
    } else {
        // A kernel without CONFIG_KPROBES, or tracefs not mounted: said in words.
        assert!(matches!(made, Err(LinkError::NoProbes | LinkError::NoTracefs)), "{made:?}");
    }
}

#[test]
fn tcx_in_order() {
    let Some(_kernel) = kernel_with(&[Feature::Tcx]) else { return };
    // BPF_PROG_TYPE_SCHED_CLS, "next" (-1).
    let spec = ProgramSpec { expected_attach_type: AttachType::TCX_INGRESS.0, ..ProgramSpec::new(3) };
    let program = load_program(&spec, &code(&[Insn::mov64_imm(0, -1), Insn::exit()]), &mut &mut [][..]).unwrap();
    let other = load_program(&spec, &code(&[Insn::mov64_imm(0, -1), Insn::exit()]), &mut &mut [][..]).unwrap();
    let index = attach::interface_index("lo").unwrap();
    let ingress = AttachType::TCX_INGRESS.0;
    let first = attach::tcx::attach(program.as_fd(), index, ingress, attach::tcx::Order::Append).unwrap();
    let before = attach::tcx::Order::Before(program.as_fd());
    let second = attach::tcx::attach(other.as_fd(), index, ingress, before).unwrap();
    for link in [&first, &second] {
        assert_eq!(attach::link_info(link.fd().unwrap()).unwrap().link_type, 11);
    }
}

#[test]
fn sock_maps() {
    let Some(_kernel) = kernel_with(&[Feature::SocketMaps]) else { return };
    let map = create(map_type::SOCKMAP, 4, 4, 1).unwrap();
    // BPF_PROG_TYPE_SK_SKB as a stream verdict: pass.
    let program = load(14, &code(&[Insn::mov64_imm(0, 1), Insn::exit()]));
    let attach = || attach::socket::attach_sockmap(program.as_fd(), map.as_fd(), 5);
    let link = attach().unwrap();
    assert!(link.fd().is_none());
    let refused = link.update(program.as_fd());
    assert!(matches!(refused, Err(LinkError::Kernel { .. })));
    drop(link);
    attach().unwrap().detach().unwrap();
}

/// The id of a type in the kernel's BTF, by kind and name.
fn btf_id(kind: u32, name: &str) -> u32 {
    let btf = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
    corelo_tests::kernel::btf_id(&btf, kind, name).unwrap()
}

/// A BPF_PROG_TYPE_TRACING program.
fn load_tracing(attach_type: u32, attach_btf_id: u32, insns: &[u8]) -> std::os::fd::OwnedFd {
    let spec = ProgramSpec { expected_attach_type: attach_type, attach_btf_id, ..ProgramSpec::new(26) };
    load_program(&spec, insns, &mut &mut [][..]).unwrap()
}

#[test]
fn tp_btf() {
    let Some(_kernel) = kernel_with(&[Feature::TpBtf]) else { return };
    let id = btf_id(8, "btf_trace_sched_process_exec");
    let map = create(map_type::ARRAY, 4, 8, 1).unwrap();
    let attach_type = AttachType::TRACE_RAW_TP.0;
    let program = load_tracing(attach_type, id, &code(&count_runs(map.as_fd())));
    // Told since Linux 6.0.
    let told = if KernelVersion::running() >= KernelVersion::new(6, 0, 0) { id } else { 0 };
    assert_eq!(objects::prog_info(program.as_fd()).unwrap().attach_btf_id, told);
    let link = attach::tracing::attach(program.as_fd(), attach_type, 0).unwrap();
    start_a_process();
    let seen = counted(&map);
    assert!(seen >= 1);
    drop(link);
    let seen = counted(&map).max(seen);
    start_a_process();
    assert_eq!(counted(&map), seen, "detached");
}

#[test]
fn iterators_are_read() {
    let Some(_kernel) = kernel_with(&[Feature::ElementIterators]) else { return };
    let id = btf_id(12, "bpf_iter_bpf_map_elem");
    let map = hash(8).unwrap();
    let typed = Map::<u32, u64>::new(&map).unwrap();
    for key in 0..3 {
        typed.insert(&key, &0, 0).unwrap();
    }
    // bpf_seq_write(ctx->meta->seq, "corelo!\n", 8) for each element, and once at the end of the walk.
    let text = u64::from_ne_bytes(*b"corelo!\n");
    let words = if cfg!(target_endian = "big") {
        [(text >> 32) as i32, text as i32]
    } else {
        [text as i32, (text >> 32) as i32]
    };
    let insns = code(&[
        Insn::ldx(Width::Dw, 1, 1, 0),
        Insn::ldx(Width::Dw, 1, 1, 0),
        Insn::st(Width::W, 10, -8, words[0]),
        Insn::st(Width::W, 10, -4, words[1]),
        Insn::mov64_reg(2, 10),
        Insn::add64_imm(2, -8),
        Insn::mov64_imm(3, 8),
        Insn::call_helper(127),
        Insn::mov64_imm(0, 0),
        Insn::exit(),
    ]);
    let program = load_tracing(AttachType::TRACE_ITER.0, id, &insns);
    let link = attach::iter::attach_map(program.as_fd(), map.as_fd()).unwrap();
    for _ in 0..2 {
        let mut text = String::new();
        IterReader::new(&link).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "corelo!\n".repeat(4));
    }
    assert!(attach::iter::attach(program.as_fd()).is_err(), "it needs a map");
}

/// `btf_info` of a program let the kernel write its machine code to an address of the caller's choice; a program taken for
/// a map had sizes out of its hash.
#[test]
fn descriptors_are_what_the_kernel_says_they_are() {
    use corelo_loader::sys::bpf::{ObjectKind, btf_info, kind_of, link_info, prog_info, prog_map_ids, prog_xlated};
    let Some(_kernel) = kernel() else { return };
    let map = hash(1).unwrap();
    let program = load(RAW_TRACEPOINT, &code(&[Insn::mov64_imm(0, 0), Insn::exit()]));
    // Before Linux 5.7 a raw tracepoint is no link.
    let link = attach::raw_tracepoint::attach(program.as_fd(), "sched_process_exec", 0).unwrap();
    let btf = kernel::btf_object("vmlinux");
    assert_eq!(kind_of(map.as_fd()), Ok(ObjectKind::Map));
    assert_eq!(kind_of(program.as_fd()), Ok(ObjectKind::Program));
    let is_link = kind_of(link.fd().unwrap());
    if corelo_loader::kernel::KernelVersion::running() >= corelo_loader::kernel::KernelVersion::new(5, 8, 0) {
        assert_eq!(is_link, Ok(ObjectKind::Link));
    }
    let mut kinds = vec![(ObjectKind::Map, map.as_fd()), (ObjectKind::Program, program.as_fd())];
    if let Ok(Some((btf, _))) = &btf {
        assert_eq!(kind_of(btf.as_fd()), Ok(ObjectKind::Btf));
        kinds.push((ObjectKind::Btf, btf.as_fd()));
    }
    if is_link == Ok(ObjectKind::Link) {
        kinds.push((ObjectKind::Link, link.fd().unwrap()));
    }
    for (kind, fd) in kinds {
        let refused = |answer: Option<Errno>, own: ObjectKind| {
            let want = (kind != own).then_some(Errno::EINVAL);
            assert_eq!(answer, want, "{own:?} asked of {kind:?}");
        };
        let mut name = [0u8; 64];
        refused(btf_info(fd, &mut [0; 0], &mut name).err(), ObjectKind::Btf);
        assert!(kind == ObjectKind::Btf || name == [0; 64], "the kernel wrote");
        refused(objects::map_info(fd).err(), ObjectKind::Map);
        refused(prog_info(fd).err(), ObjectKind::Program);
        refused(prog_map_ids(fd, &mut [0; 4]).err(), ObjectKind::Program);
        refused(prog_xlated(fd, &mut [0; 64]).err(), ObjectKind::Program);
        refused(link_info(fd).err(), ObjectKind::Link);
        refused(MapFd::from_fd(fd.try_clone_to_owned().unwrap()).err(), ObjectKind::Map);
    }
}

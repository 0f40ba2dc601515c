//! The front door: objects loaded in one call, what is set of them, and what is said where it does not work.

use std::error::Error as _;
use std::io::Read;
use std::os::fd::AsFd;
use std::time::Duration;

use corelo_core::uapi::map_type;
use corelo_loader::events::{PerfRecord, RingError};
use corelo_loader::kernel::KernelBtf;
use corelo_loader::load::{Autoload, Change, Counts, LoadError, Setting, SettingError};
use corelo_loader::loader::{Cause, Error, Loader};
use corelo_loader::objects::{self, MapSpec, Memlock, TestRun};
use corelo_loader::prepare::{Kernel, KernelOptions};
use corelo_tests::kernel::{Feature, has};

fn fixture(name: &str) -> Vec<u8> {
    let endian = if cfg!(target_endian = "big") { "eb" } else { "el" };
    let path = format!("{}/../tests/fixtures/{name}-{endian}.o", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether the kernel loads: what all of this needs.
fn is_root() -> bool {
    has(&[Feature::Bpf])
}

/// Runs a program once on a packet of 64 bytes; what it returned.
fn run(collection: &corelo_loader::load::Collection<'_>, program: &str) -> u32 {
    let packet = [0; 64];
    let mut run = TestRun { data_in: &packet, ..TestRun::default() };
    collection.program(program).unwrap().test_run(&mut run).unwrap().retval
}

/// What a user writes: all of it in a struct, made by a function, without a `'static` anywhere.
struct Kept<'a> {
    collection: corelo_loader::load::Collection<'a>,
}

impl<'a> Kept<'a> {
    fn start(object: &'a [u8], ro: u32, kernel: &'a Kernel<'_>, buffer: &'a mut [u8]) -> Result<Self, Error> {
        // The settings are gone when this returns.
        Ok(Self { collection: Loader::new(object).name("kept").global("ro", &ro).load(kernel, buffer)? })
    }

    fn rw(&self) -> u64 {
        self.collection.global::<u64>("rw").unwrap().get().unwrap()
    }
}

/// The same, with nothing to borrow from.
#[cfg(feature = "alloc")]
#[test]
fn an_owned_collection_goes_to_another_thread() {
    if !is_root() {
        return;
    }
    let owned = {
        // Nothing of these is there when it is used.
        let (object, ro) = (fixture("obj_globals"), 100u32);
        Loader::new(&object).name("owned").global("ro", &ro).load_owned(Kernel::running()).unwrap()
    };
    let mut owned = std::thread::spawn(move || {
        assert_eq!(run(owned.collection(), "sum"), 100 + 3 + 4 + 11 + 13);
        owned
    })
    .join()
    .unwrap();
    owned.collection().global::<u64>("rw").unwrap().set(&7).unwrap();
    assert_eq!(run(owned.collection(), "read_rw"), 7);
    assert_eq!(owned.attach_all().unwrap(), 0, "its sections name nothing to attach to");
}

#[test]
fn what_is_attached_is_not_attached_again() {
    if !has(&[Feature::Bpf, Feature::KernelBtf]) {
        return;
    }
    let file = if cfg!(target_endian = "big") { "exec_monitor-eb.bpf.o" } else { "exec_monitor.bpf.o" };
    let object = std::fs::read(format!("{}/../targets/agent/bpf/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let (kernel, mut buffer) = (Kernel::running(), vec![0; 64 << 10]);
    let mut collection = Loader::new(&object).load(&kernel, &mut buffer).unwrap();
    let names: Vec<String> =
        collection.programs().map(|program| String::from_utf8_lossy(program.name()).into_owned()).collect();
    assert_eq!(names.len(), 2);
    assert!(collection.attach(&names[0]).unwrap());
    assert!(!collection.attach(&names[0]).unwrap());
    assert_eq!((collection.attach_all().unwrap(), collection.links().len()), (1, 2));
    assert_eq!((collection.attach_all().unwrap(), collection.links().len()), (0, 2));
    collection.detach_all();
    assert_eq!((collection.attach_all().unwrap(), collection.links().len()), (2, 2));
    assert_eq!(collection.attach("nobody").unwrap_err().cause(), &Cause::Unknown);
}

#[test]
fn a_collection_is_kept_in_a_struct_that_a_function_returns() {
    if !is_root() {
        return;
    }
    let object = fixture("obj_globals");
    let kernel = Kernel::running();
    let mut buffer = vec![0; 64 << 10];
    let kept = Kept::start(&object, 100, &kernel, &mut buffer).unwrap();
    assert_eq!(run(&kept.collection, "sum"), 100 + 3 + 4 + 11 + 13);
    assert_eq!(kept.rw(), 1001);
    kept.collection.global::<u64>("rw").unwrap().set(&7).unwrap();
    assert_eq!(run(&kept.collection, "read_rw"), 7);
    let bytes = kept.collection.arena_bytes();
    assert!(0 < bytes.kept && bytes.kept < bytes.high_water && bytes.high_water < bytes.capacity, "{bytes:?}");
    assert_eq!(bytes.capacity, 64 << 10);
}

#[test]
fn programs_maps_and_variables_are_listed_with_their_names() {
    if !is_root() {
        return;
    }
    let (object, kernel, mut buffer) = (fixture("obj_globals"), Kernel::running(), vec![0; 64 << 10]);
    let collection = Loader::new(&object).skip("string").load(&kernel, &mut buffer).unwrap();
    let programs: Vec<_> = collection.programs().map(|program| program.name().to_vec()).collect();
    assert_eq!(programs, [&b"sum"[..], b"read_rw", b"read_locals"]);
    assert_eq!(collection.program("sum").unwrap().section(), b"socket");
    let mut maps: Vec<_> = collection.maps().map(|map| map.unwrap().name().to_vec()).collect();
    maps.sort();
    assert_eq!(maps, [&b".bss"[..], b".bss.own", b".data", b".data.own", b".rodata", b".rodata.cfg"]);
    let globals: Vec<_> = collection.globals().map(|global| global.unwrap()).collect();
    let mut names: Vec<_> = globals.iter().map(|(name, _)| String::from_utf8_lossy(name)).collect();
    names.sort();
    assert_eq!(names, ["bss_own", "data_own", "pointer_free_table", "ro", "ro_cfg", "ro_struct", "rw", "zero"]);
    let (_, rw) = globals.iter().find(|(name, _)| *name == b"rw").unwrap();
    assert_eq!(rw.byte_size, 8);
}

#[test]
fn what_the_object_says_of_its_maps_can_be_said_otherwise() {
    if !is_root() {
        return;
    }
    let (object, kernel, mut buffer) = (fixture("obj_maps"), Kernel::running(), vec![0; 256 << 10]);
    let own = objects::create_map(
        &MapSpec { map_type: map_type::HASH, key_size: 12, value_size: 20, max_entries: 3, ..MapSpec::default() },
        Memlock::RaiseIfRefused,
    )
    .unwrap();
    own.update(&[1; 12], &[2; 20], 0).unwrap();
    /// BPF_MAP_TYPE_LRU_HASH
    const LRU_HASH: u32 = 9;
    /// BPF_F_NO_PREALLOC
    const NO_PREALLOC: u32 = 1;
    let root = format!("/sys/fs/bpf/corelo-loader-{}", std::process::id());
    let collection = Loader::new(&object)
        .max_entries("by_type", 77)
        .map_type("by_type", LRU_HASH)
        .map_flags("pinned", NO_PREALLOC)
        .max_entries("odd_ring", 8192)
        .max_entries("outer_array", 6)
        .reuse_map("by_size", own.as_fd())
        .create_map("bloom", false)
        .pin_root(&root)
        .load(&kernel, &mut buffer);
    let mut collection = collection.unwrap_or_else(|error| panic!("{error}"));
    let by_type = collection.raw_map("by_type").unwrap();
    assert_eq!((by_type.max_entries(), by_type.map_type()), (77, LRU_HASH));
    assert_eq!(collection.raw_map("pinned").unwrap().map_flags() & NO_PREALLOC, NO_PREALLOC);
    assert_eq!(collection.raw_map("odd_ring").unwrap().max_entries(), 8192);
    // The outer map alone: what is in it from the start is of the inner map's definition.
    assert_eq!(collection.raw_map("outer_array").unwrap().max_entries(), 6);
    let mut value = [0; 20];
    collection.raw_map("by_size").unwrap().lookup(&[1; 12], &mut value, 0).unwrap();
    assert_eq!(value, [2; 20], "the map that was given, with what is in it");
    assert_eq!(collection.raw_map("bloom").unwrap_err().cause(), &Cause::NotLoaded);
    assert_eq!(collection.raw_map("by_typedef").unwrap().max_entries(), 18, "as it was");
    assert!(std::path::Path::new(&root).join("pinned").exists());
    collection.unpin_new().unwrap();
    assert!(!std::path::Path::new(&root).exists(), "the directory was the load's own");
}

#[test]
fn typed_arrays_of_programs_and_maps_take_programs_and_maps() {
    if !is_root() {
        return;
    }
    let (object, kernel, mut buffer) = (fixture("obj_maps"), Kernel::running(), vec![0; 256 << 10]);
    let root = format!("/sys/fs/bpf/corelo-arrays-{}", std::process::id());
    let mut collection =
        Loader::new(&object).pin_root(&root).create_map("bloom", false).load(&kernel, &mut buffer).unwrap();
    collection.unpin_new().unwrap();
    let jumps = collection.program_array("jumps").unwrap();
    assert_eq!(run(&collection, "jump_2"), 12);
    jumps.set(2, collection.program("slot_0").unwrap()).unwrap();
    assert_eq!(run(&collection, "jump_2"), 10);
    assert!(jumps.clear(2).unwrap() && !jumps.clear(2).unwrap());
    assert_eq!(run(&collection, "jump_2"), u32::MAX);
    let error = jumps.set(3, collection.program("slot_0").unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("map jumps: slot 3: "), "{error}");
    let outer = collection.map_of_maps::<u32>("outer_array").unwrap();
    outer.insert(&3, collection.raw_map("inner_a").unwrap()).unwrap();
    assert!(outer.insert(&3, collection.raw_map("by_type").unwrap()).is_err(), "another kind of map");
    for error in [
        collection.program_array("by_type").map(drop).unwrap_err(),
        collection.map_of_maps::<u64>("outer_array").map(drop).unwrap_err(),
        collection.map_of_maps::<u32>("by_type").map(drop).unwrap_err(),
        collection.ring("by_type").map(drop).unwrap_err(),
    ] {
        assert!(error.to_string().starts_with("map "), "{error}");
        assert!(error.source().is_some(), "{error}");
    }
}

#[test]
fn names_that_the_object_does_not_have_are_told_with_those_that_it_has() {
    if !is_root() {
        return;
    }
    let (object, kernel, mut buffer) = (fixture("obj_globals"), Kernel::running(), vec![0; 64 << 10]);
    let mut refused = |loader: Loader<'_, '_>| loader.load(&kernel, &mut buffer).map(drop).unwrap_err();
    for (error, words) in [
        (refused(Loader::new(&object).global("zerro", &0u32)), "the object has no variable zerro; it has zero, "),
        (refused(Loader::new(&object).max_entries(".dat", 1)), "the object has no map .dat; it has .data, "),
        (refused(Loader::new(&object).skip("some")), "the object has no program some; it has sum, "),
        (refused(Loader::new(&object).want("SUMM")), "the object has no program SUMM; it has sum, "),
        (refused(Loader::new(&object).log_level("read_ro", 2)), "the object has no program read_ro; it has read_rw, "),
        (refused(Loader::new(&object).global("ro", &0u64)), "variable ro: it takes 4 bytes, and 8 were given"),
    ] {
        assert!(error.to_string().starts_with(words), "{error}");
        assert!(matches!(error.cause(), Cause::Load(LoadError::Setting { index: 0, .. })), "{:?}", error.cause());
    }
    let loaded = Loader::new(&object).skip("string").load(&kernel, &mut buffer).unwrap();
    for (error, cause, words) in [
        (loaded.program("summ").map(drop), Cause::Unknown, "the object has no program summ; it has sum, "),
        (loaded.program("string").map(drop), Cause::NotLoaded, "program string is not loaded"),
        (loaded.raw_map(".ddata").map(drop), Cause::Unknown, "the object has no map .ddata; it has .data, "),
        (loaded.raw_map(".data.unused").map(drop), Cause::NotLoaded, "map .data.unused is not created"),
        (loaded.global::<u32>("roo").map(drop), Cause::Unknown, "the object has no variable roo; it has ro, "),
        (
            loaded.global::<u32>("data_unused").map(drop),
            Cause::NotLoaded,
            "variable data_unused: no loaded program uses its section",
        ),
    ] {
        let error = error.unwrap_err();
        assert_eq!(error.cause(), &cause, "{error}");
        assert!(error.to_string().starts_with(words), "{error}");
    }
    let error = loaded.global::<u32>("rw").unwrap_err();
    assert_eq!(error.to_string(), "variable rw: it takes 8 bytes, and the type 4");
    let error = loaded.program("sum").unwrap().attach().unwrap_err();
    assert_eq!(error.cause(), &Cause::NoTarget);
    assert!(error.to_string().starts_with("program sum (section socket): its section names nothing"), "{error}");
}

#[test]
fn a_refusal_comes_with_the_programs_name_and_what_the_verifier_said() {
    if !is_root() {
        return;
    }
    let (object, kernel, mut buffer) = (fixture("refused"), Kernel::running(), vec![0; 64 << 10]);
    let error = Loader::new(&object).load(&kernel, &mut buffer).map(drop).unwrap_err();
    let text = format!("{error:?}");
    assert!(text.starts_with("program no_null_check (section socket): the kernel refuses it: "), "{text}");
    assert!(text.contains(": the verifier says: R") && text.contains("\nthe verifier's log:\n"), "{text}");
    assert!(error.errno().is_some());
    assert!(matches!(error.source().unwrap().downcast_ref(), Some(LoadError::Program { .. })));
    // Nobody to read a log.
    let error = Loader::new(&object).log_limit(0).load(&kernel, &mut buffer).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("program no_null_check (section socket): ") && !error.contains("verifier"), "{error}");
}

#[test]
fn what_uses_a_map_that_is_not_created_must_be_dead() {
    if !is_root() {
        return;
    }
    let (object, kernel, mut buffer) = (fixture("obj_maps"), Kernel::running(), vec![0; 256 << 10]);
    let root = format!("/sys/fs/bpf/corelo-dead-{}", std::process::id());
    let without = |program: &str, buffer: &mut [u8]| {
        let loader = Loader::new(&object).pin_root(&root).create_map("pinned", false).create_map("jumps", false);
        // Bloom filters are of Linux 5.16.
        let loader = loader.create_map("bloom", false).autoload(Autoload::None);
        loader.want(program).load(&kernel, buffer).map(|loaded| loaded.counts().programs)
    };
    assert_eq!(without("slot_0", &mut buffer).unwrap(), 1);
    let error = without("jump_2", &mut buffer).unwrap_err().to_string();
    assert!(error.contains("program jump_2") && error.contains("200100"), "{error}");
}

#[test]
fn the_buffer_may_be_too_small_and_says_so() {
    let object = fixture("nothing_asked");
    let kernel = Kernel::running();
    let error = Loader::new(&object).prepare(&kernel, &mut [0; 64]).map(drop).unwrap_err();
    let full = error.arena_full().expect("it is too small");
    assert_eq!(error.to_string(), full.to_string());
    assert!(Loader::new(&object).prepare(&kernel, &mut vec![0; 64 << 10]).is_ok());
    let error = Loader::new(b"no object").prepare(&kernel, &mut [0; 64]).map(drop).unwrap_err();
    assert!(matches!(error.cause(), Cause::Object(_)), "{error}");
}

#[test]
fn settings_that_are_too_many_for_the_loader_go_in_as_a_slice() {
    if !is_root() {
        return;
    }
    let (object, kernel, mut buffer) = (fixture("obj_globals"), Kernel::running(), vec![0; 64 << 10]);
    let mut loader = Loader::new(&object);
    for _ in 0..100 {
        loader = loader.global("ro", &8u32);
    }
    let error = loader.load(&kernel, &mut buffer).map(drop).unwrap_err();
    assert!(matches!(error.cause(), Cause::Load(LoadError::Setting { error: SettingError::TooMany, .. })), "{error}");
    let eight = 8u32.to_ne_bytes();
    let many = [Setting::new("ro", Change::Value(&eight)); 100];
    let loaded = Loader::new(&object).settings(&many).load(&kernel, &mut buffer).unwrap();
    assert_eq!(run(&loaded, "sum"), 8 + 3 + 4 + 11 + 13);
    drop(loaded);
    // Those of the methods count more.
    let loaded = Loader::new(&object).settings(&many).global("ro", &9u32).load(&kernel, &mut buffer).unwrap();
    assert_eq!(run(&loaded, "sum"), 9 + 3 + 4 + 11 + 13);
}

#[test]
fn the_same_object_again_without_a_type_of_the_kernel() {
    if !has(&[Feature::Bpf, Feature::KernelBtf]) {
        return;
    }
    let object = fixture("many_progs");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kernel.btf");
    std::fs::write(&path, &*KernelBtf::open().unwrap()).unwrap();
    let kernel = Kernel::new(KernelOptions::file(&path));
    let (mut first, mut second) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let cold = Loader::new(&object).load(&kernel, &mut first).unwrap();
    assert!(cold.prepared().visited() > 0);
    let relocations = cold.relocations();
    let warm_start = cold.snapshot();
    std::fs::remove_file(&path).unwrap();
    let warm = Loader::new(&object).warm(&warm_start).load(&kernel, &mut second).unwrap();
    let all = Counts { maps: 1, programs: 30 };
    assert_eq!((warm.prepared().visited(), warm.relocations(), warm.counts()), (0, relocations, all));
    // What was kept goes on from one warm start to the next.
    let again = warm.snapshot();
    let mut third = vec![0; 64 << 10];
    assert_eq!(Loader::new(&object).warm(&again).load(&kernel, &mut third).unwrap().counts(), all);
}

#[test]
fn an_iterator_is_read_like_a_file() {
    if !has(&[Feature::TaskIterators]) {
        return;
    }
    let (object, kernel, mut buffer) = (fixture("obj_iter"), Kernel::running(), vec![0; 64 << 10]);
    let collection = Loader::new(&object).load(&kernel, &mut buffer).unwrap();
    let mut walk = collection.program("each_task").unwrap().iter().unwrap();
    // 8 bytes for each thread, its pid and its tgid, in reads that end within one.
    let own = std::process::id();
    let (mut records, mut piece) = (Vec::new(), [0; 12]);
    loop {
        match walk.read(&mut piece).unwrap() {
            0 => break,
            len => records.extend_from_slice(&piece[..len]),
        }
    }
    assert!(records.chunks_exact(8).any(|record| record == [own.to_ne_bytes(), own.to_ne_bytes()].concat()));
    assert_eq!(records.len() % 8, 0);
    // The whole of it once more, after everything else of the object is gone.
    let mut walk = collection.program("each_task").unwrap().iter().unwrap();
    drop(collection);
    let mut again = Vec::new();
    walk.read_to_end(&mut again).unwrap();
    assert!(again.len() >= 16 && again.len() % 8 == 0, "{}", again.len());
}

#[test]
fn what_is_no_iterator_is_refused_by_name() {
    if !is_root() {
        return;
    }
    let (object, kernel, mut buffer) = (fixture("obj_globals"), Kernel::running(), vec![0; 64 << 10]);
    let collection = Loader::new(&object).load(&kernel, &mut buffer).unwrap();
    let error = collection.program("sum").unwrap().iter().unwrap_err();
    assert_eq!(error.cause(), &Cause::NoTarget);
    assert!(error.to_string().starts_with("program sum (section socket): its section makes it no iterator"), "{error}");
}

#[test]
fn perf_events_are_read_through_the_collection() {
    // Test runs of raw tracepoint programs came with bound maps; a kernel without types of its own knows no context by them.
    if !has(&[Feature::BoundMaps, Feature::KernelBtf]) {
        return;
    }
    let (object, kernel, mut buffer) = (fixture("obj_arg_ctx"), Kernel::running(), vec![0; 64 << 10]);
    let loader = Loader::new(&object).autoload(Autoload::None).want("on_raw");
    let collection = loader.load(&kernel, &mut buffer).unwrap();
    let error = collection.perf_buffer("events", 1, &mut []).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("map events: ") && error.to_string().contains("CPUs"), "{error}");
    assert!(matches!(error.cause(), Cause::Ring(RingError::TooManyCpus { .. })), "{error}");
    let mut rings = [const { None }; 256];
    let mut events = collection.perf_buffer("events", 1, &mut rings).unwrap();
    collection.program("on_raw").unwrap().test_run(&mut TestRun::default()).unwrap();
    let (mut scratch, mut seen) = ([0; 256], Vec::new());
    let count = events.poll(Some(Duration::from_secs(10)), &mut scratch, |_, record| match record {
        PerfRecord::Sample(bytes) => seen.push(bytes.to_vec()),
        other => panic!("{other:?}"),
    });
    // The kernel pads a sample.
    assert_eq!((count.unwrap(), seen[0].first_chunk()), (1, Some(&2u32.to_ne_bytes())));
}

#[test]
fn a_program_may_be_of_another_type_and_attached_elsewhere_than_its_section_says() {
    if !is_root() {
        return;
    }
    let (object, kernel, mut buffer) = (fixture("obj_globals"), Kernel::running(), vec![0; 64 << 10]);
    let loaded = Loader::new(&object).section("sum", "xdp").load(&kernel, &mut buffer).unwrap();
    let sum = loaded.program("sum").unwrap();
    /// BPF_PROG_TYPE_SOCKET_FILTER, BPF_PROG_TYPE_XDP
    const TYPES: (u32, u32) = (1, 6);
    let of = |name: &str| loaded.program(name).unwrap().info().unwrap().prog_type;
    assert_eq!((of("read_rw"), of("sum"), sum.section()), (TYPES.0, TYPES.1, &b"xdp"[..]));
    assert_eq!(run(&loaded, "sum"), 7 + 3 + 4 + 11 + 13);
    drop(loaded);
    for (section, words) in [
        ("no_such_kind/x", "program sum: no program type has sections of the name that is given"),
        // Lacks it, or has no BTF that could have it.
        ("fentry/corelo_no_such_function", "program sum (section fentry/corelo_no_such_function): the kernel"),
        ("tp_btf", "program sum (section tp_btf): no target is given"),
    ] {
        let error = Loader::new(&object).section("sum", section).load(&kernel, &mut buffer).map(drop).unwrap_err();
        assert!(error.to_string().starts_with(words), "{error}");
    }
    let error = Loader::new(&object).section("summ", "xdp").load(&kernel, &mut buffer).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("the object has no program summ; it has sum, "), "{error}");
}

#[test]
fn a_target_in_the_kernels_btf_that_is_given_at_run_time() {
    if !has(&[Feature::Bpf, Feature::KernelBtf, Feature::TpBtf]) {
        return;
    }
    let endian = if cfg!(target_endian = "big") { "-eb" } else { "" };
    let path = format!("{}/examples/bpf/agent{endian}.bpf.o", env!("CARGO_MANIFEST_DIR"));
    let object = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (kernel, mut buffer) = (Kernel::running(), vec![0; 64 << 10]);
    let loader = Loader::new(&object).section("on_exec", "tp_btf/sched_process_exec");
    let mut loaded = loader.load(&kernel, &mut buffer).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(loaded.attach_all().unwrap(), 1);
    assert_eq!(loaded.program("on_exec").unwrap().info().unwrap().prog_type, 26, "BPF_PROG_TYPE_TRACING");
    let mut ring = loaded.ring("events").unwrap();
    assert!(std::process::Command::new("/bin/true").status().unwrap().success());
    let mut is_seen = false;
    while !is_seen {
        let read = ring.poll(Some(std::time::Duration::from_secs(10)), |record| {
            is_seen |= record.ends_with(b"true\0\0\0\0\0\0\0\0\0\0\0\0")
        });
        assert!(read.unwrap() > 0, "no record of the process that was started");
    }
    loaded.detach_all();
    assert!(loaded.links().len() == 0);
}

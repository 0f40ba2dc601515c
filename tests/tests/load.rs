//! Whole objects loaded into the running kernel.

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Prepared, prepare};
use corelo_loader::kernel::KernelBtf;
use corelo_loader::load::{Collection, Counts, LoadError, LoadOptions, Relocations, rehearse};
use corelo_loader::objects::GrowingLog;

fn fixture(name: &str) -> Vec<u8> {
    corelo_tests::fixtures::fixture(name, corelo_tests::endian::Endian::Little).read()
}

/// Prepares and loads `file` within `arena_bytes`, then hands the collection over.
fn load_within<T>(
    file: &[u8],
    arena_bytes: usize,
    options: &LoadOptions<'_>,
    then: impl FnOnce(&Collection<'_>, usize) -> T,
) -> Result<T, LoadError> {
    let kernel = KernelBtf::open().unwrap();
    // Allocators align large blocks to more than the arena's 8 bytes.
    let mut buffer = vec![0u8; arena_bytes];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(file).unwrap();
    let prepared: Prepared<'_> = prepare(&object, Some(&kernel), Options::default(), &mut arena)?;
    let mut collection = Collection::create(&prepared, options, &mut arena)?;
    let mut log = GrowingLog::new(64 << 10, 1 << 20);
    let loaded = collection.load_programs(options, &mut arena, &mut log);
    if let Err(LoadError::Program { failure, .. }) = loaded {
        println!("{}", String::from_utf8_lossy(&log.as_bytes()[failure.log_range()]));
    }
    loaded?;
    Ok(then(&collection, arena.high_water()))
}

#[test]
fn both_builds_of_many_progs_load_all_programs_in_kilobytes() {
    if !corelo_tests::kernel::require_kernel("loads objects") {
        return;
    }
    for name in ["many_progs", "many_progs_legacy"] {
        let file = fixture(name);
        let options = LoadOptions::new(name.as_bytes());
        let used = load_within(&file, 64 << 10, &options, |collection, used| {
            assert_eq!(collection.counts(), Counts { maps: 1, programs: 30 }, "{name}");
            assert_eq!(collection.relocations(), Relocations { patched: 90, poisoned: 0 }, "{name}");
            used
        })
        .unwrap();
        println!("{name}: {used} bytes of arena");
        assert!(used <= 32 << 10, "{name}: {used}");
        // With exactly that many it works, with fewer it fails with the error that names the shortage.
        load_within(&file, used, &options, |_, _| ()).unwrap();
        let error = load_within(&file, used - 1, &options, |_, _| ()).unwrap_err();
        assert!(matches!(error, LoadError::Arena(_)), "{name}: {error:?}");
    }
}

#[test]
fn a_rehearsal_takes_what_loading_takes() {
    if !corelo_tests::kernel::require_kernel("loads objects") {
        return;
    }
    let kernel = KernelBtf::open().unwrap();
    for name in ["many_progs", "obj_globals", "obj_callbacks", "core_fields", "nothing_asked"] {
        let file = fixture(name);
        let options = LoadOptions::new(name.as_bytes());
        let mut buffer = vec![0u8; 512 << 10];
        let mut arena = Arena::new(&mut buffer);
        let object = Object::parse(&file).unwrap();
        let prepared = prepare(&object, Some(&kernel), Options::default(), &mut arena).unwrap();
        rehearse(&prepared, &options, &mut arena).unwrap();
        let rehearsed = arena.high_water();
        match load_within(&file, rehearsed, &options, |_, used| used) {
            Ok(used) => assert_eq!(used, rehearsed, "{name}"),
            Err(LoadError::Program { .. }) => println!("{name}: the kernel refuses it"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

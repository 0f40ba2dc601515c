//! What the tests of whole objects share: a fixture loaded into the running kernel, its programs run, its maps read.

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, PrepareError, Prepared, prepare};
use corelo_loader::kernel::KernelBtf;
use corelo_loader::load::{Autoload, Change, Collection, LoadError, LoadOptions, Setting, rehearse};
use corelo_loader::objects::GrowingLog;
use corelo_loader::report::{LoadReport, ObjectReport};
use corelo_loader::sys::bpf::{TestRun, prog_test_run};
use corelo_tests::endian::Endian;

/// The fixture of this name in the machine's byte order.
pub(crate) fn fixture(name: &str) -> Vec<u8> {
    corelo_tests::fixtures::fixture(name, if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little }).read()
}

/// Whether the kernel can be used; otherwise the test says that it skips.
#[must_use]
pub(crate) fn has_kernel() -> bool {
    corelo_tests::kernel::require_kernel("loads objects")
}

/// Why an object does not load: the error, and what a user would read.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: LoadError,
    pub(crate) text: String,
}

/// Tests of one process share its descriptors; each holds this while it has some of BPF's.
static DESCRIPTORS: Mutex<()> = Mutex::new(());

/// Keeps all other tests from having descriptors.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prepares and loads `file`, and hands the collection over. Whatever comes of it, no descriptor is left open.
pub(crate) fn load<T>(
    file: &[u8],
    options: &LoadOptions<'_>,
    then: impl FnOnce(&Collection<'_>) -> T,
) -> Result<T, Refused> {
    let _alone = alone();
    let before = corelo_tests::kernel::bpf_fds();
    let result = load_among_others(file, options, then);
    assert_eq!(corelo_tests::kernel::bpf_fds(), before, "descriptors are left open");
    result
}

/// As [`load`], where descriptors are open already.
pub(crate) fn load_among_others<T>(
    file: &[u8],
    options: &LoadOptions<'_>,
    then: impl FnOnce(&Collection<'_>) -> T,
) -> Result<T, Refused> {
    let kernel = KernelBtf::open().unwrap();
    let object = Object::parse(file).map_err(|error| Refused {
        error: LoadError::Prepare(PrepareError::Object(error)),
        text: ObjectReport { object: None, error }.to_string(),
    })?;
    // The rehearsal first, in an arena of its own, so that its number can be compared.
    let rehearsed = {
        let mut buffer = vec![0u8; 4 << 20];
        let mut arena = Arena::new(&mut buffer);
        match prepare(&object, Some(&kernel), Options::default(), &mut arena) {
            Ok(prepared) => rehearse(&prepared, options, &mut arena).map(|()| arena.high_water()).ok(),
            Err(_) => None,
        }
    };
    let mut buffer = vec![0u8; 4 << 20];
    let mut arena = Arena::new(&mut buffer);
    let prepared: Prepared<'_> = match prepare(&object, Some(&kernel), Options::default(), &mut arena) {
        Ok(prepared) => prepared,
        Err(error) => {
            let text = match error {
                PrepareError::Object(error) => ObjectReport { object: Some(&object), error }.to_string(),
                error => error.to_string(),
            };
            return Err(Refused { error: LoadError::Prepare(error), text });
        }
    };
    let refused = |error: LoadError| Refused {
        error,
        text: LoadReport { prepared: &prepared, error, pin_root: "/sys/fs/bpf" }.to_string(),
    };
    let mut collection = Collection::create(&prepared, options, &mut arena).map_err(refused)?;
    let mut log = GrowingLog::new(64 << 10, 1 << 20);
    let loaded = collection.load_programs(options, &mut arena, &mut log);
    if let Err(LoadError::Program { failure, .. }) = loaded {
        println!("{}", String::from_utf8_lossy(&log.as_bytes()[failure.log_range()]));
    }
    loaded.map_err(refused)?;
    assert_eq!(Some(arena.high_water()), rehearsed, "the rehearsal is exact");
    Ok(then(&collection))
}

/// Loads a fixture with the programs named, or with the default ones.
pub(crate) fn load_fixture<T>(name: &str, programs: &[&str], then: impl FnOnce(&Collection<'_>) -> T) -> T {
    let wanted: Vec<Setting<'_>> = programs.iter().map(|name| Setting::new(name, Change::Load(true))).collect();
    let autoload = if programs.is_empty() { Autoload::BySection } else { Autoload::None };
    let options = LoadOptions { autoload, settings: &wanted, ..LoadOptions::new(name.as_bytes()) };
    load(&fixture(name), &options, then).unwrap_or_else(|refused| panic!("{name}: {}", refused.text))
}

/// Runs a program on a packet of `len` zero bytes and returns what it returned.
pub(crate) fn run(program: BorrowedFd<'_>, len: usize) -> u32 {
    let packet = vec![0u8; len];
    prog_test_run(program, &mut TestRun { data_in: &packet, ..TestRun::default() }).unwrap().retval
}

/// Runs a program of the collection, by name, on a packet of 64 bytes.
pub(crate) fn run_named(collection: &Collection<'_>, name: &str) -> u32 {
    run(collection.program(name).unwrap().fd(), 64)
}

/// Runs a raw tracepoint program.
pub(crate) fn run_raw(collection: &Collection<'_>, name: &str) -> u32 {
    let mut context = [0u8; 16];
    let program = collection.program(name).unwrap().fd();
    prog_test_run(program, &mut TestRun { ctx_in: &mut context, ..TestRun::default() }).unwrap().retval
}

/// A global variable as a number.
pub(crate) fn variable(collection: &Collection<'_>, name: &str) -> u64 {
    let variable = collection.raw_global(name).unwrap_or_else(|errno| panic!("{name}: {errno}"));
    let mut bytes = vec![0u8; variable.byte_size()];
    variable.read(&mut bytes).unwrap();
    number(&bytes)
}

/// Up to 8 bytes as a number, in the machine's order.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    match *bytes {
        [byte] => u64::from(byte),
        [_, _] => u64::from(u16::from_ne_bytes(bytes.try_into().unwrap())),
        [_, _, _, _] => u64::from(u32::from_ne_bytes(bytes.try_into().unwrap())),
        _ => u64::from_ne_bytes(bytes.try_into().unwrap()),
    }
}

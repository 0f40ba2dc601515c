//! Static probes: this test's own, which fire with known arguments, seen by programs of fixtures on the running kernel.
//!
//! Needs root and bpf(2), on x86-64 or arm64 (whose assembler the probes are written in): without them each test says why it is
//! skipped, and fails instead where CORELO_REQUIRE_KERNEL=1 and a plain kernel has what it needs.

#![cfg_attr(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    expect(unsafe_code, reason = "static probes are inline assembly and a section of their own")
)]

mod probes;

use std::hint::black_box;
use std::path::Path;
use std::sync::Mutex;

use corelo_core::arena::Arena;
use corelo_core::object::{Object, ProgramId};
use corelo_core::prepare::{Options, prepare};
use corelo_loader::attach::usdt::{ArgumentFault, Usdt};
use corelo_loader::attach::{Link, LinkError, UsdtError, symbols};
use corelo_loader::kernel::{KernelBtf, KernelVersion};
use corelo_loader::load::{Autoload, Change, Collection, LoadOptions, Setting};
use corelo_loader::objects::GrowingLog;
use corelo_loader::sys::Errno;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;
use corelo_tests::kernel::{Feature, has, not_here};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `struct seen` of the fixture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Seen {
    hits: u64,
    count: u64,
    cookie: u64,
    values: [u64; 12],
}

impl Seen {
    fn new(hits: u64, cookie: u64, values: &[u64]) -> Seen {
        let mut all = [0; 12];
        all[..values.len()].copy_from_slice(values);
        Seen { hits, count: values.len() as u64, cookie, values: all }
    }
}

const OPERANDS: u32 = 0;
const ALSO_OPERANDS: u32 = 1;
const GUARDED: u32 = 2;
const SLEEPABLE: u32 = 3;
const BY_HAND: u32 = 4;

const WORDS: [u64; 4] = [0x1122_3344_5566_7788, 2, 3, u64::MAX];
/// What the probe at the first place says of -2 (whose lowest byte is 254), [`WORDS`] and 3.
const HERE: [u64; 8] = [
    2u64.wrapping_neg(),
    254,
    9u64.wrapping_neg(),
    4_000_000_000,
    if cfg!(target_endian = "big") { 0x1122 } else { 0x7788 },
    2,
    0x1122_3344_5566_7788,
    u64::MAX,
];

fn fire_here() {
    probes::operands_here(black_box(2u64.wrapping_neg()), black_box(&WORDS), black_box(3));
}

/// The semaphore is one for all tests of this program.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// This process.
fn me() -> Option<u32> {
    Some(std::process::id())
}

/// A loaded object, as far as the tests ask.
struct Loaded<'l>(&'l Collection<'l>);

impl Loaded<'_> {
    fn id(&self, name: &str) -> ProgramId {
        let prepared = self.0.prepared();
        let mut programs = prepared.declared().programs();
        let found = programs.find(|(_, function)| prepared.function_name(function) == name.as_bytes());
        found.unwrap_or_else(|| panic!("no program {name}")).0
    }

    /// As the section says; where the kernel has no attach cookies, that is refused and it goes onto this process.
    fn attach(&self, name: &str) -> Result<Option<Link>, LinkError> {
        let attached = self.0.attach_program(self.id(name));
        let probe = match name {
            "on_operands" | "also_operands" => "operands",
            "on_guarded" | "sleepable" => "guarded",
            _ => return attached,
        };
        if !matches!(attached, Err(LinkError::Usdt(UsdtError::NeedsProcess))) || Feature::Cookies.ask().is_ok() {
            return attached;
        }
        let here =
            Usdt { path: Path::new("/proc/self/exe"), provider: "corelo_test", name: probe, pid: me(), cookie: 0 };
        self.0.attach_usdt(self.id(name), &here).map(Some)
    }

    fn seen(&self, program: u32) -> Seen {
        self.0.map::<u32, Seen>("seen").unwrap().get(&program).unwrap().unwrap()
    }
}

/// Loads a fixture, with one program or those that load by themselves.
fn load(name: &str, only: Option<&str>, then: impl FnOnce(&Loaded<'_>)) {
    if !probes::ARE_THERE {
        return not_here("static probes of tests", "they are written for x86-64 and arm64 only");
    }
    if !has(&[Feature::Bpf, Feature::Uprobes]) || only == Some("sleepable") && !has(&[Feature::SleepableUprobes]) {
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let file = fixture(name, Endian::native()).read();
    let kernel = KernelBtf::open().ok();
    let mut buffer = vec![0; 256 << 10];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(&file).unwrap();
    let prepared = prepare(&object, kernel.as_deref(), Options::default(), &mut arena).unwrap();
    let counter = if cfg!(target_arch = "aarch64") { 256u32 } else { 128 };
    let counter = counter.to_ne_bytes();
    let mut settings = vec![Setting::new("pc_offset", Change::Value(&counter))];
    settings.extend(only.map(|program| Setting::new(program, Change::Load(true))));
    let autoload = if only.is_some() { Autoload::None } else { Autoload::BySection };
    let options = LoadOptions { autoload, settings: &settings, ..LoadOptions::new(name.as_bytes()) };
    let mut collection = Collection::create(&prepared, &options, &mut arena).unwrap();
    let mut log = GrowingLog::new(64 << 10, 1 << 20);
    match collection.load_programs(&options, &mut arena, &mut log) {
        Ok(()) => then(&Loaded(&collection)),
        Err(error) => panic!("{name}: {error}\n{}", String::from_utf8_lossy(log.as_bytes())),
    }
}

#[test]
fn arguments_arrive() {
    load("obj_usdt", None, |loaded| {
        let link = loaded.attach("on_operands").unwrap().expect("the section names a probe");
        assert_eq!(loaded.seen(OPERANDS), Seen::new(0, 0, &[]));
        fire_here();
        assert_eq!(loaded.seen(OPERANDS), Seen::new(1, 0, &HERE));
        probes::operands_there(black_box(0x1234_8001));
        assert_eq!(loaded.seen(OPERANDS), Seen::new(2, 0, &[0x8001u64 as i16 as i64 as u64]));
        fire_here();
        assert_eq!(loaded.seen(OPERANDS), Seen::new(3, 0, &HERE));
        // Another program on the same probe.
        let also = match loaded.attach("also_operands") {
            Err(error) => return cannot_share(error),
            link => link.unwrap(),
        };
        fire_here();
        assert_eq!((loaded.seen(OPERANDS).hits, loaded.seen(ALSO_OPERANDS)), (4, Seen::new(1, 0, &HERE)));
        drop(link);
        fire_here();
        assert_eq!((loaded.seen(OPERANDS).hits, loaded.seen(ALSO_OPERANDS).hits), (4, 2));
        drop(also);
        fire_here();
        assert_eq!((loaded.seen(OPERANDS).hits, loaded.seen(ALSO_OPERANDS).hits), (4, 2));
    });
}

/// What kernels before 5.15 cannot do, and no other.
fn cannot_share(error: LinkError) {
    assert!(matches!(error, LinkError::Usdt(UsdtError::AddressTaken { .. })), "{error}");
    assert!(KernelVersion::running() < KernelVersion::new(5, 15, 0), "{error}");
    println!("one program at a place only: {error}");
}

#[test]
fn a_semaphore_is_raised_while_attached() {
    for (name, program) in [("on_guarded", GUARDED), ("sleepable", SLEEPABLE)] {
        load("obj_usdt", Some(name), |loaded| {
            // The kernel raises it once for each mapping of the code's page, of which a process may have more than one, and
            // not for each program.
            assert_eq!(probes::guarded(), 0, "{name}");
            let first = loaded.attach(name).unwrap().expect("the section names a probe");
            assert!(probes::guarded() > 0, "{name}");
            assert_eq!(loaded.seen(program), Seen::new(1, 0, &[]), "{name}");
            let second = match loaded.attach(name) {
                Err(error) => return cannot_share(error),
                link => link.unwrap().expect("the section names a probe"),
            };
            assert!(probes::guarded() > 0, "{name}");
            drop(first);
            assert!(probes::guarded() > 0, "{name}");
            second.detach().unwrap();
            assert_eq!(probes::guarded(), 0, "{name}");
            assert_eq!(loaded.seen(program).hits, 4, "{name}: one by each link that is there");
            println!("{name}: {} runs", loaded.seen(program).hits);
        });
    }
}

#[test]
fn probes_by_hand_and_a_map_that_fills() {
    load("obj_usdt", None, |loaded| {
        assert!(loaded.attach("by_hand").unwrap().is_none());
        let by_hand = loaded.id("by_hand");
        let here = Usdt {
            path: Path::new("/proc/self/exe"),
            provider: "corelo_test",
            name: "simple",
            pid: Some(std::process::id()),
            cookie: 77,
        };
        let simple = [5, 2, 9u64.wrapping_neg()];
        // The map has room for 4 specifications: attaching again takes no more of it.
        for round in 1..=20 {
            let link = loaded.0.attach_usdt(by_hand, &here).unwrap();
            probes::simple(black_box(5), black_box(&WORDS));
            assert_eq!(loaded.seen(BY_HAND), Seen::new(round, 77, &simple));
            drop(link);
        }
        let operands = loaded.attach("on_operands").unwrap();
        let _guarded = loaded.attach("on_guarded").unwrap();
        // Another cookie makes another specification.
        let full = loaded.0.attach_usdt(by_hand, &Usdt { cookie: 78, ..here }).map(|_| ());
        assert_eq!(full, Err(LinkError::Usdt(UsdtError::SpecsFull { max_entries: 4 })));
        fire_here();
        assert_eq!(loaded.seen(OPERANDS), Seen::new(1, 0, &HERE));
        drop(operands);
        // Nobody of another process is seen.
        if has(&[Feature::Cookies]) {
            let init = loaded.0.attach_usdt(by_hand, &Usdt { pid: Some(1), ..here }).unwrap();
            probes::simple(black_box(6), black_box(&WORDS));
            assert_eq!(loaded.seen(BY_HAND).hits, 20);
            drop(init);
        }
    });
}

#[test]
fn the_older_layout() {
    load("obj_usdt_older", None, |loaded| {
        let by_hand = loaded.id("by_hand");
        let path = Path::new("/proc/self/exe");
        let pid = me().filter(|_| Feature::Cookies.ask().is_err());
        let simple = Usdt { path, provider: "corelo_test", name: "simple", pid, cookie: 0 };
        let link = loaded.0.attach_usdt(by_hand, &simple).unwrap();
        probes::simple(black_box(5), black_box(&WORDS));
        assert_eq!(loaded.seen(BY_HAND), Seen::new(1, 0, &[5, 2, 9u64.wrapping_neg()]));
        drop(link);
        let operands = loaded.attach("on_operands").map(|_| ());
        if cfg!(target_arch = "x86_64") {
            assert_eq!(operands, Err(LinkError::Usdt(UsdtError::NoIndex { number: 7 })));
        } else {
            assert_eq!(operands, Ok(()));
        }
    });
}

#[test]
fn probes_that_are_none() {
    probes::unreadable();
    load("obj_usdt", None, |loaded| {
        let id = loaded.id("by_hand");
        let here =
            Usdt { path: Path::new("/proc/self/exe"), provider: "corelo_test", name: "guarded", pid: me(), cookie: 0 };
        let unreadable = UsdtError::Argument { number: 1, fault: ArgumentFault::Form };
        for (name, error) in
            [("unreadable", unreadable), ("no_probe", UsdtError::Missing), ("no_notes", UsdtError::NoNotes)]
        {
            assert_eq!(loaded.attach(name).map(|_| ()), Err(LinkError::Usdt(error)), "{name}");
        }
        let by_hand = |usdt: Usdt<'_>| loaded.0.attach_usdt(id, &usdt).map(|_| ());
        assert_eq!(by_hand(Usdt { provider: "corelo", ..here }), Err(LinkError::Usdt(UsdtError::Missing)));
        assert_eq!(by_hand(Usdt { path: Path::new("/proc/version"), ..here }), {
            Err(LinkError::Symbol(symbols::SymbolError::NotElf))
        });
        let absent = by_hand(Usdt { path: Path::new("/no/such/file"), ..here });
        assert_eq!(absent, Err(LinkError::Symbol(symbols::SymbolError::Open(Errno::ENOENT))));
        assert!(by_hand(here).is_ok());
    });
}

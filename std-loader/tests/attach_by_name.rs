//! Programs attached as their sections say, one link to many functions: whole objects on the running kernel.
//!
//! Needs root and bpf(2): without them each test says what the kernel refuses and is skipped, and fails instead where
//! CORELO_REQUIRE_KERNEL=1 and a plain kernel has it.

use std::hint::black_box;
use std::path::Path;

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, prepare};
use corelo_loader::attach::symbols::{self, SymbolError};
use corelo_loader::attach::{Link, LinkError, Multi};
use corelo_loader::kernel::KernelBtf;
use corelo_loader::load::{Autoload, Collection, LoadOptions};
use corelo_loader::objects::GrowingLog;
use corelo_loader::sys::Errno;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;
use corelo_tests::kernel::{Feature, has, not_here};

/// A loaded object, as far as the tests ask.
struct Loaded<'l>(&'l Collection<'l>);

impl Loaded<'_> {
    /// Attaches a program by its name.
    fn attach(&self, name: &str) -> Result<Option<Link>, LinkError> {
        let prepared = self.0.prepared();
        let mut programs = prepared.declared().programs();
        let found = programs.find(|(_, function)| prepared.function_name(function) == name.as_bytes());
        let (number, _) = found.unwrap_or_else(|| panic!("no program {name}"));
        assert!(self.0.program_fd(number).is_some(), "{name} is not loaded");
        self.0.attach_program(number)
    }

    /// The counter of a number.
    fn hits(&self, index: u32) -> u64 {
        self.0.map::<u32, u64>("hits").unwrap().get(&index).unwrap().unwrap()
    }
}

/// All programs of a fixture, optional ones too.
fn load(name: &str, then: impl FnOnce(&Loaded<'_>)) {
    let file = fixture(name, Endian::native()).read();
    let kernel = KernelBtf::open().ok();
    let mut buffer = vec![0; 256 << 10];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(&file).unwrap();
    let prepared = prepare(&object, kernel.as_deref(), Options::default(), &mut arena).unwrap();
    let options = LoadOptions { autoload: Autoload::All, ..LoadOptions::new(name.as_bytes()) };
    let mut collection = Collection::create(&prepared, &options, &mut arena).unwrap();
    let mut log = GrowingLog::new(64 << 10, 1 << 20);
    if let Err(error) = collection.load_programs(&options, &mut arena, &mut log) {
        panic!("{name}: {error}\n{}", String::from_utf8_lossy(log.as_bytes()));
    }
    then(&Loaded(&collection));
}

#[inline(never)]
fn corelo_probed_one(value: u64) -> u64 {
    black_box(value).wrapping_mul(3)
}

#[inline(never)]
fn corelo_probed_two(value: u64) -> u64 {
    black_box(value).wrapping_add(77)
}

fn call_both() {
    assert_eq!(black_box(corelo_probed_one(black_box(5))), 15);
    assert_eq!(black_box(corelo_probed_two(black_box(5))), 82);
}

/// The link, where the kernel has links of this kind; where it has none, that is what is said.
fn attached(multi: Multi, link: Result<Option<Link>, LinkError>) -> Option<Link> {
    let feature = match multi {
        Multi::Kprobe => Feature::KprobeMulti,
        Multi::KprobeSession => Feature::KprobeSession,
        Multi::Uprobe => Feature::UprobeMulti,
        Multi::UprobeSession => Feature::UprobeSession,
        Multi::Tracing => unreachable!("no section here asks for it"),
    };
    if has(&[feature]) {
        return Some(link.unwrap().expect("the section names a target"));
    }
    let is_said = match &link {
        Err(LinkError::NoMulti { multi: missed, .. }) => *missed == multi,
        // What lists the kernel's functions may be missing too, and is looked at before.
        Err(LinkError::NoTracefs | LinkError::Lockdown { .. }) => true,
        Err(LinkError::File { file, .. }) => *file == "available_filter_functions",
        _ => false,
    };
    assert!(is_said, "{link:?}");
    None
}

#[test]
fn many_functions_of_this_program() {
    if !has(&[Feature::Bpf]) {
        return;
    }
    load("obj_uprobe_multi", |loaded| {
        // (program, its counter, its links, what one call of both functions adds)
        for (name, counter, multi, runs) in [
            ("on_entry", 0, Multi::Uprobe, 2),
            ("on_return", 1, Multi::Uprobe, 2),
            ("by_session", 2, Multi::UprobeSession, 4),
        ] {
            let Some(link) = attached(multi, loaded.attach(name)) else { continue };
            assert_eq!(loaded.hits(counter), 0, "{name}");
            call_both();
            assert_eq!(loaded.hits(counter), runs, "{name}");
            call_both();
            assert_eq!(loaded.hits(counter), 2 * runs, "{name}");
            drop(link);
            call_both();
            assert_eq!(loaded.hits(counter), 2 * runs, "{name}: detached");
            println!("{name}: {} runs", loaded.hits(counter));
        }
        let absent = loaded.attach("no_function").map(|_| ());
        assert_eq!(absent, Err(LinkError::Symbol(SymbolError::Missing)));
        let absent = loaded.attach("no_file").map(|_| ());
        assert_eq!(absent, Err(LinkError::File { file: "the probed file", errno: Errno::ENOENT }));
        assert!(loaded.attach("by_hand").unwrap().is_none());
    });
}

#[test]
fn a_library_without_its_directory() {
    if !has(&[Feature::Bpf]) {
        return;
    }
    if !std::fs::read_to_string("/proc/self/maps").unwrap().contains("libc.so.6") {
        return not_here("functions of glibc", "this program is linked statically or with another C library");
    }
    if cfg!(target_arch = "arm") {
        return not_here("functions of glibc", "they are Thumb code, which the kernel's uprobes do not know");
    }
    assert!(symbols::find_file(Path::new("libc.so.6")).is_ok());
    load("obj_uprobe_multi", |loaded| {
        let many = attached(Multi::Uprobe, loaded.attach("in_library"));
        let one = loaded.attach("one_in_library");
        let one = has(&[Feature::Uprobes]).then(|| one.unwrap().expect("the section names a target"));
        assert!(std::os::unix::process::parent_id() > 0);
        println!("getppid: {} and {}", loaded.hits(3), loaded.hits(4));
        assert!(many.is_none() || loaded.hits(3) > 0);
        assert!(one.is_none() || loaded.hits(4) > 0);
    });
}

#[test]
fn many_functions_of_the_kernel() {
    if !has(&[Feature::Bpf]) {
        return;
    }
    load("obj_kprobe_multi", |loaded| {
        for (name, counter, multi) in [
            ("by_pattern", 0, Multi::Kprobe),
            ("by_name", 1, Multi::Kprobe),
            ("on_return", 2, Multi::Kprobe),
            ("by_session", 3, Multi::KprobeSession),
            ("by_many", 4, Multi::Kprobe),
        ] {
            let Some(link) = attached(multi, loaded.attach(name)) else { continue };
            assert!(std::process::Command::new("/bin/true").status().unwrap().success());
            assert!(loaded.hits(counter) > 0, "{name}");
            drop(link);
        }
        assert!(loaded.attach("by_hand").unwrap().is_none());
    });
}

#[test]
fn system_calls_by_name() {
    if !has(&[Feature::Bpf]) {
        return;
    }
    load("obj_ksyscall", |loaded| {
        let links = ["on_entry", "on_return"].map(|name| (name, loaded.attach(name)));
        for (counter, (name, link)) in links.iter().enumerate() {
            if !has(&[Feature::Kprobes]) {
                assert!(matches!(link, Err(LinkError::NoProbes | LinkError::NoTracefs)), "{name}: {link:?}");
                continue;
            }
            assert!(matches!(link, Ok(Some(_))), "{name}: {link:?}");
            assert!(std::process::Command::new("/bin/true").status().unwrap().success());
            assert!(loaded.hits(counter as u32) > 0, "{name}");
        }
        let absent = loaded.attach("absent").map(|_| ());
        assert!(matches!(absent, Err(LinkError::NoSyscall | LinkError::NoProbes | LinkError::NoTracefs)), "{absent:?}");
        assert!(loaded.attach("by_hand").unwrap().is_none());
    });
}

//! What the running kernel and the machine's files say of themselves: features, symbols, configuration, functions to probe.
//!
//! Needs root and bpf(2) for the most part: without them a test says what the kernel refuses and is skipped, and fails instead
//! where CORELO_REQUIRE_KERNEL=1 and a plain kernel has it.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;

use corelo_core::uapi::map_type;
use corelo_loader::attach::Link;
use corelo_loader::attach::symbols::{self, SymbolError};
use corelo_loader::attach::uprobe::{Uprobe, attach};
use corelo_loader::kernel::kallsyms::{self, Address, Found, KallsymsError};
use corelo_loader::kernel::kconfig::{self, ConfigFile, KconfigError, KconfigType, Wanted};
use corelo_loader::kernel::{Feature, Features, KernelVersion, Support};
use corelo_loader::objects::{self, Map, MapFd, MapSpec, Memlock, ProgramSpec, load_program};
use corelo_tests::endian::Endian;
use corelo_tests::insn::{count_runs, encode};
use corelo_tests::kernel::{self, has, not_here, skip};

/// An array of one u64.
fn array() -> MapFd {
    let spec = MapSpec { map_type: map_type::ARRAY, key_size: 4, value_size: 8, max_entries: 1, ..MapSpec::default() };
    objects::create_map(&spec, Memlock::RaiseIfRefused).unwrap()
}

/// What tests ask the kernel for, each asked here: a plain kernel of this version has what it always has, and the rest is said.
#[test]
fn what_a_plain_kernel_has() {
    if !has(&[kernel::Feature::Bpf]) {
        return;
    }
    for feature in kernel::Feature::ALL {
        if has(&[*feature]) {
            println!("{feature}: there");
        }
    }
}

fn version(text: &str) -> KernelVersion {
    let (major, minor) = text.split_once('.').unwrap();
    KernelVersion::new(major.parse().unwrap(), minor.parse().unwrap(), 0)
}

#[test]
fn features_of_the_running_kernel() {
    if !has(&[kernel::Feature::Bpf]) {
        return;
    }
    let features = Features::default();
    for feature in Feature::ALL {
        let support = features.get(*feature);
        println!("{feature} (Linux {}): {support}", feature.since());
        // These need more than a version: CONFIG_FPROBE, CONFIG_UPROBES, CONFIG_PERF_EVENTS.
        let is_optional = matches!(feature, Feature::KprobeMulti | Feature::UprobeMulti | Feature::PerfLink);
        if !is_optional && KernelVersion::running() >= version(feature.since()) {
            assert_eq!(support, Support::Present, "{feature}");
        }
    }
    assert!(features.btf_features().is_some() == features.get(Feature::Btf).is_present());
}

#[test]
fn kernel_symbols_in_one_pass() {
    let names: [&[u8]; 3] = [b"_text", b"no_such_symbol_at_all", b"schedule"];
    let mut found = [Found::default(); 3];
    let mut text = String::new();
    let read = std::fs::File::open("/proc/kallsyms").and_then(|mut file| file.read_to_string(&mut text));
    let hidden = text.lines().all(|line| line.starts_with("00000000"));
    match (kallsyms::lookup(&names, &mut found), read) {
        (Ok(()), Ok(_)) => {}
        (Err(KallsymsError::Open(_)), Err(error)) => return skip("read /proc/kallsyms", &error.to_string()),
        (Err(KallsymsError::Hidden), Ok(_)) if hidden => return skip("see addresses", "the kernel hides them"),
        other => panic!("{other:?}"),
    }
    for (name, found) in names.iter().zip(found) {
        let name = std::str::from_utf8(name).unwrap();
        let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(name));
        let want = line.map_or(Address::Missing, |line| {
            Address::At(u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap())
        });
        assert_eq!(found.address(), want, "{name}");
    }
    // `_text` is not among those of 32-bit ARM.
    assert_ne!(found[2].address(), Address::Missing);
    // `__x64_sys_bpf` and its like, but not what every kernel has beside `sys_bpf`.
    let wrapper = text.lines().filter_map(|line| line.rsplit(' ').next()?.strip_prefix("__")?.strip_suffix("_sys_bpf"));
    let wrapper = wrapper.into_iter().any(|machine| !["se", "do", "ia32", "compat"].contains(&machine));
    assert_eq!(kallsyms::has_syscall_wrapper(), Ok(wrapper));
}

/// Another process without rights sees zeros, unless the kernel shows addresses to everyone.
#[test]
fn addresses_are_hidden_from_who_has_no_rights() {
    const CHILD: &str = "CORELO_TEST_WITHOUT_RIGHTS";
    if std::env::var_os(CHILD).is_some() {
        let mut found = [Found::default()];
        assert_eq!(kallsyms::lookup(&[b"_text"], &mut found), Err(KallsymsError::Hidden));
        // Names are there all the same.
        assert!(kallsyms::has_syscall_wrapper().is_ok());
        return;
    }
    let number = |path: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().parse::<i32>().unwrap_or(0)
    };
    let restricted = number("/proc/sys/kernel/kptr_restrict");
    if restricted == 0 && number("/proc/sys/kernel/perf_event_paranoid") <= 1 {
        return not_here("hidden addresses", "this kernel shows its addresses to everyone");
    }
    match std::process::Command::new("/proc/self/exe").arg("--list").output() {
        Ok(output) if output.status.success() => {}
        _ => return skip("start this program again", "it runs in an emulator, which the kernel does not start for it"),
    }
    let mut child = std::process::Command::new("/proc/self/exe");
    child
        .args(["--exact", "addresses_are_hidden_from_who_has_no_rights"])
        .env(CHILD, "1")
        .current_dir("/")
        .stdout(std::process::Stdio::null());
    // Where we are not root, we have no rights already.
    if std::fs::read_to_string("/proc/self/status").is_ok_and(|text| text.contains("\nUid:\t0\t")) {
        child.uid(65534).gid(65534);
    }
    assert!(child.status().unwrap().success());
}

#[test]
fn configuration_of_the_running_kernel() {
    let mut lines = Vec::new();
    let file = kconfig::each(&mut |name, value| lines.push((name.to_vec(), value.to_vec()))).unwrap();
    let Some(file) = file else {
        return not_here("kernel configuration", "there is neither /proc/config.gz nor /boot/config-RELEASE");
    };
    let text = match file {
        ConfigFile::Boot => {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
            std::fs::read_to_string(format!("/boot/config-{}", release.trim())).unwrap()
        }
        ConfigFile::Proc => {
            let output = std::process::Command::new("gzip").args(["-dc", "/proc/config.gz"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        }
    };
    let want: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect();
    assert!(lines == want && lines.len() > 100);

    let of = |name: &str| want.iter().find(|(have, _)| have == name.as_bytes());
    let hertz: i32 = std::str::from_utf8(&of("CONFIG_HZ").unwrap().1).unwrap().parse().unwrap();
    let strong = |name, ty| Wanted { name, ty: Some(ty), is_weak: false };
    let integer = KconfigType::Integer { is_signed: true };
    let (mut hz, mut bpf, mut compiler, mut code, mut cookie) = ([0; 4], [0; 1], [0xff; 8], [0; 4], [0xff; 1]);
    let features = Features::default();
    kconfig::fill(
        &mut [
            (strong(b"CONFIG_HZ", integer), &mut hz[..]),
            (strong(b"CONFIG_BPF_SYSCALL", KconfigType::Bool), &mut bpf[..]),
            (strong(b"CONFIG_CC_VERSION_TEXT", KconfigType::CharArray), &mut compiler[..]),
            (strong(b"LINUX_KERNEL_VERSION", integer), &mut code[..]),
            (strong(b"LINUX_HAS_BPF_COOKIE", KconfigType::Bool), &mut cookie[..]),
        ][..],
        &features,
    )
    .unwrap();
    assert_eq!((i32::from_ne_bytes(hz), bpf), (hertz, [1]));
    let quoted = &of("CONFIG_CC_VERSION_TEXT").unwrap().1;
    assert_eq!((&compiler[..7], compiler[7]), (&quoted[1..8], 0));
    assert_eq!(u32::from_ne_bytes(code), KernelVersion::running().0);
    assert_eq!(cookie == [1], features.get(Feature::BpfCookie).is_present());

    let mut value = [0; 4];
    let mut absent = [(strong(b"CONFIG_NO_SUCH_THING", integer), &mut value[..])];
    assert_eq!(kconfig::fill(&mut absent[..], &features), Err(KconfigError::Missing { index: 0 }));
}

/// What the uprobe is on. The name is looked for in the symbols by a part of it.
#[inline(never)]
fn probed_by_its_symbol(value: u64) -> u64 {
    std::hint::black_box(value) + 1
}

/// The linker's name of that function, from this program's own symbol table.
fn own_symbol() -> String {
    let bytes = std::fs::read("/proc/self/exe").unwrap();
    let file = elf::ElfBytes::<elf::endian::NativeEndian>::minimal_parse(&bytes).unwrap();
    let (symbols, names) = file.symbol_table().unwrap().unwrap();
    symbols
        .iter()
        .map(|symbol| names.get(symbol.st_name as usize).unwrap())
        .find(|name| name.contains("probed_by_its_symbol"))
        .unwrap()
        .to_owned()
}

/// A uprobe that counts in the array's element.
fn count_calls(map: &MapFd, path: &Path, offset: u64) -> Link {
    let insns = encode(&count_runs(map.as_fd()), Endian::native());
    // BPF_PROG_TYPE_KPROBE.
    let program = load_program(&ProgramSpec::new(2), &insns, &mut &mut [][..]).unwrap();
    let uprobe = Uprobe { path, offset, ref_ctr_offset: 0, returns: false, pid: Some(std::process::id()), cookie: 0 };
    attach(program.as_fd(), uprobe).unwrap()
}

fn counted(map: &MapFd) -> u64 {
    Map::<u32, u64>::new(map).unwrap().get(&0).unwrap().unwrap()
}

#[test]
fn a_uprobe_on_a_function_of_this_program() {
    let exe = std::env::current_exe().unwrap();
    let symbol = own_symbol();
    let offset = symbols::function_offset(&exe, &symbol).unwrap();
    assert_eq!(symbols::function_offset(&exe, &symbol[..symbol.len() - 1]), Err(SymbolError::Missing));
    if !has(&[kernel::Feature::Bpf, kernel::Feature::Uprobes]) {
        return;
    }
    let map = array();
    let link = count_calls(&map, &exe, offset);
    for value in 0..5 {
        assert_eq!(probed_by_its_symbol(value), value + 1);
    }
    assert_eq!(counted(&map), 5);
    drop(link);
    probed_by_its_symbol(0);
    assert_eq!(counted(&map), 5);
}

#[test]
fn a_uprobe_on_a_function_of_a_library() {
    if !std::fs::read_to_string("/proc/self/maps").unwrap().contains("libc.so.6") {
        return not_here("functions of glibc", "this program is linked statically or with another C library");
    }
    if cfg!(target_arch = "arm") {
        return not_here("functions of glibc", "they are Thumb code, which the kernel's uprobes do not know");
    }
    if !has(&[kernel::Feature::Bpf, kernel::Feature::Uprobes]) {
        return;
    }
    let library = symbols::find_file(Path::new("libc.so.6")).unwrap();
    let map = array();
    // Nobody else in this program asks for it.
    let offset = symbols::function_offset(library.as_path(), "getppid").unwrap();
    let _link = count_calls(&map, library.as_path(), offset);
    for _ in 0..3 {
        assert_ne!(std::os::unix::process::parent_id(), 0);
    }
    assert_eq!(counted(&map), 3);
}

#[test]
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn versions_of_a_function_in_glibc() {
    let library = symbols::find_file(Path::new("libc.so.6")).unwrap();
    let find = |name| symbols::function_offset(library.as_path(), name);
    let plain = find("pthread_cond_wait").unwrap();
    assert_eq!(find("pthread_cond_wait@GLIBC_2.3.2"), Ok(plain));
    assert_ne!(find("pthread_cond_wait@GLIBC_2.2.5").unwrap(), plain);
    assert_eq!(find("pthread_cond_wait@GLIBC_1.0"), Err(SymbolError::Missing));
}

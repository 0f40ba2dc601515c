//! What kernels older than any that boots in CI are given, and those that do not tell something, through the command and
//! under a fake kernel.
#![cfg(target_endian = "little")]

mod common;

use std::process::Command;

use common::{Run, fixture, has_kernel};
use corelo_tests::fake_kernel::{FakeKernel, Log, require_fake_kernel};

const MAP_CREATE: u32 = 0;
const PROG_LOAD: u32 = 5;
const BTF_LOAD: u32 = 18;

/// `corelo load` of an object under a kernel of a version.
fn load(kernel: &FakeKernel, args: &[&str]) -> (Run, Log) {
    let (output, log) = kernel.run(Command::new(env!("CARGO_BIN_EXE_corelo")).arg("load").args(args));
    let run = Run {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    (run, log)
}

fn can_try() -> bool {
    require_fake_kernel("load under older kernels") && has_kernel()
}

#[test]
fn helpers_that_read_memory_are_replaced_before_5_5() {
    if !can_try() {
        return;
    }
    let object = fixture("obj_probe_read-el.o");
    for (major, minor) in [(4, 14), (4, 17), (4, 19), (5, 0), (5, 2), (5, 4)] {
        let (run, log) = load(&FakeKernel::new(major, minor), &[&object]);
        assert_eq!(run.code, 0, "{major}.{minor}: {}{:?}", run.stderr, refusals(&log));
        let programs: Vec<_> = log.taken(PROG_LOAD).map(|call| call.helpers()).collect();
        assert!(programs.contains(&vec![4, 4, 45, 45, 5, 2]), "{major}.{minor}: {programs:?}");
        // What the first program was refused for, the second one is not tried with.
        assert_eq!(programs.last(), Some(&vec![4, 2]), "{major}.{minor}");
        let refused = log.bpf.iter().filter(|call| call.cmd == PROG_LOAD && call.refused.is_some());
        assert!(!refused.into_iter().any(|call| call.helpers() == [113, 2]), "{major}.{minor}");
    }
    for (major, minor) in [(5, 5), (6, 1)] {
        let (run, log) = load(&FakeKernel::new(major, minor), &[&object]);
        assert_eq!(run.code, 0, "{major}.{minor}: {}", run.stderr);
        let programs: Vec<_> = log.taken(PROG_LOAD).map(|call| call.helpers()).collect();
        assert_eq!(programs, [vec![112, 113, 114, 115, 5, 2], vec![113, 2]], "{major}.{minor}");
    }
}

#[test]
fn contexts_have_their_types_before_6_8() {
    if !can_try() {
        return;
    }
    let object = fixture("obj_arg_ctx-el.o");
    // Before 5.6 functions are static in BTF, and before 5.0 there are none: nothing is verified alone.
    for (major, minor) in [(4, 18), (4, 19), (5, 0), (5, 2), (5, 5), (5, 10), (5, 16), (6, 1), (6, 7), (6, 8)] {
        // From 5.16 on the tag goes to the kernel, and the real one behind this reads it: no struct of the name that older
        // kernels know is right for it. Linux 6.1 itself takes it (ci-qemu.sh).
        let skipped: &[&str] = if (5, 16) <= (major, minor) && minor != 8 { &["--skip", "on_kprobe"] } else { &[] };
        let (run, log) = load(&FakeKernel::new(major, minor), &[&[&object[..]], skipped].concat());
        assert_eq!(run.code, 0, "{major}.{minor}: {}{:?}", run.stderr, refusals(&log));
        let blobs = log.taken(BTF_LOAD).filter(|call| contains(&call.payload, b"bpf_raw_tracepoint_args\0")).count();
        assert_eq!(blobs, usize::from(((5, 6)..(6, 8)).contains(&(major, minor))), "{major}.{minor}");
    }
}

/// Commands, and why they were refused.
fn refusals(log: &Log) -> Vec<(u32, Option<&str>)> {
    log.bpf.iter().map(|call| (call.cmd, call.refused.as_ref().map(|(_, why)| why.as_str()))).collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn maps_and_globals_are_given_what_the_version_knows() {
    if !can_try() {
        return;
    }
    /// BPF_F_MMAPABLE (Linux 5.5).
    const MMAPABLE: u32 = 1 << 10;
    let object = fixture("obj_globals-el.o");
    for (major, minor) in [(5, 2), (5, 4), (5, 5), (5, 10), (6, 1)] {
        let (run, log) = load(&FakeKernel::new(major, minor), &[&object]);
        assert_eq!(run.code, 0, "{major}.{minor}: {}{:?}", run.stderr, refusals(&log));
        let is_mapped = log.taken(MAP_CREATE).any(|call| call.word(16) & MMAPABLE != 0);
        assert_eq!(is_mapped, (major, minor) >= (5, 5), "{major}.{minor}");
    }
    // No kernel before 5.2 has global data, and it is the map that it refuses: a flag.
    let (run, log) = load(&FakeKernel::new(5, 1), &[&object]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    assert!(run.stderr.contains("map ") && log.refused(MAP_CREATE).count() > 0, "{}", run.stderr);
    // Names since 4.15, types since 4.18.
    let object = fixture("obj_probe_read-el.o");
    for (major, minor) in [(4, 14), (4, 15), (4, 17), (4, 18), (4, 19)] {
        let (run, log) = load(&FakeKernel::new(major, minor), &[&object]);
        assert_eq!(run.code, 0, "{major}.{minor}: {}{:?}", run.stderr, refusals(&log));
        let map = log.taken(MAP_CREATE).last().unwrap();
        let has = |range: std::ops::Range<usize>| map.attr[range].iter().any(|byte| *byte != 0);
        assert_eq!(has(28..44), minor >= 15, "the map's name, {major}.{minor}");
        // Types of hash maps: 4.19.
        assert_eq!(has(48..60), minor >= 19, "the map's types, {major}.{minor}");
        let program = log.taken(PROG_LOAD).last().unwrap();
        assert_eq!(program.attr[48..64].iter().any(|byte| *byte != 0), minor >= 15, "the program's name");
        // The kernel compares it with its own, for kprobes.
        assert_eq!(program.word(40), 4 << 16 | u32::from(minor) << 8);
    }
}

#[test]
fn function_and_line_info_go_where_functions_are_known() {
    if !can_try() {
        return;
    }
    let object = fixture("nothing_asked-el.o");
    for (major, minor) in [(4, 17), (4, 18), (4, 20), (5, 0), (5, 6), (6, 0)] {
        let (run, log) = load(&FakeKernel::new(major, minor), &[&object]);
        assert_eq!(run.code, 0, "{major}.{minor}: {}{:?}", run.stderr, refusals(&log));
        for program in log.taken(PROG_LOAD).filter(|call| call.word(4) > 2) {
            let has_info = program.long(80) != 0 && program.long(96) != 0 && program.word(72) != 0;
            assert_eq!(has_info, major >= 5, "{major}.{minor}");
        }
    }
}

#[test]
fn attach_types_that_may_be_left_out_are() {
    if !can_try() {
        return;
    }
    const XDP: u32 = 6;
    let object = fixture("obj_arg_ctx-el.o");
    let others = ["on_raw", "on_kprobe", "on_event"].map(|name| ["--skip", name]).concat();
    for (major, minor) in [(4, 16), (4, 17), (5, 9)] {
        let (run, log) = load(&FakeKernel::new(major, minor), &[&[&object[..]], &others[..]].concat());
        assert_eq!(run.code, 0, "{major}.{minor}: {}{:?}", run.stderr, refusals(&log));
        let program = log.taken(PROG_LOAD).find(|call| call.word(0) == XDP).unwrap();
        assert_eq!(program.word(68) != 0, minor != 16, "{major}.{minor}");
    }
}

#[test]
fn btf_is_rewritten_for_what_the_version_knows() {
    if !can_try() {
        return;
    }
    // Floats, tags, enumerations of 64 bits, sections that are optional: whatever the fixtures have.
    let mut loaded = 0;
    for name in ["nothing_asked", "obj_arg_ctx", "obj_globals", "obj_maps", "obj_modern", "obj_callbacks"] {
        let object = fixture(&format!("{name}-el.o"));
        let (own, _) = load(&FakeKernel::new(7, 9), &[&object]);
        if own.code != 0 {
            continue;
        }
        for (major, minor) in [(5, 2), (5, 6), (5, 13), (5, 16), (5, 17), (6, 0), (6, 9)] {
            // Maps and instructions that the version lacks are another matter: here it is the BTF.
            let (_, log) = load(&FakeKernel::new(major, minor), &[&object]);
            let named = |call: &&corelo_tests::fake_kernel::BpfCall| contains(&call.payload, b"license\0");
            let taken = log.taken(BTF_LOAD).find(named);
            assert!(taken.is_some(), "{name} on {major}.{minor}: {:?}", refusals(&log));
            loaded += 1;
        }
    }
    assert!(loaded >= 21, "{loaded}");
}

#[test]
fn configuration_that_is_hidden_is_none() {
    if !can_try() {
        return;
    }
    let [weak, strong] = ["weak", "strong"].map(|name| fixture(&format!("obj_kconfig_{name}-el.o")));
    let no_boot = |kernel: FakeKernel| kernel.file_error("/boot/", libc::ENOENT);
    // /dev/null over it, as containers mask files; not there; for others.
    let masked = no_boot(FakeKernel::new(6, 18).file("/proc/config.gz", ""));
    let missing = no_boot(FakeKernel::new(6, 18).file_error("/proc/config.gz", libc::ENOENT));
    let closed = no_boot(FakeKernel::new(6, 18).file_error("/proc/config.gz", libc::EACCES));
    for (kernel, said) in
        [(masked, "neither /proc/config.gz nor"), (missing, "neither /proc/config.gz nor"), (closed, "access denied")]
    {
        let (run, _) = load(&kernel, &[&weak]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        let (run, _) = load(&kernel, &[&strong]);
        assert_eq!(run.code, 1, "{}", run.stdout);
        assert!(run.stderr.contains(said) && run.stderr.contains("CONFIG_HZ"), "{}", run.stderr);
    }
    // The other file does where this one is masked.
    let boot = FakeKernel::new(6, 18).file("/proc/config.gz", "").file("/boot/config-6.18.0", "CONFIG_HZ=250\n");
    assert_eq!(load(&boot, &[&strong]).0.code, 0);
}

#[test]
fn names_of_functions_that_are_hidden_say_nothing() {
    if !can_try() {
        return;
    }
    let [weak, wrapper] = ["weak", "wrapper"].map(|name| fixture(&format!("obj_kconfig_{name}-el.o")));
    for kernel in [
        FakeKernel::new(6, 18).file("/proc/kallsyms", ""),
        FakeKernel::new(6, 18).file_error("/proc/kallsyms", libc::EACCES),
        FakeKernel::new(6, 18).file_error("/proc/kallsyms", libc::ENOENT),
    ] {
        assert_eq!(load(&kernel, &[&weak]).0.code, 0);
        let (run, _) = load(&kernel, &[&wrapper]);
        assert_eq!(run.code, 1, "{}", run.stdout);
        assert!(run.stderr.contains("/proc/kallsyms") && run.stderr.contains("SYSCALL_WRAPPER"), "{}", run.stderr);
    }
    for names in ["ffffffff81000000 T __x64_sys_bpf\n", "ffffffff81000000 T sys_bpf\n"] {
        assert_eq!(load(&FakeKernel::new(6, 18).file("/proc/kallsyms", names), &[&wrapper]).0.code, 0);
    }
}

#[test]
fn cpus_that_cannot_be_counted_are_no_refusal_of_a_map() {
    if !can_try() {
        return;
    }
    const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
    // An array with a place for each CPU.
    let object = fixture("obj_arg_ctx-el.o");
    for kernel in [
        FakeKernel::new(6, 18).file_error(POSSIBLE, libc::ENOENT),
        FakeKernel::new(6, 18).file_error(POSSIBLE, libc::EACCES),
        FakeKernel::new(6, 18).file(POSSIBLE, "none"),
    ] {
        let (run, log) = load(&kernel, &[&object]);
        assert_eq!(run.code, 1, "{}", run.stdout);
        assert!(run.stderr.contains(POSSIBLE) && run.stderr.contains("map events"), "{}", run.stderr);
        assert!(!run.stderr.contains("refuses"), "{}", run.stderr);
        assert_eq!(log.taken(MAP_CREATE).count(), 0);
    }
}

#[test]
fn a_missing_sysfs_is_not_a_kernel_without_btf() {
    if !can_try() {
        return;
    }
    let no_images = ["/boot/", "/lib/modules/", "/usr/lib/modules/", "/usr/lib/debug/"];
    let bare = no_images.iter().fold(FakeKernel::new(6, 18), |kernel, path| kernel.file_error(path, libc::ENOENT));
    let object = fixture("many_progs-el.o");
    for (hidden, said, unsaid) in [
        ("/sys/", "mount -t sysfs", "built without"),
        ("/sys/kernel/btf/", "built without CONFIG_DEBUG_INFO_BTF", "mount -t"),
    ] {
        // A path that ends with a slash is what is below it.
        let kernel = bare.clone().file_error(hidden, libc::ENOENT);
        let (run, _) = load(&kernel, &[&object]);
        assert_eq!(run.code, 1, "{}", run.stdout);
        assert!(run.stderr.contains(said) && !run.stderr.contains(unsaid), "{}", run.stderr);
    }
}

#[test]
fn signals_that_cannot_be_awaited_are_no_failing_output() {
    if !can_try() {
        return;
    }
    let kernel = FakeKernel::new(6, 18).answering(libc::SYS_socketpair, |_| Some(Err(libc::EMFILE)));
    let (output, _) = kernel.run(Command::new(env!("CARGO_BIN_EXE_corelo")).args(["run", "--for", "0.1"]));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot wait for SIGINT and SIGTERM") && !text.contains("cannot write"), "{text}");
}

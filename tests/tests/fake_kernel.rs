//! The fake kernel itself: what it refuses, what it passes on, and that it ends.

use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use corelo_tests::fake_kernel::{FakeKernel, require_fake_kernel};
use corelo_tests::kernel::bpf::{self, Program, returning};

const MAP_CREATE: u32 = 0;
const PROG_LOAD: u32 = 5;
const ARRAY: u32 = 2;
const RINGBUF: u32 = 27;
const SOCKET_FILTER: u32 = 1;

#[test]
fn the_version_and_files_are_another_kernels() {
    if !require_fake_kernel("answer for another kernel") {
        return;
    }
    let kernel = FakeKernel::new(4, 14)
        .file("/proc/version", "Linux of old\n")
        .file_error("/proc/kallsyms", libc::EACCES)
        .file_error("/sys/devices/", libc::EIO);
    let ((release, version, refused, below, real), log) = kernel.with(|| {
        (
            Command::new("uname").arg("-r").output().unwrap().stdout,
            fs::read_to_string("/proc/version").unwrap(),
            fs::read("/proc/kallsyms").unwrap_err().kind(),
            fs::read("/sys/devices/system/cpu/possible").unwrap_err().raw_os_error(),
            fs::read_to_string("/proc/self/status").unwrap(),
        )
    });
    assert_eq!(String::from_utf8(release).unwrap(), "4.14.0\n");
    assert_eq!(version, "Linux of old\n");
    assert_eq!((refused, below), (ErrorKind::PermissionDenied, Some(libc::EIO)));
    assert!(real.starts_with("Name:"));
    assert!(log.files.iter().any(|path| path == "/proc/version"));
    // Other threads are not under it.
    assert!(!fs::read_to_string("/proc/version").unwrap().contains("of old"));
}

#[test]
fn what_the_version_does_not_know_is_refused_and_the_rest_passed_on() {
    if !require_fake_kernel("answer for another kernel") || !corelo_tests::kernel::require_kernel("load programs") {
        return;
    }
    let map = |map_type, key, value, entries| bpf::map(map_type, key, value, entries).map(drop);
    let errno = |result: std::io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    // bpf_probe_read_kernel (Linux 5.5), and the clock (4.1).
    let program = |helper| {
        let call = [bpf::insn(0x85, (0, 0), helper), bpf::returning(0)[0], bpf::returning(0)[1]];
        Program::new(SOCKET_FILTER).load(&call).map(drop)
    };
    let (results, log) = FakeKernel::new(5, 4).with(|| {
        [
            map(ARRAY, 4, 4, 1),
            map(RINGBUF, 0, 0, 4096),
            Program::new(SOCKET_FILTER).load(&returning(0)).map(drop),
            program(113),
            program(5),
        ]
        .map(errno)
    });
    assert_eq!(results, [None, Some(libc::EINVAL), None, Some(libc::EINVAL), None]);
    assert_eq!(log.taken(MAP_CREATE).count(), 1);
    assert_eq!(log.refused(MAP_CREATE).collect::<Vec<_>>(), ["map type 27"]);
    assert_eq!(log.refused(PROG_LOAD).collect::<Vec<_>>(), ["instruction 0: invalid func unknown#113"]);
    assert_eq!(log.taken(PROG_LOAD).last().unwrap().helpers(), [5]);
    let (results, _) =
        FakeKernel::new(5, 8).refusing(MAP_CREATE, libc::EPERM).with(|| [map(ARRAY, 4, 4, 1), program(113)].map(errno));
    // 113 is no helper of socket filters: it is the real kernel that says so.
    assert_eq!(results[0], Some(libc::EPERM));
    assert_eq!(map(RINGBUF, 0, 0, 4096).map_err(|error| error.kind()), Ok(()));
}

#[test]
fn other_calls_are_answered_by_hand() {
    if !require_fake_kernel("answer for another kernel") {
        return;
    }
    let kernel = FakeKernel::new(6, 1).answering(libc::SYS_linkat, |args| (args[4] == 0).then_some(Err(libc::EXDEV)));
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::write(&from, "").unwrap();
    let (linked, _) = kernel.with(|| fs::hard_link(&from, &to));
    assert_eq!(linked.unwrap_err().raw_os_error(), Some(libc::EXDEV));
    fs::hard_link(&from, &to).unwrap();
}

#[test]
#[should_panic(expected = "as the body does")]
fn a_panic_comes_back() {
    assert!(require_fake_kernel("panic under one"), "as the body does");
    FakeKernel::new(5, 4).with::<()>(|| panic!("as the body does"));
}

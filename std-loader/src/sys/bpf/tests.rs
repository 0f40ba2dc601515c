//! Descriptors as the running kernel gives them out. Without bpf(2) there is nothing to see, and the tests say so.

use super::super::{attr, perf};
use super::*;
use std::os::fd::AsFd;

/// A hash map of one entry; `None`, and it is said, where the kernel gives none.
fn map() -> Option<MapFd> {
    let block = attr::MapCreate { map_type: 1, key_size: 4, value_size: 4, max_entries: 1, ..attr::zeroed() };
    corelo_tests::kernel::has(&[corelo_tests::kernel::Feature::Bpf]).then(|| map_create(&block).unwrap())
}

/// In a process of its own, whose other descriptors nobody uses.
#[test]
fn standard_input_output_and_error_are_never_bpf_objects() {
    const CHILD: &str = "CORELO_TEST_STANDARD_FDS";
    if std::env::var_os(CHILD).is_none() {
        if map().is_none() {
            return;
        }
        let name = "sys::bpf::tests::standard_input_output_and_error_are_never_bpf_objects";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
        return;
    }
    // Input and output are closed, as a daemon does; error is kept for what goes wrong here.
    for fd in [0, 1] {
        // SAFETY: nothing of this process uses it from here on.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    let made = map().unwrap();
    let second = made.try_clone().unwrap();
    let perf = perf::bpf_output(0, 1);
    let numbers = [made.as_fd().as_raw_fd(), second.as_fd().as_raw_fd()];
    let is_right = numbers.iter().all(|number| *number > 2)
        && perf.as_ref().map_or(true, |event| event.0.as_raw_fd() > 2)
        && rustix::io::fcntl_getfd(&made).is_ok_and(|flags| flags.contains(rustix::io::FdFlags::CLOEXEC));
    if !is_right {
        eprintln!("{numbers:?} {perf:?}");
    }
    // The harness would print to what is closed.
    std::process::exit(i32::from(!is_right));
}

#[test]
fn every_answer_of_the_kernel_is_for_the_kind_that_it_is_asked_of() {
    let null = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(kind_of(null.as_fd()), Err(Errno::EINVAL));
    let Some(map) = map() else { return };
    assert_eq!(kind_of(map.as_fd()), Ok(ObjectKind::Map));
    let map = map.as_fd();
    let mut memory = [0u8; 64];
    assert_eq!(prog_info(map).err(), Some(Errno::EINVAL));
    assert_eq!(prog_map_ids(map, &mut [0; 4]), Err(Errno::EINVAL));
    assert_eq!(prog_xlated(map, &mut memory), Err(Errno::EINVAL));
    assert_eq!(link_info(map).err(), Some(Errno::EINVAL));
    assert_eq!(btf_info(map, &mut [], &mut memory).err(), Some(Errno::EINVAL));
}

#[test]
fn standard_input_is_not_taken_for_none() {
    // SAFETY: only its number is looked at.
    let input = unsafe { BorrowedFd::borrow_raw(0) };
    let null = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(given(Some(input)), Err(Errno::EBADF));
    assert_eq!((given(None), given(Some(null.as_fd()))), (Ok(0), Ok(null.as_raw_fd().cast_unsigned())));
}

#[test]
fn instructions_name_no_descriptor_behind_the_end_of_the_array() {
    let insns = |code: u8, src: u8, off: i16, imm: i32| {
        let registers = if cfg!(target_endian = "big") { src } else { src << 4 };
        let mut insn = vec![code, registers];
        insn.extend(off.to_ne_bytes());
        insn.extend(imm.to_ne_bytes());
        insn
    };
    let load = |fd_array: &[i32], insns: &[u8]| {
        let _guard = crate::sys::fake::install(|_, _| Some(Err(Errno::EACCES)));
        let load = ProgLoad {
            prog_type: 1,
            expected_attach_type: 0,
            insns,
            license: c"",
            kern_version: 0,
            flags: 0,
            name: [0; 16],
            ifindex: 0,
            btf_fd: None,
            func_info: &[],
            func_info_rec_size: 0,
            line_info: &[],
            line_info_rec_size: 0,
            attach_btf_id: 0,
            attach_fd: None,
            fd_array,
            fd_array_cnt: 0,
            log_level: 0,
        };
        prog_load(&load, &mut [], &mut 0).err()
    };
    // EACCES: the kernel was asked.
    for (insns, index) in [(insns(0x85, 2, 2, 7), 2), (insns(0x18, 5, 0, 2), 2), (insns(0x18, 6, 0, -1), usize::MAX)] {
        assert_eq!(load(&[], &insns), Some(Errno::EACCES), "{insns:?}");
        assert_eq!(load(&[0; 2], &insns), Some(Errno::EINVAL), "{insns:?}");
        let with_three = if index == 2 { Errno::EACCES } else { Errno::EINVAL };
        assert_eq!(load(&[0; 3], &insns), Some(with_three), "{insns:?}");
    }
    assert_eq!(load(&[0; 1], &insns(0x85, 1, 5, 700)), Some(Errno::EACCES), "a call in the program");
}

//! Creation that a kernel answers in every way, by a stand-in for bpf(2), and access that never reaches it.

use super::*;
use crate::sys::fake::{install, some_fd, u32_at};
use std::cell::RefCell;
use std::rc::Rc;

#[test]
fn names() {
    for (name, want) in [
        (&b"events"[..], "events"),
        (b"a_very_long_map_name", "a_very_long_map"),
        (b".rodata.str1-1", ".rodata.str1_1"),
        (b"a b\xffc", "a_b_c"),
        (b"", ""),
    ] {
        let got = kernel_name(name);
        assert_eq!(got[15], 0);
        assert_eq!(&got[..want.len()], want.as_bytes());
        assert!(got[want.len()..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn entries() {
    let page = page_size() as u32;
    assert_eq!(normalized_entries(map_type::HASH, 0), Ok(0));
    assert_eq!(normalized_entries(map_type::PERF_EVENT_ARRAY, 7), Ok(7));
    assert_eq!(normalized_entries(map_type::PERF_EVENT_ARRAY, 0), crate::sys::cpus::possible_cpus());
    assert_eq!(normalized_entries(map_type::RINGBUF, 1), Ok(page));
    assert_eq!(normalized_entries(map_type::RINGBUF, 5 * page), Ok(8 * page));
    assert_eq!(normalized_entries(map_type::RINGBUF, u32::MAX), Err(Errno::E2BIG));
}

/// Offsets in the argument block of BPF_MAP_CREATE.
const NAME: usize = 28;
const BTF_FD: usize = 48;

fn spec(btf: BorrowedFd<'_>) -> MapSpec<'_> {
    MapSpec {
        name: b"a.b",
        map_type: map_type::HASH,
        key_size: 4,
        value_size: 8,
        max_entries: 1,
        btf_fd: Some(btf),
        btf_key_type_id: 1,
        btf_value_type_id: 2,
        ..MapSpec::default()
    }
}

#[test]
fn what_an_old_kernel_refuses_is_left_out_step_by_step() {
    let null = std::fs::File::open("/dev/null").unwrap();
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&seen);
    let _guard = install(move |_, block| {
        let btf = u32_at(block, BTF_FD) != 0;
        let name = block[NAME..NAME + 3].to_vec();
        log.borrow_mut().push((btf, name.clone()));
        Some(if name == [0; 3] { Ok(some_fd()) } else { Err(Errno::EINVAL) })
    });
    create(&spec(null.as_fd()), Memlock::Keep).unwrap();
    assert_eq!(
        *seen.borrow(),
        [(true, b"a.b".to_vec()), (false, b"a.b".to_vec()), (false, b"a_b".to_vec()), (false, vec![0; 3]),]
    );
}

#[test]
fn the_first_refusal_is_reported_and_eperm_is_final() {
    let null = std::fs::File::open("/dev/null").unwrap();
    let calls = Rc::new(RefCell::new(0));
    let count = Rc::clone(&calls);
    let guard = install(move |_, _| {
        *count.borrow_mut() += 1;
        let errno = if *count.borrow() == 1 { Errno::E2BIG } else { Errno::EINVAL };
        Some(Err(errno))
    });
    let error = create(&spec(null.as_fd()), Memlock::Keep).err();
    assert_eq!((error, *calls.borrow()), (Some(Errno::E2BIG), 4));
    drop(guard);
    let _guard = install(|_, _| Some(Err(Errno::EPERM)));
    let error = create(&spec(null.as_fd()), Memlock::RaiseIfRefused).err();
    assert_eq!(error, Some(Errno::EPERM));
}

#[test]
fn slices_of_the_wrong_length_never_reach_the_kernel() {
    let guard = install(|command, _| (command == bpf::cmd::MAP_CREATE).then(|| Ok(some_fd())));
    let map = create(
        &MapSpec { map_type: map_type::HASH, key_size: 4, value_size: 8, max_entries: 1, ..MapSpec::default() },
        Memlock::Keep,
    )
    .unwrap();
    drop(guard);
    let _guard = install(|_, _| panic!("the kernel was called"));
    assert_eq!(map.lookup(&[0; 3], &mut [0; 8], 0), Err(Errno::EINVAL));
    assert_eq!(map.lookup(&[0; 4], &mut [0; 7], 0), Err(Errno::EINVAL));
    assert_eq!(map.update(&[0; 4], &[0; 9], 0), Err(Errno::EINVAL));
    assert_eq!(map.delete(&[]), Err(Errno::EINVAL));
    assert_eq!(map.next_key(Some(&[0; 4]), &mut [0; 3]), Err(Errno::EINVAL));
    assert_eq!(map.next_key(Some(&[0; 5]), &mut [0; 4]), Err(Errno::EINVAL));
    assert_eq!(
        Map::<u32, u32>::new(&map).unwrap_err().to_string(),
        "the map has keys of 4 and values of 8 bytes, the types have 4 and 4"
    );
    assert!(Map::<u32, u64>::new(&map).is_ok());
    assert!(PerCpuMap::<u32, u64>::new(&map).is_err());
}

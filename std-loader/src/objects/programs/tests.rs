//! Loads that a kernel answers in every way, by a stand-in for bpf(2).

use super::*;
use crate::objects::verifier_log::LOG_TRIES;
use crate::objects::{GrowingLog, Memlock, load_btf};
use crate::sys::fake::{install, set_u32, some_fd, u32_at, write_to};
use std::cell::RefCell;
use std::rc::Rc;

const LOG_SIZE: usize = 28;
const LOG_BUF: usize = 32;
const TRUE_SIZE: usize = 140;
const ATTACH_TYPE: usize = 68;

/// Runs a load against a fake kernel and counts its calls.
fn load(
    spec: ProgramSpec<'_>,
    log: &mut dyn LogBuffer,
    mut kernel: impl FnMut(usize, &mut [u8]) -> Result<u32, Errno> + 'static,
) -> (Result<(), LoadFailure>, usize) {
    let calls = Rc::new(RefCell::new(0));
    let count = Rc::clone(&calls);
    let _guard = install(move |_, block| {
        *count.borrow_mut() += 1;
        Some(kernel(*count.borrow(), block))
    });
    let result = load_program(&spec, &[0; 16], log).map(drop);
    let calls = *calls.borrow();
    (result, calls)
}

fn spec() -> ProgramSpec<'static> {
    ProgramSpec::new(1)
}

#[test]
fn no_memory_for_a_trampoline_is_no_jit() {
    let (result, _) = load(spec(), &mut &mut [][..], |_, _| Err(Errno::ENOMEM));
    let failure = result.unwrap_err();
    assert_eq!(failure.to_string(), "the kernel refuses it: out of memory (ENOMEM)");
    let tracing = ProgramSpec { attach_btf_id: 7, ..spec() };
    let said = explained(failure, &tracing, || false).to_string();
    assert!(said.starts_with("the kernel refuses it: out of memory (ENOMEM): the kernel has no BPF JIT, "), "{said}");
    assert!(!explained(failure, &tracing, || true).no_jit);
    assert!(!explained(failure, &spec(), || false).no_jit);
    assert!(!explained(LoadFailure { errno: Errno::EINVAL, ..failure }, &tracing, || false).no_jit);
}

#[test]
fn a_good_program_is_loaded_once_without_a_log() {
    let (result, calls) = load(spec(), &mut &mut [0u8; 64][..], |_, block| {
        assert_eq!(u32_at(block, LOG_SIZE), 0);
        Ok(some_fd())
    });
    assert_eq!((result, calls), (Ok(()), 1));
}

#[test]
fn eagain_is_retried_five_times() {
    let (result, calls) =
        load(spec(), &mut &mut [][..], |call, _| if call <= 5 { Err(Errno::EAGAIN) } else { Ok(some_fd()) });
    assert_eq!((result, calls), (Ok(()), 6));
    let (result, calls) = load(spec(), &mut &mut [][..], |_, _| Err(Errno::EAGAIN));
    assert_eq!((result.unwrap_err().errno, calls), (Errno::EAGAIN, 6));
}

#[test]
fn the_log_grows_to_the_stated_size_at_once() {
    let mut log = GrowingLog::new(256, 1 << 20);
    let (result, calls) = load(spec(), &mut log, |_, block| {
        let size = u32_at(block, LOG_SIZE);
        if size == 0 {
            return Err(Errno::EACCES);
        }
        set_u32(block, TRUE_SIZE, 5000);
        write_to(block, LOG_BUF, b"R0 invalid\0");
        Err(if size < 5000 { Errno::ENOSPC } else { Errno::EACCES })
    });
    let failure = result.unwrap_err();
    assert_eq!((failure.errno, calls), (Errno::EACCES, 3));
    assert!(!failure.truncated);
    assert_eq!(&log.as_bytes()[failure.log_range()], b"R0 invalid");
}

#[test]
fn a_log_that_never_fits_and_efault_end_the_tries() {
    let mut log = GrowingLog::new(256, 1 << 20);
    let (result, calls) = load(spec(), &mut log, |call, _| Err(if call == 1 { Errno::EACCES } else { Errno::ENOSPC }));
    let failure = result.unwrap_err();
    assert_eq!(failure.errno, Errno::EACCES);
    assert!(failure.truncated);
    assert_eq!(calls, 1 + LOG_TRIES as usize);
    let (result, calls) = load(spec(), &mut log, |_, _| Err(Errno::EFAULT));
    assert_eq!((result.unwrap_err().errno, calls), (Errno::EFAULT, 2));
}

#[test]
fn a_fixed_buffer_keeps_the_logs_tail_and_the_errno_of_the_first_try() {
    let mut buffer = [0xffu8; 128];
    let (result, calls) = load(spec(), &mut &mut buffer[..], |_, block| {
        if u32_at(block, LOG_SIZE) == 0 {
            return Err(Errno::EACCES);
        }
        set_u32(block, TRUE_SIZE, 9000);
        write_to(block, LOG_BUF, b"the end\0");
        Err(Errno::ENOSPC)
    });
    let failure = result.unwrap_err();
    assert_eq!((failure.errno, calls), (Errno::EACCES, 2));
    assert_eq!((failure.truncated, failure.log_true_size), (true, 9000));
    assert_eq!(&buffer[failure.log_range()], b"the end");
}

#[test]
fn an_optional_attach_type_is_left_out_where_the_kernel_refuses_it() {
    let xdp = ProgramSpec { expected_attach_type: 37, attach_type_optional: true, ..spec() };
    let old = |_: usize, block: &mut [u8]| {
        if u32_at(block, ATTACH_TYPE) != 0 { Err(Errno::EINVAL) } else { Ok(some_fd()) }
    };
    assert_eq!(load(xdp, &mut &mut [][..], old), (Ok(()), 2));
    let needed = ProgramSpec { attach_type_optional: false, ..xdp };
    let (result, calls) = load(needed, &mut &mut [][..], old);
    assert_eq!((result.unwrap_err().errno, calls), (Errno::EINVAL, 1));
}

#[test]
fn eperm_on_this_kernel_is_final() {
    let (result, calls) = load(spec(), &mut &mut [][..], |_, _| Err(Errno::EPERM));
    assert_eq!(result.unwrap_err().to_string(), "the kernel refuses it: operation not permitted (EPERM)");
    assert_eq!(calls, 1);
}

#[test]
fn btf_has_the_same_course() {
    let _guard = install(|_, block| {
        if u32_at(block, 20) > 0 {
            write_to(block, 8, b"bad magic\0");
            set_u32(block, 28, 10);
        }
        Some(Err(Errno::EINVAL))
    });
    let mut buffer = [0; 64];
    let failure = load_btf(b"nonsense", &mut &mut buffer[..], Memlock::Keep).unwrap_err();
    assert_eq!(failure.errno, Errno::EINVAL);
    assert_eq!(&buffer[failure.log_range()], b"bad magic");
}

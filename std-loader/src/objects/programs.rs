//! Loading programs and BTF, with a verifier log only where it is needed.
//!
//! The first try of every load has no log: the verifier then writes none, and good programs are the rule. On failure it
//! is tried again with the caller's buffer. The kernel says ENOSPC where that is too short and, from 6.4 on, how long it
//! must be; the buffer grows as far as its owner lets it, a bounded number of times. Whatever happens to the log, the
//! errno reported is that of the try without one.

use core::fmt;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::objects::maps::kernel_name;
use crate::objects::memlock::{Memlock, raised_after};
use crate::sys::files;
use crate::sys::mmap::AnonMap;
use crate::sys::version::KernelVersion;
use crate::sys::{Errno, bpf};

/// How often EAGAIN (the verifier was interrupted by a signal) is answered by loading again.
pub const EAGAIN_TRIES: u32 = 5;
/// How many loads with a log there are at most.
pub const LOG_TRIES: u32 = 8;

/// What a program is to be, its instructions aside. `..ProgramSpec::new(type)` fills what does not matter.
#[derive(Debug, Clone, Copy)]
pub struct ProgramSpec<'a> {
    /// Its name; the kernel gets [`kernel_name`] of it.
    pub name: &'a [u8],
    /// `enum bpf_prog_type`.
    pub prog_type: u32,
    /// `enum bpf_attach_type`.
    pub expected_attach_type: u32,
    /// The attach type may be left out where an old kernel refuses it (XDP and others that have had none once).
    pub attach_type_optional: bool,
    /// The licence, with its NUL.
    pub license: &'a CStr,
    /// LINUX_VERSION_CODE for kprobes of kernels before 5.0; `None` for the running kernel's.
    pub kern_version: Option<u32>,
    /// BPF_F_*: sleepable, XDP fragments and so on.
    pub flags: u32,
    /// The device to offload to, or 0.
    pub ifindex: u32,
    /// The object's loaded BTF.
    pub btf_fd: Option<BorrowedFd<'a>>,
    /// func_info records.
    pub func_info: &'a [u8],
    /// Bytes of one of them.
    pub func_info_rec_size: u32,
    /// line_info records.
    pub line_info: &'a [u8],
    /// Bytes of one of them.
    pub line_info_rec_size: u32,
    /// The type id of the attach target, or 0.
    pub attach_btf_id: u32,
    /// The program to extend, or the BTF object of the target; `None` is vmlinux.
    pub attach_fd: Option<BorrowedFd<'a>>,
    /// Descriptors that instructions name by index: BTF objects of kfuncs (0 is vmlinux), maps.
    pub fd_array: &'a [i32],
    /// How many of them the kernel is to take as bound to the program (Linux 6.14); usually 0.
    pub fd_array_cnt: u32,
    /// Verbosity of the log where there is one: 1, 2 for every state, 4 for statistics alone.
    pub log_level: u32,
    /// Whether RLIMIT_MEMLOCK may be raised.
    pub memlock: Memlock,
}

impl ProgramSpec<'_> {
    /// A program of a type, with nothing else said: "GPL", log level 1.
    #[must_use]
    pub const fn new(prog_type: u32) -> ProgramSpec<'static> {
        ProgramSpec {
            name: b"",
            prog_type,
            expected_attach_type: 0,
            attach_type_optional: false,
            license: c"GPL",
            kern_version: None,
            flags: 0,
            ifindex: 0,
            btf_fd: None,
            func_info: &[],
            func_info_rec_size: 0,
            line_info: &[],
            line_info_rec_size: 0,
            attach_btf_id: 0,
            attach_fd: None,
            fd_array: &[],
            fd_array_cnt: 0,
            log_level: 1,
            memlock: Memlock::RaiseIfRefused,
        }
    }
}

/// Where a verifier log goes.
pub trait LogBuffer {
    /// The buffer as it is; empty for none.
    fn bytes(&mut self) -> &mut [u8];

    /// Asks for `wanted` bytes; false where it stays as it is.
    fn grow(&mut self, wanted: usize) -> bool;
}

/// A buffer of fixed size; kernels from 6.4 on keep the log's tail in it, older ones its start.
impl LogBuffer for &mut [u8] {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }

    fn grow(&mut self, _: usize) -> bool {
        false
    }
}

/// A log in private memory that is mapped when the first program fails, and no heap.
#[derive(Debug)]
pub struct GrowingLog {
    map: Option<AnonMap>,
    start: usize,
    limit: usize,
}

impl GrowingLog {
    /// Starts at `start` bytes and grows to at most `limit`.
    #[must_use]
    pub const fn new(start: usize, limit: usize) -> GrowingLog {
        GrowingLog { map: None, start, limit }
    }

    /// The log's bytes: `&log.as_bytes()[failure.log_range()]`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

impl LogBuffer for GrowingLog {
    fn bytes(&mut self) -> &mut [u8] {
        if self.map.is_none() {
            self.map = AnonMap::new(self.start.min(self.limit)).ok();
        }
        self.map.as_deref_mut().unwrap_or_default()
    }

    fn grow(&mut self, wanted: usize) -> bool {
        let Some(map) = &mut self.map else {
            return false;
        };
        let wanted = wanted.min(self.limit);
        wanted > map.len() && map.grow(wanted).is_ok()
    }
}

/// The kernel refused a program or a BTF blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadFailure {
    /// The kernel's answer to the try without a log.
    pub errno: Errno,
    /// Bytes of the log at the start of the buffer, without the NUL.
    pub log_len: u32,
    /// The whole log's length as the kernel states it (6.4 and newer), NUL included; else 0.
    pub log_true_size: u32,
    /// The log did not fit.
    pub truncated: bool,
    /// ENOMEM stands for something else: the kernel was built without a JIT (CONFIG_BPF_JIT), and so without the trampolines that
    /// fentry, fexit, fmod_ret and LSM programs are called through.
    pub no_jit: bool,
}

impl LoadFailure {
    /// Where the log is in the buffer.
    #[must_use]
    pub fn log_range(&self) -> core::ops::Range<usize> {
        0..self.log_len as usize
    }
}

impl fmt::Display for LoadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel refuses it: {}", self.errno)?;
        if self.no_jit {
            f.write_str(
                ": the kernel has no BPF JIT, without which there are no fentry, fexit, fmod_ret and LSM programs",
            )?;
        }
        Ok(())
    }
}

impl core::error::Error for LoadFailure {}

/// The common course: without a log, then with one until it fits. `load` gets a buffer and says how long the log is.
fn with_log(
    mut load: impl FnMut(&mut [u8], &mut u32) -> Result<OwnedFd, Errno>,
    log: &mut dyn LogBuffer,
) -> Result<OwnedFd, LoadFailure> {
    let mut true_size = 0;
    let errno = match load(&mut [], &mut true_size) {
        Ok(fd) => return Ok(fd),
        Err(errno) => errno,
    };
    let mut failure = LoadFailure { errno, log_len: 0, log_true_size: 0, truncated: false, no_jit: false };
    for _ in 0..LOG_TRIES {
        let buffer = log.bytes();
        let len = buffer.len();
        if len == 0 {
            break;
        }
        // Kernels leave the buffer alone when they refuse before they verify.
        buffer[0] = 0;
        buffer[len - 1] = 0;
        let result = load(buffer, &mut true_size);
        let text = buffer.iter().position(|byte| *byte == 0).unwrap_or(len);
        failure.log_len = text as u32;
        failure.log_true_size = true_size;
        match result {
            // It was a passing trouble, or one of the environment.
            Ok(fd) => return Ok(fd),
            Err(Errno::ENOSPC) => {
                failure.truncated = true;
                let wanted = match true_size as usize {
                    size if size > len => size,
                    _ => len.saturating_mul(2),
                };
                if !log.grow(wanted) {
                    break;
                }
            }
            Err(_) => {
                failure.truncated = true_size as usize > len;
                break;
            }
        }
    }
    Err(failure)
}

/// Loads a program of `insns` (8 bytes each, in the host's byte order).
///
/// Where the kernel refuses for want of locked memory, the limit is raised as `spec.memlock` allows; where it refuses an
/// optional attach type, that is left out. The log's text is in `log` at [`LoadFailure::log_range`].
///
/// # Errors
/// [`LoadFailure`].
pub fn load_program(spec: &ProgramSpec<'_>, insns: &[u8], log: &mut dyn LogBuffer) -> Result<OwnedFd, LoadFailure> {
    let version = KernelVersion::running();
    let mut block = bpf::ProgLoad {
        prog_type: spec.prog_type,
        expected_attach_type: spec.expected_attach_type,
        insns,
        license: spec.license,
        kern_version: spec.kern_version.unwrap_or(version.0),
        flags: spec.flags,
        // Kernels before 4.15 have no names.
        name: if version >= KernelVersion::new(4, 15, 0) { kernel_name(spec.name) } else { [0; 16] },
        ifindex: spec.ifindex,
        btf_fd: spec.btf_fd,
        func_info: spec.func_info,
        func_info_rec_size: spec.func_info_rec_size,
        line_info: spec.line_info,
        line_info_rec_size: spec.line_info_rec_size,
        attach_btf_id: spec.attach_btf_id,
        attach_fd: spec.attach_fd,
        fd_array: spec.fd_array,
        fd_array_cnt: spec.fd_array_cnt,
        log_level: spec.log_level,
    };
    with_log(
        |log, true_size| {
            let mut interrupted = 0;
            loop {
                match bpf::prog_load(&block, log, true_size) {
                    Err(Errno::EAGAIN) if interrupted < EAGAIN_TRIES => interrupted += 1,
                    Err(errno) if raised_after(errno, spec.memlock) => {}
                    Err(Errno::EINVAL | Errno::E2BIG)
                        if spec.attach_type_optional && block.expected_attach_type != 0 =>
                    {
                        // Without it the program fails for the same reason or loads; a log, if any, is of this try.
                        block.expected_attach_type = 0;
                    }
                    result => return result,
                }
            }
        },
        log,
    )
    .map_err(|failure| explained(failure, spec, has_jit))
}

/// bpf_trampoline_get of a kernel without a JIT finds nothing, which check_attach_btf_id takes for a lack of memory.
fn explained(failure: LoadFailure, spec: &ProgramSpec<'_>, has_jit: impl Fn() -> bool) -> LoadFailure {
    let no_jit = failure.errno == Errno::ENOMEM && spec.attach_btf_id != 0 && !has_jit();
    LoadFailure { no_jit, ..failure }
}

/// The switch is there on every kernel with a JIT. Where there is no /proc, or it is closed, nothing is known, and so
/// nothing said of a JIT.
fn has_jit() -> bool {
    let missing = |path: &CStr| files::exists(path) == Ok(false);
    let there = |path: &CStr| files::exists(path) == Ok(true);
    !(missing(c"/proc/sys/net/core/bpf_jit_enable") && there(c"/proc/sys/net/core"))
}

/// Loads a BTF blob.
///
/// # Errors
/// [`LoadFailure`].
pub fn load_btf(btf: &[u8], log: &mut dyn LogBuffer, memlock: Memlock) -> Result<OwnedFd, LoadFailure> {
    with_log(
        |log, true_size| loop {
            match bpf::btf_load(btf, log, 1, true_size) {
                Err(errno) if raised_after(errno, memlock) => {}
                result => return result,
            }
        },
        log,
    )
}

/// Opens a loaded program by the number that the kernel gave it.
///
/// # Errors
/// ENOENT where there is none, EPERM without CAP_SYS_ADMIN.
pub fn program_by_id(id: u32) -> Result<OwnedFd, Errno> {
    bpf::fd_by_id(bpf::ObjectKind::Program, id)
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert!(
            said.starts_with("the kernel refuses it: out of memory (ENOMEM): the kernel has no BPF JIT, "),
            "{said}"
        );
        assert!(!explained(failure, &tracing, || true).no_jit);
        assert!(!explained(failure, &spec(), || false).no_jit);
        assert!(!explained(LoadFailure { errno: Errno::EINVAL, ..failure }, &tracing, || false).no_jit);
    }

    #[test]
    fn case_30_a_good_program_is_loaded_once_without_a_log() {
        let (result, calls) = load(spec(), &mut &mut [0u8; 64][..], |_, block| {
            assert_eq!(u32_at(block, LOG_SIZE), 0);
            Ok(some_fd())
        });
        assert_eq!((result, calls), (Ok(()), 1));
    }

    #[test]
    fn case_31_eagain_is_retried_five_times() {
        let (result, calls) =
            load(spec(), &mut &mut [][..], |call, _| if call <= 5 { Err(Errno::EAGAIN) } else { Ok(some_fd()) });
        assert_eq!((result, calls), (Ok(()), 6));
        let (result, calls) = load(spec(), &mut &mut [][..], |_, _| Err(Errno::EAGAIN));
        assert_eq!((result.unwrap_err().errno, calls), (Errno::EAGAIN, 6));
    }

    #[test]
    fn case_30_the_log_grows_to_the_stated_size_at_once() {
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
    fn case_30_enospc_for_ever_and_efault_for_ever_end() {
        let mut log = GrowingLog::new(256, 1 << 20);
        let (result, calls) =
            load(spec(), &mut log, |call, _| Err(if call == 1 { Errno::EACCES } else { Errno::ENOSPC }));
        let failure = result.unwrap_err();
        assert_eq!(failure.errno, Errno::EACCES);
        assert!(failure.truncated);
        assert_eq!(calls, 1 + LOG_TRIES as usize);
        let (result, calls) = load(spec(), &mut log, |_, _| Err(Errno::EFAULT));
        assert_eq!((result.unwrap_err().errno, calls), (Errno::EFAULT, 2));
    }

    #[test]
    fn case_30_a_fixed_buffer_keeps_the_tail_and_the_errno_of_the_first_try() {
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
    fn case_26_an_optional_attach_type_is_left_out() {
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
}

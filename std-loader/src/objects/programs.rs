//! Loading programs, and what a kernel that refuses one is given instead.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::maps::kernel_name;
use super::memlock::{Memlock, raised_after};
use super::verifier_log::{LoadFailure, LogBuffer, with_log};
use crate::sys::files;
use crate::sys::version::KernelVersion;
use crate::sys::{Errno, bpf};

/// How often EAGAIN (the verifier was interrupted by a signal) is answered by loading again.
pub const EAGAIN_TRIES: u32 = 5;
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

/// Opens a loaded program by the number that the kernel gave it.
///
/// # Errors
/// ENOENT where there is none, EPERM without CAP_SYS_ADMIN.
pub fn program_by_id(id: u32) -> Result<OwnedFd, Errno> {
    bpf::fd_by_id(bpf::ObjectKind::Program, id)
}

#[cfg(test)]
mod tests;

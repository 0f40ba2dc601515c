//! Programs: `BPF_PROG_*`.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::super::attr;
use super::super::{Errno, raw_bpf};
use super::{address, address_mut, bpf_fd, c_address, cmd, given, length, raw};

/// What BPF_PROG_LOAD gets, borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgLoad<'a> {
    pub(crate) prog_type: u32,
    pub(crate) expected_attach_type: u32,
    pub(crate) insns: &'a [u8],
    pub(crate) license: &'a CStr,
    pub(crate) kern_version: u32,
    pub(crate) flags: u32,
    pub(crate) name: [u8; 16],
    pub(crate) ifindex: u32,
    pub(crate) btf_fd: Option<BorrowedFd<'a>>,
    pub(crate) func_info: &'a [u8],
    pub(crate) func_info_rec_size: u32,
    pub(crate) line_info: &'a [u8],
    pub(crate) line_info_rec_size: u32,
    pub(crate) attach_btf_id: u32,
    pub(crate) attach_fd: Option<BorrowedFd<'a>>,
    pub(crate) fd_array: &'a [i32],
    pub(crate) fd_array_cnt: u32,
    pub(crate) log_level: u32,
}

fn records(bytes: &[u8], size: u32) -> u32 {
    // Whole records only, so that the kernel reads no byte beyond the slice.
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).checked_div(size).unwrap_or(0)
}

/// Whether the fd array has what the instructions name by index: the kernel is told its length from Linux 6.14 on only, and
/// only where all of it is to be bound to the program.
fn has_all(fd_array: &[i32], insns: &[u8]) -> bool {
    const CALL: u8 = 0x85;
    const LD_IMM64: u8 = 0x18;
    let registers = |byte: u8| if cfg!(target_endian = "big") { byte & 0xf } else { byte >> 4 };
    insns.as_chunks::<8>().0.iter().all(|insn| {
        let index = match (insn[0], registers(insn[1])) {
            // BPF_PSEUDO_KFUNC_CALL: the index is the offset, and 0 is vmlinux, which needs no array.
            (CALL, 2) => usize::from(u16::from_ne_bytes([insn[2], insn[3]])),
            // BPF_PSEUDO_MAP_IDX, BPF_PSEUDO_MAP_IDX_VALUE: it is the immediate.
            (LD_IMM64, 5 | 6) => u32::from_ne_bytes([insn[4], insn[5], insn[6], insn[7]]) as usize,
            _ => return true,
        };
        fd_array.is_empty() || index < fd_array.len()
    })
}

/// BPF_PROG_LOAD. The second result is log_true_size: 0 on kernels before 6.4 and without a log.
pub(crate) fn prog_load(load: &ProgLoad<'_>, log: &mut [u8], log_true_size: &mut u32) -> Result<OwnedFd, Errno> {
    if !has_all(load.fd_array, load.insns) {
        return Err(Errno::EINVAL);
    }
    let func_info_cnt = records(load.func_info, load.func_info_rec_size);
    let line_info_cnt = records(load.line_info, load.line_info_rec_size);
    let mut block = attr::ProgLoad {
        prog_type: load.prog_type,
        insn_cnt: length(load.insns)? / 8,
        insns: address(load.insns),
        license: c_address(load.license),
        log_level: if log.is_empty() { 0 } else { load.log_level },
        log_size: length(log)?,
        log_buf: address_mut(log),
        kern_version: load.kern_version,
        prog_flags: load.flags,
        prog_name: load.name,
        prog_ifindex: load.ifindex,
        expected_attach_type: load.expected_attach_type,
        prog_btf_fd: given(load.btf_fd)?,
        func_info_rec_size: load.func_info_rec_size * u32::from(func_info_cnt > 0),
        func_info: if func_info_cnt > 0 { address(load.func_info) } else { 0 },
        func_info_cnt,
        line_info_rec_size: load.line_info_rec_size * u32::from(line_info_cnt > 0),
        line_info: if line_info_cnt > 0 { address(load.line_info) } else { 0 },
        line_info_cnt,
        attach_btf_id: load.attach_btf_id,
        attach_fd: given(load.attach_fd)?,
        fd_array: address(load.fd_array),
        fd_array_cnt: load.fd_array_cnt.min(load.fd_array.len() as u32),
        ..attr::zeroed()
    };
    // SAFETY: instructions, licence (NUL-terminated), both info tables and the log have the lengths given beside them;
    // of the fd array the kernel reads what the instructions name, which was just seen to be there. The result is a new descriptor.
    let result = unsafe { bpf_fd(cmd::PROG_LOAD, &mut block) };
    *log_true_size = block.log_true_size;
    result
}

/// BPF_PROG_ATTACH: the way of kernels, and of targets (sockmap), that have no link.
pub(crate) fn prog_attach(
    target: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    attach_type: u32,
    flags: u32,
) -> Result<(), Errno> {
    let mut block = attr::ProgAttach {
        target_fd: raw(target),
        attach_bpf_fd: raw(program),
        attach_type,
        attach_flags: flags,
        ..attr::zeroed()
    };
    // SAFETY: no pointers.
    unsafe { raw_bpf(cmd::PROG_ATTACH, &mut block) }.map(drop)
}

/// BPF_PROG_DETACH.
pub(crate) fn prog_detach(target: BorrowedFd<'_>, program: BorrowedFd<'_>, attach_type: u32) -> Result<(), Errno> {
    let mut block =
        attr::ProgAttach { target_fd: raw(target), attach_bpf_fd: raw(program), attach_type, ..attr::zeroed() };
    // SAFETY: no pointers.
    unsafe { raw_bpf(cmd::PROG_DETACH, &mut block) }.map(drop)
}

/// What BPF_PROG_TEST_RUN gets. Empty slices are "not given".
#[derive(Debug, Default)]
pub struct TestRun<'a> {
    /// The packet.
    pub data_in: &'a [u8],
    /// Where the packet goes after the run.
    pub data_out: &'a mut [u8],
    /// The context; `syscall` programs write to it.
    pub ctx_in: &'a mut [u8],
    /// Where the context goes after the run (not for raw tracepoints and `syscall`).
    pub ctx_out: &'a mut [u8],
    /// How many times; 0 is once.
    pub repeat: u32,
    /// BPF_F_TEST_RUN_ON_CPU (1) and the like.
    pub flags: u32,
    /// The CPU, with that flag.
    pub cpu: u32,
    /// Batch size of live XDP frames.
    pub batch_size: u32,
}

/// What BPF_PROG_TEST_RUN answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestRunResult {
    /// What the program returned.
    pub retval: u32,
    /// Nanoseconds of one run, averaged over the repeats.
    pub duration_ns: u32,
    /// Bytes of the packet after the run.
    pub data_size: u32,
    /// Bytes of the context after the run.
    pub ctx_size: u32,
}

/// BPF_PROG_TEST_RUN. EAGAIN (interrupted by a signal) is retried at most 5 times.
///
/// # Errors
/// ENOTSUPP (524) where the program type has no test run, ENOSPC where an output slice was too short.
pub fn prog_test_run(program: BorrowedFd<'_>, run: &mut TestRun<'_>) -> Result<TestRunResult, Errno> {
    let mut block = attr::TestRun {
        prog_fd: raw(program),
        data_size_in: length(run.data_in)?,
        data_size_out: length(run.data_out)?,
        data_in: address(run.data_in),
        data_out: address_mut(run.data_out),
        repeat: run.repeat,
        ctx_size_in: length(run.ctx_in)?,
        ctx_size_out: length(run.ctx_out)?,
        ctx_in: address_mut(run.ctx_in),
        ctx_out: address_mut(run.ctx_out),
        flags: run.flags,
        cpu: run.cpu,
        batch_size: run.batch_size,
        ..attr::zeroed()
    };
    let asked = block;
    for attempt in 0.. {
        // SAFETY: all four buffers have the lengths given beside them, and those that the kernel may write to
        // (`ctx_in` too) are borrowed mutably.
        match unsafe { raw_bpf(cmd::PROG_TEST_RUN, &mut block) } {
            Err(Errno::EAGAIN) if attempt < 5 => block = asked,
            Err(errno) => return Err(errno),
            Ok(_) => break,
        }
    }
    Ok(TestRunResult {
        retval: block.retval,
        duration_ns: block.duration,
        data_size: block.data_size_out,
        ctx_size: block.ctx_size_out,
    })
}

/// BPF_PROG_BIND_MAP (Linux 5.10): the map lives as long as the program, as for `.rodata` that only tools read.
///
/// # Errors
/// EINVAL on older kernels.
pub fn prog_bind_map(program: BorrowedFd<'_>, map: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut block = attr::ProgBindMap { prog_fd: raw(program), map_fd: raw(map), flags: 0 };
    // SAFETY: no pointers.
    unsafe { raw_bpf(cmd::PROG_BIND_MAP, &mut block) }.map(drop)
}

//! The trials: programs of a few instructions, maps of one element, calls that fail in a telling way.
//!
//! Each answers `Ok(true)` or `Ok(false)` where the kernel's answer is beyond doubt, else with the error number. What is
//! created is closed again before it returns.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use corelo_core::insn::pseudo;
use corelo_core::uapi::{AttachType, BPF_F_MMAPABLE, ProgType, helper, map_type};

use super::{Feature, btf};
use crate::objects::{MapFd, MapSpec, Memlock, ProgramSpec, load_btf, load_program, maps};
use crate::sys::bpf::{CStrAddress, Functions};
use crate::sys::{Errno, bpf};

type Insn = [u8; 8];

const fn insn(opcode: u8, dst: u8, src: u8, imm: i32) -> Insn {
    // Two fields of four bits: the first is in the low half on little-endian hosts only.
    let registers = if cfg!(target_endian = "big") { dst << 4 | src } else { src << 4 | dst };
    let imm = imm.to_ne_bytes();
    [opcode, registers, 0, 0, imm[0], imm[1], imm[2], imm[3]]
}

const fn move_imm(register: u8, value: i32) -> Insn {
    insn(0xb7, register, 0, value)
}

const fn call(helper: i32) -> Insn {
    insn(0x85, 0, 0, helper)
}

const EXIT: Insn = insn(0x95, 0, 0, 0);
const RETURN_0: [Insn; 2] = [move_imm(0, 0), EXIT];

pub(super) fn run(feature: Feature, memlock: Memlock) -> Result<bool, Errno> {
    if feature == Feature::ArgCtx {
        return context_tag(memlock);
    }
    if let Some(blob) = btf::blob(feature) {
        return load_blob(blob.as_bytes(), memlock).map(|_| true);
    }
    let load = |spec: ProgramSpec<'_>, insns: &[Insn]| program(spec, insns, memlock);
    let new = ProgramSpec::new;
    let loaded = |result: Result<OwnedFd, Errno>| result.map(|_| true);
    match feature {
        Feature::ModuleBtf => module_btf(memlock),
        Feature::ProgName => program_name(memlock),
        Feature::GlobalData => global_data(memlock),
        Feature::ArrayMmap => array(BPF_F_MMAPABLE, memlock).map(|_| true),
        Feature::ExpAttachType => loaded(load(
            ProgramSpec { expected_attach_type: AttachType::CGROUP_INET_SOCK_CREATE.0, ..new(ProgType::CGROUP_SOCK.0) },
            &RETURN_1,
        )),
        Feature::ProbeReadKernel => loaded(load(
            new(ProgType::TRACEPOINT.0),
            &[
                // r1 = r10 - 8: eight bytes of stack
                insn(0xbf, 1, 10, 0),
                insn(0x07, 1, 0, -8),
                move_imm(2, 8),
                move_imm(3, 0),
                call(helper::PROBE_READ_KERNEL),
                EXIT,
            ],
        )),
        Feature::ProgBindMap => {
            let map = array(0, memlock)?;
            let program = load(new(ProgType::SOCKET_FILTER.0), &RETURN_0)?;
            bpf::prog_bind_map(program.as_fd(), map.as_fd()).map(|()| true)
        }
        Feature::PerfLink => {
            let program = load(new(ProgType::TRACEPOINT.0), &RETURN_0)?;
            // There is no event of this number: a kernel that knows the link looks for it.
            expect(
                Errno::EBADF,
                bpf::link_create(program.as_fd(), u32::MAX, AttachType::PERF_EVENT.0, 0, &bpf::LinkTarget::Plain),
            )
        }
        Feature::BpfCookie => loaded(load(new(ProgType::TRACEPOINT.0), &[call(helper::GET_ATTACH_COOKIE), EXIT])),
        // The helper came with the accounting, which shows nowhere else; libbpf looks for the same.
        Feature::MemcgAccount => {
            loaded(load(new(ProgType::SOCKET_FILTER.0), &[call(helper::KTIME_GET_COARSE_NS), EXIT]))
        }
        Feature::LogTrueSize => log_true_size(memlock),
        Feature::LdImm64FullRange => full_range_load(memlock),
        Feature::KprobeMulti => {
            let program = load(
                ProgramSpec { expected_attach_type: AttachType::TRACE_KPROBE_MULTI.0, ..new(ProgType::KPROBE.0) },
                &RETURN_0,
            )?;
            // A kernel that knows the link looks for the function, which no kernel has.
            expect(
                Errno::ESRCH,
                bpf::link_create(
                    program.as_fd(),
                    0,
                    AttachType::TRACE_KPROBE_MULTI.0,
                    0,
                    &bpf::LinkTarget::KprobeMulti {
                        functions: Functions::Symbols(&[CStrAddress::new(c"corelo_no_such_function")]),
                        cookies: &[],
                        flags: 0,
                    },
                ),
            )
        }
        Feature::UprobeMulti => {
            let program = load(
                ProgramSpec { expected_attach_type: AttachType::TRACE_UPROBE_MULTI.0, ..new(ProgType::KPROBE.0) },
                &RETURN_0,
            )?;
            // A kernel that knows the link looks at the file, which is a directory.
            expect(
                Errno::EBADF,
                bpf::link_create(
                    program.as_fd(),
                    0,
                    AttachType::TRACE_UPROBE_MULTI.0,
                    0,
                    &bpf::LinkTarget::UprobeMulti {
                        path: c"/",
                        offsets: &[0],
                        ref_ctr_offsets: &[],
                        cookies: &[],
                        pid: 0,
                        flags: 0,
                    },
                ),
            )
        }
        // The rest had blobs.
        _ => Err(Errno::EINVAL),
    }
}

/// What the verifier wants of cgroup programs: 0 or 1.
const RETURN_1: [Insn; 2] = [move_imm(0, 1), EXIT];

fn program(spec: ProgramSpec<'_>, insns: &[Insn], memlock: Memlock) -> Result<OwnedFd, Errno> {
    let spec = ProgramSpec { memlock, ..spec };
    load_program(&spec, insns.as_flattened(), &mut &mut [][..]).map_err(|failure| failure.errno)
}

fn load_blob(blob: &[u8], memlock: Memlock) -> Result<OwnedFd, Errno> {
    load_btf(blob, &mut &mut [][..], memlock).map_err(|failure| failure.errno)
}

/// A call that has to fail, and fails in one way only where the kernel knows what it is about.
fn expect(known: Errno, result: Result<OwnedFd, Errno>) -> Result<bool, Errno> {
    match result {
        Ok(_) => Ok(true),
        Err(errno) if errno == known => Ok(true),
        Err(errno) => Err(errno),
    }
}

/// An array of one value of 32 bytes.
fn array(map_flags: u32, memlock: Memlock) -> Result<MapFd, Errno> {
    let spec = MapSpec {
        map_type: map_type::ARRAY,
        key_size: 4,
        value_size: 32,
        max_entries: 1,
        map_flags,
        ..MapSpec::default()
    };
    maps::create(&spec, memlock)
}

/// Kernels with BTF for modules give BTF objects names, and so room for one in what they tell.
fn module_btf(memlock: Memlock) -> Result<bool, Errno> {
    let Some(blob) = btf::blob(Feature::Btf) else {
        return Ok(false);
    };
    let fd = load_blob(blob.as_bytes(), memlock)?;
    let mut name = [0; 64];
    bpf::btf_info(fd.as_fd(), &mut [], &mut name).map(|_| true)
}

/// Not by `load_program`, which leaves the name out where the kernel's version is too low for it.
fn program_name(memlock: Memlock) -> Result<bool, Errno> {
    // So that the limit is raised where it has to be.
    drop(program(ProgramSpec::new(ProgType::SOCKET_FILTER.0), &RETURN_0, memlock)?);
    let load = bpf::ProgLoad { name: maps::kernel_name(b"corelo_probe"), ..socket_filter(&RETURN_0) };
    bpf::prog_load(&load, &mut [], &mut 0).map(|_| true)
}

/// A global function that passes its parameter to a helper, which wants the context.
fn context_tag(memlock: Memlock) -> Result<bool, Errno> {
    let Some(blob) = btf::blob(Feature::ArgCtx) else {
        return Ok(false);
    };
    let btf = load_blob(blob.as_bytes(), memlock)?;
    /// BPF_PSEUDO_CALL.
    const FUNCTION: u8 = 1;
    let insns = [insn(0x85, 0, FUNCTION, 1), EXIT, call(helper::GET_FUNC_IP), EXIT];
    // Where each function starts, and its type.
    let func_info = [0u32, 4, 2, 6].map(u32::to_ne_bytes);
    let spec = ProgramSpec {
        btf_fd: Some(btf.as_fd()),
        func_info: func_info.as_flattened(),
        func_info_rec_size: 8,
        ..ProgramSpec::new(ProgType::KPROBE.0)
    };
    program(spec, &insns, memlock).map(|_| true)
}

fn log_true_size(memlock: Memlock) -> Result<bool, Errno> {
    drop(program(ProgramSpec::new(ProgType::SOCKET_FILTER.0), &RETURN_0, memlock)?);
    let mut log = [0; 1024];
    let mut true_size = 0;
    let load = bpf::ProgLoad { log_level: 1, ..socket_filter(&RETURN_0) };
    drop(bpf::prog_load(&load, &mut log, &mut true_size)?);
    Ok(true_size != 0)
}

fn socket_filter(insns: &[Insn]) -> bpf::ProgLoad<'_> {
    bpf::ProgLoad {
        prog_type: ProgType::SOCKET_FILTER.0,
        expected_attach_type: 0,
        insns: insns.as_flattened(),
        license: c"GPL",
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
        fd_array: &[],
        fd_array_cnt: 0,
        log_level: 0,
    }
}

/// The address of an array's value and 2^30 bytes, which no kernel allows: one that takes any offset says that it leads
/// out of the value.
fn full_range_load(memlock: Memlock) -> Result<bool, Errno> {
    let map = array(0, memlock)?;
    let insns = [insn(0x18, 1, pseudo::MAP_VALUE, map.as_fd().as_raw_fd()), insn(0, 0, 0, 1 << 30), EXIT];
    let mut log = [0; 1024];
    let load = bpf::ProgLoad { log_level: 1, ..socket_filter(&insns) };
    let Err(errno) = bpf::prog_load(&load, &mut log, &mut 0) else { return Err(Errno::EINVAL) };
    let says = |words: &[u8]| log.windows(words.len()).any(|window| window == words);
    if says(b"invalid access to map value pointer") {
        Ok(true)
    } else if says(b"direct value offset of") {
        Ok(false)
    } else {
        Err(errno)
    }
}

/// Writes to the array's value by its address.
fn global_data(memlock: Memlock) -> Result<bool, Errno> {
    let map = array(0, memlock)?;
    let insns = [
        insn(0x18, 1, pseudo::MAP_VALUE, map.as_fd().as_raw_fd()),
        insn(0, 0, 0, 0),
        // *(u64 *)(r1 + 0) = 42
        insn(0x7a, 1, 0, 42),
        RETURN_0[0],
        RETURN_0[1],
    ];
    program(ProgramSpec::new(ProgType::SOCKET_FILTER.0), &insns, memlock).map(|_| true)
}

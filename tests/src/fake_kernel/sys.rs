//! The system calls of the fake kernel: the one place of this crate with `unsafe`.
//!
//! seccomp(2) and process_vm_readv(2) have no safe binding; the structs are those of `include/uapi/linux/seccomp.h`. The
//! ioctl numbers are the generic ones, which x86, ARM, RISC-V and s390 have.

#![expect(unsafe_code, reason = "seccomp user notification and another process's memory: no crate offers them")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const SECCOMP_SET_MODE_FILTER: libc::c_long = 1;
const SECCOMP_FILTER_FLAG_NEW_LISTENER: libc::c_long = 1 << 3;
const RET_USER_NOTIF: u32 = 0x7fc0_0000;
const RET_ALLOW: u32 = 0x7fff_0000;
const FLAG_CONTINUE: u32 = 1;
const NOTIF_RECV: u32 = 0xc050_2100;
const NOTIF_SEND: u32 = 0xc018_2101;
const NOTIF_ADDFD: u32 = 0x4018_2103;

/// `struct seccomp_notif`, `struct seccomp_data` in it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Notification {
    pub(super) id: u64,
    pub(super) pid: u32,
    flags: u32,
    pub(super) number: i32,
    arch: u32,
    instruction_pointer: u64,
    pub(super) args: [u64; 6],
}

#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct AddFd {
    id: u64,
    flags: u32,
    source: u32,
    new: u32,
    new_flags: u32,
}

const _: () = assert!(size_of::<Notification>() == 80 && size_of::<Response>() == 24 && size_of::<AddFd>() == 24);

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// From now on the calls of these numbers, by this thread and what it starts, wait for an answer through the descriptor.
pub(super) fn listen(numbers: &[libc::c_long]) -> io::Result<OwnedFd> {
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    // BPF_LD|BPF_W|BPF_ABS of seccomp_data.nr, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K.
    let mut program = vec![statement(0x20, 0)];
    for &number in numbers {
        program.push(libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: number as u32 });
        program.push(statement(0x06, RET_USER_NOTIF));
    }
    program.push(statement(0x06, RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let install = || {
        // SAFETY: the filter and its program are live, of the length given; the kernel copies both.
        checked(unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                SECCOMP_SET_MODE_FILTER,
                SECCOMP_FILTER_FLAG_NEW_LISTENER,
                std::ptr::from_ref(&filter),
            )
        })
    };
    let fd = install().or_else(|_| {
        // Who lacks CAP_SYS_ADMIN must give up the rights that programs get by being executed.
        // SAFETY: takes no pointers.
        checked(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }))?;
        install()
    })?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Whether a call waits (`Some(true)`), or nobody is left who could make one (`None`).
pub(super) fn wait(listener: BorrowedFd<'_>, milliseconds: i32) -> io::Result<Option<bool>> {
    let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one live pollfd.
    checked(libc::c_long::from(unsafe { libc::poll(&raw mut poll, 1, milliseconds) }))?;
    let is_waiting = poll.revents & libc::POLLIN != 0;
    Ok(if !is_waiting && poll.revents & libc::POLLHUP != 0 { None } else { Some(is_waiting) })
}

fn ioctl<T>(listener: BorrowedFd<'_>, request: u32, argument: &mut T) -> io::Result<i32> {
    // SAFETY: the three requests take a pointer to a struct of the size that is in their number, and each caller below
    // passes that one.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, listener.as_raw_fd(), request, std::ptr::from_mut(argument)) };
    checked(result).map(|number| number as i32)
}

pub(super) fn receive(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    let mut call = Notification::default();
    ioctl(listener, NOTIF_RECV, &mut call).map(|_| call)
}

/// Lets the kernel itself answer.
pub(super) fn pass_on(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    ioctl(listener, NOTIF_SEND, &mut Response { id, value: 0, error: 0, flags: FLAG_CONTINUE }).map(drop)
}

/// Answers with a result or an error number.
pub(super) fn answer(listener: BorrowedFd<'_>, id: u64, result: Result<i64, i32>) -> io::Result<()> {
    let (value, error) = match result {
        Ok(value) => (value, 0),
        Err(errno) => (0, -errno),
    };
    ioctl(listener, NOTIF_SEND, &mut Response { id, value, error, flags: 0 }).map(drop)
}

/// Gives the caller a copy of a descriptor; the result is its number there.
pub(super) fn give(listener: BorrowedFd<'_>, id: u64, fd: BorrowedFd<'_>) -> io::Result<i32> {
    let source = fd.as_raw_fd() as u32;
    let new_flags = libc::O_CLOEXEC as u32;
    ioctl(listener, NOTIF_ADDFD, &mut AddFd { id, flags: 0, source, new: 0, new_flags })
}

fn vectors(local: *mut u8, len: usize, remote: u64) -> (libc::iovec, libc::iovec) {
    let remote = std::ptr::with_exposed_provenance_mut(remote as usize);
    (libc::iovec { iov_base: local.cast(), iov_len: len }, libc::iovec { iov_base: remote, iov_len: len })
}

/// Reads another process's memory, or this one's; the result is how many bytes could be.
pub(super) fn read(pid: u32, address: u64, out: &mut [u8]) -> io::Result<usize> {
    let (local, remote) = vectors(out.as_mut_ptr(), out.len(), address);
    // SAFETY: the local vector is `out`; the remote one is looked up by the kernel, which fails where nothing is.
    let result = unsafe { libc::process_vm_readv(pid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
    checked(result as libc::c_long).map(|len| len as usize)
}

/// Writes to the memory of a process that waits for an answer to a call that would have the kernel write there.
pub(super) fn write(pid: u32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let (local, remote) = vectors(bytes.as_ptr().cast_mut(), bytes.len(), address);
    // SAFETY: the local vector is `bytes`, which the kernel reads. What is written to is the buffer that the waiting call
    // named for the kernel to write to, so nobody else may rely on its contents meanwhile.
    let result = unsafe { libc::process_vm_writev(pid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
    match checked(result as libc::c_long)? {
        len if len as usize == bytes.len() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// A file of memory with these bytes, to be read from its start.
pub(super) fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    use std::io::{Seek, Write};
    // SAFETY: a NUL-terminated name.
    let fd = checked(libc::c_long::from(unsafe { libc::memfd_create(c"fake".as_ptr(), libc::MFD_CLOEXEC) }))?;
    // SAFETY: the kernel has just made this descriptor for us.
    let mut file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// The BTF of an id, as the real kernel has it.
pub(super) fn btf_by_id(id: u32) -> io::Result<Vec<u8>> {
    const BTF_GET_FD_BY_ID: libc::c_long = 19;
    const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
    let mut block = [id, 0, 0, 0];
    // SAFETY: a block of 16 bytes, which has no pointers.
    let fd =
        checked(unsafe { libc::syscall(libc::SYS_bpf, BTF_GET_FD_BY_ID, block.as_mut_ptr(), size_of_val(&block)) })?;
    // SAFETY: the kernel has just made this descriptor for us.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        // struct bpf_btf_info: the buffer, its size, the id.
        let mut info = [bytes.as_mut_ptr().expose_provenance() as u64, bytes.len() as u64 & 0xffff_ffff];
        if cfg!(target_endian = "big") {
            info[1] <<= 32;
        }
        let head = [fd.as_raw_fd() as u32, size_of_val(&info) as u32].map(u32::to_ne_bytes);
        let mut block = [u64::from_ne_bytes(head.as_flattened().try_into().map_err(io::Error::other)?), 0];
        block[1] = info.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the block points to `info` of the size given, and that to `bytes` of the size given; both are live.
        checked(unsafe { libc::syscall(libc::SYS_bpf, OBJ_GET_INFO_BY_FD, block.as_mut_ptr(), size_of_val(&block)) })?;
        let size = if cfg!(target_endian = "big") { info[1] >> 32 } else { info[1] & 0xffff_ffff };
        if size as usize <= bytes.len() {
            bytes.truncate(size as usize);
            return Ok(bytes);
        }
        bytes.resize(size as usize, 0);
    }
}

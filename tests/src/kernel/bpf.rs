//! bpf(2), mount(2) and a seccomp filter as the tests themselves call them, with no line of the code under test: the smallest programs, maps and
//! links there are.

#![expect(
    unsafe_code,
    reason = "bpf(2) and mount(2) have no safe door but the code under test, and this crate ships to nobody"
)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::endian::Endian;
use crate::insn::Insn;

const MAP_CREATE: i64 = 0;
const PROG_LOAD: i64 = 5;
const RAW_TRACEPOINT_OPEN: i64 = 17;
const MAP_LOOKUP_AND_DELETE_ELEM: i64 = 21;
const BTF_GET_NEXT_ID: i64 = 23;
const LINK_CREATE: i64 = 28;
const PROG_BIND_MAP: i64 = 35;

/// `union bpf_attr`, as many bytes of it as any call here sets; the kernel takes the rest for zeros.
#[repr(C, align(8))]
struct Attr([u8; 144]);

impl Attr {
    fn new() -> Attr {
        Attr([0; 144])
    }

    fn word(mut self, at: usize, value: u32) -> Attr {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn address_mut<T>(mut self, at: usize, value: &mut [T]) -> Attr {
        self.0[at..at + 8].copy_from_slice(&(value.as_mut_ptr() as u64).to_ne_bytes());
        self
    }

    fn address<T>(mut self, at: usize, value: &[T]) -> Attr {
        self.0[at..at + 8].copy_from_slice(&(value.as_ptr() as u64).to_ne_bytes());
        self
    }
}

/// # Safety
/// Every address in `attr` must be that of as many bytes as the command reads or writes there.
unsafe fn call(command: i64, attr: &mut Attr) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes `attr`, whose size is told; the rest is the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command as libc::c_long, std::ptr::from_mut(attr), size_of::<Attr>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

/// # Safety
/// As [`call`], and the command must be one that returns a new descriptor.
unsafe fn bpf(command: i64, mut attr: Attr) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { call(command, &mut attr) }?;
    // SAFETY: a new descriptor is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One instruction: opcode, destination and source, immediate.
#[must_use]
pub fn insn(opcode: u8, (dst, src): (u8, u8), imm: i32) -> [u8; 8] {
    Insn::new(opcode, dst, src, 0, imm).bytes(Endian::native())
}

/// `r0 = VALUE; exit`.
#[must_use]
pub fn returning(value: i32) -> [[u8; 8]; 2] {
    [insn(0xb7, (0, 0), value), insn(0x95, (0, 0), 0)]
}

/// Creates a map.
///
/// # Errors
/// What the kernel said.
pub fn map(map_type: u32, key_size: u32, value_size: u32, max_entries: u32) -> io::Result<OwnedFd> {
    let attr = Attr::new().word(0, map_type).word(4, key_size).word(8, value_size).word(12, max_entries);
    // SAFETY: no address in it.
    unsafe { bpf(MAP_CREATE, attr) }
}

/// What a program is loaded as.
#[derive(Debug, Clone, Copy, Default)]
pub struct Program {
    /// `enum bpf_prog_type`.
    pub prog_type: u32,
    /// `enum bpf_attach_type`.
    pub attach_type: u32,
    /// The id of the kernel's type that it goes onto.
    pub attach_btf_id: u32,
    /// `BPF_F_SLEEPABLE` and the like.
    pub flags: u32,
}

impl Program {
    /// A program of this type and no more.
    #[must_use]
    pub fn new(prog_type: u32) -> Program {
        Program { prog_type, ..Program::default() }
    }

    /// Loads these instructions as such a program.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn load(self, insns: &[[u8; 8]]) -> io::Result<OwnedFd> {
        let attr = Attr::new()
            .word(0, self.prog_type)
            .word(4, insns.len() as u32)
            .address(8, insns)
            .address(16, c"GPL".to_bytes_with_nul())
            .word(44, self.flags)
            .word(68, self.attach_type)
            .word(108, self.attach_btf_id);
        // SAFETY: the instructions and the licence are as long as they say; there is no log.
        unsafe { bpf(PROG_LOAD, attr) }
    }
}

/// A link of a program with a descriptor or an interface.
///
/// # Errors
/// What the kernel said.
pub fn link(program: BorrowedFd<'_>, target: u32, attach_type: u32) -> io::Result<OwnedFd> {
    let attr = Attr::new().word(0, program.as_raw_fd() as u32).word(4, target).word(8, attach_type);
    // SAFETY: no address in it.
    unsafe { bpf(LINK_CREATE, attr) }
}

/// A link of a program with functions of the kernel (`kprobe_multi`), here with one.
///
/// # Errors
/// What the kernel said.
pub fn link_kprobe_multi(program: BorrowedFd<'_>, attach_type: u32, function: &str) -> io::Result<OwnedFd> {
    let name = CString::new(function)?;
    let names = [name.as_ptr() as u64];
    let attr = Attr::new().word(0, program.as_raw_fd() as u32).word(8, attach_type).word(20, 1).address(24, &names);
    // SAFETY: one name that ends with NUL.
    unsafe { bpf(LINK_CREATE, attr) }
}

/// A link of a program with a place in a file (`uprobe_multi`).
///
/// # Errors
/// What the kernel said.
pub fn link_uprobe_multi(program: BorrowedFd<'_>, attach_type: u32, path: &str) -> io::Result<OwnedFd> {
    let path = CString::new(path)?;
    let offsets = [0u64];
    let attr = Attr::new()
        .word(0, program.as_raw_fd() as u32)
        .word(8, attach_type)
        .address(16, path.as_bytes_with_nul())
        .address(24, &offsets)
        .word(48, 1);
    // SAFETY: a path that ends with NUL, and one offset.
    unsafe { bpf(LINK_CREATE, attr) }
}

/// Opens a raw tracepoint for a program; without a name, what its BTF id says (fentry and the like, `tp_btf`, LSM).
///
/// # Errors
/// What the kernel said.
pub fn raw_tracepoint(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let attr = Attr::new().word(8, program.as_raw_fd() as u32);
    // SAFETY: no name, so no address.
    unsafe { bpf(RAW_TRACEPOINT_OPEN, attr) }
}

/// Ties a map to a program that does not use it.
///
/// # Errors
/// What the kernel said.
pub fn bind_map(program: BorrowedFd<'_>, map: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = Attr::new().word(0, program.as_raw_fd() as u32).word(4, map.as_raw_fd() as u32);
    // SAFETY: no address in it.
    unsafe { call(PROG_BIND_MAP, &mut attr) }.map(drop)
}

/// Reads and removes an element of a hash map that has none.
///
/// # Errors
/// What the kernel said: ENOENT where it can.
pub fn take_element() -> io::Result<()> {
    let map = map(1, 4, 4, 1)?;
    let (key, mut value) = ([0u32], [0u32]);
    let mut attr = Attr::new().word(0, map.as_raw_fd() as u32).address(8, &key).address_mut(16, &mut value);
    // SAFETY: the map's keys and values have 4 bytes each.
    unsafe { call(MAP_LOOKUP_AND_DELETE_ELEM, &mut attr) }.map(drop)
}

/// The smallest id of a BTF object.
///
/// # Errors
/// What the kernel said.
pub fn first_btf_id() -> io::Result<u32> {
    let mut attr = Attr::new();
    // SAFETY: no address in it; the kernel writes the id into `attr`, behind the one to start from.
    unsafe { call(BTF_GET_NEXT_ID, &mut attr) }?;
    Ok(u32::from_ne_bytes([attr.0[4], attr.0[5], attr.0[6], attr.0[7]]))
}

/// Does something without a limit on locked memory, if we may, and puts the limit back.
pub fn without_memlock_limit<T>(then: impl FnOnce() -> T) -> Option<T> {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let none = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: both structures are there.
    let is_raised = unsafe {
        libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut before) == 0 && libc::setrlimit(libc::RLIMIT_MEMLOCK, &none) == 0
    };
    is_raised.then(|| {
        let done = then();
        // SAFETY: as above. It only goes down, which is always allowed.
        unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &before) };
        done
    })
}

/// A file system that is mounted until this goes.
#[derive(Debug)]
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts one of this type on a directory.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn new(fs_type: &str, on: &Path) -> io::Result<Mounted> {
        Mounted::with(fs_type, on, "")
    }

    /// The same with options.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn with(fs_type: &str, on: &Path, options: &str) -> io::Result<Mounted> {
        let (fs, path) = (CString::new(fs_type)?, CString::new(on.as_os_str().as_bytes())?);
        let options = CString::new(options)?;
        // SAFETY: texts that end with NUL, which is what these file systems take for options.
        let result = unsafe { libc::mount(fs.as_ptr(), path.as_ptr(), fs.as_ptr(), 0, options.as_ptr().cast()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Mounted(on.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Ok(path) = CString::new(self.0.as_os_str().as_bytes()) {
            // SAFETY: a path that ends with NUL. Who still has a file there keeps it.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        }
    }
}

/// The command, in a process for which `prctl(PR_GET_AUXV)` fails with EINVAL, as before Linux 6.4: seccomp(2) sees to that.
pub fn without_auxiliary_vector(command: &mut Command) -> &mut Command {
    const PR_GET_AUXV: u32 = 0x4155_5856;
    let insn = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    // `struct seccomp_data` has the number of the system call first, and its arguments from byte 16 on, 8 bytes each.
    let low = if cfg!(target_endian = "big") { 20 } else { 16 };
    let filter = [
        insn(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        insn(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 3, libc::SYS_prctl as u32),
        insn(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, low),
        insn(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, PR_GET_AUXV),
        insn(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
        insn(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    // SAFETY: between fork and exec there are two prctl(2) with what is on the stack, and no allocation.
    unsafe {
        command.pre_exec(move || {
            let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
            let failed = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0;
            if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
        })
    }
}

//! An ordinary user with exactly these capabilities: whom a service manager or a file's capabilities make.

#![expect(unsafe_code, reason = "a process that is to be another's changes itself between fork and exec")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `include/uapi/linux/capability.h`.
pub const CAP_NET_ADMIN: u32 = 12;
/// Nearly everything.
pub const CAP_SYS_ADMIN: u32 = 21;
/// Programs that read the kernel's memory, and perf events.
pub const CAP_PERFMON: u32 = 38;
/// Maps, BTF, programs of all types that are not another's matter.
pub const CAP_BPF: u32 = 39;

/// The user and group that own nothing.
const NOBODY: u32 = 65534;
/// `_LINUX_CAPABILITY_VERSION_3`: two words of each set.
const VERSION: u32 = 0x2008_0522;

/// Has the command run as `nobody`, with these capabilities permitted, effective, inheritable and ambient, so that they
/// outlive the exec, and no other. Only root may start it.
pub fn as_nobody<'c>(command: &'c mut Command, capabilities: &[u32]) -> &'c mut Command {
    let capabilities = capabilities.to_vec();
    // SAFETY: nothing but system calls on memory of this function: what is allowed between fork and exec.
    unsafe { command.pre_exec(move || become_nobody(&capabilities)) }
}

fn become_nobody(capabilities: &[u32]) -> io::Result<()> {
    let checked = |result: libc::c_long| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    let mut sets = [[0u32; 3]; 2];
    for capability in capabilities {
        for set in &mut sets[(capability / 32) as usize] {
            *set |= 1 << (capability % 32);
        }
    }
    let header = [VERSION, 0];
    // SAFETY: each call takes numbers, or pointers to arrays that live here and are as long as it reads. The raw calls
    // change this thread alone, which is the only one after a fork.
    unsafe {
        checked(libc::c_long::from(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0)))?;
        checked(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()))?;
        checked(libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY))?;
        checked(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY))?;
        checked(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()))?;
        for &capability in capabilities {
            let raise = libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong;
            checked(libc::c_long::from(libc::prctl(
                libc::PR_CAP_AMBIENT,
                raise,
                libc::c_ulong::from(capability),
                0 as libc::c_ulong,
                0 as libc::c_ulong,
            )))?;
        }
    }
    Ok(())
}

//! BTF objects that the kernel has, by name.

use std::os::fd::{AsFd, OwnedFd};

use crate::sys::Errno;
use crate::sys::bpf::{self, ObjectKind};

/// A descriptor and the id of the BTF object that the kernel calls `name`: a module's, for kfuncs (the fd array) and
/// attach targets. `None` where there is none. For vmlinux no descriptor is needed: 0 stands for it.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, which is what walking the kernel's ids takes; EINVAL before Linux 5.11.
pub fn btf_object(name: &str) -> Result<Option<(OwnedFd, u32)>, Errno> {
    let mut id = 0;
    while let Some(next) = bpf::next_id(ObjectKind::Btf, id)? {
        id = next;
        let fd = match bpf::fd_by_id(ObjectKind::Btf, id) {
            // It went away between the two calls.
            Err(Errno::ENOENT) => continue,
            result => result?,
        };
        let mut buffer = [0; 64];
        let info = match bpf::btf_info(fd.as_fd(), &mut [], &mut buffer) {
            Err(Errno::ENOSPC) => continue,
            result => result?,
        };
        let end = buffer.iter().position(|byte| *byte == 0);
        if info.kernel_btf && end.is_some_and(|end| &buffer[..end] == name.as_bytes()) {
            return Ok(Some((fd, id)));
        }
    }
    Ok(None)
}

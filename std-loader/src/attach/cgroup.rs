//! Programs on a cgroup and all below it. Only cgroup v2 has them: the directory is looked at before the kernel is asked.
//!
//! Linux 4.15, by links 5.7; CAP_BPF and CAP_NET_ADMIN

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{OFlags, fstatfs};

use super::tcx::Order;
use super::{Kind, Link, LinkError, call};
use crate::sys::files::{self, CPath};
use crate::sys::{Errno, bpf};

/// CGROUP_SUPER_MAGIC and CGROUP2_SUPER_MAGIC of uapi/linux/magic.h.
const CGROUP_V1: u64 = 0x0027_e0eb;
const CGROUP_V2: u64 = 0x6367_7270;
/// TMPFS_MAGIC: what holds the v1 mounts at /sys/fs/cgroup.
const TMPFS: u64 = 0x0102_1994;

/// Opens a cgroup's directory.
///
/// # Errors
/// [`LinkError::CgroupV1`], [`LinkError::NotCgroup`], [`LinkError::File`].
pub fn open(path: &Path) -> Result<OwnedFd, LinkError> {
    let error = |errno| LinkError::File { file: "the cgroup's directory", errno };
    let in_cgroup = path.starts_with("/sys/fs/cgroup");
    let path = CPath::new(path).map_err(error)?;
    let fd = files::open(path.as_c_str(), OFlags::RDONLY | OFlags::DIRECTORY).map_err(error)?;
    let found = fstatfs(&fd).map_err(|errno| error(errno.into()))?;
    // The field's type and sign differ between architectures; the magic is in the low half in all of them.
    match u64::from(found.f_type as u32) {
        CGROUP_V2 => Ok(fd),
        CGROUP_V1 => Err(LinkError::CgroupV1),
        TMPFS if in_cgroup => Err(LinkError::CgroupV1),
        _ => Err(LinkError::NotCgroup),
    }
}

/// Attaches to a cgroup by a link (Linux 5.7), else by BPF_PROG_ATTACH beside other programs. `attach_type` is the
/// program's.
///
/// # Errors
/// [`LinkError`].
pub fn attach(program: BorrowedFd<'_>, path: &Path, attach_type: u32, order: Order<'_>) -> Result<Link, LinkError> {
    /// BPF_F_ALLOW_MULTI.
    const ALLOW_MULTI: u32 = 1 << 1;
    let cgroup = open(path)?;
    let (flags, relative) = order.parts()?;
    let target = bpf::target_fd(cgroup.as_fd());
    let how = bpf::LinkTarget::Ordered { relative, expected_revision: 0 };
    match bpf::link_create(program, target, attach_type, flags, &how) {
        Ok(fd) => Ok(Link::from_fd(fd)),
        Err(Errno::EINVAL) if flags == 0 => {
            bpf::prog_attach(cgroup.as_fd(), program, attach_type, ALLOW_MULTI).map_err(call("BPF_PROG_ATTACH"))?;
            let program = match crate::sys::dup(program) {
                Ok(copy) => copy,
                Err(errno) => {
                    let _ = bpf::prog_detach(cgroup.as_fd(), program, attach_type);
                    return Err(call("dup")(errno));
                }
            };
            Ok(Link::new(Kind::Attached { target: cgroup, program, attach_type }))
        }
        Err(errno) => Err(call("BPF_LINK_CREATE")(errno)),
    }
}

//! Links from one program to many functions, and how a kernel says that it has none.

use std::os::fd::BorrowedFd;

use corelo_core::uapi::AttachType;

use super::{Link, LinkError, call};
use crate::kernel::KernelVersion;
use crate::sys::{Errno, bpf};

/// The kinds of links to many functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Multi {
    /// `kprobe.multi`, `kretprobe.multi`: Linux 5.18.
    Kprobe,
    /// `kprobe.session`: Linux 6.10.
    KprobeSession,
    /// `uprobe.multi`, `uretprobe.multi`: Linux 6.6.
    Uprobe,
    /// `uprobe.session`: Linux 6.13.
    UprobeSession,
    /// `fentry.multi`, `fexit.multi`, `fsession.multi`: after Linux 7.2.
    Tracing,
}

impl Multi {
    /// As sections are named.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Multi::Kprobe => "kprobe.multi",
            Multi::KprobeSession => "kprobe.session",
            Multi::Uprobe => "uprobe.multi",
            Multi::UprobeSession => "uprobe.session",
            Multi::Tracing => "fentry.multi",
        }
    }

    /// What a kernel needs to have them.
    #[must_use]
    pub fn needs(self) -> &'static str {
        match self {
            Multi::Kprobe => "Linux 5.18 with CONFIG_FPROBE, 64-bit",
            Multi::KprobeSession => "Linux 6.10 with CONFIG_FPROBE, 64-bit",
            Multi::Uprobe => "Linux 6.6 with CONFIG_UPROBES, 64-bit",
            Multi::UprobeSession => "Linux 6.13 with CONFIG_UPROBES, 64-bit",
            Multi::Tracing => "a Linux after 7.2",
        }
    }

    fn attach_type(self) -> u32 {
        match self {
            Multi::Kprobe => AttachType::TRACE_KPROBE_MULTI.0,
            Multi::KprobeSession => AttachType::TRACE_KPROBE_SESSION.0,
            Multi::Uprobe => AttachType::TRACE_UPROBE_MULTI.0,
            Multi::UprobeSession => AttachType::TRACE_UPROBE_SESSION.0,
            // The one of three that is the link's own, where no program says which.
            Multi::Tracing => AttachType::TRACE_FENTRY_MULTI.0,
        }
    }

    fn since(self) -> KernelVersion {
        match self {
            Multi::Kprobe => KernelVersion::new(5, 18, 0),
            Multi::KprobeSession => KernelVersion::new(6, 10, 0),
            Multi::Uprobe => KernelVersion::new(6, 6, 0),
            Multi::UprobeSession => KernelVersion::new(6, 13, 0),
            Multi::Tracing => KernelVersion::new(7, 3, 0),
        }
    }

    /// EOPNOTSUPP says that the kernel was built without it. EINVAL says many things: of a kernel that is older than these
    /// links, that it does not know them. (The version only explains the refusal, so a backport is no worse off.)
    fn explain(self, errno: Errno, running: impl Fn() -> KernelVersion) -> LinkError {
        match errno {
            Errno::EOPNOTSUPP => LinkError::NoMulti { multi: self, errno },
            Errno::EINVAL if running() < self.since() => LinkError::NoMulti { multi: self, errno },
            errno => call("BPF_LINK_CREATE")(errno),
        }
    }
}

pub(super) fn create(program: BorrowedFd<'_>, multi: Multi, how: &bpf::LinkTarget<'_>) -> Result<Link, LinkError> {
    create_as(program, multi, multi.attach_type(), how)
}

/// As [`create`], for links that take programs of several attach types.
pub(super) fn create_as(
    program: BorrowedFd<'_>,
    multi: Multi,
    attach_type: u32,
    how: &bpf::LinkTarget<'_>,
) -> Result<Link, LinkError> {
    bpf::link_create(program, 0, attach_type, 0, how)
        .map(Link::from_fd)
        .map_err(|errno| multi.explain(errno, KernelVersion::running))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_them_is_told_from_a_bad_call() {
        let missing = |multi, errno| LinkError::NoMulti { multi, errno };
        let kernel = |errno| LinkError::Kernel { call: "BPF_LINK_CREATE", errno };
        let rows = [
            (Multi::Kprobe, Errno::EOPNOTSUPP, (6, 18), missing(Multi::Kprobe, Errno::EOPNOTSUPP)),
            (Multi::Kprobe, Errno::EINVAL, (5, 17), missing(Multi::Kprobe, Errno::EINVAL)),
            (Multi::Kprobe, Errno::EINVAL, (5, 18), kernel(Errno::EINVAL)),
            (Multi::KprobeSession, Errno::EINVAL, (6, 9), missing(Multi::KprobeSession, Errno::EINVAL)),
            (Multi::Tracing, Errno::EINVAL, (7, 2), missing(Multi::Tracing, Errno::EINVAL)),
            (Multi::Uprobe, Errno::EINVAL, (6, 5), missing(Multi::Uprobe, Errno::EINVAL)),
            (Multi::Uprobe, Errno::ENOENT, (6, 5), kernel(Errno::ENOENT)),
            (Multi::UprobeSession, Errno::EINVAL, (6, 12), missing(Multi::UprobeSession, Errno::EINVAL)),
        ];
        for (multi, errno, (major, minor), wanted) in rows {
            let error = multi.explain(errno, || KernelVersion::new(major, minor, 0));
            assert_eq!(error, wanted, "{multi:?} {errno:?} {major}.{minor}");
            let is_named = error.to_string().contains(multi.name());
            assert_eq!(is_named, matches!(wanted, LinkError::NoMulti { .. }), "{error}");
        }
    }
}

//! Attaching: one small file for each kind of target.
//!
//! A [`Link`] detaches when it is dropped. Where the kernel has it, that is a `bpf_link` descriptor; older kernels attach
//! to perf events by an ioctl, to cgroups and sock maps by BPF_PROG_ATTACH, and tracefs probes have to be removed by
//! name. None of it uses the heap.
//!
//! What a program is attached by; each page says which Linux has it first, and which capabilities loading and
//! attaching take (before Linux 5.8 CAP_SYS_ADMIN instead of CAP_BPF and CAP_PERFMON; root has them all):
//!
//! - `by_section`: what a program's section says; [`Collection::attach`](crate::load::Collection::attach) goes through it
//! - [`tracepoint`]: tracepoints by tracefs
//! - [`raw_tracepoint`]: tracepoints with their own arguments
//! - [`tracing`]: fentry, fexit, fmod_ret, tp_btf and LSM programs, whose target the load fixed; freplace
//! - [`tracing_multi`]: fentry and its like on many functions
//! - [`kprobe`]: functions of the kernel, one or many
//! - [`ksyscall`]: system calls by their own names
//! - [`uprobe`]: functions of user programs, one or many
//! - [`usdt`]: static probes of user programs
//! - [`perf_event`]: counters and clocks of any PMU
//! - [`iter`][]: iterators
//! - [`cgroup`]: cgroups of version 2
//! - [`socket`]: sockets, sock maps and network namespaces
//! - [`xdp`]: network interfaces, before the stack
//! - [`tcx`]: network interfaces, in an order; netkit
//! - [`netfilter`]: netfilter's hooks
//! - [`struct_ops`]: tables of programs
//!
//! What these stand on:
//!
//! - [`symbols`]: where a function of a program or library is in its file
//! - `functions`: the kernel's functions that fit a pattern
//! - `glob`: patterns of names
//! - `multi`: one link from a program to many functions
//! - `since`: which Linux gained a kind of link
//! - `probe`: the PMUs of kprobes and uprobes
//! - `tracefs`: probes and tracepoints by files

mod by_section;
pub mod cgroup;
mod functions;
mod glob;
pub mod iter;
pub mod kprobe;
pub mod ksyscall;
mod multi;
pub mod netfilter;
pub mod perf_event;
mod probe;
pub mod raw_tracepoint;
mod since;
pub mod socket;
pub mod struct_ops;
pub mod symbols;
pub mod tcx;
mod tracefs;
pub mod tracepoint;
pub mod tracing;
pub mod tracing_multi;
pub mod uprobe;
pub mod usdt;
pub mod xdp;

use core::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::attach::symbols::SymbolError;
use crate::kernel::kallsyms::KallsymsError;
use crate::kernel::{KernelVersion, lockdown};
use crate::sys::{Errno, bpf, perf};

pub use crate::sys::bpf::{CStrAddress, Functions, LinkInfo, link_info};
pub use crate::sys::perf::{Sampling, Scope};
pub(crate) use by_section::{attach, names_target};
pub use multi::Multi;
pub use usdt::UsdtError;

/// Why a program is not attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// A call failed.
    Kernel {
        /// Which: its name.
        call: &'static str,
        /// How.
        errno: Errno,
    },
    /// A file that the attachment goes through cannot be read or written.
    File {
        /// What kind of file.
        file: &'static str,
        /// How.
        errno: Errno,
    },
    /// tracefs is mounted neither at /sys/kernel/tracing nor at /sys/kernel/debug/tracing (or may not be read).
    NoTracefs,
    /// The kernel has no tracepoint of this name.
    NoTracepoint,
    /// The kernel has neither a kprobe PMU nor kprobe_events (uprobes likewise): built without them.
    NoProbes,
    /// The directory belongs to cgroup v1, which BPF does not attach to: take one of the cgroup2 mount.
    CgroupV1,
    /// The directory is in no cgroup file system.
    NotCgroup,
    /// There is no network interface of this name.
    NoInterface,
    /// A probe's function, or file, or name has characters that tracefs cannot take.
    BadName,
    /// The program's section has a target that is not of the form that its kind has.
    MalformedTarget,
    /// Several functions of the kernel bear the name, and a kprobe is on one.
    SeveralFunctions,
    /// No kernel function that can be traced has the name or fits the pattern.
    NoFunction,
    /// The kernel has no system call of this name, or none that can be probed.
    NoSyscall,
    /// The functions of the probed file.
    Symbol(SymbolError),
    /// Addresses of kernel functions, or how its system calls are named.
    Kallsyms(KallsymsError),
    /// The kernel cannot attach to many functions by one link in this way.
    NoMulti {
        /// In which.
        multi: Multi,
        /// How it was refused.
        errno: Errno,
    },
    /// The kernel is older than this kind of link.
    TooOld {
        /// Which call was refused.
        call: &'static str,
        /// How.
        errno: Errno,
        /// The first Linux that has it.
        needs: KernelVersion,
    },
    /// The static probes of the probed file.
    Usdt(UsdtError),
    /// A reference counter is so far into its file that the uprobe PMU has no room for the offset: 32 bits.
    CounterOffset {
        /// The offset, in bytes.
        offset: u64,
    },
    /// The kernel's lockdown mode forbids it: confidentiality forbids programs that read kernel memory.
    Lockdown {
        /// Which call was refused.
        call: &'static str,
        /// How.
        errno: Errno,
    },
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::Kernel { call, errno } => write!(f, "{call}: {errno}"),
            LinkError::File { file, errno } => write!(f, "{file}: {errno}"),
            LinkError::NoTracefs => {
                f.write_str("tracefs is not there: mount -t tracefs tracefs /sys/kernel/tracing (as root)")
            }
            LinkError::NoTracepoint => f.write_str("this kernel has no such tracepoint"),
            LinkError::NoProbes => {
                f.write_str("this kernel has no such probes: neither their PMU nor their tracefs file is there")
            }
            LinkError::CgroupV1 => {
                f.write_str("a cgroup v1 directory, which BPF does not attach to: take one of the cgroup2 mount")
            }
            LinkError::NotCgroup => f.write_str("not a cgroup directory"),
            LinkError::NoInterface => f.write_str("no such network interface"),
            LinkError::BadName => f.write_str("a name that tracefs cannot take"),
            LinkError::MalformedTarget => f.write_str("the target in its section is malformed"),
            LinkError::SeveralFunctions => f.write_str(
                "several functions of the kernel bear this name (EADDRNOTAVAIL): attach to one by another name, or to all by kprobe.multi",
            ),
            LinkError::NoFunction => {
                f.write_str("no kernel function that can be traced has this name or fits this pattern")
            }
            LinkError::NoSyscall => f.write_str("this kernel has no such system call, or none that can be probed"),
            LinkError::Symbol(error) => error.fmt(f),
            LinkError::Kallsyms(error) => error.fmt(f),
            LinkError::NoMulti { multi, errno } => {
                write!(f, "this kernel has no {} links ({errno}): they need {}", multi.name(), multi.needs())
            }
            LinkError::TooOld { call, errno, needs } => {
                let (major, minor) = (needs.major(), needs.minor());
                write!(f, "{call}: {errno}: this kernel is too old: links of this kind need Linux {major}.{minor}")
            }
            LinkError::Usdt(error) => error.fmt(f),
            LinkError::CounterOffset { offset } => {
                write!(f, "the reference counter's offset {offset:#x} has more than the 32 bits that a uprobe takes")
            }
            LinkError::Lockdown { call, errno } => {
                write!(f, "{call}: {errno}: kernel lockdown is in confidentiality mode, which forbids it")
            }
        }
    }
}

impl core::error::Error for LinkError {}

impl LinkError {
    /// What the kernel answered, where it is the kernel that refuses something.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match *self {
            Self::Kernel { errno, .. }
            | Self::File { errno, .. }
            | Self::NoMulti { errno, .. }
            | Self::TooOld { errno, .. }
            | Self::Lockdown { errno, .. } => Some(errno),
            _ => None,
        }
    }
}

/// For `map_err`: names the call that failed, and lockdown where that may be why.
pub(crate) fn call(call: &'static str) -> impl Fn(Errno) -> LinkError {
    move |errno| explain(call, errno, lockdown::mode)
}

/// Lockdown refuses with EPERM or, where it disables a whole path, with EINVAL: neither is a sign of an old kernel then.
fn explain(call: &'static str, errno: Errno, mode: impl Fn() -> lockdown::Mode) -> LinkError {
    if matches!(errno, Errno::EPERM | Errno::EINVAL) && mode() == lockdown::Mode::Confidentiality {
        return LinkError::Lockdown { call, errno };
    }
    LinkError::Kernel { call, errno }
}

/// An attachment; dropping it detaches.
#[derive(Debug)]
#[must_use = "dropping a link detaches the program"]
pub struct Link {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A bpf_link, or the descriptor of BPF_RAW_TRACEPOINT_OPEN, which has been one since Linux 5.7.
    Bpf(OwnedFd),
    /// A perf event with a program on it, by a link or by the ioctl, and perhaps a probe in tracefs.
    Perf {
        link: Option<OwnedFd>,
        event: OwnedFd,
        #[expect(dead_code, reason = "held for its drop")]
        probe: Option<tracefs::Probe>,
    },
    /// Many of these, for one USDT probe.
    Sites(#[expect(dead_code, reason = "held for its drop")] usdt::Attached),
    /// BPF_PROG_ATTACH.
    Attached { target: OwnedFd, program: OwnedFd, attach_type: u32 },
    /// A struct_ops map of kernels without struct_ops links.
    StructOps(OwnedFd),
}

impl Link {
    pub(crate) fn from_fd(fd: OwnedFd) -> Link {
        Link { kind: Kind::Bpf(fd) }
    }

    fn new(kind: Kind) -> Link {
        Link { kind }
    }

    /// The bpf_link's descriptor, to pin or to ask about; `None` for the attachments of old kernels.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Bpf(fd) => Some(fd.as_fd()),
            Kind::Perf { link, .. } => link.as_ref().map(AsFd::as_fd),
            Kind::Sites(_) | Kind::Attached { .. } | Kind::StructOps(_) => None,
        }
    }

    /// Puts another program (for struct_ops: another map) behind the link, without a gap.
    ///
    /// # Errors
    /// EOPNOTSUPP where this is no bpf_link; EINVAL where its kind cannot.
    pub fn update(&self, new: BorrowedFd<'_>) -> Result<(), LinkError> {
        let link = self.fd().ok_or(LinkError::Kernel { call: "BPF_LINK_UPDATE", errno: Errno::EOPNOTSUPP })?;
        bpf::link_update(link, new, None).map_err(call("BPF_LINK_UPDATE"))
    }

    /// Detaches now and says whether that worked; dropping keeps silent. A bpf_link that is pinned or held by another
    /// descriptor is detached too, where its kind can be (Linux 5.9; closed otherwise).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn detach(self) -> Result<(), LinkError> {
        match &self.kind {
            Kind::Bpf(fd) => match bpf::link_detach(fd.as_fd()) {
                Ok(()) | Err(Errno::EOPNOTSUPP | Errno::EINVAL) => Ok(()),
                Err(errno) => Err(call("BPF_LINK_DETACH")(errno)),
            },
            Kind::Perf { event, .. } => perf::disable(event.as_fd()).map_err(call("PERF_EVENT_IOC_DISABLE")),
            // Dropping does these.
            Kind::Sites(_) | Kind::Attached { .. } | Kind::StructOps(_) => Ok(()),
        }
    }
}

impl Drop for Kind {
    fn drop(&mut self) {
        match self {
            Kind::Bpf(_) | Kind::Sites(_) => {}
            // The link goes before the event, the event before its probe: a probe in use cannot be removed. The event is
            // not disabled here, for a pinned link keeps it working.
            Kind::Perf { .. } => {}
            Kind::Attached { target, program, attach_type } => {
                // Nobody to tell; `target` may be gone.
                let _ = bpf::prog_detach(target.as_fd(), program.as_fd(), *attach_type);
            }
            Kind::StructOps(map) => struct_ops::unregister(map.as_fd()),
        }
    }
}

/// A link by BPF_LINK_CREATE.
fn create(
    object: BorrowedFd<'_>,
    target: u32,
    attach_type: u32,
    flags: u32,
    how: &bpf::LinkTarget<'_>,
) -> Result<Link, LinkError> {
    bpf::link_create(object, target, attach_type, flags, how).map(Link::from_fd).map_err(since::explain(attach_type))
}

/// The index of a network interface, for [`xdp`] and [`tcx`].
///
/// # Errors
/// [`LinkError::NoInterface`].
pub fn interface_index(name: &str) -> Result<u32, LinkError> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| call("socket")(errno.into()))?;
    rustix::net::netdevice::name_to_index(socket, name).map_err(|_| LinkError::NoInterface)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_under_lockdown_is_named() {
        for (errno, mode, locked) in [
            (Errno::EPERM, lockdown::Mode::Confidentiality, true),
            (Errno::EINVAL, lockdown::Mode::Confidentiality, true),
            (Errno::ENOENT, lockdown::Mode::Confidentiality, false),
            (Errno::EPERM, lockdown::Mode::Integrity, false),
            (Errno::EPERM, lockdown::Mode::None, false),
        ] {
            let error = explain("bpf", errno, || mode);
            assert_eq!(matches!(error, LinkError::Lockdown { .. }), locked);
            assert_eq!(error.to_string().contains("lockdown"), locked);
        }
    }
}

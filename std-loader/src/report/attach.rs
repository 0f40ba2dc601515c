//! Why a program is not attached.

use core::fmt;

use corelo_core::uapi::ProgType;
use rustix::thread::CapabilitySet;

use super::privileges::{self, capabilities};
use crate::attach::LinkError;
use crate::kernel::lockdown;
use crate::sys::Errno;

/// A [`LinkError`] with what a program of this type lacks where it is the kernel that forbids it.
#[derive(Clone, Copy, Debug)]
pub struct AttachReport {
    /// The program's type; `None` where its section does not say it.
    pub prog_type: Option<ProgType>,
    /// What went wrong.
    pub error: LinkError,
}

impl fmt::Display for AttachReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        match (is_forbidden(self.error), self.prog_type) {
            (true, Some(prog_type)) => f.write_str(refusal(prog_type, privileges::held(), lockdown::mode())),
            _ => Ok(()),
        }
    }
}

/// Whether it is a matter of who asks. Perf events are refused with EACCES.
fn is_forbidden(error: LinkError) -> bool {
    matches!(
        error,
        LinkError::Kernel { errno: Errno::EPERM, .. }
            | LinkError::Kernel { call: "perf_event_open", errno: Errno::EACCES }
    )
}

fn refusal(prog_type: ProgType, held: CapabilitySet, mode: lockdown::Mode) -> &'static str {
    let mut wanted = capabilities(prog_type);
    // Anybody may load one that filters packets; who attaches it is asked.
    if prog_type == ProgType::CGROUP_SKB {
        wanted |= CapabilitySet::NET_ADMIN;
    }
    match privileges::suffices(held, wanted) && is_of_cgroups(prog_type) {
        true => {
            ": though the capabilities are there: a program that allows none beside it is attached to this cgroup or to one above"
        }
        false => privileges::refusal(held, wanted, mode),
    }
}

fn is_of_cgroups(prog_type: ProgType) -> bool {
    matches!(
        prog_type,
        ProgType::CGROUP_SKB
            | ProgType::CGROUP_SOCK
            | ProgType::CGROUP_DEVICE
            | ProgType::CGROUP_SOCK_ADDR
            | ProgType::CGROUP_SYSCTL
            | ProgType::CGROUP_SOCKOPT
            | ProgType::SOCK_OPS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_to_attach_goes_by_the_programs_type() {
        let (none, mode) = (CapabilitySet::empty(), lockdown::Mode::None);
        for (prog_type, held, said) in [
            (ProgType::KPROBE, CapabilitySet::BPF, "CAP_BPF and CAP_PERFMON"),
            (ProgType::RAW_TRACEPOINT, none, "CAP_BPF and CAP_PERFMON"),
            (ProgType::XDP, none, "CAP_BPF and CAP_NET_ADMIN"),
            (ProgType::CGROUP_SKB, CapabilitySet::BPF, "CAP_BPF and CAP_NET_ADMIN"),
            (ProgType::SK_LOOKUP, none, "CAP_BPF"),
            (ProgType::CGROUP_SKB, CapabilitySet::SYS_ADMIN, "attached to this cgroup or to one above"),
            (ProgType::XDP, CapabilitySet::SYS_ADMIN, "a security module or a user namespace may be why"),
        ] {
            let words = refusal(prog_type, held, mode);
            assert!(words.ends_with(said), "{prog_type:?}: {words}");
        }
    }

    #[test]
    fn only_what_is_forbidden_is_a_matter_of_who_asks() {
        let kernel = |call, errno| LinkError::Kernel { call, errno };
        assert!(is_forbidden(kernel("BPF_LINK_CREATE", Errno::EPERM)));
        assert!(is_forbidden(kernel("perf_event_open", Errno::EACCES)));
        assert!(!is_forbidden(kernel("BPF_LINK_CREATE", Errno::EACCES)));
        let error = kernel("BPF_LINK_CREATE", Errno::EINVAL);
        assert_eq!(AttachReport { prog_type: Some(ProgType::XDP), error }.to_string(), error.to_string());
        let error = kernel("BPF_LINK_CREATE", Errno::EPERM);
        assert_eq!(AttachReport { prog_type: None, error }.to_string(), error.to_string());
        let said = AttachReport { prog_type: Some(ProgType::XDP), error }.to_string();
        assert!(said.starts_with(&error.to_string()) && said.len() > error.to_string().len(), "{said}");
    }
}

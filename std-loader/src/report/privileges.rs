//! Who refuses something with EPERM.

use core::fmt;

use corelo_core::uapi::ProgType;
use rustix::thread::CapabilitySet;

use crate::kernel::lockdown;
use crate::sys::Errno;

/// What the kernel asks of who loads a program of this type, if not CAP_SYS_ADMIN (`is_net_admin_prog_type`,
/// `is_perfmon_prog_type`).
pub(super) fn capabilities(prog_type: ProgType) -> CapabilitySet {
    let reads_kernel = matches!(
        prog_type,
        ProgType::KPROBE
            | ProgType::TRACEPOINT
            | ProgType::PERF_EVENT
            | ProgType::RAW_TRACEPOINT
            | ProgType::RAW_TRACEPOINT_WRITABLE
            | ProgType::TRACING
            | ProgType::LSM
            | ProgType::STRUCT_OPS
            | ProgType::EXT
    );
    let is_network = matches!(
        prog_type,
        ProgType::SCHED_CLS
            | ProgType::SCHED_ACT
            | ProgType::XDP
            | ProgType::LWT_IN
            | ProgType::LWT_OUT
            | ProgType::LWT_XMIT
            | ProgType::LWT_SEG6LOCAL
            | ProgType::SK_SKB
            | ProgType::SK_MSG
            | ProgType::FLOW_DISSECTOR
            | ProgType::CGROUP_DEVICE
            | ProgType::CGROUP_SOCK
            | ProgType::CGROUP_SOCK_ADDR
            | ProgType::CGROUP_SOCKOPT
            | ProgType::CGROUP_SYSCTL
            | ProgType::SOCK_OPS
            | ProgType::EXT
            | ProgType::NETFILTER
    );
    let mut wanted = CapabilitySet::BPF;
    wanted.set(CapabilitySet::PERFMON, reads_kernel);
    wanted.set(CapabilitySet::NET_ADMIN, is_network);
    wanted
}

/// `wanted` is what suffices where CAP_SYS_ADMIN is not there.
pub(super) fn write_privileges(f: &mut fmt::Formatter<'_>, errno: Errno, wanted: CapabilitySet) -> fmt::Result {
    if errno != Errno::EPERM {
        return Ok(());
    }
    f.write_str(refusal(held(), wanted, lockdown::mode()))
}

/// What this process has.
pub(super) fn held() -> CapabilitySet {
    rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective)
}

/// CAP_SYS_ADMIN stands for all of them.
pub(super) fn suffices(held: CapabilitySet, wanted: CapabilitySet) -> bool {
    held.contains(CapabilitySet::SYS_ADMIN) || held.contains(wanted)
}

/// Who refuses something with EPERM, as far as can be told from the capabilities of this process.
pub(super) fn refusal(held: CapabilitySet, wanted: CapabilitySet, mode: lockdown::Mode) -> &'static str {
    let may_load = suffices(held, wanted);
    let of_kernel = wanted.contains(CapabilitySet::PERFMON);
    let of_network = wanted.contains(CapabilitySet::NET_ADMIN);
    match (may_load, mode) {
        (false, _) if wanted == CapabilitySet::SYS_ADMIN => ": run as root, or with CAP_SYS_ADMIN",
        (false, _) if of_kernel && of_network => ": run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN",
        (false, _) if of_kernel => ": run as root, or with CAP_BPF and CAP_PERFMON",
        (false, _) if of_network => ": run as root, or with CAP_BPF and CAP_NET_ADMIN",
        (false, _) => ": run as root, or with CAP_BPF",
        (true, lockdown::Mode::Confidentiality) => ": the kernel is locked down (confidentiality)",
        (true, _) => ": though the capabilities are there: lockdown, a security module or a user namespace may be why",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eperm_is_explained_by_the_capabilities() {
        let (none, admin) = (CapabilitySet::empty(), CapabilitySet::SYS_ADMIN);
        let both = CapabilitySet::BPF | CapabilitySet::PERFMON;
        for (held, mode, said) in [
            (none, lockdown::Mode::Confidentiality, "run as root"),
            (CapabilitySet::BPF, lockdown::Mode::None, "run as root"),
            (both, lockdown::Mode::Confidentiality, "locked down"),
            (admin, lockdown::Mode::Confidentiality, "locked down"),
            (admin, lockdown::Mode::Integrity, "lockdown, a security module"),
            (both, lockdown::Mode::None, "lockdown, a security module"),
        ] {
            let words = refusal(held, CapabilitySet::BPF | CapabilitySet::PERFMON, mode);
            assert!(words.contains(said), "{held:?}, {mode:?}: {words}");
        }
    }
}

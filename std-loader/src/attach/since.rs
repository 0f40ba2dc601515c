//! Which Linux gained a kind of link: an older one says EINVAL, as to much else.

use corelo_core::uapi::AttachType;

use super::{LinkError, call};
use crate::kernel::KernelVersion;
use crate::sys::Errno;

/// The first Linux with links of this attach type. Those that programs of the same type could not be loaded without are not
/// here, nor those that there is another way for.
fn since(attach_type: AttachType) -> Option<KernelVersion> {
    let (major, minor) = match attach_type {
        AttachType::FLOW_DISSECTOR | AttachType::TRACE_ITER => (5, 8),
        AttachType::XDP | AttachType::SK_LOOKUP => (5, 9),
        // With a cookie; without one they are attached in another way.
        AttachType::TRACE_FENTRY | AttachType::TRACE_FEXIT | AttachType::MODIFY_RETURN | AttachType::LSM_MAC => (5, 18),
        AttachType::STRUCT_OPS | AttachType::NETFILTER => (6, 4),
        AttachType::TCX_INGRESS | AttachType::TCX_EGRESS => (6, 6),
        AttachType::NETKIT_PRIMARY | AttachType::NETKIT_PEER => (6, 7),
        _ => return None,
    };
    Some(KernelVersion::new(major, minor, 0))
}

/// For `map_err` of BPF_LINK_CREATE. (The version only explains the refusal, so a backport is no worse off.)
pub(super) fn explain(attach_type: u32) -> impl Fn(Errno) -> LinkError {
    move |errno| explained(AttachType(attach_type), errno, KernelVersion::running())
}

fn explained(attach_type: AttachType, errno: Errno, running: KernelVersion) -> LinkError {
    const CALL: &str = "BPF_LINK_CREATE";
    match since(attach_type) {
        // A version of 0 is one that nothing tells.
        Some(needs)
            if matches!(errno, Errno::EINVAL | Errno::ENOENT) && running < needs && running != KernelVersion(0) =>
        {
            LinkError::TooOld { call: CALL, errno, needs }
        }
        _ => call(CALL)(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_too_old_is_told_from_a_bad_call() {
        let kernel = |errno| LinkError::Kernel { call: "BPF_LINK_CREATE", errno };
        let too_old = |errno, major, minor| LinkError::TooOld {
            call: "BPF_LINK_CREATE",
            errno,
            needs: KernelVersion::new(major, minor, 0),
        };
        for (attach_type, errno, (major, minor), wanted) in [
            (AttachType::XDP, Errno::EINVAL, (5, 8), too_old(Errno::EINVAL, 5, 9)),
            (AttachType::XDP, Errno::EINVAL, (5, 9), kernel(Errno::EINVAL)),
            (AttachType::TCX_EGRESS, Errno::EINVAL, (6, 5), too_old(Errno::EINVAL, 6, 6)),
            (AttachType::TCX_EGRESS, Errno::EBUSY, (6, 5), kernel(Errno::EBUSY)),
            (AttachType::NETKIT_PEER, Errno::ENOENT, (6, 6), too_old(Errno::ENOENT, 6, 7)),
            (AttachType::TRACE_FEXIT, Errno::EINVAL, (5, 15), too_old(Errno::EINVAL, 5, 18)),
            (AttachType::NONE, Errno::EINVAL, (4, 4), kernel(Errno::EINVAL)),
            (AttachType::XDP, Errno::EINVAL, (0, 0), kernel(Errno::EINVAL)),
        ] {
            assert_eq!(explained(attach_type, errno, KernelVersion::new(major, minor, 0)), wanted);
        }
        let text = too_old(Errno::EINVAL, 6, 6).to_string();
        assert!(text.contains("EINVAL") && text.contains("need Linux 6.6"), "{text}");
    }
}

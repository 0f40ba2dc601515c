//! RLIMIT_MEMLOCK, which limited maps and programs before Linux 5.11 (since then memory cgroups do).

use core::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sys::Errno;
use crate::sys::version::KernelVersion;

/// Whether the limit may be raised for the whole process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Memlock {
    /// Where an old kernel refuses with EPERM: once, upwards only.
    #[default]
    RaiseIfRefused,
    /// Never: the process has set what it wants.
    Keep,
}

/// After a refusal: raises the limit where that may be the reason, and says whether to try again.
pub(crate) fn raised_after(errno: Errno, policy: Memlock) -> bool {
    static TRIED: AtomicBool = AtomicBool::new(false);
    if !wanted(errno, policy, KernelVersion::running()) || TRIED.swap(true, Ordering::Relaxed) {
        return false;
    }
    raise(getrlimit(Resource::Memlock), |limit| setrlimit(Resource::Memlock, limit).is_ok())
}

fn wanted(errno: Errno, policy: Memlock, version: KernelVersion) -> bool {
    policy == Memlock::RaiseIfRefused && errno == Errno::EPERM && version < KernelVersion::new(5, 11, 0)
}

/// No limit at all where we may (CAP_SYS_RESOURCE), else as far as the hard limit allows.
fn raise(now: Rlimit, mut set: impl FnMut(Rlimit) -> bool) -> bool {
    if now.current.is_none() {
        return false;
    }
    let none = Rlimit { current: None, maximum: None };
    if set(none) {
        return true;
    }
    let hard = Rlimit { current: now.maximum, maximum: now.maximum };
    now.current != now.maximum && set(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_only_after_eperm_of_an_old_kernel_and_where_allowed() {
        let old = KernelVersion::new(5, 10, 200);
        let new = KernelVersion::new(5, 11, 0);
        assert!(wanted(Errno::EPERM, Memlock::RaiseIfRefused, old));
        assert!(!wanted(Errno::EPERM, Memlock::RaiseIfRefused, new));
        assert!(!wanted(Errno::EPERM, Memlock::Keep, old));
        assert!(!wanted(Errno::ENOMEM, Memlock::RaiseIfRefused, old));
    }

    #[test]
    fn the_limit_is_never_lowered() {
        let limit = |current, maximum| Rlimit { current, maximum };
        // (now, may go unlimited, result, what was set in the end)
        for (now, privileged, want) in [
            (limit(Some(65536), Some(65536)), true, Some((None, None))),
            (limit(Some(65536), Some(1 << 20)), false, Some((Some(1 << 20), Some(1 << 20)))),
            (limit(Some(65536), None), false, Some((None, None))),
            (limit(Some(65536), Some(65536)), false, None),
            (limit(None, None), true, None),
        ] {
            let mut set = None;
            let raised = raise(now, |limit| {
                let allowed = privileged || set.is_some();
                set = Some((limit.current, limit.maximum));
                allowed
            });
            assert_eq!(raised, want.is_some());
            if raised {
                assert_eq!(set, want);
            }
        }
    }
}

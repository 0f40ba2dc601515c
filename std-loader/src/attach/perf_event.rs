//! Programs on perf events: counters and clocks of any PMU, and what tracepoints and probes go through.
//!
//! Linux 4.9, by links 5.15; CAP_BPF and CAP_PERFMON

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use corelo_core::uapi::AttachType;

use super::tracefs::Probe;
use super::{Kind, Link, LinkError, Sampling, Scope, call};
use crate::sys::{Errno, bpf, perf};

/// Samples a counter or clock and runs the program for each sample. `event_type` and `config` are perf_event_open(2)'s
/// (software CPU clock: 1 and 0).
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach(
    program: BorrowedFd<'_>,
    event_type: u32,
    config: u64,
    sampling: Sampling,
    scope: Scope,
    cookie: u64,
) -> Result<Link, LinkError> {
    let event = perf::counter(event_type, config, sampling, scope).map_err(call("perf_event_open"))?;
    attach_to(event, program, cookie, None)
}

/// Attaches to a perf event that the caller opened.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach_fd(event: OwnedFd, program: BorrowedFd<'_>, cookie: u64) -> Result<Link, LinkError> {
    attach_to(event, program, cookie, None)
}

/// Attaches to a tracefs event by number.
pub(super) fn attach_event(
    id: u64,
    program: BorrowedFd<'_>,
    cookie: u64,
    scope: Scope,
    probe: Option<Probe>,
) -> Result<Link, LinkError> {
    let event = perf::tracepoint(id, scope).map_err(call("perf_event_open"))?;
    attach_to(event, program, cookie, probe)
}

/// By a link (Linux 5.15), else by the ioctl, which has no cookie; then enables the event.
pub(super) fn attach_to(
    event: OwnedFd,
    program: BorrowedFd<'_>,
    cookie: u64,
    probe: Option<Probe>,
) -> Result<Link, LinkError> {
    let link = put_on(event.as_fd(), program, cookie)?;
    Ok(Link::new(Kind::Perf { link, event, probe }))
}

/// The same for an event that stays the caller's; the link, where there is one.
pub(super) fn put_on(
    event: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    cookie: u64,
) -> Result<Option<OwnedFd>, LinkError> {
    let created = bpf::link_create(
        program,
        bpf::target_fd(event),
        AttachType::PERF_EVENT.0,
        0,
        &bpf::LinkTarget::PerfEvent { cookie },
    );
    let link = match created {
        Ok(link) => Some(link),
        // A kernel that knows no such link says EINVAL; so does one that knows it and refuses the program, and then the
        // ioctl gives the same answer.
        Err(Errno::EINVAL) if cookie == 0 => {
            perf::set_bpf(event, program).map_err(call("PERF_EVENT_IOC_SET_BPF"))?;
            None
        }
        Err(errno) => return Err(call("BPF_LINK_CREATE")(errno)),
    };
    perf::enable(event).map_err(call("PERF_EVENT_IOC_ENABLE"))?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fake::{install, u32_at};

    /// Without a link there is nothing to carry a cookie: a program that would read 0 is not attached.
    #[test]
    fn a_cookie_is_never_dropped() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let put = |cookie: u64, answer| {
            let _guard = install(move |command, block| {
                assert_eq!(command, bpf::cmd::LINK_CREATE);
                let halves = [16, 20].map(|at| u32_at(block, at).to_ne_bytes());
                assert_eq!(u64::from_ne_bytes(halves.concat().try_into().unwrap()), cookie);
                Some(Err(answer))
            });
            put_on(null.as_fd(), null.as_fd(), cookie).map(|_| ()).unwrap_err()
        };
        // /dev/null is no event, so that the ioctl fails, and shows that it was asked.
        let by_ioctl = |error| matches!(error, LinkError::Kernel { call: "PERF_EVENT_IOC_SET_BPF", .. });
        assert!(by_ioctl(put(0, Errno::EINVAL)));
        for cookie in [1, 7 << 32, u64::MAX] {
            let refused = LinkError::Kernel { call: "BPF_LINK_CREATE", errno: Errno::EINVAL };
            assert_eq!(put(cookie, Errno::EINVAL), refused, "{cookie:#x}");
        }
        assert!(!by_ioctl(put(0, Errno::EPERM)));
    }
}

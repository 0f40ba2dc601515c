//! Programs on perf events: counters and clocks of any PMU, and what tracepoints and probes go through.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::tracefs::Probe;
use super::{Kind, Link, LinkError, Sampling, Scope, attach_type, call};
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
        attach_type::PERF_EVENT,
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

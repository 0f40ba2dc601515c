//! Kprobes: on a kernel function's entry (plus an offset) or its return, one by one or many by one link.
//!
//! Linux 4.1, many functions by one link 5.18, sessions 6.10; CAP_BPF and CAP_PERFMON

use std::os::fd::BorrowedFd;

use super::{CStrAddress, Functions, Link, LinkError, Multi, Scope, call};
use super::{functions, multi, perf_event, probe, tracefs};
use crate::attach::glob;
use crate::sys::files::CPath;
use crate::sys::{Errno, bpf, perf};

/// Where and how to probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kprobe<'a> {
    /// The function.
    pub function: &'a str,
    /// Bytes from its start.
    pub offset: u64,
    /// On its return instead.
    pub returns: bool,
    /// What bpf_get_attach_cookie gives; other than 0 needs Linux 5.15.
    pub cookie: u64,
}

/// Attaches by the kprobe PMU, else (before Linux 4.17) by tracefs.
///
/// # Errors
/// [`LinkError`]: ENOENT or EINVAL where the function is not there or not to be probed,
/// [`LinkError::SeveralFunctions`].
pub fn attach(program: BorrowedFd<'_>, kprobe: Kprobe<'_>) -> Result<Link, LinkError> {
    let Kprobe { function, offset, returns, cookie } = kprobe;
    if let Some(pmu) = probe::pmu_type("kprobe")? {
        let name = CPath::from_bytes(function.as_bytes()).map_err(|_| LinkError::BadName)?;
        let config = if returns { probe::return_bit("kprobe")? } else { 0 };
        let event = perf::probe(pmu, config, Some(name.as_c_str()), offset, Scope::cpu(0));
        let event = event.map_err(|errno| named(call("perf_event_open")(errno)))?;
        return perf_event::attach_to(event, program, cookie, None);
    }
    if function.contains(char::is_whitespace) {
        return Err(LinkError::BadName);
    }
    let probe =
        tracefs::Probe::new(tracefs::File::Kprobes, returns, format_args!("{function}+{offset}")).map_err(named)?;
    perf_event::attach_event(probe.id()?, program, cookie, Scope::cpu(0), Some(probe))
}

/// What the kernel means where it is about the function's name (Linux 6.7 and what it was backported to: before, a name
/// that several functions bear was one of them).
fn named(error: LinkError) -> LinkError {
    match error {
        LinkError::Kernel { errno: Errno::EADDRNOTAVAIL, .. } | LinkError::File { errno: Errno::EADDRNOTAVAIL, .. } => {
            LinkError::SeveralFunctions
        }
        error => error,
    }
}

/// Attaches to many functions by one link (Linux 5.18, `kprobe.multi`; 6.10 for sessions). `cookies` is empty or as long as
/// the functions.
///
/// # Errors
/// [`LinkError::NoMulti`], [`LinkError::Kernel`].
pub fn attach_multi(
    program: BorrowedFd<'_>,
    functions: Functions<'_>,
    cookies: &[u64],
    returns: bool,
    session: bool,
) -> Result<Link, LinkError> {
    /// BPF_F_KPROBE_MULTI_RETURN.
    const RETURN: u32 = 1;
    let kind = if session { Multi::KprobeSession } else { Multi::Kprobe };
    let how = bpf::LinkTarget::KprobeMulti { functions, cookies, flags: if returns { RETURN } else { 0 } };
    multi::create(program, kind, &how)
}

/// Attaches to all functions whose names fit a pattern with `*` (any characters) and `?` (one), by one link. The names and
/// addresses are those of `available_filter_functions_addrs` in tracefs (Linux 6.5), else those that both
/// `available_filter_functions` and /proc/kallsyms have. A name without either character goes to the kernel as it is.
///
/// # Errors
/// [`LinkError::NoFunction`] where nothing fits, [`LinkError::NoMulti`], [`LinkError::NoTracefs`], [`LinkError::Kallsyms`],
/// [`LinkError::File`], [`LinkError::Kernel`].
pub fn attach_pattern(program: BorrowedFd<'_>, pattern: &str, returns: bool, session: bool) -> Result<Link, LinkError> {
    if glob::is_pattern(pattern.as_bytes()) {
        let addresses = functions::addresses(pattern.as_bytes())?;
        return attach_multi(program, Functions::Addresses(addresses.as_slice()), &[], returns, session);
    }
    let name = CPath::from_bytes(pattern.as_bytes()).map_err(|_| LinkError::BadName)?;
    let symbols = [CStrAddress::new(name.as_c_str())];
    match attach_multi(program, Functions::Symbols(&symbols), &[], returns, session) {
        // What the kernel says when it does not find all the names, or not among the functions that ftrace knows.
        Err(LinkError::Kernel { errno: Errno::ESRCH, .. }) => Err(LinkError::NoFunction),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_several_functions_is_told_from_other_refusals() {
        let file = |errno| LinkError::File { file: "kprobe_events", errno };
        for error in [call("perf_event_open")(Errno::EADDRNOTAVAIL), file(Errno::EADDRNOTAVAIL)] {
            assert_eq!(named(error), LinkError::SeveralFunctions);
        }
        for error in [call("perf_event_open")(Errno::ENOENT), file(Errno::EINVAL)] {
            assert_eq!(named(error), error);
        }
    }
}

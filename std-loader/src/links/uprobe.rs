//! Uprobes: at an offset in an executable or library file, for one process or all. Turning a symbol into an offset is
//! not done here.

use std::os::fd::BorrowedFd;
use std::path::Path;

use super::{Link, LinkError, Scope, attach_type, call, create};
use super::{perf_event, probe, tracefs};
use crate::files::CPath;
use crate::sys::{bpf, perf};

/// Where and how to probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uprobe<'a> {
    /// The file.
    pub path: &'a Path,
    /// Bytes from the start of the file (not an address).
    pub offset: u64,
    /// The file offset of a 16-bit reference counter (USDT semaphore), or 0; Linux 4.20.
    pub ref_ctr_offset: u64,
    /// On the function's return instead.
    pub returns: bool,
    /// A process, or `None` for all.
    pub pid: Option<u32>,
    /// What bpf_get_attach_cookie gives; other than 0 needs Linux 5.15.
    pub cookie: u64,
}

/// Attaches by the uprobe PMU, else (before Linux 4.17) by tracefs.
///
/// # Errors
/// [`LinkError`].
pub fn attach(program: BorrowedFd<'_>, uprobe: Uprobe<'_>) -> Result<Link, LinkError> {
    let scope = uprobe.pid.map_or(Scope::cpu(0), Scope::pid);
    if let Some(pmu) = probe::pmu_type("uprobe")? {
        let path = CPath::new(uprobe.path).map_err(|errno| LinkError::File { file: "the probed file", errno })?;
        let counter = u32::try_from(uprobe.ref_ctr_offset).map_err(|_| LinkError::BadName)?;
        let mut config = u64::from(counter) << 32;
        if uprobe.returns {
            config |= probe::return_bit("uprobe")?;
        }
        let event =
            perf::probe(pmu, config, Some(path.as_c_str()), uprobe.offset, scope).map_err(call("perf_event_open"))?;
        return perf_event::attach_to(event, program, uprobe.cookie, None);
    }
    let path = uprobe.path.to_str().ok_or(LinkError::BadName)?;
    if path.contains(char::is_whitespace) {
        return Err(LinkError::BadName);
    }
    let offset = uprobe.offset;
    let file = tracefs::File::Uprobes;
    let probe = match uprobe.ref_ctr_offset {
        0 => tracefs::Probe::new(file, uprobe.returns, format_args!("{path}:{offset:#x}")),
        counter => tracefs::Probe::new(file, uprobe.returns, format_args!("{path}:{offset:#x}({counter:#x})")),
    }?;
    tracefs::attach_event(probe.id()?, program, uprobe.cookie, scope, Some(probe))
}

/// Many offsets of one file by one link (Linux 6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UprobeMulti<'a> {
    /// The file.
    pub path: &'a Path,
    /// Bytes from the start of the file.
    pub offsets: &'a [u64],
    /// Reference counters: empty, or one for each offset.
    pub ref_ctr_offsets: &'a [u64],
    /// Cookies: empty, or one for each offset.
    pub cookies: &'a [u64],
    /// On returns instead.
    pub returns: bool,
    /// A process, or `None` for all.
    pub pid: Option<u32>,
    /// A session: the program runs on entry and return (Linux 6.13).
    pub session: bool,
}

/// Attaches to all of them.
///
/// # Errors
/// [`LinkError::Kernel`].
pub fn attach_multi(program: BorrowedFd<'_>, probes: UprobeMulti<'_>) -> Result<Link, LinkError> {
    /// BPF_F_UPROBE_MULTI_RETURN.
    const RETURN: u32 = 1;
    let path = CPath::new(probes.path).map_err(|errno| LinkError::File { file: "the probed file", errno })?;
    let attach_type = if probes.session { attach_type::TRACE_UPROBE_SESSION } else { attach_type::TRACE_UPROBE_MULTI };
    let how = bpf::LinkTarget::UprobeMulti {
        path: path.as_c_str(),
        offsets: probes.offsets,
        ref_ctr_offsets: probes.ref_ctr_offsets,
        cookies: probes.cookies,
        pid: probes.pid.unwrap_or(0),
        flags: if probes.returns { RETURN } else { 0 },
    };
    create(program, 0, attach_type, 0, &how)
}

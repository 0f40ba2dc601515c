//! Uprobes: at an offset in an executable or library file, for one process or all. Turning one symbol into an offset is done
//! by [`crate::attach::symbols`].
//!
//! Linux 4.3, many functions by one link 6.6, sessions 6.13; CAP_BPF and CAP_PERFMON

use std::os::fd::BorrowedFd;
use std::path::Path;

use super::{Link, LinkError, Multi, Scope, call};
use super::{multi, perf_event, probe, tracefs};
use crate::attach::symbols::{self, FoundFile};
use crate::sys::files::CPath;
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
        let mut config = counter_bits(uprobe.ref_ctr_offset)?;
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
    perf_event::attach_event(probe.id()?, program, uprobe.cookie, scope, Some(probe))
}

/// Attaches to a function of a program or library, `offset` bytes from its start, or to its return, for all processes. `file`
/// is a path, or a name to be looked for ([`symbols::find_file`]): `libc.so.6`.
///
/// # Errors
/// [`LinkError::Symbol`], [`LinkError::File`] where the file is nowhere, and those of [`attach`].
pub fn attach_function(
    program: BorrowedFd<'_>,
    file: &Path,
    function: &str,
    offset: u64,
    returns: bool,
) -> Result<Link, LinkError> {
    let file = self::file(file)?;
    let path = file.as_path();
    let start = symbols::function_offset(path, function).map_err(LinkError::Symbol)?;
    let offset = start.saturating_add(offset);
    attach(program, Uprobe { path, offset, ref_ctr_offset: 0, returns, pid: None, cookie: 0 })
}

pub(super) fn file(name: &Path) -> Result<FoundFile, LinkError> {
    symbols::find_file(name).map_err(|errno| LinkError::File { file: "the probed file", errno })
}

/// The PMU has the offset of a reference counter in the upper half of `config`.
pub(super) fn counter_bits(offset: u64) -> Result<u64, LinkError> {
    match u32::try_from(offset) {
        Ok(offset) => Ok(u64::from(offset) << 32),
        Err(_) => Err(LinkError::CounterOffset { offset }),
    }
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
/// [`LinkError::NoMulti`], [`LinkError::Kernel`], [`LinkError::File`] for a path that is none.
pub fn attach_multi(program: BorrowedFd<'_>, probes: UprobeMulti<'_>) -> Result<Link, LinkError> {
    /// BPF_F_UPROBE_MULTI_RETURN.
    const RETURN: u32 = 1;
    let path = CPath::new(probes.path).map_err(|errno| LinkError::File { file: "the probed file", errno })?;
    let kind = if probes.session { Multi::UprobeSession } else { Multi::Uprobe };
    let how = bpf::LinkTarget::UprobeMulti {
        path: path.as_c_str(),
        offsets: probes.offsets,
        ref_ctr_offsets: probes.ref_ctr_offsets,
        cookies: probes.cookies,
        pid: probes.pid.unwrap_or(0),
        flags: if probes.returns { RETURN } else { 0 },
    };
    multi::create(program, kind, &how)
}

/// Attaches to all functions of a file whose names fit a pattern with `*` (any characters) and `?` (one), by one link: those
/// of [`symbols::matching_offsets`], for all processes.
///
/// # Errors
/// [`LinkError::Symbol`], and those of [`attach_multi`].
pub fn attach_pattern(
    program: BorrowedFd<'_>,
    path: &Path,
    pattern: &str,
    returns: bool,
    session: bool,
) -> Result<Link, LinkError> {
    let offsets = symbols::matching_offsets(path, pattern).map_err(LinkError::Symbol)?;
    let probes = UprobeMulti {
        path,
        offsets: offsets.as_slice(),
        ref_ctr_offsets: &[],
        cookies: &[],
        returns,
        pid: None,
        session,
    };
    attach_multi(program, probes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_beyond_32_bits() {
        assert_eq!(counter_bits(0), Ok(0));
        assert_eq!(counter_bits(0xffff_ffff), Ok(0xffff_ffff << 32));
        let error = counter_bits(1 << 32).unwrap_err();
        assert_eq!(error, LinkError::CounterOffset { offset: 1 << 32 });
        assert!(error.to_string().contains("0x100000000"), "{error}");
    }
}

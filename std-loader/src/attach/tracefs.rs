//! tracefs: the numbers of tracepoints, and probes made by writing to its files.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::OwnedFd;

use rustix::fs::OFlags;

use super::LinkError;
use crate::sys::Errno;
use crate::sys::files::{self, CPath};

/// Where it may be mounted: on its own, or in debugfs before Linux 4.1 and by habit.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The first that can be entered, with the effective ids. One that is there and closed to us is not taken for none.
fn mount() -> Result<&'static str, LinkError> {
    let mut closed = LinkError::NoTracefs;
    for mount in MOUNTS {
        let path = CPath::format(format_args!("{mount}/events")).map_err(|_| LinkError::NoTracefs)?;
        match files::exists(path.as_c_str()) {
            Ok(true) => return Ok(mount),
            Ok(false) => {}
            // That of the first is said: the other is in debugfs, which is closed more often.
            Err(errno) if closed == LinkError::NoTracefs => closed = LinkError::File { file: mount, errno },
            Err(_) => {}
        }
    }
    Err(closed)
}

/// Opens a file of the mount's own directory for reading.
pub(super) fn open(name: &'static str) -> Result<OwnedFd, LinkError> {
    let path = CPath::format(format_args!("{}/{name}", mount()?)).map_err(|_| LinkError::NoTracefs)?;
    files::open(path.as_c_str(), OFlags::RDONLY).map_err(|errno| match super::call("open")(errno) {
        // Confidentiality closes tracefs.
        error @ LinkError::Lockdown { .. } => error,
        _ => LinkError::File { file: name, errno },
    })
}

/// The number of an event, by group and name.
pub(super) fn event_id(group: &str, name: &str) -> Result<u64, LinkError> {
    let sound = |part: &str| !part.is_empty() && !part.contains('/') && !matches!(part, "." | "..");
    if !sound(group) || !sound(name) {
        return Err(LinkError::NoTracepoint);
    }
    let mount = mount()?;
    let path = CPath::format(format_args!("{mount}/events/{group}/{name}/id")).map_err(|_| LinkError::NoTracepoint)?;
    files::read_number(path.as_c_str()).map_err(|errno| match errno {
        Errno::ENOENT | Errno::ENOTDIR => LinkError::NoTracepoint,
        errno => LinkError::File { file: "the tracepoint's id in tracefs", errno },
    })
}

/// The two files that make probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum File {
    Kprobes,
    Uprobes,
}

impl File {
    fn name(self) -> &'static str {
        match self {
            File::Kprobes => "kprobe_events",
            File::Uprobes => "uprobe_events",
        }
    }

    fn path(self) -> Result<CPath, LinkError> {
        let mount = mount()?;
        CPath::format(format_args!("{mount}/{}", self.name())).map_err(|_| LinkError::NoTracefs)
    }

    fn exists(self) -> Result<bool, LinkError> {
        files::exists(self.path()?.as_c_str()).map_err(|errno| LinkError::File { file: self.name(), errno })
    }
}

/// A probe made by writing a line; removed on drop.
#[derive(Debug)]
pub(super) struct Probe {
    file: File,
    name: heapless::String<48>,
}

const GROUP: &str = "corelo";

impl Probe {
    /// `definition` is what follows the event's name, as in Documentation/trace/kprobetrace.rst.
    pub(super) fn new(file: File, returns: bool, definition: fmt::Arguments<'_>) -> Result<Probe, LinkError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut name = heapless::String::new();
        let pid = rustix::process::getpid().as_raw_nonzero();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        write!(name, "p{pid}_{number}").map_err(|_| LinkError::BadName)?;
        let kind = if returns { 'r' } else { 'p' };
        let mut line = heapless::String::<4096>::new();
        writeln!(line, "{kind}:{GROUP}/{name} {definition}").map_err(|_| LinkError::BadName)?;
        // One line makes one probe: nothing in a name may start another.
        if line.bytes().filter(|byte| *byte == b'\n').count() != 1 {
            return Err(LinkError::BadName);
        }
        match files::append_line(file.path()?.as_c_str(), line.as_bytes()) {
            Ok(()) => Ok(Probe { file, name }),
            // Else the file is there, and ENOENT is of what the line names.
            Err(Errno::ENOENT) if !file.exists()? => Err(LinkError::NoProbes),
            Err(errno) => Err(LinkError::File { file: file.name(), errno }),
        }
    }

    /// The event's number.
    pub(super) fn id(&self) -> Result<u64, LinkError> {
        event_id(GROUP, &self.name)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let mut line = heapless::String::<64>::new();
        if writeln!(line, "-:{GROUP}/{}", self.name).is_ok()
            && let Ok(path) = self.file.path()
        {
            // EBUSY where a pinned link still uses it; nobody to tell.
            let _ = files::append_line(path.as_c_str(), line.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use corelo_tests::kernel::{Feature, has};

    use super::*;

    #[test]
    fn names_do_not_leave_the_directory() {
        for (group, name) in [("..", "x"), ("a/b", "x"), ("sched", ""), ("sched", "../..")] {
            assert_eq!(event_id(group, name), Err(LinkError::NoTracepoint));
        }
    }

    #[test]
    fn a_closed_mount_is_not_a_missing_one() {
        use corelo_tests::fake_kernel::{FakeKernel, require_fake_kernel};
        if !require_fake_kernel("close tracefs") {
            return;
        }
        let ask = |kernel: FakeKernel| kernel.with(|| event_id("sched", "sched_switch").map(drop)).0;
        let (new, old) = ("/sys/kernel/tracing/", "/sys/kernel/debug/");
        let closed = |file| Err(LinkError::File { file, errno: Errno::EACCES });
        let kernel = || FakeKernel::new(6, 18);
        assert_eq!(
            ask(kernel().file_error(new, libc::ENOENT).file_error(old, libc::ENOENT)),
            Err(LinkError::NoTracefs)
        );
        assert_eq!(ask(kernel().file_error(new, libc::EACCES).file_error(old, libc::ENOENT)), closed(MOUNTS[0]));
        assert_eq!(ask(kernel().file_error(new, libc::EACCES).file_error(old, libc::EACCES)), closed(MOUNTS[0]));
        assert_eq!(ask(kernel().file_error(new, libc::ENOENT).file_error(old, libc::EACCES)), closed(MOUNTS[1]));
    }

    #[test]
    fn a_line_feed_makes_no_second_probe() {
        let made = Probe::new(File::Kprobes, false, format_args!("a\np:b/c d"));
        assert_eq!(made.err(), Some(LinkError::BadName));
    }

    #[test]
    fn a_probe_comes_and_goes_by_its_name() {
        if !has(&[Feature::Bpf, Feature::Tracefs, Feature::Uprobes]) {
            return;
        }
        let here = std::env::current_exe().unwrap();
        let probe = Probe::new(File::Uprobes, false, format_args!("{}:0x1000", here.display())).unwrap();
        let name = probe.name.clone();
        assert!(probe.id().unwrap() > 0);
        drop(probe);
        assert_eq!(event_id(GROUP, &name), Err(LinkError::NoTracepoint));
    }
}

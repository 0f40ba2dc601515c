//! Attaching a program as its section says.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use corelo_core::object::section_name::{ProgramKind, Target};

use crate::attach::symbols::FoundFile;
use crate::attach::usdt::Usdt;
use crate::attach::{self, Link, LinkError};

/// Attaches `program`, whose section says `kind`; an error where it says what cannot be read, and `None` where that names no target to attach to by itself: networks,
/// cgroups, sockets, and what [the wing](super) has to be asked for by hand.
/// `usdt` is what the program's collection has for static probes.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    kind: &ProgramKind<'_>,
    usdt: impl FnOnce(&Usdt<'_>) -> Result<Link, LinkError>,
) -> Result<Option<Link>, LinkError> {
    if !names_target(kind) {
        return Ok(None);
    }
    let link = match kind.target {
        Target::Tracepoint { category, name } => attach::tracepoint::attach(program, text(category)?, text(name)?, 0)?,
        Target::RawTracepoint { name } => attach::raw_tracepoint::attach(program, text(name)?, 0)?,
        Target::Trace => attach::tracing::attach(program, kind.expected_attach_type.0, 0)?,
        Target::TraceMulti { module, pattern } => {
            let module = module.map(text).transpose()?;
            attach::tracing_multi::attach_pattern(program, kind.expected_attach_type.0, module, pattern)?
        }
        Target::Iter => attach::iter::attach(program)?,
        Target::Kprobe { function, offset, is_return } => {
            let kprobe = attach::kprobe::Kprobe { function: text(function)?, offset, returns: is_return, cookie: 0 };
            attach::kprobe::attach(program, kprobe)?
        }
        Target::Uprobe { path, function, offset, is_return } => {
            let path = Path::new(OsStr::from_bytes(path));
            attach::uprobe::attach_function(program, path, text(function)?, offset, is_return)?
        }
        Target::KprobeMulti { pattern, is_return, is_session } => {
            attach::kprobe::attach_pattern(program, text(pattern)?, is_return, is_session)?
        }
        Target::UprobeMulti { path, pattern, is_return, is_session } => {
            let file = file(path)?;
            attach::uprobe::attach_pattern(program, file.as_path(), text(pattern)?, is_return, is_session)?
        }
        Target::Ksyscall { name, is_return } => attach::ksyscall::attach(program, text(name)?, is_return, 0)?,
        Target::Usdt { path, provider, name } => {
            let file = file(path)?;
            let (provider, name) = (text(provider)?, text(name)?);
            usdt(&Usdt { path: file.as_path(), provider, name, pid: None, cookie: 0 })?
        }
        Target::Malformed => return Err(LinkError::MalformedTarget),
        _ => return Ok(None),
    };
    Ok(Some(link))
}

/// Whether a section names a target that [`attach`] attaches to, or one that it cannot read.
pub(crate) fn names_target(kind: &ProgramKind<'_>) -> bool {
    matches!(
        kind.target,
        Target::Tracepoint { .. }
            | Target::RawTracepoint { .. }
            | Target::Trace
            | Target::TraceMulti { .. }
            | Target::Iter
            | Target::Kprobe { .. }
            | Target::Uprobe { .. }
            | Target::KprobeMulti { .. }
            | Target::UprobeMulti { .. }
            | Target::Ksyscall { .. }
            | Target::Usdt { .. }
            | Target::Malformed
    )
}

/// The binary of a probe: a path, or a name to be looked for as libbpf does.
fn file(name: &[u8]) -> Result<FoundFile, LinkError> {
    attach::uprobe::file(Path::new(OsStr::from_bytes(name)))
}

fn text(bytes: &[u8]) -> Result<&str, LinkError> {
    core::str::from_utf8(bytes).map_err(|_| LinkError::BadName)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::bpf::cmd;
    use crate::sys::fake::{install, some_fd, u32_at};
    use corelo_core::object::section_name::parse;
    use std::os::fd::AsFd;
    use std::sync::Mutex;

    /// Section, attach type, where in the argument block the flags of its kind of link are, and what they are to be.
    type Case = (&'static [u8], u32, usize, u32);

    #[test]
    fn multi_links_are_on_entry_or_on_return_as_the_section_says() {
        const CASES: [Case; 6] = [
            (b"kprobe.multi/vfs_read", 42, 16, 0),
            (b"kretprobe.multi/vfs_read", 42, 16, 1),
            (b"kprobe.session/vfs_read", 56, 16, 0),
            (b"uprobe.multi//proc/self/exe:main", 48, 52, 0),
            (b"uretprobe.multi//proc/self/exe:main", 48, 52, 1),
            (b"uprobe.session//proc/self/exe:main", 57, 52, 0),
        ];
        static ASKED: Mutex<Vec<u32>> = Mutex::new(Vec::new());
        let null = std::fs::File::open("/dev/null").unwrap();
        for (section, attach_type, flags_at, flags) in CASES {
            let _guard = install(move |command, block| {
                assert_eq!(command, cmd::LINK_CREATE);
                ASKED.lock().unwrap().extend([8, flags_at].map(|at| u32_at(block, at)));
                Some(Ok(some_fd()))
            });
            let kind = parse(section).unwrap();
            let link = attach(null.as_fd(), &kind, |_| panic!("no static probe")).unwrap();
            assert!(link.is_some());
            let asked = core::mem::take(&mut *ASKED.lock().unwrap());
            assert_eq!(asked, [attach_type, flags], "{}", section.escape_ascii());
        }
    }
}

//! Attaching a program as its section says.

use std::os::fd::BorrowedFd;
use std::path::Path;

use corelo_core::object::section_name::{ProgramKind, Target};

use crate::links::{self, Link, LinkError};

/// Attaches `program`, whose section says `kind`; `None` where that names no target to attach to by itself: networks,
/// cgroups, sockets, and what [`links`] has to be asked for by hand.
pub(crate) fn attach(program: BorrowedFd<'_>, kind: &ProgramKind<'_>) -> Result<Option<Link>, LinkError> {
    let link = match kind.target {
        Target::Tracepoint { category, name } => links::tracepoint::attach(program, text(category)?, text(name)?, 0)?,
        Target::RawTracepoint { name } => links::raw_tracepoint::attach(program, text(name)?, 0)?,
        Target::Trace => links::tracing::attach(program, kind.expected_attach_type.0, 0)?,
        Target::Iter => links::iter::attach(program)?,
        Target::Kprobe { function, offset, is_return } => {
            let kprobe = links::kprobe::Kprobe { function: text(function)?, offset, returns: is_return, cookie: 0 };
            links::kprobe::attach(program, kprobe)?
        }
        Target::Uprobe { path, function, offset, is_return } => {
            let path = Path::new(text(path)?);
            let start = match crate::symbols::function_offset(path, text(function)?) {
                Ok(start) => start,
                Err(_) => return Err(LinkError::BadName),
            };
            let uprobe = links::uprobe::Uprobe {
                path,
                offset: start.saturating_add(offset),
                ref_ctr_offset: 0,
                returns: is_return,
                pid: None,
                cookie: 0,
            };
            links::uprobe::attach(program, uprobe)?
        }
        _ => return Ok(None),
    };
    Ok(Some(link))
}

fn text(bytes: &[u8]) -> Result<&str, LinkError> {
    core::str::from_utf8(bytes).map_err(|_| LinkError::BadName)
}

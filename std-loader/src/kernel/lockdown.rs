//! Kernel lockdown (lockdown(7)): in confidentiality mode, programs may not read kernel memory, and what uses such
//! programs is refused with EPERM, by some paths with EINVAL.

use crate::sys::Errno;
use crate::sys::files;

/// What the kernel is locked down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Not at all, or the kernel has no lockdown.
    None,
    /// User space may not change the running kernel.
    Integrity,
    /// Nor read its memory.
    Confidentiality,
}

/// The running kernel's mode, from /sys/kernel/security/lockdown (nobody sees it where securityfs is not mounted).
#[must_use]
pub fn mode() -> Mode {
    known().unwrap_or(Mode::None)
}

/// The same, or why it is not known: the file is there and cannot be read.
pub(crate) fn known() -> Result<Mode, Errno> {
    let mut buffer = [0; 64];
    match files::read_file(c"/sys/kernel/security/lockdown", &mut buffer) {
        Ok(text) => Ok(parse(text)),
        Err(Errno::ENOENT) => Ok(Mode::None),
        Err(errno) => Err(errno),
    }
}

/// `none [integrity] confidentiality`: the word in brackets.
fn parse(text: &[u8]) -> Mode {
    let in_brackets = |word: &[u8]| text.windows(word.len()).any(|window| window == word);
    if in_brackets(b"[confidentiality]") {
        Mode::Confidentiality
    } else if in_brackets(b"[integrity]") {
        Mode::Integrity
    } else {
        Mode::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        assert_eq!(parse(b"[none] integrity confidentiality\n"), Mode::None);
        assert_eq!(parse(b"none [integrity] confidentiality\n"), Mode::Integrity);
        assert_eq!(parse(b"none integrity [confidentiality]\n"), Mode::Confidentiality);
        assert_eq!(parse(b""), Mode::None);
    }
}

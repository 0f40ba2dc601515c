//! Names: their flavours, and how they are shown.

use core::fmt::{self, Write as _};

/// The length of a name without its flavour, in bytes.
///
/// A flavour is everything from the last `___` on: three underscores with something other than an underscore on both
/// sides (libbpf: `bpf_core_essential_name_len`). It lets a program declare several layouts of one kernel type.
///
/// ```
/// use corelo_core::btf::strings::essential_len;
/// assert_eq!(essential_len(b"task_struct___old"), 11);
/// assert_eq!(essential_len(b"a___b___c"), 5);
/// assert_eq!(essential_len(b"a____b"), 6);
/// assert_eq!(essential_len(b"___a"), 4);
/// ```
#[must_use]
pub fn essential_len(name: &[u8]) -> usize {
    name.windows(5).rposition(is_flavour_separator).map_or(name.len(), |before| before.wrapping_add(1))
}

/// The name without its flavour.
#[must_use]
pub fn essential(name: &[u8]) -> &[u8] {
    name.get(..essential_len(name)).unwrap_or(name)
}

/// Whether two names are the same but for their flavours.
#[must_use]
pub fn same_essential(local: &[u8], target: &[u8]) -> bool {
    essential(local) == essential(target)
}

fn is_flavour_separator(window: &[u8]) -> bool {
    matches!(window, [before, b'_', b'_', b'_', after] if *before != b'_' && *after != b'_')
}

/// A name as text: what is not UTF-8 as U+FFFD, control characters escaped, so that a message stays one line.
#[derive(Clone, Copy, Debug)]
pub struct Name<'n>(pub &'n [u8]);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                if letter.is_control() {
                    write!(f, "{}", letter.escape_default())?;
                } else {
                    f.write_char(letter)?;
                }
            }
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn a_shown_name_stays_one_line() {
        assert_eq!(Name(b"a\nb\xffc\x1b[\xc3\xbc").to_string(), "a\\nb\u{fffd}c\\u{1b}[\u{fc}");
    }

    #[test]
    fn flavours_start_at_the_last_three_lone_underscores() {
        let rows: [(&[u8], &[u8]); 10] = [
            (b"task_struct", b"task_struct"),
            (b"task_struct___x", b"task_struct"),
            (b"a___b___c", b"a___b"),
            (b"___a", b"___a"),
            (b"a___", b"a___"),
            (b"a____b", b"a____b"),
            (b"a__b", b"a__b"),
            (b"a___b____c", b"a"),
            (b"x___1", b"x"),
            (b"", b""),
        ];
        for (name, wanted) in rows {
            assert_eq!(essential(name), wanted, "{}", name.escape_ascii());
        }
    }
}

//! Patterns of names, as sections of multi-probes have them: `*` is any number of characters, `?` is one, the rest is itself.
//! There are no brackets and no escapes, as in libbpf's `glob_match`.

/// Whether the whole of `name` is as `pattern` says.
///
/// Takes at most the product of both lengths in steps, however many stars there are: a name that does not fit after a star is
/// tried again from one character further, and only for the last star seen.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut pos) = (0, 0);
    // Where to go on after the last star: behind it, and at which character.
    let mut star = None;
    while let Some(byte) = name.get(pos) {
        match pattern.get(at) {
            Some(b'*') => {
                at += 1;
                star = Some((at, pos));
            }
            Some(b'?') => (at, pos) = (at + 1, pos + 1),
            Some(wanted) if wanted == byte => (at, pos) = (at + 1, pos + 1),
            _ => {
                let Some((behind, from)) = star else { return false };
                star = Some((behind, from + 1));
                (at, pos) = (behind, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Whether it has anything but plain characters.
pub(crate) fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'*' | b'?'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        let rows: [(&str, &str, bool); 22] = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "vfs_read", true),
            ("?", "", false),
            ("?", "a", true),
            ("?", "ab", false),
            ("vfs_read", "vfs_read", true),
            ("vfs_read", "vfs_readv", false),
            ("vfs_readv", "vfs_read", false),
            ("vfs_*", "vfs_", true),
            ("vfs_*", "xvfs_read", false),
            ("*_read", "vfs_read", true),
            ("*_read", "vfs_read_iter", false),
            ("vfs_????", "vfs_read", true),
            ("vfs_????", "vfs_write", false),
            ("v*r??d", "vfs_read", true),
            ("*a*b*c", "xxaxxbxxbxxc", true),
            ("*a*b*c", "xxaxxbxxbxx", false),
            ("*ab", "aab", true),
            ("*?b*", "b", false),
            ("[a]", "a", false),
        ];
        for (pattern, name, wanted) in rows {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), wanted, "{pattern:?} and {name:?}");
        }
        // Not as many steps as there are ways to place the stars.
        let name = [b'a'; 500];
        let pattern = [&b"*a"[..]; 100].concat();
        assert!(matches(&pattern, &name));
        assert!(!matches(&[&pattern[..], b"b"].concat(), &name));
    }

    #[test]
    fn names_are_no_patterns() {
        assert!(!is_pattern(b"f.isra.0"));
        assert!(is_pattern(b"f*") && is_pattern(b"?"));
    }
}

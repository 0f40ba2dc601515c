//! Words in a private mapping: of a fixed size, and no heap.

use core::fmt;

use crate::sys::mmap::AnonMap;

/// Bytes that a text may have: enough for the last lines of a verifier log too. Only what is written becomes memory.
pub(crate) const LIMIT: usize = 16 << 10;

/// What stands at the end of a text that was cut.
const CUT: &str = "...";

/// A text that grows up to its limit and is cut there.
#[derive(Default)]
pub(crate) struct Text {
    map: Option<AnonMap>,
    len: usize,
    is_cut: bool,
}

impl Text {
    pub(crate) fn as_str(&self) -> &str {
        let bytes = self.map.as_deref().and_then(|map| map.get(..self.len)).unwrap_or_default();
        // Only whole characters are written.
        core::str::from_utf8(bytes).unwrap_or_default()
    }

    fn put(&mut self, words: &str) {
        let bytes = self.map.as_deref_mut().unwrap_or_default();
        if let Some(place) = bytes.get_mut(self.len..self.len.saturating_add(words.len())) {
            place.copy_from_slice(words.as_bytes());
            self.len += words.len();
        }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, words: &str) -> fmt::Result {
        if self.map.is_none() {
            // Without memory for words the numbers must do.
            self.map = Some(AnonMap::new(LIMIT).map_err(|_| fmt::Error)?);
        }
        if self.is_cut {
            return Err(fmt::Error);
        }
        let room = (LIMIT - CUT.len()).saturating_sub(self.len);
        if words.len() <= room {
            self.put(words);
            return Ok(());
        }
        let fits = (0..=room).rev().find(|&end| words.is_char_boundary(end)).unwrap_or(0);
        self.put(words.get(..fits).unwrap_or_default());
        self.put(CUT);
        self.is_cut = true;
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write;

    #[test]
    fn what_does_not_fit_is_cut_between_characters() {
        let mut text = Text::default();
        assert_eq!(text.as_str(), "");
        text.write_str("\u{e9}").unwrap();
        for _ in 0..LIMIT {
            let _ = text.write_str("\u{e9}");
        }
        let said = text.as_str();
        assert!(said.len() <= LIMIT && said.len() > LIMIT - 5, "{}", said.len());
        assert!(said.trim_end_matches(CUT).chars().all(|c| c == '\u{e9}') && said.ends_with(CUT), "{said}");
    }
}

//! Reports in Markdown files, between two comments: `<!-- NAME -->` and `<!-- /NAME -->`.

use std::fs;
use std::path::Path;

/// Puts `text` between the markers of `name` in a file, which gets them at its end if it has none.
///
/// # Panics
/// If the file cannot be read or written, or has only the first marker.
pub fn replace(path: &Path, name: &str, text: &str) {
    let old = fs::read_to_string(path).unwrap_or_default();
    let new = replaced(&old, name, text);
    fs::write(path, new).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// What is between the markers of `name` in a file's text, if it has both.
#[must_use]
pub fn between<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<!-- {name} -->\n"))?;
    Some(rest.split_once(&format!("<!-- /{name} -->"))?.0)
}

fn replaced(old: &str, name: &str, text: &str) -> String {
    let (start, end) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
    let text = text.trim_end();
    match old.split_once(&start) {
        None => {
            let gap = if old.is_empty() { "" } else { "\n" };
            format!("{old}{gap}{start}\n{text}\n{end}\n")
        }
        Some((before, rest)) => {
            let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end} after {start}"));
            format!("{before}{start}\n{text}\n{end}{after}")
        }
    }
}

/// A table of rows of equal length, the first one its head.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
        if number == 0 {
            text.push_str(&format!("|---{}\n", "|---:".repeat(row.len() - 1) + "|"));
        }
    }
    text
}

/// A number with a comma before every three digits.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn text_is_put_between_markers() {
        let once = replaced("a\n", "x", "one\n");
        assert_eq!(once, "a\n\n<!-- x -->\none\n<!-- /x -->\n");
        assert_eq!(between(&once, "x"), Some("one\n"));
        assert_eq!(between("<!-- x -->\none", "x"), None);
        assert_eq!(replaced(&once, "x", "two"), "a\n\n<!-- x -->\ntwo\n<!-- /x -->\n");
    }
}

//! The names that an object has, and which of them somebody may have meant.

use core::fmt::{self, Write};

use corelo_core::object::{MapId, MapOrigin, ProgramId};
use corelo_core::prepare::Prepared;

use super::text::Text;
use crate::report::Name;

/// The names in an object.
#[derive(Clone, Copy)]
pub(super) struct Names<'r, 'a>(pub(super) &'r Prepared<'a>);

impl<'r, 'a: 'r> Names<'r, 'a> {
    pub(super) fn map(self, id: MapId) -> &'a [u8] {
        self.0.declared().map(id).map_or(&[][..], |map| self.0.map_name(map))
    }

    pub(super) fn program(self, id: ProgramId) -> &'a [u8] {
        self.0.declared().function(id).map_or(&[][..], |function| self.0.function_name(function))
    }

    pub(super) fn programs(self) -> impl Iterator<Item = &'a [u8]> + use<'r, 'a> {
        self.0.declared().programs().map(move |(_, function)| self.0.function_name(function))
    }

    pub(super) fn maps(self) -> impl Iterator<Item = &'a [u8]> + use<'r, 'a> {
        let named = self.0.maps().iter().filter(|map| map.origin() != MapOrigin::Inner);
        named.map(move |map| self.0.map_name(map))
    }

    pub(super) fn variables(self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.0.variables().map_while(Result::ok).map(|(name, _)| name)
    }
}

/// How many names are told at most.
const TOLD: usize = 8;

/// Says that there is no `what` of the name, and which there are, those first that are most like it.
pub(super) fn write_unknown<'a>(
    text: &mut Text,
    what: &str,
    wanted: &str,
    names: impl Iterator<Item = &'a [u8]>,
) -> fmt::Result {
    let mut nearest = heapless::Vec::<(usize, &[u8]), TOLD>::new();
    let mut count = 0usize;
    for name in names {
        count += 1;
        let far = distance(wanted.as_bytes(), name);
        let index = nearest.iter().position(|(other, _)| *other > far).unwrap_or(nearest.len());
        if index == TOLD {
            continue;
        }
        if nearest.is_full() {
            nearest.pop();
        }
        // There is room, and the index is within it.
        let _ = nearest.insert(index, (far, name));
    }
    write!(text, "the object has no {what} {wanted}")?;
    if nearest.is_empty() {
        return write!(text, ", and no {what}s at all");
    }
    text.write_str("; it has ")?;
    for (index, (_, name)) in nearest.iter().enumerate() {
        write!(text, "{}{}", if index == 0 { "" } else { ", " }, Name(name))?;
    }
    match count.checked_sub(nearest.len()) {
        Some(more @ 1..) => write!(text, " and {more} more"),
        _ => Ok(()),
    }
}

/// How many bytes must be put in, left out or changed to make one name of the other (Levenshtein's distance), of their
/// first 63 bytes.
fn distance(one: &[u8], other: &[u8]) -> usize {
    const LONGEST: usize = 63;
    let (one, other) = (&one[..one.len().min(LONGEST)], &other[..other.len().min(LONGEST)]);
    let mut row: [usize; LONGEST + 1] = core::array::from_fn(|index| index);
    for (index, byte) in one.iter().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], index + 1);
        for (column, against) in other.iter().enumerate() {
            let above = row[column + 1];
            let changed = diagonal + usize::from(!byte.eq_ignore_ascii_case(against));
            row[column + 1] = changed.min(above + 1).min(row[column] + 1);
            diagonal = above;
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (one, other, far) in
            [("", "", 0), ("abc", "abc", 0), ("kitten", "sitting", 3), ("a", "", 1), ("", "abc", 3), ("ABC", "abc", 0)]
        {
            assert_eq!(distance(one.as_bytes(), other.as_bytes()), far, "{one} {other}");
        }
        assert_eq!(distance(&[b'a'; 100], &[b'a'; 200]), 0);
    }

    #[test]
    fn the_nearest_names_come_first() {
        let said = |wanted, names: &[&'static str]| {
            let mut text = Text::default();
            write_unknown(&mut text, "map", wanted, names.iter().map(|name| name.as_bytes())).unwrap();
            text.as_str().to_owned()
        };
        assert_eq!(said("evnts", &["stats", "events"]), "the object has no map evnts; it has events, stats");
        assert_eq!(said("x", &[]), "the object has no map x, and no maps at all");
        let many = ["aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff", "gggg", "hhhh", "iiii", "zzzy"];
        let told = said("zzzz", &many);
        assert_eq!(
            told,
            "the object has no map zzzz; it has zzzy, aaaa, bbbb, cccc, dddd, eeee, ffff, gggg and 2 more"
        );
    }
}

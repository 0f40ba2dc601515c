//! Sections that programs are treated as if they were in: what a caller says otherwise than the object.

use crate::arena::{Arena, ArenaFull, Part};

/// Names of sections by the symbol of the function that is to be in each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sections<'a> {
    /// For each: the symbol's index and the length of the name, each four bytes in the host's order, and the name.
    packed: &'a [u8],
}

/// Bytes before a name.
const HEAD: usize = 8;

impl<'a> Sections<'a> {
    /// These, copied into `arena`: the index of a function's symbol, and the name of its section.
    ///
    /// # Errors
    /// [`ArenaFull`]
    pub fn new<'s>(
        sections: impl Iterator<Item = (u32, &'s [u8])> + Clone,
        arena: &mut Arena<'a>,
    ) -> Result<Self, ArenaFull> {
        let len = sections.clone().fold(0usize, |len, (_, name)| len.saturating_add(HEAD).saturating_add(name.len()));
        let packed = arena.slice::<u8>(len, Part::Functions)?;
        let mut at = 0usize;
        for (symbol, name) in sections {
            let size = u32::try_from(name.len()).unwrap_or(u32::MAX);
            for part in [&symbol.to_ne_bytes()[..], &size.to_ne_bytes(), name] {
                let end = at.saturating_add(part.len());
                if let Some(place) = packed.get_mut(at..end) {
                    place.copy_from_slice(part);
                }
                at = end;
            }
        }
        Ok(Self { packed })
    }

    /// The section that a function is to be in; the last that was given for its symbol.
    pub(super) fn of(self, symbol: u32) -> Option<&'a [u8]> {
        let mut rest = self.packed;
        let mut found = None;
        while let Some((head, behind)) = rest.split_first_chunk::<HEAD>() {
            let ([a, b, c, d], [e, f, g, h]) = split(*head);
            let size = usize::try_from(u32::from_ne_bytes([e, f, g, h])).ok()?;
            let (name, behind) = behind.split_at_checked(size)?;
            if u32::from_ne_bytes([a, b, c, d]) == symbol {
                found = Some(name);
            }
            rest = behind;
        }
        found
    }
}

const fn split([a, b, c, d, e, f, g, h]: [u8; HEAD]) -> ([u8; 4], [u8; 4]) {
    ([a, b, c, d], [e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_section_of_a_symbol_counts() {
        let mut buffer = [0u8; 256];
        let mut arena = Arena::new(&mut buffer);
        let given = [(7, &b"xdp"[..]), (3, b""), (7, b"tc")];
        let sections = Sections::new(given.into_iter(), &mut arena).unwrap();
        assert_eq!([7, 3, 4].map(|symbol| sections.of(symbol)), [Some(&b"tc"[..]), Some(b""), None]);
        assert_eq!(Sections::default().of(0), None);
        assert!(Sections::new(given.into_iter(), &mut Arena::new(&mut [0; 32])).is_err());
    }
}

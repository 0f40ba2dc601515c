//! An input is eight bytes of numbers for the target to choose by, then parts with a mark between them. Mutations that
//! make a part longer or shorter leave the others as they are.

/// What stands between two parts.
pub const MARK: &[u8] = b"--corelo-part--\n";

/// Bytes of numbers at the start.
pub const NUMBERS: usize = 8;

/// An input of some parts, as [`split`] takes it apart.
#[must_use]
pub fn join(numbers: [u8; NUMBERS], parts: &[&[u8]]) -> Vec<u8> {
    [&numbers[..], &parts.join(MARK)].concat()
}

/// The numbers, and so many parts; those that are not there are empty.
#[must_use]
pub fn split<const PARTS: usize>(data: &[u8]) -> ([u8; NUMBERS], [&[u8]; PARTS]) {
    let Some((numbers, mut rest)) = data.split_first_chunk::<NUMBERS>() else { return ([0; NUMBERS], [&[]; PARTS]) };
    let mut parts = [&[][..]; PARTS];
    for part in &mut parts {
        let end = rest.windows(MARK.len()).position(|window| window == MARK);
        *part = &rest[..end.unwrap_or(rest.len())];
        rest = end.map_or(&[][..], |end| &rest[end + MARK.len()..]);
    }
    (*numbers, parts)
}

/// The two bytes of numbers at `at`.
#[must_use]
pub fn number(numbers: &[u8; NUMBERS], at: usize) -> usize {
    usize::from(u16::from_le_bytes([numbers[at], numbers[at + 1]]))
}

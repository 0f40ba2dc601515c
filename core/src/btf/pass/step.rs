//! One step of the walk: over one type.

use super::super::info::Info;
use super::super::rows::CURSORS;
use crate::bytes::Endian;
use crate::numbers::{to_u32, to_usize};

/// What the walk does with a type of one kind: its words, once and for each item, and whether to look closer (1 or 0).
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) once: u32,
    pub(super) each: u8,
    pub(super) look: u8,
}

/// Of a kind that nobody knows the length of: longer than any section, yet a sum of such stays below 2^32.
pub(super) const UNKNOWN_STEP: Step = Step { once: 1 << 30, each: 0, look: 0 };

/// The step of each kind, by the upper byte of the info word. Bit 7 of that is `kind_flag`, which changes nothing.
pub(super) type Steps = [Step; 256];

/// A place in a segment. Everything is counted in words of four bytes, of which all types consist.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    /// The type section up to where the segment ends.
    pub(super) words: &'a [[u8; 4]],
    /// The info word, the second of the type that the cursor is at.
    pub(super) info_at: usize,
    /// Types passed.
    pub(super) count: u32,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(words: &'a [[u8; 4]], start: usize) -> Self {
        Self { words, info_at: start.wrapping_add(1), count: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.info_at > self.words.len()
    }

    /// Whether its last type reached beyond the end.
    pub(super) fn is_beyond(&self) -> bool {
        self.info_at > self.words.len().wrapping_add(1)
    }

    /// Where its type starts in the type section, in bytes.
    pub(super) fn offset(&self) -> usize {
        self.info_at.wrapping_sub(1).wrapping_mul(4)
    }
}

/// Types to look closer at, in the order of the walk.
///
/// Names lie all over the string section, most in no cache. One by itself would make the walk wait; the first bytes of
/// many are fetched together. And every type is noted, but the next one is noted in its place unless it is to be looked
/// at: no processor could predict which those are.
pub(super) struct Pending {
    /// Where their info words are.
    pub(super) info_at: [u32; 256],
    /// Their numbers in their segments.
    pub(super) numbers: [u32; 256],
    /// How many there are, where nobody walks.
    pub(super) len: Len,
}

/// How many types may be pending: one bit each of a word.
const MOST_PENDING: usize = 64;

/// How many types are pending. A byte needs no check as an index.
#[derive(Clone, Copy)]
pub(super) struct Len(pub(super) u8);

impl Len {
    pub(super) const NONE: Self = Self(0);

    /// Whether there may be no room for a type of each segment.
    #[inline(always)]
    pub(super) fn is_full(self) -> bool {
        usize::from(self.0) > const { MOST_PENDING - CURSORS }
    }
}

impl Pending {
    pub(super) const fn new() -> Self {
        Self { info_at: [0; 256], numbers: [0; 256], len: Len::NONE }
    }

    /// Walks over one type, which has this number in its segment: finds out how long it is and whether to look closer, and
    /// no more. Takes how many types are pending, and gives how many are then; `None` at the end of the words.
    #[inline(always)]
    pub(super) fn step(
        &mut self,
        (words, endian): (&[[u8; 4]], Endian),
        info_at: &mut usize,
        number: u32,
        steps: &Steps,
        len: Len,
    ) -> Option<Len> {
        let info = endian.word(*words.get(*info_at)?);
        let step = steps.get(to_usize(info >> 24))?;
        let place = usize::from(len.0);
        if let (Some(its_info), Some(its_number)) = (self.info_at.get_mut(place), self.numbers.get_mut(place)) {
            (*its_info, *its_number) = (to_u32(*info_at), number);
        }
        let items = usize::from(step.each).wrapping_mul(to_usize(Info(info).vlen()));
        *info_at = info_at.wrapping_add(to_usize(step.once)).wrapping_add(items);
        Some(Len(len.0.wrapping_add(step.look)))
    }
}

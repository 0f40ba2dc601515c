//! One step of the walk: over one type.

use super::super::info::Info;
use super::super::rows::CURSORS;
use crate::bytes::Endian;

/// What the walk does with a type of one kind: its words, once and for each item, and whether to look closer.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) once: u32,
    pub(super) each: u8,
    pub(super) look: bool,
}

/// Of a kind that nobody knows the length of: longer than any section, yet a sum of such stays below 2^32.
pub(super) const UNKNOWN_STEP: Step = Step { once: 1 << 30, each: 0, look: false };

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

/// Types to look closer at.
///
/// Names lie all over the string section, most in no cache. One by itself would make the walk wait; the first bytes of
/// many are fetched together.
pub(super) struct Pending {
    /// Where their info words are.
    pub(super) info_at: [u32; PENDING],
    /// Segment and number, as in an answer.
    pub(super) numbers: [u32; PENDING],
    pub(super) kinds: [u8; PENDING],
    /// How many there are.
    pub(super) len: usize,
}

/// How many types may be pending: one bit each of a word.
const PENDING: usize = 64;

impl Pending {
    pub(super) const fn new() -> Self {
        Self { info_at: [0; PENDING], numbers: [0; PENDING], kinds: [0; PENDING], len: 0 }
    }

    /// Whether there may be no room for a type of each segment.
    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.len > PENDING - CURSORS
    }

    /// Walks over one type, whose segment and number are `number`: finds out how long it is and whether to look closer,
    /// and no more. There must be room. Gives `None` at the end of the words.
    #[inline(always)]
    pub(super) fn step(
        &mut self,
        (words, endian): (&[[u8; 4]], Endian),
        info_at: &mut usize,
        number: u32,
        steps: &Steps,
    ) -> Option<()> {
        let info = endian.word(*words.get(*info_at)?);
        let step = steps.get((info >> 24) as usize)?;
        if step.look {
            let place = self.len % PENDING;
            let places = (self.info_at.get_mut(place), self.numbers.get_mut(place), self.kinds.get_mut(place));
            if let (Some(at), Some(its_number), Some(kind)) = places {
                (*at, *its_number, *kind) = (*info_at as u32, number, Info(info).kind_number());
            }
            self.len = place.wrapping_add(1);
        }
        let items = usize::from(step.each).wrapping_mul(Info(info).vlen() as usize);
        *info_at = info_at.wrapping_add(step.once as usize).wrapping_add(items);
        Some(())
    }
}

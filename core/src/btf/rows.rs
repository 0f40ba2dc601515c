//! Where in a sparse index the entry of a type is, when several cursors wrote it in turn.
//!
//! Each cursor of the one pass walks over a segment of the types and notes every `stride`-th. They go in step, so that
//! their entries alternate: first the first entry of each segment, then the second of each that has one, and so on.
//!
//! ```text
//! segment 0: a b c d     segment 1: p q     segment 2: x y z     index: a p x b q y c z d
//! ```

use crate::numbers::to_usize;
use core::num::NonZeroU32;

/// Every how many types there is an entry.
pub(super) type Stride = NonZeroU32;

/// What a caller asks for: 0 is as 1.
pub(super) fn stride(wanted: u32) -> Stride {
    Stride::new(wanted).unwrap_or(Stride::MIN)
}

/// A microcontroller does one thing after the other: nothing is gained there by cutting, and flash is dear.
const IS_CUT_HERE: bool = !cfg!(all(target_arch = "arm", target_os = "none"));

/// How many cursors walk at once over a large blob.
pub(super) const CURSORS: usize = if IS_CUT_HERE { 3 } else { 1 };

/// How the entries of the segments lie in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// The number of the type after each segment.
    ends: [u32; CURSORS],
    /// Entries of each segment.
    lens: [u32; CURSORS],
}

impl Rows {
    /// One segment, whose entries are all there is.
    pub(super) const PLAIN: Self = {
        let mut lens = [0; CURSORS];
        lens[0] = u32::MAX;
        Self { ends: [u32::MAX; CURSORS], lens }
    };

    /// Segments of so many types each, of which every `stride`-th has an entry.
    pub(super) fn new(counts: [u32; CURSORS], stride: Stride) -> Self {
        let mut end = 0u32;
        let ends = counts.map(|count| {
            end = end.wrapping_add(count);
            end
        });
        Self { ends, lens: counts.map(|count| count.div_ceil(stride.get())) }
    }

    /// How many types there are.
    pub(super) fn count(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The number that the first type of a segment has in the blob.
    pub(super) fn start(&self, segment: usize) -> u32 {
        segment.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }

    /// The entry from which the type with this number is found, and how many types lie between.
    pub(super) fn find(&self, number: u32, stride: Stride) -> (usize, u32) {
        let segment = self.ends.iter().take_while(|&&end| end <= number).count();
        let within = number.wrapping_sub(self.start(segment));
        let row = within / stride;
        let mut entry = 0usize;
        for (other, &len) in self.lens.iter().enumerate() {
            // In the rows before, and in the same row before it.
            let rows = if other < segment { row.saturating_add(1) } else { row };
            entry = entry.saturating_add(to_usize(len.min(rows)));
        }
        (entry, within % stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The index as the cursors write it: the number of the type of each entry.
    fn written(counts: [u32; CURSORS], stride: u32) -> ([u32; 64], usize) {
        let (mut index, mut len) = ([0; 64], 0);
        for row in 0..64 {
            let mut start = 0;
            for count in counts {
                if row * stride < count {
                    index[len] = start + row * stride;
                    len += 1;
                }
                start += count;
            }
        }
        (index, len)
    }

    #[test]
    fn finds_every_type_in_segments_of_any_length() {
        for stride in [1, 2, 3, 8].map(stride) {
            for code in 0..9 * 9 * 9 {
                let counts = [code % 9, code / 9 % 9, code / 81];
                let (rows, (index, len)) = (Rows::new(counts, stride), written(counts, stride.get()));
                assert_eq!(rows.count(), counts.iter().sum());
                for number in 0..rows.count() {
                    let (entry, steps) = rows.find(number, stride);
                    assert!(entry < len && steps < stride.get(), "{counts:?} {stride} {number}");
                    assert_eq!(index[entry] + steps, number, "{counts:?} {stride}");
                }
            }
        }
    }

    #[test]
    fn one_segment_is_a_plain_index() {
        let eight = stride(8);
        for number in 0..100 {
            assert_eq!(Rows::PLAIN.find(number, eight), ((number / 8) as usize, number % 8));
            assert_eq!(Rows::new([100, 0, 0], eight).find(number, eight), Rows::PLAIN.find(number, eight));
        }
    }
}

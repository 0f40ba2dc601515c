//! Cutting a blob into segments, and walking over them in step.

use super::super::info::{Info, Kind};
use super::super::rows::{CURSORS, Rows, Stride};
use super::super::{BtfError, FIXED};
use super::Pass;
use super::step::{Cursor, Pending, Steps};
use crate::bytes::Endian;
use crate::numbers::{to_u32, to_usize};

/// Where the second and the third segment start, in 24ths of the type section. Structs are longer than functions and come
/// first in a kernel's BTF; so cut, the segments have about as many types.
const CUTS: [usize; 2] = [10, 17];

/// How far after that a type's start is looked for, in bytes.
const CUT_WITHIN: usize = 4 << 10;

/// How many types in a row must look like types.
const CUT_CHAIN: usize = 16;

impl<'a> Pass<'_, '_, 'a> {
    /// A cursor at the start of each segment; `None` for a blob that is small or in the other byte order, which is read on
    /// workstations, or where nothing looks like a start.
    pub(super) fn cut(&self) -> Option<[Cursor<'a>; CURSORS]> {
        if !self.is_worth_cutting() || self.btf.endian() != Endian::host() {
            return None;
        }
        let (words, _) = self.btf.types.data().as_chunks();
        let [second, third] = CUTS.map(|part| self.find_start((self.btf.types.len() / 24).saturating_mul(part)));
        let (second, third) = (second? / 4, third? / 4);
        // Each has the words from the first on, so that what it counts is an offset in the whole.
        let segment = |start, end| Some(Cursor::new(words.get(..end)?, start));
        let is_in_order = second < third && third < words.len();
        is_in_order.then_some([segment(0, second)?, segment(second, third)?, segment(third, words.len())?])
    }

    /// Walks over the segments.
    pub(super) fn walk_segments(
        &mut self,
        mut cursors: [Cursor<'a>; CURSORS],
        steps: &Steps,
        stride: Stride,
    ) -> Result<Rows, BtfError> {
        self.ends = cursors.map(|cursor| to_u32(cursor.words.len()));
        let mut pending = Pending::new();
        self.walk_in_step(&mut cursors, steps, &mut pending, stride)?;
        // The proof of the cuts: a cursor that passed the end of its segment did not meet the start of the next one, which
        // was then in the middle of a type.
        if let Some(cursor) = cursors.iter().find(|cursor| cursor.is_beyond()) {
            return Err(self.unreadable(cursor.info_at, cursor.count));
        }
        // First to the end of the row that they are in, so that no entry of the next one comes too early.
        for cursor in cursors.iter_mut().filter(|cursor| !cursor.count.is_multiple_of(stride.get())) {
            self.walk_row(cursor, steps, &mut pending, stride)?;
        }
        self.walk_rows(&mut cursors, steps, &mut pending, stride)?;
        Ok(Rows::new(cursors.map(|cursor| cursor.count), stride))
    }

    /// Walks with all cursors, a type each in turn, until one cannot go on: at the end of its segment.
    ///
    /// This is the loop that everything waits for.
    #[inline(never)]
    fn walk_in_step(
        &mut self,
        cursors: &mut [Cursor<'a>; CURSORS],
        steps: &Steps,
        pending: &mut Pending,
        stride: Stride,
    ) -> Result<(), BtfError> {
        let mut len = pending.len;
        // A constant byte order lets the compiler leave the swap out.
        let [one, two, three] = cursors.map(|cursor| (cursor.words, Endian::host()));
        let mut count = 0u32;
        loop {
            for cursor in &*cursors {
                self.push_index(cursor.offset())?;
            }
            let [mut first, mut second, mut third] = cursors.map(|cursor| cursor.info_at);
            let row_end = count.wrapping_add(stride.get());
            // How many cursors have come a type further than the one that is at its end.
            let ahead = loop {
                if count == row_end {
                    break 0;
                }
                let Some(more) = pending.step(one, &mut first, count, steps, len) else { break 0 };
                len = more;
                let Some(more) = pending.step(two, &mut second, count, steps, len) else { break 1 };
                len = more;
                let Some(more) = pending.step(three, &mut third, count, steps, len) else { break 2 };
                len = more;
                count = count.wrapping_add(1);
                if len.is_full() {
                    len = self.look_at(pending, len)?;
                }
            };
            for (turn, (cursor, info_at)) in cursors.iter_mut().zip([first, second, third]).enumerate() {
                (cursor.info_at, cursor.count) = (info_at, count.wrapping_add(u32::from(turn < ahead)));
            }
            if count != row_end || cursors.iter().any(Cursor::is_done) {
                pending.len = len;
                return Ok(());
            }
        }
    }

    /// An offset after `near` at which a type seems to start.
    fn find_start(&self, near: usize) -> Option<usize> {
        let near = near & !3;
        (near..near.saturating_add(CUT_WITHIN)).step_by(4).find_map(|start| {
            // The end of the chain: steps from the middle of a type soon fall in with the types.
            (0..CUT_CHAIN).try_fold(start, |at, _| self.after_type_like(at))
        })
    }

    /// Where the type ends that seems to be at `offset`.
    fn after_type_like(&self, offset: usize) -> Option<usize> {
        let [name_off, info, _] = self.btf.types.u32x3(offset)?;
        let (number, vlen) = (Info(info).kind_number(), to_usize(Info(info).vlen()));
        let shape = self.btf.shape(number).filter(|_| number != Kind::Void.number())?;
        // The linkage of a function is kept in the place of its vlen.
        let has_items = shape.each != 0 || number == Kind::Func.number();
        let has_name = to_usize(name_off) < to_usize(self.btf.first_string).saturating_add(self.btf.strings.len());
        let len = FIXED.wrapping_add(usize::from(shape.once)).wrapping_add(usize::from(shape.each).wrapping_mul(vlen));
        (has_name && (has_items || vlen == 0)).then(|| offset.wrapping_add(len))
    }
}

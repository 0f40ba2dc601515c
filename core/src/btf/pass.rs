//! How the one pass goes over the types.
//!
//! Where a type ends is known only when its info word was read, so a walk waits for memory and a multiplication at each
//! of a hundred thousand types, with nothing else to do meanwhile. A large blob is therefore cut into segments, which
//! cursors walk over in step: while one waits, the others go on. Types have no mark by which their start could be told
//! from the middle of another, so a cut is a guess, and what proves it is that the cursor of the segment before arrives
//! there exactly. If one does not, all that was found is dropped and a single cursor walks over the whole.
//!
//! On the way the sparse id index grows from the front of what is left of the arena ([`Rows`]), and answers grow from
//! the back; they are moved next to the index at the end, so that the number of types need not be known before.

#[cfg(not(all(target_arch = "arm", target_os = "none")))]
mod segments;
mod step;

use zerocopy::FromBytes;

use super::index::Types;
use super::info::{Info, Kind};
use super::query::{LONG_NAMES, LONG_STARTS, Questions};
use super::rows::{CURSORS, Rows, Stride};
use super::{Btf, BtfError, FIXED, TypeId};
use crate::arena::{Arena, ArenaFull, Part};
use crate::limits::MAX_NAME;
use crate::numbers::{low_u8, to_u32, to_usize};
use step::{Cursor, Len, Pending, Step, Steps, UNKNOWN_STEP};

/// Bytes of types from which on a blob is cut.
const WORTH_CUTTING: usize = 256 << 10;

/// Words of the index that segments may take above what a whole takes, as each ends with a part of a row.
const SPARE: usize = 2;

/// The number of an answer's segment stands above its type's number within it: there are fewer than 2^29 types of twelve
/// bytes and more in a section of 4 GiB.
const SEGMENT_SHIFT: u32 = 30;

/// What a pass leaves in the arena.
pub(super) struct Found<'a> {
    pub(super) types: Types<'a>,
    /// Asker and type id, by turns, in no order.
    pub(super) answers: &'a mut [u32],
    pub(super) visited: u32,
}

/// Whether this is the info word of an integer.
fn is_int(info: u32) -> bool {
    Info(info).kind_number() == Kind::Int.number()
}

pub(super) struct Pass<'p, 'q, 'a> {
    questions: &'p Questions<'q>,
    btf: Btf<'a>,
    base: Option<&'a Types<'a>>,
    area: &'p mut [u32],
    index_len: usize,
    /// Words at the end of the area: two per answer.
    answers_len: usize,
    /// Where the segments end, in words.
    ends: [u32; CURSORS],
    /// The size of the first long integer type, and the segment that it is in.
    long: Option<(u32, u8)>,
}

impl<'a> Pass<'_, '_, 'a> {
    /// Walks over all types of `btf`.
    pub(super) fn run(
        questions: &Questions<'_>,
        btf: Btf<'a>,
        base: Option<&'a Types<'a>>,
        stride: Stride,
        arena: &mut Arena<'a>,
    ) -> Result<Found<'a>, BtfError> {
        let words = arena.left() / 4;
        let area: &mut [u32] =
            <[u32]>::mut_from_prefix_with_elems(arena.rest(), words).map_or(&mut [], |(area, _)| area);
        let mut pass =
            Pass { questions, btf, base, area, index_len: 0, answers_len: 0, ends: [u32::MAX; CURSORS], long: None };
        let rows = pass.walk(stride)?;
        let count = rows.count();
        let index_len = pass.index_words(count, stride);
        pass.close_gap(&rows, index_len)?;
        let (answers_len, long) = (pass.answers_len, pass.long);

        let kept: &'a mut [u32] = arena.take(index_len.saturating_add(answers_len), Part::KernelIndex)?;
        let (offsets, answers) = kept.split_at_mut_checked(index_len).unwrap_or_default();
        let pointer_size = long.map_or(8, |(_, byte_size)| byte_size);
        Ok(Found {
            types: Types::from_parts(btf, offsets, rows, (stride, count), pointer_size, base),
            answers,
            visited: count,
        })
    }

    /// Walks over segments if that can be, else over the whole.
    fn walk(&mut self, stride: Stride) -> Result<Rows, BtfError> {
        let steps = self.steps();
        #[cfg(not(all(target_arch = "arm", target_os = "none")))]
        if let Some(cursors) = self.cut() {
            if let Ok(rows) = self.walk_segments(cursors, &steps, stride) {
                return Ok(rows);
            }
            // The cut may have been wrong; if it was not, a single cursor meets the same error.
            (self.index_len, self.answers_len, self.long) = (0, 0, None);
            self.ends = [u32::MAX; CURSORS];
        }
        let (words, rest) = self.btf.types.data().as_chunks();
        let mut whole = [Cursor::new(words, 0)];
        self.walk_rows(&mut whole, &steps, &mut Pending::new(), stride)?;
        let [Cursor { count, info_at, .. }] = whole;
        if !rest.is_empty() {
            return Err(self.unreadable(info_at, count));
        }
        let mut counts = [0; CURSORS];
        counts[0] = count;
        Ok(Rows::new(counts, stride))
    }

    /// Walks row by row, each cursor to the end of its segment.
    fn walk_rows(
        &mut self,
        cursors: &mut [Cursor<'a>],
        steps: &Steps,
        pending: &mut Pending,
        stride: Stride,
    ) -> Result<(), BtfError> {
        while cursors.iter().any(|cursor| !cursor.is_done()) {
            for cursor in &mut *cursors {
                self.walk_row(cursor, steps, pending, stride)?;
            }
        }
        self.look_at(pending, pending.len).map(|_| ())
    }

    /// Walks to the end of the row of the index that the cursor is in.
    fn walk_row(
        &mut self,
        cursor: &mut Cursor<'a>,
        steps: &Steps,
        pending: &mut Pending,
        stride: Stride,
    ) -> Result<(), BtfError> {
        if cursor.is_done() {
            return Ok(());
        }
        let types = (cursor.words, self.btf.endian());
        let done = cursor.count % stride;
        if done == 0 {
            self.push_index(cursor.offset())?;
        }
        // Apart, so that they stay in registers.
        let Cursor { mut info_at, mut count, .. } = *cursor;
        let mut len = pending.len;
        let end = cursor.words.len();
        for _ in done..stride.get() {
            let at = info_at;
            let more = pending.step(types, &mut info_at, count, steps, len);
            len = more.filter(|_| info_at <= end.wrapping_add(1)).ok_or_else(|| self.unreadable(at, count))?;
            count = count.wrapping_add(1);
            if len.is_full() {
                len = self.look_at(pending, len)?;
            }
            if info_at > end {
                break;
            }
        }
        pending.len = len;
        (cursor.info_at, cursor.count) = (info_at, count);
        Ok(())
    }

    /// Looks at the names of the types that are pending; then none is.
    #[inline(never)]
    fn look_at(&mut self, pending: &Pending, len: Len) -> Result<Len, BtfError> {
        let (words, _) = self.btf.types.data().as_chunks();
        let (endian, own_strings) = (self.btf.endian(), self.btf.strings.data());
        let word = |at: u32| words.get(to_usize(at)).map_or(0, |&word| endian.word(word));
        let mut wanted = 0u64;
        for (place, &info_at) in pending.info_at.iter().enumerate().take(usize::from(len.0)) {
            let name_off = word(info_at.wrapping_sub(1));
            let name = match name_off.checked_sub(self.btf.first_string) {
                Some(own) => own_strings.get(to_usize(own)..),
                None => self.strings_from(name_off),
            };
            let may_want = name.and_then(|name| name.first_chunk()).is_some_and(|&bytes| {
                self.questions.may_want(bytes) || (LONG_STARTS.contains(&bytes) && is_int(word(info_at)))
            });
            wanted |= u64::from(may_want) << place;
        }
        while wanted != 0 {
            let place = to_usize(wanted.trailing_zeros());
            wanted &= wanted.wrapping_sub(1);
            let (Some(&info_at), Some(&number)) = (pending.info_at.get(place), pending.numbers.get(place)) else {
                continue;
            };
            let segment = to_u32(self.ends.iter().take_while(|&&end| end <= info_at).count());
            let Some(name) = self.name(word(info_at.wrapping_sub(1))) else { continue };
            if is_int(word(info_at)) {
                self.note_long(name, word(info_at.wrapping_add(1)), segment);
            }
            let questions = self.questions;
            questions.askers(name, Info(word(info_at)).kind_number(), |owner| {
                self.push_answer(owner, number | (segment << SEGMENT_SHIFT))
            })?;
        }
        Ok(Len::NONE)
    }

    /// Why there is no way past a type. What it says is right for the first segment.
    #[cold]
    fn unreadable(&self, info_at: usize, count: u32) -> BtfError {
        let offset = info_at.wrapping_sub(1).wrapping_mul(4);
        let id = TypeId(self.btf.first_id.wrapping_add(count));
        let kind = self.btf.types.u32x3(offset).map(|[_, info, _]| Info(info).kind_number());
        match kind.filter(|&kind| self.btf.shape(kind).is_none()) {
            Some(kind) => BtfError::UnknownKind { id, offset: to_u32(offset), kind },
            None => BtfError::TypeTruncated { id, offset: to_u32(offset) },
        }
    }

    /// What to do with types of each kind.
    fn steps(&self) -> Steps {
        let mut steps = [UNKNOWN_STEP; 256];
        let (plain, flagged) = steps.split_at_mut(128);
        for (number, (one, other)) in (0u8..).zip(plain.iter_mut().zip(flagged)) {
            let Some(shape) = self.btf.shape(number) else { continue };
            let once = to_u32(FIXED).wrapping_add(u32::from(shape.once));
            // Among the integers is the one whose size is that of a pointer.
            let look = number == Kind::Int.number() || (number < 32 && self.questions.want_kind(number));
            *one = Step { once: once / 4, each: shape.each / 4, look: u8::from(look) };
            *other = *one;
        }
        steps
    }

    fn strings_from(&self, name_off: u32) -> Option<&'a [u8]> {
        match self.base {
            Some(base) if name_off < self.btf.first_string => base.btf().strings_from(name_off),
            _ => self.btf.strings_from(name_off),
        }
    }

    fn name(&self, name_off: u32) -> Option<&'a [u8]> {
        let tail = self.strings_from(name_off)?;
        let tail = tail.get(..MAX_NAME).unwrap_or(tail);
        tail.get(..tail.iter().position(|&byte| byte == 0)?)
    }

    /// Takes the size of the first long integer type for that of a pointer.
    fn note_long(&mut self, name: &[u8], byte_size: u32, segment: u32) {
        if self.long.is_none_or(|(known, _)| segment < known)
            && matches!(byte_size, 4 | 8)
            && LONG_NAMES.contains(&name)
        {
            self.long = Some((segment, low_u8(byte_size)));
        }
    }

    fn full(&self, words: usize, part: Part) -> BtfError {
        let used = self.index_len.saturating_add(self.answers_len);
        BtfError::Arena(ArenaFull {
            wanted: words.saturating_mul(4),
            left: self.area.len().saturating_sub(used).saturating_mul(4),
            part,
        })
    }

    #[inline]
    fn push_index(&mut self, offset: usize) -> Result<(), BtfError> {
        let end = self.area.len().wrapping_sub(self.answers_len);
        match self.area.get_mut(self.index_len) {
            Some(entry) if self.index_len < end => *entry = to_u32(offset),
            _ => return Err(self.full(1, Part::KernelIndex)),
        }
        self.index_len = self.index_len.wrapping_add(1);
        Ok(())
    }

    fn push_answer(&mut self, owner: u32, number: u32) -> Result<(), BtfError> {
        let full = self.full(2, Part::Candidates);
        let end = self.area.len().wrapping_sub(self.answers_len);
        let start = end.checked_sub(2).filter(|&start| start >= self.index_len).ok_or(full)?;
        self.area.get_mut(start..end).ok_or(full)?.copy_from_slice(&[owner, number]);
        self.answers_len = self.answers_len.wrapping_add(2);
        Ok(())
    }

    /// Words of the index, however the blob was cut: what an arena must hold does not depend on what a guess was worth.
    fn index_words(&self, count: u32, stride: Stride) -> usize {
        let spare = if self.is_worth_cutting() { SPARE } else { 0 };
        to_usize(count.div_ceil(stride.get())).saturating_add(spare)
    }

    /// Moves the answers next to the index, of `index_len` words, and says what ids the types in them have.
    fn close_gap(&mut self, rows: &Rows, index_len: usize) -> Result<(), BtfError> {
        let start = self.area.len().wrapping_sub(self.answers_len);
        if start < index_len || start > self.area.len() {
            return Err(self.full(index_len.saturating_sub(self.index_len), Part::KernelIndex));
        }
        self.area.copy_within(start.., index_len);
        let answers = self.area.get_mut(index_len..).unwrap_or_default();
        for answer in answers.get_mut(..self.answers_len).unwrap_or_default().chunks_exact_mut(2) {
            let [_, id] = answer else { continue };
            let segment = to_usize(*id >> SEGMENT_SHIFT);
            let number = (*id & ((1 << SEGMENT_SHIFT) - 1)).wrapping_add(rows.start(segment));
            *id = self.btf.with_gaps(self.btf.first_id.wrapping_add(number));
        }
        Ok(())
    }

    fn is_worth_cutting(&self) -> bool {
        self.btf.types.len() >= WORTH_CUTTING
    }
}

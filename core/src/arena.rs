//! The only memory there is: a bump arena over the caller's bytes.
//!
//! [`Arena`] hands out slices of the caller's buffer and frees nothing. What is needed for a while only comes from a
//! [`scratch`](Arena::scratch) child, which borrows what is left; when the child goes, all that it handed out is free
//! again, and the borrow checker proves that nothing still points there.
//!
//! ```
//! use corelo_core::arena::{Arena, Part};
//!
//! let mut buffer = [0u8; 256];
//! let mut arena = Arena::new(&mut buffer);
//! let kept = arena.slice::<u32>(4, Part::KernelIndex)?;
//! let used = arena.used();
//! {
//!     let mut scratch = arena.scratch();
//!     scratch.slice::<u64>(8, Part::Insns)?;
//! }
//! assert_eq!(arena.used(), used);
//! kept[0] = 7;
//! # Ok::<(), corelo_core::arena::ArenaFull>(())
//! ```

use core::{cell::Cell, fmt, mem};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Every allocation starts at a multiple of this and takes a multiple of it, so that the sum depends on nothing but the
/// sizes asked for.
pub const ALIGN: usize = 8;

/// What may live in an arena: plain data without padding, any bytes of which are a value.
pub trait Plain: FromBytes + IntoBytes + KnownLayout + Immutable + Copy {}
impl<T: FromBytes + IntoBytes + KnownLayout + Immutable + Copy> Plain for T {}

/// What an allocation is for: the word in an error and in a budget.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Part {
    /// The arena's own high-water mark.
    HighWater,
    /// Sparse id index of the object's BTF.
    LocalIndex,
    /// Sparse id index of the kernel's BTF.
    KernelIndex,
    /// Functions of the object: programs and subprograms.
    Functions,
    /// Maps that the object declares.
    Maps,
    /// Externs that the object declares.
    Externs,
    /// Names that the object asks of the kernel.
    Queries,
    /// Kernel types that answer them.
    Candidates,
    /// One decision per distinct relocation.
    Decisions,
    /// Linked instructions of one program.
    Insns,
    /// Subprograms of one program, in the order they were appended.
    Layout,
    /// Map, kernel symbol and kfunc references of one program.
    References,
    /// Function info of one program.
    FuncInfo,
    /// Line info of one program.
    LineInfo,
    /// The object's BTF as the kernel is given it.
    Btf,
    /// A minimal BTF under construction.
    MinBtf,
    /// A window over a kernel BTF that is read piece by piece.
    Window,
    /// Descriptors of what was loaded.
    Descriptors,
    /// A verifier log.
    Log,
    /// Contents of a map that the loader makes itself.
    MapData,
    /// Scratch that is not told by its parts.
    Scratch,
    /// Anything else.
    Other,
}

impl Part {
    /// The name in reports: lower case, words joined by `_`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HighWater => "high_water",
            Self::LocalIndex => "local_index",
            Self::KernelIndex => "kernel_index",
            Self::Functions => "functions",
            Self::Maps => "maps",
            Self::Externs => "externs",
            Self::Queries => "queries",
            Self::Candidates => "candidates",
            Self::Decisions => "decisions",
            Self::Insns => "insns",
            Self::Layout => "layout",
            Self::References => "references",
            Self::FuncInfo => "func_info",
            Self::LineInfo => "line_info",
            Self::Btf => "btf",
            Self::MinBtf => "min_btf",
            Self::Window => "window",
            Self::Descriptors => "descriptors",
            Self::Log => "log",
            Self::MapData => "map_data",
            Self::Scratch => "scratch",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The arena has too few bytes left.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaFull {
    /// Bytes that were wanted.
    pub wanted: usize,
    /// Bytes that are left.
    pub left: usize,
    /// What they were wanted for.
    pub part: Part,
}

impl fmt::Display for ArenaFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arena too small: {} bytes wanted for {}, {} left", self.wanted, self.part, self.left)
    }
}

impl core::error::Error for ArenaFull {}

/// A bump arena over bytes that the caller provides.
#[derive(Debug)]
pub struct Arena<'buf> {
    free: &'buf mut [u8],
    capacity: usize,
    /// The fewest bytes that were ever free, here or in a scratch child. It lives in the buffer itself, so that
    /// children share it. `None` in a buffer too small even for that.
    least_left: Option<&'buf Cell<usize>>,
}

impl<'buf> Arena<'buf> {
    /// An arena over `buffer`. The first [`ALIGN`] bytes hold its high-water mark; a buffer that does not start at a
    /// multiple of [`ALIGN`] loses the bytes before the first one.
    #[must_use]
    pub fn new(buffer: &'buf mut [u8]) -> Self {
        let capacity = buffer.len();
        let skipped = buffer.as_ptr().align_offset(ALIGN).min(capacity);
        let (_, aligned) = buffer.split_at_mut(skipped);
        if aligned.len() < ALIGN {
            return Self { free: &mut [], capacity, least_left: None };
        }
        let (mark, free) = aligned.split_at_mut(ALIGN);
        let least_left = usize::mut_from_prefix(mark).ok().map(|(mark, _)| Cell::from_mut(mark));
        if let Some(mark) = least_left {
            mark.set(free.len());
        }
        Self { free, capacity, least_left }
    }

    /// Bytes of the buffer.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes handed out and not given back, the high-water mark and lost alignment included.
    #[must_use]
    pub fn used(&self) -> usize {
        self.capacity.saturating_sub(self.free.len())
    }

    /// Bytes that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.free.len()
    }

    /// The most bytes that were ever in use at once, scratch children included: the buffer size that would just have
    /// done.
    #[must_use]
    pub fn high_water(&self) -> usize {
        let least_left = self.least_left.map_or(0, Cell::get);
        self.capacity.saturating_sub(least_left)
    }

    /// A child over what is left. All that it hands out is given back when it goes.
    #[must_use]
    pub fn scratch(&mut self) -> Arena<'_> {
        Arena { free: self.free, capacity: self.capacity, least_left: self.least_left }
    }

    /// `len` zeroed items.
    ///
    /// # Errors
    /// [`ArenaFull`] where fewer bytes are left.
    pub fn slice<T: Plain>(&mut self, len: usize, part: Part) -> Result<&'buf mut [T], ArenaFull> {
        let items = self.take(len, part)?;
        items.as_mut_bytes().fill(0);
        Ok(items)
    }

    /// `len` items whose bytes are whatever was there: for those that are written at once.
    pub(crate) fn take<T: Plain>(&mut self, len: usize, part: Part) -> Result<&'buf mut [T], ArenaFull> {
        const { assert!(align_of::<T>() <= ALIGN) };
        let left = self.free.len();
        let wanted = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_next_multiple_of(ALIGN));
        let full = ArenaFull { wanted: wanted.unwrap_or(usize::MAX), left, part };
        let wanted = wanted.filter(|&wanted| wanted <= left).ok_or(full)?;
        let (taken, free) = mem::take(&mut self.free).split_at_mut(wanted);
        self.free = free;
        self.note();
        // In a buffer too small for the mark not even no items are to be had: their place has no alignment.
        let no_mark = ArenaFull { wanted: ALIGN, left, part: Part::HighWater };
        <[T]>::mut_from_prefix_with_elems(taken, len).map(|(items, _)| items).map_err(|_| no_mark)
    }

    /// A copy of `items`.
    ///
    /// # Errors
    /// [`ArenaFull`] where fewer bytes are left.
    pub fn copy<T: Plain>(&mut self, items: &[T], part: Part) -> Result<&'buf mut [T], ArenaFull> {
        let copy = self.take(items.len(), part)?;
        copy.copy_from_slice(items);
        Ok(copy)
    }

    /// A list that grows over what is left until it is [finished](Growing::finish); nothing else can be taken
    /// meanwhile.
    #[must_use]
    pub fn grow<T: Plain>(&mut self, part: Part) -> Growing<'_, 'buf, T> {
        Growing { arena: self, len: 0, part, marker: core::marker::PhantomData }
    }

    /// All that is left, as bytes to be used until the arena is used again.
    #[must_use]
    pub fn rest(&mut self) -> &mut [u8] {
        self.free
    }

    fn note(&self) {
        note(self.least_left, self.free.len());
    }

    /// Notes that `bytes` of what is left were in use for a moment.
    pub(crate) fn note_transient(&self, bytes: usize) {
        note(self.least_left, self.free.len().saturating_sub(bytes.next_multiple_of(ALIGN)));
    }
}

fn note(mark: Option<&Cell<usize>>, left: usize) {
    if let Some(mark) = mark {
        mark.set(mark.get().min(left));
    }
}

/// A list that grows at the end of an arena. See [`Arena::grow`].
#[derive(Debug)]
pub struct Growing<'arena, 'buf, T> {
    arena: &'arena mut Arena<'buf>,
    len: usize,
    part: Part,
    marker: core::marker::PhantomData<T>,
}

impl<'buf, T: Plain> Growing<'_, 'buf, T> {
    /// How many items it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an item.
    ///
    /// # Errors
    /// [`ArenaFull`] where no more fits.
    pub fn push(&mut self, item: T) -> Result<(), ArenaFull> {
        let start = self.len.saturating_mul(size_of::<T>());
        let end = start.saturating_add(size_of::<T>());
        let left = self.arena.free.len();
        let full = ArenaFull { wanted: end.next_multiple_of(ALIGN), left, part: self.part };
        if end.next_multiple_of(ALIGN) > left {
            return Err(full);
        }
        let place = self.arena.free.get_mut(start..end).ok_or(full)?;
        item.write_to(place).map_err(|_| full)?;
        self.len = self.len.saturating_add(1);
        self.arena.note_transient(end);
        Ok(())
    }

    /// The items so far.
    #[must_use]
    pub fn items(&mut self) -> &mut [T] {
        <[T]>::mut_from_prefix_with_elems(self.arena.free, self.len).map_or(&mut [], |(items, _)| items)
    }

    /// The items so far, read only.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        <[T]>::ref_from_prefix_with_elems(self.arena.free, self.len).map_or(&[], |(items, _)| items)
    }

    /// Keeps the first `len` items only.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Ends the growth: the items, for as long as the arena's buffer lives.
    ///
    /// # Errors
    /// None in practice: what was pushed fits.
    pub fn finish(self) -> Result<&'buf mut [T], ArenaFull> {
        self.arena.take(self.len, self.part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_aligned_zeroed_and_apart() {
        let mut buffer = [0xffu8; 128];
        let mut arena = Arena::new(&mut buffer);
        let bytes = arena.slice::<u8>(3, Part::Log).unwrap();
        let words = arena.slice::<u64>(2, Part::Insns).unwrap();
        assert_eq!(bytes, [0; 3]);
        assert_eq!(words, [0; 2]);
        bytes.fill(1);
        words.fill(2);
        assert_eq!(bytes, [1; 3]);
    }

    #[test]
    fn a_shortage_says_how_many_bytes_for_what_and_how_many_are_left() {
        let mut buffer = zerocopy::transmute!([0u64; 4]);
        let buffer: &mut [u8; 32] = &mut buffer;
        let mut arena = Arena::new(buffer);
        let full = arena.slice::<u32>(9, Part::Maps).unwrap_err();
        assert_eq!(full.wanted, 40);
        assert!(full.left <= 24);
        assert_eq!(full.part, Part::Maps);
        assert!(arena.slice::<u64>(usize::MAX, Part::Maps).is_err());
    }

    #[test]
    fn scratch_is_given_back_and_remembered_in_the_high_water_mark() {
        let mut buffer = [0u8; 512];
        let mut arena = Arena::new(&mut buffer);
        arena.slice::<u64>(2, Part::Maps).unwrap();
        let kept = arena.used();
        {
            let mut scratch = arena.scratch();
            scratch.slice::<u64>(10, Part::Insns).unwrap();
            let mut inner = scratch.scratch();
            inner.slice::<u64>(5, Part::Log).unwrap();
        }
        assert_eq!(arena.used(), kept);
        assert_eq!(arena.high_water(), kept + 15 * 8);
    }

    #[test]
    fn a_growing_list_stops_cleanly_at_the_end() {
        let mut buffer = [0u64; 4];
        let mut arena = Arena::new(buffer.as_mut_bytes());
        let mut list = arena.grow::<u32>(Part::Queries);
        for value in 0..6 {
            list.push(value).unwrap();
        }
        assert!(list.push(6).is_err());
        assert_eq!(list.finish().unwrap(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(arena.left(), 0);
    }

    #[test]
    fn a_buffer_too_small_for_the_mark_is_an_empty_arena() {
        for len in 0..ALIGN {
            let mut buffer = [0u8; ALIGN];
            let mut arena = Arena::new(buffer.get_mut(..len).unwrap());
            assert!(arena.slice::<u8>(1, Part::Log).is_err());
            // What is wanted is more than there is, also for nothing.
            let wanted = ArenaFull { wanted: ALIGN, left: 0, part: Part::HighWater };
            assert_eq!(arena.slice::<u64>(0, Part::Log), Err(wanted));
            assert_eq!(arena.grow::<u64>(Part::Log).finish(), Err(wanted));
        }
    }
}

//! Sorted pairs at the back of a piece of memory, bytes at its front: two lists that grow towards each other.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::arena::{ALIGN, Arena, ArenaFull, Part};

/// A number, and what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Pair {
    pub(super) key: u32,
    pub(super) value: u32,
}

const PAIR: usize = size_of::<Pair>();
const _: () = assert!(PAIR == ALIGN);

/// Bytes and pairs in what one arena has left.
#[derive(Debug)]
pub(super) struct Pairs<'w> {
    /// Starts at a multiple of [`ALIGN`], and so does its length.
    area: &'w mut [u8],
    front: usize,
    len: usize,
    /// The most bytes that were in use.
    most: usize,
    part: Part,
}

impl<'w> Pairs<'w> {
    pub(super) fn new(area: &'w mut [u8], part: Part) -> Self {
        let whole = area.len() & !(ALIGN - 1);
        Self { area: area.get_mut(..whole).unwrap_or_default(), front: 0, len: 0, most: 0, part }
    }

    /// How many bytes at the front are in use.
    pub(super) fn front_len(&self) -> usize {
        self.front
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The most bytes that were in use at once.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    fn start(&self) -> usize {
        self.area.len().saturating_sub(self.len.saturating_mul(PAIR))
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), ArenaFull> {
        let left = self.start().saturating_sub(self.front);
        if bytes > left {
            return Err(ArenaFull { wanted: bytes, left, part: self.part });
        }
        let used = self.area.len().saturating_sub(left).saturating_add(bytes);
        self.most = self.most.max(used);
        Ok(())
    }

    /// Adds bytes at the front; returns where they start.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) -> Result<usize, ArenaFull> {
        self.reserve(bytes.len())?;
        let at = self.front;
        let end = at.saturating_add(bytes.len());
        if let Some(place) = self.area.get_mut(at..end) {
            place.copy_from_slice(bytes);
        }
        self.front = end;
        Ok(at)
    }

    /// The bytes at the front.
    pub(super) fn front_mut(&mut self) -> &mut [u8] {
        self.area.get_mut(..self.front).unwrap_or_default()
    }

    pub(super) fn pairs(&self) -> &[Pair] {
        let bytes = self.area.get(self.start()..).unwrap_or_default();
        <[Pair]>::ref_from_bytes(bytes).unwrap_or_default()
    }

    pub(super) fn pairs_mut(&mut self) -> &mut [Pair] {
        let start = self.start();
        let bytes = self.area.get_mut(start..).unwrap_or_default();
        <[Pair]>::mut_from_bytes(bytes).unwrap_or_default()
    }

    /// The bytes at the front, and the pairs.
    pub(super) fn both(&mut self) -> (&[u8], Insertable<'_>) {
        let front = self.front;
        let (bytes, area) = self.area.split_at_mut_checked(front.next_multiple_of(ALIGN)).unwrap_or_default();
        let bytes = bytes.get(..front).unwrap_or_default();
        (bytes, Insertable { area, len: &mut self.len, most: &mut self.most, front, part: self.part })
    }

    /// Adds a pair in its place. Returns whether it was not there yet.
    pub(super) fn insert(&mut self, pair: Pair) -> Result<bool, ArenaFull> {
        self.both().1.insert(pair)
    }

    /// Ends the growth: bytes and pairs, one after the other at the start of what `arena` has left, which must be what
    /// the area was. Returns both lengths.
    pub(super) fn close(self) -> (usize, usize) {
        let start = self.start();
        let end = self.area.len();
        let to = self.front.next_multiple_of(ALIGN).min(start);
        self.area.copy_within(start..end, to);
        (self.front, self.len)
    }
}

/// Takes what [`Pairs::close`] left at the start of `arena`.
pub(super) fn take_closed<'a>(
    arena: &mut Arena<'a>,
    (front, len): (usize, usize),
    part: Part,
) -> Result<(&'a mut [u8], &'a mut [Pair]), ArenaFull> {
    Ok((arena.take::<u8>(front, part)?, arena.take::<Pair>(len, part)?))
}

/// The pairs of a [`Pairs`] whose bytes are being read.
#[derive(Debug)]
pub(super) struct Insertable<'p> {
    area: &'p mut [u8],
    len: &'p mut usize,
    most: &'p mut usize,
    front: usize,
    part: Part,
}

impl Insertable<'_> {
    fn slots(&self) -> &[Pair] {
        <[Pair]>::ref_from_bytes(self.area).unwrap_or_default()
    }

    pub(super) fn pairs(&self) -> &[Pair] {
        let slots = self.slots();
        slots.get(slots.len().saturating_sub(*self.len)..).unwrap_or_default()
    }

    pub(super) fn get(&self, key: u32) -> Option<Pair> {
        find(self.pairs(), key)
    }

    pub(super) fn insert(&mut self, pair: Pair) -> Result<bool, ArenaFull> {
        let len = *self.len;
        let slots = <[Pair]>::mut_from_bytes(self.area).unwrap_or_default();
        let start = slots.len().saturating_sub(len);
        let before = slots.get(start..).unwrap_or_default().partition_point(|other| *other < pair);
        let at = start.saturating_add(before);
        if slots.get(at) == Some(&pair) {
            return Ok(false);
        }
        let left = start.saturating_mul(PAIR);
        let Some(new_start) = start.checked_sub(1) else {
            return Err(ArenaFull { wanted: PAIR, left, part: self.part });
        };
        slots.copy_within(start..at, new_start);
        if let Some(slot) = slots.get_mut(at.saturating_sub(1)) {
            *slot = pair;
        }
        *self.len = len.saturating_add(1);
        let used = self.front.next_multiple_of(ALIGN).saturating_add(self.len.saturating_mul(PAIR));
        *self.most = (*self.most).max(used);
        Ok(true)
    }

    /// Sets bits in the value of a pair, which is added where there is none of its key.
    pub(super) fn set(&mut self, key: u32, bits: u32) -> Result<(), ArenaFull> {
        let found = self.pairs().partition_point(|pair| pair.key < key);
        let slots = <[Pair]>::mut_from_bytes(self.area).unwrap_or_default();
        let at = slots.len().saturating_sub(*self.len).saturating_add(found);
        match slots.get_mut(at) {
            Some(pair) if pair.key == key => {
                pair.value |= bits;
                Ok(())
            }
            _ => self.insert(Pair { key, value: bits }).map(|_| ()),
        }
    }
}

/// The first pair of this key among sorted ones.
pub(super) fn find(pairs: &[Pair], key: u32) -> Option<Pair> {
    let at = pairs.partition_point(|pair| pair.key < key);
    pairs.get(at).copied().filter(|pair| pair.key == key)
}

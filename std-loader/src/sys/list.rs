//! Numbers and bytes whose count is not known before, in memory of their own instead of the heap.

#![forbid(unsafe_code)]

use zerocopy::FromBytes;

use crate::sys::Errno;
use crate::sys::mmap::AnonMap;

/// What is mapped at first; twice as much each time that it is full.
const FIRST: usize = 64 << 10;

/// Bytes that grow at their end.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    map: Option<AnonMap>,
    len: usize,
}

impl Bytes {
    pub(crate) const fn new() -> Bytes {
        Bytes { map: None, len: 0 }
    }

    /// ENOMEM where there is no more memory.
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let end = self.len.checked_add(bytes.len()).ok_or(Errno::ENOMEM)?;
        let map = match &mut self.map {
            Some(map) => map,
            none => none.insert(AnonMap::new(end.max(FIRST))?),
        };
        if end > map.len() {
            map.grow(end.max(map.len().saturating_mul(2)))?;
        }
        map.get_mut(self.len..end).ok_or(Errno::ENOMEM)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.map.as_ref().and_then(|map| map.get(..self.len)).unwrap_or_default()
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.map.as_mut().and_then(|map| map.get_mut(..self.len)).unwrap_or_default()
    }
}

/// 32-bit numbers, in the host's byte order as the kernel takes them.
#[derive(Debug, Default)]
pub(crate) struct Ids(Bytes);

impl Ids {
    pub(crate) const fn new() -> Ids {
        Ids(Bytes::new())
    }

    /// ENOMEM where there is no more memory.
    pub(crate) fn push(&mut self, id: u32) -> Result<(), Errno> {
        self.0.extend(&id.to_ne_bytes())
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        // A mapping starts at a page, and only whole numbers are in it.
        <[u32]>::ref_from_bytes(self.0.as_slice()).unwrap_or_default()
    }
}

/// 64-bit numbers, in the host's byte order as the kernel takes them.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Bytes);

impl Numbers {
    pub(crate) const fn new() -> Numbers {
        Numbers(Bytes::new())
    }

    /// ENOMEM where there is no more memory.
    pub(crate) fn push(&mut self, number: u64) -> Result<(), Errno> {
        self.0.extend(&number.to_ne_bytes())
    }

    pub(crate) fn as_slice(&self) -> &[u64] {
        // A mapping starts at a page, and only whole numbers are in it.
        <[u64]>::ref_from_bytes(self.0.as_slice()).unwrap_or_default()
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u64] {
        <[u64]>::mut_from_bytes(self.0.as_mut_slice()).unwrap_or_default()
    }

    /// In ascending order, each once.
    pub(crate) fn sort_and_dedup(&mut self) {
        let numbers = self.as_mut_slice();
        numbers.sort_unstable();
        let mut kept = 0;
        for index in 0..numbers.len() {
            if index == 0 || numbers[index] != numbers[kept - 1] {
                numbers[kept] = numbers[index];
                kept += 1;
            }
        }
        self.0.len = kept * size_of::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_the_first_mapping() {
        let mut numbers = Numbers::new();
        assert_eq!(numbers.as_slice(), [0; 0]);
        numbers.sort_and_dedup();
        // Twice each, in descending order, across several growths.
        for number in (0..50_000).rev() {
            numbers.push(number).unwrap();
            numbers.push(number).unwrap();
        }
        assert_eq!((numbers.as_slice().len(), numbers.as_slice()[0]), (100_000, 49_999));
        numbers.sort_and_dedup();
        assert!(numbers.as_slice().iter().copied().eq(0..50_000));
        numbers.push(7).unwrap();
        assert_eq!(numbers.as_slice()[50_000], 7);
    }

    #[test]
    fn bytes_larger_than_the_next_doubling() {
        let mut bytes = Bytes::new();
        bytes.extend(b"ab").unwrap();
        bytes.extend(&vec![b'c'; 1 << 20]).unwrap();
        assert_eq!((bytes.as_slice().len(), &bytes.as_slice()[..3]), ((1 << 20) + 2, &b"abc"[..]));
    }
}

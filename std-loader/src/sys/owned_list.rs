//! Values whose count is not known before, in memory of their own instead of the heap, dropped when their list goes.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::Errno;
use super::mmap::AnonMap;

/// A list of values that it owns.
#[derive(Debug)]
pub(crate) struct List<T> {
    /// Room for `map.len() / size_of::<T>()` of them, of which the first `len` are there.
    map: Option<AnonMap>,
    len: usize,
    of: PhantomData<T>,
}

impl<T> List<T> {
    /// A mapping starts at a page, so that anything that is aligned to less may lie at its start; and nothing without a
    /// size is listed.
    const CAN_BE_LISTED: () = assert!(align_of::<T>() <= 4096 && size_of::<T>() > 0);

    pub(crate) const fn new() -> Self {
        const { Self::CAN_BE_LISTED };
        Self { map: None, len: 0, of: PhantomData }
    }

    /// Takes it; ENOMEM, and it is dropped, where there is no more memory.
    pub(crate) fn push(&mut self, value: T) -> Result<(), Errno> {
        let end = self.len.checked_add(1).and_then(|len| len.checked_mul(size_of::<T>())).ok_or(Errno::ENOMEM)?;
        let map = match &mut self.map {
            Some(map) => map,
            none => none.insert(AnonMap::new(end.max(4096))?),
        };
        if end > map.len() {
            // Values may be moved, so they may go along to wherever the mapping goes.
            map.grow(end.max(map.len().saturating_mul(2)))?;
        }
        let at = NonNull::from(&mut **map).cast::<T>();
        // SAFETY: the mapping has room for `len + 1` values, aligned as `CAN_BE_LISTED` says, and none is at index `len`.
        unsafe { at.add(self.len).write(value) };
        self.len += 1;
        Ok(())
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        let Some(map) = &self.map else { return &[] };
        let at = NonNull::from(&**map).cast::<T>();
        // SAFETY: `push` has put so many values there, which stay for as long as `self` and are changed through
        // `&mut self` only.
        unsafe { NonNull::slice_from_raw_parts(at, self.len).as_ref() }
    }

    /// Takes the last one out.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let map = self.map.as_mut()?;
        self.len = self.len.checked_sub(1)?;
        let at = NonNull::from(&mut **map).cast::<T>();
        // SAFETY: there is a value at this index, and the list has just given it up.
        Some(unsafe { at.add(self.len).read() })
    }
}

impl<T> Drop for List<T> {
    /// The last one first.
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Told<'t>(u32, &'t RefCell<Vec<u32>>);

    impl Drop for Told<'_> {
        fn drop(&mut self) {
            self.1.borrow_mut().push(self.0);
        }
    }

    #[test]
    fn all_are_dropped_once_the_last_one_first() {
        let told = RefCell::new(Vec::new());
        let mut list = List::new();
        assert!(list.as_slice().is_empty() && list.pop().is_none());
        // Across several growths.
        for number in 0..2000 {
            list.push(Told(number, &told)).unwrap();
        }
        assert!(list.as_slice().iter().map(|told| told.0).eq(0..2000));
        assert_eq!(list.pop().map(|told| told.0), Some(1999));
        assert_eq!(told.borrow().as_slice(), [1999]);
        drop(list);
        assert!(told.borrow().iter().copied().eq((0..2000).rev()));
    }
}

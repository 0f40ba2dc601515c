//! Descriptors in memory that the caller provides, closed when their table goes.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use super::Errno;
use super::bpf::MapFd;

/// No descriptor.
const NONE: RawFd = -1;

/// A table of descriptors that it owns: each place has one or none.
#[derive(Debug)]
pub struct FdTable<'buf> {
    fds: &'buf mut [RawFd],
}

impl<'buf> FdTable<'buf> {
    /// A table without descriptors over `places`, whose contents do not matter.
    #[must_use]
    pub fn new(places: &'buf mut [RawFd]) -> Self {
        places.fill(NONE);
        Self { fds: places }
    }

    /// Puts a descriptor into a place; one that was there is closed. A place that does not exist closes `fd`.
    pub fn set(&mut self, place: usize, fd: OwnedFd) {
        if let Some(slot) = self.fds.get_mut(place) {
            let before = core::mem::replace(slot, fd.into_raw_fd());
            close(before);
        }
    }

    /// The descriptor in a place.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<BorrowedFd<'_>> {
        let fd = *self.fds.get(place)?;
        // SAFETY: the table owns every descriptor in it and closes none while it is borrowed.
        (fd != NONE).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Takes the descriptor out of a place.
    #[must_use]
    pub fn take(&mut self, place: usize) -> Option<OwnedFd> {
        let fd = core::mem::replace(self.fds.get_mut(place)?, NONE);
        // SAFETY: the table owned it and has just given it up.
        (fd != NONE).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// How many places there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fds.len()
    }

    /// Whether there are no places.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fds.is_empty()
    }
}

impl Drop for FdTable<'_> {
    fn drop(&mut self) {
        for slot in self.fds.iter_mut() {
            close(core::mem::replace(slot, NONE));
        }
    }
}

fn close(fd: RawFd) {
    if fd != NONE {
        // SAFETY: the table owned the descriptor, and its place no longer has it.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// A map whose descriptor somebody else owns: all of [`MapFd`]'s operations, without closing it.
#[derive(Debug)]
pub struct MapRef<'fd> {
    map: ManuallyDrop<MapFd>,
    owner: PhantomData<BorrowedFd<'fd>>,
}

impl<'fd> MapRef<'fd> {
    /// The map of a borrowed descriptor: one bpf(2) call, for its sizes.
    ///
    /// # Errors
    /// The kernel's error: EINVAL where `fd` is no map.
    pub fn new(fd: BorrowedFd<'fd>) -> Result<Self, Errno> {
        let info = super::bpf::map_info(fd)?;
        let sizes = MapFd::sizes(&info)?;
        // SAFETY: this second owner goes into a ManuallyDrop at once and never closes the descriptor, which lives for
        // 'fd.
        let second = unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) };
        Ok(Self { map: ManuallyDrop::new(MapFd::with_sizes(second, sizes)), owner: PhantomData })
    }
}

impl<'fd> From<&'fd MapFd> for MapRef<'fd> {
    fn from(map: &'fd MapFd) -> Self {
        // SAFETY: this second owner goes into a ManuallyDrop at once and never closes the descriptor, which lives for
        // 'fd.
        let second = unsafe { OwnedFd::from_raw_fd(map.as_fd().as_raw_fd()) };
        Self { map: ManuallyDrop::new(map.with_fd(second)), owner: PhantomData }
    }
}

impl<'fd> MapRef<'fd> {
    /// The descriptor, for as long as its owner has it.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'fd> {
        // SAFETY: the owner keeps it open for 'fd.
        unsafe { BorrowedFd::borrow_raw(self.map.as_fd().as_raw_fd()) }
    }
}

impl AsFd for MapRef<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Deref for MapRef<'_> {
    type Target = MapFd;

    fn deref(&self) -> &MapFd {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").unwrap().into()
    }

    #[test]
    fn a_table_closes_what_it_owns_and_nothing_else() {
        let kept = null();
        let (first, second) = (null(), null());
        let raw = (first.as_raw_fd(), second.as_raw_fd());
        let mut places = [0; 3];
        let mut table = FdTable::new(&mut places);
        table.set(0, first);
        table.set(2, second);
        assert!(table.get(1).is_none());
        assert_eq!(table.get(2).map(|fd| fd.as_raw_fd()), Some(raw.1));
        let taken = table.take(0).unwrap();
        assert_eq!(taken.as_raw_fd(), raw.0);
        drop(table);
        assert!(rustix::io::fcntl_getfd(&taken).is_ok());
        assert!(rustix::io::fcntl_getfd(&kept).is_ok());
        assert_eq!(places, [NONE; 3]);
    }
}

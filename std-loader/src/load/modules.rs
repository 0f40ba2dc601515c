//! Descriptors of the BTF objects of kernel modules: for kfuncs, variables and attach targets that live in one.

use std::os::fd::{AsRawFd, BorrowedFd};

use corelo_core::arena::{Arena, ArenaFull, Part};
use corelo_core::prepare::Prepared;

use crate::kernel::btf_object;
use crate::sys::Errno;
use crate::sys::fd_table::FdTable;

/// The modules that an object's programs and externs have targets in.
#[derive(Debug)]
pub(super) struct Modules<'a> {
    /// A module's number by its place; 0 for none.
    numbers: &'a mut [u16],
    fds: FdTable<'a>,
}

impl<'a> Modules<'a> {
    pub(super) fn new(prepared: &Prepared<'a>, arena: &mut Arena<'a>) -> Result<Self, ArenaFull> {
        let count = prepared.module_targets();
        let numbers = arena.slice::<u16>(count, Part::Descriptors)?;
        let fds = arena.slice::<i32>(count, Part::Descriptors)?;
        Ok(Self { numbers, fds: FdTable::new(fds) })
    }

    /// Opens the BTF of module `number`, whose name is in `names` (from 1), unless it is open.
    pub(super) fn open(&mut self, number: u16, names: &[&str]) -> Result<(), Errno> {
        if number == 0 || self.numbers.contains(&number) {
            return Ok(());
        }
        let name = usize::from(number).checked_sub(1).and_then(|index| names.get(index)).ok_or(Errno::ENOENT)?;
        let (fd, _) = btf_object(name)?.ok_or(Errno::ENOENT)?;
        if let Some(place) = self.numbers.iter().position(|&number| number == 0) {
            if let Some(entry) = self.numbers.get_mut(place) {
                *entry = number;
            }
            self.fds.set(place, fd);
        }
        Ok(())
    }

    /// The BTF of a module that was opened.
    pub(super) fn fd(&self, number: u16) -> Option<BorrowedFd<'_>> {
        self.fds.get(self.numbers.iter().position(|&other| other == number && number != 0)?)
    }

    /// The place of a module in [`Modules::fd_array`]: 0 is vmlinux.
    pub(super) fn index(&self, number: u16) -> i16 {
        let place = self.numbers.iter().position(|&other| other == number && number != 0);
        place.and_then(|place| i16::try_from(place + 1).ok()).unwrap_or(0)
    }

    /// What kfunc calls index: empty where there are no modules.
    pub(super) fn fd_array<'s>(&self, scratch: &mut Arena<'s>) -> Result<&'s [i32], ArenaFull> {
        if self.numbers.is_empty() {
            return Ok(&[]);
        }
        let array = scratch.slice::<i32>(self.numbers.len() + 1, Part::Descriptors)?;
        for (place, entry) in array.iter_mut().skip(1).enumerate() {
            *entry = self.fds.get(place).map_or(0, |fd| fd.as_raw_fd());
        }
        Ok(array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    #[test]
    fn case_29_calls_index_the_modules_behind_vmlinux() {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let (first, second) = (null(), null());
        let raw = [0, first.as_raw_fd(), second.as_raw_fd(), 0];
        let (mut numbers, mut places) = ([7, 4, 0], [0; 3]);
        let mut fds = FdTable::new(&mut places);
        fds.set(0, first);
        fds.set(1, second);
        let mut modules = Modules { numbers: &mut numbers, fds };
        assert_eq!([0, 7, 4, 9].map(|number| modules.index(number)), [0, 1, 2, 0]);
        assert_eq!(modules.fd(4).map(|fd| fd.as_raw_fd()), Some(raw[2]));
        assert!(modules.fd(0).is_none() && modules.fd(9).is_none());
        // vmlinux and what is open already are not opened; what has no name cannot be.
        assert_eq!([0, 7, 4].map(|number| modules.open(number, &[])), [Ok(()); 3]);
        assert_eq!(modules.open(9, &["one"]), Err(Errno::ENOENT));
        let mut buffer = [0u8; 128];
        let mut arena = Arena::new(&mut buffer);
        assert_eq!(modules.fd_array(&mut arena).unwrap(), raw);
        let none = Modules { numbers: &mut [], fds: FdTable::new(&mut []) };
        assert!(none.fd_array(&mut Arena::new(&mut [])).unwrap().is_empty());
    }
}

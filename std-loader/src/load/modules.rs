//! Descriptors of the BTF objects of kernel modules: for kfuncs, variables and attach targets that live in one.

use std::os::fd::{AsRawFd, BorrowedFd};

use corelo_core::arena::{Arena, ArenaFull, Part};
use corelo_core::prepare::Prepared;

use crate::kernel::{KernelVersion, ModuleNames, btf_object};
use crate::load::externs::ExternValue;
use crate::sys::Errno;
use crate::sys::fd_table::FdTable;

/// The first Linux whose verifier takes the BTF id of a function for its address; those before take that of a variable.
const FUNCTION_ADDRESSES: KernelVersion = KernelVersion::new(6, 4, 0);

/// The two immediates of an LD_IMM64 that loads an extern's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExternAddress {
    /// Whether they are a type's id and the descriptor of its BTF, instead of the address.
    pub(super) is_type: bool,
    pub(super) low: u32,
    pub(super) high: u32,
}

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

    /// Opens the BTF of module `number`, whose name is in `names`, unless it is open.
    pub(super) fn open(&mut self, number: u16, names: ModuleNames<'_>) -> Result<(), Errno> {
        if number == 0 || self.numbers.contains(&number) {
            return Ok(());
        }
        let name = names.get(number).ok_or(Errno::ENOENT)?;
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

    /// What a load of the address of an extern has for the kernel. `function_of` is the kernel's version for a function.
    ///
    /// Programs compare a weak function's address with 0. Where the kernel cannot give that address they get 1, so that
    /// they can be loaded; libbpf's are refused there.
    pub(super) fn address(&self, value: &ExternValue, function_of: Option<KernelVersion>) -> ExternAddress {
        match value.type_id() {
            Some(_) if function_of.is_some_and(|version| version < FUNCTION_ADDRESSES) => {
                ExternAddress { is_type: false, low: 1, high: 0 }
            }
            Some(id) => {
                let module = self.fd(value.module()).map_or(0, |fd| fd.as_raw_fd());
                ExternAddress { is_type: true, low: id.0, high: module.cast_unsigned() }
            }
            None => {
                let address = value.address;
                ExternAddress { is_type: false, low: address as u32, high: (address >> 32) as u32 }
            }
        }
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
    use corelo_core::btf::TypeId;
    use std::os::fd::OwnedFd;

    #[test]
    fn calls_index_the_modules_behind_vmlinux() {
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
        assert_eq!([0, 7, 4].map(|number| modules.open(number, ModuleNames::default())), [Ok(()); 3]);
        assert_eq!(modules.open(9, ModuleNames::new(b"one\0")), Err(Errno::ENOENT));
        let mut buffer = [0u8; 128];
        let mut arena = Arena::new(&mut buffer);
        assert_eq!(modules.fd_array(&mut arena).unwrap(), raw);
        let none = Modules { numbers: &mut [], fds: FdTable::new(&mut []) };
        assert!(none.fd_array(&mut Arena::new(&mut [])).unwrap().is_empty());
    }
    #[test]
    fn addresses_of_functions_are_any_but_0_where_the_kernel_does_not_know_them() {
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let raw = null.as_raw_fd().cast_unsigned();
        let (mut numbers, mut places) = ([7], [0; 1]);
        let mut fds = FdTable::new(&mut places);
        fds.set(0, null);
        let modules = Modules { numbers: &mut numbers, fds };
        let words = |value: ExternValue, is_function: bool, (major, minor)| {
            let address = modules.address(&value, is_function.then_some(KernelVersion::new(major, minor, 0)));
            (address.is_type, address.low, address.high)
        };
        let typed = |module| ExternValue::of_type(TypeId(101_102), module);
        for (of, module, fd) in [("the kernel", 0, 0), ("a module", 7, raw)] {
            assert_eq!(words(typed(module), true, (6, 4)), (true, 101_102, fd), "a function of {of}");
            assert_eq!(words(typed(module), true, (6, 3)), (false, 1, 0), "a function of {of}, before 6.4");
            assert_eq!(words(typed(module), false, (5, 10)), (true, 101_102, fd), "a variable of {of}");
        }
        assert_eq!(words(ExternValue::default(), true, (6, 3)), (false, 0, 0), "a weak function that is not there");
        let mut at = ExternValue::default();
        at.address = 0xffff_ffff_8100_0000;
        assert_eq!(words(at, false, (6, 12)), (false, 0x8100_0000, 0xffff_ffff), "a symbol");
    }
}

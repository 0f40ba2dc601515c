//! Global variables of a loaded object, by name and as types.

use core::fmt::Write;
use core::marker::PhantomData;

use corelo_core::object::Variable;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::error::{Cause, Error};
use super::names::{Names, write_unknown};
use crate::load::{Collection, VariableRef};
use crate::objects::SizeMismatch;
use crate::sys::Errno;

/// A global variable of a loaded object, seen through its type. Where the kernel can map its section (Linux 5.5), it is
/// read and written in place, as programs do; else through the section's whole value.
#[derive(Debug)]
pub struct Global<'c, T> {
    variable: VariableRef<'c>,
    of: PhantomData<fn() -> T>,
}

impl<'a> Collection<'a> {
    /// A global variable by its name in the source.
    ///
    /// # Errors
    /// [`Cause::Unknown`], with the names that there are; [`Cause::NotLoaded`] where no loaded program uses its section;
    /// [`Cause::Size`] where the type has another size; [`Cause::Kernels`].
    pub fn global<T: FromBytes + IntoBytes + Immutable>(&self, name: &str) -> Result<Global<'_, T>, Error> {
        let variable = self.raw_global(name)?;
        if variable.byte_size() != size_of::<T>() {
            let error = SizeMismatch {
                key_size: 4,
                value_size: variable.byte_size() as u32,
                wanted_key_size: 4,
                wanted_value_size: size_of::<T>() as u32,
            };
            return Err(Error::new(Cause::Size(error), |text| {
                let (found, wanted) = (error.value_size, error.wanted_value_size);
                write!(text, "variable {name}: it takes {found} bytes, and the type {wanted}")
            }));
        }
        Ok(Global { variable, of: PhantomData })
    }

    /// A global variable by its name in the source, as bytes.
    ///
    /// # Errors
    /// As [`Collection::global`], but of sizes.
    pub fn raw_global(&self, name: &str) -> Result<VariableRef<'_>, Error> {
        let prepared = self.prepared();
        let found = prepared.variable(name.as_bytes()).map_err(|error| {
            Error::new(Cause::Object(error), |text| {
                write!(
                    text,
                    "variable {name}: {}",
                    crate::report::ObjectReport { object: Some(prepared.object()), error }
                )
            })
        })?;
        let Some(variable) = found else {
            let names = Names(prepared);
            return Err(Error::new(Cause::Unknown, |text| write_unknown(text, "variable", name, names.variables())));
        };
        match self.variable(variable) {
            Some(variable) => variable.map_err(|errno| refused(name, errno)),
            None => Err(Error::new(Cause::NotLoaded, |text| {
                write!(text, "variable {name}: no loaded program uses its section, which is not created")
            })),
        }
    }

    /// The names of all global variables that a loaded program may use, and where they lie.
    ///
    /// # Errors
    /// [`Cause::Object`] for one that does not lie in its section.
    pub fn globals(&self) -> impl Iterator<Item = Result<(&'a [u8], Variable), Error>> {
        let created = |found: &Result<(_, Variable), _>| {
            found.as_ref().map_or(true, |(_, variable)| self.map_fd(variable.map).is_some())
        };
        let all = self.prepared().variables().filter(created);
        all.map(|found| found.map_err(|error| Error::new(Cause::Object(error), |text| write!(text, "{error}"))))
    }
}

fn refused(name: &str, errno: Errno) -> Error {
    Error::new(Cause::Kernels(errno), |text| write!(text, "variable {name}: {errno}"))
}

impl<T: FromBytes + IntoBytes + Immutable> Global<'_, T> {
    /// Its value now. What a program writes meanwhile is seen word by word.
    ///
    /// # Errors
    /// The kernel's.
    pub fn get(&self) -> Result<T, Errno> {
        let mut value = T::new_zeroed();
        self.variable.read(value.as_mut_bytes())?;
        Ok(value)
    }

    /// Sets it.
    ///
    /// # Errors
    /// EACCES or EPERM for one that programs only read: those are set before the load.
    pub fn set(&self, value: &T) -> Result<(), Errno> {
        self.variable.write(value.as_bytes())
    }
}

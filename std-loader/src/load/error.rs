//! Why an object is not loaded.

use core::fmt;

use corelo_core::arena::ArenaFull;
use corelo_core::btf::sanitize::SanitizeError;
use corelo_core::link::{LinkCause, LinkError};
use corelo_core::object::{ExternId, MapId, ProgramId};
use corelo_core::prepare::PrepareError;
use corelo_core::struct_ops::StructOpsError;

use super::SettingError;
use crate::kernel::KernelBtfError;
use crate::load::externs::ExternError;
use crate::objects::LoadFailure;
use crate::objects::pin::PinError;
use crate::sys::Errno;

/// Why an object cannot be loaded. Maps, functions and externs are given by their numbers in the prepared object, which
/// [`report`](crate::report) turns into names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The object has the other byte order than this machine.
    ByteOrder,
    /// The object could not be prepared.
    Prepare(PrepareError),
    /// The object's BTF could not be made ready for the kernel.
    Btf(SanitizeError),
    /// The kernel refuses the object's BTF, which struct_ops tables need; or it did for a reason that may pass.
    BtfLoad {
        /// Its answer.
        errno: Errno,
    },
    /// The kernel refuses a map.
    MapCreate {
        /// The map.
        map: MapId,
        /// Its answer.
        errno: Errno,
    },
    /// How many CPUs there may be, which the size of a map depends on, cannot be read.
    Cpus {
        /// The map.
        map: MapId,
        /// Why.
        errno: Errno,
    },
    /// A map could not be pinned, or the one that is pinned is another.
    Pin {
        /// The map.
        map: MapId,
        /// Why.
        error: PinError,
    },
    /// The first contents of a map could not be written, or the map not be frozen.
    MapFill {
        /// The map.
        map: MapId,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A slot of a map cannot be filled with what its definition says.
    Slot {
        /// The map.
        map: MapId,
        /// The slot.
        index: u32,
        /// The kernel's answer; ENOENT where what goes there was not created.
        errno: Errno,
    },
    /// A struct_ops table does not fit the kernel.
    StructOps {
        /// The map.
        map: MapId,
        /// Why.
        error: StructOpsError,
    },
    /// A setting is of something that the object does not have.
    Setting {
        /// Its index in [`LoadOptions::settings`](field@super::LoadOptions::settings), or beyond those in
        /// [`LoadOptions::more`](super::LoadOptions::more).
        index: usize,
        /// Why.
        error: SettingError,
    },
    /// The BTF of a module that a program is loaded for cannot be had.
    ModuleBtf {
        /// The function.
        function: ProgramId,
        /// The kernel's answer.
        errno: Errno,
    },
    /// The kernel's BTF cannot be had, in which the target of a section that is given at run time is looked up.
    TargetBtf {
        /// The function.
        function: ProgramId,
        /// Why.
        error: KernelBtfError,
    },
    /// The program that a program is to replace a function of cannot be asked for its functions.
    ReplacedBtf {
        /// The function.
        function: ProgramId,
        /// The kernel's answer.
        errno: Errno,
    },
    /// An extern has no value.
    Extern {
        /// The extern.
        id: ExternId,
        /// Why.
        error: ExternError,
    },
    /// A program could not be linked.
    Link {
        /// The function.
        function: ProgramId,
        /// Why.
        error: LinkError,
    },
    /// A program's section says of no program type what it is.
    UnknownSection {
        /// The function.
        function: ProgramId,
    },
    /// A program's section names no function, tracepoint or hook, and its type is loaded for one.
    NoTarget {
        /// The function.
        function: ProgramId,
    },
    /// A `freplace` program, and nobody said which program it is to replace a function of.
    NoReplaced {
        /// The function.
        function: ProgramId,
    },
    /// The kernel lacks what a program is to be attached to.
    MissingTarget {
        /// The function.
        function: ProgramId,
    },
    /// The kernel refuses a program.
    Program {
        /// The function.
        function: ProgramId,
        /// Its answer; the verifier's log is in the caller's buffer.
        failure: LoadFailure,
    },
    /// The arena is too small.
    Arena(ArenaFull),
}

impl From<ArenaFull> for LoadError {
    fn from(full: ArenaFull) -> Self {
        Self::Arena(full)
    }
}

impl From<PrepareError> for LoadError {
    fn from(error: PrepareError) -> Self {
        match error {
            PrepareError::Arena(full) => Self::Arena(full),
            error => Self::Prepare(error),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByteOrder => f.write_str("the object has the other byte order than this machine"),
            Self::Prepare(error) => error.fmt(f),
            Self::Btf(error) => write!(f, "the object's BTF: {error}"),
            Self::BtfLoad { errno } => write!(f, "the kernel refuses the object's BTF: {errno}"),
            Self::Cpus { map, errno } => {
                write!(f, "map #{map}: how many CPUs there may be: /sys/devices/system/cpu/possible: {errno}")
            }
            Self::MapCreate { map, errno } => write!(f, "map #{map}: the kernel refuses to create it: {errno}"),
            Self::Pin { map, error } => write!(f, "map #{map}: {error}"),
            Self::MapFill { map, errno } => write!(f, "map #{map}: its contents cannot be written: {errno}"),
            Self::Slot { map, index, errno } => write!(f, "map #{map}: slot {index} cannot be filled: {errno}"),
            Self::StructOps { map, error } => write!(f, "struct_ops table #{map}: {error}"),
            Self::Setting { index, error } => write!(f, "setting #{index}: {error}"),
            Self::ModuleBtf { function, errno } => {
                write!(f, "function #{function}: the BTF of its target's module cannot be had: {errno}")
            }
            Self::TargetBtf { function, error } => {
                write!(f, "function #{function}: the kernel's BTF, which has its target, cannot be had: {error}")
            }
            Self::ReplacedBtf { function, errno } => {
                write!(f, "function #{function}: the BTF of the program that it replaces cannot be had: {errno}")
            }
            Self::Extern { id, error } => write!(f, "extern #{id}: {error}"),
            Self::Link { error, .. } => error.fmt(f),
            Self::UnknownSection { function } => {
                write!(f, "function #{function}: its section is not that of any program type")
            }
            Self::NoTarget { function } => {
                write!(
                    f,
                    "function #{function}: its section names nothing to attach to, and its type is loaded for that"
                )
            }
            Self::NoReplaced { function } => {
                write!(f, "function #{function}: the loaded program that it replaces a function of is not given")
            }
            Self::MissingTarget { function } => {
                write!(f, "function #{function}: the kernel lacks what it is to be attached to")
            }
            Self::Program { function, failure } => write!(f, "function #{function}: {failure}"),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

impl core::error::Error for LoadError {}

impl LoadError {
    /// What the kernel answered, where it is the kernel that refuses something.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match *self {
            Self::BtfLoad { errno }
            | Self::MapCreate { errno, .. }
            | Self::Cpus { errno, .. }
            | Self::MapFill { errno, .. }
            | Self::Slot { errno, .. }
            | Self::ModuleBtf { errno, .. }
            | Self::ReplacedBtf { errno, .. } => Some(errno),
            Self::Program { failure, .. } => Some(failure.errno),
            Self::Pin { error, .. } => error.errno(),
            _ => None,
        }
    }
}

pub(super) fn btf_error(error: SanitizeError) -> LoadError {
    match error {
        SanitizeError::Arena(full) => LoadError::Arena(full),
        error => LoadError::Btf(error),
    }
}

pub(super) fn extern_error((id, error): (ExternId, ExternError)) -> LoadError {
    match error {
        ExternError::Arena(full) => LoadError::Arena(full),
        error => LoadError::Extern { id, error },
    }
}

pub(super) fn link_error(function: ProgramId, error: LinkError) -> LoadError {
    match error.cause {
        LinkCause::Arena(full) => LoadError::Arena(full),
        _ => LoadError::Link { function, error },
    }
}

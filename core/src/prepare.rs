//! From an object and a kernel's BTF to programs that can be loaded.
//!
//! ```text
//! Object --Plan::new--> Plan      tables, and all that the object asks of the kernel
//! Plan x Btf --search-->          one pass over the kernel's types, then a decision per relocation
//! Plan --finish--> Prepared       programs are linked from it one at a time, each in scratch
//! ```

mod needs;
mod plan;
mod prepared;
mod queries;
mod relocations;
mod search;
mod sections;
mod snapshot;

use core::fmt;

use crate::arena::{Arena, ArenaFull};
use crate::btf::split::RebaseError;
use crate::btf::{Btf, BtfError, DEFAULT_LOCAL_STRIDE, DEFAULT_STRIDE};
use crate::object::{Object, ObjectError};

pub use needs::Needs;
pub(crate) use needs::is_open;
pub use plan::Plan;
pub use prepared::{AttachTarget, ExternMatch, Prepared};
pub use queries::Question;
pub use relocations::{Relocation, RelocationError};
pub use search::Search;
pub use sections::Sections;
pub use snapshot::Snapshot;

/// How densely types are indexed: an entry of four bytes per so many types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Of the kernel's BTF.
    pub stride: u32,
    /// Of the object's BTF.
    pub local_stride: u32,
    /// Bytes of a pointer in the kernel; `None` to tell by its long integer type.
    pub target_pointer_size: Option<u8>,
}

impl Default for Options {
    fn default() -> Self {
        Self { stride: DEFAULT_STRIDE, local_stride: DEFAULT_LOCAL_STRIDE, target_pointer_size: None }
    }
}

/// Why an object cannot be prepared.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrepareError {
    /// The object is at fault.
    Object(ObjectError),
    /// The kernel's BTF is at fault.
    Kernel(BtfError),
    /// The object asks something of the kernel's BTF, and there is none. [`Plan::first_question`] says what.
    KernelBtfNeeded,
    /// The object and the kernel's BTF have different byte orders.
    ByteOrder,
    /// The snapshot is of another object: [`Snapshot::prepare`].
    OtherObject,
    /// A module's own base does not go onto the kernel's BTF.
    Rebase(RebaseError),
    /// The arena is too small.
    Arena(ArenaFull),
}

impl From<RebaseError> for PrepareError {
    fn from(error: RebaseError) -> Self {
        match error {
            RebaseError::Arena(full) => Self::Arena(full),
            error => Self::Rebase(error),
        }
    }
}

impl From<ObjectError> for PrepareError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Arena(full) => Self::Arena(full),
            error => Self::Object(error),
        }
    }
}

impl From<ArenaFull> for PrepareError {
    fn from(full: ArenaFull) -> Self {
        Self::Arena(full)
    }
}

impl fmt::Display for PrepareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(error) => error.fmt(f),
            Self::Kernel(error) => write!(f, "kernel BTF: {error}"),
            Self::KernelBtfNeeded => f.write_str("object needs the kernel's BTF, and there is none"),
            Self::ByteOrder => f.write_str("object and kernel BTF have different byte orders"),
            Self::OtherObject => f.write_str("the snapshot is of another object"),
            Self::Rebase(error) => write!(f, ".BTF.base of a module: {error}"),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

impl core::error::Error for PrepareError {}

fn kernel_error(error: BtfError) -> PrepareError {
    match error {
        BtfError::Arena(full) => PrepareError::Arena(full),
        error => PrepareError::Kernel(error),
    }
}

/// Prepares `object` against a kernel's BTF, or without one where it asks nothing: the whole of this module in one call,
/// for callers that have no modules to search.
///
/// # Errors
/// [`PrepareError`]
pub fn prepare<'a>(
    object: &Object<'a>,
    kernel: Option<&'a [u8]>,
    options: Options,
    arena: &mut Arena<'a>,
) -> Result<Prepared<'a>, PrepareError> {
    let plan = Plan::new(object, options, arena)?;
    match kernel {
        Some(kernel) if plan.asks_kernel() => {
            let kernel = Btf::parse(kernel).map_err(kernel_error)?;
            Ok(plan.search(kernel, arena)?.finish())
        }
        _ => plan.finish(),
    }
}

//! CO-RE: from a relocation record and two BTFs to a patched instruction.
//!
//! The stages are libbpf's, and so are their names, so that the two can be read side by side:
//!
//! 1. [`spec`]: the access string, read against the local type.
//! 2. [`compat`] and [`types_match`]: whether a local and a target type go together.
//! 3. `spec_match`: the access followed through one candidate.
//! 4. `calc`: the values before and after.
//! 5. `collect`, `judge`, `candidates`: the distinct relocations; each on one candidate; which candidates count, all
//!    relocations of one local root type taken together. What comes of it is a [`decision`].
//! 6. [`patch`]: the value put into the instruction, or poison.
//!
//! # An access string
//!
//! `"0:2:1:3"` on `struct s` means: take the first number as an index on a pointer to `s` (nearly always 0), then member
//! 2 of `s`, then, as that member is a union, its member 1, then element 3 of the array that this is. Numbers of
//! anonymous members count in the string, but not in the high-level spec: names are looked for through anonymous
//! structs and unions of the target, which may nest them differently.

mod calc;
mod candidates;
mod collect;
pub mod compat;
pub mod decision;
mod error;
pub mod explain;
pub mod format;
mod judge;
pub mod patch;
pub mod spec;
mod spec_match;
pub mod types_match;

pub use error::{CompareError, SpecError, TargetFault};

pub(crate) use candidates::choose;
pub(crate) use collect::OpenDecisions;

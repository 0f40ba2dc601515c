//! Minimal BTF: the few types of a kernel that given objects need, as a blob of their own.
//!
//! Relocating against such a blob gives the same instructions as against the whole BTF it was made of. There are two
//! ways to one:
//!
//! - [`minimal`] makes it out of a borrowed blob (and a module's, split on it), for several objects at once: to be shipped
//!   to devices whose kernels have no BTF. Only what decides the outcome is in it.
//! - [`stream`](stream()) makes it out of a [`Source`] that is read piece by piece through a window: for kernels that let their
//!   BTF neither be mapped nor be read into memory that there is. It holds all candidates, under the ids that
//!   they have in the kernel. What the kernel lacks, modules may have: [`ModuleSieve`] says whether the whole is needed.
//!
//! # What is kept
//!
//! | asked | kept |
//! |---|---|
//! | field | types on the way, with the members on it; what the field is, through modifiers, typedefs and arrays |
//! | type exists, size, id | the type; what pointers, arrays and prototypes in it lead to; structs without members |
//! | type matches | structs with all members, enumerations with all enumerators, where the comparison goes |
//! | enumerator | the whole enumeration |
//! | function, variable | it, and its type like a type that is asked for |
//! | always | the long integer type, whose size is that of a pointer |
//!
//! A type that is referred to but was not needed is `void`; one that does not exist does not exist there either, and a name
//! without a string has none. All else about a kept type is as it was: name, kind, size,
//! offsets.

mod borrowed;
mod emit;
mod error;
mod modules;
mod pairs;
mod reader;
mod source;
mod stream;
mod walk;

pub use borrowed::{Minimal, MinimalError, minimal};
pub use error::StreamError;
pub use modules::ModuleSieve;
pub use source::{MAX_PASSES, MIN_WINDOW, SliceSource, Source};
pub use stream::{Streamed, stream};

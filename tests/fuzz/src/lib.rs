//! What the fuzz targets share: how an input is cut into its parts, what is known of a prepared object, and modules of the
//! loader that are not public.

pub mod facts;
pub mod input;
pub mod memory;
pub mod sound;
pub mod sources;

// Where the sources of the loader look for each other.
pub(crate) use sources::{attach, sys};

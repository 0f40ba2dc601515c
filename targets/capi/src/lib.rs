//! The C interface of Corelo: level (a), `corelo-capi-core`, and level (b), the loader, in one library.
//!
//! ```text
//! failure  errors of the loader as codes and words
//! options  how an object is opened
//! loader   corelo_open .. corelo_close: an object, its maps, programs and links
//! maps     operations on the maps of a loader
//! ring     records of ring buffers
//! ```
//!
//! The header is `corelo.h`, made by `cargo test -p corelo-capi --features header` with `CORELO_WRITE_HEADER=1`, and
//! compared with these sources by the same command without.
#![expect(unsafe_code, reason = "a C interface takes pointers and exports symbols")]

pub use corelo_capi_core::{maps as core_maps, prepared, programs, relocations};

pub mod failure;
pub mod loader;
pub mod maps;
pub mod options;
pub mod ring;

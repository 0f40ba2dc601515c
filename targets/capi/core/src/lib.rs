//! The C interface of `corelo-core`, level (a): what a firmware without an allocator and without a C library links.
//!
//! ```text
//! error      codes, and the text in the caller's buffer
//! memory     pointers from C to slices, the one place where that is done
//! prepared   corelo_check, corelo_budget, corelo_prepare: an object made ready in the caller's memory
//! programs   what there is to load, and its instructions
//! maps       what there is to create
//! relocations  what CO-RE did to each instruction
//! panic      corelo_panic, for a library without std (feature `freestanding`)
//! ```
//!
//! The header that goes with it is `targets/capi/corelo.h`.
#![no_std]
#![expect(unsafe_code, reason = "a C interface takes pointers and exports symbols")]

#[cfg(test)]
extern crate std;

pub mod error;
pub mod maps;
pub mod memory;
#[cfg(feature = "freestanding")]
pub mod panic;
pub mod prepared;
pub mod programs;
pub mod relocations;

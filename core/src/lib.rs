//! Corelo core.
#![no_std]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::expect_used, clippy::panic, reason = "tests"))]
#[cfg(test)]
extern crate std;
pub mod arena;
pub mod btf;
pub mod bytes;
pub mod insn;
pub mod limits;
pub mod relo;
pub mod link;
pub mod object;
pub mod prepare;

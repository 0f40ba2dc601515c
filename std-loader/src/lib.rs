//! Corelo loader.

mod files;
mod memlock;
pub mod cpus;
pub mod kernel;
pub mod maps;
pub mod programs;
pub mod sys;
pub mod version;

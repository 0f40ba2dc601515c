//! Loading an object's BTF.

use std::os::fd::OwnedFd;

use super::memlock::{Memlock, raised_after};
use super::verifier_log::{LoadFailure, LogBuffer, with_log};
use crate::sys::bpf;

/// Loads a BTF blob.
///
/// # Errors
/// [`LoadFailure`].
pub fn load_btf(btf: &[u8], log: &mut dyn LogBuffer, memlock: Memlock) -> Result<OwnedFd, LoadFailure> {
    with_log(
        |log, true_size| loop {
            match bpf::btf_load(btf, log, 1, true_size) {
                Err(errno) if raised_after(errno, memlock) => {}
                result => return result,
            }
        },
        log,
    )
}

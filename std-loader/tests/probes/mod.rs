//! Static probes of whatever test has this module: `corelo_test:operands` at two places, `simple`, `guarded` with a semaphore, and
//! `unreadable`, whose second argument is in no form that programs can read.

#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), path = "sites.rs")]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "absent.rs")]
mod sites;

pub(crate) use sites::{guarded, operands_here, operands_there, simple, unreadable};

/// Whether this machine has them.
pub(crate) const ARE_THERE: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

//! The arena's buffer: as large as the user says, else grown until the job fits.

use bumpalo::Bump;
use corelo_loader::prepare::bump;

use crate::failure::Failure;

/// Where growing starts: enough for most objects.
const START: usize = 64 << 10;
/// Where growing ends: an object that needs more is broken.
const LIMIT: usize = 1 << 30;

/// Does `job` with a buffer of exactly `bytes`; without a number, again with twice as many for as long as that is what
/// it fails for.
pub(crate) fn with_buffer<T>(
    bytes: Option<usize>,
    mut job: impl FnMut(&mut [u8]) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut size = bytes.unwrap_or(START);
    loop {
        let bump = Bump::new();
        let buffer = bump::buffer(&bump, size).map_err(|error| Failure::Job(error.to_string()))?;
        match job(buffer) {
            Err(Failure::Arena(_)) if bytes.is_none() && size < LIMIT => size *= 2,
            result => return result,
        }
    }
}

//! The arena's buffer: as large as the user says, else grown until the job fits.

use bumpalo::Bump;
use zerocopy::IntoBytes;

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
        // Words, so that the buffer is aligned and not a byte of it is lost.
        let words = bump
            .try_alloc_slice_fill_copy(size.div_ceil(8), 0u64)
            .map_err(|_| Failure::Job(format!("no memory for an arena of {size} bytes")))?;
        match job(&mut words.as_mut_bytes()[..size]) {
            Err(Failure::Arena(_)) if bytes.is_none() && size < LIMIT => size *= 2,
            result => return result,
        }
    }
}

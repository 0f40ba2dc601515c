//! Where a BTF that is read piece by piece comes from.

use crate::numbers::to_u64;

/// The smallest window, in bytes: a name of the kernel's has at most 511.
pub const MIN_WINDOW: usize = 1024;

/// The most passes over a source. Real kernels take about ten: see [`stream`](super::stream()).
pub const MAX_PASSES: u32 = 64;

/// A BTF blob that can be read at any place: a file, flash memory, a compressed stream with a way back.
///
/// [`stream`](super::stream()) reads forward within each pass; only a new pass goes back.
pub trait Source {
    /// Why reading fails.
    type Error;

    /// Bytes of the whole blob, or more where that is not known: what is read ends where the source ends.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads bytes from `offset` on into `buffer` and returns how many; fewer than asked for are no error, 0 is the end.
    ///
    /// # Errors
    /// The source's own.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Self::Error>;
}

impl<S: Source> Source for &mut S {
    type Error = S::Error;

    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Self::Error> {
        (**self).read_at(offset, buffer)
    }
}

/// Bytes that are in memory or in the address space.
#[derive(Clone, Copy, Debug)]
pub struct SliceSource<'b>(pub &'b [u8]);

impl Source for SliceSource<'_> {
    type Error = core::convert::Infallible;

    fn len(&self) -> u64 {
        to_u64(self.0.len())
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Self::Error> {
        let tail = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        let len = tail.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..len), tail.get(..len)) {
            to.copy_from_slice(from);
        }
        Ok(len)
    }
}

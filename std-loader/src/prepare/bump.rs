//! Arena buffers out of a host program's [`bumpalo::Bump`] (feature `bumpalo`).

use core::alloc::Layout;
use core::fmt;

use bumpalo::Bump;
use corelo_core::arena::ALIGN;

/// The bump allocator has no room: its limit is reached, or the system has no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BumpFull {
    /// Bytes asked for.
    pub byte_size: usize,
}

impl fmt::Display for BumpFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bump allocator has no room for {} bytes", self.byte_size)
    }
}

impl core::error::Error for BumpFull {}

/// `byte_size` zero bytes of `bump`, for [`Arena::new`](corelo_core::arena::Arena::new). They start at a multiple of
/// [`ALIGN`], so that the arena loses none of them. The bump allocator keeps them until it is reset or dropped, and the borrow
/// checker sees to it that the arena is gone by then.
///
/// ```
/// use corelo_core::arena::Arena;
///
/// let bump = bumpalo::Bump::new();
/// let arena = Arena::new(corelo_loader::prepare::bump::buffer(&bump, 256 << 10)?);
/// # assert!(arena.used() < 64);
/// # Ok::<(), corelo_loader::prepare::bump::BumpFull>(())
/// ```
///
/// # Errors
/// [`BumpFull`].
pub fn buffer(bump: &Bump, byte_size: usize) -> Result<&mut [u8], BumpFull> {
    /// As aligned as the arena wants it, and safe to take bytes of.
    #[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes)]
    #[repr(C, align(8))]
    struct Unit([u8; 8]);
    const _: () = assert!(align_of::<Unit>() == ALIGN && size_of::<Unit>() == ALIGN);

    let full = BumpFull { byte_size };
    let units = byte_size.div_ceil(ALIGN);
    Layout::array::<Unit>(units).map_err(|_| full)?;
    let units = bump.try_alloc_slice_fill_copy(units, Unit([0; 8])).map_err(|_| full)?;
    let bytes = zerocopy::IntoBytes::as_mut_bytes(units);
    Ok(&mut bytes[..byte_size])
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelo_core::arena::{Arena, Part};

    #[test]
    fn an_arena_in_a_bump() {
        let bump = Bump::new();
        bump.alloc(1u8);
        for byte_size in [0, 1, 4096, 100_003] {
            let bytes = buffer(&bump, byte_size).unwrap();
            assert_eq!((bytes.len(), bytes.as_ptr().addr() % ALIGN), (byte_size, 0));
            assert!(bytes.iter().all(|byte| *byte == 0));
        }
        let mut arena = Arena::new(buffer(&bump, 1024).unwrap());
        let slice = arena.slice::<u64>(16, Part::Insns).unwrap();
        slice.fill(7);
        assert_eq!(slice, [7; 16]);
    }

    #[test]
    fn no_room() {
        let bump = Bump::new();
        bump.set_allocation_limit(Some(1 << 16));
        for byte_size in [1 << 20, usize::MAX, usize::MAX / 2] {
            assert_eq!(buffer(&bump, byte_size).err(), Some(BumpFull { byte_size }));
        }
        assert_eq!(buffer(&bump, 1024).unwrap().len(), 1024);
    }
}

//! Integers as others of another width, where `From` has nothing: every such conversion of this crate, each with the
//! reason why nothing is lost, or what.

const _: () = assert!(usize::BITS == 32 || usize::BITS == 64, "places in a blob are numbers of 32 bits");

/// A place, a count or a length as blobs have it, as one in memory. Nothing is lost.
#[expect(clippy::as_conversions, reason = "usize has at least 32 bits")]
#[inline]
pub(crate) const fn to_usize(number: u32) -> usize {
    number as usize
}

/// A place, a count or a length in a blob, as blobs have it. Those beyond 2^32 lose what is above; where that matters,
/// they were refused before.
#[expect(clippy::as_conversions, reason = "blobs have their own places as 32 bits")]
#[inline]
pub(crate) const fn to_u32(number: usize) -> u32 {
    number as u32
}

/// A place, a count or a length in memory, to compare or add it to one of 64 bits. Nothing is lost.
#[expect(clippy::as_conversions, reason = "usize has at most 64 bits")]
#[inline]
pub(crate) const fn to_u64(number: usize) -> u64 {
    number as u64
}

/// As `u32::from`, for constants.
#[expect(clippy::as_conversions, reason = "`From` is not for constants")]
#[inline]
pub(crate) const fn widened(number: u8) -> u32 {
    number as u32
}

/// The low half.
#[expect(clippy::as_conversions, reason = "meant to drop the upper half")]
#[inline]
pub(crate) const fn low_u32(number: u64) -> u32 {
    number as u32
}

/// The upper half.
#[inline]
pub(crate) const fn high_u32(number: u64) -> u32 {
    low_u32(number >> 32)
}

/// The lowest byte.
#[expect(clippy::as_conversions, reason = "meant to drop the upper bytes")]
#[inline]
pub(crate) const fn low_u8(number: u32) -> u8 {
    number as u8
}

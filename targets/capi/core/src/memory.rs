//! Pointers from C, made slices: the one place where that is done.

use core::ffi::c_char;
use core::slice;

use corelo_core::arena::ALIGN;

/// Bytes of C's that are read.
///
/// `None` where the pointer is NULL though there are bytes, or the size is one that no memory has.
///
/// # Safety
/// `data` is NULL or has `size` readable bytes that nobody writes for as long as `'a`.
pub unsafe fn bytes<'a>(data: *const u8, size: usize) -> Option<&'a [u8]> {
    if size == 0 {
        return Some(&[]);
    }
    if data.is_null() || isize::try_from(size).is_err() {
        return None;
    }
    // SAFETY: not NULL, not too large, and readable by the caller's promise.
    Some(unsafe { slice::from_raw_parts(data, size) })
}

/// Items of C's that are written.
///
/// # Safety
/// `data` is NULL or points to `count` items, aligned, that nobody else touches for as long as `'a`. `T` is bytes or a
/// `MaybeUninit`: what C left there may be no value of anything else.
pub unsafe fn buffer<'a, T: Copy>(data: *mut T, count: usize) -> Option<&'a mut [T]> {
    if count == 0 {
        return Some(&mut []);
    }
    let is_sound = count.checked_mul(size_of::<T>()).is_some_and(|size| isize::try_from(size).is_ok());
    if data.is_null() || !is_sound || !data.is_aligned() {
        return None;
    }
    // SAFETY: not NULL, aligned, not too large, and ours alone by the caller's promise.
    Some(unsafe { slice::from_raw_parts_mut(data, count) })
}

/// The part of C's memory that starts at a multiple of [`ALIGN`].
///
/// # Safety
/// As [`buffer`].
pub unsafe fn aligned<'a>(data: *mut u8, size: usize) -> Option<&'a mut [u8]> {
    // SAFETY: the caller's promise.
    let all = unsafe { buffer(data, size) }?;
    let skipped = all.as_ptr().align_offset(ALIGN).min(all.len());
    all.get_mut(skipped..)
}

/// Bytes of the object or of the kernel's BTF: no NUL at the end that counts.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// The first byte; never NULL.
    pub data: *const c_char,
    /// How many there are.
    pub size: usize,
}

impl Text {
    /// `bytes` as C sees them.
    pub const fn new(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr().cast(), size: bytes.len() }
    }
}

/// Stores `value` for C.
///
/// # Safety
/// `place` is NULL or points to a writable, aligned `T`.
pub unsafe fn store<T>(place: *mut T, value: T) -> Option<()> {
    if place.is_null() {
        return None;
    }
    // SAFETY: not NULL, and writable by the caller's promise.
    unsafe { place.write(value) };
    Some(())
}

//! `corelo-core` and its C interface in a static library that needs nothing: no std, no allocator, no C library but
//! `memcpy`, `memmove`, `memset`, `memcmp` and `bcmp`, which it brings along as weak symbols.
//!
//! There is no `#[global_allocator]` here, so a single use of `alloc` anywhere below would not link.
#![no_std]
#![forbid(unsafe_code)]

/// The exported functions: from `Object::parse` to the linked program.
pub use corelo_capi_core::{maps, prepared, programs, relocations};

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    corelo_capi_core::panic::panicked(info)
}

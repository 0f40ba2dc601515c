//! `corelo_panic`: where a panic ends in a library without std.
//!
//! No input makes this library panic; should it happen all the same, it is a fault of ours, and the device decides
//! what follows. The library has a weak `corelo_panic` that traps; a firmware that defines its own gets that called.

use core::panic::PanicInfo;

use crate::error::write_text;

unsafe extern "C" {
    /// Called once something in the library went wrong that cannot: `text` is one line with a NUL, `size` its bytes. It
    /// must not return.
    fn corelo_panic(text: *const u8, size: usize) -> !;
}

// Rust has no stable way to define a weak symbol; the assembler has. Each is the instruction that traps.
macro_rules! weak_trap {
    ($($text:literal),*) => {
        core::arch::global_asm!(".section .text.corelo_panic, \"ax\"", ".weak corelo_panic", $($text,)* ".text");
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
weak_trap!(".type corelo_panic, @function", "corelo_panic:", "ud2");
#[cfg(target_arch = "arm")]
weak_trap!(".thumb", ".thumb_func", ".type corelo_panic, %function", "corelo_panic:", "udf #0");
#[cfg(target_arch = "aarch64")]
weak_trap!(".type corelo_panic, %function", "corelo_panic:", "brk #1");
#[cfg(any(target_arch = "riscv32", target_arch = "riscv64"))]
weak_trap!(".type corelo_panic, @function", "corelo_panic:", "unimp");

/// For a `#[panic_handler]`: the message goes to `corelo_panic`.
pub fn panicked(info: &PanicInfo<'_>) -> ! {
    let mut text = [0; 200];
    let size = write_text(&mut text, info);
    // SAFETY: the text is there until the call ends, which it does not.
    unsafe { corelo_panic(text.as_ptr(), size) }
}

//! A static probe of the unit tests' own program, as sys/sdt.h makes them: `corelo_unit:fired`, with one argument and a
//! semaphore.

use std::arch::asm;
use std::sync::atomic::{AtomicU16, Ordering};

#[unsafe(link_section = ".probes")]
static SEMAPHORE: AtomicU16 = AtomicU16::new(0);

macro_rules! probe {
    ($args:literal, $($operand:tt)*) => {
        // SAFETY: a nop changes nothing, and the rest goes to a section that is not loaded.
        unsafe {
            asm!(
                "990: nop",
                ".pushsection .note.stapsdt, \"\", %note",
                ".balign 4",
                ".4byte 992f - 991f, 994f - 993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b, 0, {semaphore}",
                ".asciz \"corelo_unit\"",
                ".asciz \"fired\"",
                concat!(".asciz \"", $args, "\""),
                "994: .balign 4",
                ".popsection",
                semaphore = sym SEMAPHORE,
                $($operand)*
            )
        }
    };
}

/// Passes the probe with a 32-bit signed argument, and says what the semaphore is.
#[inline(never)]
pub(crate) fn fire(argument: i32) -> u16 {
    #[cfg(target_arch = "x86_64")]
    probe!("-4@%edi", in("edi") argument);
    #[cfg(target_arch = "aarch64")]
    probe!("-4@x0", in("x0") argument);
    SEMAPHORE.load(Ordering::Relaxed)
}

//! The probes, each a `nop` and a note that says where it is, as sys/sdt.h makes them.

use std::arch::{asm, global_asm};
use std::sync::atomic::{AtomicU16, Ordering};

global_asm!(
    ".pushsection .stapsdt.base, \"aR\"",
    ".hidden corelo_stapsdt_base",
    ".globl corelo_stapsdt_base",
    "corelo_stapsdt_base: .space 1",
    ".popsection",
);

/// How many look at the probe `guarded`: the kernel counts.
#[unsafe(link_section = ".probes")]
static SEMAPHORE: AtomicU16 = AtomicU16::new(0);

// The assembler takes `$` out of Intel syntax: it is \044 in the texts below.
macro_rules! probe {
    ($name:literal, $args:literal, $semaphore:literal $(, $($operand:tt)*)?) => {
        // SAFETY: a nop changes nothing, and the rest goes to a section that is not loaded.
        unsafe {
            asm!(
                "990: nop",
                ".pushsection .note.stapsdt, \"\", %note",
                ".balign 4",
                ".4byte 992f - 991f, 994f - 993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte corelo_stapsdt_base",
                concat!(".8byte ", $semaphore),
                ".asciz \"corelo_test\"",
                concat!(".asciz \"", $name, "\""),
                concat!(".asciz \"", $args, "\""),
                "994: .balign 4",
                ".popsection",
                $($($operand)*)?
            )
        }
    };
}

/// Eight arguments: `first` as an int and a byte, two constants, and of `words` the first as a short, the second, the first,
/// and the one at `index`.
#[inline(never)]
pub(crate) fn operands_here(first: u64, words: &[u64], index: u64) {
    #[cfg(target_arch = "x86_64")]
    probe!(
        "operands", "-4@%edi 1@%dil -8@\\044-9 4@\\0444000000000 2@(%rsi) 8@8(%rsi) 8@(%rsi) 8@(%rsi,%rdx,8)", "0",
        in("rdi") first, in("rsi") words.as_ptr(), in("rdx") index
    );
    #[cfg(target_arch = "aarch64")]
    probe!(
        "operands", "-4@w0 1@x0 -8@-9 4@4000000000 2@[x1] 8@[x1, 8] 8@[x1, 0] 8@[x2]", "0",
        in("x0") first, in("x1") words.as_ptr(), in("x2") words.as_ptr().wrapping_add(index as usize)
    );
}

/// The same probe at another place with another argument.
#[inline(never)]
pub(crate) fn operands_there(only: u64) {
    #[cfg(target_arch = "x86_64")]
    probe!("operands", "-2@%ax", "0", in("rax") only);
    #[cfg(target_arch = "aarch64")]
    probe!("operands", "-2@x5", "0", in("x5") only);
}

/// What the maps of libbpf before 1.7 can say.
#[inline(never)]
pub(crate) fn simple(first: u64, words: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    probe!("simple", "-4@%edi 8@8(%rsi) -8@\\044-9", "0", in("rdi") first, in("rsi") words.as_ptr());
    #[cfg(target_arch = "aarch64")]
    probe!("simple", "-4@w0 8@[x1, 8] -8@-9", "0", in("x0") first, in("x1") words.as_ptr());
}

/// Without arguments, and with a semaphore.
#[inline(never)]
pub(crate) fn guarded() -> u16 {
    probe!("guarded", "", "{semaphore}", semaphore = sym SEMAPHORE);
    SEMAPHORE.load(Ordering::Relaxed)
}

#[inline(never)]
pub(crate) fn unreadable() {
    #[cfg(target_arch = "x86_64")]
    probe!("unreadable", "8@\\0441 8f@%xmm0", "0");
    #[cfg(target_arch = "aarch64")]
    probe!("unreadable", "8@1 8@[x0, x1, lsl 3]", "0");
}

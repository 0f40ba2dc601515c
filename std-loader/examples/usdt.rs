//! A static probe (USDT): this program has one, and a BPF program sees its arguments.
//!
//! `cargo run --example usdt`, as root, on x86-64 or arm64, whose assembler the probe is written in. Linux 5.15: on older kernels
//! attach by [`Program::attach_usdt`], which says the process.
//!
//! [`Program::attach_usdt`]: corelo_loader::loader::Program::attach_usdt

#![cfg_attr(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    expect(unsafe_code, reason = "a static probe is inline assembly")
)]

use std::error::Error;

use corelo_loader::loader::Loader;
use corelo_loader::prepare::Kernel;
use corelo_loader::zerocopy::FromBytes;

#[cfg(target_endian = "little")]
const OBJECT: &[u8] = include_bytes!("bpf/usdt.bpf.o");
#[cfg(target_endian = "big")]
const OBJECT: &[u8] = include_bytes!("bpf/usdt-eb.bpf.o");

/// `struct request` of usdt.bpf.c.
#[derive(FromBytes)]
#[zerocopy(crate = "corelo_loader::zerocopy")]
#[repr(C)]
struct Request {
    number: u64,
    status: i64,
}

/// Something worth a probe, `corelo:request`: a `nop`, and a note in the file that says where it is and where the arguments
/// are, as sys/sdt.h makes them for C.
#[inline(never)]
fn answer(number: u64, status: i32) {
    macro_rules! probe {
        ($arguments:literal, $first:tt, $second:tt) => {
            // SAFETY: a nop changes nothing, and the rest goes to a section that is not loaded.
            unsafe {
                std::arch::asm!(
                    "990: nop",
                    ".pushsection .note.stapsdt, \"\", %note",
                    ".balign 4",
                    ".4byte 992f - 991f, 994f - 993f, 3",
                    "991: .asciz \"stapsdt\"",
                    "992: .balign 4",
                    "993: .8byte 990b, 0, 0", // the probe, no section that tells of prelink, no semaphore
                    ".asciz \"corelo\"",
                    ".asciz \"request\"",
                    concat!(".asciz \"", $arguments, "\""),
                    "994: .balign 4",
                    ".popsection",
                    in($first) number,
                    in($second) status,
                )
            }
        };
    }
    #[cfg(target_arch = "x86_64")]
    probe!("8@%rdi -4@%esi", "rdi", "esi");
    #[cfg(target_arch = "aarch64")]
    probe!("8@x0 -4@w1", "x0", "x1");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (number, status);
}

fn main() -> Result<(), Box<dyn Error>> {
    let (kernel, mut buffer) = (Kernel::running(), [0; 32 << 10]);
    let mut collection = Loader::new(OBJECT).name("usdt").load(&kernel, &mut buffer)?;
    // The section says which file and probe: SEC("usdt//proc/self/exe:corelo:request").
    collection.attach_all()?;
    answer(1, 200);
    answer(2, -5);
    let mut ring = collection.ring("requests")?;
    let seen = ring.consume(|record| {
        let Ok((Request { number, status }, _)) = Request::read_from_prefix(record) else { return };
        println!("request {number}: status {status}");
    })?;
    if seen == 2 { Ok(()) } else { Err("the probe was not seen".into()) }
}

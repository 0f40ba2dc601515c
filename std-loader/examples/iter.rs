//! An iterator: text that a BPF program writes as the kernel walks over something, here over its tasks.
//!
//! `cargo run --example iter`, as root: a line for each process. Linux 5.8.

use std::error::Error;

use corelo_loader::loader::Loader;
use corelo_loader::prepare::Kernel;

#[cfg(target_endian = "little")]
const OBJECT: &[u8] = include_bytes!("bpf/iter.bpf.o");
#[cfg(target_endian = "big")]
const OBJECT: &[u8] = include_bytes!("bpf/iter-eb.bpf.o");

fn main() -> Result<(), Box<dyn Error>> {
    let (kernel, mut buffer) = (Kernel::running(), [0; 32 << 10]);
    let collection = Loader::new(OBJECT).name("iter").load(&kernel, &mut buffer)?;
    // Each call is a walk of its own, which goes on as it is read.
    std::io::copy(&mut collection.program("each_task")?.iter()?, &mut std::io::stdout())?;
    Ok(())
}

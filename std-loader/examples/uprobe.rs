//! Who calls a function of a program or library, and how often.
//!
//! `cargo run --example uprobe [SECONDS [FILE FUNCTION]]`, as root: `chdir` of libc.so.6 where nothing else is said. Linux 4.17 (by tracefs
//! on older ones).

use std::error::Error;
use std::ffi::CStr;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use corelo_loader::loader::Loader;
use corelo_loader::prepare::Kernel;

#[cfg(target_endian = "little")]
const OBJECT: &[u8] = include_bytes!("bpf/uprobe.bpf.o");
#[cfg(target_endian = "big")]
const OBJECT: &[u8] = include_bytes!("bpf/uprobe-eb.bpf.o");

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let seconds = words.next().map_or(Ok(5), |word| word.parse())?;
    let file = words.next().unwrap_or("libc.so.6".into());
    let function = words.next().unwrap_or("chdir".into());

    let (kernel, mut buffer) = (Kernel::running(), [0; 32 << 10]);
    let collection = Loader::new(OBJECT).name("uprobe").load(&kernel, &mut buffer)?;
    // A library is looked for where the dynamic linker finds it. A section may say the same: SEC("uprobe/libc.so.6:chdir").
    let link = collection.program("on_call")?.attach_uprobe(Path::new(&file), &function)?;
    println!("counting calls of {function} in {file} for {seconds} s");
    sleep(Duration::from_secs(seconds));
    drop(link); // detaches

    for entry in collection.map::<[u8; 16], u64>("calls")?.iter() {
        let (comm, calls) = entry?;
        println!("{}: {calls}", CStr::from_bytes_until_nul(&comm)?.to_string_lossy());
    }
    Ok(())
}

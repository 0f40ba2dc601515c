//! A map that survives its agent: pinned by its name, and found again by the next run.
//!
//! `cargo run --example pinned [SECONDS]`, as root: counts processes that start, and goes on counting where the last run ended.
//! `rm -r /sys/fs/bpf/corelo-example` lets it begin anew. Linux 4.17, for the raw tracepoint; pins are older.

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use corelo_loader::loader::Loader;
use corelo_loader::prepare::Kernel;

#[cfg(target_endian = "little")]
const OBJECT: &[u8] = include_bytes!("bpf/pinned.bpf.o");
#[cfg(target_endian = "big")]
const OBJECT: &[u8] = include_bytes!("bpf/pinned-eb.bpf.o");

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |word| word.parse())?;
    let (kernel, mut buffer) = (Kernel::running(), [0; 32 << 10]);
    // Maps that ask for it are pinned below; one that is there already is taken, if it is as the object says.
    let loader = Loader::new(OBJECT).name("pinned").pin_root("/sys/fs/bpf/corelo-example");
    let collection = loader.load(&kernel, &mut buffer)?;
    let starts = collection.map::<u32, u64>("starts")?;
    let before = starts.get(&0)?.unwrap_or(0);
    let link = collection.program("on_exec")?.attach()?;
    println!("{before} processes started in the runs before");
    sleep(Duration::from_secs(seconds));
    drop(link); // detaches; the map keeps its name, and what is in it
    println!("{} processes started in all runs", starts.get(&0)?.unwrap_or(0));
    Ok(())
}

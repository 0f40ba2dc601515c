//! Records as a task of a tokio program sees them, beside its other work.
//!
//! `cargo run --features tokio --example tokio [SECONDS]`, as root: says which processes start.

use std::error::Error;
use std::time::Duration;

use corelo_loader::events::AsyncRing;
use corelo_loader::loader::Loader;
use corelo_loader::prepare::Kernel;

#[cfg(target_endian = "little")]
const OBJECT: &[u8] = include_bytes!("bpf/agent.bpf.o");
#[cfg(target_endian = "big")]
const OBJECT: &[u8] = include_bytes!("bpf/agent-eb.bpf.o");

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |word| word.parse())?;
    let kernel = Kernel::running();
    let mut buffer = vec![0; 32 * 1024]; // `corelo budget` says how many bytes an object needs
    let mut collection = Loader::new(OBJECT).name("agent").load(&kernel, &mut buffer)?;
    collection.attach_all()?;
    println!("watching for {seconds} s");
    let mut ring = AsyncRing::new(collection.ring("events")?)?;

    let mut end = std::pin::pin!(tokio::time::sleep(Duration::from_secs(seconds)));
    loop {
        tokio::select! {
            // Shown where the record lies: nothing is copied.
            shown = ring.next(show) => shown?,
            () = &mut end => return Ok(()),
        }
    }
}

/// `struct event` of agent.bpf.c: pid, ppid, uid and the name, in this machine's byte order.
fn show(record: &[u8]) {
    if let Some((pid, name)) = record.split_first_chunk().and_then(|(pid, rest)| Some((pid, rest.get(8..)?))) {
        println!("{} {}", u32::from_ne_bytes(*pid), String::from_utf8_lossy(name).trim_end_matches('\0'));
    }
}

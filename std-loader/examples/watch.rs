//! Processes that start: a record of a ring buffer for each.
//!
//! `cargo run --example watch [SECONDS [PARENT]]`, as root: those of one parent only where its process id is given.

use std::error::Error;
use std::ffi::CStr;
use std::time::{Duration, Instant};

use corelo_loader::load::Collection;
use corelo_loader::loader::Loader;
use corelo_loader::prepare::Kernel;
use corelo_loader::zerocopy::FromBytes;

#[cfg(target_endian = "little")]
const OBJECT: &[u8] = include_bytes!("bpf/watch.bpf.o");
#[cfg(target_endian = "big")]
const OBJECT: &[u8] = include_bytes!("bpf/watch-eb.bpf.o");

/// `struct event` of watch.bpf.c.
#[derive(FromBytes)]
#[zerocopy(crate = "corelo_loader::zerocopy")]
#[repr(C)]
struct Event {
    pid: u32,
    ppid: u32,
    comm: [u8; 16],
}

/// Owns the programs and what they are attached to: dropped, both go.
struct Watch<'a> {
    collection: Collection<'a>,
}

impl<'a> Watch<'a> {
    fn start(parent: u32, kernel: &'a Kernel<'_>, buffer: &'a mut [u8]) -> Result<Self, Box<dyn Error>> {
        let mut collection = Loader::new(OBJECT).name("watch").global("parent", &parent).load(kernel, buffer)?;
        collection.attach_all()?;
        Ok(Self { collection })
    }

    fn run(&self, time: Duration) -> Result<(), Box<dyn Error>> {
        let mut ring = self.collection.ring("events")?;
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            ring.poll(Some(left), |record| {
                let Ok((Event { pid, ppid, comm }, _)) = Event::read_from_prefix(record) else { return };
                let comm = CStr::from_bytes_until_nul(&comm).unwrap_or_default().to_string_lossy();
                println!("{pid} {comm}, of {ppid}");
            })?;
        }
        println!("{} records found no room", self.collection.global::<u64>("lost")?.get()?);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let seconds = words.next().map_or(Ok(5), |word| word.parse())?;
    let parent = words.next().map_or(Ok(0), |word| word.parse())?;
    let kernel = Kernel::running(); // its BTF is mapped, or read piece by piece, once an object asks for it
    let mut buffer = [0; 32 << 10]; // `corelo budget` says how many bytes an object takes
    let watch = Watch::start(parent, &kernel, &mut buffer)?;
    println!("watching for {seconds} s");
    watch.run(Duration::from_secs(seconds))
}

//! The explicit steps, each with what it takes and gives: an object's bytes, the kernel, an arena; maps, programs, links; records.
//!
//! `cargo run --example steps [SECONDS]`, as root: says which processes start.

use std::error::Error;
use std::time::{Duration, Instant};

use corelo_loader::corelo_core::object::Object;
use corelo_loader::corelo_core::prepare::Options;
use corelo_loader::load::{Collection, LoadOptions};
use corelo_loader::objects::GrowingLog;
use corelo_loader::prepare::Kernel;

#[cfg(target_endian = "little")]
const OBJECT: &[u8] = include_bytes!("bpf/agent.bpf.o");
#[cfg(target_endian = "big")]
const OBJECT: &[u8] = include_bytes!("bpf/agent-eb.bpf.o");

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |word| word.parse())?;
    let mut buffer = [0u8; 32 * 1024]; // `corelo budget` says how many bytes an object needs
    // Its BTF is mapped, or read piece by piece, once it is asked for something.
    let kernel = Kernel::running();
    let object = Object::parse(OBJECT)?;
    let (made, mut arena) = kernel.prepare(&object, Options::default(), &mut buffer)?;
    let names: Vec<String> = made
        .prepared
        .declared()
        .programs()
        .map(|(_, program)| String::from_utf8_lossy(made.prepared.function_name(program)).into_owned())
        .collect();

    let options = LoadOptions { modules: made.modules.names(), ..LoadOptions::new(b"steps") };
    let mut collection = Collection::create(&made.prepared, &options, &mut arena)?;
    collection.load_programs(&options, &mut arena, &mut GrowingLog::new(64 << 10, 16 << 20))?;
    let mut links = Vec::new(); // dropping a link detaches
    for (program, _) in made.prepared.declared().programs() {
        links.extend(collection.attach_program(program)?);
    }
    println!("attached: {}", names.join(", "));

    let mut ring = collection.ring("events")?;
    let end = Instant::now() + Duration::from_secs(seconds);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        ring.poll(Some(left), |record| {
            // `struct event` of agent.bpf.c: pid, ppid, uid and the name, in this machine's byte order.
            let Some((pid, name)) = record.split_first_chunk().and_then(|(pid, rest)| Some((pid, rest.get(8..)?)))
            else {
                return;
            };
            println!("{} {}", u32::from_ne_bytes(*pid), String::from_utf8_lossy(name).trim_end_matches('\0'));
        })?;
    }
    Ok(())
}

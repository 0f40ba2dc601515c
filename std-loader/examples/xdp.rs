//! What comes in on a network interface, counted by an XDP program before the network stack sees it.
//!
//! `cargo run --example xdp INTERFACE [SECONDS]`, as root. Linux 5.9; where a driver has no XDP, it runs in the stack.

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use corelo_loader::attach::interface_index;
use corelo_loader::loader::Loader;
use corelo_loader::prepare::Kernel;
use corelo_loader::zerocopy::{FromBytes, Immutable, IntoBytes};

#[cfg(target_endian = "little")]
const OBJECT: &[u8] = include_bytes!("bpf/xdp.bpf.o");
#[cfg(target_endian = "big")]
const OBJECT: &[u8] = include_bytes!("bpf/xdp-eb.bpf.o");

/// `struct counted` of xdp.bpf.c.
#[derive(FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "corelo_loader::zerocopy")]
#[repr(C)]
struct Counted {
    packets: u64,
    bytes: u64,
}

const PROTOCOLS: [&str; 4] = ["IPv4", "IPv6", "ARP", "other"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let interface = words.next().ok_or("no network interface is named")?;
    let seconds = words.next().map_or(Ok(5), |word| word.parse())?;

    let (kernel, mut buffer) = (Kernel::running(), [0; 32 << 10]);
    let collection = Loader::new(OBJECT).name("xdp").load(&kernel, &mut buffer)?;
    let link = collection.program("count")?.attach_xdp(interface_index(&interface)?)?;
    println!("counting on {interface} for {seconds} s");
    sleep(Duration::from_secs(seconds));
    drop(link); // detaches

    let counts = collection.per_cpu_map::<u32, Counted>("counts")?;
    let mut values = vec![0; counts.buffer_len()];
    for (protocol, name) in (0u32..).zip(PROTOCOLS) {
        let (mut packets, mut bytes) = (0, 0);
        for of_cpu in counts.get(&protocol, &mut values)?.into_iter().flatten() {
            packets += of_cpu.packets;
            bytes += of_cpu.bytes;
        }
        println!("{name}: {packets} packets, {bytes} bytes");
    }
    Ok(())
}

//! What comes in and goes out of a network interface, counted by traffic control programs in global variables.
//!
//! `cargo run --example tc INTERFACE [SECONDS]`, as root. Linux 6.6, for tcx. Older kernels take such programs (`SEC("tc")`) as
//! filters of a clsact qdisc, by netlink, which this library does not speak: pin them ([`Program::pin`]) and let tc(8) do it:
//!
//!     tc qdisc add dev INTERFACE clsact
//!     tc filter add dev INTERFACE ingress bpf direct-action object-pinned /sys/fs/bpf/NAME
//!
//! [`Program::pin`]: corelo_loader::loader::Program::pin

use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use corelo_loader::attach::interface_index;
use corelo_loader::loader::Loader;
use corelo_loader::prepare::Kernel;
use corelo_loader::zerocopy::{FromBytes, Immutable, IntoBytes};

#[cfg(target_endian = "little")]
const OBJECT: &[u8] = include_bytes!("bpf/tc.bpf.o");
#[cfg(target_endian = "big")]
const OBJECT: &[u8] = include_bytes!("bpf/tc-eb.bpf.o");

/// `struct traffic` of tc.bpf.c.
#[derive(FromBytes, IntoBytes, Immutable)]
#[zerocopy(crate = "corelo_loader::zerocopy")]
#[repr(C)]
struct Traffic {
    packets: u64,
    bytes: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let interface = words.next().ok_or("no network interface is named")?;
    let seconds = words.next().map_or(Ok(5), |word| word.parse())?;

    let (kernel, mut buffer) = (Kernel::running(), [0; 32 << 10]);
    let collection = Loader::new(OBJECT).name("tc").load(&kernel, &mut buffer)?;
    let index = interface_index(&interface)?;
    // Behind the programs that are there already; each in the direction that its section says.
    let links =
        [collection.program("on_receive")?.attach_tcx(index)?, collection.program("on_send")?.attach_tcx(index)?];
    println!("counting on {interface} for {seconds} s");
    sleep(Duration::from_secs(seconds));
    drop(links); // detaches

    for name in ["received", "sent"] {
        let Traffic { packets, bytes } = collection.global(name)?.get()?;
        println!("{name}: {packets} packets, {bytes} bytes");
    }
    Ok(())
}

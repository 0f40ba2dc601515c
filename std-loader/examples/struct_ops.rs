//! A TCP congestion control made of BPF programs: registered, used by a connection of this program's own, and taken back.
//!
//! `cargo run --example struct_ops`, as root. Linux 6.4, for its link and the kernel functions that it calls; tables in `SEC(".struct_ops")` are
//! registered on 5.6 and newer. On an architecture without BPF trampolines there are none.

use std::error::Error;
use std::fs::read_to_string;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use corelo_loader::loader::Loader;
use corelo_loader::prepare::Kernel;
use rustix::net::sockopt::set_tcp_congestion;

#[cfg(target_endian = "little")]
const OBJECT: &[u8] = include_bytes!("bpf/struct_ops.bpf.o");
#[cfg(target_endian = "big")]
const OBJECT: &[u8] = include_bytes!("bpf/struct_ops-eb.bpf.o");

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

fn main() -> Result<(), Box<dyn Error>> {
    let (kernel, mut buffer) = (Kernel::running(), [0; 32 << 10]);
    let collection = Loader::new(OBJECT).name("ops").load(&kernel, &mut buffer)?;
    // By the name of its variable; attach_all does so with every table.
    let link = collection.attach_table("counted")?;
    println!("available: {}", read_to_string(AVAILABLE)?.trim_end());

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    set_tcp_congestion(&client, "corelo_counted")?;
    let (mut server, _) = listener.accept()?;
    let reader = thread::spawn(move || server.read_to_end(&mut Vec::new()));
    client.write_all(&vec![0; 1 << 20])?;
    drop(client);
    let bytes = reader.join().map_err(|_| "the reader is gone")??;
    let acknowledgements = collection.global::<u64>("acknowledgements")?.get()?;
    println!("{bytes} bytes sent, the window was to grow {acknowledgements} times");

    drop(link); // takes it back
    println!("available: {}", read_to_string(AVAILABLE)?.trim_end());
    Ok(())
}

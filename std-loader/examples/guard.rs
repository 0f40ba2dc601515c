//! Processes of a cgroup may not connect to a port, and who tries is told.
//!
//! `cargo run --example guard CGROUP PORT [SECONDS]`, as root: CGROUP is a directory of the cgroup2 file system. Linux 5.8, for the
//! ring buffer; programs on cgroups are older (4.17 for these).

use std::error::Error;
use std::ffi::CStr;
use std::path::Path;
use std::time::{Duration, Instant};

use corelo_loader::loader::Loader;
use corelo_loader::prepare::Kernel;
use corelo_loader::zerocopy::FromBytes;

#[cfg(target_endian = "little")]
const OBJECT: &[u8] = include_bytes!("bpf/guard.bpf.o");
#[cfg(target_endian = "big")]
const OBJECT: &[u8] = include_bytes!("bpf/guard-eb.bpf.o");

/// `struct refusal` of guard.bpf.c.
#[derive(FromBytes)]
#[zerocopy(crate = "corelo_loader::zerocopy")]
#[repr(C)]
struct Refusal {
    pid: u32,
    comm: [u8; 16],
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let cgroup = words.next().ok_or("no cgroup is named")?;
    let port: u16 = words.next().ok_or("no port is given")?.parse()?;
    let seconds = words.next().map_or(Ok(5), |word| word.parse())?;

    let (kernel, mut buffer) = (Kernel::running(), [0; 32 << 10]);
    let collection = Loader::new(OBJECT).name("guard").global("port", &port).load(&kernel, &mut buffer)?;
    let attach = |name| collection.program(name)?.attach_cgroup(Path::new(&cgroup));
    let _links = [attach("connect4")?, attach("connect6")?];
    println!("guarding port {port} for {seconds} s");

    let mut ring = collection.ring("refusals")?;
    let end = Instant::now() + Duration::from_secs(seconds);
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        ring.poll(Some(left), |record| {
            let Ok((Refusal { pid, comm }, _)) = Refusal::read_from_prefix(record) else { return };
            let comm = CStr::from_bytes_until_nul(&comm).unwrap_or_default().to_string_lossy();
            println!("refused: {pid} {comm}");
        })?;
    }
    Ok(())
}

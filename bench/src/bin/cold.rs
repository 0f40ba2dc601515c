//! One cold prepare, for `valgrind --tool=callgrind`: from opening the kernel's BTF to the last final instruction.
//!
//! Usage: `cold OBJECT [BTF [ROUNDS]]`, BTF `-` for the running kernel's. The difference of two counts is what a round costs.

use std::path::Path;
use std::process::ExitCode;

use corelo_core::prepare::Options;
use corelo_loader::kernel::KernelBtf;

/// For objects of a hundred thousand relocations and kernels of a million types.
const BUFFER: usize = 64 << 20;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let Some(path) = args.next() else {
        eprintln!("usage: cold OBJECT [BTF [ROUNDS]]");
        return ExitCode::from(2);
    };
    let file = std::fs::read(path).expect("the object can be read");
    let btf = args.next().filter(|path| path != "-");
    let rounds = args.next().map_or(1, |rounds| rounds.to_string_lossy().parse().expect("a number of rounds"));
    let mut buffer = vec![0u8; BUFFER];
    for _ in 0..rounds {
        let insns = cold(&file, btf.as_deref().map(Path::new), &mut buffer);
        println!("{insns} instructions");
    }
    ExitCode::SUCCESS
}

#[inline(never)]
fn cold(file: &[u8], btf: Option<&Path>, buffer: &mut [u8]) -> usize {
    let kernel = match btf {
        Some(path) => KernelBtf::from_file(path),
        None => KernelBtf::open(),
    };
    let kernel = kernel.expect("the kernel's BTF can be opened");
    corelo_bench::prepare::cold(file, &kernel, Options::default(), buffer)
}

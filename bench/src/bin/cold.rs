//! One cold prepare, for `valgrind --tool=callgrind`: from opening the kernel's BTF to the last final instruction.
//!
//! Usage: `cold OBJECT [BTF]`. With `CORELO_ROUNDS=N` it is done N times.

use std::process::ExitCode;

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, prepare};
use corelo_loader::kernel::KernelBtf;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let Some(path) = args.next() else {
        eprintln!("usage: cold OBJECT [BTF]");
        return ExitCode::from(2);
    };
    let file = std::fs::read(path).expect("the object can be read");
    let btf = args.next();
    let rounds = std::env::var("CORELO_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let mut buffer = vec![0u8; 4 << 20];
    for _ in 0..rounds {
        let insns = cold(&file, btf.as_deref().map(std::path::Path::new), &mut buffer);
        println!("{insns} instructions");
    }
    ExitCode::SUCCESS
}

#[inline(never)]
fn cold(file: &[u8], btf: Option<&std::path::Path>, buffer: &mut [u8]) -> usize {
    let kernel = match btf {
        Some(path) => KernelBtf::from_file(path),
        None => KernelBtf::open(),
    };
    let kernel = kernel.expect("the kernel's BTF can be opened");
    let mut arena = Arena::new(buffer);
    let object = Object::parse(file).expect("the object is one");
    let prepared =
        prepare(&object, Some(&kernel), Options::default(), &mut arena).expect("the object can be prepared");
    let mut insns = 0;
    for (number, _) in prepared.declared().programs() {
        let mut scratch = arena.scratch();
        insns += prepared.program(number, &mut scratch).expect("the program can be linked").insns.len();
    }
    insns
}

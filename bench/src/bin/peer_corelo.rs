//! Corelo as one of the peers; see [`corelo_bench::peer`].

use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;

use corelo_bench::peer::{self, Stage, timed};
use corelo_bench::prepare::{again, link_all};
use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, prepare};
use corelo_loader::kernel::KernelBtf;
use corelo_loader::loader::Loader;
use corelo_loader::prepare::{Access, Kernel, KernelOptions};

/// What many_progs needs, and some.
const BUFFER: usize = 32 << 10;

fn main() -> ExitCode {
    peer::main(work)
}

fn work(stage: Stage, path: &Path, rounds: usize, note: &mut dyn FnMut(u64)) {
    match stage {
        Stage::Idle | Stage::Read => {}
        Stage::Prepare => {
            let mut buffer = [0u8; BUFFER];
            note(timed(|| black_box(cold(path, &mut buffer))).1);
        }
        Stage::Warm => warm(path, rounds, note),
        Stage::Streamed => {
            let mut buffer = [0u8; BUFFER];
            note(timed(|| black_box(streamed(path, &mut buffer))).1);
        }
        Stage::Load => {
            let mut buffer = [0u8; BUFFER];
            let (programs, time) = timed(|| load(path, &mut buffer));
            assert_ne!(programs, 0);
            note(time);
        }
    }
}

fn cold(path: &Path, buffer: &mut [u8]) -> usize {
    let file = std::fs::read(path).expect("the object can be read");
    let kernel = KernelBtf::open().expect("the kernel has BTF");
    corelo_bench::prepare::cold(&file, &kernel, Options::default(), buffer)
}

fn streamed(path: &Path, buffer: &mut [u8]) -> usize {
    let file = std::fs::read(path).expect("the object can be read");
    let kernel = Kernel::new(KernelOptions { access: Access::Stream, ..KernelOptions::RUNNING });
    let object = Object::parse(&file).expect("the object is one");
    let (made, mut arena) = kernel.prepare(&object, Options::default(), buffer).expect("it can be prepared");
    link_all(&made.prepared, &mut arena)
}

fn warm(path: &Path, rounds: usize, note: &mut dyn FnMut(u64)) {
    let kernel = KernelBtf::open().expect("the kernel has BTF");
    let file = std::fs::read(path).expect("the object can be read");
    let (mut first, mut second) = ([0u8; BUFFER], [0u8; BUFFER]);
    let mut arena = Arena::new(&mut first);
    let object = Object::parse(&file).expect("the object is one");
    let prepared = prepare(&object, Some(&kernel), Options::default(), &mut arena).expect("it can be prepared");
    let snapshot = prepared.snapshot();
    let insns = link_all(&prepared, &mut arena);
    for _ in 0..rounds {
        let read_again = || again(&std::fs::read(path).expect("the object can be read"), &snapshot, &mut second);
        let (count, time) = timed(read_again);
        assert_eq!(count, insns);
        note(time);
    }
}

fn load(path: &Path, buffer: &mut [u8]) -> usize {
    let file = std::fs::read(path).expect("the object can be read");
    let kernel = Kernel::running();
    let collection = Loader::new(&file).name("many_progs").load(&kernel, buffer).expect("it can be loaded");
    collection.counts().programs
}

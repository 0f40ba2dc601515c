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
use corelo_loader::load::{Collection, LoadOptions};
use corelo_loader::objects::GrowingLog;
use corelo_loader::prepare::{Access, Kernel, KernelOptions, Preparation};

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
    let mut arena = Arena::new(buffer);
    let made = for_kernel(&file, &kernel, &mut arena);
    link_all(&made.prepared, &mut arena)
}

fn for_kernel<'a>(file: &'a [u8], kernel: &'a Kernel<'_>, arena: &mut Arena<'a>) -> Preparation<'a> {
    let object = Object::parse(file).expect("the object is one");
    kernel.prepare(&object, Options::default(), arena).expect("it can be prepared")
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
    let kernel = Kernel::new(KernelOptions::RUNNING);
    let mut arena = Arena::new(buffer);
    let made = for_kernel(&file, &kernel, &mut arena);
    let options = LoadOptions { modules: made.modules.names(), ..LoadOptions::new(b"many_progs") };
    let mut collection = Collection::create(&made.prepared, &options, &mut arena).expect("its maps can be created");
    collection
        .load_programs(&options, &mut arena, &mut GrowingLog::new(64 << 10, 16 << 20))
        .expect("its programs can be loaded");
    collection.counts().1
}

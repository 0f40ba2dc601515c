//! One cold prepare and then N warm ones, for `valgrind --tool=callgrind`.
//!
//! Usage: `warm OBJECT [BTF [ROUNDS]]`, BTF `-` for the running kernel's. The difference of two counts is what a round
//! costs. Prints the median time of a warm prepare in microseconds.

use std::hint::black_box;
use std::process::ExitCode;

use corelo_bench::prepare::{again, link_all};
use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Snapshot, prepare};
use corelo_loader::kernel::KernelBtf;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(path) = args.next() else {
        eprintln!("usage: warm OBJECT [BTF [ROUNDS]]");
        return ExitCode::from(2);
    };
    let btf = args.next().filter(|path| path != "-");
    let rounds = args.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let file = std::fs::read(path).expect("the object can be read");
    let kernel = match &btf {
        Some(path) => KernelBtf::from_file(path.as_ref()),
        None => KernelBtf::open(),
    };
    let kernel = kernel.expect("the kernel's BTF can be opened");
    let (mut first, mut second) = (vec![0u8; 4 << 20], vec![0u8; 4 << 20]);
    let mut arena = Arena::new(&mut first);
    let object = Object::parse(&file).expect("the object is one");
    let prepared = prepare(&object, Some(&kernel), Options::default(), &mut arena).expect("it can be prepared");
    let snapshot = prepared.snapshot();
    let cold = link_all(&prepared, &mut arena);
    let times = (0..rounds).map(|_| {
        let start = std::time::Instant::now();
        let warm = black_box(warm_once(black_box(&file), &snapshot, &mut second));
        let time = start.elapsed();
        assert_eq!(warm, cold);
        time.as_nanos() as u64
    });
    let median = corelo_bench::stats::median(times.collect());
    println!("{cold} instructions, warm {:.1} us", median as f64 / 1e3);
    ExitCode::SUCCESS
}

#[inline(never)]
fn warm_once(file: &[u8], snapshot: &Snapshot<'_>, buffer: &mut [u8]) -> usize {
    again(file, snapshot, buffer)
}

//! Preparing: cold, warm, by phase, by stride, and objects of several sizes. Time is reported, never asserted.
//!
//! `cargo bench -p corelo-bench`. The corpus is used where it is there.

use std::hint::black_box;
use std::path::Path;

use corelo_bench::objects::{Shape, object, resize, seed};
use corelo_bench::prepare::{again, cold, link_all};
use corelo_core::arena::Arena;
use corelo_core::btf::Btf;
use corelo_core::btf::lookup::Questions;
use corelo_core::min_btf::{SliceSource, stream};
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Plan, prepare};
use corelo_loader::kernel::KernelBtf;
use corelo_tests::corpus::corpus;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

/// An object, and the BTF to prepare it against: a file, or the running kernel's.
struct Case {
    name: String,
    file: Vec<u8>,
    kernel: Vec<u8>,
}

/// The running kernel's BTF, or one made up where it has none.
fn kernel() -> Vec<u8> {
    KernelBtf::open().map_or_else(
        |error| {
            println!("no BTF of this kernel ({error}): a made-up one instead");
            resize(&seed(), 126_000)
        },
        |kernel| kernel.as_bytes().to_vec(),
    )
}

fn cases() -> Vec<Case> {
    let kernel = kernel();
    let case = |name: &str, file: Vec<u8>| Case { name: name.to_owned(), file, kernel: kernel.clone() };
    let mut cases = vec![
        case("many_progs", fixture("many_progs", Endian::native()).read()),
        case("programs_1000", object(Shape { programs: 1000, relocations: 3, flavours: 1 })),
        case("relocations_10000", object(Shape { programs: 100, relocations: 100, flavours: 500 })),
    ];
    if let Some(corpus) = corpus() {
        let kernel = corpus.kernel("amd64-6.12.117").btf();
        let (name, file) = corelo_bench::largest_object(&corpus, &kernel);
        cases.push(Case { name: format!("largest:{}", name.rsplit('/').next().unwrap_or(&name)), file, kernel });
    }
    cases
}

fn whole(c: &mut Criterion) {
    let mut buffer = vec![0u8; 64 << 20];
    for case in cases() {
        let mut group = c.benchmark_group(&case.name);
        group.bench_function("cold", |b| {
            b.iter(|| cold(black_box(&case.file), &case.kernel, Options::default(), &mut buffer));
        });
        let mut first = vec![0u8; 64 << 20];
        let mut arena = Arena::new(&mut first);
        let object = Object::parse(&case.file).expect("object");
        let prepared = prepare(&object, Some(&case.kernel), Options::default(), &mut arena).expect("prepared");
        let snapshot = prepared.snapshot();
        group.bench_function("warm", |b| b.iter(|| again(black_box(&case.file), &snapshot, &mut buffer)));
        group.finish();
    }
}

fn phases(c: &mut Criterion) {
    let mut buffer = vec![0u8; 64 << 20];
    for case in cases() {
        let mut group = c.benchmark_group(format!("{}/phase", case.name));
        group.bench_function("object", |b| b.iter(|| Object::parse(black_box(&case.file)).map(|_| ())));
        let object = Object::parse(&case.file).expect("object");
        group.bench_function("plan", |b| {
            b.iter(|| {
                let plan = Plan::new(black_box(&object), Options::default(), &mut Arena::new(&mut buffer));
                plan.expect("plan").asks_kernel()
            });
        });
        let btf = Btf::parse(&case.kernel).expect("BTF");
        group.bench_function("walk", |b| {
            b.iter(|| {
                let questions = Questions::new(&mut [], &[]);
                let stride = Options::default().stride;
                questions.ask(black_box(btf), None, stride, &mut Arena::new(&mut buffer)).expect("walk").visited()
            });
        });
        group.bench_function("plan+search", |b| {
            b.iter(|| {
                let mut arena = Arena::new(&mut buffer);
                let plan = Plan::new(&object, Options::default(), &mut arena).expect("plan");
                plan.search(black_box(btf), &mut arena).expect("search").wants_modules()
            });
        });
        let mut arena = Arena::new(&mut buffer);
        let prepared = prepare(&object, Some(&case.kernel), Options::default(), &mut arena).expect("prepared");
        group.bench_function("link", |b| b.iter(|| link_all(black_box(&prepared), &mut arena)));
        group.finish();
    }
}

fn strides(c: &mut Criterion) {
    let kernel = kernel();
    let file = fixture("many_progs", Endian::native()).read();
    let mut buffer = vec![0u8; 4 << 20];
    let mut group = c.benchmark_group("many_progs/stride");
    for stride in [1, 8, 16, 32, 64, 128, 512] {
        let options = Options { stride, ..Options::default() };
        group.bench_function(BenchmarkId::from_parameter(stride), |b| {
            b.iter(|| cold(black_box(&file), &kernel, options, &mut buffer));
        });
    }
    group.finish();
}

fn opening(c: &mut Criterion) {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        println!("opening is left out: this kernel has no BTF");
        return;
    }
    let file = fixture("many_progs", Endian::native()).read();
    let mut buffer = vec![0u8; 4 << 20];
    let mut group = c.benchmark_group("from_the_kernel");
    group.bench_function("many_progs", |b| {
        b.iter(|| {
            let kernel = KernelBtf::open().expect("BTF");
            cold(black_box(&file), &kernel, Options::default(), &mut buffer)
        });
    });
    group.bench_function("reading_the_file", |b| {
        b.iter(|| std::fs::read("/sys/kernel/btf/vmlinux").expect("BTF").len());
    });
    group.finish();
}

/// Streaming: from opening the source to the last decision, through windows of several sizes.
fn windows(c: &mut Criterion) {
    let kernel = kernel();
    let file = fixture("many_progs", Endian::native()).read();
    let object = Object::parse(&file).expect("an object");
    let mut buffer = vec![0u8; 4 << 20];
    let mut group = c.benchmark_group("many_progs/window");
    for window in [1 << 10, 4 << 10, 16 << 10, 64 << 10] {
        group.bench_function(BenchmarkId::from_parameter(window), |b| {
            b.iter(|| {
                let mut arena = Arena::new(&mut buffer);
                let plan = Plan::new(&object, Options::default(), &mut arena).expect("plan");
                let source = SliceSource(black_box(kernel.as_slice()));
                let made = stream(source, plan.needs(), window, &mut arena).expect("streamed");
                plan.search(made.btf().expect("BTF"), &mut arena).expect("search").wants_modules()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, opening, whole, phases, strides, windows);
criterion_main!(benches);

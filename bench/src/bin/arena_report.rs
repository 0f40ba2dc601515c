//! What the arena holds: bytes by structure against programs, relocations, kernel types, stride, window, and for real objects.
//!
//! `cargo run --release -p corelo-bench --bin arena_report -- [--markdown bench/RESULTS.md] [--plots bench/reports]`.
//! Figures are counted, not measured: the same on every machine, but for the rows of the running kernel.

use std::fs;
use std::process::ExitCode;

use corelo_bench::arena::{Bytes, bytes, streamed};
use corelo_bench::largest_object;
use corelo_bench::markdown::{grouped, replace, table};
use corelo_bench::objects::{self, Shape};
use corelo_bench::plot::{Series, plot};
use corelo_bench::report::Outputs;
use corelo_core::prepare::Options;
use corelo_loader::kernel::KernelBtf;
use corelo_tests::corpus::corpus;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;

/// Bytes against one size.
struct Sweep {
    name: &'static str,
    points: Vec<(usize, Bytes)>,
}

fn main() -> ExitCode {
    let Some(Outputs { markdown, plots }) = Outputs::from_args("arena_report") else { return ExitCode::from(2) };
    let kernel = kernel();
    let sweeps = [programs(&kernel), relocations(&kernel), kernel_types(&kernel), stride(&kernel), window(&kernel)];
    let mut text = real_objects(&kernel);
    for sweep in &sweeps {
        text.push('\n');
        text.push_str(&rows(sweep.name, sweep.points.iter().map(|(size, bytes)| (grouped(*size as u64), bytes))));
    }
    print!("{text}");
    if let Some(file) = markdown {
        replace(&file, "arena", &text);
    }
    if let Some(dir) = plots {
        fs::create_dir_all(&dir).expect("a directory for the plots");
        for sweep in &sweeps {
            let svg = plot(&format!("Arena bytes against {}", sweep.name), sweep.name, "bytes", &series(sweep));
            let path = dir.join(format!("arena-{}.svg", sweep.name.replace(' ', "_")));
            fs::write(&path, svg).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
    ExitCode::SUCCESS
}

/// A kernel that is the same everywhere, if the corpus is there; else the running one's, else one made up.
fn kernel() -> Vec<u8> {
    if let Some(corpus) = corpus() {
        return corpus.kernel("amd64-6.12.117").btf();
    }
    match KernelBtf::open() {
        Ok(kernel) => kernel.as_bytes().to_vec(),
        Err(error) => {
            println!("no BTF of this kernel ({error}): a made-up one instead");
            objects::resize(&objects::seed(), 126_000)
        }
    }
}

fn point(shape: Shape, kernel: &[u8], options: Options) -> Bytes {
    bytes(&objects::object(shape), kernel, options)
}

fn programs(kernel: &[u8]) -> Sweep {
    let at = |programs| (programs, point(Shape { programs, relocations: 3, flavours: 1 }, kernel, Options::default()));
    Sweep { name: "programs", points: [1, 256, 1024, 2048, 4096].map(at).to_vec() }
}

fn relocations(kernel: &[u8]) -> Sweep {
    let at = |count: usize| {
        let shape = Shape { programs: count.div_ceil(1000), relocations: count.min(1000), flavours: count.div_ceil(2) };
        (count, point(shape, kernel, Options::default()))
    };
    Sweep { name: "distinct relocations", points: [1, 1000, 5000, 10_000, 50_000, 100_000].map(at).to_vec() }
}

fn kernel_types(kernel: &[u8]) -> Sweep {
    let shape = Shape { programs: 30, relocations: 3, flavours: 1 };
    let at = |count| (count, point(shape, &objects::resize(kernel, count), Options::default()));
    Sweep { name: "kernel types", points: [10_000, 100_000, 250_000, 500_000, 1_000_000].map(at).to_vec() }
}

fn stride(kernel: &[u8]) -> Sweep {
    let file = fixture("many_progs", Endian::native()).read();
    let at = |stride: usize| (stride, bytes(&file, kernel, Options { stride: stride as u32, ..Options::default() }));
    Sweep { name: "stride", points: [4, 8, 16, 32, 64, 128, 256].map(at).to_vec() }
}

/// Streaming: the kernel's BTF is read through a window instead of being mapped.
fn window(kernel: &[u8]) -> Sweep {
    let file = fixture("many_progs", Endian::native()).read();
    let at = |window: usize| (window, streamed(&file, kernel, window));
    Sweep { name: "window", points: [1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10].map(at).to_vec() }
}

fn real_objects(kernel: &[u8]) -> String {
    let many_progs = fixture("many_progs", Endian::native()).read();
    let mut found = vec![("many_progs, amd64 6.12".to_owned(), bytes(&many_progs, kernel, Options::default()))];
    if let Ok(running) = KernelBtf::open() {
        let bytes = bytes(&many_progs, &running, Options::default());
        found.push(("many_progs, the running kernel".to_owned(), bytes));
    }
    if let Some(corpus) = corpus() {
        let (name, file) = largest_object(&corpus, kernel);
        let name = name.rsplit('/').next().unwrap_or(&name).to_owned();
        found.push((format!("{name}, amd64 6.12"), bytes(&file, kernel, Options::default())));
    }
    format!(
        "Bytes of arena by structure, stride 32 unless said otherwise; `program` is what the largest one takes while it is linked, `passing` what preparing takes for a while, `all` what stays and the greater of those two.\n\n{}",
        rows("object", found.iter().map(|(name, bytes)| (name.clone(), bytes)))
    )
}

fn rows<'b>(first: &str, points: impl Iterator<Item = (String, &'b Bytes)> + Clone) -> String {
    let parts: Vec<&str> = parts(points.clone().map(|(_, bytes)| bytes));
    let mut head = vec![first.to_owned()];
    head.extend(parts.iter().map(|part| (*part).to_owned()));
    head.extend(["program", "passing", "all"].map(str::to_owned));
    let mut rows = vec![head];
    for (name, bytes) in points {
        let mut row = vec![name];
        row.extend(parts.iter().map(|part| grouped(bytes.part(part) as u64)));
        row.extend([bytes.program, bytes.passing, bytes.all].map(|bytes| grouped(bytes as u64)));
        rows.push(row);
    }
    table(&rows)
}

/// The structures that take bytes in some point, in the order of the pipeline.
fn parts<'b>(points: impl Iterator<Item = &'b Bytes>) -> Vec<&'static str> {
    let mut names = Vec::new();
    for &(name, bytes) in points.flat_map(|bytes| &bytes.parts) {
        if bytes > 0 && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn series(sweep: &Sweep) -> Vec<Series> {
    let line = |name: &str, value: &dyn Fn(&Bytes) -> usize| Series {
        name: name.to_owned(),
        points: sweep.points.iter().map(|(size, bytes)| (*size as f64, value(bytes) as f64)).collect(),
    };
    let mut all = vec![line("all", &|bytes| bytes.all)];
    for name in parts(sweep.points.iter().map(|(_, bytes)| bytes)) {
        all.push(line(name, &|bytes| bytes.part(name)));
    }
    all.push(line("program", &|bytes| bytes.program));
    all.push(line("passing", &|bytes| bytes.passing));
    all
}

//! Cost against size: programs, relocations, kernel functions called, kernel types, modules; instructions as callgrind
//! counts them.
//!
//! `cargo run --release -p corelo-bench --bin growth -- [--markdown bench/RESULTS.md] [--plots bench/reports]`. It needs
//! valgrind, and the BTF of the running kernel or of the corpus. Lines are fitted to the points; a share of less than 0.99
//! explained by the line, or a last step dearer than the ones before, would be a bend.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use corelo_bench::markdown::{grouped, replace, table};
use corelo_bench::objects::{self, Shape};
use corelo_bench::plot::{Series, plot};
use corelo_bench::report::Outputs;
use corelo_bench::run::{instructions, output, sibling};
use corelo_bench::stats::Line;
use corelo_core::btf::Btf;
use corelo_loader::kernel::KernelBtf;

fn main() -> ExitCode {
    let Some(Outputs { markdown, plots }) = Outputs::from_args("growth") else { return ExitCode::from(2) };
    build();
    let dir = std::env::temp_dir().join(format!("corelo-growth-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory for the inputs");
    let series = [programs(&dir), repeated(&dir), distinct(&dir), externs(&dir), types(&dir), modules(&dir)];
    fs::remove_dir_all(&dir).expect("the inputs can be removed");
    let text = report(&series);
    print!("{text}");
    if let Some(file) = markdown {
        replace(&file, "growth", &text);
    }
    if let Some(dir) = plots {
        fs::create_dir_all(&dir).expect("a directory for the plots");
        for series in &series {
            let name = series.name.replace([' ', ','], "_");
            let svg = plot(
                &format!("Instructions against {}", series.name),
                &series.name,
                "instructions",
                std::slice::from_ref(series),
            );
            fs::write(dir.join(format!("growth-{name}.svg")), svg).expect("the plot can be written");
        }
    }
    ExitCode::SUCCESS
}

/// The programs that are counted, built as this one is.
fn build() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = sibling("").ancestors().nth(1).map(Path::to_owned).expect("this program lies in TARGET/release");
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "-p", "corelo-bench", "--bin", "cold", "--bin", "modules", "--target-dir"]);
    let _ = output(command.arg(target));
}

/// Real types: the running kernel's, without those of kinds that repeat nothing.
fn real_types() -> Vec<u8> {
    match KernelBtf::open() {
        Ok(kernel) => kernel.as_bytes().to_vec(),
        Err(error) => {
            let corpus = corelo_tests::corpus::corpus();
            let kernel = corpus.unwrap_or_else(|| panic!("no corpus and no BTF of this kernel: {error}"));
            kernel.kernel("amd64-6.12.117").btf()
        }
    }
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

/// What one cold prepare costs: two rounds less one.
fn cold(object: &Path, btf: &Path) -> u64 {
    let program = sibling("cold");
    let rounds =
        |count: &str| instructions(&[program.as_os_str(), object.as_os_str(), btf.as_os_str(), OsStr::new(count)]);
    rounds("2") - rounds("1")
}

fn programs(dir: &Path) -> Series {
    let btf = write(dir, "seed.btf", &objects::seed());
    let point = |programs: usize| {
        let object = objects::object(Shape { programs, relocations: 3, flavours: 1 });
        (programs as f64, cold(&write(dir, "object.o", &object), &btf) as f64)
    };
    let points = [1, 16, 64, 256, 512, 1024, 2048, 4096].map(point).to_vec();
    Series { name: "programs".to_owned(), points }
}

/// Relocations in programs of a thousand, `flavours` times two of them distinct.
fn relocations(dir: &Path, name: &str, flavours: impl Fn(usize) -> usize) -> Series {
    let btf = write(dir, "seed.btf", &objects::seed());
    let point = |count: usize| {
        let (programs, relocations) = if count < 1000 { (1, count) } else { (count / 1000, 1000) };
        let object = objects::object(Shape { programs, relocations, flavours: flavours(count) });
        (count as f64, cold(&write(dir, "object.o", &object), &btf) as f64)
    };
    let points = [1, 100, 1000, 5000, 10_000, 25_000, 50_000, 100_000].map(point).to_vec();
    Series { name: name.to_owned(), points }
}

fn repeated(dir: &Path) -> Series {
    relocations(dir, "relocations", |_| 1)
}

fn distinct(dir: &Path) -> Series {
    relocations(dir, "distinct relocations", |count| count.div_ceil(2))
}

fn externs(dir: &Path) -> Series {
    let point = |functions: usize| {
        let (object, btf) = objects::callers(functions);
        (functions as f64, cold(&write(dir, "object.o", &object), &write(dir, "kernel.btf", &btf)) as f64)
    };
    let points = [1, 16, 32, 64, 128, 192, 256].map(point).to_vec();
    Series { name: "kernel functions called".to_owned(), points }
}

fn types(dir: &Path) -> Series {
    let real = real_types();
    let object = write(dir, "object.o", &objects::object(Shape { programs: 30, relocations: 3, flavours: 1 }));
    let point = |count: usize| {
        let btf = write(dir, "kernel.btf", &objects::resize(&real, count));
        (count as f64, cold(&object, &btf) as f64)
    };
    let points = [10_000, 50_000, 100_000, 200_000, 400_000, 700_000, 1_000_000].map(point).to_vec();
    Series { name: "kernel types".to_owned(), points }
}

fn modules(dir: &Path) -> Series {
    let real = real_types();
    let kernel = Btf::parse(&real).expect("the kernel's BTF is one");
    let types = kernel.iter().count() as u32;
    let str_len = u32::from_ne_bytes(real[20..24].try_into().expect("four bytes"));
    let btf = write(dir, "kernel.btf", &real);
    let module = write(dir, "module.btf", &objects::module(types, str_len, 1000));
    let object = write(dir, "object.o", &objects::object(Shape { programs: 30, relocations: 3, flavours: 1 }));
    let program = sibling("modules");
    let point = |count: usize| {
        let number = count.to_string();
        let command =
            [program.as_os_str(), object.as_os_str(), btf.as_os_str(), module.as_os_str(), OsStr::new(&number)];
        (count as f64, instructions(&command) as f64)
    };
    let points = [0, 10, 25, 50, 100, 150, 200].map(point).to_vec();
    Series { name: "modules of 1000 types".to_owned(), points }
}

fn report(series: &[Series]) -> String {
    let mut lines = vec![
        ["against", "from", "to", "instructions each", "before the first", "explained by the line"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut text = String::new();
    for series in series {
        let line = Line::fit(&series.points);
        let end = |point: Option<&(f64, f64)>| point.map_or(String::new(), |point| grouped(point.0 as u64));
        lines.push(vec![
            series.name.clone(),
            end(series.points.first()),
            end(series.points.last()),
            format!("{:.1}", line.slope),
            grouped(line.intercept.max(0.0) as u64),
            format!("{:.5}", line.r_squared),
        ]);
        let mut rows =
            vec![vec![series.name.clone(), "instructions".to_owned(), "each more since the last".to_owned()]];
        let mut last: Option<(f64, f64)> = None;
        for &(x, y) in &series.points {
            let step = last.map_or(String::new(), |(last_x, last_y)| format!("{:.1}", (y - last_y) / (x - last_x)));
            rows.push(vec![grouped(x as u64), grouped(y as u64), step]);
            last = Some((x, y));
        }
        text.push('\n');
        text.push_str(&table(&rows));
    }
    format!("Instructions of a cold prepare, callgrind, stride 32.\n\n{}{text}", table(&lines))
}

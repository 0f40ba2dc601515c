//! Writes an object for the other programs: `make_object PROGRAMS RELOCATIONS FLAVOURS OBJECT BTF` (relocations of each
//! program; the BTF is the smallest that the object can be prepared against).

use std::process::ExitCode;

use corelo_bench::objects::{Shape, object, seed};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [programs, relocations, flavours, path, btf] = args.as_slice() else {
        eprintln!("usage: make_object PROGRAMS RELOCATIONS FLAVOURS OBJECT BTF");
        return ExitCode::from(2);
    };
    let number = |text: &String| text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    let shape = Shape { programs: number(programs), relocations: number(relocations), flavours: number(flavours) };
    for (path, bytes) in [(path, object(shape)), (btf, seed())] {
        std::fs::write(path, bytes).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    ExitCode::SUCCESS
}

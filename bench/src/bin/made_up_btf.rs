//! Writes a BTF that an object can be prepared against: its own types, and then the same under other names, again
//! and again.
//!
//! Usage: `made_up_btf OBJECT TYPES FILE`

use std::process::ExitCode;

use corelo_bench::objects::pad;
use corelo_tests::elf_reader::section_data;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [object, types, path] = args.as_slice() else {
        eprintln!("usage: made_up_btf OBJECT TYPES FILE");
        return ExitCode::from(2);
    };
    let file = std::fs::read(object).unwrap_or_else(|error| panic!("{object}: {error}"));
    let btf = section_data(&file, ".BTF").expect("the object has BTF");
    let types = types.parse().expect("a number of types");
    std::fs::write(path, pad(btf, types)).unwrap_or_else(|error| panic!("{path}: {error}"));
    ExitCode::SUCCESS
}

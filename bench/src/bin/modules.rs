//! Preparing with modules to search, for `valgrind --tool=callgrind`: `modules OBJECT BTF MODULE-BTF COUNT` looks at the one
//! module COUNT times, twice each, as a kernel with so many modules makes the loader do.

use std::process::ExitCode;

use corelo_bench::prepare::link_all;
use corelo_core::arena::Arena;
use corelo_core::btf::Btf;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Plan};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [object, btf, module, count] = args.as_slice() else {
        eprintln!("usage: modules OBJECT BTF MODULE-BTF COUNT");
        return ExitCode::from(2);
    };
    let read = |path: &String| std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (file, btf, module) = (read(object), read(btf), read(module));
    let count: u16 = count.parse().expect("a number of modules");
    let mut buffer = vec![0u8; 16 << 20];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(&file).expect("the object is one");
    let plan = Plan::new(&object, Options::default(), &mut arena).expect("its declarations can be read");
    let kernel = Btf::parse(&btf).expect("the kernel's BTF is one");
    let mut search = plan.search(kernel, &mut arena).expect("the kernel can be searched");
    for number in 1..=count {
        search.weigh_module(&module, None, number, &mut arena).expect("the module can be searched");
    }
    for number in 1..=count {
        search.search_module(&module, None, number, &mut arena).expect("the module can be searched");
    }
    let prepared = search.finish();
    println!("{} types visited, {} instructions", prepared.visited(), link_all(&prepared, &mut arena));
    ExitCode::SUCCESS
}

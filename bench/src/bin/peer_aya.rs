//! Aya as one of the peers; see [`corelo_bench::peer`].

use std::collections::HashSet;
use std::hint::black_box;
use std::path::Path;
use std::process::ExitCode;

use aya::programs::Program;
use aya::{Btf, EbpfLoader};
use aya_obj::Object;
use corelo_bench::peer::{self, Stage, timed};

fn main() -> ExitCode {
    peer::main(work)
}

fn work(stage: Stage, path: &Path, rounds: usize, note: &mut dyn FnMut(u64)) {
    match stage {
        Stage::Idle | Stage::Read | Stage::Streamed => {}
        Stage::Prepare => {
            let whole = || {
                let btf = Btf::from_sys_fs().expect("the kernel has BTF");
                black_box(prepare(path, &btf))
            };
            note(timed(whole).1);
        }
        Stage::Warm => {
            let btf = Btf::from_sys_fs().expect("the kernel has BTF");
            for _ in 0..rounds {
                note(timed(|| black_box(prepare(path, &btf))).1);
            }
        }
        Stage::Load => note(timed(|| load(path)).1),
    }
}

fn prepare(path: &Path, btf: &Btf) -> usize {
    let file = std::fs::read(path).expect("the object can be read");
    let mut object = Object::parse(&file).expect("the object is one");
    object.relocate_btf(btf).expect("its relocations can be applied");
    let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    let maps: Vec<_> = object.maps.iter().map(|(name, map)| (name.clone(), map.clone())).collect();
    let maps = maps.iter().map(|(name, map)| (name.as_str(), 3, map));
    object.relocate_maps(maps, &text).expect("its map references can be made");
    object.relocate_calls(&text).expect("its calls can be linked");
    object.functions.len()
}

fn load(path: &Path) {
    let file = std::fs::read(path).expect("the object can be read");
    let btf = Btf::from_sys_fs().expect("the kernel has BTF");
    let mut object = EbpfLoader::new().btf(Some(&btf)).load(&file).expect("the object can be loaded");
    let mut programs = 0;
    for (name, program) in object.programs_mut() {
        match program {
            Program::KProbe(program) => program.load(),
            Program::RawTracePoint(program) => program.load(),
            other => panic!("{name}: {:?} is not among what is loaded here", other.prog_type()),
        }
        .unwrap_or_else(|error| panic!("{name}: {error}"));
        programs += 1;
    }
    assert_ne!(programs, 0);
}

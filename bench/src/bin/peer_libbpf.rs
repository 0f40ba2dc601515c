//! libbpf as one of the peers; see [`corelo_bench::peer`]. It has no way to keep the kernel's BTF from one object to the
//! next. Its prepare also loads the object's BTF, creates the maps, and loads a program to see whether that works.

use std::path::Path;
use std::process::ExitCode;

use corelo_bench::peer::{self, Stage, timed};
use corelo_tests::libbpf;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("version") {
        println!("{}", libbpf::version());
        return ExitCode::SUCCESS;
    }
    peer::main(work)
}

fn work(stage: Stage, path: &Path, rounds: usize, note: &mut dyn FnMut(u64)) {
    let (libbpf_stage, rounds) = match stage {
        Stage::Idle | Stage::Read | Stage::Streamed => return,
        Stage::Prepare => (libbpf::Stage::Prepare, 1),
        Stage::Warm => (libbpf::Stage::Prepare, rounds),
        Stage::Load => (libbpf::Stage::Load, 1),
    };
    for _ in 0..rounds {
        let (insns, time) = timed(|| libbpf::quiet(path, libbpf_stage));
        assert_ne!(insns.expect("libbpf takes the object"), 0);
        note(time);
    }
}

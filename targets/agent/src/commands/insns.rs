//! `corelo insns`: the final instructions of each program, as files.

use std::fs;

use corelo_core::link::LinkCause;
use corelo_loader::report::LinkReport;
use zerocopy::IntoBytes;

use crate::args::Options;
use crate::buffer::with_buffer;
use crate::failure::Failure;
use crate::files;
use crate::input::read_file;
use crate::output::text;
use crate::prepare::{KernelSource, Ready, prepare};

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let bytes = read_file(&options.file)?;
    let file = options.file.display().to_string();
    let kernel = KernelSource::new(options);
    let dir = options.out.clone().unwrap_or_default();
    fs::create_dir_all(&dir).map_err(|error| Failure::Input(format!("cannot make {}: {error}", dir.display())))?;
    with_buffer(options.arena, |buffer| {
        let Ready { prepared, mut arena, .. } = prepare(&bytes, &file, &kernel, buffer)?;
        let mut faults = Vec::new();
        for (number, function) in prepared.declared().programs() {
            let name = text(prepared.function_name(function));
            // A symbol's name may hold anything; a file's may not.
            let path = dir.join(format!("{}.insns", name.replace('/', "_")));
            let mut scratch = arena.scratch();
            match prepared.program(number, &mut scratch) {
                Ok(linked) => files::write(&path, linked.insns.as_bytes())
                    .map_err(|error| Failure::Job(format!("cannot write {}: {error}", path.display())))?,
                Err(error) => match error.cause {
                    LinkCause::Arena(full) => return Err(full.into()),
                    _ => {
                        let report = LinkReport { prepared: &prepared, program: number, error };
                        faults.push(format!("corelo: {file}: {report}"));
                    }
                },
            }
        }
        // Said at the end, as a larger arena may start all over.
        for fault in &faults {
            eprintln!("{fault}");
        }
        if faults.is_empty() { Ok(()) } else { Err(Failure::Reported) }
    })
}

//! `corelo budget`: the bytes of arena that an object needs.

use corelo_core::arena::{ALIGN, Arena, Part};
use corelo_core::link::{LinkCause, LinkedProgram, Placement, Reference};
use corelo_core::prepare::Prepared;
use corelo_loader::report::LinkReport;
use serde_json::{Map, Value, json};

use crate::args::Options;
use crate::buffer::with_buffer;
use crate::failure::Failure;
use crate::output::Out;
use crate::prepare::{KernelSource, prepare, read_file};

/// Bytes of the whole and of its parts, in the order in which they are taken.
struct Budget {
    arena_bytes: usize,
    parts: Vec<(&'static str, usize)>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let bytes = read_file(&options.file)?;
    let file = options.file.display().to_string();
    let kernel = KernelSource::new(options);
    let budget = with_buffer(options.arena, |buffer| {
        let mut arena = Arena::new(buffer);
        let ready = prepare(&bytes, &file, &kernel, &mut arena)?;
        let searching = arena.high_water();
        let largest = rehearse(&ready.prepared, &file, &mut arena)?;
        Ok(count(&ready.prepared, &arena, searching, largest))
    })?;
    let mut out = Out::new();
    if options.emit_rust {
        let name = options.file.file_name().unwrap_or_default().display();
        out.line(format_args!("/// Bytes of arena that `{name}` needs:"))?;
        for (part, bytes) in &budget.parts {
            out.line(format_args!("/// {bytes} {part},"))?;
        }
        out.line("/// in a buffer that starts at a multiple of 8.")?;
        out.line(format_args!("pub const ARENA_BYTES: usize = {};", budget.arena_bytes))?;
    } else if options.json {
        let parts: Map<String, Value> =
            budget.parts.iter().map(|&(name, bytes)| (name.to_owned(), bytes.into())).collect();
        out.json(&json!({ "arena_bytes": budget.arena_bytes, "parts": parts }))?;
    } else {
        for (part, bytes) in &budget.parts {
            out.line(format_args!("{bytes:>10}  {part}"))?;
        }
        out.line(format_args!("{:>10}  bytes of arena", budget.arena_bytes))?;
    }
    out.flush()
}

/// Bytes of scratch that one linked program takes, by part.
type Scratch = [(Part, usize); 5];

/// Links every program in scratch, and gives what the largest takes.
fn rehearse(prepared: &Prepared<'_>, file: &str, arena: &mut Arena<'_>) -> Result<Scratch, Failure> {
    let mut largest = scratch_of(None);
    let total = |scratch: &Scratch| scratch.iter().map(|(_, bytes)| bytes).sum::<usize>();
    for (number, _) in prepared.declared().programs() {
        match prepared.program(number, &mut arena.scratch()) {
            Ok(linked) => {
                let scratch = scratch_of(Some(&linked));
                if total(&scratch) > total(&largest) {
                    largest = scratch;
                }
            }
            Err(error) => match error.cause {
                LinkCause::Arena(full) => return Err(full.into()),
                _ => {
                    let report = LinkReport { prepared, program: number, error };
                    return Err(Failure::Job(format!("{file}: {report}")));
                }
            },
        }
    }
    Ok(largest)
}

fn scratch_of(linked: Option<&LinkedProgram<'_>>) -> Scratch {
    let bytes = |size: fn(&LinkedProgram<'_>) -> usize| linked.map_or(0, size);
    [
        (Part::Insns, bytes(|linked| size_of_val(&*linked.insns))),
        (Part::Layout, bytes(|linked| linked.placements.len() * size_of::<Placement>())),
        (Part::References, bytes(|linked| linked.references.len() * size_of::<Reference>())),
        (Part::FuncInfo, bytes(|linked| linked.func_info.0.len())),
        (Part::LineInfo, bytes(|linked| linked.line_info.0.len())),
    ]
}

/// Puts the parts together. They add up to the whole: what is left over is said too.
fn count(prepared: &Prepared<'_>, arena: &Arena<'_>, searching: usize, largest: Scratch) -> Budget {
    let arena_bytes = arena.high_water();
    let mut parts = vec![(Part::HighWater.name(), ALIGN)];
    parts.extend(prepared.parts().map(|(part, bytes)| (part.name(), bytes.next_multiple_of(ALIGN))));
    // Where the search needed more for a moment than linking does, linking adds nothing.
    if arena_bytes > searching {
        parts.extend(largest.map(|(part, bytes)| (part.name(), bytes.next_multiple_of(ALIGN))));
    }
    let sum: usize = parts.iter().map(|(_, bytes)| bytes).sum();
    parts.push(("transient", arena_bytes.saturating_sub(sum)));
    parts.retain(|&(_, bytes)| bytes > 0);
    Budget { arena_bytes, parts }
}

//! `corelo budget`: the bytes of arena that an object needs.

use corelo_core::arena::{ALIGN, Arena, Part};
use corelo_core::link::LinkedProgram;
use corelo_core::object::section_name;
use corelo_core::prepare::Prepared;
use corelo_loader::load::{LoadOptions, rehearse};
use serde_json::{Map, Value, json};

use crate::args::Options;
use crate::buffer::with_buffer;
use crate::failure::Failure;
use crate::output::Out;
use crate::prepare::{KernelSource, prepare, read_file};
use crate::session;

/// Bytes of the whole and of its parts, in the order in which they are taken.
struct Budget {
    arena_bytes: usize,
    parts: Vec<(&'static str, usize)>,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let bytes = read_file(&options.file)?;
    let file = options.file.display().to_string();
    let kernel = KernelSource::new(options);
    let name = session::object_name(&options.file);
    let budget = with_buffer(options.arena, |buffer| {
        let mut arena = Arena::new(buffer);
        let ready = prepare(&bytes, &file, &kernel, &mut arena)?;
        let (prepared, modules) = (&ready.prepared, ready.module_names());
        let load_options = LoadOptions { modules: &modules, ..LoadOptions::new(&name) };
        let kept = arena.used();
        rehearse(prepared, &load_options, &mut arena).map_err(|error| session::failure(prepared, &file, error))?;
        Ok(count(prepared, &mut arena, kept))
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

/// Puts the parts together. They add up to the whole: `kept` is what preparing keeps.
fn count(prepared: &Prepared<'_>, arena: &mut Arena<'_>, kept: usize) -> Budget {
    let arena_bytes = arena.high_water();
    let all_kept = arena.used();
    let mut parts = vec![(Part::HighWater.name(), ALIGN)];
    parts.extend(prepared.parts().map(|(part, bytes)| (part.name(), bytes.next_multiple_of(ALIGN))));
    parts.push((Part::Descriptors.name(), all_kept.saturating_sub(kept)));
    // The largest scratch is a program's as a rule, and then told by its parts; else it is that of the object's BTF, or
    // what the search needed for a moment.
    let peak = arena_bytes.saturating_sub(all_kept);
    match largest_program(prepared, arena).filter(|scratch| total(scratch) == peak) {
        Some(scratch) => parts.extend(scratch.map(|(part, bytes)| (part.name(), bytes))),
        None => parts.push(("scratch", peak)),
    }
    let sum: usize = parts.iter().map(|(_, bytes)| bytes).sum();
    parts.push(("other", arena_bytes.saturating_sub(sum)));
    parts.retain(|&(_, bytes)| bytes > 0);
    Budget { arena_bytes, parts }
}

fn total(scratch: &Scratch) -> usize {
    scratch.iter().map(|(_, bytes)| bytes).sum()
}

/// What the largest program takes. Those that cannot be linked are not loaded by default, or the rehearsal had failed.
fn largest_program(prepared: &Prepared<'_>, arena: &mut Arena<'_>) -> Option<Scratch> {
    let mut largest: Option<Scratch> = None;
    for (number, function) in prepared.declared().programs() {
        if section_name::split_optional(prepared.section_name(function)).1 {
            continue;
        }
        let Ok(linked) = prepared.program(number, &mut arena.scratch()) else { continue };
        let scratch = scratch_of(&linked);
        if largest.is_none_or(|largest| total(&scratch) > total(&largest)) {
            largest = Some(scratch);
        }
    }
    largest
}

fn scratch_of(linked: &LinkedProgram<'_>) -> Scratch {
    [
        (Part::Insns, size_of_val(&*linked.insns)),
        (Part::Layout, size_of_val(linked.placements)),
        (Part::References, size_of_val(linked.references)),
        (Part::FuncInfo, linked.func_info.0.len()),
        (Part::LineInfo, linked.line_info.0.len()),
    ]
    .map(|(part, bytes)| (part, bytes.next_multiple_of(ALIGN)))
}

//! `corelo budget`: the bytes of arena that an object needs.

use corelo_core::arena::Part;
use corelo_core::budget::Budget;
use corelo_loader::load::{LoadOptions, rehearse};
use serde_json::{Map, Value, json};

use crate::args::Options;
use crate::buffer::with_buffer;
use crate::failure::Failure;
use crate::input::read_file;
use crate::output::Out;
use crate::prepare::{KernelSource, prepare};
use crate::session;

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let bytes = read_file(&options.file)?;
    let file = options.file.display().to_string();
    let kernel = KernelSource::for_budget(options);
    let name = session::object_name(&options.file);
    let parts = with_buffer(options.arena, |buffer| {
        let ready = prepare(&bytes, &file, &kernel, buffer)?;
        let (prepared, mut arena) = (&ready.prepared, ready.arena);
        let load_options = LoadOptions { modules: ready.modules.names(), ..LoadOptions::new(name.as_bytes()) };
        let kept = arena.used();
        rehearse(prepared, &load_options, &mut arena).map_err(|error| session::failure(prepared, &file, error))?;
        Ok(parts(&Budget::of(prepared, &mut arena, kept), ready.min_btf))
    })?;
    let arena_bytes: usize = parts.iter().map(|(_, bytes)| bytes).sum();
    let mut out = Out::new();
    if options.emit_rust {
        let name = options.file.file_name().unwrap_or_default().display();
        out.line(format_args!("/// Bytes of arena that `{name}` needs:"))?;
        for (part, bytes) in &parts {
            out.line(format_args!("/// {bytes} {part},"))?;
        }
        out.line("/// in a buffer that starts at a multiple of 8.")?;
        out.line(format_args!("pub const ARENA_BYTES: usize = {arena_bytes};"))?;
    } else if options.json {
        let parts: Map<String, Value> =
            parts.iter().map(|&(part, bytes)| (part.name().to_owned(), bytes.into())).collect();
        out.json(&json!({ "arena_bytes": arena_bytes, "parts": parts }))?;
    } else {
        for (part, bytes) in &parts {
            out.line(format_args!("{bytes:>10}  {part}"))?;
        }
        out.line(format_args!("{arena_bytes:>10}  bytes of arena"))?;
    }
    out.flush()
}

/// What the bytes are for: they add up to the budget. What was kept of a streamed BTF, which the budget does not know of,
/// is told from the rest.
fn parts(budget: &Budget, min_btf: usize) -> Vec<(Part, usize)> {
    let mut parts = Vec::new();
    for &(part, bytes) in budget.parts() {
        let of_it = if part == Part::Other { bytes.min(min_btf) } else { 0 };
        let split = [(Part::MinBtf, of_it), (part, bytes - of_it)];
        parts.extend(split.into_iter().filter(|&(_, bytes)| bytes > 0));
    }
    parts
}

//! `corelo budget`: the bytes of arena that an object needs.

use corelo_core::arena::Arena;
use corelo_core::budget::Budget;
use corelo_loader::load::{LoadOptions, rehearse};
use serde_json::{Map, Value, json};

use crate::args::Options;
use crate::buffer::with_buffer;
use crate::failure::Failure;
use crate::output::Out;
use crate::prepare::{KernelSource, prepare, read_file};
use crate::session;

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
        Ok(Budget::of(prepared, &mut arena, kept))
    })?;
    let mut out = Out::new();
    if options.emit_rust {
        let name = options.file.file_name().unwrap_or_default().display();
        out.line(format_args!("/// Bytes of arena that `{name}` needs:"))?;
        for (part, bytes) in budget.parts() {
            out.line(format_args!("/// {bytes} {part},"))?;
        }
        out.line("/// in a buffer that starts at a multiple of 8.")?;
        out.line(format_args!("pub const ARENA_BYTES: usize = {};", budget.arena_bytes()))?;
    } else if options.json {
        let parts: Map<String, Value> =
            budget.parts().iter().map(|&(part, bytes)| (part.name().to_owned(), bytes.into())).collect();
        out.json(&json!({ "arena_bytes": budget.arena_bytes(), "parts": parts }))?;
    } else {
        for (part, bytes) in budget.parts() {
            out.line(format_args!("{bytes:>10}  {part}"))?;
        }
        out.line(format_args!("{:>10}  bytes of arena", budget.arena_bytes()))?;
    }
    out.flush()
}

//! `corelo load`: into the kernel and out again, to see what it makes of an object.

use corelo_core::object::ProgramId;
use corelo_core::uapi::{AttachType, MapTypeName, ProgType};
use corelo_loader::load::{Collection, Relocations};
use corelo_loader::objects::{map_info, prog_info, prog_map_ids};
use corelo_loader::sys::Errno;
use serde_json::{Value, json};

use crate::args::Options;
use crate::buffer::with_buffer;
use crate::failure::Failure;
use crate::input::read_file;
use crate::output::{Out, hex, text};
use crate::prepare::{KernelSource, Watch};
use crate::session;

/// Map ids of one program that are shown.
const MAX_MAPS: usize = 64;

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let bytes = read_file(&options.file)?;
    let file = options.file.display().to_string();
    let kernel = KernelSource::new(options);
    let name = session::object_name(&options.file);
    let named = session::Named::open(options)?;
    let settings = named.settings();
    let watch = Watch::new(&file, options);
    with_buffer(options.arena, |buffer| {
        let mut collection = session::load((&bytes, &file, &name), &settings, &kernel, &watch, buffer)?;
        let shown = show(options, &kernel, &collection);
        if shown.is_err() {
            // The failure itself is the one to report.
            let _ = collection.unpin_new();
        }
        shown
    })
}

fn show(options: &Options, kernel: &KernelSource<'_>, collection: &Collection<'_>) -> Result<(), Failure> {
    let programs = programs(collection)?;
    let maps = maps(collection)?;
    let Relocations { patched, poisoned } = collection.relocations();
    let arena = collection.arena_bytes();
    let mut out = Out::new();
    if options.json {
        out.json(&json!({
            "programs": programs,
            "maps": maps,
            "patched": patched,
            "poisoned": poisoned,
            "btf_source": kernel.name(),
            "arena_bytes": arena.capacity,
            "arena_used": arena.high_water,
        }))?;
        return out.flush();
    }
    for program in &programs {
        out.line(format_args!(
            "program {} ({}): {}, attach type {}, id {}, {} instructions, {} bytes of machine code, tag {}, maps {}",
            word(&program["name"]),
            word(&program["section"]),
            word(&program["type"]),
            word(&program["attach_type"]),
            program["id"],
            program["insns"],
            program["jited_bytes"],
            word(&program["tag"]),
            if program["map_ids"].is_null() { "not told".to_owned() } else { program["map_ids"].to_string() },
        ))?;
    }
    for map in &maps {
        out.line(format_args!(
            "map {}: {}, id {}, key {} bytes, value {} bytes, {} entries, flags {}",
            word(&map["name"]),
            word(&map["type"]),
            map["id"],
            map["key_size"],
            map["value_size"],
            map["max_entries"],
            map["flags"],
        ))?;
    }
    for map in maps.iter().filter(|map| map["pin"].is_object()) {
        let (name, path) = (word(&map["name"]), word(&map["pin"]["path"]));
        let says = if map["pin"]["was_there"] == true {
            "was there before"
        } else {
            "stays, with the map: remove it to free them"
        };
        out.line(format_args!("pin of map {name}: {path} {says}"))?;
    }
    out.line(format_args!(
            "{} programs, {} maps, relocations: {patched} patched, {poisoned} poisoned; kernel BTF: {}; arena: {} of {} bytes",
            programs.len(),
            maps.len(),
            kernel.name(),
            arena.high_water,
            arena.capacity,
        ))?;
    out.flush()
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// The attach type that the program's section says; `None` for types of program that have none.
fn attach_type(collection: &Collection<'_>, program: ProgramId) -> Option<String> {
    let kind = collection.program_kind(program)?;
    // 0 is none, but for these.
    let has_one = kind.expected_attach_type != AttachType::NONE || kind.prog_type == ProgType::CGROUP_SKB;
    has_one.then(|| kind.expected_attach_type.to_string())
}

fn programs(collection: &Collection<'_>) -> Result<Vec<Value>, Failure> {
    let prepared = collection.prepared();
    let mut list = Vec::new();
    for (number, function) in prepared.declared().programs() {
        let Some(fd) = collection.program_fd(number) else { continue };
        let name = text(prepared.function_name(function));
        let failure = |errno| Failure::Job(format!("program {name}: the kernel does not describe it: {errno}"));
        let info = prog_info(fd).map_err(failure)?;
        let mut ids = [0; MAX_MAPS];
        let ids = match prog_map_ids(fd, &mut ids) {
            Ok(count) => Some(ids.get(..count as usize).unwrap_or(&ids)),
            // Before Linux 4.15 nobody is told.
            Err(Errno::E2BIG) => None,
            Err(errno) => return Err(failure(errno)),
        };
        list.push(json!({
            "name": name,
            "section": text(prepared.section_name(function)),
            "type": ProgType(info.prog_type).to_string(),
            "attach_type": attach_type(collection, number),
            "id": info.id,
            "insns": info.xlated_size / 8,
            "jited_bytes": info.jited_size,
            "tag": hex(&info.tag),
            "map_ids": ids,
        }));
    }
    Ok(list)
}

fn maps(collection: &Collection<'_>) -> Result<Vec<Value>, Failure> {
    let prepared = collection.prepared();
    let mut list = Vec::new();
    for (number, map) in prepared.declared().maps_by_id() {
        let Some(fd) = collection.map_fd(number) else { continue };
        let name = text(prepared.map_name(map));
        let info = map_info(fd)
            .map_err(|errno| Failure::Job(format!("map {name}: the kernel does not describe it: {errno}")))?;
        list.push(json!({
            "name": name,
            "kernel_name": text(info.name.split(|&byte| byte == 0).next().unwrap_or_default()),
            "type": MapTypeName(info.map_type).to_string(),
            "id": info.id,
            "key_size": info.key_size,
            "value_size": info.value_size,
            "max_entries": info.max_entries,
            "flags": info.map_flags,
            "pin": collection.pin_of(number).map(|(path, was_there)| json!({
                "path": path.as_ref(),
                "was_there": was_there,
            })),
        }));
    }
    Ok(list)
}

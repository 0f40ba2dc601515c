//! An object's maps and programs in the kernel, for `load` and `run`.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use corelo_core::arena::Arena;
use corelo_core::prepare::Prepared;
use corelo_loader::load::{Collection, LoadError, LoadOptions, PIN_ROOT};
use corelo_loader::objects::pin::open_program;
use corelo_loader::objects::{GrowingLog, program_by_id};
use corelo_loader::report::{LoadReport, Name, PoisonReport, verdict_line};

use crate::args::Options;
use crate::failure::Failure;

/// Where a verifier log starts, and where it ends.
const LOG_START: usize = 64 << 10;
const LOG_LIMIT: usize = 16 << 20;

/// How long the kernel took.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct KernelTimes {
    pub(crate) maps: Duration,
    pub(crate) programs: Duration,
}

/// The name of an object for its maps of global data: its file's up to the first dot, so that `monitor.bpf.o` gives
/// `monitor.rodata` (libbpf: `bpf_object__new`).
pub(crate) fn object_name(file: &Path) -> Vec<u8> {
    let name = file.file_name().unwrap_or_default().as_encoded_bytes();
    name.split(|&byte| byte == b'.').next().unwrap_or(name).to_vec()
}

/// Creates the maps and loads the programs.
pub(crate) fn load<'a>(
    prepared: &Prepared<'a>,
    file: &str,
    options: &LoadOptions<'_>,
    arena: &mut Arena<'a>,
) -> Result<(Collection<'a>, KernelTimes), Failure> {
    let start = Instant::now();
    let mut collection =
        Collection::create(prepared, options, arena).map_err(|error| failure(prepared, file, error))?;
    let maps = start.elapsed();
    let start = Instant::now();
    let mut log = GrowingLog::new(LOG_START, LOG_LIMIT);
    if let Err(error) = collection.load_programs(options, arena, &mut log) {
        return Err(match error {
            LoadError::Program { function, failure } => {
                let text = log.as_bytes().get(failure.log_range()).unwrap_or_default();
                refused(prepared, file, function, error, text, arena)
            }
            error => self::failure(prepared, file, error),
        });
    }
    for slot in collection.empty_slots() {
        let map = prepared.maps().get(slot.map).map_or(&[][..], |map| prepared.map_name(map));
        let program = prepared.declared().functions().get(slot.program);
        let program = program.map_or(&[][..], |function| prepared.function_name(function));
        let (map, program) = (Name(map), Name(program));
        eprintln!("corelo: note: {file}: map {map}: slot {} stays empty: program {program} is not loaded", slot.index);
    }
    Ok((collection, KernelTimes { maps, programs: start.elapsed() }))
}

/// The programs that `--replace` names, opened.
pub(crate) struct Replaced<'o>(Vec<(&'o [u8], OwnedFd)>);

impl<'o> Replaced<'o> {
    pub(crate) fn open(options: &'o Options, prepared: &Prepared<'_>, file: &str) -> Result<Self, Failure> {
        let mut opened = Vec::new();
        for (program, target) in &options.replace {
            let mut programs = prepared.declared().programs();
            if !programs.any(|(_, function)| prepared.function_name(function) == program.as_bytes()) {
                return Err(Failure::Usage(format!("--replace {program}={target}: {file} has no program {program}")));
            }
            let failed = |error: &dyn Display| Failure::Input(format!("--replace {program}={target}: {error}"));
            let fd = match target.strip_prefix("id:") {
                Some(id) => {
                    let id = id.parse().map_err(|_| failed(&"not the number of a program"))?;
                    program_by_id(id).map_err(|errno| failed(&errno))?
                }
                None => open_program(Path::new(target)).map_err(|error| failed(&error))?,
            };
            opened.push((program.as_bytes(), fd));
        }
        Ok(Self(opened))
    }

    pub(crate) fn pairs(&self) -> Vec<(&'o [u8], BorrowedFd<'_>)> {
        self.0.iter().map(|(program, fd)| (*program, fd.as_fd())).collect()
    }
}

/// A failure to load, in words.
pub(crate) fn failure(prepared: &Prepared<'_>, file: &str, error: LoadError) -> Failure {
    match error {
        LoadError::Arena(full) => Failure::Arena(full),
        error => Failure::Job(format!("{file}: {}", LoadReport { prepared, error, pin_root: PIN_ROOT })),
    }
}

/// The verifier said no: what it said, or which relocation it stumbled over.
fn refused(
    prepared: &Prepared<'_>,
    file: &str,
    function: usize,
    error: LoadError,
    log: &[u8],
    arena: &mut Arena<'_>,
) -> Failure {
    let mut text = format!("{file}: {}", LoadReport { prepared, error, pin_root: PIN_ROOT });
    // Linked again to see which function is where: it was linked once, so it fits.
    let mut scratch = arena.scratch();
    let linked = prepared.program(function, &mut scratch).ok();
    let poison = linked.and_then(|linked| PoisonReport::find(log, prepared, linked.placements));
    match poison {
        Some(poison) => text.push_str(&format!(": {poison}")),
        None if !verdict_line(log).is_empty() => {
            text.push_str(&format!(": the verifier says: {}", Name(verdict_line(log))));
            text.push_str(&shown_log(log));
        }
        None => {}
    }
    Failure::Job(text)
}

/// The end of a verifier's log, where it says what it looked at last: the source lines, the instructions and the state
/// of the registers before the verdict. On lines of their own, after the one that says what is wrong.
fn shown_log(log: &[u8]) -> String {
    /// Of a long log, the path to the fault is at the end.
    const SHOWN: usize = 100;
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.trim_matches(|c: char| c == '\0' || c.is_whitespace()).lines().collect();
    let left_out = lines.len().saturating_sub(SHOWN);
    let mut shown = String::from("\nthe verifier's log:");
    if left_out > 0 {
        shown.push_str(&format!("\n  ({left_out} lines before)"));
    }
    for line in lines.iter().skip(left_out) {
        shown.push_str("\n  ");
        shown.extend(line.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_libbpf_names_them() {
        for (file, name) in [("monitor.bpf.o", "monitor"), ("/a.b/x.o", "x"), ("plain", "plain"), (".hidden.o", "")] {
            assert_eq!(object_name(Path::new(file)), name.as_bytes(), "{file}");
        }
    }

    #[test]
    fn of_a_long_log_the_end_is_shown() {
        let log: String = (0..150).map(|line| format!("line {line}\n")).collect();
        let shown = shown_log(log.as_bytes());
        assert!(shown.contains("(50 lines before)\n  line 50\n") && shown.ends_with("line 149"), "{shown}");
        assert_eq!(shown_log(b"a\x1b[2J\n\0"), "\nthe verifier's log:\n  a\u{fffd}[2J");
    }
}

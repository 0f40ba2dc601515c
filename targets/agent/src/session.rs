//! An object's maps and programs in the kernel, for `load` and `run`.

use std::path::Path;
use std::time::{Duration, Instant};

use corelo_core::arena::Arena;
use corelo_core::prepare::Prepared;
use corelo_loader::load::{Collection, LoadError, LoadOptions};
use corelo_loader::programs::GrowingLog;
use corelo_loader::report::{LoadReport, Name, PoisonReport, verdict_line};

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

/// The name of an object for its maps of global data: that of its file without the ending.
pub(crate) fn object_name(file: &Path) -> Vec<u8> {
    let name = file.file_name().unwrap_or_default().as_encoded_bytes();
    name.strip_suffix(b".o").unwrap_or(name).to_vec()
}

/// Creates the maps and loads the programs.
pub(crate) fn load<'p, 'a>(
    prepared: &'p Prepared<'a>,
    file: &str,
    options: &LoadOptions<'_>,
    arena: &mut Arena<'a>,
) -> Result<(Collection<'p, 'a>, KernelTimes), Failure> {
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
    Ok((collection, KernelTimes { maps, programs: start.elapsed() }))
}

/// A failure to load, in words.
pub(crate) fn failure(prepared: &Prepared<'_>, file: &str, error: LoadError) -> Failure {
    match error {
        LoadError::Arena(full) => Failure::Arena(full),
        error => Failure::Job(format!("{file}: {}", LoadReport { prepared, error })),
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
    let mut text = format!("{file}: {}", LoadReport { prepared, error });
    // Linked again to see which function is where: it was linked once, so it fits.
    let mut scratch = arena.scratch();
    let linked = prepared.program(function, &mut scratch).ok();
    let poison = linked.and_then(|linked| PoisonReport::find(log, prepared, linked.placements));
    match poison {
        Some(poison) => text.push_str(&format!(": {poison}")),
        None if !verdict_line(log).is_empty() => {
            text.push_str(&format!(": the verifier says: {}", Name(verdict_line(log))));
        }
        None => {}
    }
    Failure::Job(text)
}

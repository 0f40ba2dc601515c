//! The one way from an object's bytes to a collection.

use core::fmt::{self, Write};
use std::path::Path;

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Plan, PrepareError, Prepared};

use super::error::{Cause, Error};
use super::names::{Names, write_unknown};
use super::text::{LIMIT, Text};
use super::{Collection, Kernel, Loader};
use crate::kernel::{KernelBtfError, ModuleError, ModuleFile, ModulesError};
use crate::load::{Change, EmptySlot, LoadError, LoadOptions, SettingError};
use crate::objects::GrowingLog;
use crate::prepare::{KernelError, Preparation, Step};
use crate::report::{LoadReport, Name, NoKernelBtf, ObjectReport, PoisonReport, verdict_line};
use crate::sys::mmap::AnonMap;

/// Where a log starts.
const LOG_START: usize = 64 << 10;

/// How far a load has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'s> {
    /// What was done, or found on the way.
    pub step: Step<'s>,
    /// Bytes of the buffer that are in use.
    pub arena_used: usize,
}

/// The way of one object.
pub(super) struct Load<'l, 'o, 'k> {
    pub(super) loader: &'l Loader<'o, 'l>,
    pub(super) kernel: &'k Kernel<'k>,
    pub(super) watch: &'l mut dyn FnMut(Progress<'_>),
}

impl<'o, 'k> Load<'_, 'o, 'k> {
    fn tell(&mut self, arena: &Arena<'_>, step: Step<'_>) {
        (self.watch)(Progress { step, arena_used: arena.used() });
    }

    pub(super) fn load<'b>(&mut self, buffer: &'b mut [u8]) -> Result<Collection<'b>, Error>
    where
        'o: 'b,
        'k: 'b,
    {
        let loader = self.loader;
        let (Preparation { prepared, modules }, mut arena) = self.prepare(buffer)?;
        if loader.has_too_many {
            return Err(loader.refused(SettingError::TooMany));
        }
        let options = LoadOptions { modules: modules.names(), more: &loader.settings, ..loader.options };
        let mut collection = Collection::create(&prepared, &options, &mut arena)
            .map_err(|error| load_error(&prepared, &options, error, &[], &mut arena))?;
        self.tell(&arena, Step::Maps);
        let prepared = *collection.prepared();
        let mut log = GrowingLog::new(LOG_START.min(loader.log_limit), loader.log_limit);
        if let Err(error) = collection.load_programs(&options, &mut arena, &mut log) {
            let mut text = &[][..];
            if let LoadError::Program { function, failure } = error {
                text = log.as_bytes().get(failure.log_range()).unwrap_or_default();
                self.tell(&arena, Step::Refused { program: Names(&prepared).program(function), log: text });
            }
            return Err(load_error(&prepared, &options, error, text, &mut arena));
        }
        for EmptySlot { map, index, program } in collection.empty_slots() {
            let names = Names(&prepared);
            self.tell(&arena, Step::EmptySlot { map: names.map(map), program: names.program(program), index });
        }
        self.tell(&arena, Step::Programs);
        collection.remember(modules, &arena);
        Ok(collection)
    }

    pub(super) fn prepare<'b>(&mut self, buffer: &'b mut [u8]) -> Result<(Preparation<'b>, Arena<'b>), Error>
    where
        'o: 'b,
        'k: 'b,
    {
        let loader = self.loader;
        let object = Object::parse(loader.object).map_err(|error| {
            Error::new(Cause::Object(error), |text| write!(text, "{}", ObjectReport { object: None, error }))
        })?;
        let made = match loader.warm {
            Some(warm) => {
                let mut arena = Arena::new(buffer);
                warm.prepare(&object, loader.prepare, &mut arena).map(|made| (made, arena))
            }
            None => {
                let kernel = self.kernel;
                let watch = &mut |step: Step<'_>, arena: &Arena<'_>| self.tell(arena, step);
                kernel.prepare_watched(&object, loader.prepare, buffer, watch)
            }
        };
        made.map_err(|error| self.kernel_error(&object, error))
    }

    fn kernel_error(&self, object: &Object<'_>, error: KernelError) -> Error {
        Error::new(Cause::Kernel(error), |text| {
            let source = self.kernel.file();
            match error {
                KernelError::Prepare(PrepareError::Object(error)) => {
                    write!(text, "{}", ObjectReport { object: Some(object), error })
                }
                KernelError::Btf(reason) => match source {
                    Some(path) => write_file(text, path, reason),
                    None => write_no_btf(text, object, self.loader.prepare, reason),
                },
                KernelError::Stream(_) | KernelError::Prepare(PrepareError::Kernel(_)) => match source {
                    Some(path) => write!(text, "{}: {error}", Name(path.as_os_str().as_encoded_bytes())),
                    None => write!(text, "the running kernel's BTF: {error}"),
                },
                KernelError::Modules(ModulesError::Module { index, error }) => match self.kernel.module(index) {
                    Some(ModuleFile { name, path }) => match error {
                        ModuleError::Btf(reason) => write_file(text, path, reason),
                        error => write!(text, "module {name}: {error}"),
                    },
                    None => write!(text, "module {index}: {error}"),
                },
                error => write!(text, "{error}"),
            }
        })
    }
}

/// Says why BTF cannot be had from a file of the caller's.
fn write_file(text: &mut Text, path: &Path, reason: KernelBtfError) -> fmt::Result {
    write!(text, "{}: ", Name(path.as_os_str().as_encoded_bytes()))?;
    match reason {
        KernelBtfError::Open(errno) | KernelBtfError::Read(errno) => write!(text, "cannot read: {errno}"),
        reason => write!(text, "{reason}"),
    }
}

/// Says which question to the kernel's BTF is left without an answer. The object is planned again to tell, in memory that
/// grows until it does: the caller's buffer may be in use.
fn write_no_btf(text: &mut Text, object: &Object<'_>, options: Options, reason: KernelBtfError) -> fmt::Result {
    for shift in [16, 20, 24] {
        let Ok(mut memory) = AnonMap::new(1 << shift) else { break };
        if let Ok(plan) = Plan::new(object, options, &mut Arena::new(&mut memory)) {
            return write!(text, "{}", NoKernelBtf { object, plan: &plan, reason });
        }
    }
    write!(text, "the kernel's BTF: {reason}")
}

/// Says why an object is not loaded, `log` being what the verifier said.
fn load_error(
    prepared: &Prepared<'_>,
    options: &LoadOptions<'_>,
    error: LoadError,
    log: &[u8],
    arena: &mut Arena<'_>,
) -> Error {
    Error::new(Cause::Load(error), |text| {
        if let LoadError::Setting { index, error } = error {
            return write_setting(text, prepared, options, index, error);
        }
        write!(text, "{}", LoadReport { prepared, error, pin_root: options.pin_root })?;
        let LoadError::Program { function, .. } = error else { return Ok(()) };
        // Linked again to see which function is where: it was linked once, so it fits.
        let mut scratch = arena.scratch();
        let linked = prepared.program(function, &mut scratch).ok();
        match linked.and_then(|linked| PoisonReport::find(log, prepared, linked.placements)) {
            Some(poison) => write!(text, ": {poison}"),
            None if !verdict_line(log).is_empty() => {
                write!(text, ": the verifier says: {}", Name(verdict_line(log)))?;
                write_end_of_log(text, log)
            }
            None => Ok(()),
        }
    })
}

fn write_setting(
    text: &mut Text,
    prepared: &Prepared<'_>,
    options: &LoadOptions<'_>,
    index: usize,
    error: SettingError,
) -> fmt::Result {
    let names = Names(prepared);
    let mut settings = options.settings.iter().chain(options.more);
    let Some(setting) = settings.nth(index) else { return write!(text, "{error}") };
    let what = match setting.change {
        Change::Value(_) => "variable",
        Change::Load(_) | Change::Replace(_) | Change::LogLevel(_) | Change::Section(_) => "program",
        _ => "map",
    };
    match error {
        SettingError::NoVariable => write_unknown(text, what, setting.name, names.variables()),
        SettingError::NoMap => write_unknown(text, what, setting.name, names.maps()),
        SettingError::NoProgram => write_unknown(text, what, setting.name, names.programs()),
        error => write!(text, "{what} {}: {error}", setting.name),
    }
}

/// The end of a verifier's log, where it says what it looked at last: the source lines, the instructions and the state
/// of the registers before the verdict. On lines of their own, after the one that says what is wrong.
fn write_end_of_log(text: &mut Text, log: &[u8]) -> fmt::Result {
    /// Of a long log, the path to the fault is at the end.
    const SHOWN: usize = 100;
    let log = log.trim_ascii();
    let room = (LIMIT - 512).saturating_sub(text.as_str().len());
    // The shortest end that has so many lines, or the longest that fits.
    let mut start = log.len();
    let mut lines = 0;
    for line in log.rsplit(|&byte| byte == b'\n') {
        let before = start.saturating_sub(line.len() + 1);
        // Two spaces and a line feed each; what is no character takes three bytes.
        if lines == SHOWN || (log.len() - before) + 4 * lines > room {
            break;
        }
        (start, lines) = (before, lines + 1);
    }
    text.write_str("\nthe verifier's log:")?;
    let left_out =
        log.get(..start).unwrap_or_default().split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count();
    if left_out > 0 {
        write!(text, "\n  ({left_out} lines before)")?;
    }
    let shown = log.get(start..).unwrap_or_default();
    for line in shown.strip_prefix(b"\n").unwrap_or(shown).split(|&byte| byte == b'\n') {
        text.write_str("\n  ")?;
        for chunk in line.utf8_chunks() {
            for c in chunk.valid().chars() {
                text.write_char(if c.is_control() && c != '\t' { '\u{fffd}' } else { c })?;
            }
            if !chunk.invalid().is_empty() {
                text.write_char('\u{fffd}')?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_log_the_end_is_shown() {
        let shown = |log: &[u8]| {
            let mut text = Text::default();
            write_end_of_log(&mut text, log).unwrap();
            text.as_str().to_owned()
        };
        let log: String = (0..150).map(|line| format!("line {line}\n")).collect();
        let end = shown(log.as_bytes());
        assert!(end.contains("(50 lines before)\n  line 50\n") && end.ends_with("line 149"), "{end}");
        assert_eq!(shown(b"a\x1b[2J\n"), "\nthe verifier's log:\n  a\u{fffd}[2J");
        assert_eq!(shown(b"one\ntwo"), "\nthe verifier's log:\n  one\n  two");
        // Lines too long for the whole: fewer of them.
        let long: String = (0..100).map(|line| format!("{line} {}\n", "x".repeat(1000))).collect();
        let end = shown(long.as_bytes());
        assert!(end.len() < LIMIT && end.contains("lines before") && end.contains("\n  99 x"), "{}", end.len());
    }
}

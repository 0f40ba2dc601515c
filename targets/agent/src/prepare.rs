//! Object and kernel BTF, brought together in an arena, and what is said of it on the way.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use corelo_core::arena::Arena;
use corelo_core::min_btf::StreamError;
use corelo_core::prepare::{PrepareError, Prepared};
use corelo_loader::kernel::{ModuleError, ModuleSource, Modules};
use corelo_loader::load::LoadError;
use corelo_loader::loader::{Cause, Error, Loader, Progress};
use corelo_loader::prepare::{Access, Kernel, KernelError, KernelOptions, Preparation, Step, WINDOW};
use corelo_loader::report::Name;

use crate::args::Options;
use crate::failure::Failure;

/// The kernel that the command line names, kept for further tries.
#[derive(Debug)]
pub(crate) struct KernelSource<'o> {
    options: &'o Options,
    kernel: Kernel<'o>,
}

impl<'o> KernelSource<'o> {
    pub(crate) fn new(options: &'o Options) -> Self {
        Self::with_access(options, Access::Lean)
    }

    /// The same, but streamed only where the user says so: a budget is not to depend on what this machine can map.
    pub(crate) fn for_budget(options: &'o Options) -> Self {
        Self::with_access(options, Access::Whole)
    }

    fn with_access(options: &'o Options, by_default: Access) -> Self {
        let access = match options {
            Options { stream: true, .. } => Access::Stream,
            Options { read: true, .. } => Access::Whole,
            _ => by_default,
        };
        // The running kernel's modules do not go with another kernel's BTF.
        let modules = match options {
            Options { btf: None, module_btf, .. } if module_btf.is_empty() => ModuleSource::Running,
            Options { module_btf, .. } => ModuleSource::Files(module_btf),
        };
        let btf = options.btf.as_deref();
        let window = options.window.unwrap_or(WINDOW);
        Self {
            options,
            kernel: Kernel::new(KernelOptions { btf, access, window, modules, buffer_grows: options.arena.is_none() }),
        }
    }

    pub(crate) fn kernel(&self) -> &Kernel<'o> {
        &self.kernel
    }

    /// How it came into this process, in a word.
    pub(crate) fn name(&self) -> String {
        self.kernel.source().map_or_else(|| "not needed".into(), |source| source.to_string())
    }

    fn file_name(&self) -> String {
        self.options.btf.as_ref().map_or_else(|| "the running kernel's BTF".into(), |path| path.display().to_string())
    }

    /// What `error` means to the user, `file` the object's.
    pub(crate) fn failure(&self, error: &Error, file: &str) -> Failure {
        if let Some(full) = error.arena_full() {
            return Failure::Arena(full);
        }
        match error.cause() {
            Cause::Object(_) => Failure::Input(format!("{file}: {error}")),
            Cause::Kernel(KernelError::Stream(StreamError::Window)) => {
                Failure::Usage(format!("--window {}: {error}", self.options.window.unwrap_or(WINDOW)))
            }
            Cause::Kernel(KernelError::Btf(_)) if self.options.btf.is_none() => {
                Failure::Job(format!("{file}: {error}"))
            }
            // These are about a file that the user named, and name it.
            Cause::Kernel(
                KernelError::Btf(_)
                | KernelError::Stream(_)
                | KernelError::Prepare(PrepareError::Kernel(_))
                | KernelError::Modules(_),
            ) => Failure::Input(error.to_string()),
            Cause::Kernel(KernelError::Prepare(PrepareError::Object(_))) => Failure::Job(format!("{file}: {error}")),
            Cause::Kernel(_) => Failure::Input(format!("{file} and {}: {error}", self.file_name())),
            // A name on the command line that the object does not have.
            Cause::Load(LoadError::Setting { .. }) | Cause::Unknown => Failure::Usage(format!("{file}: {error}")),
            _ => Failure::Job(format!("{file}: {error}")),
        }
    }
}

/// How long the phases took.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) object: Duration,
    pub(crate) kernel_pass: Duration,
    pub(crate) prepare: Duration,
    pub(crate) maps: Duration,
    pub(crate) programs: Duration,
}

/// Listens to a load: measures how long its steps take, and says what the user should know.
#[derive(Debug)]
pub(crate) struct Watch<'f> {
    file: &'f str,
    insists_on_streaming: bool,
    since: Cell<Instant>,
    times: Cell<Times>,
    planned: Cell<usize>,
    /// Bytes of arena that hold what was kept of a streamed BTF.
    min_btf: Cell<usize>,
    /// What was said, so that a second try in a larger arena does not say it again.
    said: RefCell<Vec<String>>,
}

impl<'f> Watch<'f> {
    pub(crate) fn new(file: &'f str, options: &Options) -> Self {
        Self {
            file,
            insists_on_streaming: options.stream,
            since: Cell::new(Instant::now()),
            times: Cell::default(),
            planned: Cell::new(0),
            min_btf: Cell::new(0),
            said: RefCell::default(),
        }
    }

    pub(crate) fn times(&self) -> Times {
        self.times.get()
    }

    pub(crate) fn see(&self, progress: Progress<'_>) {
        let mut times = self.times.get();
        let past = |since: &Cell<Instant>| since.replace(Instant::now()).elapsed();
        match progress.step {
            Step::Planned => {
                times.object = past(&self.since);
                self.planned.set(progress.arena_used);
            }
            Step::Opened => self.min_btf.set(progress.arena_used.saturating_sub(self.planned.get())),
            Step::Searched => times.kernel_pass = past(&self.since),
            Step::Prepared => times.prepare = past(&self.since),
            Step::Maps => times.maps = past(&self.since),
            Step::Programs => times.programs = past(&self.since),
            Step::ModuleSkipped(module, why) => self.say_skipped(module, why),
            Step::EmptySlot { map, program, index } => {
                let (map, program) = (Name(map), Name(program));
                self.say(format!(
                    "{}: map {map}: slot {index} stays empty: program {program} is not loaded",
                    self.file
                ));
            }
            _ => {}
        }
        self.times.set(times);
    }

    fn say_skipped(&self, module: &str, why: ModuleError) {
        match why {
            ModuleError::NeedsWhole if !self.insists_on_streaming => {}
            ModuleError::NeedsWhole => self.say(format!(
                "{} asks for what module {module} may have, which takes the kernel's BTF as a whole: --stream is given up",
                self.file
            )),
            ModuleError::List(errno) => self.say(format!("modules are not searched: /sys/kernel/btf: {errno}")),
            why => self.say(format!("module {module} is not searched: {why}")),
        }
    }

    fn say(&self, words: String) {
        if !self.said.borrow().contains(&words) {
            eprintln!("corelo: note: {words}");
            self.said.borrow_mut().push(words);
        }
    }
}

/// An object whose relocations are decided, and what belongs to it.
#[derive(Debug)]
pub(crate) struct Ready<'a> {
    pub(crate) prepared: Prepared<'a>,
    /// The modules that were searched.
    pub(crate) modules: Modules<'a>,
    /// Bytes of arena that hold what was kept of a streamed BTF.
    pub(crate) min_btf: usize,
    /// What is left of the buffer.
    pub(crate) arena: Arena<'a>,
}

/// Prepares the object in `bytes`, which came from `file`.
pub(crate) fn prepare<'a>(
    bytes: &'a [u8],
    file: &str,
    source: &'a KernelSource<'_>,
    buffer: &'a mut [u8],
) -> Result<Ready<'a>, Failure> {
    let watch = Watch::new(file, source.options);
    let made = Loader::new(bytes).prepare_watched(&source.kernel, buffer, &mut |progress| watch.see(progress));
    let (Preparation { prepared, modules }, arena) = made.map_err(|error| source.failure(&error, file))?;
    Ok(Ready { prepared, modules, min_btf: watch.min_btf.get(), arena })
}

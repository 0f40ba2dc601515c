//! Object and kernel BTF, brought together in an arena.

use std::cell::Cell;
use std::time::{Duration, Instant};

use corelo_core::arena::{Arena, Part};
use corelo_core::min_btf::StreamError;
use corelo_core::object::{Object, ObjectError};
use corelo_core::prepare::{Options as PrepareOptions, Plan, PrepareError, Prepared};
use corelo_loader::kernel::{ModuleError, ModuleSource, Modules, ModulesError};
use corelo_loader::prepare::{Access, Kernel, KernelError, KernelOptions, WINDOW};
use corelo_loader::report::{NoKernelBtf, ObjectReport};

use crate::args::Options;
use crate::buffer::with_buffer;
use crate::failure::Failure;
use crate::input::unreadable;

/// The kernel that the command line names, kept for further tries.
#[derive(Debug)]
pub(crate) struct KernelSource<'o> {
    options: &'o Options,
    kernel: Kernel<'o>,
    /// Bytes of arena that streaming took before it turned out that the whole is needed: with `--stream` they are part
    /// of what the job takes.
    given_up: Cell<usize>,
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
        Self { options, kernel: Kernel::new(KernelOptions { btf, access, window, modules }), given_up: Cell::new(0) }
    }

    /// How it came into this process, in a word.
    pub(crate) fn name(&self) -> String {
        self.kernel.source().map_or_else(|| "not needed".into(), |source| source.to_string())
    }

    fn file_name(&self) -> String {
        self.options.btf.as_ref().map_or_else(|| "the running kernel's BTF".into(), |path| path.display().to_string())
    }

    /// What `error` means to the user, `file` the object's.
    fn failure(&self, error: KernelError, file: &str) -> Failure {
        let kernel = self.file_name();
        match error {
            KernelError::Prepare(PrepareError::Arena(full)) => Failure::Arena(full),
            error if self.kernel.takes_whole_after(&error) => Failure::NotStreamed,
            KernelError::Stream(StreamError::Window) => {
                Failure::Usage(format!("--window {}: {error}", self.options.window.unwrap_or(WINDOW)))
            }
            KernelError::Stream(error) => Failure::Input(format!("{kernel}: {error}")),
            KernelError::Prepare(PrepareError::Kernel(error)) => Failure::Input(format!("{kernel}: {error}")),
            error => Failure::Input(format!("{file} and {kernel}: {error}")),
        }
    }
}

/// Does a job that prepares an object, in an arena as large as the user says or as it needs. Where the kernel's BTF was
/// streamed and is needed whole after all, it is done again.
pub(crate) fn with_kernel<T>(
    source: &KernelSource<'_>,
    mut job: impl FnMut(&mut [u8]) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let arena = source.options.arena;
    with_buffer(arena, |buffer| match job(buffer) {
        Err(Failure::NotStreamed) => job(buffer),
        // Where streaming was not the user's idea, a size of arena that does without is enough.
        Err(Failure::Arena(full)) if arena.is_some() && source.kernel.takes_whole_after(&full.into()) => job(buffer),
        result => result,
    })
}

/// How long the phases took.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) object: Duration,
    pub(crate) kernel_pass: Duration,
    pub(crate) prepare: Duration,
}

/// An object whose relocations are decided, and what belongs to it.
#[derive(Debug)]
pub(crate) struct Ready<'a> {
    pub(crate) prepared: Prepared<'a>,
    /// The modules that were searched.
    pub(crate) modules: Modules<'a>,
    /// Bytes of arena that hold what was kept of a streamed BTF.
    pub(crate) min_btf: usize,
    pub(crate) times: Times,
}

/// Parses and prepares the object in `bytes`, which came from `file`.
pub(crate) fn prepare<'a>(
    bytes: &'a [u8],
    file: &str,
    source: &'a KernelSource<'_>,
    arena: &mut Arena<'a>,
) -> Result<Ready<'a>, Failure> {
    let start = Instant::now();
    let not_bpf = |error| Failure::Input(format!("{file}: {}", ObjectReport { object: None, error }));
    let object = Object::parse(bytes).map_err(not_bpf)?;
    let plan = Plan::new(&object, PrepareOptions::default(), arena).map_err(|error| match error {
        PrepareError::Arena(full) => Failure::Arena(full),
        PrepareError::Object(error) => object_failure(&object, error, file),
        error => Failure::Job(format!("{file}: {error}")),
    })?;
    let mut times = Times { object: start.elapsed(), ..Times::default() };
    if !plan.asks_kernel() {
        let prepared = plan.finish().map_err(|error| Failure::Job(format!("{file}: {error}")))?;
        return Ok(Ready { prepared, modules: Modules::default(), min_btf: 0, times });
    }
    let failure = |error| source.failure(error, file);
    let start = Instant::now();
    let mut kernel = source.kernel.open().map_err(|reason| match &source.options.btf {
        Some(path) => unreadable(path, reason),
        None => Failure::Job(format!("{file}: {}", NoKernelBtf { object: &object, plan: &plan, reason })),
    })?;
    let before = arena.used();
    if !kernel.is_streamed() {
        // So much was in use at once when it was streamed.
        let given_up = source.given_up.get().saturating_sub(before);
        arena.scratch().slice::<u8>(given_up, Part::Scratch)?;
    }
    let types = kernel.types(&plan, arena).map_err(failure)?;
    let min_btf = arena.used().saturating_sub(before);
    let mut search = plan.search(types, arena).map_err(|error| failure(error.into()))?;
    times.kernel_pass = start.elapsed();
    let start = Instant::now();
    let streamed_in = arena.high_water();
    let mut skipped = |module: &str, error| match error {
        ModuleError::NeedsWhole if !source.options.stream => {}
        ModuleError::NeedsWhole => {
            source.given_up.set(streamed_in);
            eprintln!(
                "corelo: note: {file} asks for what module {module} may have, which takes the kernel's BTF as a whole: \
                 --stream is given up"
            );
        }
        ModuleError::List(errno) => eprintln!("corelo: note: modules are not searched: /sys/kernel/btf: {errno}"),
        error => eprintln!("corelo: note: module {module} is not searched: {error}"),
    };
    let modules = kernel.modules(&search, &mut skipped).map_err(failure)?;
    modules.search(&mut search, arena, &mut skipped).map_err(|error| match error {
        ModulesError::Module { number, error } => {
            module_failure(modules.names().get(number).unwrap_or_default(), source.options, error)
        }
        error => failure(error.into()),
    })?;
    let prepared = search.finish();
    times.prepare = start.elapsed();
    Ok(Ready { prepared, modules, min_btf, times })
}

/// What is wrong with a module whose BTF the user gave.
fn module_failure(name: &str, options: &Options, error: ModuleError) -> Failure {
    match (error, options.module_btf.iter().find(|file| file.name == name)) {
        (ModuleError::Btf(error), Some(file)) => unreadable(&file.path, error),
        (error, _) => Failure::Input(format!("module {name}: {error}")),
    }
}

fn object_failure(object: &Object<'_>, error: ObjectError, file: &str) -> Failure {
    Failure::Job(format!("{file}: {}", ObjectReport { object: Some(object), error }))
}

//! Object and kernel BTF, brought together in an arena.

use std::cell::{Cell, OnceCell};
use std::time::{Duration, Instant};

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::{Btf, BtfError};
use corelo_core::object::{Object, ObjectError};
use corelo_core::prepare::{Options as PrepareOptions, Plan, PrepareError, Prepared};
use corelo_core::tailor::{self, SliceSource, StreamError};
use corelo_loader::kernel::{KernelBtf, LeanBtf, StreamedBtf};
use corelo_loader::report::{NoKernelBtf, ObjectReport};

use crate::args::Options;
use crate::buffer::with_buffer;
use crate::failure::Failure;
use crate::input::{read_btf, unreadable};
use crate::modules::Modules;

/// Bytes of the window over a BTF that is read piece by piece, where the user does not say.
const WINDOW: usize = 16 << 10;

/// How the kernel's BTF is come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Mapped, else piece by piece: the user leaves it to us. What piece by piece does not do is done with the whole.
    Lean,
    /// Piece by piece: the user wants it so.
    Stream,
    /// Mapped, else read into memory.
    Whole,
}

/// Where the kernel's BTF comes from: opened when the first object asks for it, and kept for further tries.
#[derive(Debug)]
pub(crate) struct KernelSource<'o> {
    options: &'o Options,
    way: Cell<Way>,
    whole: OnceCell<KernelBtf>,
    is_streamed: Cell<bool>,
    /// Bytes of arena that streaming took before it turned out that the whole is needed: with `--stream` they are part
    /// of what the job takes.
    given_up: Cell<usize>,
}

impl<'o> KernelSource<'o> {
    pub(crate) fn new(options: &'o Options) -> Self {
        let way = match options {
            Options { stream: true, .. } => Way::Stream,
            // A file of the user's is nothing that could be mapped.
            Options { read: true, .. } | Options { btf: Some(_), .. } => Way::Whole,
            _ => Way::Lean,
        };
        Self {
            options,
            way: Cell::new(way),
            whole: OnceCell::new(),
            is_streamed: Cell::new(false),
            given_up: Cell::new(0),
        }
    }

    /// The same, but streamed only where the user says so: a budget is not to depend on what this machine can map.
    pub(crate) fn for_budget(options: &'o Options) -> Self {
        let source = Self::new(options);
        if source.way.get() == Way::Lean {
            source.way.set(Way::Whole);
        }
        source
    }

    /// How it came into this process, in a word.
    pub(crate) fn name(&self) -> String {
        match self.whole.get() {
            Some(btf) => btf.source().to_string(),
            None if self.is_streamed.get() => "streamed".into(),
            None => "not needed".into(),
        }
    }

    fn open(&self, object: &Object<'_>, plan: &Plan<'_>, file: &str) -> Result<Opened<'_>, Failure> {
        if let Some(btf) = self.whole.get() {
            return Ok(Opened::Whole(btf));
        }
        let opened = match (&self.options.btf, self.way.get()) {
            (Some(path), Way::Stream) => {
                LeanBtf::Streamed(StreamedBtf::from_file(path).map_err(|error| unreadable(path, error))?)
            }
            (Some(path), _) => LeanBtf::Whole(read_btf(path)?),
            (None, way) => match way {
                Way::Lean => LeanBtf::open(),
                Way::Stream => StreamedBtf::open().map(LeanBtf::Streamed),
                Way::Whole => KernelBtf::open().map(LeanBtf::Whole),
            }
            .map_err(|reason| Failure::Job(format!("{file}: {}", NoKernelBtf { object, plan, reason })))?,
        };
        Ok(match opened {
            LeanBtf::Whole(btf) => Opened::Whole(self.whole.get_or_init(|| btf)),
            LeanBtf::Streamed(streamed) => {
                self.is_streamed.set(true);
                Opened::Streamed(streamed)
            }
        })
    }

    /// Gives up streaming for the whole, which does what this failure of streaming is about: the job is to be done again.
    fn give_up_streaming(&self) -> Failure {
        self.way.set(Way::Whole);
        Failure::NotStreamed
    }

    /// Whether a job that failed so is worth another try with the whole: where streaming was our idea, a size of arena
    /// that does without is enough.
    fn can_do_better(&self, failure: &Failure) -> bool {
        let is_ours = self.way.get() == Way::Lean && self.is_streamed.get();
        match failure {
            Failure::NotStreamed => true,
            Failure::Arena(_) if is_ours && self.options.arena.is_some() => {
                self.way.set(Way::Whole);
                true
            }
            _ => false,
        }
    }

    fn file_name(&self) -> String {
        self.options.btf.as_ref().map_or_else(|| "the running kernel's BTF".into(), |path| path.display().to_string())
    }
}

/// The kernel's BTF, opened.
enum Opened<'k> {
    Whole(&'k KernelBtf),
    Streamed(StreamedBtf),
}

/// Does a job that prepares an object, in an arena as large as the user says or as it needs. Where the kernel's BTF was
/// streamed and is needed whole after all, it is done again.
pub(crate) fn with_kernel<T>(
    kernel: &KernelSource<'_>,
    mut job: impl FnMut(&mut [u8]) -> Result<T, Failure>,
) -> Result<T, Failure> {
    with_buffer(kernel.options.arena, |buffer| match job(buffer) {
        Err(failure) if kernel.can_do_better(&failure) => job(buffer),
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
    /// The modules that were searched, by their numbers from 1.
    pub(crate) modules: Modules,
    /// Bytes of arena that hold what was kept of a streamed BTF.
    pub(crate) tailored: usize,
    pub(crate) times: Times,
}

impl Ready<'_> {
    /// The modules' names, as the loader wants them.
    pub(crate) fn module_names(&self) -> Vec<&str> {
        self.modules.names()
    }
}

/// Parses and prepares the object in `bytes`, which came from `file`.
pub(crate) fn prepare<'a>(
    bytes: &'a [u8],
    file: &str,
    kernel: &'a KernelSource<'_>,
    arena: &mut Arena<'a>,
) -> Result<Ready<'a>, Failure> {
    let start = Instant::now();
    let object = Object::parse(bytes).map_err(|error| Failure::Input(format!("{file}: {error}")))?;
    let plan = Plan::new(&object, PrepareOptions::default(), arena).map_err(|error| match error {
        PrepareError::Arena(full) => Failure::Arena(full),
        PrepareError::Object(error) => object_failure(&object, error, file),
        error => Failure::Job(format!("{file}: {error}")),
    })?;
    let mut times = Times { object: start.elapsed(), ..Times::default() };
    let mut modules = Modules::default();
    if !plan.asks_kernel() {
        let prepared = plan.finish().map_err(|error| Failure::Job(format!("{file}: {error}")))?;
        return Ok(Ready { prepared, modules, tailored: 0, times });
    }
    let start = Instant::now();
    let kernel_failure = |error: PrepareError| match error {
        PrepareError::Arena(full) => Failure::Arena(full),
        PrepareError::Kernel(error) => Failure::Input(format!("{}: {error}", kernel.file_name())),
        error => Failure::Input(format!("{file} and {}: {error}", kernel.file_name())),
    };
    let before = arena.used();
    let mut opened = kernel.open(&object, &plan, file)?;
    let btf = match &mut opened {
        Opened::Whole(whole) => {
            // So much was in use at once when it was streamed.
            let given_up = kernel.given_up.get().saturating_sub(before);
            arena.scratch().slice::<u8>(given_up, Part::Scratch)?;
            Btf::parse(whole)
        }
        Opened::Streamed(source) => stream(source, &plan, file, kernel, arena)?,
    };
    let tailored = arena.used().saturating_sub(before);
    let btf = btf.map_err(|error| kernel_failure(PrepareError::Kernel(error)))?;
    let mut searched = plan.search(btf, arena).map_err(kernel_failure)?;
    times.kernel_pass = start.elapsed();
    let start = Instant::now();
    if searched.wants_modules() {
        modules = Modules::of(kernel.options);
        match &mut opened {
            Opened::Whole(whole) => modules.sift(SliceSource(whole), &searched),
            Opened::Streamed(source) => modules.sift(source, &searched),
        }
        if let (Some(name), Opened::Streamed(_)) = (modules.names().first(), &opened) {
            if kernel.way.get() == Way::Stream {
                kernel.given_up.set(arena.high_water());
                eprintln!(
                    "corelo: note: {file} asks for what module {name} may have, which takes the kernel's BTF as a whole: \
                     --stream is given up"
                );
            }
            return Err(kernel.give_up_streaming());
        }
        modules.search(&mut searched, arena)?;
    }
    let prepared = searched.finish();
    times.prepare = start.elapsed();
    Ok(Ready { prepared, modules, tailored, times })
}

/// The types that the plan needs, of a BTF that is read piece by piece.
fn stream<'a>(
    source: &mut StreamedBtf,
    plan: &Plan<'_>,
    file: &str,
    kernel: &KernelSource<'_>,
    arena: &mut Arena<'a>,
) -> Result<Result<Btf<'a>, BtfError>, Failure> {
    let window = kernel.options.window.unwrap_or(WINDOW);
    match tailor::stream(source, plan.needs(), window, arena) {
        Ok(streamed) => Ok(streamed.btf()),
        Err(StreamError::Arena(full)) => Err(full.into()),
        // The whole may do, as for types that nest too deep to be read forward; or else says what is wrong with it.
        Err(_) if kernel.way.get() == Way::Lean => Err(kernel.give_up_streaming()),
        Err(error @ StreamError::Window) => Err(Failure::Usage(format!("--window {window}: {error}"))),
        Err(error @ StreamError::ByteOrder) => {
            Err(Failure::Input(format!("{file} and {}: {error}", kernel.file_name())))
        }
        Err(error) => Err(Failure::Input(format!("{}: {error}", kernel.file_name()))),
    }
}

fn object_failure(object: &Object<'_>, error: ObjectError, file: &str) -> Failure {
    Failure::Job(format!("{file}: {}", ObjectReport { object: Some(object), error }))
}

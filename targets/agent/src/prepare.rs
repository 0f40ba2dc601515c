//! Object and kernel BTF, brought together in an arena.

use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use corelo_core::arena::Arena;
use corelo_core::btf::{Btf, BtfError};
use corelo_core::object::{Object, ObjectError};
use corelo_core::prepare::{Options as PrepareOptions, Plan, PrepareError, Prepared, Searched};
use corelo_core::tailor::{self, StreamError};
use corelo_loader::kernel::{self, KernelBtf, KernelBtfError, StreamedBtf};
use corelo_loader::report::{NoKernelBtf, ObjectReport};

use crate::args::Options;
use crate::failure::Failure;

/// Bytes of the window over a BTF that is read piece by piece, where the user does not say.
const WINDOW: usize = 16 << 10;

/// A file of the user's, in memory.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Input(format!("cannot read {}: {error}", path.display())))
}

/// BTF of a file of the user's.
pub(crate) fn read_btf(path: &Path) -> Result<KernelBtf, Failure> {
    KernelBtf::from_file(path).map_err(|error| {
        let text = match error {
            KernelBtfError::Open(errno) | KernelBtfError::Read(errno) => format!("cannot read: {errno}"),
            other => other.to_string(),
        };
        Failure::Input(format!("{}: {text}", path.display()))
    })
}

/// Where the kernel's BTF comes from: opened when the first object asks for it, and kept for further tries.
#[derive(Debug)]
pub(crate) struct KernelSource<'o> {
    options: &'o Options,
    vmlinux: OnceCell<KernelBtf>,
}

impl<'o> KernelSource<'o> {
    pub(crate) fn new(options: &'o Options) -> Self {
        Self { options, vmlinux: OnceCell::new() }
    }

    /// Whether it is read piece by piece.
    fn is_streamed(&self) -> bool {
        self.options.stream
    }

    /// How it came into this process, in a word.
    pub(crate) fn name(&self) -> String {
        if self.is_streamed() {
            return "streamed".into();
        }
        self.vmlinux.get().map_or_else(|| "not needed".into(), |btf| btf.source().to_string())
    }

    fn open(&self, object: &Object<'_>, plan: &Plan<'_>, file: &str) -> Result<&KernelBtf, Failure> {
        if let Some(btf) = self.vmlinux.get() {
            return Ok(btf);
        }
        let btf = match &self.options.btf {
            Some(path) => read_btf(path)?,
            None => KernelBtf::open()
                .map_err(|reason| Failure::Job(format!("{file}: {}", NoKernelBtf { object, plan, reason })))?,
        };
        Ok(self.vmlinux.get_or_init(|| btf))
    }

    fn file_name(&self) -> String {
        self.options.btf.as_ref().map_or_else(|| "the running kernel's BTF".into(), |path| path.display().to_string())
    }
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
    pub(crate) modules: Vec<String>,
    pub(crate) times: Times,
}

impl Ready<'_> {
    /// The modules' names, as the loader wants them.
    pub(crate) fn module_names(&self) -> Vec<&str> {
        self.modules.iter().map(String::as_str).collect()
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
    let mut modules = Vec::new();
    if !plan.asks_kernel() {
        let prepared = plan.finish().map_err(|error| Failure::Job(format!("{file}: {error}")))?;
        return Ok(Ready { prepared, modules, times });
    }
    let start = Instant::now();
    let kernel_failure = |error: PrepareError| match error {
        PrepareError::Arena(full) => Failure::Arena(full),
        PrepareError::Kernel(error) => Failure::Input(format!("{}: {error}", kernel.file_name())),
        error => Failure::Input(format!("{file} and {}: {error}", kernel.file_name())),
    };
    let is_streamed = kernel.is_streamed();
    let btf = if is_streamed {
        stream(&object, &plan, file, kernel, arena)?
    } else {
        Btf::parse(kernel.open(&object, &plan, file)?)
    };
    let btf = btf.map_err(|error| kernel_failure(PrepareError::Kernel(error)))?;
    let mut searched = plan.search(btf, arena).map_err(kernel_failure)?;
    times.kernel_pass = start.elapsed();
    let start = Instant::now();
    if searched.wants_modules() && is_streamed {
        // A module's BTF is split on the whole of the kernel's.
        eprintln!("corelo: note: modules are not searched with --stream");
    } else if searched.wants_modules() {
        modules = search_modules(&mut searched, kernel.options, arena)?;
    }
    let prepared = searched.finish();
    times.prepare = start.elapsed();
    Ok(Ready { prepared, modules, times })
}

/// The types that the plan needs, of a BTF that is read piece by piece.
fn stream<'a>(
    object: &Object<'_>,
    plan: &Plan<'_>,
    file: &str,
    kernel: &KernelSource<'_>,
    arena: &mut Arena<'a>,
) -> Result<Result<Btf<'a>, BtfError>, Failure> {
    let options = kernel.options;
    let source = match &options.btf {
        Some(path) => {
            StreamedBtf::from_file(path).map_err(|error| Failure::Input(format!("{}: {error}", path.display())))?
        }
        None => StreamedBtf::open()
            .map_err(|reason| Failure::Job(format!("{file}: {}", NoKernelBtf { object, plan, reason })))?,
    };
    let window = options.window.unwrap_or(WINDOW);
    let streamed = tailor::stream(source, plan.needs(), window, arena).map_err(|error| match error {
        StreamError::Arena(full) => Failure::Arena(full),
        StreamError::Window => Failure::Usage(format!("--window {window}: {error}")),
        error => Failure::Input(format!("{}: {error}", kernel.file_name())),
    })?;
    Ok(streamed.btf())
}

fn object_failure(object: &Object<'_>, error: ObjectError, file: &str) -> Failure {
    Failure::Job(format!("{file}: {}", ObjectReport { object: Some(object), error }))
}

/// Searches the modules that the user named, or else those of the running kernel, one in memory at a time.
fn search_modules(
    searched: &mut Searched<'_>,
    options: &Options,
    arena: &mut Arena<'_>,
) -> Result<Vec<String>, Failure> {
    let given = !options.module_btf.is_empty() || options.btf.is_some();
    let names: Vec<String> = if given {
        options.module_btf.iter().map(|(name, _)| name.clone()).collect()
    } else {
        let mut names = Vec::new();
        let walked = kernel::modules(|name| {
            names.push(name.to_owned());
            ControlFlow::<()>::Continue(())
        });
        if let Err(errno) = walked {
            eprintln!("corelo: note: modules are not searched: /sys/kernel/btf: {errno}");
        }
        names
    };
    for is_second_look in [false, true] {
        for (number, name) in (1u16..).zip(&names) {
            let btf = match options.module_btf.get(usize::from(number) - 1) {
                Some((_, path)) => read_btf(path)?,
                None => match KernelBtf::open_module(name) {
                    Ok(btf) => btf,
                    Err(error) => {
                        if !is_second_look {
                            eprintln!("corelo: note: module {name} is not searched: {error}");
                        }
                        continue;
                    }
                },
            };
            let mut scratch = arena.scratch();
            let looked = if is_second_look {
                searched.search_module(&btf, number, &mut scratch)
            } else {
                searched.weigh_module(&btf, number, &mut scratch)
            };
            match looked {
                Ok(()) => {}
                Err(PrepareError::Arena(full) | PrepareError::Kernel(BtfError::Arena(full))) => return Err(full.into()),
                Err(error) if given => return Err(Failure::Input(format!("module {name}: {error}"))),
                Err(error) if !is_second_look => {
                    eprintln!("corelo: note: module {name} is not searched: {error}");
                }
                Err(_) => {}
            }
        }
    }
    Ok(names)
}

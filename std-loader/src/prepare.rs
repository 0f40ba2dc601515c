//! An object and the BTF of a kernel brought together, in the way that takes the least memory.
//!
//! [`Kernel::prepare`] does all of it: it opens BTF only for an object that asks something, maps it or reads it piece by
//! piece, and looks through the modules for what the kernel lacks. Callers that measure or report more take its steps:
//! [`Kernel::open`], [`BtfHandle::types`], [`Plan::search`], [`BtfHandle::modules`], [`Modules::search`].
//!
//! - `object_file`: an object's file in memory, with a limit ([`ObjectFile`])
//! - `bump`: a `bumpalo::Bump` as the arena's buffer (feature `bumpalo`)

#[cfg(feature = "bumpalo")]
pub mod bump;
mod object_file;

use core::cell::{Cell, OnceCell};
use core::fmt;
use std::path::Path;

use corelo_core::arena::{Arena, ArenaFull, Part};
use corelo_core::btf::{Btf, BtfError};
use corelo_core::min_btf::{self, StreamError};
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Plan, PrepareError, Prepared, Search, Snapshot};

use crate::kernel::btf::{PIECE, Pieces};
use crate::kernel::{
    KernelBtf, KernelBtfError, LeanBtf, ModuleError, ModuleFile, ModuleSource, Modules, ModulesError, Source,
    StreamedBtf,
};
use crate::sys::{Errno, again};

pub use object_file::{MAX_OBJECT_BYTES, ObjectFile, ObjectFileError};

/// Bytes of the window over BTF that is read piece by piece, where the caller does not say.
pub const WINDOW: usize = PIECE;

/// How the kernel's BTF is come by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Mapped, or where the kernel refuses that (before Linux 6.16) read piece by piece. The whole is read into memory
    /// only where that does not do: an object that asks for what a module has, types that nest too deep.
    #[default]
    Lean,
    /// Read piece by piece, whatever the kernel allows.
    Stream,
    /// Mapped, or else read into memory as a whole: faster than piece by piece, for 3 to 6 MB.
    Whole,
}

/// How far an object is on its way.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Step<'s> {
    /// The object's tables are read, and it is known what it asks.
    Planned,
    /// The kernel's BTF is there, or what of it is read piece by piece.
    Opened,
    /// The kernel's types were walked over.
    Searched,
    /// A module is not searched; an empty name stands for all of them.
    ModuleSkipped(&'s str, ModuleError),
    /// Every relocation is decided.
    Prepared,
    /// The maps are created and filled.
    Maps,
    /// A slot of a map stays empty, as its program is not loaded.
    EmptySlot {
        /// The map's name.
        map: &'s [u8],
        /// The program's.
        program: &'s [u8],
        /// The slot.
        index: u32,
    },
    /// The verifier refuses a program.
    Refused {
        /// The program's name.
        program: &'s [u8],
        /// What it said, as far as the log's limit allows.
        log: &'s [u8],
    },
    /// The programs are loaded.
    Programs,
}

/// Which kernel, and how its BTF is come by.
#[derive(Clone, Copy, Debug)]
pub struct KernelOptions<'p> {
    /// A file of BTF, or an ELF file with a `.BTF` section, instead of the running kernel's.
    pub btf: Option<&'p Path>,
    /// How it is come by. A file is never mapped, as it may change: [`Access::Lean`] reads it as a whole.
    pub access: Access,
    /// Bytes of arena through which it is read piece by piece: [`min_btf::MIN_WINDOW`] or more.
    pub window: usize,
    /// Which modules are looked through for what it lacks.
    pub modules: ModuleSource<'p>,
    /// Whether the caller tries again in a larger buffer where one is too small. Then a shortage is no reason for
    /// [`Access::Lean`] to read the whole, which may take less of the buffer and takes megabytes beside it.
    pub buffer_grows: bool,
}

impl KernelOptions<'_> {
    /// The running kernel and its modules.
    pub const RUNNING: KernelOptions<'static> = KernelOptions {
        btf: None,
        access: Access::Lean,
        window: WINDOW,
        modules: ModuleSource::Running,
        buffer_grows: false,
    };
}

impl<'p> KernelOptions<'p> {
    /// A kernel whose BTF is in a file, with no modules.
    #[must_use]
    pub const fn file(path: &'p Path) -> Self {
        Self { btf: Some(path), modules: ModuleSource::Files(&[]), ..KernelOptions::RUNNING }
    }
}

/// Why an object cannot be prepared for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelError {
    /// The kernel's BTF cannot be had: [`NoKernelBtf`](crate::report::NoKernelBtf) says more.
    Btf(KernelBtfError),
    /// It cannot be read piece by piece.
    Stream(StreamError<Errno>),
    /// The object, the BTF or the arena is at fault.
    Prepare(PrepareError),
    /// A module is at fault.
    Modules(ModulesError),
    /// A module may have what is asked for, which takes the kernel's BTF as a whole.
    NeedsWhole,
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Btf(error) => error.fmt(f),
            Self::Stream(error) => error.fmt(f),
            Self::Prepare(error) => error.fmt(f),
            Self::Modules(error) => error.fmt(f),
            Self::NeedsWhole => f.write_str("the kernel's BTF is needed as a whole"),
        }
    }
}

impl core::error::Error for KernelError {}

impl From<PrepareError> for KernelError {
    fn from(error: PrepareError) -> Self {
        Self::Prepare(error)
    }
}

impl From<ArenaFull> for KernelError {
    fn from(full: ArenaFull) -> Self {
        Self::Prepare(PrepareError::Arena(full))
    }
}

impl From<BtfError> for KernelError {
    fn from(error: BtfError) -> Self {
        match error {
            BtfError::Arena(full) => full.into(),
            error => Self::Prepare(PrepareError::Kernel(error)),
        }
    }
}

impl From<StreamError<Errno>> for KernelError {
    fn from(error: StreamError<Errno>) -> Self {
        match error {
            StreamError::Arena(full) => full.into(),
            StreamError::ByteOrder => Self::Prepare(PrepareError::ByteOrder),
            error => Self::Stream(error),
        }
    }
}

impl From<ModulesError> for KernelError {
    fn from(error: ModulesError) -> Self {
        match error {
            ModulesError::Arena(full) => full.into(),
            error => Self::Modules(error),
        }
    }
}

/// A kernel that objects are prepared for. Its BTF is opened when the first object asks for it and, where it is in memory,
/// kept for the next.
#[derive(Debug)]
pub struct Kernel<'p> {
    options: KernelOptions<'p>,
    access: Cell<Access>,
    whole: OnceCell<KernelBtf>,
    is_streamed: Cell<bool>,
}

/// An object that is prepared, and the modules that what it asks for was found in.
#[derive(Debug)]
pub struct Preparation<'a> {
    /// The object.
    pub prepared: Prepared<'a>,
    /// The modules: [`LoadOptions::modules`](crate::load::LoadOptions::modules) wants their names.
    pub modules: Modules<'a>,
}

impl<'a> Preparation<'a> {
    /// What preparing the same object again needs: the warm start. The object's bytes need not be kept.
    #[must_use]
    pub fn snapshot(self) -> WarmStart<'a> {
        WarmStart { snapshot: self.prepared.snapshot(), modules: self.modules }
    }
}

/// What the kernel answered to one object: see [`Preparation::snapshot`]. It holds as long as the kernel runs; where modules have
/// what was asked for, as long as those are loaded.
#[derive(Debug)]
pub struct WarmStart<'a> {
    snapshot: Snapshot<'a>,
    modules: Modules<'a>,
}

impl<'a> WarmStart<'a> {
    /// Prepares the same object again: no BTF of the kernel is opened, and no type of it visited.
    ///
    /// # Errors
    /// [`KernelError::Prepare`]: as [`Snapshot::prepare`].
    pub fn prepare(
        &self,
        object: &Object<'a>,
        options: Options,
        arena: &mut Arena<'a>,
    ) -> Result<Preparation<'a>, KernelError> {
        let modules = self.modules.try_clone()?;
        Ok(Preparation { prepared: self.snapshot.prepare(object, options, arena)?, modules })
    }
}

impl<'p> Kernel<'p> {
    /// Opens nothing yet.
    #[must_use]
    pub const fn new(options: KernelOptions<'p>) -> Self {
        Self { access: Cell::new(options.access), options, whole: OnceCell::new(), is_streamed: Cell::new(false) }
    }

    /// The running kernel and its modules.
    #[must_use]
    pub const fn running() -> Kernel<'static> {
        Kernel::new(KernelOptions::RUNNING)
    }

    /// A kernel whose BTF is in memory already, with no modules.
    #[must_use]
    pub fn of(btf: KernelBtf) -> Self {
        let kernel = Self::new(KernelOptions { modules: ModuleSource::Files(&[]), ..KernelOptions::RUNNING });
        let _ = kernel.whole.set(btf);
        kernel
    }

    /// How its BTF came into this process; `None` where nothing asked for it.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        match self.whole.get() {
            Some(whole) => Some(whole.source()),
            None => self.is_streamed.get().then_some(Source::Streamed),
        }
    }

    /// The same, for a buffer that grows or does not: [`KernelOptions::buffer_grows`].
    #[cfg(feature = "alloc")]
    pub(crate) fn with_growing(mut self, buffer_grows: bool) -> Self {
        self.options.buffer_grows = buffer_grows;
        self
    }

    /// The file that its BTF comes from, where the caller named one.
    pub(crate) fn file(&self) -> Option<&'p Path> {
        self.options.btf
    }

    /// The name of one of the caller's modules: see [`ModulesError::Module`].
    pub(crate) fn module(&self, index: usize) -> Option<&'p ModuleFile> {
        match self.options.modules {
            ModuleSource::Files(files) => files.get(index),
            ModuleSource::Running => None,
        }
    }

    /// Prepares `object` in `buffer`, and gives what is left of it.
    ///
    /// Where BTF that is read piece by piece turns out not to do, the work is done once more from the start, with the whole of
    /// it in memory: an object that asks for what a module has, types that nest too deep, a buffer that is too small for
    /// reading piece by piece and large enough for the whole.
    ///
    /// # Errors
    /// [`KernelError`]
    pub fn prepare<'b>(
        &'b self,
        object: &Object<'b>,
        options: Options,
        buffer: &'b mut [u8],
    ) -> Result<(Preparation<'b>, Arena<'b>), KernelError> {
        self.prepare_watched(object, options, buffer, &mut |_, _| {})
    }

    /// As [`Kernel::prepare`]; `watch` is called at every step on the way.
    ///
    /// # Errors
    /// The same.
    pub fn prepare_watched<'b>(
        &'b self,
        object: &Object<'b>,
        options: Options,
        buffer: &'b mut [u8],
        watch: &mut dyn FnMut(Step<'_>, &Arena<'_>),
    ) -> Result<(Preparation<'b>, Arena<'b>), KernelError> {
        again::run(&Work { kernel: self, object: *object, options }, &mut Tries { watch, given_up: 0 }, buffer)
    }

    /// Whether what failed so may be done with the kernel's BTF as a whole. From then on it is opened as a whole.
    fn takes_whole_after(&self, error: &KernelError) -> bool {
        // With the whole in memory there is nothing else to try.
        let is_streamed = self.is_streamed.get() && self.whole.get().is_none();
        let may_do = match error {
            KernelError::NeedsWhole => true,
            // Whatever is wrong with reading it so, where it was our idea.
            KernelError::Stream(_) => self.access.get() == Access::Lean,
            // It takes more of the arena, too.
            KernelError::Prepare(PrepareError::Arena(_)) => {
                self.access.get() == Access::Lean && !self.options.buffer_grows
            }
            _ => false,
        };
        if is_streamed && may_do {
            self.access.set(Access::Whole);
        }
        is_streamed && may_do
    }

    /// Opens its BTF, unless it is in memory.
    ///
    /// # Errors
    /// As [`KernelBtf::open`] and [`KernelBtf::from_file`].
    pub fn open(&self) -> Result<BtfHandle<'_>, KernelBtfError> {
        let btf = match (self.whole.get(), self.options.btf, self.access.get()) {
            (Some(whole), ..) => return Ok(BtfHandle { kernel: self, types: Pieces::Whole(whole) }),
            (None, None, Access::Lean) => LeanBtf::open()?,
            (None, None, Access::Stream) => LeanBtf::Streamed(StreamedBtf::open()?),
            (None, None, Access::Whole) => LeanBtf::Whole(KernelBtf::open()?),
            (None, Some(path), Access::Stream) => LeanBtf::Streamed(StreamedBtf::from_file(path)?),
            (None, Some(path), Access::Lean | Access::Whole) => LeanBtf::Whole(KernelBtf::from_file(path)?),
        };
        let types = match btf {
            LeanBtf::Whole(whole) => Pieces::Whole(self.whole.get_or_init(|| whole)),
            LeanBtf::Streamed(streamed) => {
                self.is_streamed.set(true);
                Pieces::Streamed(streamed)
            }
        };
        Ok(BtfHandle { kernel: self, types })
    }
}

/// An object on its way, for as often as it is begun.
struct Work<'o> {
    kernel: &'o Kernel<'o>,
    object: Object<'o>,
    options: Options,
}

/// What goes from one try to the next.
struct Tries<'w> {
    watch: &'w mut dyn FnMut(Step<'_>, &Arena<'_>),
    /// Bytes that reading BTF piece by piece took before it was given up, where the caller insisted on it: they are part of
    /// what the job takes.
    given_up: usize,
}

impl again::Job<Tries<'_>> for Work<'_> {
    type Done<'b>
        = (Preparation<'b>, Arena<'b>)
    where
        Self: 'b;
    type Error = KernelError;

    fn run<'b>(&self, tries: &mut Tries<'_>, buffer: &'b mut [u8]) -> Result<(Preparation<'b>, Arena<'b>), KernelError>
    where
        Self: 'b,
    {
        let mut arena = Arena::new(buffer);
        match self.prepare(tries, &mut arena) {
            Ok(made) => Ok((made, arena)),
            Err(error) => {
                if self.kernel.options.access == Access::Stream {
                    tries.given_up = arena.high_water();
                }
                Err(error)
            }
        }
    }

    fn is_done_again(&self, error: &KernelError) -> bool {
        self.kernel.takes_whole_after(error)
    }
}

impl<'o> Work<'o> {
    fn prepare<'b>(&self, tries: &mut Tries<'_>, arena: &mut Arena<'b>) -> Result<Preparation<'b>, KernelError>
    where
        'o: 'b,
    {
        let Tries { watch, given_up } = tries;
        let plan = Plan::new(&self.object, self.options, arena)?;
        watch(Step::Planned, arena);
        if !plan.asks_kernel() {
            return Ok(Preparation { prepared: plan.finish()?, modules: Modules::default() });
        }
        let mut btf = self.kernel.open().map_err(KernelError::Btf)?;
        if !btf.is_streamed() {
            let more = given_up.saturating_sub(arena.used());
            arena.scratch().slice::<u8>(more, Part::Scratch)?;
        }
        let types = btf.types(&plan, arena)?;
        watch(Step::Opened, arena);
        let mut search = plan.search(types, arena)?;
        watch(Step::Searched, arena);
        let modules = btf.modules(&search, &mut |name, why| watch(Step::ModuleSkipped(name, why), arena))?;
        modules.search(&mut search, arena, &mut |name, why, arena| watch(Step::ModuleSkipped(name, why), arena))?;
        let prepared = search.finish();
        watch(Step::Prepared, arena);
        Ok(Preparation { prepared, modules })
    }
}

/// A kernel's BTF, opened.
#[derive(Debug)]
pub struct BtfHandle<'k> {
    kernel: &'k Kernel<'k>,
    types: Pieces<'k>,
}

impl<'k> BtfHandle<'k> {
    /// Whether it is read piece by piece.
    #[must_use]
    pub fn is_streamed(&self) -> bool {
        matches!(self.types, Pieces::Streamed(_))
    }

    /// The types: all of them, or of BTF that is read piece by piece those that `plan` needs, in the arena.
    ///
    /// # Errors
    /// [`KernelError::Stream`], [`KernelError::Prepare`]
    pub fn types<'a>(&mut self, plan: &Plan<'_>, arena: &mut Arena<'a>) -> Result<Btf<'a>, KernelError>
    where
        'k: 'a,
    {
        if let Pieces::Whole(whole) = self.types {
            return Ok(Btf::parse(whole)?);
        }
        Ok(min_btf::stream(&mut self.types, plan.needs(), self.kernel.options.window, arena)?.btf()?)
    }

    /// The modules that may have what `search` still wants: [`Modules::search`] is for them. Where they cannot be listed
    /// there are none, and `skipped` hears why, under an empty name.
    ///
    /// # Errors
    /// [`KernelError::NeedsWhole`] where there are any and the kernel's BTF is read piece by piece, of which `skipped`
    /// hears for the first of them.
    pub fn modules(
        &mut self,
        search: &Search<'_>,
        skipped: &mut dyn FnMut(&str, ModuleError),
    ) -> Result<Modules<'k>, KernelError> {
        let source = self.kernel.options.modules;
        if !search.wants_modules() || source == ModuleSource::Files(&[]) {
            return Ok(Modules::default());
        }
        let modules = Modules::pick(&mut self.types, search, source).unwrap_or_else(|errno| {
            skipped("", ModuleError::List(errno));
            Modules::default()
        });
        match modules.names().get(1) {
            Some(name) if self.is_streamed() => {
                skipped(name, ModuleError::NeedsWhole);
                Err(KernelError::NeedsWhole)
            }
            _ => Ok(modules),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelo_core::arena::Part;

    #[test]
    fn a_buffer_that_is_too_small_is_grown_before_the_whole_is_read() {
        let full = KernelError::from(ArenaFull { wanted: 8, left: 0, part: Part::Queries });
        for (buffer_grows, access, error, takes_whole) in [
            (false, Access::Lean, full, true),
            (true, Access::Lean, full, false),
            (false, Access::Stream, full, false),
            (true, Access::Lean, KernelError::NeedsWhole, true),
            (true, Access::Stream, KernelError::NeedsWhole, true),
        ] {
            let kernel = Kernel::new(KernelOptions { access, buffer_grows, ..KernelOptions::RUNNING });
            assert!(!kernel.takes_whole_after(&error), "nothing was read piece by piece");
            kernel.is_streamed.set(true);
            assert_eq!(kernel.takes_whole_after(&error), takes_whole, "{buffer_grows}, {access:?}, {error}");
            assert_eq!(kernel.access.get() == Access::Whole, takes_whole);
        }
    }
}

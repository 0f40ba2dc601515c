//! From an object's bytes to what runs in the kernel, in one call.
//!
//! ```no_run
//! use corelo_loader::loader::{Error, Loader};
//! use corelo_loader::prepare::Kernel;
//!
//! # fn run(object: &[u8]) -> Result<(), Error> {
//! let kernel = Kernel::running(); // its BTF is mapped, or read piece by piece, once an object asks for it
//! let mut buffer = [0; 32 * 1024]; // `corelo budget` says how many bytes an object takes
//! let mut collection = Loader::new(object).global("min_ms", &20u64).load(&kernel, &mut buffer)?;
//! collection.attach_all()?;
//! let mut ring = collection.ring("events")?;
//! loop {
//!     ring.poll(None, |record| println!("{} bytes", record.len()))?;
//! }
//! # }
//! ```
//!
//! [`Loader`] takes what is to be other than the object says, goes the whole way, and gives a [`Collection`], which owns
//! every descriptor. The caller owns the object's bytes, the [`Kernel`] and the buffer: a collection borrows them, so that it
//! can be kept in a struct and returned from a function. What goes wrong is an [`Error`] that names it.
//!
//! The steps of which this is made can be taken one by one: [`prepare`](crate::prepare) and [`load`](crate::load).
//!
//! - `flow`: the one way, and what is said where it ends early
//! - `programs`: programs by name, and attaching them
//! - `maps`: maps by name, and what they hold as types
//! - `globals`: variables by name and as types
//! - `owned`: a collection that owns what it borrows from (feature `alloc`)
//! - `error`: what goes wrong, in words
//! - `names`: which names there are, those first that are most like another
//! - `text`: words in memory that is no heap

mod error;
mod flow;
mod globals;
mod maps;
mod names;
#[cfg(feature = "alloc")]
mod owned;
mod programs;
mod text;

use core::fmt;

use corelo_core::arena::Arena;
use corelo_core::prepare::Options as PrepareOptions;
use std::os::fd::BorrowedFd;
use zerocopy::{Immutable, IntoBytes};

use crate::load::{Autoload, Change, Collection, LoadError, LoadOptions, Setting, SettingError};
use crate::objects::Memlock;
use crate::prepare::{Kernel, Preparation, WarmStart};

pub use error::{Cause, Error};
pub use flow::Progress;
pub use globals::Global;
pub use maps::{CollectionMap, MapsOfMaps, ProgramArray};
#[cfg(feature = "alloc")]
pub use owned::{Buffer, OwnedCollection};
pub use programs::Program;

/// Settings that a loader has room for; more go in as a slice.
const ROOM: usize = 24;

/// Loads an object.
///
/// `'o` is how long the object's bytes are there, which the collection borrows; `'s` how long the settings are, which it does
/// not. Every method but [`Loader::load`] says what is to be other than the object says. Names that the object does not have are
/// refused when it is loaded.
#[derive(Clone)]
pub struct Loader<'o, 's> {
    object: &'o [u8],
    options: LoadOptions<'s>,
    prepare: PrepareOptions,
    settings: heapless::Vec<Setting<'s>, ROOM>,
    has_too_many: bool,
    log_limit: usize,
    warm: Option<&'o WarmStart<'o>>,
}

impl fmt::Debug for Loader<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("options", &self.options)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl<'o, 's> Loader<'o, 's> {
    /// A loader of the object that has these bytes: an ELF file of clang's or gcc's, of this machine's byte order.
    #[must_use]
    pub fn new(object: &'o [u8]) -> Self {
        Self {
            object,
            options: LoadOptions::new(b"object"),
            prepare: PrepareOptions::default(),
            settings: heapless::Vec::new(),
            has_too_many: false,
            log_limit: LOG_LIMIT,
            warm: None,
        }
    }

    /// The object's name, which the maps of its global data bear in the kernel: `agent` gives `agent.rodata`.
    #[must_use]
    pub fn name(mut self, name: &'s str) -> Self {
        self.options.name = name.as_bytes();
        self
    }

    fn set(mut self, name: &'s str, change: Change<'s>) -> Self {
        // Said when it is loaded, so that settings can be written one after the other.
        self.has_too_many |= self.settings.push(Setting { name, change }).is_err();
        self
    }

    /// Lets a global variable start with this value; for one that is `const` it is the only time (libbpf:
    /// `skel->rodata->x = ...`). The value is as large as the variable and lies as C lays it out.
    #[must_use]
    pub fn global<T: IntoBytes + Immutable + ?Sized>(self, name: &'s str, value: &'s T) -> Self {
        self.set(name, Change::Value(value.as_bytes()))
    }

    /// Gives a map so many entries; to a ring buffer, so many bytes.
    #[must_use]
    pub fn max_entries(self, map: &'s str, entries: u32) -> Self {
        self.set(map, Change::MaxEntries(entries))
    }

    /// Makes a map one of another type: [`map_type`](corelo_core::uapi::map_type).
    #[must_use]
    pub fn map_type(self, map: &'s str, map_type: u32) -> Self {
        self.set(map, Change::MapType(map_type))
    }

    /// Creates a map with these BPF_F_* flags.
    #[must_use]
    pub fn map_flags(self, map: &'s str, flags: u32) -> Self {
        self.set(map, Change::MapFlags(flags))
    }

    /// Takes this map instead of a new one.
    #[must_use]
    pub fn reuse_map(self, map: &'s str, with: BorrowedFd<'s>) -> Self {
        self.set(map, Change::Reuse(with))
    }

    /// Lets a map of maps whose definition has no inner map take maps like this one.
    #[must_use]
    pub fn inner_map(self, map: &'s str, like: BorrowedFd<'s>) -> Self {
        self.set(map, Change::InnerMap(like))
    }

    /// Whether a map is created, or a struct_ops table made. What uses a map that is not must be dead code.
    #[must_use]
    pub fn create_map(self, map: &'s str, is_created: bool) -> Self {
        self.set(map, Change::Create(is_created))
    }

    /// Does not load a program.
    #[must_use]
    pub fn skip(self, program: &'s str) -> Self {
        self.set(program, Change::Load(false))
    }

    /// Loads a program that would not be: one whose section starts with `?`, or any where [`Loader::autoload`] says none.
    #[must_use]
    pub fn want(self, program: &'s str) -> Self {
        self.set(program, Change::Load(true))
    }

    /// Treats a program as if it were in this section instead of its own: it is of that type, and attached there.
    #[must_use]
    pub fn section(self, program: &'s str, section: &'s str) -> Self {
        self.set(program, Change::Section(section))
    }

    /// Which programs are loaded that neither [`Loader::skip`] nor [`Loader::want`] names.
    #[must_use]
    pub fn autoload(mut self, autoload: Autoload) -> Self {
        self.options.autoload = autoload;
        self
    }

    /// Lets a `freplace` program replace a function of this loaded program.
    #[must_use]
    pub fn replace(self, program: &'s str, of: BorrowedFd<'s>) -> Self {
        self.set(program, Change::Replace(of))
    }

    /// How much the verifier says of a program that it refuses: 1 is what it says by default, 2 every state, 4 statistics.
    #[must_use]
    pub fn log_level(self, program: &'s str, level: u32) -> Self {
        self.set(program, Change::LogLevel(level))
    }

    /// Bytes that the verifier's log of a refused program may take, in private memory of its own; 0 for no log. 16 MiB
    /// where nobody says.
    #[must_use]
    pub fn log_limit(mut self, bytes: usize) -> Self {
        self.log_limit = bytes;
        self
    }

    /// Where maps are pinned whose definitions ask for it; `/sys/fs/bpf` where nobody says.
    #[must_use]
    pub fn pin_root(mut self, directory: &'s str) -> Self {
        self.options.pin_root = directory;
        self
    }

    /// Whether RLIMIT_MEMLOCK may be raised where an old kernel (before 5.11) asks for it.
    #[must_use]
    pub fn memlock(mut self, memlock: Memlock) -> Self {
        self.options.memlock = memlock;
        self
    }

    /// Maps of 0 entries get this many; without it the kernel refuses them.
    #[must_use]
    pub fn default_max_entries(mut self, entries: u32) -> Self {
        self.options.default_max_entries = Some(entries);
        self
    }

    /// Settings that are in a slice already. Those of the other methods count more.
    #[must_use]
    pub fn settings(mut self, settings: &'s [Setting<'s>]) -> Self {
        self.options.settings = settings;
        self
    }

    /// How densely types are indexed.
    #[must_use]
    pub fn prepare_options(mut self, options: PrepareOptions) -> Self {
        self.prepare = options;
        self
    }

    /// Prepares the object by what was kept of it ([`Collection::snapshot`]): no type of the kernel is visited.
    #[must_use]
    pub fn warm(mut self, warm: &'o WarmStart<'o>) -> Self {
        self.warm = Some(warm);
        self
    }

    /// Says what is wrong with the settings as a whole.
    fn refused(&self, error: SettingError) -> Error {
        let cause = Cause::Load(LoadError::Setting { index: self.settings.len(), error });
        Error::new(cause, |text| fmt::write(text, format_args!("{error}")))
    }

    /// Prepares it and no more: every relocation is decided, and what is left of `buffer` is there to link programs in. No
    /// system call is made but those for the kernel's BTF, and no setting is looked at.
    ///
    /// # Errors
    /// [`Error`] of the object, the kernel's BTF and the buffer.
    pub fn prepare<'b>(
        &self,
        kernel: &'b Kernel<'_>,
        buffer: &'b mut [u8],
    ) -> Result<(Preparation<'b>, Arena<'b>), Error>
    where
        'o: 'b,
    {
        self.prepare_watched(kernel, buffer, &mut |_| {})
    }

    /// As [`Loader::prepare`]; `watch` is called at every step on the way.
    ///
    /// # Errors
    /// The same.
    pub fn prepare_watched<'b>(
        &self,
        kernel: &'b Kernel<'_>,
        buffer: &'b mut [u8],
        watch: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(Preparation<'b>, Arena<'b>), Error>
    where
        'o: 'b,
    {
        flow::Load { loader: self, kernel, watch }.prepare(buffer)
    }

    /// Loads it: the object's BTF, maps and programs. Nothing is attached yet.
    ///
    /// All that is worked out lies in `buffer`, which `corelo budget` gives the size of. Where the kernel's BTF is read piece
    /// by piece and that turns out not to do, the work is done once more with the whole of it in memory.
    ///
    /// # Errors
    /// [`Error`]; nothing of the object stays in the kernel, nor pinned.
    pub fn load<'b>(&self, kernel: &'b Kernel<'_>, buffer: &'b mut [u8]) -> Result<Collection<'b>, Error>
    where
        'o: 'b,
    {
        self.load_watched(kernel, buffer, &mut |_| {})
    }

    /// As [`Loader::load`]; `watch` is called at every step on the way.
    ///
    /// # Errors
    /// The same.
    pub fn load_watched<'b>(
        &self,
        kernel: &'b Kernel<'_>,
        buffer: &'b mut [u8],
        watch: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Collection<'b>, Error>
    where
        'o: 'b,
    {
        flow::Load { loader: self, kernel, watch }.load(buffer)
    }
}

/// The most that a verifier's log takes.
const LOG_LIMIT: usize = 16 << 20;

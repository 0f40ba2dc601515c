//! Kernel modules: which of them may have what vmlinux lacks, and searching those, one in memory at a time.

use core::fmt;
use core::ops::ControlFlow;
use std::ffi::CStr;
use std::path::PathBuf;

use corelo_core::arena::{Arena, ArenaFull};
use corelo_core::min_btf::ModuleSieve;
use corelo_core::prepare::{PrepareError, Search};

use crate::kernel::btf::{self, KernelBtf, KernelBtfError, Pieces, StreamedBtf};
use crate::sys::Errno;
use crate::sys::list::Bytes;

/// Names of modules, by their numbers from 1.
#[derive(Clone, Copy, Default)]
pub struct ModuleNames<'n>(&'n [u8]);

impl<'n> ModuleNames<'n> {
    /// Of names that each end with a zero byte.
    #[must_use]
    pub const fn new(packed: &'n [u8]) -> Self {
        Self(packed)
    }

    /// The names, that of module 1 first.
    pub fn iter(self) -> impl Iterator<Item = &'n str> {
        self.0
            .split_inclusive(|&byte| byte == 0)
            .map(|name| CStr::from_bytes_until_nul(name).ok().and_then(|name| name.to_str().ok()).unwrap_or_default())
    }

    /// That of module `number`; `None` for 0, which is vmlinux.
    #[must_use]
    pub fn get(self, number: u16) -> Option<&'n str> {
        self.iter().nth(usize::from(number.checked_sub(1)?))
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for ModuleNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A module whose BTF is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFile {
    /// The module's name.
    pub name: String,
    /// Its BTF, split on the kernel's: as it is, or in an ELF file.
    pub path: PathBuf,
}

/// Where modules are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModuleSource<'p> {
    /// Those that are loaded.
    #[default]
    Running,
    /// The caller's, each of another name, and no others.
    Files(&'p [ModuleFile]),
}

/// Why a module is not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModuleError {
    /// Its BTF cannot be had.
    Btf(KernelBtfError),
    /// Its BTF is at fault.
    Prepare(PrepareError),
    /// It may have what is asked for, and the BTF that its own is split on is read piece by piece.
    NeedsWhole,
    /// This is about all of them: /sys/kernel/btf cannot be read, or there is no memory for their names.
    List(Errno),
}

impl fmt::Display for ModuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Btf(error) => error.fmt(f),
            Self::Prepare(error) => error.fmt(f),
            Self::NeedsWhole => f.write_str("searching it takes the kernel's BTF as a whole"),
            Self::List(errno) => write!(f, "modules cannot be listed: {errno}"),
        }
    }
}

impl core::error::Error for ModuleError {}

/// Why modules are not searched to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModulesError {
    /// One of the caller's [`ModuleSource::Files`].
    Module {
        /// Which of them.
        index: usize,
        /// What is wrong with it.
        error: ModuleError,
    },
    /// The arena is too small.
    Arena(ArenaFull),
    /// There is no memory for their names.
    Names(Errno),
}

impl fmt::Display for ModulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module { index, error } => write!(f, "module {index}: {error}"),
            Self::Arena(full) => full.fmt(f),
            Self::Names(errno) => write!(f, "no memory for the names of modules: {errno}"),
        }
    }
}

impl core::error::Error for ModulesError {}

/// The modules that may have what vmlinux lacks.
#[derive(Debug, Default)]
pub struct Modules<'p> {
    source: ModuleSource<'p>,
    /// Each with a zero byte behind it. Not in the arena, whose size would then depend on what modules are loaded.
    names: Bytes,
}

impl<'p> Modules<'p> {
    /// Picks those that have a name that `search` asks for. None of the BTF is in memory meanwhile; `kernel` is the one
    /// that the modules' are split on.
    ///
    /// # Errors
    /// That of reading /sys/kernel/btf, and ENOMEM.
    pub(crate) fn pick(kernel: &mut Pieces<'_>, search: &Search<'_>, source: ModuleSource<'p>) -> Result<Self, Errno> {
        let mut window = [0; btf::PIECE];
        // Made for the first module: it passes over all of the kernel's names.
        let (mut of_kernel, mut sieve) = (Some((kernel, &mut window)), None);
        let mut may_answer = |module: Result<StreamedBtf, KernelBtfError>| {
            if let Some((kernel, window)) = of_kernel.take() {
                // Where the kernel's names cannot be told, every module is searched: what is wrong is said then.
                sieve = ModuleSieve::new(kernel, search, window).ok();
            }
            match (&mut sieve, module) {
                (Some(sieve), Ok(module)) => sieve.may_answer(&mut Pieces::Streamed(module), search).unwrap_or(true),
                _ => true,
            }
        };
        let mut modules = Self { source, names: Bytes::new() };
        match source {
            ModuleSource::Files(files) => {
                for ModuleFile { name, path } in files {
                    // Names of a distilled base are in neither blob that would be looked through.
                    let has_own_base = !matches!(KernelBtf::base_in_file(path), Ok(None));
                    if has_own_base || may_answer(StreamedBtf::from_file(path)) {
                        modules.push(name)?;
                    }
                }
            }
            ModuleSource::Running => {
                let walked = btf::modules(|name| match may_answer(StreamedBtf::open_module(name)) {
                    true => match modules.push(name) {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(errno) => ControlFlow::Break(errno),
                    },
                    false => ControlFlow::Continue(()),
                })?;
                if let ControlFlow::Break(errno) = walked {
                    return Err(errno);
                }
            }
        }
        Ok(modules)
    }

    /// The same once more.
    pub(crate) fn try_clone(&self) -> Result<Self, ModulesError> {
        let mut names = Bytes::new();
        if !self.names.as_slice().is_empty() {
            names.extend(self.names.as_slice()).map_err(ModulesError::Names)?;
        }
        Ok(Self { source: self.source, names })
    }

    fn push(&mut self, name: &str) -> Result<(), Errno> {
        self.names.extend(name.as_bytes())?;
        self.names.extend(&[0])
    }

    /// Their names, as [`LoadOptions::modules`](crate::load::LoadOptions::modules) takes them.
    #[must_use]
    pub fn names(&self) -> ModuleNames<'_> {
        ModuleNames(self.names.as_slice())
    }

    /// Searches them, one in memory at a time. A loaded module that cannot be searched is none that has the type: it may
    /// have gone meanwhile. `skipped` hears of it, once.
    ///
    /// # Errors
    /// The arena is too small; or the index of a module of the caller's and what is wrong with it.
    pub fn search(
        &self,
        search: &mut Search<'_>,
        arena: &mut Arena<'_>,
        skipped: &mut dyn FnMut(&str, ModuleError, &Arena<'_>),
    ) -> Result<(), ModulesError> {
        // The first look tells which of several modules' types of one name to take: see `Search::weigh_module`.
        for is_second_look in [false, true] {
            for (number, name) in (1u16..).zip(self.names().iter()) {
                let looked = self.open(name).map_err(ModuleError::Btf).and_then(|(btf, distilled)| {
                    let distilled = distilled.as_deref();
                    let mut scratch = arena.scratch();
                    let looked = if is_second_look {
                        search.search_module(&btf, distilled, number, &mut scratch)
                    } else {
                        search.weigh_module(&btf, distilled, number, &mut scratch)
                    };
                    looked.map_err(ModuleError::Prepare)
                });
                match (looked, self.source) {
                    (Ok(()), _) => {}
                    (Err(ModuleError::Prepare(PrepareError::Arena(full))), _) => return Err(ModulesError::Arena(full)),
                    (Err(error), ModuleSource::Files(files)) => {
                        let index = files.iter().position(|file| file.name == name).unwrap_or_default();
                        return Err(ModulesError::Module { index, error });
                    }
                    (Err(error), ModuleSource::Running) if !is_second_look => skipped(name, error, arena),
                    (Err(_), ModuleSource::Running) => {}
                }
            }
        }
        Ok(())
    }

    /// A module's BTF, and the base that it brings. Of a loaded module the kernel has put it onto its own.
    fn open(&self, name: &str) -> Result<(KernelBtf, Option<KernelBtf>), KernelBtfError> {
        match self.source {
            ModuleSource::Running => Ok((KernelBtf::open_module(name)?, None)),
            ModuleSource::Files(files) => {
                let file = files.iter().find(|file| file.name == name).ok_or(KernelBtfError::Missing)?;
                Ok((KernelBtf::from_file(&file.path)?, KernelBtf::base_in_file(&file.path)?))
            }
        }
    }
}

//! What the caller wants other than the object says it: of a variable, a map or a program, by its name.

use core::fmt;
use std::os::fd::BorrowedFd;

use corelo_core::arena::Arena;
use corelo_core::object::section_name;
use corelo_core::object::{Map, MapOrigin};
use corelo_core::prepare::{Prepared, Sections};

use super::{LoadError, LoadOptions};

/// One thing that is to be other than the object says.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'o> {
    /// The name in the source of a variable, a map or a program, as `change` asks for it.
    pub name: &'o str,
    /// What is to be other.
    pub change: Change<'o>,
}

impl<'o> Setting<'o> {
    /// This change of what bears this name.
    #[must_use]
    pub const fn new(name: &'o str, change: Change<'o>) -> Self {
        Self { name, change }
    }
}

/// What is to be other than the object says. The functions named are libbpf's.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Change<'o> {
    /// A global variable starts with these bytes, in the machine's order (`bpf_map__set_initial_value`).
    Value(&'o [u8]),
    /// A map has this many entries (`bpf_map__set_max_entries`).
    MaxEntries(u32),
    /// A map is of this type (`bpf_map__set_type`).
    MapType(u32),
    /// A map is created with these BPF_F_* flags (`bpf_map__set_map_flags`).
    MapFlags(u32),
    /// This map is taken instead of a new one; its contents stay as they are (`bpf_map__reuse_fd`).
    Reuse(BorrowedFd<'o>),
    /// A map of maps whose definition has no inner map takes maps like this one (`bpf_map__set_inner_map_fd`).
    InnerMap(BorrowedFd<'o>),
    /// Whether a map is created (`bpf_map__set_autocreate`). Code that uses one that is not must be dead.
    Create(bool),
    /// Whether a program is loaded (`bpf_program__set_autoload`).
    Load(bool),
    /// A program is what this section name says, in place of its own: of that type, attached there, `fentry/do_exit` or `tc`
    /// (`bpf_program__set_type`, `bpf_program__set_expected_attach_type`, `bpf_program__set_attach_target`).
    Section(&'o str),
    /// A `freplace` program replaces a function of this program (`bpf_program__set_attach_target`).
    Replace(BorrowedFd<'o>),
    /// How much the verifier says of a program that it refuses: 1 by default, 2 with every state, 4 the statistics alone
    /// (`bpf_program__set_log_level`).
    LogLevel(u32),
}

/// Which programs are loaded, and struct_ops tables made, that no setting names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Autoload {
    /// Those whose section does not start with `?`.
    #[default]
    BySection,
    /// All.
    All,
    /// None.
    None,
}

/// Why a setting cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingError {
    /// The object has no global variable of the name.
    NoVariable,
    /// The object has no map of the name.
    NoMap,
    /// The object has no program of the name.
    NoProgram,
    /// The bytes given are not as many as the variable has.
    Size {
        /// Bytes of the variable.
        wanted: u32,
        /// Bytes given.
        given: usize,
    },
    /// No program type has sections of this name.
    UnknownSection,
    /// There are more than fit: a slice of settings takes any number.
    TooMany,
    /// A warm start is borrowed, and a collection that owns all it borrows from cannot own it.
    WarmStart,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVariable => f.write_str("the object has no global variable of this name"),
            Self::NoMap => f.write_str("the object has no map of this name"),
            Self::NoProgram => f.write_str("the object has no program of this name"),
            Self::Size { wanted, given } => write!(f, "it takes {wanted} bytes, and {given} were given"),
            Self::UnknownSection => f.write_str("no program type has sections of the name that is given"),
            Self::TooMany => f.write_str("more settings than fit: give them as a slice"),
            Self::WarmStart => f.write_str("a warm start is borrowed: load into a buffer of the caller's"),
        }
    }
}

impl core::error::Error for SettingError {}

impl<'o> LoadOptions<'o> {
    /// What was set of a name: what `of` takes out of the last setting that it knows.
    fn last<T>(&self, name: &[u8], of: fn(&Change<'o>) -> Option<T>) -> Option<T> {
        let mut named = self.settings().rev().filter(|setting| setting.name.as_bytes() == name);
        named.find_map(|setting| of(&setting.change))
    }

    /// All settings; those in [`LoadOptions::settings`] come before those in [`LoadOptions::more`].
    pub(super) fn settings(&self) -> impl DoubleEndedIterator<Item = &'o Setting<'o>> + Clone + use<'o> {
        self.settings.iter().chain(self.more)
    }

    pub(super) fn max_entries(&self, map: &[u8]) -> Option<u32> {
        self.last(map, |change| if let Change::MaxEntries(value) = change { Some(*value) } else { None })
    }

    pub(super) fn map_type(&self, map: &[u8]) -> Option<u32> {
        self.last(map, |change| if let Change::MapType(value) = change { Some(*value) } else { None })
    }

    pub(super) fn map_flags(&self, map: &[u8]) -> Option<u32> {
        self.last(map, |change| if let Change::MapFlags(value) = change { Some(*value) } else { None })
    }

    pub(super) fn reused(&self, map: &[u8]) -> Option<BorrowedFd<'o>> {
        self.last(map, |change| if let Change::Reuse(value) = change { Some(*value) } else { None })
    }

    pub(super) fn inner_map(&self, map: &[u8]) -> Option<BorrowedFd<'o>> {
        self.last(map, |change| if let Change::InnerMap(value) = change { Some(*value) } else { None })
    }

    pub(super) fn is_created(&self, map: &[u8]) -> Option<bool> {
        self.last(map, |change| if let Change::Create(value) = change { Some(*value) } else { None })
    }

    pub(super) fn replaced(&self, program: &[u8]) -> Option<BorrowedFd<'o>> {
        self.last(program, |change| if let Change::Replace(value) = change { Some(*value) } else { None })
    }

    pub(super) fn log_level(&self, program: &[u8]) -> u32 {
        self.last(program, |change| if let Change::LogLevel(level) = change { Some(*level) } else { None }).unwrap_or(1)
    }

    /// Whether a program is loaded, which is `by_default` where nobody says otherwise.
    pub(super) fn is_loaded(&self, program: &[u8], by_default: bool) -> bool {
        let said =
            self.last(program, |change| if let Change::Load(is_loaded) = change { Some(*is_loaded) } else { None });
        said.unwrap_or(self.by_default(by_default))
    }

    pub(super) fn by_default(&self, by_section: bool) -> bool {
        match self.autoload {
            Autoload::BySection => by_section,
            Autoload::All => true,
            Autoload::None => false,
        }
    }
}

/// The object with the sections that the settings give its programs.
pub(super) fn with_sections<'a>(
    prepared: &Prepared<'a>,
    options: &LoadOptions<'_>,
    arena: &mut Arena<'a>,
) -> Result<Prepared<'a>, LoadError> {
    let given = options.settings().filter_map(|setting| {
        let Change::Section(section) = setting.change else { return None };
        let mut programs = prepared.declared().programs();
        let named = programs.find(|(_, function)| prepared.function_name(function) == setting.name.as_bytes());
        Some((named?.1.symbol(), section.as_bytes()))
    });
    Ok(prepared.with_sections(Sections::new(given, arena)?))
}

/// Checks that every setting is of something that the object has.
pub(super) fn check(prepared: &Prepared<'_>, options: &LoadOptions<'_>) -> Result<(), LoadError> {
    for (index, setting) in options.settings().enumerate() {
        let name = setting.name.as_bytes();
        let error = match setting.change {
            Change::Value(bytes) => match prepared.variable(name).map_err(|error| LoadError::Prepare(error.into()))? {
                None => SettingError::NoVariable,
                Some(variable) if variable.byte_size as usize != bytes.len() => {
                    SettingError::Size { wanted: variable.byte_size, given: bytes.len() }
                }
                Some(_) => continue,
            },
            Change::Load(_) | Change::Replace(_) | Change::LogLevel(_) | Change::Section(_) => {
                let mut programs = prepared.declared().programs();
                let is_there = programs.any(|(_, function)| prepared.function_name(function) == name);
                let has_type = |section: &str| section_name::parse(section.as_bytes()).is_some();
                match setting.change {
                    _ if !is_there => SettingError::NoProgram,
                    Change::Section(section) if !has_type(section) => SettingError::UnknownSection,
                    _ => continue,
                }
            }
            Change::MaxEntries(_)
            | Change::MapType(_)
            | Change::MapFlags(_)
            | Change::Reuse(_)
            | Change::InnerMap(_)
            | Change::Create(_) => {
                let is_it = |map: &Map| map.origin() != MapOrigin::Inner && prepared.map_name(map) == name;
                if prepared.maps().iter().any(is_it) {
                    continue;
                }
                SettingError::NoMap
            }
        };
        return Err(LoadError::Setting { index, error });
    }
    Ok(())
}

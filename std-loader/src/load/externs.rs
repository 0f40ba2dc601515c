//! Externs: what the running kernel gives for what an object expects of it.
//!
//! Kernel variables and functions are found by core, in the one pass over the kernel's BTF; addresses come from
//! /proc/kallsyms, in one pass over that; configuration values from the kernel's configuration.

use core::fmt;

use corelo_core::arena::{Arena, ArenaFull, Part};
use corelo_core::btf::TypeId;
use corelo_core::object::{Extern, ExternId, ExternKind};
use corelo_core::prepare::{ExternMatch, Prepared};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::kernel::Features;
use crate::kernel::kallsyms::{self, Address, Found, KallsymsError};
use crate::kernel::kconfig::{self, KconfigError, Wanted};
use crate::objects::Memlock;
use crate::sys::Errno;

/// Why an extern has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExternError {
    /// The kernel has no variable or function of the name, and the extern is not weak.
    Missing,
    /// The kernel has it with another type than the object declares.
    OtherType(TypeId),
    /// It is in a module whose BTF cannot be had.
    ModuleBtf(Errno),
    /// The kernel has several symbols of the name at different addresses.
    Ambiguous(u64, u64),
    /// Addresses cannot be read.
    Kallsyms(KallsymsError),
    /// A configuration value cannot be had.
    Kconfig(KconfigError),
    /// The arena is too small.
    Arena(ArenaFull),
}

impl fmt::Display for ExternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the kernel does not have it, and it is not weak"),
            Self::OtherType(id) => write!(f, "the kernel has it as [{id}], of another type than declared"),
            Self::ModuleBtf(errno) => write!(f, "the BTF of its module cannot be had: {errno}"),
            Self::Ambiguous(first, second) => {
                write!(f, "the kernel has it at {first:#x} and at {second:#x}")
            }
            Self::Kallsyms(error) => error.fmt(f),
            Self::Kconfig(error) => error.fmt(f),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

impl core::error::Error for ExternError {}

/// An error, and the extern that it is about.
type Failed = (ExternId, ExternError);

/// What one extern is in the running kernel.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ExternValue {
    /// Address of an untyped kernel symbol; 0 for a weak one that is not there.
    pub address: u64,
    type_id: u32,
    module: u16,
    is_found: u16,
}

impl ExternValue {
    /// A kernel variable or function, which module number `module` has (0: vmlinux).
    pub(crate) fn of_type(id: TypeId, module: u16) -> Self {
        Self { address: 0, type_id: id.0, module, is_found: 1 }
    }

    /// The kernel variable or function.
    #[must_use]
    pub fn type_id(&self) -> Option<TypeId> {
        (self.type_id != 0).then_some(TypeId(self.type_id))
    }

    /// The module that has the kernel variable or function; 0 for vmlinux.
    #[must_use]
    pub fn module(&self) -> u16 {
        self.module
    }

    /// Whether the kernel has it.
    #[must_use]
    pub fn is_found(&self) -> bool {
        self.is_found != 0
    }
}

/// What all externs of an object are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Externs<'a> {
    values: &'a [ExternValue],
}

impl<'a> Externs<'a> {
    /// The value of an extern.
    #[must_use]
    pub fn get(&self, id: ExternId) -> Option<&'a ExternValue> {
        self.values.get(id.index())
    }

    /// Finds every extern but configuration values in the running kernel.
    ///
    /// # Errors
    /// The extern, and why it has no value.
    pub(crate) fn resolve(
        prepared: &Prepared<'a>,
        open_module: &mut dyn FnMut(u16) -> Result<(), Errno>,
        arena: &mut Arena<'a>,
    ) -> Result<Self, Failed> {
        let externs = prepared.declared().externs();
        let values = allocate(externs.len(), arena).map_err(no_room)?;
        for ((id, ext), value) in prepared.declared().externs_by_id().zip(&mut *values) {
            if !matches!(ext.kind(), ExternKind::TypedKsym | ExternKind::Kfunc) {
                continue;
            }
            let error = match prepared.extern_match(id) {
                ExternMatch::Found { id: found, module } => match open_module(module) {
                    Ok(()) => {
                        *value = ExternValue::of_type(found, module);
                        continue;
                    }
                    Err(errno) => ExternError::ModuleBtf(errno),
                },
                ExternMatch::Missing => ExternError::Missing,
                // As libbpf has it, a weak variable is refused for it and a weak function is taken as absent.
                ExternMatch::Incompatible { id: found, .. } if ext.kind() == ExternKind::TypedKsym => {
                    return Err((id, ExternError::OtherType(found)));
                }
                ExternMatch::Incompatible { id: found, .. } => ExternError::OtherType(found),
            };
            if !ext.is_weak() {
                return Err((id, error));
            }
        }
        resolve_addresses(prepared, values, &mut arena.scratch())?;
        Ok(Self { values })
    }

    /// Takes as much of the arena as [`Externs::resolve`].
    pub(crate) fn rehearse(prepared: &Prepared<'a>, arena: &mut Arena<'a>) -> Result<(), ArenaFull> {
        let externs = prepared.declared().externs();
        allocate(externs.len(), arena)?;
        let untyped = externs.iter().filter(|ext| ext.kind() == ExternKind::Ksym).count();
        arena.scratch().slice::<Found>(untyped, Part::Externs)?;
        Ok(())
    }
}

fn allocate<'a>(count: usize, arena: &mut Arena<'a>) -> Result<&'a mut [ExternValue], ArenaFull> {
    arena.slice::<ExternValue>(count, Part::Externs)
}

/// The extern of an index; there are fewer than 2^16.
fn nth(index: usize) -> ExternId {
    ExternId::new(index as u32)
}

fn no_room(full: ArenaFull) -> Failed {
    (ExternId::default(), ExternError::Arena(full))
}

/// Finds the addresses of all untyped symbols in one pass over /proc/kallsyms, which is not opened for none.
fn resolve_addresses(
    prepared: &Prepared<'_>,
    values: &mut [ExternValue],
    scratch: &mut Arena<'_>,
) -> Result<(), Failed> {
    let externs = prepared.declared().externs();
    let is_untyped = |ext: &&Extern| ext.kind() == ExternKind::Ksym;
    let first = externs.iter().position(|ext| is_untyped(&ext));
    let Some(first) = first else { return Ok(()) };
    let count = externs.iter().filter(is_untyped).count();
    // Externs are sorted by kind, then by name: the untyped ones stand together.
    let name = |index: usize| {
        let symbol = externs.get(first + index).map_or(0, Extern::symbol);
        prepared.object().symbol_name(symbol)
    };
    let found = scratch.slice::<Found>(count, Part::Externs).map_err(no_room)?;
    kallsyms::lookup_by(found, name).map_err(|error| (nth(first), ExternError::Kallsyms(error)))?;
    for (index, found) in found.iter().enumerate() {
        let id = nth(first + index);
        let (Some(value), Some(ext)) = (values.get_mut(id.index()), externs.get(id.index())) else { continue };
        match found.address() {
            Address::At(address) => (value.address, value.is_found) = (address, 1),
            Address::Missing if ext.is_weak() => {}
            Address::Missing => return Err((id, ExternError::Missing)),
            Address::Ambiguous(first, second) => return Err((id, ExternError::Ambiguous(first, second))),
        }
    }
    Ok(())
}

/// Writes all configuration values into `data`, the contents of the `.kconfig` map.
pub(crate) fn write_kconfig(prepared: &Prepared<'_>, data: &mut [u8], memlock: Memlock) -> Result<(), Failed> {
    let mut view = KconfigView { prepared, data };
    kconfig::fill(&mut view, &Features::new(memlock))
        .map_err(|error| (error.index().map_or(ExternId::default(), nth), ExternError::Kconfig(error)))
}

/// The configuration values among an object's externs: they are the first ones.
struct KconfigView<'v, 'a> {
    prepared: &'v Prepared<'a>,
    data: &'v mut [u8],
}

impl kconfig::Externs for KconfigView<'_, '_> {
    fn count(&self) -> usize {
        let externs = self.prepared.declared().externs();
        externs.iter().filter(|ext| ext.kind() == ExternKind::Kconfig).count()
    }

    fn wanted(&self, index: usize) -> Wanted<'_> {
        let Some(ext) = self.prepared.declared().external(nth(index)) else {
            return Wanted { name: b"", ty: None, is_weak: false };
        };
        let ty = self.prepared.local().and_then(|local| {
            let var = local.get(ext.type_id()).ok()?;
            kconfig::type_of(local, var.type_id())
        });
        Wanted { name: self.prepared.object().symbol_name(ext.symbol()), ty, is_weak: ext.is_weak() }
    }

    fn value(&mut self, index: usize) -> &mut [u8] {
        let range = self.prepared.declared().external(nth(index)).map(Extern::data_range).unwrap_or_default();
        let (start, len) = (range.byte_offset as usize, range.byte_size as usize);
        self.data.get_mut(start..start.saturating_add(len)).unwrap_or_default()
    }
}

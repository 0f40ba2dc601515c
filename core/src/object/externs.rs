//! Externs: what the program expects of the kernel: configuration values, variables, functions.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Object;
use super::error::ObjectError;
use crate::arena::{Arena, Part};
use crate::btf::{Kind, TypeId, Types};

/// What an extern stands for.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExternKind {
    /// A value of the kernel's configuration, or one that libbpf makes up (`LINUX_KERNEL_VERSION` and its like).
    Kconfig,
    /// The address of a kernel symbol, whatever its type (`extern const void`).
    Ksym,
    /// A kernel variable, found by its BTF.
    TypedKsym,
    /// A kernel function that programs may call.
    Kfunc,
}

/// An extern.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Extern {
    symbol: u32,
    type_id: u32,
    /// Bytes of a configuration value.
    byte_size: u32,
    /// Where a configuration value stands in the `.kconfig` map, in bytes.
    data_offset: u32,
    kind: u8,
    is_weak: u8,
    reserved: u16,
}

impl Extern {
    /// Its symbol's number.
    #[must_use]
    pub fn symbol(&self) -> u32 {
        self.symbol
    }

    /// The variable or function in the object's BTF.
    #[must_use]
    pub fn type_id(&self) -> TypeId {
        TypeId(self.type_id)
    }

    /// What it stands for.
    #[must_use]
    pub fn kind(&self) -> ExternKind {
        match self.kind {
            0 => ExternKind::Kconfig,
            1 => ExternKind::Ksym,
            2 => ExternKind::TypedKsym,
            _ => ExternKind::Kfunc,
        }
    }

    /// Whether the program can do without it: it reads 0, and a call of it is poisoned.
    #[must_use]
    pub fn is_weak(&self) -> bool {
        self.is_weak != 0
    }

    /// Where a configuration value stands in the `.kconfig` map, and how many bytes it has.
    #[must_use]
    pub fn data_range(&self) -> (u32, u32) {
        (self.data_offset, self.byte_size)
    }
}

/// Reads all externs.
pub(super) fn read<'buf>(
    object: &Object<'_>,
    local: Option<&Types<'_>>,
    arena: &mut Arena<'buf>,
) -> Result<&'buf [Extern], ObjectError> {
    let mut externs = arena.grow::<Extern>(Part::Externs);
    for symbol in object.elf().symbols() {
        let symbol = symbol?;
        if !symbol.is_extern() {
            continue;
        }
        let not_in_btf = ObjectError::ExternNotInBtf { symbol: symbol.index };
        let local = local.ok_or(not_in_btf)?;
        let type_id = find_extern(local, symbol.name())?.ok_or(not_in_btf)?;
        let ty = local.get(type_id)?;
        let kind = match section_of(local, type_id)? {
            Some(b".kconfig") => 0,
            Some(b".ksyms") if ty.kind() == Kind::Func => 3,
            // `extern const void` has no type to look for.
            Some(b".ksyms") if local.skip_modifiers(ty.type_id())?.kind() == Kind::Void => 1,
            Some(b".ksyms") => 2,
            _ => return Err(ObjectError::UnknownExternSection { symbol: symbol.index }),
        };
        let byte_size = if kind == 0 {
            local.byte_size(ty.type_id()).map_err(|_| ObjectError::BadKconfigType { symbol: symbol.index })?
        } else {
            0
        };
        if externs.len().saturating_add(1) >= usize::from(u16::MAX) {
            return Err(ObjectError::TooMany);
        }
        externs.push(Extern {
            symbol: symbol.index,
            type_id: type_id.0,
            byte_size,
            data_offset: 0,
            kind,
            is_weak: u8::from(symbol.is_weak()),
            reserved: 0,
        })?;
    }
    let externs = externs.finish()?;
    if let Some(local) = local {
        lay_out_kconfig(object, local, externs)?;
    }
    Ok(externs)
}

/// Gives configuration values their places: the widest alignment first, then the smaller, then by name (libbpf:
/// `cmp_externs`).
fn lay_out_kconfig(object: &Object<'_>, local: &Types<'_>, externs: &mut [Extern]) -> Result<(), ObjectError> {
    let alignment = |ext: &Extern| -> u32 {
        let element = local.get(ext.type_id()).and_then(|var| local.innermost_element(var.type_id()));
        element.map_or(1, |ty| ty.byte_size().clamp(1, 8))
    };
    externs.sort_unstable_by(|one, other| {
        (one.kind.cmp(&other.kind))
            .then_with(|| alignment(other).cmp(&alignment(one)))
            .then_with(|| one.byte_size.cmp(&other.byte_size))
            .then_with(|| object.symbol_name(one.symbol).cmp(object.symbol_name(other.symbol)))
    });
    let mut end = 0u32;
    for ext in externs.iter_mut().filter(|ext| ext.kind() == ExternKind::Kconfig) {
        let bad = ObjectError::BadKconfigType { symbol: ext.symbol };
        ext.data_offset = end.checked_next_multiple_of(alignment(ext)).ok_or(bad)?;
        end = ext.data_offset.checked_add(ext.byte_size).ok_or(bad)?;
    }
    Ok(())
}

/// Bytes of the `.kconfig` map; `None` where no extern needs it.
pub(super) fn kconfig_size(externs: &[Extern]) -> Option<u32> {
    externs
        .iter()
        .filter(|ext| ext.kind() == ExternKind::Kconfig)
        .map(|ext| ext.data_offset.saturating_add(ext.byte_size))
        .max()
}

fn find_extern(local: &Types<'_>, name: &[u8]) -> Result<Option<TypeId>, ObjectError> {
    const EXTERN: u32 = 2;
    for ty in local.btf().iter() {
        let ty = ty?;
        if matches!(ty.kind(), Kind::Var | Kind::Func) && ty.linkage() == EXTERN && local.string_is(ty.name_off(), name)
        {
            return Ok(Some(ty.id()));
        }
    }
    Ok(None)
}

/// The name of the `DATASEC` that lists a variable or function.
fn section_of<'l>(local: &Types<'l>, type_id: TypeId) -> Result<Option<&'l [u8]>, ObjectError> {
    for ty in local.btf().iter() {
        let ty = ty?;
        if ty.kind() == Kind::Datasec && ty.section_vars().any(|var| var.type_id == type_id) {
            return Ok(Some(local.name(&ty)?));
        }
    }
    Ok(None)
}

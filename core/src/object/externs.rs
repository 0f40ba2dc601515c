//! Externs: what the program expects of the kernel: configuration values, variables, functions.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Object;
use super::datasec::find_datasec;
use super::error::ObjectError;
use crate::arena::{Arena, Part};
use crate::btf::{Kind, TypeId, Types};
use crate::numbers::low_u8;
use crate::uapi::linkage;

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
    /// That of a configuration value, in bytes.
    alignment: u16,
}

/// Where something lies in the value of a map, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct DataRange {
    /// Where it starts.
    pub byte_offset: u32,
    /// How many it has.
    pub byte_size: u32,
}

impl Extern {
    /// Its symbol's index.
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
    pub fn data_range(&self) -> DataRange {
        DataRange { byte_offset: self.data_offset, byte_size: self.byte_size }
    }
}

/// [`Extern::kind`] where neither of the two sections below lists the extern.
const UNLISTED: u8 = u8::MAX;
const KCONFIG: u8 = 0;
const KSYMS: u8 = 1;

/// Reads all externs: by kind, then by name.
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
        if local.is_none() {
            return Err(ObjectError::ExternNotInBtf { symbol: symbol.index });
        }
        if externs.len().saturating_add(1) >= usize::from(u16::MAX) {
            return Err(ObjectError::TooMany);
        }
        externs.push(Extern {
            symbol: symbol.index,
            type_id: 0,
            byte_size: 0,
            data_offset: 0,
            kind: UNLISTED,
            is_weak: u8::from(symbol.is_weak()),
            alignment: 1,
        })?;
    }
    let externs = externs.finish()?;
    if let (Some(local), false) = (local, externs.is_empty()) {
        find_types(object, local, externs)?;
        find_sections(local, externs)?;
        externs.iter_mut().try_for_each(|ext| tell_kind(local, ext))?;
        lay_out_kconfig(object, externs)?;
    }
    Ok(externs)
}

/// The variables and functions of the externs' names (libbpf: `find_extern_btf_id`).
fn find_types(object: &Object<'_>, local: &Types<'_>, externs: &mut [Extern]) -> Result<(), ObjectError> {
    let mut next = 0usize;
    for ty in local.btf().iter() {
        let ty = ty?;
        if !matches!(ty.kind(), Kind::Var | Kind::Func) || ty.linkage() != linkage::EXTERN {
            continue;
        }
        let is_it = |ext: &Extern| ext.type_id == 0 && local.string_is(ty.name_off(), object.symbol_name(ext.symbol));
        if let Some(ext) = find_from(externs, &mut next, is_it) {
            ext.type_id = ty.id().0;
        }
    }
    Ok(())
}

/// The extern that `is_it` says yes to, looked for from index `next` on, which becomes the index behind it: symbols,
/// types and sections list them in much the same order.
fn find_from<'e>(
    externs: &'e mut [Extern],
    next: &mut usize,
    is_it: impl Fn(&Extern) -> bool,
) -> Option<&'e mut Extern> {
    for _ in 0..externs.len() {
        let at = Some(*next).filter(|&at| at < externs.len()).unwrap_or(0);
        *next = at.saturating_add(1);
        if externs.get(at).is_some_and(&is_it) {
            return externs.get_mut(at);
        }
    }
    None
}

/// Which of the two sections lists each (libbpf: `find_extern_sec_btf_id`).
fn find_sections(local: &Types<'_>, externs: &mut [Extern]) -> Result<(), ObjectError> {
    let mut next = 0usize;
    for (kind, name) in [(KCONFIG, &b".kconfig"[..]), (KSYMS, b".ksyms")] {
        let Some(section) = find_datasec(local, name)? else { continue };
        for var in section.section_vars() {
            if let Some(ext) = find_from(externs, &mut next, |ext| ext.type_id == var.type_id.0) {
                ext.kind = kind;
            }
        }
    }
    Ok(())
}

/// What an extern stands for, by its section and type.
fn tell_kind(local: &Types<'_>, ext: &mut Extern) -> Result<(), ObjectError> {
    if ext.type_id == 0 {
        return Err(ObjectError::ExternNotInBtf { symbol: ext.symbol });
    }
    let ty = local.get(ext.type_id())?;
    match ext.kind {
        KCONFIG => {
            let bad = |_| ObjectError::BadKconfigType { symbol: ext.symbol };
            ext.byte_size = local.byte_size(ty.type_id()).map_err(bad)?;
            let element = local.innermost_element(ty.type_id()).map_err(bad)?;
            ext.alignment = u16::from(low_u8(element.byte_size().clamp(1, 8)));
        }
        KSYMS if ty.kind() == Kind::Func => ext.kind = 3,
        // `extern const void` has no type to look for.
        KSYMS if local.skip_modifiers(ty.type_id())?.kind() == Kind::Void => {}
        KSYMS => ext.kind = 2,
        _ => return Err(ObjectError::UnknownExternSection { symbol: ext.symbol }),
    }
    Ok(())
}

/// Gives configuration values their places: the widest alignment first, then the smaller, then by name (libbpf:
/// `cmp_externs`).
fn lay_out_kconfig(object: &Object<'_>, externs: &mut [Extern]) -> Result<(), ObjectError> {
    externs.sort_unstable_by(|one, other| {
        let key = |ext: &Extern| [u32::from(ext.kind), u32::MAX.wrapping_sub(u32::from(ext.alignment)), ext.byte_size];
        key(one).cmp(&key(other)).then_with(|| object.symbol_name(one.symbol).cmp(object.symbol_name(other.symbol)))
    });
    let mut end = 0u32;
    for ext in externs.iter_mut().filter(|ext| ext.kind() == ExternKind::Kconfig) {
        let bad = ObjectError::BadKconfigType { symbol: ext.symbol };
        ext.data_offset = end.checked_next_multiple_of(u32::from(ext.alignment)).ok_or(bad)?;
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

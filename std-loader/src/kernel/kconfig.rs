//! The kernel's configuration as programs see it: `extern int CONFIG_HZ __kconfig`.
//!
//! The values are in /proc/config.gz where the kernel has it (CONFIG_IKCONFIG_PROC), else in /boot/config-RELEASE. Either is
//! read once, line by line, for all externs. Three names are no configuration but made up by the loader, as libbpf does:
//! `LINUX_KERNEL_VERSION`, `LINUX_HAS_BPF_COOKIE` and `LINUX_HAS_SYSCALL_WRAPPER`; without others, no file is looked for.
//!
//! Which value goes into which C type is libbpf's rule (`bpf_object__process_kconfig_line`): `y`, `n`, `m` into a bool, a char
//! or `enum libbpf_tristate`; numbers, also hexadecimal and negative, into integers that they fit; strings into char arrays.

mod text;
mod value;

use core::fmt;

use corelo_core::btf::{Kind, TypeId, Types};

pub use text::{ConfigFile, TextError, each};
pub use value::{KconfigType, ValueError, write};

use crate::kernel::features::{Feature, Features};
use crate::kernel::kallsyms::{self, KallsymsError};
use crate::sys::Errno;
use crate::sys::version::KernelVersion;

/// The most externs that one object may have.
pub const MAX_EXTERNS: usize = 4096;

/// One extern variable of the `.kconfig` section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Its name, `CONFIG_` or `LINUX_` at the start.
    pub name: &'a [u8],
    /// Its type, `None` where that is one no value fits in.
    pub ty: Option<KconfigType>,
    /// It stays 0 where the kernel has no such value.
    pub is_weak: bool,
}

/// The externs to fill: a slice of pairs, or a view of the caller's own tables.
pub trait Externs {
    /// How many.
    fn count(&self) -> usize;

    /// What the extern of a number (below [`count`](Externs::count)) is.
    fn wanted(&self, index: usize) -> Wanted<'_>;

    /// Where its value goes: as many bytes as its C type has, in the host's byte order.
    fn value(&mut self, index: usize) -> &mut [u8];
}

impl Externs for [(Wanted<'_>, &mut [u8])] {
    fn count(&self) -> usize {
        self.len()
    }

    fn wanted(&self, index: usize) -> Wanted<'_> {
        self[index].0
    }

    fn value(&mut self, index: usize) -> &mut [u8] {
        self[index].1
    }
}

/// Why something of the running kernel cannot be found out: that is neither yes nor no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unknown {
    /// `LINUX_KERNEL_VERSION`: /proc/version_signature is there and cannot be read.
    Version(Errno),
    /// `LINUX_HAS_BPF_COOKIE`: the kernel did not let us try.
    Cookie(Errno),
    /// `LINUX_HAS_SYSCALL_WRAPPER`: the names of the kernel's functions are not to be had.
    Wrapper(KallsymsError),
    /// A value of the configuration, whose file cannot be opened.
    Config(TextError),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unknown::Version(errno) => write!(f, "/proc/version_signature: {errno}"),
            Unknown::Cookie(errno) => write!(f, "whether the kernel has attach cookies cannot be tried: {errno}"),
            Unknown::Wrapper(error) => error.fmt(f),
            Unknown::Config(error) => error.fmt(f),
        }
    }
}

/// Why an extern has no value. `index` is its number in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KconfigError {
    /// There are more than [`MAX_EXTERNS`].
    TooMany,
    /// The configuration's file is there and cannot be read through.
    Text(TextError),
    /// Its value cannot be found out, and it is not weak.
    Unknown {
        /// Which.
        index: usize,
        /// Why.
        reason: Unknown,
    },
    /// There is neither /proc/config.gz nor /boot/config-RELEASE (or an empty one), and this extern is not weak.
    NoConfig {
        /// Which.
        index: usize,
    },
    /// The kernel's configuration does not have it, and it is not weak.
    Missing {
        /// Which.
        index: usize,
    },
    /// Its name starts with neither `CONFIG_` nor `LINUX_`, or is a strong `LINUX_` one that nobody knows.
    UnknownName {
        /// Which.
        index: usize,
    },
    /// The value and the C type do not go together.
    Value {
        /// Which.
        index: usize,
        /// Why.
        error: ValueError,
    },
    /// The running kernel's version is not to be found out.
    NoVersion {
        /// Which.
        index: usize,
    },
}

impl KconfigError {
    /// The number of the extern in question, where it is about one.
    #[must_use]
    pub fn index(&self) -> Option<usize> {
        match *self {
            KconfigError::TooMany | KconfigError::Text(_) => None,
            KconfigError::Unknown { index, .. }
            | KconfigError::NoConfig { index }
            | KconfigError::Missing { index }
            | KconfigError::UnknownName { index }
            | KconfigError::Value { index, .. }
            | KconfigError::NoVersion { index } => Some(index),
        }
    }
}

impl fmt::Display for KconfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KconfigError::TooMany => write!(f, "more than {MAX_EXTERNS} externs"),
            KconfigError::Text(error) => error.fmt(f),
            // Which extern it is, `index` says; whoever has the object says its name.
            KconfigError::Unknown { reason, .. } => write!(f, "it is not weak, and {reason}"),
            KconfigError::NoConfig { .. } => {
                f.write_str("it is not weak, and there is neither /proc/config.gz nor /boot/config-RELEASE")
            }
            KconfigError::Missing { .. } => {
                f.write_str("it is not weak, and the kernel's configuration does not have it")
            }
            KconfigError::UnknownName { .. } => f.write_str("it is neither a CONFIG_ value nor a known LINUX_ one"),
            KconfigError::Value { error, .. } => error.fmt(f),
            KconfigError::NoVersion { .. } => f.write_str("the kernel's version cannot be found out"),
        }
    }
}

impl core::error::Error for KconfigError {}

/// The C type of an extern variable, as far as values fit in it: libbpf's `find_kcfg_type`. `id` is the variable's type.
#[must_use]
pub fn type_of(types: &Types<'_>, id: TypeId) -> Option<KconfigType> {
    let ty = types.skip_modifiers(id).ok()?;
    match ty.kind() {
        Kind::Int if ty.int_encoding() & 4 != 0 => (ty.byte_size() == 1).then_some(KconfigType::Bool),
        Kind::Int => match ty.byte_size() {
            1 => Some(KconfigType::Char { is_signed: ty.is_signed_int() }),
            2 | 4 | 8 => Some(KconfigType::Integer { is_signed: ty.is_signed_int() }),
            _ => None,
        },
        Kind::Enum | Kind::Enum64 => (matches!(ty.byte_size(), 4 | 8)
            && types.name(&ty).is_ok_and(|name| name == b"libbpf_tristate"))
        .then_some(KconfigType::Tristate),
        Kind::Array => {
            let array = ty.array()?;
            let is_char = matches!(type_of_element(types, array.element), Some(KconfigType::Char { .. }));
            (array.len > 0 && is_char).then_some(KconfigType::CharArray)
        }
        _ => None,
    }
}

/// The element of an array, one level deep: arrays of arrays take no value.
fn type_of_element(types: &Types<'_>, id: TypeId) -> Option<KconfigType> {
    let element = types.skip_modifiers(id).ok()?;
    (element.kind() == Kind::Int).then(|| type_of(types, element.id()))?
}

/// One bit per extern.
struct Bits([u64; MAX_EXTERNS / 64]);

impl Bits {
    fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 != 0
    }

    fn set(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }
}

/// Fills all externs from the running kernel. Weak ones that it does not have, or that cannot be found out, get 0.
///
/// # Errors
/// [`KconfigError`]; some values may be written then.
pub fn fill(externs: &mut (impl Externs + ?Sized), features: &Features) -> Result<(), KconfigError> {
    fill_from(externs, &Running(features), text::each)
}

/// What is asked of the running kernel for the made-up externs; one call each and only where one is wanted.
trait Virtual {
    fn version(&self) -> Result<KernelVersion, Errno>;
    fn has_bpf_cookie(&self) -> Result<bool, Errno>;
    fn has_syscall_wrapper(&self) -> Result<bool, KallsymsError>;
}

struct Running<'f>(&'f Features);

impl Virtual for Running<'_> {
    fn version(&self) -> Result<KernelVersion, Errno> {
        KernelVersion::find()
    }

    fn has_bpf_cookie(&self) -> Result<bool, Errno> {
        self.0.get(Feature::BpfCookie).known()
    }

    fn has_syscall_wrapper(&self) -> Result<bool, KallsymsError> {
        kallsyms::has_syscall_wrapper()
    }
}

fn fill_from<E: Externs + ?Sized>(
    externs: &mut E,
    kernel: &impl Virtual,
    text: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<Option<ConfigFile>, TextError>,
) -> Result<(), KconfigError> {
    let count = externs.count();
    if count > MAX_EXTERNS {
        return Err(KconfigError::TooMany);
    }
    let mut done = Bits([0; MAX_EXTERNS / 64]);
    let mut left = 0;
    for index in 0..count {
        externs.value(index).fill(0);
        let wanted = externs.wanted(index);
        if wanted.name.starts_with(b"CONFIG_") {
            left += 1;
            continue;
        }
        let value = match wanted.name {
            b"LINUX_KERNEL_VERSION" => match kernel.version() {
                Ok(KernelVersion(0)) => return Err(KconfigError::NoVersion { index }),
                version => version.map(|version| u64::from(version.0)).map_err(Unknown::Version),
            },
            b"LINUX_HAS_BPF_COOKIE" => kernel.has_bpf_cookie().map(u64::from).map_err(Unknown::Cookie),
            b"LINUX_HAS_SYSCALL_WRAPPER" => kernel.has_syscall_wrapper().map(u64::from).map_err(Unknown::Wrapper),
            // A later loader may know it.
            name if name.starts_with(b"LINUX_") && wanted.is_weak => Ok(0),
            _ => return Err(KconfigError::UnknownName { index }),
        };
        let value = match value {
            Ok(value) => value,
            Err(_) if wanted.is_weak => 0,
            Err(reason) => return Err(KconfigError::Unknown { index, reason }),
        };
        let ty = wanted.ty;
        value::write_number(ty, value, externs.value(index)).map_err(|error| KconfigError::Value { index, error })?;
    }
    if left == 0 {
        return Ok(());
    }
    let mut failed = None;
    let read = text(&mut |name, value| {
        if left == 0 || failed.is_some() {
            return;
        }
        for index in 0..count {
            let wanted = externs.wanted(index);
            // The first line of a name counts.
            if wanted.name != name || done.has(index) {
                continue;
            }
            let ty = wanted.ty;
            if let Err(error) = value::write(ty, value, externs.value(index)) {
                failed = Some(KconfigError::Value { index, error });
                return;
            }
            done.set(index);
            left -= 1;
        }
    });
    let file = match read {
        Err(error @ TextError::Open { .. }) => Err(Unknown::Config(error)),
        read => Ok(read.map_err(KconfigError::Text)?),
    };
    if let Some(error) = failed {
        return Err(error);
    }
    let unset = (0..count).find(|index| {
        let wanted = externs.wanted(*index);
        wanted.name.starts_with(b"CONFIG_") && !wanted.is_weak && !done.has(*index)
    });
    match (unset, file) {
        (None, _) => Ok(()),
        (Some(index), Err(reason)) => Err(KconfigError::Unknown { index, reason }),
        (Some(index), Ok(None)) => Err(KconfigError::NoConfig { index }),
        (Some(index), Ok(Some(_))) => Err(KconfigError::Missing { index }),
    }
}

#[cfg(test)]
mod tests;

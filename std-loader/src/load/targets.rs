//! Attach targets of sections that are given at run time: what the kernel was not asked with everything else.

use corelo_core::btf::{Btf, BtfError, Kind};
use corelo_core::object::ProgramId;
use corelo_core::object::section_name::AttachBtf;
use corelo_core::prepare::PrepareError;

use super::LoadError;
use crate::kernel::KernelBtf;
use crate::sys::Errno;

/// The id of a target in the running kernel's BTF, which is opened for it: mapped, or in memory for as long as this takes.
/// It is looked for in vmlinux alone.
pub(super) fn find(program: ProgramId, wanted: &AttachBtf<'_>) -> Result<u32, LoadError> {
    let missing = LoadError::MissingTarget { function: program };
    if wanted.module.is_some_and(|module| module != b"vmlinux") {
        return Err(LoadError::ModuleBtf { function: program, errno: Errno::EOPNOTSUPP });
    }
    let btf = KernelBtf::open().map_err(|error| LoadError::TargetBtf { function: program, error })?;
    let found = find_in(&btf, wanted.kind, wanted.prefix.bytes(), wanted.name);
    found.map_err(|error| LoadError::Prepare(PrepareError::Kernel(error)))?.ok_or(missing)
}

/// The id of the type of this kind whose name is `prefix` and `name`.
pub(super) fn find_in(bytes: &[u8], kind: Kind, prefix: &[u8], name: &[u8]) -> Result<Option<u32>, BtfError> {
    let blob = Btf::parse(bytes)?;
    let is_named = |offset: u32| {
        let text = blob.strings().get(offset as usize..).unwrap_or_default();
        let rest = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    };
    for ty in blob.iter() {
        let ty = ty?;
        if ty.kind() == kind && is_named(ty.name_off()) {
            return Ok(Some(ty.id().0));
        }
    }
    Ok(None)
}

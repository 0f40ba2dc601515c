//! Files of the user's.

use std::path::Path;

use corelo_loader::kernel::{KernelBtf, KernelBtfError};
use corelo_loader::prepare::ObjectFile;

use crate::failure::Failure;

/// An object's file, in memory.
pub(crate) fn read_file(path: &Path) -> Result<ObjectFile, Failure> {
    ObjectFile::read(path).map_err(|error| Failure::Input(format!("cannot read {}: {error}", path.display())))
}

/// BTF of a file of the user's.
pub(crate) fn read_btf(path: &Path) -> Result<KernelBtf, Failure> {
    KernelBtf::from_file(path).map_err(|error| unreadable(path, error))
}

pub(crate) fn unreadable(path: &Path, error: KernelBtfError) -> Failure {
    let text = match error {
        KernelBtfError::Open(errno) | KernelBtfError::Read(errno) => format!("cannot read: {errno}"),
        other => other.to_string(),
    };
    Failure::Input(format!("{}: {text}", path.display()))
}

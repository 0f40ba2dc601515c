//! `corelo btf`: types as text.

use std::fmt::Write as _;

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::raw::{self, DumpError};
use corelo_core::btf::split::{RebaseError, rebase};
use corelo_core::btf::{Btf, BtfError, DEFAULT_STRIDE, Types};

use corelo_loader::kernel::KernelBtf;

use crate::args::Options;
use crate::buffer::with_buffer;
use crate::failure::Failure;
use crate::input::{read_btf, unreadable};
use crate::output::Out;

/// `corelo btf dump`
pub(crate) fn dump(options: &Options) -> Result<(), Failure> {
    with_types(options, |types, out| {
        raw::dump(types, out).or_else(|error| match error {
            DumpError::Btf(error) => Err(error),
            // The writer keeps its own error.
            DumpError::Write => Ok(()),
        })
    })
}

/// `corelo btf find`
pub(crate) fn find(options: &Options) -> Result<(), Failure> {
    let mut has_found = false;
    with_types(options, |types, out| {
        for ty in types.btf().iter() {
            let ty = ty?;
            if types.is_called(&ty, options.name.as_bytes())? {
                has_found = true;
                if raw::write_type(types, &ty, out).and_then(|()| out.write_char('\n')).is_err() {
                    break;
                }
            }
        }
        Ok(())
    })?;
    if has_found {
        return Ok(());
    }
    Err(Failure::Job(format!("{}: no type is called {}", options.file.display(), options.name)))
}

fn with_types(
    options: &Options,
    mut job: impl FnMut(&Types<'_>, &mut Out) -> Result<(), BtfError>,
) -> Result<(), Failure> {
    let blob = read_btf(&options.file)?;
    let distilled = KernelBtf::base_in_file(&options.file).map_err(|error| unreadable(&options.file, error))?;
    let base_blob = options.base.as_deref().map(read_btf).transpose()?;
    let failure = |error: BtfError| match error {
        BtfError::Arena(full) => Failure::Arena(full),
        error => Failure::Input(format!("{}: {error}", options.file.display())),
    };
    with_buffer(options.arena, |buffer| {
        let mut arena = Arena::new(buffer);
        // A module that brings its own base and no other is given stands on that.
        let base = match base_blob.as_ref().or(distilled.as_ref()) {
            Some(base) => {
                let btf = Btf::parse(base).map_err(failure)?;
                Some(Types::index(btf, DEFAULT_STRIDE, None, &mut arena, Part::KernelIndex).map_err(failure)?)
            }
            None => None,
        };
        let mut arena = arena.scratch();
        let btf = match (&base, &distilled) {
            (Some(base), Some(distilled)) if base_blob.is_some() => {
                let moved = rebase(&blob, distilled, base, &mut arena).map_err(|error| match error {
                    RebaseError::Arena(full) => Failure::Arena(full),
                    error => Failure::Input(format!("{}: .BTF.base: {error}", options.file.display())),
                })?;
                Btf::parse_split(moved.blob, base)
            }
            (Some(base), _) => Btf::parse_split(&blob, base),
            (None, _) => Btf::parse(&blob),
        }
        .map_err(failure)?;
        let types = Types::index(btf, DEFAULT_STRIDE, base.as_ref(), &mut arena, Part::KernelIndex).map_err(failure)?;
        let mut out = Out::new();
        job(&types, &mut out).map_err(failure)?;
        out.flush()
    })
}

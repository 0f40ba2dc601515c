//! An object's maps and programs in the kernel, for `load` and `run`.

use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use corelo_core::prepare::Prepared;
use corelo_loader::load::{Change, Collection, LoadError, PIN_ROOT, Setting};
use corelo_loader::loader::Loader;
use corelo_loader::objects::pin::open_program;
use corelo_loader::objects::program_by_id;
use corelo_loader::report::LoadReport;

use crate::args::Options;
use crate::failure::Failure;
use crate::prepare::{KernelSource, Watch};

/// The name of an object for its maps of global data: its file's up to the first dot, so that `monitor.bpf.o` gives
/// `monitor.rodata` (libbpf: `bpf_object__new`).
pub(crate) fn object_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// The programs that the command line names with what is wanted of them, the targets opened.
#[derive(Debug)]
pub(crate) struct Named<'o> {
    skipped: &'o [String],
    replacing: Vec<(&'o str, OwnedFd)>,
}

impl<'o> Named<'o> {
    pub(crate) fn open(options: &'o Options) -> Result<Self, Failure> {
        let open = |(program, target): &'o (String, String)| Ok((program.as_str(), open(program, target)?));
        Ok(Self {
            skipped: &options.skip,
            replacing: options.replace.iter().map(open).collect::<Result<_, Failure>>()?,
        })
    }

    /// What the loader is told of them.
    pub(crate) fn settings(&self) -> Vec<Setting<'_>> {
        let skipped = self.skipped.iter().map(|program| Setting::new(program, Change::Load(false)));
        let replacing = self.replacing.iter().map(|(program, of)| Setting::new(program, Change::Replace(of.as_fd())));
        skipped.chain(replacing).collect()
    }
}

/// The program that `--replace PROGRAM=TARGET` names, which `program` is to replace a function of.
fn open(program: &str, target: &str) -> Result<OwnedFd, Failure> {
    let failed = |error: &dyn Display| Failure::Input(format!("--replace {program}={target}: {error}"));
    match target.strip_prefix("id:") {
        Some(id) => {
            let id = id.parse().map_err(|_| failed(&"not the number of a program"))?;
            program_by_id(id).map_err(|errno| failed(&errno))
        }
        None => open_program(Path::new(target)).map_err(|error| failed(&error)),
    }
}

/// Creates the maps and loads the programs of the object in `bytes`, which came from `file`.
pub(crate) fn load<'b>(
    (bytes, file, name): (&'b [u8], &str, &'b str),
    settings: &'b [Setting<'b>],
    source: &'b KernelSource<'_>,
    watch: &Watch<'_>,
    buffer: &'b mut [u8],
) -> Result<Collection<'b>, Failure> {
    let loader = Loader::new(bytes).name(name).settings(settings);
    let loaded = loader.load_watched(source.kernel(), buffer, &mut |progress| watch.see(progress));
    loaded.map_err(|error| source.failure(&error, file))
}

/// A failure of a rehearsal, in words.
pub(crate) fn failure(prepared: &Prepared<'_>, file: &str, error: LoadError) -> Failure {
    match error {
        LoadError::Arena(full) => Failure::Arena(full),
        error => Failure::Job(format!("{file}: {}", LoadReport { prepared, error, pin_root: PIN_ROOT })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_libbpf_names_them() {
        for (file, name) in [("monitor.bpf.o", "monitor"), ("/a.b/x.o", "x"), ("plain", "plain"), (".hidden.o", "")] {
            assert_eq!(object_name(Path::new(file)), name, "{file}");
        }
    }
}

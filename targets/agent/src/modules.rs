//! Modules: which of them may have what the kernel lacks, and searching those.

use std::ops::ControlFlow;

use corelo_core::arena::Arena;
use corelo_core::btf::BtfError;
use corelo_core::prepare::{PrepareError, Searched};
use corelo_core::tailor::{ModuleSieve, Source};
use corelo_loader::kernel::{self, KernelBtf, StreamedBtf};

use crate::args::Options;
use crate::failure::Failure;
use crate::input::read_btf;

/// Bytes of the window through which modules are looked at.
const WINDOW: usize = 16 << 10;

/// The modules to be searched, by their numbers from 1.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    list: Vec<Module>,
    /// The user named them: what is wrong with one is an error. The running kernel's may come and go.
    are_given: bool,
}

/// A module by its name, and the file that the user says its BTF is in.
#[derive(Debug)]
struct Module {
    name: String,
    file: Option<std::path::PathBuf>,
}

impl Modules {
    /// Those that the user named, or else those of the running kernel, which do not go with another kernel's BTF.
    pub(crate) fn of(options: &Options) -> Self {
        let are_given = !options.module_btf.is_empty() || options.btf.is_some();
        let mut list: Vec<Module> = options
            .module_btf
            .iter()
            .map(|(name, file)| Module { name: name.clone(), file: Some(file.clone()) })
            .collect();
        if !are_given {
            let walked = kernel::modules(|name| {
                list.push(Module { name: name.to_owned(), file: None });
                ControlFlow::<()>::Continue(())
            });
            if let Err(errno) = walked {
                eprintln!("corelo: note: modules are not searched: /sys/kernel/btf: {errno}");
            }
        }
        Self { list, are_given }
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.list.iter().map(|module| module.name.as_str()).collect()
    }

    /// Drops those that have no name that is asked for. No BTF is in memory meanwhile, `kernel` the one that the modules'
    /// are split on.
    pub(crate) fn sift<S: Source>(&mut self, kernel: S, searched: &Searched<'_>) {
        if self.list.is_empty() {
            return;
        }
        // Not of the arena, whose size would then depend on what modules are there.
        let mut window = [0; WINDOW];
        // What cannot be told here is told by the search.
        let Ok(mut sieve) = ModuleSieve::new(kernel, searched, &mut window) else { return };
        self.list.retain(|module| {
            let streamed = match &module.file {
                Some(file) => StreamedBtf::from_file(file),
                None => StreamedBtf::open_module(&module.name),
            };
            streamed.map_or(true, |streamed| sieve.may_answer(streamed, searched).unwrap_or(true))
        });
    }

    /// Searches them, one in memory at a time.
    pub(crate) fn search(&self, searched: &mut Searched<'_>, arena: &mut Arena<'_>) -> Result<(), Failure> {
        for is_second_look in [false, true] {
            for (number, Module { name, file }) in (1u16..).zip(&self.list) {
                let note = |error: &dyn std::fmt::Display| {
                    if !is_second_look {
                        eprintln!("corelo: note: module {name} is not searched: {error}");
                    }
                };
                let btf = match file {
                    Some(file) => read_btf(file)?,
                    None => match KernelBtf::open_module(name) {
                        Ok(btf) => btf,
                        Err(error) => {
                            note(&error);
                            continue;
                        }
                    },
                };
                let mut scratch = arena.scratch();
                let looked = if is_second_look {
                    searched.search_module(&btf, number, &mut scratch)
                } else {
                    searched.weigh_module(&btf, number, &mut scratch)
                };
                match looked {
                    Ok(()) => {}
                    Err(PrepareError::Arena(full) | PrepareError::Kernel(BtfError::Arena(full))) => {
                        return Err(full.into());
                    }
                    Err(error) if self.are_given => return Err(Failure::Input(format!("module {name}: {error}"))),
                    Err(error) => note(&error),
                }
            }
        }
        Ok(())
    }
}

//! What the running kernel is and has: its BTF and that of its modules, its symbols, its configuration, what it knows.
//!
//! Whatever has to be tried to be known ([`Features`]) is tried with maps and programs, so this wing stands on
//! [`objects`](crate::objects).

pub(crate) mod btf;
pub(crate) mod features;
pub mod kallsyms;
pub mod kconfig;
pub mod lockdown;
pub(crate) mod modules;

pub use crate::sys::cpus::{Cpus, possible_cpus};
pub use crate::sys::version::KernelVersion;
pub use btf::{KernelBtf, KernelBtfError, LeanBtf, Source, StreamedBtf, btf_object, modules};
pub use features::{Feature, Features, Support};
pub use modules::{ModuleError, ModuleFile, ModuleNames, ModuleSource, Modules, ModulesError};

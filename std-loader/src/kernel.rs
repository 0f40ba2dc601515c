//! What the running kernel is and has: its BTF and that of its modules, its symbols, its configuration, what it knows.
//!
//! Whatever has to be tried to be known ([`Features`]) is tried with maps and programs, so this wing stands on
//! [`objects`](crate::objects).
//!
//! - `btf`: the kernel's BTF ([`KernelBtf`]): mapped where the kernel allows it, else read, whole or piece by piece
//! - `modules`: which modules may have what the kernel lacks ([`Modules`]), and searching those one at a time
//! - `features`: what the kernel knows ([`Feature`]), tried once at most
//! - [`kallsyms`]: addresses of kernel symbols, many in one pass
//! - [`kconfig`]: values of the kernel's configuration for `extern ... __kconfig`
//! - [`lockdown`]: what the kernel's lockdown forbids
//!
//! Which kernel this is ([`KernelVersion`]) and its CPUs ([`Cpus`]) are read in [`sys`](crate::sys), whose safety needs both.

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

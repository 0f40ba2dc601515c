//! Corelo loader: what `corelo-core` prepares, in the kernel.
//!
//! `corelo-core` decides everything about types and never makes a system call; this crate makes the system calls and
//! decides nothing about types. It finds the kernel's BTF, owns the descriptors, and hands bytes to and fro.
//!
//! ```text
//! object_file    an object's file in memory, with a limit
//! prepare        an object brought together with the BTF of a kernel, in the way that takes the least memory
//! kernel         the kernel's BTF: mapped where the kernel allows it, else read, whole or piece by piece
//! modules        which modules may have what the kernel lacks, and searching those one at a time
//! version, cpus  which kernel this is, how many CPUs
//! maps           creation with what old kernels need; access by bytes or plain-old-data types
//! programs       BTF and programs loaded, with a verifier log only after a failure; test runs
//! links          attachment, one file for each kind of target; dropping a link detaches
//! ring_buffer    records of BPF ring buffers, read where they lie
//! perf_buffer    records of per-CPU perf rings, for older kernels and programs
//! report         ids to names: what went wrong, in one line
//! features       what the kernel knows, tried when something was refused and once at most
//! kallsyms       addresses of kernel symbols, many in one pass
//! kconfig        values of the kernel's configuration for `extern ... __kconfig`
//! symbols        functions of programs and libraries, for uprobes
//! bump           a `bumpalo::Bump` as the arena's buffer (feature `bumpalo`)
//! pin            names on a bpf file system, and maps shared between loaders
//! sys            bpf(2), perf_event_open(2), mappings: the only `unsafe` of the workspace's libraries
//! ```
//!
//! # From an object to its records
//!
//! ```no_run
//! use std::os::fd::AsFd;
//!
//! use corelo_core::arena::Arena;
//! use corelo_core::object::Object;
//! use corelo_core::prepare::Options;
//! use corelo_loader::load::{Collection, LoadOptions};
//! use corelo_loader::prepare::{Kernel, KernelOptions};
//! use corelo_loader::programs::GrowingLog;
//! use corelo_loader::ring_buffer::RingBuffer;
//!
//! fn watch(file: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut buffer = [0u8; 32 * 1024]; // `corelo budget` says how many bytes an object needs
//!     let mut arena = Arena::new(&mut buffer);
//!     let kernel = Kernel::new(KernelOptions::RUNNING); // its BTF is mapped, or read piece by piece, once asked for
//!     let object = Object::parse(file)?;
//!     let made = kernel.prepare(&object, Options::default(), &mut arena)?;
//!     let options = LoadOptions { modules: made.modules.names(), ..LoadOptions::new(b"agent") };
//!     let mut collection = Collection::create(&made.prepared, &options, &mut arena)?;
//!     collection.load_programs(&options, &mut arena, &mut GrowingLog::new(64 << 10, 16 << 20))?;
//!     let mut links = Vec::new(); // dropping a link detaches
//!     for (number, _) in made.prepared.declared().programs() {
//!         links.extend(collection.attach(number)?);
//!     }
//!     let mut ring = RingBuffer::new(collection.map("events")?.as_fd())?;
//!     loop {
//!         ring.poll(None, |record| println!("{} bytes", record.len()))?;
//!     }
//! }
//! ```
//!
//! # What is promised
//!
//! - The way from an object to loaded, attached programs and to their records uses no heap: buffers come from the caller,
//!   paths and names are put together on the stack, and what is large (a kernel's BTF that cannot be mapped, a verifier
//!   log that grows) is a private mapping.
//! - Every descriptor has an owner and is close-on-exec; whatever fails on the way leaves none open.
//! - Errors are small `Copy` values with the kernel's number in them ([`sys::Errno`]).
//! - A retry is always bounded: programs that EAGAIN interrupts, verifier logs that never fit.

mod attach;
#[cfg(feature = "bumpalo")]
pub mod bump;
pub mod cpus;
pub mod externs;
pub mod features;
mod files;
mod glob;
pub mod kallsyms;
pub mod kconfig;
pub mod kernel;
mod lines;
pub mod links;
mod list;
pub mod load;
pub mod maps;
mod memlock;
pub mod modules;
pub mod object_file;
pub mod perf_buffer;
pub mod pin;
pub mod prepare;
pub mod programs;
pub mod report;
pub mod ring_buffer;
pub mod symbols;
pub mod sys;
pub mod version;

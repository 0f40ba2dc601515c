//! Corelo loader: what `corelo-core` prepares, in the kernel.
//!
//! `corelo-core` decides everything about types and never makes a system call; this crate makes the system calls and
//! decides nothing about types. It finds the kernel's BTF, owns the descriptors, and hands bytes to and fro.
//!
//! # The house
//!
//! Each wing imports from the floors below it and from none above (`tests/tests/wings.rs` sees to it):
//!
//! - [`loader`]: the front door: from an object's bytes to what runs in the kernel, in one call; its programs, maps and
//!   variables by name; errors that name what they are about
//! - [`report`]: ids to names, what went wrong in one line
//! - [`load`]: an object's maps and programs in the kernel, its externs, variables and pins
//! - [`prepare`]: an object's file, and the object brought together with the BTF of a kernel in the way that takes the
//!   least memory
//! - [`events`]: records that programs send, by BPF ring buffers and by perf rings of older kernels
//! - [`attach`]: every kind of link, one file for each; functions and static probes of user programs. Dropping a link
//!   detaches
//! - [`kernel`]: the kernel's BTF and its modules', its symbols and configuration, and what it knows, tried when something
//!   was refused and once at most
//! - [`objects`]: maps with access by bytes or plain-old-data types; programs with a verifier log only after a failure;
//!   names on a bpf file system
//! - [`sys`]: bpf(2), perf_event_open(2), mappings: the only `unsafe` of the workspace's libraries; and on it, without the
//!   heap, small files, lists, CPUs and the kernel's version
//!
//! # From an object to its records
//!
//! ```no_run
//! use corelo_loader::loader::{Error, Loader};
//! use corelo_loader::prepare::Kernel;
//!
//! fn watch(object: &[u8]) -> Result<(), Error> {
//!     let kernel = Kernel::running(); // its BTF is mapped, or read piece by piece, once an object asks for it
//!     let mut buffer = [0; 32 * 1024]; // `corelo budget` says how many bytes an object takes
//!     let mut collection = Loader::new(object).name("agent").load(&kernel, &mut buffer)?;
//!     collection.attach_all()?;
//!     let mut ring = collection.ring("events")?;
//!     loop {
//!         ring.poll(None, |record| println!("{} bytes", record.len()))?;
//!     }
//! }
//! ```
//!
//! # One dependency
//!
//! What the calls of this crate take and give of others is here: [`corelo_core`] with the object's tables and types, and
//! [`zerocopy`], whose derives tell that a type of a map or a variable is plain bytes. They have to be told where it is:
//!
//! ```
//! use corelo_loader::zerocopy::{FromBytes, Immutable, IntoBytes};
//!
//! #[derive(FromBytes, IntoBytes, Immutable)]
//! #[zerocopy(crate = "corelo_loader::zerocopy")]
//! #[repr(C)]
//! struct Stats {
//!     execs: u64,
//!     last_ns: u64,
//! }
//!
//! let stats = Stats { execs: 1, last_ns: 2 };
//! assert_eq!(stats.as_bytes()[..8], 1u64.to_ne_bytes());
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

pub use corelo_core;
pub use zerocopy;

pub mod attach;
pub mod events;
pub mod kernel;
pub mod load;
pub mod loader;
pub mod objects;
pub mod prepare;
pub mod report;
pub mod sys;

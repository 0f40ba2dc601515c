//! BTF and BPF CO-RE without an allocator: a compiled BPF object and a kernel's BTF in, final instructions out, all
//! work done inside a buffer that the caller provides.
//!
//! # CO-RE in one example
//!
//! A program says `BPF_CORE_READ(task, real_parent, tgid)`. The compiler emits, for each step, an instruction with the
//! offset that the field has in the headers it saw, and a relocation: "this instruction has the byte offset of access
//! `0:2` of local type 7". On the device the running kernel's `struct task_struct` may look different. The loader finds
//! it by name in the kernel's BTF, follows the same access through it by the names of the members, and puts the true
//! offset into the instruction. Where the kernel has no such member, the instruction is *poisoned*: turned into a call
//! that the verifier refuses, unless it is dead code behind a guard such as `bpf_core_field_exists()`.
//!
//! ```no_run
//! use corelo_core::arena::Arena;
//! use corelo_core::object::Object;
//! use corelo_core::prepare::{Options, prepare};
//!
//! # fn load(_: &[corelo_core::insn::Insn]) {}
//! fn main_job(object: &[u8], kernel_btf: &[u8]) -> Result<(), Box<dyn core::error::Error>> {
//!     let mut buffer = [0u8; 32 * 1024]; // or a static, or part of a C caller's memory
//!     let mut arena = Arena::new(&mut buffer);
//!     let object = Object::parse(object)?;
//!     let prepared = prepare(&object, Some(kernel_btf), Options::default(), &mut arena)?;
//!     for (number, function) in prepared.declared().programs() {
//!         let mut scratch = arena.scratch(); // given back at the end of each round
//!         let program = prepared.program(number, &mut scratch)?;
//!         println!("{}: {} instructions", prepared.function_name(function).escape_ascii(), program.insns.len());
//!         load(program.insns);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # The layers
//!
//! The lower a line stands, the more it may use; never the other way round.
//!
//! | module | what |
//! |---|---|
//! | [`uapi`] | the numbers of the kernel's interface, for this crate and the loader |
//! | [`bytes`], [`limits`] | checked reads in either byte order; the numbers that bound all work |
//! | [`arena`] | the only memory: a bump arena over the caller's bytes, with scratch children |
//! | [`insn`] | the 8-byte instruction |
//! | [`btf`] | borrowed BTF: types, strings, the sparse id index, the one pass, `.BTF.ext`, split BTF, what old kernels take |
//! | [`object`] | what an ELF object declares: programs, maps, global data, externs |
//! | [`relo`] | CO-RE: access specs, candidates, compatibility, values, patching |
//! | [`link`] | one program made whole: subprograms, references, function and line info |
//! | [`struct_ops`] | tables of functions that the kernel calls, moved from the object's layout to the kernel's |
//! | [`prepare`] | all of it in order |
//! | [`budget`] | how many bytes of arena all of it takes, known before |
//! | [`min_btf`] | a minimal BTF for kernels that have none, and for sources that are read piece by piece |
//!
//! # What is promised
//!
//! - No allocation, no I/O, no system call, no global state, no `unsafe`.
//! - No input makes it panic, loop for ever, overflow the stack or read outside its slice: every step is checked, every
//!   depth and every count of comparisons is bounded ([`limits`]).
//! - Running out of arena is an ordinary error that says how many bytes were wanted, for what, and how many are left;
//!   with as many bytes as [`arena::Arena::high_water`] says after a run, the same run works again, and with one fewer it
//!   does not.
//! - The blobs are borrowed and never written. Nothing is cached behind the caller's back.
//! - Both byte orders work on every host.
//!
//! # What is not done here
//!
//! System calls, files, and whatever needs names of this machine: crate `corelo-loader`. Compressed BTF, DWARF and
//! kernel images are the caller's matter.
//!
//! # Crate features
//!
//! - `defmt`: `defmt::Format` on public errors and reports.

#![no_std]
#![cfg_attr(
    test,
    allow(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used,
        reason = "tests"
    )
)]

#[cfg(test)]
extern crate std;

pub mod arena;
pub mod btf;
pub mod budget;
pub mod bytes;
pub mod insn;
pub mod limits;
pub mod link;
pub mod min_btf;
mod numbers;
pub mod object;
pub mod prepare;
pub mod relo;
pub mod struct_ops;
pub mod uapi;

//! What the integration tests and benches share: builders for hand-made BTF and BPF objects, the corpus of real kernels and
//! objects, libbpf as an oracle, and the checks that say whether this machine can load programs at all.
//!
//! Nothing here depends on the crates under test, so that an error in them cannot hide itself: bytes are written and read by
//! code of this crate alone, from the uapi layouts in `include/uapi/linux/{btf,bpf}.h` and `elf.h`.
//!
//! | module | what |
//! |---|---|
//! | [`endian`] | byte order of what is built and read |
//! | [`btf_builder`] | raw BTF, in every header form and with hostile values |
//! | [`btf_ext_builder`] | `.BTF.ext` with records of any size |
//! | [`insn`] | BPF instructions to write by hand |
//! | [`interp`] | an interpreter for linked fixtures |
//! | [`elf_builder`] | ELF64 relocatable files |
//! | [`object_builder`] | a BPF object out of the above |
//! | [`elf_reader`] | sections and symbols of an object |
//! | [`corpus`] | real BTF, real objects, libbpf's recorded answers |
//! | [`fixtures`] | our own compiled objects |
//! | [`random`] | random types, targets and relocations |
//! | [`libbpf`] | libbpf itself (feature `libbpf`) |
//! | [`fake_kernel`] | a kernel older than the one that runs |
//! | [`user`] | an ordinary user with some capabilities |
//! | [`kernel`] | root, bpf(2), descriptors, bpftool |

pub mod btf_builder;
pub mod btf_ext_builder;
pub mod corpus;
pub mod elf_builder;
pub mod elf_reader;
pub mod endian;
pub mod fake_kernel;
pub mod fixtures;
pub mod insn;
pub mod interp;
pub mod kernel;
#[cfg(feature = "libbpf")]
pub mod libbpf;
pub mod numbers;
pub mod object_builder;
pub mod random;
pub mod user;

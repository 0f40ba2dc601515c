//! Whole objects in the running kernel: what each declaration of a fixture does there, read back from the kernel.

mod bad;
mod btf;
mod common;
mod data;
mod externs;
mod link;
mod maps;
mod struct_ops;

//! The commands.

pub(crate) mod btf;
pub(crate) mod budget;
pub(crate) mod insns;
pub(crate) mod relocs;

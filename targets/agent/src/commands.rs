//! The commands.

pub(crate) mod btf;
pub(crate) mod budget;
pub(crate) mod insns;
pub(crate) mod load;
pub(crate) mod min_btf;
pub(crate) mod relocs;
pub(crate) mod run;

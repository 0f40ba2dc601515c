//! The kernel's numbers, once for both crates.
//!
//! What has a name that is printed is a type; the rest are constants. Kinds of BTF are [`Kind`](crate::btf::Kind), parts
//! of instructions are in [`insn`](crate::insn). What only the loader speaks of (commands, attributes) is in its `sys`.

pub mod helper;
mod map;
mod program;

pub use map::{
    BPF_F_LINK, BPF_F_MMAPABLE, BPF_F_NUMA_NODE, BPF_F_RDONLY_PROG, BPF_F_VTYPE_BTF_OBJ_FD, MapTypeName, map_type,
};
pub use program::{AttachType, BPF_F_SLEEPABLE, BPF_F_XDP_HAS_FRAGS, ProgType};

/// Linkage of functions and variables (UAPI: `enum btf_func_linkage`, and the same for variables).
pub(crate) mod linkage {
    /// Of this object alone.
    pub(crate) const STATIC: u32 = 0;
    /// Visible to others.
    pub(crate) const GLOBAL: u32 = 1;
    /// Declared here, and elsewhere defined.
    pub(crate) const EXTERN: u32 = 2;
}

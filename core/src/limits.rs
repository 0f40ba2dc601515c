//! The numbers that bound the work on hostile input, and where each comes from.

/// Steps of an access string, and of the raw path through a target type (libbpf: `BPF_CORE_SPEC_MAX_LEN`).
pub const MAX_ACCESS_STEPS: usize = 64;

/// Levels of nesting that a comparison of two types follows (libbpf: `depth = 32` in
/// `__bpf_core_types_are_compat` and `__bpf_core_types_match`).
pub const MAX_TYPE_DEPTH: u32 = 32;

/// Modifiers, typedefs and arrays followed in a row to find a type's size or what it stands for (libbpf:
/// `MAX_RESOLVE_DEPTH`).
pub const MAX_CHAIN: u32 = 32;

/// Type pairs that one comparison may visit. Depth alone does not bound it: a struct with many anonymous members of
/// its own kind doubles the work at each level.
pub const MAX_COMPARISONS: u32 = 1 << 16;

/// Type pairs that all comparisons for one object and one BTF may visit together: each relocation is compared with each
/// candidate of its name, and a hostile object has thousands of the one and meets thousands of the other.
pub const MAX_ALL_COMPARISONS: u32 = 1 << 24;

/// Bytes of the name of a type, member or enumerator, its NUL counted (kernel: `KSYM_NAME_LEN`, to which
/// `btf_name_valid_identifier` holds all of them). Thousands of types may bear one name of megabytes.
pub const MAX_NAME: usize = 512;

/// Bytes of an access string, its NUL counted: [`MAX_ACCESS_STEPS`] numbers have no more than 704.
pub const MAX_ACCESS_STRING: usize = 1024;

/// Instructions of one program after linking (kernel: `BPF_COMPLEXITY_LIMIT_INSNS`).
pub const MAX_PROGRAM_INSNS: u32 = 1_000_000;

/// Functions of one program after linking, itself counted (kernel: `BPF_MAX_SUBPROGS`).
pub const MAX_SUBPROGRAMS: usize = 256;

/// Maps that one program may refer to (kernel: `MAX_USED_MAPS`).
pub const MAX_USED_MAPS: usize = 64;

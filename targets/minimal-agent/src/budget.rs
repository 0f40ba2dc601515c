//! The arena's size: what `corelo budget --emit rust --btf BTF OBJECT` prints, and loading needs.

/// Bytes of arena that the exec monitor needs, from the object's first byte to the last program loaded, in a buffer that
/// starts at a multiple of 8, with the largest kernel of the test corpus (arm64 6.12; `tests/no_heap.rs` compares). A
/// product takes its own kernel's figure. The kernel's part grows by 4 bytes for every 32 types.
pub const ARENA_BYTES: usize = 20_000;

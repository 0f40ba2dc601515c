//! The arena's size, as `corelo budget --emit rust` prints it.

/// Bytes of arena that the exec monitor needs in a buffer that starts at a multiple of 8, with a kernel of as many types
/// as any that Corelo is tested with.
pub const ARENA_BYTES: usize = 65536;

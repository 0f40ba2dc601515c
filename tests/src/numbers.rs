//! Damage that is the same on every run.

/// Numbers that look random and are the same each time (xorshift).
pub fn numbers(mut state: u64) -> impl FnMut() -> usize {
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize
    }
}

//! Placeholder while the rest is being written.
fn main() {}

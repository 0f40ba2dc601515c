//! The corelo command.
fn main() {}

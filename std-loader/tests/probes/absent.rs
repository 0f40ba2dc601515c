//! Machines whose assembler the probes are not written in have none, and no test gets this far there.

pub(crate) fn operands_here(_: u64, _: &[u64], _: u64) {}
pub(crate) fn operands_there(_: u64) {}
pub(crate) fn simple(_: u64, _: &[u64]) {}
pub(crate) fn guarded() -> u16 {
    0
}
pub(crate) fn unreadable() {}

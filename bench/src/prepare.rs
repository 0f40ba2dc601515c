//! The work that is measured: from an object and a kernel's BTF to the last final instruction.

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Prepared, Snapshot, prepare};

/// Links every program, one after the other in the same scratch, and counts instructions. A program that reads what this
/// kernel does not have in a way that cannot be poisoned counts none.
#[must_use]
pub fn link_all(prepared: &Prepared<'_>, arena: &mut Arena<'_>) -> usize {
    let mut insns = 0;
    for (number, _) in prepared.declared().programs() {
        let mut scratch = arena.scratch();
        insns += prepared.program(number, &mut scratch).map_or(0, |linked| linked.insns.len());
    }
    insns
}

/// Cold: the object is parsed, the kernel's types are walked over, all programs are linked.
///
/// # Panics
/// If it does not work.
#[must_use]
pub fn cold(file: &[u8], kernel: &[u8], options: Options, buffer: &mut [u8]) -> usize {
    let mut arena = Arena::new(buffer);
    let object = Object::parse(file).expect("the object is one");
    let prepared = prepare(&object, Some(kernel), options, &mut arena).expect("the object can be prepared");
    link_all(&prepared, &mut arena)
}

/// Warm: the same, by what was kept of the first time.
///
/// # Panics
/// If it does not work, or a type of the kernel is visited.
#[must_use]
pub fn again(file: &[u8], snapshot: &Snapshot<'_>, buffer: &mut [u8]) -> usize {
    let mut arena = Arena::new(buffer);
    let object = Object::parse(file).expect("the object is one");
    let prepared = snapshot.prepare(&object, Options::default(), &mut arena).expect("the object was prepared");
    assert_eq!(prepared.visited(), 0);
    link_all(&prepared, &mut arena)
}

/// Bytes of arena that an object takes; `None` where it cannot be prepared.
#[must_use]
pub fn arena_of(file: &[u8], kernel: &[u8], options: Options, buffer: &mut [u8]) -> Option<usize> {
    let mut arena = Arena::new(buffer);
    let object = Object::parse(file).ok()?;
    let prepared = prepare(&object, Some(kernel), options, &mut arena).ok()?;
    let _ = link_all(&prepared, &mut arena);
    Some(arena.high_water())
}

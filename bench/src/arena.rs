//! Bytes of arena that an object takes, by structure.

use corelo_core::arena::Arena;
use corelo_core::min_btf::{SliceSource, stream};
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Plan, Prepared, prepare};

/// Room for the largest object that is reported.
const BUFFER: usize = 64 << 20;

/// Bytes of one object against one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// What stays, by name.
    pub parts: Vec<(&'static str, usize)>,
    /// What the largest program takes while it is linked, above what stays.
    pub program: usize,
    /// What preparing takes for a while, above what stays: the relocations before those that are alike become one.
    pub passing: usize,
    /// The buffer that will just do.
    pub all: usize,
}

impl Bytes {
    /// Bytes of one structure.
    #[must_use]
    pub fn part(&self, name: &str) -> usize {
        self.parts.iter().filter(|(part, _)| *part == name).map(|(_, bytes)| bytes).sum()
    }
}

/// Prepares and links an object and counts.
///
/// # Panics
/// If it cannot be prepared or linked.
#[must_use]
pub fn bytes(file: &[u8], kernel: &[u8], options: Options) -> Bytes {
    let mut buffer = vec![0u8; BUFFER];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(file).expect("the object is one");
    let prepared = prepare(&object, Some(kernel), options, &mut arena).expect("the object can be prepared");
    count(&prepared, &arena)
}

/// As [`bytes`], where the kernel's BTF is read through a window of so many bytes: what is made of it stays, and the
/// window is the greater part of what passes.
///
/// # Panics
/// If it cannot be prepared or linked.
#[must_use]
pub fn streamed(file: &[u8], kernel: &[u8], window: usize) -> Bytes {
    let mut buffer = vec![0u8; BUFFER];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(file).expect("the object is one");
    let plan = Plan::new(&object, Options::default(), &mut arena).expect("a plan");
    let made = stream(SliceSource(kernel), plan.needs(), window, &mut arena).expect("a source that can be streamed");
    let kept = made.blob.len().next_multiple_of(8) + size_of_val(made.ids).next_multiple_of(8);
    let prepared = plan.search(made.btf().expect("BTF"), &mut arena).expect("a search").finish();
    let mut bytes = count(&prepared, &arena);
    bytes.parts.push(("min_btf", kept));
    bytes
}

fn count(prepared: &Prepared<'_>, arena: &Arena<'_>) -> Bytes {
    let kept = arena.used();
    let passing = arena.high_water() - kept;
    // Programs are linked in an arena of their own, to tell what they take from what preparing took.
    let mut second = vec![0u8; BUFFER];
    let mut programs = Arena::new(&mut second);
    let empty = programs.used();
    let _ = crate::prepare::link_all(prepared, &mut programs);
    let parts = prepared.parts().map(|(part, bytes)| (part.name(), bytes)).collect();
    let program = programs.high_water() - empty;
    Bytes { parts, program, passing, all: kept + program.max(passing) }
}

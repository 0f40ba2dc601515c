//! Bytes of arena that an object takes, by structure.

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, prepare};

/// Room for the largest object that is reported.
const BUFFER: usize = 64 << 20;

/// Bytes of one object against one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// What stays, by name.
    pub parts: Vec<(&'static str, usize)>,
    /// What the largest program takes while it is linked, above what stays.
    pub program: usize,
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
    let kept = arena.used();
    let _ = crate::prepare::link_all(&prepared, &mut arena);
    let parts = prepared.parts().map(|(part, bytes)| (part.name(), bytes)).collect();
    Bytes { parts, program: arena.high_water() - kept, all: arena.high_water() }
}

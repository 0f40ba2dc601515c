//! Random CO-RE cases: local types, a target that was derived from them by changes, and relocations, all decoded from numbers
//! that a property test draws and shrinks.
//!
//! | module | what |
//! |---|---|
//! | [`tape`] | numbers that decisions are read from; the simplest decision is 0, and an empty tape gives only those |
//! | [`graph`] | types by number, their sizes, and the way into [`crate::btf_builder`] |
//! | [`local`] | random local types |
//! | [`target`] | a copy of them, changed at random |
//! | [`relo`] | random relocations, their local values and instructions |
//! | [`case`] | all of it as an object file and a target BTF |
//!
//! What is made is well-formed: ids and names exist, no type holds itself, flattened members have names of their own, and
//! access strings are numbers with colons. It is not otherwise sensible: members may overlap or end behind their struct.

pub mod case;
pub mod graph;
pub mod local;
pub mod relo;
pub mod tape;
pub mod target;

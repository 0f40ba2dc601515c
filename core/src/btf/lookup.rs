//! The one pass: everything that is asked of a BTF blob, answered by one walk over its types.
//!
//! Questions ([`Query`]) are names with a kind. The walk tests each type cheaply, dearest test last: its kind, the
//! first two bytes of its name, the hash of the name without flavour, and only then the bytes. See `pass` for how it
//! goes over the types.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::index::Types;
use super::pass::{Found, Pass};
use super::rows;
use super::{Btf, BtfError, TypeId};
use crate::arena::Arena;

pub(crate) use super::query::{FNV_BASIS, FirstBytes, LONG_NAMES, hash};
pub use super::query::{Prefix, Query, Questions};

/// A type that answers a query.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Candidate {
    /// Who asked.
    pub owner: u32,
    /// The type.
    pub id: TypeId,
}

/// What one pass over a blob gave.
#[derive(Clone, Copy, Debug)]
pub struct Answers<'a> {
    types: Types<'a>,
    candidates: &'a [Candidate],
    visited: u32,
}

impl<'a> Answers<'a> {
    /// The same answers, over types whose pointers take `byte_size` bytes.
    #[must_use]
    pub fn with_pointer_size(mut self, byte_size: u8) -> Self {
        self.types = self.types.with_pointer_size(byte_size);
        self
    }

    /// The types, found by id.
    #[must_use]
    pub fn types(&self) -> &Types<'a> {
        &self.types
    }

    /// How many types the pass walked over.
    #[must_use]
    pub fn visited(&self) -> u32 {
        self.visited
    }

    /// The types that answer this asker's queries, in the order of their ids.
    #[must_use]
    pub fn of(&self, owner: u32) -> &'a [Candidate] {
        let start = self.candidates.partition_point(|candidate| candidate.owner < owner);
        let len = self.candidates.get(start..).unwrap_or(&[]).partition_point(|candidate| candidate.owner == owner);
        self.candidates.get(start..).and_then(|tail| tail.get(..len)).unwrap_or(&[])
    }

    /// All answers, by asker and id.
    #[must_use]
    pub fn candidates(&self) -> &'a [Candidate] {
        self.candidates
    }
}

impl Questions<'_> {
    /// Walks over all types of `btf` once. Index (an entry per `stride` types) and answers go to `arena`.
    ///
    /// # Errors
    /// [`BtfError::TypeTruncated`] and [`BtfError::UnknownKind`] for types that cannot be stepped over,
    /// [`BtfError::Arena`].
    pub fn ask<'a>(
        &self,
        btf: Btf<'a>,
        base: Option<&'a Types<'a>>,
        stride: u32,
        arena: &mut Arena<'a>,
    ) -> Result<Answers<'a>, BtfError> {
        let Found { types, answers, visited } = Pass::run(self, btf, base, rows::stride(stride), arena)?;
        answers.as_chunks_mut::<2>().0.sort_unstable();
        let candidates: &'a [Candidate] = <[Candidate]>::ref_from_bytes(answers.as_bytes()).unwrap_or_default();
        Ok(Answers { types, candidates, visited })
    }
}

//! The warm start: what was decided of an object, kept for the next time that the same object is prepared.
//!
//! ```text
//! Prepared --snapshot--> Snapshot             a view; its bytes stay in the first arena
//! Snapshot x Object --prepare--> Prepared     declarations are read again, no type of the kernel is visited
//! ```

use super::plan::declarations;
use super::prepared::Prepared;
use super::queries::InModule;
use super::sections::Sections;
use super::{Options, PrepareError};
use crate::arena::Arena;
use crate::btf::lookup::Answers;
use crate::numbers::to_u64;
use crate::object::Object;
use crate::relo::decision::Decisions;

/// What the kernel answered to one object, and what was decided by it. It holds as long as the kernel runs; where
/// modules were searched, as long as those are loaded.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    fingerprint: u64,
    file_len: usize,
    decisions: Decisions<'a>,
    answers: Option<Answers<'a>>,
    in_modules: &'a [InModule],
    queries_len: usize,
}

impl<'a> Prepared<'a> {
    /// What preparing the same object again needs. The arena and the kernel's BTF stay borrowed; the object's bytes need
    /// not, as long as they can be had again.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<'a> {
        let file = self.object.bytes();
        Snapshot {
            fingerprint: fingerprint(file),
            file_len: file.len(),
            decisions: self.decisions,
            answers: self.answers,
            in_modules: self.in_modules,
            queries_len: self.queries_len,
        }
    }
}

impl<'a> Snapshot<'a> {
    /// Prepares the same object again: [`Prepared::visited`] is 0 afterwards, and all else is as it was. Of the options
    /// only the local stride counts.
    ///
    /// # Errors
    /// [`PrepareError::OtherObject`] where the file is not the one that the snapshot is of, byte for byte (by its length
    /// and a hash of 64 bits, which is proof against mistakes but not against a file made to deceive);
    /// [`PrepareError::Object`], [`PrepareError::Arena`]
    pub fn prepare(
        &self,
        object: &Object<'a>,
        options: Options,
        arena: &mut Arena<'a>,
    ) -> Result<Prepared<'a>, PrepareError> {
        let file = object.bytes();
        if file.len() != self.file_len || fingerprint(file) != self.fingerprint {
            return Err(PrepareError::OtherObject);
        }
        let (local, declared) = declarations(object, options, arena)?;
        Ok(Prepared {
            object: *object,
            local,
            declared,
            decisions: self.decisions,
            answers: self.answers,
            in_modules: self.in_modules,
            queries_len: self.queries_len,
            visited: 0,
            sections: Sections::default(),
        })
    }
}

/// Mixes all bytes into one number. Four lanes, so that a multiplication need not wait for the one before.
fn fingerprint(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |lane: u64, word: u64| (lane ^ word).wrapping_mul(ODD).rotate_left(29);
    let mut lanes = [1u64, 2, 3, 4];
    let (blocks, tail) = bytes.as_chunks::<32>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = mix(*lane, u64::from_le_bytes(*word));
        }
    }
    let end = tail.iter().fold(to_u64(bytes.len()), |end, &byte| mix(end, u64::from(byte)));
    lanes.iter().fold(end, |end, &lane| mix(end ^ (end >> 31), lane))
}

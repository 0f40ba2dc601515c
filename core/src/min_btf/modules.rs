//! Whether modules have what a streamed kernel lacks, found out with neither's BTF in memory.
//!
//! A module's BTF is split on the kernel's whole one, so that searching it takes that. But an object that asks for what
//! the kernel lacks asks as a rule for what nobody has, such as a type of a newer kernel, and that shows in the names:
//! those of a module's types lie in its own strings or in the kernel's. Both are passed over once, and then the module's
//! types, if some name is there at all.

use heapless::Vec;

use super::error::StreamError;
use super::reader::{Blob, Reader};
use super::source::{MIN_WINDOW, Source};
use crate::arena::ArenaFull;
use crate::btf::lookup::{FNV_BASIS, FirstBytes, hash};
use crate::btf::strings::essential;
use crate::btf::{FIXED, Info};
use crate::prepare::Search;

/// Names of one blob that are told apart; where there are more, all that is said is that there may be an answer.
const MAX_NAMES: usize = 64;

/// Offsets of names that modules are asked for; `None` for too many.
type Names = Option<Vec<u32, MAX_NAMES>>;

/// Tells modules that may have what is still open from those that have not: see [`ModuleSieve::may_answer`].
#[derive(Debug)]
pub struct ModuleSieve<'a> {
    window: &'a mut [u8],
    first_bytes: FirstBytes,
    /// Where the kernel's own strings end, and the names among them.
    base_end: u32,
    base_names: Names,
}

impl<'a> ModuleSieve<'a> {
    /// Passes over the strings of the kernel's BTF for the names that `search` leaves open. All is read through `window`,
    /// of at least [`MIN_WINDOW`] bytes.
    ///
    /// # Errors
    /// [`StreamError`]
    pub fn new<S: Source>(
        mut kernel: S,
        search: &Search<'_>,
        window: &'a mut [u8],
    ) -> Result<Self, StreamError<S::Error>> {
        if window.len() < MIN_WINDOW {
            return Err(StreamError::Window);
        }
        let mut first_bytes = FirstBytes::default();
        for query in search.open_queries() {
            first_bytes.add_wanted(query.first_bytes(search.names()));
        }
        let mut sieve = Self { window, first_bytes, base_end: 0, base_names: None };
        let mut reader = Reader::new(&mut kernel, sieve.window);
        let blob = Blob::open(&mut reader, search.endian(), false)?;
        sieve.base_names = names(&blob, &mut reader, &sieve.first_bytes, search)?;
        sieve.base_end = blob.extents.strings.1;
        Ok(sieve)
    }

    /// Whether a module, whose BTF is split on the kernel's, has a type of a name and a kind that `search` leaves open.
    /// It may say so of a module that has none.
    ///
    /// # Errors
    /// [`StreamError`]
    pub fn may_answer<S: Source>(&mut self, mut module: S, search: &Search<'_>) -> Result<bool, StreamError<S::Error>> {
        let mut reader = Reader::new(&mut module, self.window);
        let blob = Blob::open(&mut reader, search.endian(), true)?;
        let own_names = names(&blob, &mut reader, &self.first_bytes, search)?;
        let (Some(base_names), Some(own_names)) = (&self.base_names, &own_names) else { return Ok(true) };
        if base_names.is_empty() && own_names.is_empty() {
            return Ok(false);
        }
        reader.begin_pass()?;
        let ahead = reader.window_len();
        let (mut offset, mut id) = (0u32, 1u32);
        while offset < blob.extents.types.1 {
            let [name_off, info, _] = blob.fixed(&mut reader, offset, id, ahead.max(FIXED))?;
            let is_named = match name_off.checked_sub(self.base_end) {
                Some(own) => own_names.contains(&own),
                None => base_names.contains(&name_off),
            };
            let kind = Info(info).kind_number();
            if is_named && search.open_queries().any(|query| query.wants_kind(kind)) {
                return Ok(true);
            }
            offset = blob.next_offset(info, offset, id)?;
            id = id.wrapping_add(1);
        }
        Ok(false)
    }
}

/// The strings of a blob that are names which modules are asked for.
fn names<S: Source>(
    blob: &Blob,
    reader: &mut Reader<'_, S>,
    first_bytes: &FirstBytes,
    search: &Search<'_>,
) -> Result<Names, StreamError<S::Error>> {
    let mut names = Some(Vec::new());
    blob.for_each_string(reader, |offset, name| {
        if first_bytes.may_have(FirstBytes::of(essential(name))) {
            let hash = hash(FNV_BASIS, essential(name));
            let is_wanted = search.open_queries_of(hash).any(|query| query.is_answered_by(search.names(), name));
            let is_full = is_wanted && names.as_mut().is_some_and(|names| names.push(offset).is_err());
            if is_full {
                names = None;
            }
        }
        Ok::<(), ArenaFull>(())
    })?;
    Ok(names)
}

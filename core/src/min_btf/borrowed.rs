//! A minimal BTF out of a borrowed one.

use core::cell::Cell;
use core::fmt;

use super::emit::{Emit, HEADER, PLACEHOLDER, names_of};
use super::pairs::{Pair, Pairs, find};
use super::walk::{Graph, Walk};
use crate::arena::{Arena, ArenaFull, Part};
use crate::btf::lookup::{Candidate, LONG_NAMES, Questions};
use crate::btf::{Btf, BtfError, DEFAULT_STRIDE, Kind, Type, TypeId, Types};
use crate::bytes::Endian;
use crate::limits::MAX_ALL_COMPARISONS;
use crate::numbers::{low_u8, to_usize};
use crate::prepare::Needs;
use crate::relo::choose;

/// Why no minimal BTF can be made.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MinimalError {
    /// The kernel's BTF is at fault.
    Btf(BtfError),
    /// An object has another byte order than the kernel's BTF.
    ByteOrder {
        /// The object's number.
        object: usize,
    },
    /// More pairs of types would have to be compared than are compared for one object.
    TooComplex,
    /// The arena is too small.
    Arena(ArenaFull),
}

impl fmt::Display for MinimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Btf(error) => error.fmt(f),
            Self::ByteOrder { object } => write!(f, "object {object} and kernel BTF have different byte orders"),
            Self::TooComplex => f.write_str(TOO_COMPLEX),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

/// What both errors say.
pub(super) const TOO_COMPLEX: &str = "types are too complex to compare, or too many";

impl core::error::Error for MinimalError {}

impl From<BtfError> for MinimalError {
    fn from(error: BtfError) -> Self {
        match error {
            BtfError::Arena(full) => Self::Arena(full),
            error => Self::Btf(error),
        }
    }
}

impl From<ArenaFull> for MinimalError {
    fn from(full: ArenaFull) -> Self {
        Self::Arena(full)
    }
}

/// A minimal BTF.
#[derive(Clone, Copy, Debug)]
pub struct Minimal<'a> {
    /// The blob; it stands alone.
    pub blob: &'a [u8],
    /// For each of its types, from 1 on, the id that it had.
    pub ids: &'a [u32],
}

/// All members or enumerators of a type are kept.
const ALL: u32 = 1;
/// It is a candidate that counts for some object.
const CHOSEN: u32 = 2;

/// Makes the smallest BTF against which relocating `objects` gives the same instructions as against `kernel`, and where
/// that lacks a root type, against `module`, which is split on it.
///
/// Blob and ids are kept in `arena`; most of the rest of it is used meanwhile: two index tables, and lists of what is
/// kept.
///
/// # Errors
/// [`MinimalError`]
pub fn minimal<'a>(
    objects: &[Needs<'_>],
    kernel: &[u8],
    module: Option<&[u8]>,
    arena: &mut Arena<'a>,
) -> Result<Minimal<'a>, MinimalError> {
    let btf = Btf::parse(kernel)?;
    if let Some(object) = objects.iter().position(|needs| needs.endian != btf.endian()) {
        return Err(MinimalError::ByteOrder { object });
    }
    let (at, ids_len, blob_len) = {
        let mut scratch = arena.scratch();
        let before = scratch.left();
        let base = Types::index(btf, DEFAULT_STRIDE, None, &mut scratch, Part::KernelIndex)?;
        let pointer_size = pointer_size(&base);
        let base = base.with_pointer_size(pointer_size.map_or(8, |(_, size)| size));
        // Marks, members and names in three pieces of a sixth of what is left each.
        let piece = (scratch.left() / 6) & !7;
        let mut marks = Marks {
            types: &base,
            kept: Pairs::new(scratch.take::<u8>(piece, Part::MinBtf)?, Part::MinBtf),
            items: Pairs::new(scratch.take::<u8>(piece, Part::MinBtf)?, Part::MinBtf),
        };
        let names = Pairs::new(scratch.take::<u8>(piece, Part::MinBtf)?, Part::MinBtf);
        if let Some((long, _)) = pointer_size {
            marks.kept.both().1.set(long.0, 0)?;
        }
        if let Some(module) = module {
            let mut inner = scratch.scratch();
            let module = Btf::parse_split(module, &base)?;
            let types = Types::index(module, DEFAULT_STRIDE, Some(&base), &mut inner, Part::KernelIndex)?;
            let mut marks = Marks { types: &types, kept: marks.kept, items: marks.items };
            mark(objects, &base, Some(&types), &mut marks, &mut inner)?;
            write(marks, names, before, btf.endian(), &mut inner)?
        } else {
            mark(objects, &base, None, &mut marks, &mut scratch)?;
            write(marks, names, before, btf.endian(), &mut scratch)?
        }
    };
    take_to_front(arena, at, ids_len, blob_len)
}

/// Moves ids and blob, which lie one after the other in what is left of the arena, to its start, and takes them.
pub(super) fn take_to_front<'a>(
    arena: &mut Arena<'a>,
    at: usize,
    ids_len: usize,
    blob_len: usize,
) -> Result<Minimal<'a>, MinimalError> {
    let len = ids_len.saturating_mul(4).next_multiple_of(8).saturating_add(blob_len);
    let rest = arena.rest();
    if let Some(end) = at.checked_add(len).filter(|&end| end <= rest.len()) {
        rest.copy_within(at..end, 0);
    }
    Ok(Minimal { ids: arena.take::<u32>(ids_len, Part::MinBtf)?, blob: arena.take::<u8>(blob_len, Part::MinBtf)? })
}

/// The long integer type and its size.
fn pointer_size(types: &Types<'_>) -> Option<(TypeId, u8)> {
    types.btf().iter().map_while(Result::ok).find_map(|ty| {
        let is_long = ty.kind() == Kind::Int
            && matches!(ty.byte_size(), 4 | 8)
            && LONG_NAMES.iter().any(|name| types.string_is(ty.name_off(), name));
        is_long.then(|| (ty.id(), low_u8(ty.byte_size())))
    })
}

/// Marks what all objects need.
fn mark<'t>(
    objects: &[Needs<'_>],
    base: &Types<'_>,
    module: Option<&Types<'_>>,
    marks: &mut Marks<'t>,
    arena: &mut Arena<'_>,
) -> Result<(), MinimalError> {
    for is_second_look in [false, true] {
        for needs in objects {
            let mut scratch = arena.scratch();
            mark_object(*needs, base, module, marks, is_second_look, &mut scratch)?;
        }
    }
    Ok(())
}

/// First look: the candidates that count for this object. Second look: those that count for any, as far as this object
/// judges them, so that it judges them as before.
fn mark_object<'t>(
    needs: Needs<'_>,
    base: &Types<'_>,
    module: Option<&Types<'_>>,
    marks: &mut Marks<'t>,
    is_second_look: bool,
    arena: &mut Arena<'_>,
) -> Result<(), MinimalError> {
    let types = marks.types;
    let queries = arena.copy(needs.queries, Part::Queries)?;
    let questions = Questions::new(queries, needs.names);
    let in_base = ask(&questions, base, None, arena)?;
    let in_module = match module {
        Some(module) => ask(&questions, module, Some(base), arena)?,
        None => &[],
    };
    let answers = |owner: u32| match of(in_base, owner) {
        [] => of(in_module, owner),
        found => found,
    };
    let (mut left, walks_left) = (MAX_ALL_COMPARISONS, Cell::new(MAX_ALL_COMPARISONS));
    for (root, run) in needs.runs() {
        let candidates = answers(root.0).iter().map(|candidate| candidate.id);
        if !is_second_look {
            let Some(local) = needs.local else { continue };
            choose(local, types, needs.endian, run, candidates, &mut left, |id| {
                marks.kept.both().1.set(id.0, CHOSEN)?;
                Walk::decisions(marks, needs, run, id, &walks_left)
            })?;
            continue;
        }
        for id in candidates {
            if find(marks.kept.pairs(), id.0).is_some_and(|pair| pair.value & CHOSEN != 0) {
                Walk::decisions(marks, needs, run, id, &walks_left)?;
            }
        }
    }
    if !is_second_look {
        for query in needs.others() {
            for candidate in answers(query.owner()) {
                Walk::answer(marks, candidate.id, &walks_left)?;
            }
        }
    }
    if left == 0 || walks_left.get() == 0 {
        return Err(MinimalError::TooComplex);
    }
    Ok(())
}

fn ask<'s>(
    questions: &Questions<'_>,
    types: &Types<'_>,
    base: Option<&Types<'_>>,
    arena: &mut Arena<'s>,
) -> Result<&'s [Candidate], MinimalError> {
    // The index that comes with the answers is not needed: an entry for the first type alone. Candidates are copied out
    // of it, to outlive what was asked.
    let mut found = None;
    {
        let mut scratch = arena.scratch();
        let before = scratch.left();
        let answers = questions.ask(types.btf(), base, u32::MAX, &mut scratch)?;
        let len = answers.candidates().len();
        if len > 0 {
            let bytes = len.saturating_mul(size_of::<Candidate>());
            found = Some((before.saturating_sub(scratch.left()), len, bytes, answers.types().index_bytes()));
        }
    }
    let Some((_, len, bytes, index_bytes)) = found else { return Ok(&[]) };
    arena.rest().copy_within(index_bytes..index_bytes.saturating_add(bytes), 0);
    Ok(arena.take::<Candidate>(len, Part::Candidates)?)
}

fn of(candidates: &[Candidate], owner: u32) -> &[Candidate] {
    let start = candidates.partition_point(|candidate| candidate.owner < owner);
    let tail = candidates.get(start..).unwrap_or_default();
    tail.get(..tail.partition_point(|candidate| candidate.owner == owner)).unwrap_or_default()
}

/// What is kept of the types.
struct Marks<'t> {
    types: &'t Types<'t>,
    /// Ids, and [`ALL`] and [`CHOSEN`].
    kept: Pairs<'t>,
    /// Ids, and numbers of members or enumerators.
    items: Pairs<'t>,
}

impl Marks<'_> {
    fn keeps(&self, kept: Pair, index: u32) -> bool {
        kept.value & ALL != 0 || self.items.pairs().binary_search(&Pair { key: kept.key, value: index }).is_ok()
    }
}

impl<'t> Graph<'t> for Marks<'t> {
    fn get(&mut self, id: TypeId) -> Result<Option<Type<'t>>, ArenaFull> {
        Ok(self.types.get(id).ok())
    }

    fn keep(&mut self, ty: &Type<'t>) -> Result<(), ArenaFull> {
        if ty.id() == TypeId::VOID {
            return Ok(());
        }
        if let Some(array) = ty.array() {
            self.kept.both().1.set(array.index.0, 0)?;
        }
        self.kept.both().1.set(ty.id().0, 0)
    }

    fn keep_item(&mut self, ty: &Type<'t>, index: u32) -> Result<(), ArenaFull> {
        self.items.insert(Pair { key: ty.id().0, value: index }).map(|_| ())
    }

    fn keep_all(&mut self, ty: &Type<'t>) -> Result<(), ArenaFull> {
        self.keep(ty)?;
        if ty.id() == TypeId::VOID { Ok(()) } else { self.kept.both().1.set(ty.id().0, ALL) }
    }

    fn string(&self, offset: u32) -> &[u8] {
        // No name has this byte.
        self.types.identifier(offset).unwrap_or(b"\xff")
    }
}

/// Writes ids and blob. Returns where they start in what was left when `before` bytes were, and both lengths.
fn write(
    marks: Marks<'_>,
    mut names: Pairs<'_>,
    before: usize,
    endian: Endian,
    arena: &mut Arena<'_>,
) -> Result<(usize, usize, usize), MinimalError> {
    let types = marks.types;
    let at = before.saturating_sub(arena.left());
    let mut ids = arena.grow::<u32>(Part::MinBtf);
    for pair in marks.kept.pairs() {
        if pair.key != 0 && pair.key < types.end_id() {
            ids.push(pair.key)?;
        }
    }
    let ids = &*ids.finish()?;
    let each = |id: u32| -> Result<(Pair, Type<'_>), MinimalError> {
        let kept = find(marks.kept.pairs(), id).unwrap_or(Pair { key: id, value: 0 });
        Ok((kept, types.get(TypeId(id))?))
    };
    for &id in ids {
        let (kept, ty) = each(id)?;
        names_of(
            &ty,
            |index| marks.keeps(kept, index),
            |offset| {
                if types.string(offset).is_ok_and(|name| !name.is_empty()) {
                    names.insert(Pair { key: offset, value: 0 })?;
                }
                Ok(())
            },
        )?;
    }
    let mut strings_len = 1u32;
    for pair in names.pairs_mut() {
        pair.value = strings_len;
        let len = types.string(pair.key).map_or(0, <[u8]>::len);
        strings_len = strings_len.saturating_add(u32::try_from(len).unwrap_or(u32::MAX)).saturating_add(1);
    }
    let emit = Emit {
        ids,
        names: names.pairs(),
        keeps_ids: false,
        end_id: types.end_id(),
        end_string: types.end_string(),
        endian,
    };
    let mut blob = arena.grow::<u8>(Part::MinBtf);
    PLACEHOLDER.into_iter().try_for_each(|byte| blob.push(byte))?;
    for &id in ids {
        let (kept, ty) = each(id)?;
        emit.write(&ty, |index| marks.keeps(kept, index), &mut blob)?;
    }
    let types_len = blob.len().saturating_sub(HEADER);
    blob.push(0)?;
    for pair in names.pairs() {
        types.string(pair.key)?.iter().chain([&0]).try_for_each(|&byte| blob.push(byte))?;
    }
    let header = emit.header(types_len, to_usize(strings_len));
    if let Some(place) = blob.items().first_chunk_mut::<HEADER>() {
        *place = header;
    }
    let blob = blob.finish()?;
    Ok((at, ids.len(), blob.len()))
}

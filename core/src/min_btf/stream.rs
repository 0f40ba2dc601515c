//! A minimal BTF out of one that is read piece by piece.
//!
//! | pass | over | for |
//! |---|---|---|
//! | 1 | header | where the sections are |
//! | 2 | strings | offsets of the names that the object knows |
//! | 3 | types | candidates by those offsets, the long integer type, a sparse index |
//! | then | parts of the types | what candidates lead to: once for each level of nesting that lies backwards |
//! | last | parts of the strings | the names of what is kept |
//!
//! Within a pass nothing is read twice but for what overlaps at the edge of a window, and no pass goes back. Members of
//! structs whose names the object does not know are left out as they are read.
//!
//! A name must start where a string starts, as in every BTF that pahole, libbpf or a compiler writes; names of more bytes
//! than the window are not looked at.

use core::cell::Cell;

use super::borrowed::take_to_front;
use super::emit::{Emit, HEADER, PLACEHOLDER, as_written, names_of};
use super::error::StreamError;
use super::pairs::{Insertable, Pair, Pairs, find, take_closed};
use super::reader::{Blob, Reader, sum};
use super::source::{MIN_WINDOW, Source};
use super::walk::{Graph, Walk};
use crate::arena::{Arena, ArenaFull, Part};
use crate::btf::info::{SHAPES, Shape};
use crate::btf::lookup::{FNV_BASIS, FirstBytes, LONG_NAMES, hash};
use crate::btf::strings::essential;
use crate::btf::{Btf, BtfError, FIXED, Info, Kind, Type, TypeId};
use crate::bytes::{Bytes, Endian, u32_bytes};
use crate::limits::MAX_ALL_COMPARISONS;
use crate::numbers::to_u64;
use crate::prepare::{Needs, is_open};
use crate::relo::spec::AccessSpec;

/// Types per entry of the index that is kept while the source is read.
const STRIDE: u32 = 64;
/// Bytes read at once where only parts are wanted.
const CHUNK: usize = 2048;

/// What was made of a source.
#[derive(Clone, Copy, Debug)]
pub struct Streamed<'a> {
    /// The types, which refer to each other by the ids that they have in the source: to be read with
    /// [`Btf::parse_part`].
    pub blob: &'a [u8],
    /// Their ids.
    pub ids: &'a [u32],
    /// How many passes over the source were made: within each it was read forward only.
    pub passes: u32,
    /// Bytes that were read, those at the edges of windows counted twice.
    pub bytes_read: u64,
}

impl<'a> Streamed<'a> {
    /// The BTF, to be searched in the place of the source's.
    ///
    /// # Errors
    /// None in practice: it was just written.
    pub fn btf(&self) -> Result<Btf<'a>, BtfError> {
        Btf::parse_part(self.blob, self.ids)
    }
}

/// Makes a minimal BTF of all that `needs` may look at in `source`, which is read through a window of `window` bytes in
/// `arena`. Blob and ids are kept there; the window and what else is used meanwhile is given back.
///
/// # Errors
/// [`StreamError`]
pub fn stream<'a, S: Source>(
    mut source: S,
    needs: Needs<'_>,
    window: usize,
    arena: &mut Arena<'a>,
) -> Result<Streamed<'a>, StreamError<S::Error>> {
    if window < MIN_WINDOW {
        return Err(StreamError::Window);
    }
    let (place, passes, bytes_read) = {
        let mut scratch = arena.scratch();
        let before = scratch.left();
        let window = scratch.take::<u8>(window, Part::Window)?;
        let mut reader = Reader::new(&mut source, window);
        let place = Job::new(&mut reader, needs)?.run(&mut reader, before, &mut scratch)?;
        (place, reader.passes, reader.bytes_read)
    };
    let (at, ids_len, blob_len) = place;
    let made = take_to_front(arena, at, ids_len, blob_len)?;
    Ok(Streamed { blob: made.blob, ids: made.ids, passes, bytes_read })
}

/// Names that the object knows: hashes of what is left of them without flavour. Two names of one hash do no harm: a name too
/// many is kept.
struct Vocabulary<'v> {
    hashes: &'v mut [u32],
    first_bytes: FirstBytes,
}

impl<'v> Vocabulary<'v> {
    fn collect(needs: Needs<'_>, arena: &mut Arena<'v>) -> Result<Self, ArenaFull> {
        let mut first_bytes = FirstBytes::default();
        let mut hashes = arena.grow::<u32>(Part::Queries);
        // The empty name says that a member is anonymous.
        hashes.push(FNV_BASIS)?;
        first_bytes.add_wanted(FirstBytes::of(b""));
        let mut add = |name: &[u8], hashes: &mut crate::arena::Growing<'_, 'v, u32>| {
            let name = essential(name);
            first_bytes.add_wanted(FirstBytes::of(name));
            hashes.push(hash(FNV_BASIS, name))
        };
        for name in LONG_NAMES {
            add(name, &mut hashes)?;
        }
        if let Some(local) = needs.local {
            if needs.compares_types() {
                for name in local.btf().strings().split(|&byte| byte == 0) {
                    add(name, &mut hashes)?;
                }
            }
            for decision in needs.decisions.iter().filter(|decision| is_open(decision)) {
                let Ok(spec) = AccessSpec::parse(local, &decision.record()) else { continue };
                for name in spec.accessors.iter().filter_map(|accessor| accessor.name) {
                    add(name, &mut hashes)?;
                }
            }
        }
        for query in needs.queries {
            first_bytes.add_wanted(query.first_bytes(needs.names));
            hashes.push(query.hash())?;
        }
        let all = hashes.items();
        all.sort_unstable();
        let mut kept = 0usize;
        for at in 0..all.len() {
            let Some(&value) = all.get(at) else { break };
            let is_new = kept.checked_sub(1).and_then(|last| all.get(last)) != Some(&value);
            if let (true, Some(place)) = (is_new, all.get_mut(kept)) {
                *place = value;
                kept = kept.saturating_add(1);
            }
        }
        hashes.truncate(kept);
        Ok(Self { hashes: hashes.finish()?, first_bytes })
    }

    fn has(&self, name: &[u8]) -> bool {
        self.first_bytes.may_have(FirstBytes::of(name))
            && self.hashes.binary_search(&hash(FNV_BASIS, essential(name))).is_ok()
    }
}

/// Names of the source that the object knows: pairs of their offset there and in the bytes, which end with a NUL each.
#[derive(Clone, Copy)]
struct Known<'k> {
    bytes: &'k [u8],
    places: &'k [Pair],
}

impl Known<'_> {
    fn get(&self, offset: u32) -> Option<&[u8]> {
        let pair = find(self.places, offset)?;
        let tail = self.bytes.get(usize::try_from(pair.value).ok()?..)?;
        tail.get(..tail.iter().position(|&byte| byte == 0)?)
    }
}

/// Set in the value of a type that may answer a query.
const CANDIDATE: u32 = 1 << 31;
/// Where a type's record is, as long as it is still to be read. (Else an offset in the log of records.)
const PENDING: u32 = CANDIDATE - 1;
/// Where it is for a type that is not there.
const MISSING: u32 = PENDING - 1;

fn place(pair: Pair) -> u32 {
    pair.value & !CANDIDATE
}

/// Blob and ids: where they start in the scratch arena, how many ids, how many bytes.
type Made = (usize, usize, usize);

struct Job<'n> {
    needs: Needs<'n>,
    blob: Blob,
    /// The id after the last one.
    end_id: u32,
    /// How many pairs of types may still be compared.
    left: Cell<u32>,
}

impl<'n> Job<'n> {
    fn new<S: Source>(reader: &mut Reader<'_, S>, needs: Needs<'n>) -> Result<Self, StreamError<S::Error>> {
        let left = Cell::new(MAX_ALL_COMPARISONS);
        Ok(Self { needs, blob: Blob::open(reader, needs.endian, false)?, end_id: 1, left })
    }

    fn run<S: Source>(
        mut self,
        reader: &mut Reader<'_, S>,
        before: usize,
        arena: &mut Arena<'_>,
    ) -> Result<Made, StreamError<S::Error>> {
        // How much each pass finds is not known before. So each writes into all that the arena has left, bytes from the front
        // and pairs from the back, and is then closed: moved together, and taken from the arena at its size.
        let vocabulary = Vocabulary::collect(self.needs, arena)?;

        let mut known = Pairs::new(arena.rest(), Part::Queries);
        self.blob.for_each_string(reader, |offset, name| {
            if vocabulary.has(name) {
                let at = known.push_bytes(name)?;
                known.push_bytes(&[0])?;
                known.insert(Pair { key: offset, value: u32::try_from(at).unwrap_or(u32::MAX) })?;
            }
            Ok(())
        })?;
        let most = known.most();
        let lens = known.close();
        arena.note_transient(most);
        let (bytes, places) = take_closed(arena, lens, Part::Queries)?;
        let known = Known { bytes, places };

        let mut found = Pairs::new(arena.rest(), Part::KernelIndex);
        self.read_types(reader, known, &mut found)?;
        let most = found.most();
        let lens = found.close();
        arena.note_transient(most);
        let (index, candidates) = take_closed(arena, lens, Part::KernelIndex)?;
        let index = <[u32] as zerocopy::FromBytes>::ref_from_bytes(index).unwrap_or_default();

        let mut records = Pairs::new(arena.rest(), Part::MinBtf);
        for pair in &*candidates {
            records.insert(*pair)?;
        }
        // What a type leads to is known only when it was read. So after every pass the walk starts anew from the candidates,
        // over more types each time, until it meets none that is still to be read.
        loop {
            let (log, entries) = records.both();
            let mut graph = Resident { log, entries, known, endian: self.blob.extents.endian };
            self.walk(&mut graph)?;
            if self.left.get() == 0 {
                return Err(StreamError::TooComplex);
            }
            if !records.pairs().iter().any(|&pair| place(pair) == PENDING) {
                break;
            }
            self.fetch(reader, known, index, &mut records)?;
        }
        let most = records.most();
        let lens = records.close();
        arena.note_transient(most);
        let (log, entries) = take_closed(arena, lens, Part::MinBtf)?;
        self.write(reader, log, entries, before, arena)
    }

    /// The pass over the types: the index in front, candidates as pairs.
    fn read_types<S: Source>(
        &mut self,
        reader: &mut Reader<'_, S>,
        known: Known<'_>,
        found: &mut Pairs<'_>,
    ) -> Result<(), StreamError<S::Error>> {
        reader.begin_pass()?;
        let mut kinds = 0u128;
        for query in self.needs.queries {
            kinds |= (0..128u8).filter(|&kind| query.wants_kind(kind)).fold(0, |kinds, kind| kinds | 1 << kind);
        }
        let int = Kind::Int.number();
        let mut has_long = false;
        let ahead = reader.window_len();
        let (mut offset, mut id) = (0u32, 1u32);
        while offset < self.blob.extents.types.1 {
            if id.wrapping_sub(1).is_multiple_of(STRIDE) {
                found.push_bytes(&offset.to_ne_bytes())?;
            }
            let [name_off, info, size] = self.blob.fixed(reader, offset, id, ahead)?;
            let kind = Info(info).kind_number();
            let seeks_long = !has_long && kind == int && matches!(size, 4 | 8);
            let is_of_use = name_off != 0 && (seeks_long || kinds & (1 << kind) != 0);
            if let Some(name) = is_of_use.then(|| known.get(name_off)).flatten() {
                let is_long = seeks_long && LONG_NAMES.contains(&name);
                has_long |= is_long;
                let answers = self.is_asked(name, kind);
                if is_long || answers {
                    let value = if answers { PENDING | CANDIDATE } else { PENDING };
                    found.insert(Pair { key: id, value })?;
                }
            }
            offset = self.blob.next_offset(info, offset, id)?;
            id = id.wrapping_add(1);
        }
        self.end_id = id;
        Ok(())
    }

    fn is_asked(&self, name: &[u8], kind: u8) -> bool {
        let hash = hash(FNV_BASIS, essential(name));
        let mut queries = self.needs.queries.iter();
        queries
            .any(|query| query.hash() == hash && query.wants_kind(kind) && query.is_answered_by(self.needs.names, name))
    }

    /// Walks from every candidate as far as there are types; those that are not there yet become pending.
    fn walk<'t>(&self, graph: &mut Resident<'t>) -> Result<(), ArenaFull> {
        let mut next = 0;
        // By key: entries are added meanwhile.
        loop {
            let entries = graph.entries.pairs();
            let start = entries.partition_point(|pair| pair.key < next);
            let candidate = entries.get(start..).unwrap_or_default().iter().find(|pair| pair.value & CANDIDATE != 0);
            let Some(&Pair { key, .. }) = candidate else { return Ok(()) };
            next = key.saturating_add(1);
            let Some(ty) = graph.get(TypeId(key))? else { continue };
            let known = graph.known;
            let Some(name) = known.get(ty.name_off()) else { continue };
            let hash = hash(FNV_BASIS, essential(name));
            for query in self.needs.queries.iter().filter(|query| query.hash() == hash) {
                let is_asked = query.wants_kind(ty.info().kind_number());
                if !is_asked || !query.is_answered_by(self.needs.names, name) {
                    continue;
                }
                match self.needs.decisions_of(query.owner()) {
                    [] => Walk::answer(graph, ty.id(), &self.left)?,
                    run => Walk::decisions(graph, self.needs, run, ty.id(), &self.left)?,
                }
            }
        }
    }

    /// One pass forward over the types that are pending.
    fn fetch<S: Source>(
        &self,
        reader: &mut Reader<'_, S>,
        known: Known<'_>,
        index: &[u32],
        records: &mut Pairs<'_>,
    ) -> Result<(), StreamError<S::Error>> {
        reader.begin_pass()?;
        let mut next = 0;
        // Where the reader is: an id and the offset of its type.
        let mut here = (1u32, 0u32);
        loop {
            let entries = records.pairs();
            let start = entries.partition_point(|pair| pair.key < next);
            let pending = entries.get(start..).unwrap_or_default().iter().find(|&&pair| place(pair) == PENDING);
            let Some(&Pair { key: id, .. }) = pending else { return Ok(()) };
            next = id.saturating_add(1);
            if id >= self.end_id {
                set_place(records, id, MISSING);
                continue;
            }
            let type_idx = id.saturating_sub(1);
            let entry = type_idx / STRIDE;
            let indexed = entry.saturating_mul(STRIDE).saturating_add(1);
            let mut at = here;
            if indexed > here.0 {
                let offset = usize::try_from(entry).ok().and_then(|entry| index.get(entry)).copied();
                at = (indexed, offset.unwrap_or(0));
            }
            while at.0 < id {
                let [_, info, _] = self.blob.fixed(reader, at.1, at.0, CHUNK)?;
                at = (at.0.saturating_add(1), self.blob.next_offset(info, at.1, at.0)?);
            }
            let fixed = self.blob.fixed(reader, at.1, id, CHUNK)?;
            self.keep_record(reader, known, (id, at.1), fixed, records)?;
            here = (id.saturating_add(1), self.blob.next_offset(fixed[1], at.1, id)?);
        }
    }

    /// Keeps a type, without the members and enumerators that nobody can ask for.
    fn keep_record<S: Source>(
        &self,
        reader: &mut Reader<'_, S>,
        known: Known<'_>,
        (id, offset): (u32, u32),
        [name_off, info, third]: [u32; 3],
        records: &mut Pairs<'_>,
    ) -> Result<(), StreamError<S::Error>> {
        let endian = self.blob.extents.endian;
        let is_known = !matches!(Info(info).kind(), Kind::Unknown(_));
        let (info, third) = as_written(Info(info), third);
        let kind = info.kind();
        let at = records.front_len();
        for word in [name_off, info.0, third] {
            records.push_bytes(&u32_bytes(word, endian))?;
        }
        let shape = SHAPES.get(usize::from(info.kind_number())).copied().unwrap_or(Shape { once: 0, each: 0 });
        let mut from = sum(self.blob.extents.types.0, offset).wrapping_add(to_u64(FIXED));
        let once = usize::from(shape.once);
        if !is_known {
            // Its linkage.
            records.push_bytes(&[0; 4])?;
        } else if once > 0 {
            let bytes = reader.exactly(from, once, CHUNK)?;
            records.push_bytes(bytes)?;
            if kind == Kind::Array {
                let element = Bytes::new(bytes, endian).u32(0).unwrap_or(0);
                want(records, element)?;
            }
            from = from.wrapping_add(u64::from(shape.once));
        }
        if kind.is_modifier_or_typedef() || matches!(kind, Kind::Func | Kind::Var | Kind::DeclTag) {
            want(records, third)?;
        }
        let each = usize::from(shape.each);
        let is_filtered = kind.is_composite() || kind.is_enum();
        let mut kept = 0u32;
        for index in 0..if each > 0 { info.vlen() } else { 0 } {
            let bytes = reader.exactly(from, each, CHUNK)?;
            from = from.wrapping_add(u64::from(shape.each));
            let item = Bytes::new(bytes, endian);
            let item_name = item.u32(0).unwrap_or(0);
            let is_last = index.saturating_add(1) == info.vlen();
            let name = known.get(item_name);
            // The last member tells of an array whether it is flexible.
            let is_kept = !is_filtered
                || item_name == 0
                || name.is_some()
                // Whoever looks for a name among the members is told that this one has none.
                || item_name >= self.blob.extents.strings.1
                || (kind.is_composite() && is_last)
                || self.needs.wants_all_members();
            if !is_kept {
                continue;
            }
            records.push_bytes(bytes)?;
            kept = kept.saturating_add(1);
            let is_anonymous = item_name == 0 || name.is_some_and(<[u8]>::is_empty);
            if kind.is_composite() && is_anonymous {
                let inner = item.u32(4).unwrap_or(0);
                want(records, inner)?;
            }
        }
        if is_filtered {
            let word = u32_bytes(Info::new(kind, kept, info.kind_flag()).0, endian);
            let place = at.saturating_add(4)..at.saturating_add(8);
            if let Some(place) = records.front_mut().get_mut(place) {
                place.copy_from_slice(&word);
            }
        }
        set_place(records, id, u32::try_from(at).unwrap_or(MISSING).min(MISSING));
        Ok(())
    }

    /// The last pass, over the names of what is kept; then ids and blob are written.
    fn write<S: Source>(
        &self,
        reader: &mut Reader<'_, S>,
        log: &[u8],
        entries: &[Pair],
        before: usize,
        arena: &mut Arena<'_>,
    ) -> Result<Made, StreamError<S::Error>> {
        let endian = self.blob.extents.endian;
        let here = || entries.iter().filter_map(|&pair| record(log, pair, endian));
        let mut names = Pairs::new(arena.rest(), Part::MinBtf);
        for ty in here() {
            names_of(
                &ty,
                |_| true,
                |offset| {
                    if offset != 0 {
                        names.insert(Pair { key: offset, value: 0 })?;
                    }
                    Ok(())
                },
            )?;
        }
        names.push_bytes(&[0])?;
        reader.begin_pass()?;
        for index in 0..names.len() {
            let Some(&Pair { key: offset, .. }) = names.pairs().get(index) else { break };
            let value = u32::try_from(names.front_len()).unwrap_or(0);
            let is_name = self.copy_name(reader, offset, &mut names)?;
            if let Some(pair) = names.pairs_mut().get_mut(index).filter(|_| is_name) {
                pair.value = value;
            }
        }
        let most = names.most();
        let lens = names.close();
        arena.note_transient(most);
        let (strings, names) = take_closed(arena, lens, Part::MinBtf)?;

        let at = before.saturating_sub(arena.left());
        let mut ids = arena.grow::<u32>(Part::MinBtf);
        here().try_for_each(|ty| ids.push(ty.id().0))?;
        let ids = ids.finish()?;
        let emit =
            Emit { ids, names, keeps_ids: true, end_id: self.end_id, end_string: self.blob.extents.strings.1, endian };
        let mut blob = arena.grow::<u8>(Part::MinBtf);
        PLACEHOLDER.into_iter().try_for_each(|byte| blob.push(byte))?;
        for ty in here() {
            emit.write(&ty, |_| true, &mut blob)?;
        }
        let types_len = blob.len().saturating_sub(HEADER);
        strings.iter().try_for_each(|&byte| blob.push(byte))?;
        let header = emit.header(types_len, strings.len());
        if let Some(place) = blob.items().first_chunk_mut::<HEADER>() {
            *place = header;
        }
        Ok((at, ids.len(), blob.finish()?.len()))
    }

    /// Copies the string at `offset` and a NUL to the front of `names`; false for one that is none, or too long.
    fn copy_name<S: Source>(
        &self,
        reader: &mut Reader<'_, S>,
        offset: u32,
        names: &mut Pairs<'_>,
    ) -> Result<bool, StreamError<S::Error>> {
        let (start, len) = self.blob.extents.strings;
        let Some(left) = len.checked_sub(offset) else { return Ok(false) };
        let at = sum(start, offset);
        let mut wanted = 64;
        loop {
            let limit = usize::try_from(left).unwrap_or(usize::MAX).min(reader.window_len());
            let bytes = reader.up_to(at, wanted.min(limit), CHUNK)?;
            if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
                names.push_bytes(bytes.get(..=end).unwrap_or_default())?;
                return Ok(true);
            }
            if wanted >= limit {
                return Ok(false);
            }
            wanted = wanted.saturating_mul(2);
        }
    }
}

/// Asks for a type, unless it is there.
fn want(records: &mut Pairs<'_>, id: u32) -> Result<(), ArenaFull> {
    let is_new = id != 0 && find(records.pairs(), id).is_none();
    if is_new { records.insert(Pair { key: id, value: PENDING }).map(|_| ()) } else { Ok(()) }
}

fn set_place(records: &mut Pairs<'_>, id: u32, place: u32) {
    let pairs = records.pairs_mut();
    let at = pairs.partition_point(|pair| pair.key < id);
    if let Some(pair) = pairs.get_mut(at).filter(|pair| pair.key == id) {
        pair.value = (pair.value & CANDIDATE) | place;
    }
}

/// The type that was read to this place; `None` for one that was not.
fn record(log: &[u8], pair: Pair, endian: Endian) -> Option<Type<'_>> {
    if place(pair) >= MISSING {
        return None;
    }
    let bytes = Bytes::new(log, endian).tail(usize::try_from(place(pair)).ok()?)?;
    let fixed = bytes.u32x3(0)?;
    let info = Info(fixed[1]);
    let shape = SHAPES.get(usize::from(info.kind_number())).copied()?;
    let each = usize::from(shape.each).checked_mul(usize::try_from(info.vlen()).ok()?)?;
    let tail = bytes.slice(FIXED, usize::from(shape.once).checked_add(each)?)?;
    Some(Type::new(TypeId(pair.key), fixed, tail))
}

/// The types that were read.
struct Resident<'t> {
    log: &'t [u8],
    entries: Insertable<'t>,
    known: Known<'t>,
    endian: Endian,
}

impl<'t> Graph<'t> for Resident<'t> {
    fn get(&mut self, id: TypeId) -> Result<Option<Type<'t>>, ArenaFull> {
        if id == TypeId::VOID {
            return Ok(Some(Type::void()));
        }
        match self.entries.get(id.0) {
            Some(pair) => Ok(record(self.log, pair, self.endian)),
            None => self.entries.insert(Pair { key: id.0, value: PENDING }).map(|_| None),
        }
    }

    // All that was read is kept.
    fn keep(&mut self, _: &Type<'t>) -> Result<(), ArenaFull> {
        Ok(())
    }

    fn keep_item(&mut self, _: &Type<'t>, _: u32) -> Result<(), ArenaFull> {
        Ok(())
    }

    fn keep_all(&mut self, _: &Type<'t>) -> Result<(), ArenaFull> {
        Ok(())
    }

    fn string(&self, offset: u32) -> &[u8] {
        if offset == 0 {
            return b"";
        }
        // No name has this byte.
        self.known.get(offset).unwrap_or(b"\xff")
    }
}

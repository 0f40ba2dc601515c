//! The one pass: everything that is asked of a BTF blob, answered by one walk over its types.
//!
//! Questions ([`Query`]) are names with a kind. The walk tests each type cheaply, dearest test last: its kind, the
//! first two bytes of its name, the hash of the name without flavour, and only then the bytes. On the way it builds
//! the sparse id index, at the front of what is left of the arena; answers ([`Candidate`]) grow from the back and are
//! moved next to the index at the end, so that the number of types need not be known before.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::index::Types;
use super::info::{Info, Kind};
use super::strings::essential;
use super::{Btf, BtfError, FIXED, TypeId};
use crate::arena::{Arena, ArenaFull, Part};
use crate::bytes::{Bytes, Endian};

/// What the kernel puts before a name that an object gives.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Prefix {
    /// Nothing: a CO-RE root type, where flavours do not count.
    Root,
    /// Nothing: a function, variable or type whose whole name counts.
    Exact,
    /// `btf_trace_`: the typedef of a raw tracepoint's prototype.
    Trace,
    /// `bpf_lsm_`: the function of an LSM hook.
    Lsm,
    /// `bpf_iter_`: the function of an iterator.
    Iter,
    /// `bpf_struct_ops_`: what the kernel wraps around a struct_ops type.
    StructOps,
}

impl Prefix {
    /// The bytes of the prefix.
    #[must_use]
    pub const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Root | Self::Exact => b"",
            Self::Trace => b"btf_trace_",
            Self::Lsm => b"bpf_lsm_",
            Self::Iter => b"bpf_iter_",
            Self::StructOps => b"bpf_struct_ops_",
        }
    }

    const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Root,
            2 => Self::Trace,
            3 => Self::Lsm,
            4 => Self::Iter,
            5 => Self::StructOps,
            _ => Self::Exact,
        }
    }
}

/// A name to look for among types of one kind.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Query {
    hash: u32,
    /// Where the name is in the names that go with the queries, in bytes.
    name_at: u32,
    name_len: u16,
    kind: u8,
    prefix: u8,
    /// Who asks: the caller's number.
    owner: u32,
}

impl Query {
    /// Asks for `names[name_at..][..name_len]` behind `prefix` among the types of `kind`, on behalf of `owner`.
    ///
    /// Gives `None` for a name that lies outside `names`, is empty, or takes more than 65,535 bytes.
    #[must_use]
    pub fn new(names: &[u8], name_at: usize, name_len: usize, kind: Kind, prefix: Prefix, owner: u32) -> Option<Self> {
        let name = names.get(name_at..name_at.checked_add(name_len)?)?;
        if name.is_empty() {
            return None;
        }
        // As the walk hashes what it finds: without the flavour, which is part of the name for all but `Root`, too.
        let hash = hash(hash(FNV_BASIS, prefix.bytes()), essential(name));
        Some(Self {
            hash,
            name_at: u32::try_from(name_at).ok()?,
            name_len: u16::try_from(name_len).ok()?,
            kind: core_class(kind).number(),
            prefix: prefix as u8,
            owner,
        })
    }

    /// The number of who asks.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    fn name<'n>(&self, names: &'n [u8]) -> &'n [u8] {
        let start = self.name_at as usize;
        names.get(start..start.saturating_add(usize::from(self.name_len))).unwrap_or(&[])
    }

    pub(crate) fn prefix(&self) -> Prefix {
        Prefix::from_number(self.prefix)
    }

    /// Its hash: that of the essential name that it wants, prefix included.
    pub(crate) fn hash(&self) -> u32 {
        self.hash
    }

    /// Whether it wants types whose kind has this number.
    pub(crate) fn wants_kind(&self, number: u8) -> bool {
        self.kind == core_class(Kind::from_number(number)).number()
    }

    pub(crate) fn is_answered_by(&self, names: &[u8], found: &[u8]) -> bool {
        let wanted = self.name(names);
        match self.prefix() {
            Prefix::Root => essential(wanted) == essential(found),
            prefix => found.strip_prefix(prefix.bytes()) == Some(wanted),
        }
    }

    /// The first two bytes of the names it wants, without flavour; the second is NUL for a name of one byte.
    pub(crate) fn first_bytes(&self, names: &[u8]) -> [u8; 2] {
        let name = match self.prefix() {
            Prefix::Root => essential(self.name(names)),
            _ => self.name(names),
        };
        let mut bytes = self.prefix().bytes().iter().chain(name).copied();
        [bytes.next().unwrap_or(0), bytes.next().unwrap_or(0)]
    }
}

/// The kind under which enumerations of both widths are one.
fn core_class(kind: Kind) -> Kind {
    if kind == Kind::Enum64 { Kind::Enum } else { kind }
}

/// The hash of no bytes (FNV-1a, 32 bits).
pub(crate) const FNV_BASIS: u32 = 0x811c_9dc5;

/// The hash of the bytes of `basis` with `name` after them.
pub(crate) fn hash(basis: u32, name: &[u8]) -> u32 {
    name.iter().fold(basis, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

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

/// Questions ready to be asked of one blob after the other.
#[derive(Debug)]
pub struct Questions<'q> {
    queries: &'q [Query],
    names: &'q [u8],
    /// Bit `n`: some query wants types whose kind has number `n`.
    kinds: u32,
    first_bytes: FirstBytes,
}

impl<'q> Questions<'q> {
    /// Sorts `queries`, whose names lie in `names`.
    #[must_use]
    pub fn new(queries: &'q mut [Query], names: &'q [u8]) -> Self {
        queries.sort_unstable_by_key(|query| (query.hash, query.owner));
        let mut kinds = 0;
        let mut first_bytes = FirstBytes::default();
        for query in &*queries {
            kinds |= 1 << (query.kind & 31);
            if query.kind == Kind::Enum.number() {
                kinds |= 1 << Kind::Enum64.number();
            }
            first_bytes.add_wanted(query.first_bytes(names));
        }
        Self { queries, names, kinds, first_bytes }
    }

    /// Whether nothing is asked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queries.is_empty()
    }

    /// How many queries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queries.len()
    }

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
        let stride = stride.max(1);
        let words = arena.left() / 4;
        let area: &mut [u32] =
            <[u32]>::mut_from_prefix_with_elems(arena.rest(), words).map_or(&mut [], |(area, _)| area);
        let mut pass = Pass { questions: self, btf, base, area, index_len: 0, answers_len: 0, pointer_size: None };
        let count = match btf.endian() {
            Endian::Little => pass.walk::<false>(stride)?,
            Endian::Big => pass.walk::<true>(stride)?,
        };
        let pointer_size = pass.pointer_size.unwrap_or(8);
        let (index_len, answers_len) = (pass.index_len, pass.answers_len);
        pass.close_gap();

        let kept: &'a mut [u32] = arena.take(index_len.saturating_add(answers_len), Part::KernelIndex)?;
        let (offsets, answers) = kept.split_at_mut_checked(index_len).unwrap_or_default();
        let candidates: &'a mut [Candidate] = <[Candidate]>::mut_from_bytes(answers.as_mut_bytes()).unwrap_or_default();
        candidates.sort_unstable_by_key(|candidate| (candidate.owner, candidate.id));
        Ok(Answers {
            types: Types::from_parts(btf, offsets, stride, count, pointer_size, base),
            candidates,
            visited: count,
        })
    }
}

/// Which first two bytes some wanted name has: a set that may say yes too often, never no.
#[derive(Debug, Default)]
pub(crate) struct FirstBytes {
    bits: [u64; 32],
}

impl FirstBytes {
    fn slot([first, second]: [u8; 2]) -> (usize, u64) {
        let number = (usize::from(first) ^ (usize::from(second) << 3)) & 0x7ff;
        (number >> 6, 1 << (number & 63))
    }

    /// The first two bytes of a name; the second is NUL for a name of one byte, both for an empty one.
    pub(crate) fn of(name: &[u8]) -> [u8; 2] {
        let mut bytes = name.iter().copied();
        [bytes.next().unwrap_or(0), bytes.next().unwrap_or(0)]
    }

    fn add(&mut self, bytes: [u8; 2]) {
        let (word, bit) = Self::slot(bytes);
        if let Some(word) = self.bits.get_mut(word) {
            *word |= bit;
        }
    }

    /// Adds what a name without flavour starts with.
    pub(crate) fn add_wanted(&mut self, [first, second]: [u8; 2]) {
        self.add([first, second]);
        if first != 0 && second == 0 {
            // A name of one byte may have a flavour in the target.
            self.add([first, b'_']);
        }
    }

    #[inline]
    pub(crate) fn may_have(&self, bytes: [u8; 2]) -> bool {
        let (word, bit) = Self::slot(bytes);
        self.bits.get(word).is_some_and(|word| word & bit != 0)
    }
}

/// The spellings of the long integer type, whose size is that of a pointer (libbpf: `determine_ptr_size`).
pub(crate) const LONG_NAMES: [&[u8]; 11] = [
    b"long",
    b"long int",
    b"int long",
    b"unsigned long",
    b"long unsigned",
    b"unsigned long int",
    b"unsigned int long",
    b"long unsigned int",
    b"long int unsigned",
    b"int unsigned long",
    b"int long unsigned",
];

/// What the walk does with a type of one kind: its length, and whether to look closer.
#[derive(Clone, Copy)]
struct Step {
    fixed: u16,
    each: u8,
    flags: u8,
}

/// Some query wants types of this kind.
const STEP_ASKED: u8 = 1;
/// It may be the long integer type.
const STEP_LONG: u8 = 2;
/// Nobody knows how long it is.
const STEP_UNKNOWN: u8 = 4;
const UNKNOWN_STEP: Step = Step { fixed: 0, each: 0, flags: STEP_UNKNOWN };

struct Pass<'p, 'q, 'a> {
    questions: &'p Questions<'q>,
    btf: Btf<'a>,
    base: Option<&'a Types<'a>>,
    area: &'p mut [u32],
    index_len: usize,
    /// Words at the end of the area: two per answer.
    answers_len: usize,
    pointer_size: Option<u8>,
}

impl<'a> Pass<'_, '_, 'a> {
    /// Returns how many types there are.
    ///
    /// This is the loop that everything waits for: a hundred thousand rounds, so each does no more than find out how
    /// long the type is and whether it is of a kind that is asked for.
    fn walk<const BIG: bool>(&mut self, stride: u32) -> Result<u32, BtfError> {
        // A constant byte order lets the compiler leave the swaps out.
        let endian = if BIG { Endian::Big } else { Endian::Little };
        let all = self.btf.types.data();
        let mut steps = self.steps();
        let mut rest = all;
        let mut count = 0u32;
        'types: while !rest.is_empty() {
            self.push_index(all.len().wrapping_sub(rest.len()) as u32)?;
            for _ in 0..stride {
                let Some([name_off, info, size]) = Bytes::new(rest, endian).u32x3(0) else { break 'types };
                let info = Info(info);
                let number = info.kind_number();
                let step = steps.get(usize::from(number)).copied().unwrap_or(UNKNOWN_STEP);
                if step.flags != 0 {
                    let id = self.btf.first_id.wrapping_add(count);
                    if step.flags & STEP_UNKNOWN != 0 {
                        let offset = all.len().wrapping_sub(rest.len()) as u32;
                        return Err(BtfError::UnknownKind { id: TypeId(id), offset, kind: number });
                    }
                    if step.flags & STEP_LONG != 0 && self.note_long(name_off, size) {
                        steps = self.steps();
                    }
                    if step.flags & STEP_ASKED != 0 && name_off != 0 {
                        self.test(name_off, id, number)?;
                    }
                }
                let len =
                    usize::from(step.fixed).wrapping_add(usize::from(step.each).wrapping_mul(info.vlen() as usize));
                let Some(next) = rest.get(len..) else { break 'types };
                rest = next;
                count = count.wrapping_add(1);
                if rest.is_empty() {
                    return Ok(count);
                }
            }
        }
        if !rest.is_empty() {
            let id = TypeId(self.btf.first_id.wrapping_add(count));
            return Err(BtfError::TypeTruncated { id, offset: all.len().wrapping_sub(rest.len()) as u32 });
        }
        Ok(count)
    }

    /// What to do with types of each kind.
    fn steps(&self) -> [Step; 128] {
        let mut steps = [UNKNOWN_STEP; 128];
        for (number, step) in (0u8..).zip(&mut steps) {
            let Some(shape) = self.btf.shape(number) else { continue };
            let is_asked = number < 32 && self.questions.kinds & (1 << number) != 0;
            let seeks_long = number == Kind::Int.number() && self.base.is_none() && self.pointer_size.is_none();
            *step = Step {
                fixed: (FIXED as u16).wrapping_add(u16::from(shape.once)),
                each: shape.each,
                flags: if is_asked { STEP_ASKED } else { 0 } | if seeks_long { STEP_LONG } else { 0 },
            };
        }
        steps
    }

    #[inline]
    fn test(&mut self, name_off: u32, id: u32, kind_number: u8) -> Result<(), BtfError> {
        let first_bytes = self.strings_from(name_off).and_then(|tail| tail.first_chunk::<2>());
        match first_bytes {
            Some(&bytes) if self.questions.first_bytes.may_have(bytes) => self.compare(name_off, id, kind_number),
            _ => Ok(()),
        }
    }

    fn strings_from(&self, name_off: u32) -> Option<&'a [u8]> {
        match self.base {
            Some(base) if name_off < self.btf.first_string => base.btf().strings_from(name_off),
            _ => self.btf.strings_from(name_off),
        }
    }

    fn name(&self, name_off: u32) -> Option<&'a [u8]> {
        let tail = self.strings_from(name_off)?;
        tail.get(..tail.iter().position(|&byte| byte == 0)?)
    }

    #[inline(never)]
    fn compare(&mut self, name_off: u32, id: u32, kind_number: u8) -> Result<(), BtfError> {
        let Some(name) = self.name(name_off) else { return Ok(()) };
        let class = core_class(Kind::from_number(kind_number)).number();
        let hash = hash(FNV_BASIS, essential(name));
        let Questions { queries, names, .. } = *self.questions;
        let start = queries.partition_point(|query| query.hash < hash);
        let mut next = start;
        while let Some(query) = queries.get(next).filter(|query| query.hash == hash) {
            next = next.wrapping_add(1);
            if query.kind == class && query.is_answered_by(names, name) {
                self.push_answer(query.owner, id)?;
            }
        }
        Ok(())
    }

    /// Takes the size of the long integer type for that of a pointer; whether this was it.
    fn note_long(&mut self, name_off: u32, byte_size: u32) -> bool {
        let is_long = matches!(byte_size, 4 | 8) && self.name(name_off).is_some_and(|name| LONG_NAMES.contains(&name));
        if is_long {
            self.pointer_size = Some(byte_size as u8);
        }
        is_long
    }

    fn full(&self, words: usize, part: Part) -> BtfError {
        let used = self.index_len.saturating_add(self.answers_len);
        BtfError::Arena(ArenaFull {
            wanted: words.saturating_mul(4),
            left: self.area.len().saturating_sub(used).saturating_mul(4),
            part,
        })
    }

    #[inline]
    fn push_index(&mut self, offset: u32) -> Result<(), BtfError> {
        let end = self.area.len().wrapping_sub(self.answers_len);
        match self.area.get_mut(self.index_len) {
            Some(entry) if self.index_len < end => *entry = offset,
            _ => return Err(self.full(1, Part::KernelIndex)),
        }
        self.index_len = self.index_len.wrapping_add(1);
        Ok(())
    }

    fn push_answer(&mut self, owner: u32, id: u32) -> Result<(), BtfError> {
        let full = self.full(2, Part::Candidates);
        let end = self.area.len().wrapping_sub(self.answers_len);
        let start = end.checked_sub(2).filter(|&start| start >= self.index_len).ok_or(full)?;
        self.area.get_mut(start..end).ok_or(full)?.copy_from_slice(&[owner, self.btf.with_gaps(id)]);
        self.answers_len = self.answers_len.wrapping_add(2);
        Ok(())
    }

    /// Moves the answers next to the index.
    fn close_gap(self) {
        let start = self.area.len().wrapping_sub(self.answers_len);
        if self.index_len <= start && start <= self.area.len() {
            self.area.copy_within(start.., self.index_len);
        }
    }
}

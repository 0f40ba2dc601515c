//! Questions to a BTF blob: names with a kind, and how a name is tested for being one of them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::info::Kind;
use super::strings::essential;
use crate::numbers::to_usize;

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

    #[expect(clippy::as_conversions, reason = "the number of a variant, as declared")]
    const fn number(self) -> u8 {
        self as u8
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
            prefix: prefix.number(),
            owner,
        })
    }

    /// The number of who asks.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.owner
    }

    fn name<'n>(&self, names: &'n [u8]) -> &'n [u8] {
        let start = to_usize(self.name_at);
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

    pub(crate) fn queries(&self) -> &'q [Query] {
        self.queries
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

    /// Whether some query wants types whose kind has this number, which is below 32.
    pub(super) fn want_kind(&self, number: u8) -> bool {
        self.kinds & (1 << (number & 31)) != 0
    }

    #[inline]
    pub(super) fn may_want(&self, first_bytes: [u8; 2]) -> bool {
        self.first_bytes.may_have(first_bytes)
    }

    /// Calls `each` with every asker who wants the type of this name and kind, until it fails.
    #[inline(never)]
    pub(super) fn askers<E>(
        &self,
        name: &[u8],
        kind_number: u8,
        mut each: impl FnMut(u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let class = core_class(Kind::from_number(kind_number)).number();
        let hash = hash(FNV_BASIS, essential(name));
        let Questions { queries, names, .. } = *self;
        let mut next = queries.partition_point(|query| query.hash < hash);
        while let Some(query) = queries.get(next).filter(|query| query.hash == hash) {
            next = next.wrapping_add(1);
            if query.kind == class && query.is_answered_by(names, name) {
                each(query.owner)?;
            }
        }
        Ok(())
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

/// How they start.
pub(super) const LONG_STARTS: [[u8; 2]; 3] = [*b"lo", *b"un", *b"in"];

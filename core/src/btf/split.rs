//! `.BTF.base`: a module's BTF that brings its own small base, put onto the running kernel's.
//!
//! A module that is built apart from its kernel carries a distilled base: the few types of the kernel that its own BTF
//! mentions, by name and size only. [`rebase`] finds each of them in the running kernel's BTF and gives the module's
//! BTF with ids and names of that base (libbpf: `btf__relocate`; the kernel does the same when it loads the module, so
//! that what `/sys/kernel/btf` shows is already put right).
//!
//! | distilled | matches |
//! |---|---|
//! | INT | INT of the name, size and encoding |
//! | FLOAT | FLOAT of the name and size |
//! | ENUM | ENUM or ENUM64 of the name and size |
//! | STRUCT, UNION | the one of the kind and name; of several the one of the size; of the size in any case where a type of the module embeds it; else a forward declaration of it |
//! | FWD | the forward declaration of the name, else the one struct or union |

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::lookup::{FNV_BASIS, hash};
use super::{Btf, BtfError, FIXED, Kind, Type, TypeId, Types};
use crate::arena::{Arena, ArenaFull, Part};
use crate::bytes::{Endian, u32_bytes};
use crate::limits::MAX_CHAIN;
use crate::numbers::low_u8;

/// Why a module's BTF cannot be put onto this base. Ids are those of the distilled base.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RebaseError {
    /// A type of the distilled base has a kind that it must not have.
    UnexpectedKind {
        /// The type.
        id: TypeId,
        /// Its kind.
        kind: Kind,
    },
    /// A type of the distilled base has no name.
    Anonymous {
        /// The type.
        id: TypeId,
    },
    /// The base has no such type.
    NoMatch {
        /// The type.
        id: TypeId,
        /// Whether it has some of the name, but none of the size or encoding.
        differs: bool,
    },
    /// The base has several such types.
    Ambiguous {
        /// The type.
        id: TypeId,
        /// The first one that matches, in the base.
        first: TypeId,
    },
    /// The module uses a string of the distilled base that names none of its types.
    UnmappedString {
        /// The offset.
        offset: u32,
    },
    /// The module has a type of a kind whose contents are not known, so that they cannot be rewritten.
    UnknownKind {
        /// The type, numbered on the distilled base.
        id: TypeId,
        /// Its kind.
        kind: Kind,
    },
    /// One of the three BTFs cannot be read.
    Btf(BtfError),
    /// The arena is too small.
    Arena(ArenaFull),
}

impl fmt::Display for RebaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnexpectedKind { id, kind } => write!(f, "distilled base type [{id}] is of kind {kind}"),
            Self::Anonymous { id } => write!(f, "distilled base type [{id}] has no name"),
            Self::NoMatch { id, differs: false } => write!(f, "base has no type like distilled base type [{id}]"),
            Self::NoMatch { id, differs: true } => {
                write!(f, "base has types of the name of distilled base type [{id}], but none of its size or encoding")
            }
            Self::Ambiguous { id, first } => {
                write!(f, "base has several types like distilled base type [{id}], the first is [{first}]")
            }
            Self::UnmappedString { offset } => {
                write!(f, "string {offset} of the distilled base is used, but names none of its types")
            }
            Self::UnknownKind { id, kind } => write!(f, "module type [{id}] is of kind {kind}, which is not known"),
            Self::Btf(error) => error.fmt(f),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

impl core::error::Error for RebaseError {}

impl From<BtfError> for RebaseError {
    fn from(error: BtfError) -> Self {
        match error {
            BtfError::Arena(full) => Self::Arena(full),
            error => Self::Btf(error),
        }
    }
}

impl From<ArenaFull> for RebaseError {
    fn from(full: ArenaFull) -> Self {
        Self::Arena(full)
    }
}

/// A module's BTF on its new base.
#[derive(Clone, Copy, Debug)]
pub struct Rebased<'a> {
    /// The blob, to be read with [`Btf::parse_split`] on the base.
    pub blob: &'a [u8],
    /// For each id of the distilled base, 0 included, the id in the new one.
    pub base_ids: &'a [u32],
}

/// Puts `split`, a module's `.BTF` made on the distilled base `distilled` (its `.BTF.base`), onto `base`.
///
/// A copy of `split` and the map of ids are kept in `arena`; the rest that is taken from it is given back.
///
/// # Errors
/// [`RebaseError`]
pub fn rebase<'a>(
    split: &[u8],
    distilled: &[u8],
    base: &Types<'_>,
    arena: &mut Arena<'a>,
) -> Result<Rebased<'a>, RebaseError> {
    let distilled = Btf::parse(distilled)?;
    let mut count = 1usize;
    for ty in distilled.iter() {
        check_distilled(&ty?)?;
        count = count.saturating_add(1);
    }
    let base_ids = arena.take::<u32>(count, Part::Candidates)?;
    let blob = arena.copy(split, Part::Window)?;

    let mut scratch = arena.scratch();
    let wanted = scratch.slice::<Wanted>(count, Part::Candidates)?;
    let mut inner = scratch.scratch();
    let distilled = Types::index(distilled, 1, None, &mut inner, Part::LocalIndex)?;
    let split_btf = Btf::parse_split(split, &distilled)?;
    collect(&distilled, wanted)?;
    mark_embedded(split_btf, &distilled, wanted, &mut inner)?;

    // By hash for the one walk over the base; later by name, as strings are moved by their offsets.
    wanted.sort_unstable_by_key(|wanted| wanted.hash);
    search(base, &distilled, wanted)?;
    for wanted in wanted.iter_mut().filter(|wanted| wanted.id != 0) {
        wanted.choose()?;
        wanted.chosen_name = base.get(TypeId(wanted.chosen))?.name_off();
    }
    for wanted in &*wanted {
        if let Some(id) = usize::try_from(wanted.id).ok().and_then(|id| base_ids.get_mut(id)) {
            *id = wanted.chosen;
        }
    }

    wanted.sort_unstable_by_key(|wanted| wanted.name_off);
    let moved = Moved {
        base_ids,
        named: wanted,
        ids_by: base.end_id().wrapping_sub(distilled.end_id()),
        strings_from: distilled.end_string(),
        strings_by: base.end_string().wrapping_sub(distilled.end_string()),
    };
    moved.rewrite(split_btf, blob)?;
    Ok(Rebased { blob, base_ids })
}

fn check_distilled(ty: &Type<'_>) -> Result<(), RebaseError> {
    match ty.kind() {
        Kind::Int | Kind::Float | Kind::Enum | Kind::Struct | Kind::Union | Kind::Fwd if ty.name_off() != 0 => Ok(()),
        Kind::Int | Kind::Float | Kind::Enum | Kind::Struct | Kind::Union | Kind::Fwd => {
            Err(RebaseError::Anonymous { id: ty.id() })
        }
        kind => Err(RebaseError::UnexpectedKind { id: ty.id(), kind }),
    }
}

/// Types of the distilled base that may share a name; there are one or two. It bounds the work on a hostile one, whose
/// further namesakes find no match.
const MAX_NAMESAKES: usize = 64;

/// A type of the distilled base, and what of it was found in the new one. The first one, of id 0, is for `void`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Wanted {
    hash: u32,
    id: u32,
    name_off: u32,
    byte_size: u32,
    kind: u32,
    /// Encoding of an INT, `kind_flag` of a FWD.
    detail: u32,
    is_embedded: u32,
    // Of what was found, how many there are and the first is enough: only one alone is taken.
    /// Of the kind and name: how many, and the first.
    named: u32,
    first_named: u32,
    /// Of the size (and encoding) as well.
    sized: u32,
    first_sized: u32,
    /// Forward declarations of a struct or union; for a FWD the structs or unions that it declares.
    others: u32,
    first_other: u32,
    chosen: u32,
    chosen_name: u32,
}

impl Wanted {
    fn kind(&self) -> Kind {
        Kind::from_number(low_u8(self.kind))
    }

    /// Notes a type of the base that has the name.
    fn consider(&mut self, found: &Type<'_>) {
        let same_kind = found.kind() == self.kind();
        let id = found.id().0;
        match self.kind() {
            Kind::Fwd if same_kind && u32::from(found.kind_flag()) == self.detail => {
                note(&mut self.named, &mut self.first_named, id);
            }
            Kind::Fwd => {
                let declared = if self.detail == 0 { Kind::Struct } else { Kind::Union };
                if found.kind() == declared {
                    note(&mut self.others, &mut self.first_other, id);
                }
            }
            Kind::Struct | Kind::Union if found.kind() == Kind::Fwd => {
                if found.kind_flag() == (self.kind() == Kind::Union) {
                    note(&mut self.others, &mut self.first_other, id);
                }
            }
            kind => {
                let is_wide_enum = kind == Kind::Enum && found.kind() == Kind::Enum64;
                if !same_kind && !is_wide_enum {
                    return;
                }
                note(&mut self.named, &mut self.first_named, id);
                let same_encoding = kind != Kind::Int || u32::from(found.int_encoding()) == self.detail;
                if found.byte_size() == self.byte_size && same_encoding {
                    note(&mut self.sized, &mut self.first_sized, id);
                }
            }
        }
    }

    fn choose(&mut self) -> Result<(), RebaseError> {
        let id = TypeId(self.id);
        let is_composite = self.kind().is_composite();
        // What the module only points to may have any size; what it holds as a whole has the one that it was compiled for.
        let by_name = self.kind() == Kind::Fwd || is_composite && self.is_embedded == 0 && self.named <= 1;
        let (count, first) = if by_name { (self.named, self.first_named) } else { (self.sized, self.first_sized) };
        let (count, first) = if by_name && count == 0 { (self.others, self.first_other) } else { (count, first) };
        match count {
            0 => Err(RebaseError::NoMatch { id, differs: self.named != 0 }),
            1 => {
                self.chosen = first;
                Ok(())
            }
            _ => Err(RebaseError::Ambiguous { id, first: TypeId(first) }),
        }
    }
}

fn note(count: &mut u32, first: &mut u32, id: u32) {
    if *count == 0 {
        *first = id;
    }
    *count = count.saturating_add(1);
}

fn collect(distilled: &Types<'_>, wanted: &mut [Wanted]) -> Result<(), RebaseError> {
    for (entry, ty) in wanted.iter_mut().skip(1).zip(distilled.btf().iter()) {
        let ty = ty?;
        entry.hash = hash(FNV_BASIS, distilled.identifier(ty.name_off())?);
        entry.id = ty.id().0;
        entry.name_off = ty.name_off();
        entry.byte_size = ty.byte_size();
        entry.kind = u32::from(ty.kind().number());
        entry.detail = match ty.kind() {
            Kind::Int => u32::from(ty.int_encoding()),
            Kind::Fwd => u32::from(ty.kind_flag()),
            _ => 0,
        };
    }
    Ok(())
}

/// Notes which structs and unions of the distilled base a struct or union of the module holds as a whole: those must
/// have the size that the module was compiled for.
fn mark_embedded<'s>(
    split: Btf<'s>,
    distilled: &'s Types<'s>,
    wanted: &mut [Wanted],
    arena: &mut Arena<'s>,
) -> Result<(), RebaseError> {
    let split = Types::index(split, 8, Some(distilled), arena, Part::LocalIndex)?;
    for ty in split.btf().iter() {
        for member in ty?.members() {
            let mut id = member.type_id;
            for _ in 0..MAX_CHAIN {
                let inner = split.get(id)?;
                id = match inner.kind() {
                    kind if kind.is_modifier_or_typedef() => inner.type_id(),
                    Kind::Array => match inner.array() {
                        Some(array) => array.element,
                        None => break,
                    },
                    kind => {
                        let entry = usize::try_from(id.0).ok().and_then(|id| wanted.get_mut(id));
                        if let Some(entry) = entry.filter(|_| kind.is_composite()) {
                            entry.is_embedded = 1;
                        }
                        break;
                    }
                };
            }
        }
    }
    Ok(())
}

/// Walks over the base once and shows each type to those that want its name. `wanted` is in the order of hashes.
fn search(base: &Types<'_>, distilled: &Types<'_>, wanted: &mut [Wanted]) -> Result<(), RebaseError> {
    for found in base.btf().iter() {
        let found = found?;
        let may_match = matches!(
            found.kind(),
            Kind::Int | Kind::Float | Kind::Enum | Kind::Enum64 | Kind::Struct | Kind::Union | Kind::Fwd
        );
        if !may_match || found.name_off() == 0 {
            continue;
        }
        let name = match base.identifier(found.name_off()) {
            Ok(name) => name,
            // The distilled base has none of these.
            Err(BtfError::NameTooLong { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let hash = hash(FNV_BASIS, name);
        let start = wanted.partition_point(|wanted| wanted.hash < hash);
        let alike = wanted.get_mut(start..).unwrap_or_default().iter_mut().take(MAX_NAMESAKES);
        for entry in alike.take_while(|wanted| wanted.hash == hash).filter(|wanted| wanted.id != 0) {
            if distilled.string_is(entry.name_off, name) {
                entry.consider(&found);
            }
        }
    }
    Ok(())
}

/// Where ids and strings of the module go.
struct Moved<'m> {
    base_ids: &'m [u32],
    /// In the order of their names' offsets.
    named: &'m [Wanted],
    ids_by: u32,
    strings_from: u32,
    strings_by: u32,
}

impl Moved<'_> {
    fn id(&self, id: u32) -> u32 {
        match usize::try_from(id).ok().and_then(|id| self.base_ids.get(id)) {
            Some(&mapped) => mapped,
            None => id.wrapping_add(self.ids_by),
        }
    }

    fn string(&self, offset: u32) -> Result<u32, RebaseError> {
        if offset == 0 {
            return Ok(0);
        }
        if offset >= self.strings_from {
            return Ok(offset.wrapping_add(self.strings_by));
        }
        let at = self.named.partition_point(|wanted| wanted.name_off < offset);
        let named = self.named.get(at).filter(|wanted| wanted.name_off == offset);
        named.map(|wanted| wanted.chosen_name).ok_or(RebaseError::UnmappedString { offset })
    }

    fn rewrite(&self, split: Btf<'_>, blob: &mut [u8]) -> Result<(), RebaseError> {
        let endian = split.endian();
        let mut at = usize::try_from(split.types_at()).unwrap_or(usize::MAX);
        for ty in split.iter() {
            let ty = ty?;
            self.rewrite_type(&ty, blob.get_mut(at..).unwrap_or_default(), endian)?;
            at = at.saturating_add(FIXED).saturating_add(ty.tail().len());
        }
        Ok(())
    }

    fn rewrite_type(&self, ty: &Type<'_>, record: &mut [u8], endian: Endian) -> Result<(), RebaseError> {
        let mut put = |at: usize, value: u32| {
            if let Some(place) = record.get_mut(at..).and_then(|tail| tail.first_chunk_mut::<4>()) {
                *place = u32_bytes(value, endian);
            }
        };
        put(0, self.string(ty.name_off())?);
        match ty.kind() {
            Kind::Ptr
            | Kind::Typedef
            | Kind::Volatile
            | Kind::Const
            | Kind::Restrict
            | Kind::TypeTag
            | Kind::Func
            | Kind::Var
            | Kind::DeclTag => put(8, self.id(ty.size_or_type())),
            Kind::Array => {
                if let Some(array) = ty.array() {
                    put(FIXED, self.id(array.element.0));
                    put(FIXED + 4, self.id(array.index.0));
                }
            }
            Kind::Struct | Kind::Union => {
                for (at, member) in (FIXED..).step_by(12).zip(ty.members()) {
                    put(at, self.string(member.name_off)?);
                    put(at.wrapping_add(4), self.id(member.type_id.0));
                }
            }
            Kind::Enum | Kind::Enum64 => {
                let step = if ty.kind() == Kind::Enum { 8 } else { 12 };
                for (at, enumerator) in (FIXED..).step_by(step).zip(ty.enumerators()) {
                    put(at, self.string(enumerator.name_off)?);
                }
            }
            Kind::FuncProto => {
                put(8, self.id(ty.size_or_type()));
                for (at, param) in (FIXED..).step_by(8).zip(ty.params()) {
                    put(at, self.string(param.name_off)?);
                    put(at.wrapping_add(4), self.id(param.type_id.0));
                }
            }
            Kind::Datasec => {
                for (at, var) in (FIXED..).step_by(12).zip(ty.section_vars()) {
                    put(at, self.id(var.type_id.0));
                }
            }
            Kind::Int | Kind::Float | Kind::Fwd => {}
            kind @ (Kind::Void | Kind::Unknown(_)) => return Err(RebaseError::UnknownKind { id: ty.id(), kind }),
        }
        Ok(())
    }
}

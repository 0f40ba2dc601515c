//! Functions of an object: its programs, and the subprograms that they call.

use elf::abi::SHT_REL;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Object;
use super::elf::{Rel, Rels, Symbol};
use super::error::ObjectError;
use crate::arena::{Arena, Part};
use crate::btf::ext::{InfoList, SectionRecords};
use crate::btf::lookup::{FNV_BASIS, hash};
use crate::bytes::Bytes;
use crate::insn::{INSN_SIZE, whole_slot_of};
use crate::numbers::{to_u32, to_u64, to_usize};

/// A section with code, and where its records are.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct CodeSection {
    section: u16,
    flags: u16,
    /// Where the code is in the file, in bytes.
    text_at: u32,
    text_len: u32,
    /// Where the relocations are in the file, in bytes.
    rels_at: u32,
    rels_len: u32,
    /// Where the section's entry is in each list of `.BTF.ext`, plus one; 0 for none.
    core_relos: u32,
    func_info: u32,
    line_info: u32,
}

const REL_SORTED: u16 = 1;
const CORE_SORTED: u16 = 2;
const FUNC_SORTED: u16 = 4;
const LINE_SORTED: u16 = 8;

/// A function.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Function {
    code: u16,
    flags: u16,
    insn_start: u32,
    insn_count: u32,
    symbol: u32,
}

const PROGRAM: u16 = 1;

impl Function {
    pub(crate) const NONE: Self = Self { code: u16::MAX, flags: 0, insn_start: 0, insn_count: 0, symbol: 0 };

    /// Whether it is a program: a function in a section other than `.text`.
    #[must_use]
    pub fn is_program(&self) -> bool {
        self.flags & PROGRAM != 0
    }

    /// Its symbol's index.
    #[must_use]
    pub fn symbol(&self) -> u32 {
        self.symbol
    }

    /// The slot in its section at which it starts.
    #[must_use]
    pub fn insn_start(&self) -> u32 {
        self.insn_start
    }

    /// Its instruction slots.
    #[must_use]
    pub fn insn_count(&self) -> u32 {
        self.insn_count
    }

    pub(crate) fn code(&self) -> usize {
        usize::from(self.code)
    }

    pub(crate) fn insn_end(&self) -> u32 {
        self.insn_start.saturating_add(self.insn_count)
    }

    pub(crate) fn contains(&self, insn_idx: u32) -> bool {
        (self.insn_start..self.insn_end()).contains(&insn_idx)
    }
}

impl CodeSection {
    pub(crate) const NONE: Self = Self {
        section: 0,
        flags: 0,
        text_at: 0,
        text_len: 0,
        rels_at: 0,
        rels_len: 0,
        core_relos: 0,
        func_info: 0,
        line_info: 0,
    };

    pub(crate) fn section(&self) -> u32 {
        u32::from(self.section)
    }

    pub(crate) fn text<'obj>(&self, object: &Object<'obj>) -> Bytes<'obj> {
        piece(object, self.text_at, self.text_len)
    }

    /// Its relocations; `order` is the object's [`Declared::rel_order`](super::Declared).
    pub(crate) fn rels<'obj>(&self, object: &Object<'obj>, order: &'obj [[u32; 2]]) -> SortedRels<'obj> {
        if cfg!(not(feature = "foreign-objects")) || self.flags & REL_SORTED != 0 {
            return SortedRels { rels: Rels::new(piece(object, self.rels_at, self.rels_len)), order: &[] };
        }
        let order = order.get(to_usize(self.rels_at)..).and_then(|order| order.get(..to_usize(self.rels_len)));
        let file = Bytes::new(object.bytes(), object.endian());
        SortedRels { rels: Rels::new(file), order: order.unwrap_or_default() }
    }

    pub(crate) fn core_relos<'obj>(&self, object: &Object<'obj>) -> Records<'obj> {
        Records::at(object.ext().core_relos, self.core_relos, self.flags & CORE_SORTED != 0)
    }

    pub(crate) fn func_info<'obj>(&self, object: &Object<'obj>) -> Records<'obj> {
        Records::at(object.ext().func_info, self.func_info, self.flags & FUNC_SORTED != 0)
    }

    pub(crate) fn line_info<'obj>(&self, object: &Object<'obj>) -> Records<'obj> {
        Records::at(object.ext().line_info, self.line_info, self.flags & LINE_SORTED != 0)
    }
}

/// A piece of the file.
fn piece<'obj>(object: &Object<'obj>, at: u32, len: u32) -> Bytes<'obj> {
    let file = Bytes::new(object.bytes(), object.endian());
    file.slice(to_usize(at), to_usize(len)).unwrap_or(Bytes::new(&[], object.endian()))
}

/// Where a piece of the file is in it.
fn place(object: &Object<'_>, bytes: &[u8]) -> Result<(u32, u32), ObjectError> {
    let at = u32::try_from(object.offset_in_file(bytes)).map_err(|_| ObjectError::TooMany)?;
    Ok((at, u32::try_from(bytes.len()).map_err(|_| ObjectError::TooMany)?))
}

/// Relocations of one section of code, in the order of what they are about. Compilers write them so; where they did not,
/// the order is made when the object is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SortedRels<'obj> {
    /// The section's entries, or where there is an order, the whole file.
    rels: Rels<'obj>,
    /// The offset of each entry, and where in the file it is.
    order: &'obj [[u32; 2]],
}

impl<'obj> SortedRels<'obj> {
    /// The entries whose offset lies in `start..end`, in bytes.
    pub(crate) fn range(self, start: u64, end: u64) -> impl Iterator<Item = Rel> + use<'obj> {
        let (first, past) = (self.lower_bound(start), self.lower_bound(end));
        (first..past).map_while(move |index| match self.place(index) {
            Some([_, at]) => self.rels.at(to_usize(at)),
            None => self.rels.get(index),
        })
    }

    fn place(&self, index: usize) -> Option<[u32; 2]> {
        if cfg!(feature = "foreign-objects") { self.order.get(index).copied() } else { None }
    }

    fn lower_bound(&self, wanted: u64) -> usize {
        if self.place(0).is_none() {
            return self.rels.lower_bound(wanted);
        }
        self.order.partition_point(|&[offset, _]| u64::from(offset) < wanted)
    }

    /// The entry of the instruction in slot `insn_idx`.
    pub(crate) fn of_insn(self, insn_idx: u32) -> Option<Rel> {
        let offset = u64::from(insn_idx).wrapping_mul(to_u64(INSN_SIZE));
        self.range(offset, offset.wrapping_add(1)).next()
    }
}

#[cfg(feature = "foreign-objects")]
/// Makes the order of the relocations that are not in it (see [`SortedRels`]).
fn order_rels<'buf>(
    object: &Object<'_>,
    code: &mut [CodeSection],
    arena: &mut Arena<'buf>,
) -> Result<&'buf [[u32; 2]], ObjectError> {
    let is_sorted = |section: &CodeSection| section.flags & REL_SORTED != 0;
    let count: u32 = code.iter().filter(|section| !is_sorted(section)).map(|section| section.rels_len >> 4).sum();
    let words = arena.slice::<u32>(to_usize(count).saturating_mul(2), Part::Functions)?;
    let order: &'buf mut [[u32; 2]] = words.as_chunks_mut().0;
    let mut start = 0usize;
    for section in code.iter_mut().filter(|section| !is_sorted(section)) {
        let rels = Rels::new(piece(object, section.rels_at, section.rels_len));
        let part = order.get_mut(start..).and_then(|rest| rest.get_mut(..rels.len())).unwrap_or_default();
        let mut at = section.rels_at;
        for (entry, rel) in part.iter_mut().zip(rels.iter()) {
            // An entry about a byte beyond 4 GB is about none of the section's, and the last byte of 4 GB neither.
            *entry = [u32::try_from(rel.offset).unwrap_or(u32::MAX), at];
            at = at.saturating_add(to_u32(super::elf::REL_SIZE));
        }
        part.sort_unstable();
        (section.rels_at, section.rels_len) = (to_u32(start), to_u32(part.len()));
        start = start.saturating_add(part.len());
    }
    Ok(order)
}

/// Records of `.BTF.ext` for one section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records<'obj> {
    records: Option<SectionRecords<'obj>>,
    is_sorted: bool,
}

impl<'obj> Records<'obj> {
    fn at(list: InfoList<'obj>, place: u32, is_sorted: bool) -> Self {
        let records = place.checked_sub(1).and_then(|offset| list.at(to_usize(offset)));
        Self { records, is_sorted }
    }

    /// The records about instructions in `start..end`, in bytes, each with its index in the section.
    pub(crate) fn range(self, start: u32, end: u32) -> impl Iterator<Item = (u32, SectionRecords<'obj>)> + use<'obj> {
        let count = self.records.map_or(0, |records| records.count);
        let indexes = match self.records {
            Some(records) if self.is_sorted => records.range(start, end),
            _ => 0..count,
        };
        indexes.filter_map(move |index| {
            let records = self.records?;
            (start..end).contains(&records.insn_off(index)?).then_some((index, records))
        })
    }

    /// All records.
    pub(crate) fn all(self) -> impl Iterator<Item = (u32, SectionRecords<'obj>)> + use<'obj> {
        self.range(0, u32::MAX)
    }
}

/// Code sections, functions, and the order of relocations that are not in it.
type Tables<'buf> = (&'buf [CodeSection], &'buf [Function], &'buf [[u32; 2]]);

/// Reads code sections and functions.
pub(super) fn read<'buf>(object: &Object<'_>, arena: &mut Arena<'buf>) -> Result<Tables<'buf>, ObjectError> {
    let (code, order) = read_code_sections(object, arena)?;
    let mut functions = arena.grow::<Function>(Part::Functions);
    for symbol in object.elf().symbols() {
        let symbol = symbol?;
        if let Some(function) = function(object, code, &symbol)? {
            functions.push(function)?;
        }
    }
    let functions = functions.finish()?;
    functions.sort_unstable_by_key(|function| (function.code, function.insn_start, function.symbol));
    mark_programs(object, code, functions)?;
    Ok((code, functions, order))
}

type Ordered<'buf> = (&'buf [CodeSection], &'buf [[u32; 2]]);

fn read_code_sections<'buf>(object: &Object<'_>, arena: &mut Arena<'buf>) -> Result<Ordered<'buf>, ObjectError> {
    let mut code = arena.grow::<CodeSection>(Part::Functions);
    for section in object.elf().sections() {
        let section = section?;
        if section.is_code() {
            let (text_at, text_len) = place(object, section.data.data())?;
            let section = u16::try_from(section.index).map_err(|_| ObjectError::TooMany)?;
            code.push(CodeSection { section, flags: REL_SORTED, text_at, text_len, ..CodeSection::NONE })?;
        }
    }
    let code = code.finish()?;
    for section in object.elf().sections() {
        let section = section?;
        if section.kind() == SHT_REL {
            attach_rels(object, code, &section)?;
        }
    }
    #[cfg(feature = "foreign-objects")]
    let order = order_rels(object, code, arena)?;
    #[cfg(not(feature = "foreign-objects"))]
    let order = &[];
    let ext = object.ext();
    attach_records(object, code, ext.core_relos, CORE_SORTED, |section| &mut section.core_relos, arena)?;
    attach_records(object, code, ext.func_info, FUNC_SORTED, |section| &mut section.func_info, arena)?;
    attach_records(object, code, ext.line_info, LINE_SORTED, |section| &mut section.line_info, arena)?;
    Ok((code, order))
}

fn attach_rels(
    object: &Object<'_>,
    code: &mut [CodeSection],
    rels: &super::elf::Section<'_>,
) -> Result<(), ObjectError> {
    let target = u16::try_from(rels.info()).map_err(|_| ObjectError::BadRelocations { section: rels.index })?;
    // Relocations of data and of debug sections are no code section's.
    let Ok(at) = code.binary_search_by_key(&target, |section| section.section) else { return Ok(()) };
    let entries = Rels::parse(rels)?;
    if let Some(section) = code.get_mut(at) {
        (section.rels_at, section.rels_len) = place(object, rels.data.data())?;
        if entries.is_sorted() {
            section.flags |= REL_SORTED;
        } else if cfg!(feature = "foreign-objects") {
            section.flags &= !REL_SORTED;
        } else {
            return Err(ObjectError::BadRelocations { section: rels.index });
        }
    }
    Ok(())
}

/// Finds the code section of each entry of a list by its name. Compilers write both in the same order, so a few steps
/// on from the last one are tried first; other orders are searched in a table of names.
fn attach_records(
    object: &Object<'_>,
    code: &mut [CodeSection],
    list: InfoList<'_>,
    sorted_flag: u16,
    place_of: impl Fn(&mut CodeSection) -> &mut u32,
    arena: &mut Arena<'_>,
) -> Result<(), ObjectError> {
    /// Sections without records of the kind that may lie between two with some.
    const STEPS: usize = 8;
    let Some(btf) = object.btf() else { return Ok(()) };
    let mut scratch = arena.scratch();
    let mut by_name: Option<&[[u32; 2]]> = None;
    let mut sections = list.sections();
    let mut cursor = 0usize;
    loop {
        let offset = sections.offset();
        let Some(records) = sections.next() else { break };
        let Some(name) = btf.own_string(records.name_off) else { continue };
        let is_it = |code: &mut [CodeSection], at: usize| {
            code.get_mut(at)
                .is_some_and(|section| object.section_name(section.section()) == name && *place_of(section) == 0)
        };
        let mut found = (cursor..code.len().min(cursor.saturating_add(STEPS))).find(|&at| is_it(code, at));
        if found.is_none() {
            let table = match by_name {
                Some(table) => table,
                None => *by_name.insert(sections_by_name(object, code, &mut scratch)?),
            };
            let hash = hash(FNV_BASIS, name);
            let start = table.partition_point(|&[other, _]| other < hash);
            let same = table.get(start..).unwrap_or(&[]).iter().take_while(|&&[other, _]| other == hash);
            found = same.map(|&[_, index]| to_usize(index)).find(|&at| is_it(code, at));
        }
        let Some(section) = found.and_then(|at| code.get_mut(at)) else { continue };
        *place_of(section) = to_u32(offset).saturating_add(1);
        if records.is_sorted() {
            section.flags |= sorted_flag;
        }
        cursor = found.map_or(cursor, |at| at.wrapping_add(1));
    }
    Ok(())
}

/// The hash of each code section's name with its index, in order.
fn sections_by_name<'s>(
    object: &Object<'_>,
    code: &[CodeSection],
    scratch: &mut Arena<'s>,
) -> Result<&'s [[u32; 2]], ObjectError> {
    let words = scratch.slice::<u32>(code.len().saturating_mul(2), Part::Functions)?;
    let (table, _) = words.as_chunks_mut();
    for ((index, section), entry) in (0u32..).zip(code).zip(&mut *table) {
        *entry = [hash(FNV_BASIS, object.section_name(section.section())), index];
    }
    table.sort_unstable();
    Ok(table)
}

fn function(object: &Object<'_>, code: &[CodeSection], symbol: &Symbol<'_>) -> Result<Option<Function>, ObjectError> {
    let (true, Some(section)) = (symbol.is_function(), symbol.section) else { return Ok(None) };
    let Ok(at) = code.binary_search_by_key(&section, CodeSection::section) else { return Ok(None) };
    let bad = ObjectError::BadFunction { symbol: symbol.index };
    let end = symbol.value.checked_add(symbol.size).ok_or(bad)?;
    let whole = |bytes: u64| -> Result<u32, ObjectError> { whole_slot_of(bytes).ok_or(bad) };
    if end > object.elf().section(section)?.size() || symbol.size == 0 {
        return Err(bad);
    }
    Ok(Some(Function {
        code: u16::try_from(at).map_err(|_| ObjectError::TooMany)?,
        flags: 0,
        insn_start: whole(symbol.value)?,
        insn_count: whole(symbol.size)?,
        symbol: symbol.index,
    }))
}

/// Functions in `.text` are subprograms, all others are programs (libbpf: `prog_is_subprog`).
fn mark_programs(object: &Object<'_>, code: &[CodeSection], functions: &mut [Function]) -> Result<(), ObjectError> {
    for function in functions {
        let section = code.get(function.code()).map_or(0, CodeSection::section);
        let is_text = object.section_name(section) == b".text";
        if !is_text && object.elf().symbol(function.symbol)?.is_local() {
            return Err(ObjectError::StaticProgram { symbol: function.symbol });
        }
        if !is_text {
            function.flags |= PROGRAM;
        }
    }
    Ok(())
}

//! The object's BTF as the kernel is given it.
//!
//! A compiler leaves sizes and offsets of variables to the loader, describes externs that the kernel does not want to
//! see, and writes kinds that older kernels refuse. What is mended here, and how, is libbpf's
//! (`btf_fixup_datasec`, `bpf_object__collect_externs`, `bpf_object__sanitize_btf`):
//!
//! | what | becomes |
//! |---|---|
//! | DATASEC without a size | size of the ELF section, offsets of the symbols, variables in their order |
//! | hidden variable, hidden global function | static |
//! | variables of `.kconfig` | global, at their offsets in the map |
//! | variables of `.ksyms` | global integers of 4 bytes; functions: a dummy variable in their place |
//! | extern functions | global, parameters that have no name get one |
//! | without DATASEC | DATASEC a struct of its name without dots, VAR an integer of one byte |
//! | without `?` in names of DATASEC | `_` |
//! | without FUNC | FUNC a typedef, FUNC_PROTO an enumeration |
//! | without global FUNC | static |
//! | without FLOAT | an empty struct of the size |
//! | without DECL_TAG | an integer of one byte |
//! | without TYPE_TAG | CONST |
//! | without ENUM64 | a union of the size; sign of enumerations dropped |
//!
//! Ids never change: what is added comes after the last type, and relocations and function info stay valid.

use core::fmt;

use super::header::MAGIC;
use super::{Btf, BtfError, FIXED, Info, Kind, Type, TypeId, Types};
use crate::arena::{Arena, ArenaFull, Part};
use crate::bytes::{Bytes, Endian, u16_bytes, u32_bytes};
use crate::numbers::{to_u32, to_usize};
use crate::uapi::linkage;

/// What BTF a kernel takes: a set of the constants, joined by [`with`](Self::with).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelBtfFeatures(u16);

impl KernelBtfFeatures {
    /// FUNC and FUNC_PROTO (5.0).
    pub const FUNC: Self = Self(1);
    /// VAR and DATASEC (5.2).
    pub const DATASEC: Self = Self(1 << 1);
    /// Global functions (5.6).
    pub const GLOBAL_FUNC: Self = Self(1 << 2);
    /// FLOAT (5.13).
    pub const FLOAT: Self = Self(1 << 3);
    /// DECL_TAG (5.16).
    pub const DECL_TAG: Self = Self(1 << 4);
    /// TYPE_TAG (5.17).
    pub const TYPE_TAG: Self = Self(1 << 5);
    /// ENUM64, and signed enumerations (6.0).
    pub const ENUM64: Self = Self(1 << 6);
    /// DATASEC whose name starts with `?` (6.9).
    pub const QMARK_DATASEC: Self = Self(1 << 7);
    /// All of them.
    pub const ALL: Self = Self(0xff);
    /// None: a kernel between 4.18, the first with BTF, and 5.0.
    pub const NONE: Self = Self(0);

    /// Each alone, with its name.
    pub const EACH: [(Self, &'static str); 8] = [
        (Self::FUNC, "func"),
        (Self::DATASEC, "datasec"),
        (Self::GLOBAL_FUNC, "global_func"),
        (Self::FLOAT, "float"),
        (Self::DECL_TAG, "decl_tag"),
        (Self::TYPE_TAG, "type_tag"),
        (Self::ENUM64, "enum64"),
        (Self::QMARK_DATASEC, "qmark_datasec"),
    ];

    /// Whether all of `other` are among them.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These but for those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// Where a variable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its offset in its section, in bytes.
    pub byte_offset: u32,
    /// Whether its symbol is hidden or internal.
    pub is_hidden: bool,
}

/// What the object file and the loader know of the places of variables.
pub trait ObjectLayout {
    /// Bytes of an ELF section, or for `.kconfig` of the map that is made for it.
    fn section_size(&self, section: &[u8]) -> Option<u32>;

    /// Where a global or weak variable of the section is: its symbol's value, or for `.kconfig` its offset in the map.
    fn variable(&self, section: &[u8], name: &[u8]) -> Option<Placed>;

    /// Whether a global function that is no program has a hidden symbol, which asks for the kernel to check it as a
    /// static one.
    fn is_hidden_function(&self, name: &[u8]) -> bool;
}

/// Why the object's BTF cannot be made ready for the kernel.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SanitizeError {
    /// A DATASEC has no size, and the object no section of its name, or an empty one.
    NoSection {
        /// The DATASEC.
        id: TypeId,
    },
    /// A variable of a DATASEC has no symbol.
    NoSymbol {
        /// The DATASEC.
        section: TypeId,
        /// The variable.
        variable: TypeId,
    },
    /// A DATASEC lists something other than variables.
    NotVariable {
        /// The DATASEC.
        section: TypeId,
        /// What it lists.
        found: TypeId,
    },
    /// The object's BTF cannot be read.
    Btf(BtfError),
    /// The arena is too small.
    Arena(ArenaFull),
}

impl fmt::Display for SanitizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSection { id } => write!(f, "BTF section [{id}] has no size, and the object no such section"),
            Self::NoSymbol { section, variable } => {
                write!(f, "variable [{variable}] of BTF section [{section}] has no symbol")
            }
            Self::NotVariable { section, found } => {
                write!(f, "BTF section [{section}] lists type [{found}], which is no variable")
            }
            Self::Btf(error) => error.fmt(f),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

impl core::error::Error for SanitizeError {}

impl From<BtfError> for SanitizeError {
    fn from(error: BtfError) -> Self {
        Self::Btf(error)
    }
}

impl From<ArenaFull> for SanitizeError {
    fn from(full: ArenaFull) -> Self {
        Self::Arena(full)
    }
}

const KSYMS: &[u8] = b".ksyms";
const KCONFIG: &[u8] = b".kconfig";
const INT_NAME: &[u8] = b"int\0";
const DUMMY_NAME: &[u8] = b"dummy_ksym\0";
const PLACEHOLDER_NAME: &[u8] = b"enum64_placeholder\0";
/// Bytes of each type that is added: an INT or a VAR.
const ADDED: usize = FIXED + 4;
pub(super) const HEADER: u32 = 24;
/// Bytes of a variable's entry in a DATASEC, and of a member and an enumerator of 64 bits.
const ITEM: usize = 12;
/// Bytes of a parameter, and of an enumerator.
const PARAM: usize = 8;
// Words of a type, by where in it they are. What follows the fixed ones is a variable's linkage, an integer's encoding.
const NAME: usize = 0;
const INFO: usize = 4;
const SIZE: usize = 8;
const TYPE: usize = SIZE;
const LINKAGE: usize = FIXED;
const ENCODING: usize = FIXED;
// Words of an item: variable, offset and size in a DATASEC; name, type and offset of a member; name and value halves of
// an enumerator; name and type of a parameter.
const FIRST: usize = 0;
const SECOND: usize = 4;
const THIRD: usize = 8;

/// Whether the kernel is to be given other bytes than the object's.
///
/// # Errors
/// [`SanitizeError`], but for [`SanitizeError::Arena`].
pub fn needs_change(
    types: &Types<'_>,
    layout: &impl ObjectLayout,
    features: KernelBtfFeatures,
) -> Result<bool, SanitizeError> {
    let additions = Additions::plan(types, features)?;
    let mut edit = Edit::new(types.btf(), None);
    let work = Work { types, layout, features, additions };
    work.run(&mut edit)?;
    Ok(edit.is_changed || additions.types_len() > 0)
}

/// Bytes of the changed copy that [`sanitize`] makes.
///
/// # Errors
/// [`SanitizeError::Btf`]
pub fn changed_len(types: &Types<'_>, features: KernelBtfFeatures) -> Result<usize, SanitizeError> {
    Ok(Additions::plan(types, features)?.blob_len(types.btf()))
}

/// The BTF for the kernel: `blob` itself, which `types` were read from, where nothing must change; else a copy in
/// `arena` with a header of 24 bytes. The byte order stays.
///
/// # Errors
/// [`SanitizeError`]
pub fn sanitize<'a>(
    blob: &'a [u8],
    types: &Types<'_>,
    layout: &impl ObjectLayout,
    features: KernelBtfFeatures,
    arena: &mut Arena<'a>,
) -> Result<&'a [u8], SanitizeError> {
    if !needs_change(types, layout, features)? {
        return Ok(blob);
    }
    let additions = Additions::plan(types, features)?;
    let btf = types.btf();
    let len = additions.blob_len(btf);
    let copy = arena.take::<u8>(len, Part::Btf)?;
    additions.write(btf, features, copy);
    let types_len = btf.types_len();
    let (own_types, rest) =
        copy.get_mut(to_usize(HEADER)..).and_then(|body| body.split_at_mut_checked(types_len)).unwrap_or_default();
    let own_strings = rest.get_mut(additions.types_len()..).unwrap_or_default();
    let mut edit = Edit::new(btf, Some((own_types, own_strings)));
    Work { types, layout, features, additions }.run(&mut edit)?;
    Ok(copy)
}

/// Types that come after the object's own: their ids.
#[derive(Clone, Copy, Debug)]
struct Additions {
    /// The integer of 4 bytes that variables of `.ksyms` become: the object's own, or one of ours.
    int: Option<u32>,
    adds_int: bool,
    dummy: Option<u32>,
    placeholder: Option<u32>,
    /// Whether the dummy's name is added: for itself, or for parameters that have none.
    adds_dummy_name: bool,
    dummy_name: u32,
}

impl Additions {
    fn plan(types: &Types<'_>, features: KernelBtfFeatures) -> Result<Self, BtfError> {
        let (mut has_ksyms, mut has_kfuncs, mut has_enum64, mut int) = (false, false, false, None);
        let (mut has_nameless_params, mut has_extern_functions) = (false, false);
        for ty in types.btf().iter() {
            let ty = ty?;
            match ty.kind() {
                Kind::Int if int.is_none() && ty.byte_size() == 4 && ty.int_bits() == 32 => int = Some(ty.id().0),
                Kind::Datasec if types.is_called(&ty, KSYMS)? => {
                    has_ksyms = true;
                    for var in ty.section_vars() {
                        has_kfuncs |= types.get(var.type_id)?.kind() == Kind::Func;
                    }
                }
                Kind::Enum64 => has_enum64 = true,
                Kind::Func => has_extern_functions |= ty.linkage() == linkage::EXTERN,
                Kind::FuncProto => has_nameless_params |= ty.params().any(|param| param.name_off == 0),
                _ => {}
            }
        }
        let mut next = types.end_id();
        let mut add = |wanted: bool| {
            wanted.then(|| {
                let id = next;
                next = next.saturating_add(1);
                id
            })
        };
        let added_int = add(has_ksyms && int.is_none());
        let int_name_len = if added_int.is_some() { to_u32(INT_NAME.len()) } else { 0 };
        let needs_names = has_extern_functions || !features.has(KernelBtfFeatures::FUNC);
        Ok(Self {
            int: int.or(added_int),
            adds_int: added_int.is_some(),
            dummy: add(has_kfuncs),
            placeholder: add(has_enum64 && !features.has(KernelBtfFeatures::ENUM64)),
            adds_dummy_name: has_kfuncs || has_nameless_params && needs_names,
            dummy_name: types.end_string().saturating_add(int_name_len),
        })
    }

    /// Bytes of the types that are added.
    fn types_len(&self) -> usize {
        let is_added = [self.adds_int, self.dummy.is_some(), self.placeholder.is_some()];
        is_added.map(|added| if added { ADDED } else { 0 }).iter().sum()
    }

    fn strings(&self) -> impl Iterator<Item = &'static [u8]> {
        let named = [
            (self.adds_int, INT_NAME),
            (self.adds_dummy_name, DUMMY_NAME),
            (self.placeholder.is_some(), PLACEHOLDER_NAME),
        ];
        named.into_iter().filter(|(added, _)| *added).map(|(_, name)| name)
    }

    fn blob_len(&self, btf: Btf<'_>) -> usize {
        let strings_len: usize = self.strings().map(<[u8]>::len).sum();
        // Both sections may be the whole blob: on a 32-bit host the sum need not fit.
        let own_len = btf.types_len().saturating_add(btf.strings().len());
        own_len.saturating_add(to_usize(HEADER)).saturating_add(self.types_len()).saturating_add(strings_len)
    }

    /// Writes the whole blob, the object's own parts as they are.
    fn write(&self, btf: Btf<'_>, features: KernelBtfFeatures, copy: &mut [u8]) {
        let endian = btf.endian();
        let types_len = to_u32(btf.types_len().saturating_add(self.types_len()));
        let strings_len = to_u32(copy.len()).saturating_sub(HEADER).saturating_sub(types_len);
        let mut out = Writer { left: copy, endian };
        out.header(types_len, strings_len);
        out.bytes(btf.types.data());

        let int_name = to_u32(btf.strings().len());
        let int_info = Info::new(Kind::Int, 0, false).0;
        if self.adds_int {
            out.words(&[int_name, int_info, 4, 1 << 24 | 32]);
        }
        if self.dummy.is_some() {
            let name = self.dummy_name;
            if features.has(KernelBtfFeatures::DATASEC) {
                out.words(&[name, Info::new(Kind::Var, 0, false).0, self.int.unwrap_or(0), linkage::GLOBAL]);
            } else {
                out.words(&[name, int_info, 1, 8]);
            }
        }
        if self.placeholder.is_some() {
            let name_len = if self.adds_dummy_name { to_u32(DUMMY_NAME.len()) } else { 0 };
            out.words(&[self.dummy_name.saturating_add(name_len), int_info, 1, 8]);
        }
        out.bytes(btf.strings());
        for name in self.strings() {
            out.bytes(name);
        }
    }
}

/// Fills a slice from its start; what does not fit is left out.
pub(super) struct Writer<'w> {
    pub(super) left: &'w mut [u8],
    pub(super) endian: Endian,
}

impl Writer<'_> {
    /// A header of 24 bytes: the types, and behind them the strings.
    pub(super) fn header(&mut self, types_len: u32, strings_len: u32) {
        self.bytes(&u16_bytes(MAGIC, self.endian));
        self.bytes(&[1, 0]);
        self.words(&[HEADER, 0, types_len, types_len, strings_len]);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        if let Some((place, left)) = core::mem::take(&mut self.left).split_at_mut_checked(bytes.len()) {
            place.copy_from_slice(bytes);
            self.left = left;
        }
    }

    pub(super) fn words(&mut self, words: &[u32]) {
        for &word in words {
            self.bytes(&u32_bytes(word, self.endian));
        }
    }
}

/// The type section being changed, or without a copy the question whether it would be.
///
/// Without a copy, what is read is the object's own: right as long as nothing is changed, and when something is, the
/// question is answered.
struct Edit<'e> {
    own: Bytes<'e>,
    copy: Option<(&'e mut [u8], &'e mut [u8])>,
    is_changed: bool,
}

impl<'e> Edit<'e> {
    fn new(btf: Btf<'e>, copy: Option<(&'e mut [u8], &'e mut [u8])>) -> Self {
        Self { own: btf.types, copy, is_changed: false }
    }

    fn is_answered(&self) -> bool {
        self.copy.is_none() && self.is_changed
    }

    fn word(&self, record: usize, field: usize) -> u32 {
        let types = self.copy.as_ref().map_or(self.own, |(types, _)| Bytes::new(types, self.own.endian()));
        types.u32(record.wrapping_add(field)).unwrap_or(0)
    }

    /// Sets the word `field` of the type or item that starts at `record`.
    fn put(&mut self, record: usize, field: usize, value: u32) {
        self.is_changed |= self.word(record, field) != value;
        if let Some((types, _)) = &mut self.copy
            && let Some(place) =
                types.get_mut(record.wrapping_add(field)..).and_then(|tail| tail.first_chunk_mut::<4>())
        {
            *place = u32_bytes(value, self.own.endian());
        }
    }

    /// Replaces bytes of the object's own string at `offset`, where `mend` wants another one.
    fn mend_string(&mut self, offset: u32, mend: impl Fn(usize, u8) -> u8) {
        if let Some((_, strings)) = &mut self.copy {
            let string = strings.get_mut(to_usize(offset)..).unwrap_or_default();
            for (position, byte) in string.iter_mut().take_while(|byte| **byte != 0).enumerate() {
                *byte = mend(position, *byte);
            }
        }
    }

    /// Brings the entries of the DATASEC at `at` into the order of their offsets.
    fn sort_variables(&mut self, at: usize, count: usize) {
        let at = at.wrapping_add(FIXED);
        let endian = self.own.endian();
        let offset = |entry: &[u8; ITEM]| {
            let entry = Bytes::new(entry, endian);
            (entry.u32(4), entry.u32(8), entry.u32(0))
        };
        match &mut self.copy {
            Some((types, _)) => {
                let entries = types.get_mut(at..).unwrap_or_default().as_chunks_mut::<ITEM>().0;
                if let Some(entries) = entries.get_mut(..count) {
                    entries.sort_unstable_by_key(offset);
                }
            }
            None => {
                let entries = self.own.data().get(at..).unwrap_or_default().as_chunks::<ITEM>().0;
                self.is_changed |= !entries.get(..count).unwrap_or_default().is_sorted_by_key(offset);
            }
        }
    }
}

struct Work<'w, 't, L> {
    types: &'w Types<'t>,
    layout: &'w L,
    features: KernelBtfFeatures,
    additions: Additions,
}

impl<L: ObjectLayout> Work<'_, '_, L> {
    fn run(&self, edit: &mut Edit<'_>) -> Result<(), SanitizeError> {
        self.each(edit, |edit, at, ty| self.fix(edit, at, ty))?;
        self.each(edit, |edit, at, ty| self.replace(edit, at, ty))
    }

    fn each<'e>(
        &self,
        edit: &mut Edit<'e>,
        change: impl Fn(&mut Edit<'e>, usize, &Type<'_>) -> Result<(), SanitizeError>,
    ) -> Result<(), SanitizeError> {
        let mut at = 0usize;
        for ty in self.types.btf().iter() {
            if edit.is_answered() {
                return Ok(());
            }
            let ty = ty?;
            change(edit, at, &ty)?;
            at = at.saturating_add(FIXED).saturating_add(ty.tail().len());
        }
        Ok(())
    }

    /// What the compiler left to the loader.
    fn fix(&self, edit: &mut Edit<'_>, at: usize, ty: &Type<'_>) -> Result<(), SanitizeError> {
        match ty.kind() {
            Kind::Datasec => match self.types.name(ty)? {
                KSYMS => self.fix_ksyms(edit, at, ty),
                name => self.fix_section(edit, at, ty, name),
            },
            Kind::Func if ty.linkage() == linkage::GLOBAL && self.layout.is_hidden_function(self.types.name(ty)?) => {
                edit.put(at, INFO, Info::new(Kind::Func, linkage::STATIC, false).0);
                Ok(())
            }
            Kind::Func if ty.linkage() == linkage::EXTERN => {
                edit.put(at, INFO, Info::new(Kind::Func, linkage::GLOBAL, false).0);
                self.name_params(edit, ty.type_id())
            }
            _ => Ok(()),
        }
    }

    fn fix_section(&self, edit: &mut Edit<'_>, at: usize, ty: &Type<'_>, name: &[u8]) -> Result<(), SanitizeError> {
        let is_kconfig = name == KCONFIG;
        let lacks_places = ty.byte_size() == 0 || is_kconfig;
        if lacks_places {
            let size = self.layout.section_size(name).filter(|&size| size != 0);
            edit.put(at, SIZE, size.ok_or(SanitizeError::NoSection { id: ty.id() })?);
        }
        for (entry, listed) in items(at, ITEM).zip(ty.section_vars()) {
            let variable = self.types.get(listed.type_id)?;
            if variable.kind() != Kind::Var {
                return Err(SanitizeError::NotVariable { section: ty.id(), found: variable.id() });
            }
            if !is_kconfig && matches!(variable.linkage(), linkage::STATIC | linkage::EXTERN) {
                continue;
            }
            let missing = SanitizeError::NoSymbol { section: ty.id(), variable: variable.id() };
            let placed = self.layout.variable(name, self.types.name(&variable)?).ok_or(missing)?;
            if lacks_places {
                edit.put(entry, SECOND, placed.byte_offset);
            }
            let variable_at = self.types.place(variable.id())?;
            if is_kconfig {
                edit.put(variable_at, LINKAGE, linkage::GLOBAL);
            } else if placed.is_hidden {
                edit.put(variable_at, LINKAGE, linkage::STATIC);
            }
        }
        edit.sort_variables(at, to_usize(ty.vlen()));
        Ok(())
    }

    fn fix_ksyms(&self, edit: &mut Edit<'_>, at: usize, ty: &Type<'_>) -> Result<(), SanitizeError> {
        edit.put(at, SIZE, ty.vlen().saturating_mul(4));
        for ((index, entry), listed) in (0u32..).zip(items(at, ITEM)).zip(ty.section_vars()) {
            let symbol = self.types.get(listed.type_id)?;
            match (symbol.kind(), self.additions.dummy) {
                (Kind::Func, Some(dummy)) => edit.put(entry, FIRST, dummy),
                (Kind::Var, _) => {
                    let symbol_at = self.types.place(symbol.id())?;
                    edit.put(symbol_at, TYPE, self.additions.int.unwrap_or(0));
                    edit.put(symbol_at, LINKAGE, linkage::GLOBAL);
                }
                _ => return Err(SanitizeError::NotVariable { section: ty.id(), found: symbol.id() }),
            }
            edit.put(entry, SECOND, index.saturating_mul(4));
            edit.put(entry, THIRD, 4);
        }
        Ok(())
    }

    /// A global function's parameters must have names; those of a declaration may lack them.
    fn name_params(&self, edit: &mut Edit<'_>, prototype: TypeId) -> Result<(), SanitizeError> {
        let at = self.types.place(prototype)?;
        for (param_at, param) in items(at, PARAM).zip(self.types.get(prototype)?.params()) {
            if param.name_off == 0 && param.type_id != TypeId::VOID {
                edit.put(param_at, FIRST, self.additions.dummy_name);
            }
        }
        Ok(())
    }

    /// What the kernel does not know.
    fn replace(&self, edit: &mut Edit<'_>, at: usize, ty: &Type<'_>) -> Result<(), SanitizeError> {
        use KernelBtfFeatures as F;
        let lacks = |feature| !self.features.has(feature);
        match ty.kind() {
            Kind::Var if lacks(F::DATASEC) => to_byte(edit, at),
            Kind::DeclTag if lacks(F::DECL_TAG) => to_byte(edit, at),
            Kind::Datasec if lacks(F::DATASEC) => self.section_to_struct(edit, at, ty)?,
            Kind::Datasec if lacks(F::QMARK_DATASEC) && self.types.name(ty)?.starts_with(b"?") => {
                edit.is_changed = true;
                edit.mend_string(ty.name_off(), |position, byte| if position == 0 { b'_' } else { byte });
            }
            Kind::FuncProto if lacks(F::FUNC) => {
                edit.put(at, INFO, Info::new(Kind::Enum, ty.vlen(), false).0);
                edit.put(at, SIZE, 4);
                // An enumerator must have a name; a parameter may lack it.
                for (param_at, _) in items(at, PARAM).zip(ty.params()).filter(|(_, param)| param.name_off == 0) {
                    edit.put(param_at, FIRST, self.additions.dummy_name);
                }
            }
            Kind::Func if lacks(F::FUNC) => edit.put(at, INFO, Info::new(Kind::Typedef, 0, false).0),
            Kind::Func if lacks(F::GLOBAL_FUNC) => edit.put(at, INFO, Info::new(Kind::Func, linkage::STATIC, false).0),
            Kind::Float if lacks(F::FLOAT) => {
                // `float` is no name for a struct.
                edit.put(at, NAME, 0);
                edit.put(at, INFO, Info::new(Kind::Struct, 0, false).0);
            }
            Kind::TypeTag if lacks(F::TYPE_TAG) => {
                edit.put(at, NAME, 0);
                edit.put(at, INFO, Info::new(Kind::Const, 0, false).0);
            }
            Kind::Enum if lacks(F::ENUM64) => edit.put(at, INFO, Info::new(Kind::Enum, ty.vlen(), false).0),
            Kind::Enum64 if lacks(F::ENUM64) => {
                edit.put(at, INFO, Info::new(Kind::Union, ty.vlen(), false).0);
                for entry in items(at, ITEM).take(to_usize(ty.vlen())) {
                    edit.put(entry, SECOND, self.additions.placeholder.unwrap_or(0));
                    edit.put(entry, THIRD, 0);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn section_to_struct(&self, edit: &mut Edit<'_>, at: usize, ty: &Type<'_>) -> Result<(), SanitizeError> {
        edit.put(at, INFO, Info::new(Kind::Struct, ty.vlen(), false).0);
        edit.mend_string(ty.name_off(), |_, byte| if byte.is_ascii_alphanumeric() { byte } else { b'_' });
        for entry in items(at, ITEM).take(to_usize(ty.vlen())) {
            let (id, byte_offset) = (edit.word(entry, FIRST), edit.word(entry, SECOND));
            let name = match self.additions.dummy {
                Some(dummy) if dummy == id => self.additions.dummy_name,
                _ => self.types.get(TypeId(id))?.name_off(),
            };
            edit.put(entry, FIRST, name);
            edit.put(entry, SECOND, id);
            edit.put(entry, THIRD, byte_offset.saturating_mul(8));
        }
        Ok(())
    }
}

/// An integer of one byte: any larger one might not fit where the type is used.
fn to_byte(edit: &mut Edit<'_>, at: usize) {
    edit.put(at, INFO, Info::new(Kind::Int, 0, false).0);
    edit.put(at, SIZE, 1);
    edit.put(at, ENCODING, 8);
}

/// Where the items of the type at `at` start, which are of `item_len` bytes each.
fn items(at: usize, item_len: usize) -> impl Iterator<Item = usize> {
    (at.wrapping_add(FIXED)..).step_by(item_len)
}

//! What a BPF object declares: programs, maps, global data, externs.
//!
//! [`Object`] is a borrowed view of the file. [`Declared`] holds what was found in it, in the caller's arena: the
//! indexes of functions, maps and externs there are what the rest of the crate speaks of.

mod datasec;
pub(crate) mod elf;
mod error;
mod externs;
mod functions;
mod ids;
pub(crate) mod layout;
mod legacy_maps;
mod map;
mod maps;
pub mod section_name;
mod slots;
mod variables;

pub use error::ObjectError;
pub use externs::{DataRange, Extern, ExternKind};
pub(crate) use functions::CodeSection;
pub use functions::Function;
pub use ids::{ExternId, MapId, ProgramId};
pub(crate) use map::ARENA_SECTION;
pub use map::{DataSection, Map, MapOrigin, Pinning};
pub(crate) use slots::rels_of;
pub use slots::{Slot, SlotTarget};
pub use variables::Variable;

use crate::arena::{Arena, Part};
use crate::btf::ext::BtfExt;
use crate::btf::{Btf, Kind, Type, Types};
use crate::bytes::Endian;
use crate::numbers::to_usize;
use elf::Elf;

/// A BPF object file, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Object<'obj> {
    elf: Elf<'obj>,
    btf: Option<Btf<'obj>>,
    /// Where `.BTF` starts in the file.
    btf_at: usize,
    btf_bytes: &'obj [u8],
    ext: BtfExt<'obj>,
    license: &'obj [u8],
    version: u32,
}

impl<'obj> Object<'obj> {
    /// Checks the file's headers and finds `.BTF`, `.BTF.ext`, `license` and `version`.
    ///
    /// # Errors
    /// [`ObjectError`] for what is no 64-bit BPF object, and for faults of those sections.
    pub fn parse(file: &'obj [u8]) -> Result<Self, ObjectError> {
        let elf = Elf::parse(file)?;
        let endian = elf.endian();
        let mut object =
            Self { elf, btf: None, btf_at: 0, btf_bytes: &[], ext: BtfExt::empty(endian), license: &[], version: 0 };
        let mut ext = None;
        for section in elf.sections() {
            let section = section?;
            if section.is_compressed() {
                return Err(ObjectError::Compressed { section: section.index });
            }
            match section.name() {
                b".BTF" => {
                    object.btf_bytes = section.data.data();
                    object.btf_at = object.offset_in_file(object.btf_bytes);
                    object.btf = Some(Btf::parse(object.btf_bytes)?);
                }
                b".BTF.ext" => ext = Some(section.data.data()),
                b"license" => object.license = up_to_nul(section.data.data()),
                b"version" => object.version = section.data.u32(0).unwrap_or(0),
                _ => {}
            }
        }
        // Without .BTF there are no strings and types for .BTF.ext to refer to (libbpf drops it with a note).
        if let (Some(_), Some(bytes)) = (object.btf, ext) {
            object.ext = BtfExt::parse(bytes, endian)?;
        }
        Ok(object)
    }

    /// The byte order of the object.
    #[must_use]
    pub fn endian(&self) -> Endian {
        self.elf.endian()
    }

    /// The object's bytes.
    #[must_use]
    pub fn bytes(&self) -> &'obj [u8] {
        self.elf.data()
    }

    /// Its BTF.
    #[must_use]
    pub fn btf(&self) -> Option<Btf<'obj>> {
        self.btf
    }

    /// The bytes of its `.BTF` section; none where there is no such section.
    #[must_use]
    pub fn btf_bytes(&self) -> &'obj [u8] {
        self.btf_bytes
    }

    /// Its `.BTF.ext`; empty lists where it has none.
    #[must_use]
    pub fn ext(&self) -> &BtfExt<'obj> {
        &self.ext
    }

    /// Where the strings of `.BTF` start in the file.
    pub(crate) fn strings_at(&self) -> usize {
        self.btf.map_or(0, |btf| self.btf_at.saturating_add(to_usize(btf.strings_at())))
    }

    /// The licence, up to its first NUL or the end of its section; empty where the object has none.
    #[must_use]
    pub fn license(&self) -> &'obj [u8] {
        self.license
    }

    /// The kernel version that the object was compiled for: the `version` section, or 0.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The name of a section; empty for a number that is none.
    #[must_use]
    pub fn section_name(&self, section: u32) -> &'obj [u8] {
        self.elf.section(section).map_or(&[], |section| section.name())
    }

    /// The name of a symbol; empty for a number that is none.
    #[must_use]
    pub fn symbol_name(&self, symbol: u32) -> &'obj [u8] {
        self.elf.symbol(symbol).map_or(&[], |symbol| symbol.name())
    }

    pub(crate) fn elf(&self) -> &Elf<'obj> {
        &self.elf
    }

    /// Where `part`, a piece of the file, starts in it.
    pub(crate) fn offset_in_file(&self, part: &[u8]) -> usize {
        // Both are addresses of one slice; the difference is an offset in it.
        part.as_ptr().addr().wrapping_sub(self.elf.data().as_ptr().addr())
    }
}

fn up_to_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or(bytes)
}

/// What an object declares, in arena slices.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'buf> {
    pub(crate) code: &'buf [CodeSection],
    pub(crate) functions: &'buf [Function],
    pub(crate) maps: &'buf [Map],
    pub(crate) externs: &'buf [Extern],
    /// The order of relocations that the file does not have in theirs: see `CodeSection::rels`.
    pub(crate) rel_order: &'buf [[u32; 2]],
    /// Whether some function is named as what handles a program's exceptions, so that programs must look for theirs.
    pub(crate) has_exception_callbacks: bool,
}

impl<'buf> Declared<'buf> {
    /// Reads all declarations of `object`, whose BTF is indexed as `local`.
    ///
    /// # Errors
    /// [`ObjectError`]
    pub fn read(object: &Object<'_>, local: Option<&Types<'_>>, arena: &mut Arena<'buf>) -> Result<Self, ObjectError> {
        let (code, functions, rel_order) = functions::read(object, arena)?;
        let externs = externs::read(object, local, arena)?;
        let maps = maps::read(object, local, externs, arena)?;
        // What throws is an extern, so most objects need not be looked through.
        let has_exception_callbacks =
            !externs.is_empty() && local.is_some_and(|local| exception_callback(local, None).is_some());
        Ok(Self { code, functions, maps, externs, rel_order, has_exception_callbacks })
    }

    /// The object's functions, by section and place: programs and subprograms.
    #[must_use]
    pub fn functions(&self) -> &'buf [Function] {
        self.functions
    }

    /// The index of the function that starts at slot `insn_start` of code section `code`.
    pub(crate) fn function_at(&self, code: usize, insn_start: u32) -> Option<usize> {
        let at = self.functions.partition_point(|found| (found.code(), found.insn_start()) < (code, insn_start));
        let found = self.functions.get(at)?;
        (found.code() == code && found.insn_start() == insn_start).then_some(at)
    }

    /// That function; `None` for one of another object.
    #[must_use]
    pub fn function(&self, id: ProgramId) -> Option<&'buf Function> {
        self.functions.get(id.index())
    }

    /// The programs among the functions.
    pub fn programs(&self) -> impl Iterator<Item = (ProgramId, &'buf Function)> + use<'buf> {
        ProgramId::with_each(self.functions).filter(|(_, function)| function.is_program())
    }

    /// The maps: those of `.maps` and legacy sections, then global data, then `.kconfig`.
    #[must_use]
    pub fn maps(&self) -> &'buf [Map] {
        self.maps
    }

    /// That map; `None` for one of another object.
    #[must_use]
    pub fn map(&self, id: MapId) -> Option<&'buf Map> {
        self.maps.get(id.index())
    }

    /// The maps with their ids.
    pub fn maps_by_id(&self) -> impl Iterator<Item = (MapId, &'buf Map)> + use<'buf> {
        MapId::with_each(self.maps)
    }

    /// The section that a function is in.
    #[must_use]
    pub fn section_of(&self, function: &Function) -> u32 {
        self.code.get(function.code()).map_or(0, CodeSection::section)
    }

    /// The externs.
    #[must_use]
    pub fn externs(&self) -> &'buf [Extern] {
        self.externs
    }

    /// That extern; `None` for one of another object.
    #[must_use]
    pub fn external(&self, id: ExternId) -> Option<&'buf Extern> {
        self.externs.get(id.index())
    }

    /// The externs with their ids.
    pub fn externs_by_id(&self) -> impl Iterator<Item = (ExternId, &'buf Extern)> + use<'buf> {
        ExternId::with_each(self.externs)
    }

    /// Bytes of arena that each table takes.
    #[must_use]
    pub fn parts(&self) -> [(Part, usize); 3] {
        [
            (
                Part::Functions,
                size_of_val(self.code)
                    .wrapping_add(size_of_val(self.functions))
                    .wrapping_add(size_of_val(self.rel_order)),
            ),
            (Part::Maps, size_of_val(self.maps)),
            (Part::Externs, size_of_val(self.externs)),
        ]
    }
}

/// The name in a declaration tag `exception_callback:NAME` on `function`, or on any where that is `None` (libbpf:
/// `bpf_prog_assign_exc_cb`). Two such tags on one function count as none: they are the verifier's to refuse.
#[inline(never)]
pub(crate) fn exception_callback<'o>(local: &Types<'o>, function: Option<&[u8]>) -> Option<&'o [u8]> {
    let btf = local.btf();
    let mut found = None;
    for tag in btf.iter().map_while(Result::ok) {
        if tag.kind() != Kind::DeclTag || tag.component_idx() != -1 {
            continue;
        }
        let name = btf.own_string(tag.name_off()).and_then(|name| name.strip_prefix(b"exception_callback:"));
        let Some(name) = name else { continue };
        let Some(function) = function else { return Some(name) };
        let is_it = |ty: Type<'_>| ty.kind() == Kind::Func && local.string_is(ty.name_off(), function);
        if local.get(tag.type_id()).is_ok_and(is_it) {
            if found.is_some() {
                return None;
            }
            found = Some(name);
        }
    }
    found
}

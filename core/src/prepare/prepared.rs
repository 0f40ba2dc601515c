//! An object whose every relocation is decided.

use crate::arena::{Arena, Part};
use crate::btf::lookup::{Answers, Query};
use crate::btf::sanitize::{KernelBtfFeatures, SanitizeError, sanitize};
use crate::btf::{TypeId, Types};
use crate::link::{LinkError, LinkedProgram, Linker};
use crate::object::layout::Layout;
use crate::object::section_name::{self, AttachBtf};
use crate::object::{
    CodeSection, Declared, ExternId, Function, Map, MapId, MapOrigin, Object, ObjectError, ProgramId, Slot, Variable,
};
use crate::relo::decision::{Decisions, VMLINUX};
use crate::struct_ops::{KernelMember, StructOps, StructOpsError, Tables};

use super::queries::{InModule, Owner, attach_btf, extern_is_compatible};
use super::sections::Sections;

/// What an extern is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ExternMatch {
    /// This variable or function, of vmlinux (module 0) or a module.
    Found {
        /// Its type.
        id: TypeId,
        /// The module.
        module: u16,
    },
    /// The kernel has none of the name.
    Missing,
    /// The kernel has it with this type, which is not compatible with the declared one.
    Incompatible {
        /// The variable or function.
        id: TypeId,
        /// The module.
        module: u16,
    },
}

/// An object whose every relocation is decided: views of the object, the kernel's types and the arena, so that a copy is
/// cheap and as good.
#[derive(Clone, Copy, Debug)]
pub struct Prepared<'a> {
    pub(super) object: Object<'a>,
    pub(super) local: Option<Types<'a>>,
    pub(super) declared: Declared<'a>,
    pub(super) decisions: Decisions<'a>,
    pub(super) answers: Option<Answers<'a>>,
    pub(super) in_modules: &'a [InModule],
    pub(super) queries_len: usize,
    pub(super) visited: u32,
    pub(super) sections: Sections<'a>,
}

impl<'a> Prepared<'a> {
    /// The object.
    #[must_use]
    pub fn object(&self) -> &Object<'a> {
        &self.object
    }

    /// The object's own types.
    #[must_use]
    pub fn local(&self) -> Option<&Types<'a>> {
        self.local.as_ref()
    }

    /// What it declares.
    #[must_use]
    pub fn declared(&self) -> &Declared<'a> {
        &self.declared
    }

    /// What was decided.
    #[must_use]
    pub fn decisions(&self) -> &Decisions<'a> {
        &self.decisions
    }

    /// What the kernel answered; `None` where nothing was asked.
    #[must_use]
    pub fn answers(&self) -> Option<&Answers<'a>> {
        self.answers.as_ref()
    }

    /// How many types of the kernel and of modules were walked over: none by [`Snapshot::prepare`](super::Snapshot::prepare).
    #[must_use]
    pub fn visited(&self) -> u32 {
        self.visited
    }

    /// How many names were asked of the kernel.
    #[must_use]
    pub fn questions(&self) -> usize {
        self.queries_len
    }

    /// The object's maps.
    #[must_use]
    pub fn maps(&self) -> &'a [Map] {
        self.declared.maps
    }

    /// The name of a map as the source has it.
    #[must_use]
    pub fn map_name(&self, map: &Map) -> &'a [u8] {
        map.name(&self.object, self.local.as_ref())
    }

    /// The name of a function.
    #[must_use]
    pub fn function_name(&self, function: &Function) -> &'a [u8] {
        self.object.symbol_name(function.symbol())
    }

    /// The same with these sections for some programs instead of those that they are in: what they are loaded as and
    /// attached to follows. What the kernel's BTF was asked does not: see [`AttachTarget::NotAsked`].
    #[must_use]
    pub fn with_sections(self, sections: Sections<'a>) -> Self {
        Self { sections, ..self }
    }

    /// The name of the section that a function is in, or that it is to be treated as if it were in.
    #[must_use]
    pub fn section_name(&self, function: &Function) -> &'a [u8] {
        if let Some(section) = self.sections.of(function.symbol()) {
            return section;
        }
        let section = self.declared.code.get(function.code()).map_or(0, CodeSection::section);
        self.object.section_name(section)
    }

    /// The kernel type that a program is loaded for; [`AttachTarget::Missing`] where the kernel has none of the name.
    #[must_use]
    pub fn attach_target(&self, program: ProgramId) -> AttachTarget<'a> {
        let Some(function) = self.declared.function(program) else { return AttachTarget::None };
        if let Some(section) = self.sections.of(function.symbol()) {
            let kind = section_name::parse(section_name::split_optional(section).0);
            return kind.and_then(|kind| kind.attach_btf).map_or(AttachTarget::None, AttachTarget::NotAsked);
        }
        let Some(wanted) = attach_btf(&self.object, &self.declared, function) else { return AttachTarget::None };
        let owner = Owner::Attach(program).pack();
        if let Some(found) = self.in_module(owner) {
            return AttachTarget::InModule { id: TypeId(found.id), module: found.module };
        }
        if wanted.module.is_some_and(|module| module != b"vmlinux") {
            return AttachTarget::Missing(wanted);
        }
        match self.answers.and_then(|answers| answers.of(owner).first()) {
            Some(found) => AttachTarget::Found(found.id),
            None => AttachTarget::Missing(wanted),
        }
    }

    /// What a module answered, if one did.
    fn in_module(&self, owner: u32) -> Option<&'a InModule> {
        self.in_modules.iter().find(|open| open.owner == owner && open.module != VMLINUX)
    }

    /// How many programs and externs have their target in a module.
    #[must_use]
    pub fn module_targets(&self) -> usize {
        self.in_modules.iter().filter(|open| open.module != VMLINUX).count()
    }

    /// The kernel variable or function that an extern stands for. The first one of its name counts, and must be of a
    /// type compatible with the declared one.
    #[must_use]
    pub fn extern_match(&self, id: ExternId) -> ExternMatch {
        let owner = Owner::Extern(id).pack();
        if let Some(found) = self.in_module(owner) {
            let (id, module) = (TypeId(found.id), found.module);
            return match found.is_incompatible {
                0 => ExternMatch::Found { id, module },
                _ => ExternMatch::Incompatible { id, module },
            };
        }
        let (Some(answers), Some(local), Some(ext)) = (&self.answers, &self.local, self.declared.external(id)) else {
            return ExternMatch::Missing;
        };
        match answers.of(owner).first() {
            Some(found) if extern_is_compatible(local, ext, answers.types(), found.id) => {
                ExternMatch::Found { id: found.id, module: VMLINUX }
            }
            Some(found) => ExternMatch::Incompatible { id: found.id, module: VMLINUX },
            None => ExternMatch::Missing,
        }
    }

    /// The slots of maps that are filled from the start: `.values` of maps of maps and of programs.
    ///
    /// # Errors
    /// [`ObjectError`]; none in practice, as [`Plan::new`](super::Plan::new) has read them all.
    pub fn slots(&self) -> impl Iterator<Item = Result<Slot, ObjectError>> + use<'_, 'a> {
        let slots = self.local.as_ref().map(|local| self.declared.slots(&self.object, local));
        let (slots, error) = match slots {
            Some(Ok(slots)) => (Some(slots), None),
            Some(Err(error)) => (None, Some(Err(error))),
            None => (None, None),
        };
        error.into_iter().chain(slots.into_iter().flatten())
    }

    /// The global variable of this name, in the map that its section is loaded as.
    ///
    /// # Errors
    /// [`ObjectError`] for a variable that has no size or does not lie in its section.
    pub fn variable(&self, name: &[u8]) -> Result<Option<Variable>, ObjectError> {
        let Some(local) = &self.local else { return Ok(None) };
        self.declared.variable(&self.object, local, name)
    }

    /// All global variables that have a name of their own, in the order of their maps.
    ///
    /// # Errors
    /// [`ObjectError`] for one that has no size or does not lie in its section.
    pub fn variables(&self) -> impl Iterator<Item = Result<(&'a [u8], Variable), ObjectError>> + use<'a> {
        let (object, declared, local) = (self.object, self.declared, self.local);
        local.into_iter().flat_map(move |local| {
            let placed = declared.variables(object, local);
            placed.map(move |found| found.and_then(|(name, placed)| Ok((name, placed.locate(&object, &local)?))))
        })
    }

    /// A struct_ops map in terms of the kernel's types.
    ///
    /// # Errors
    /// [`StructOpsError`]
    pub fn struct_ops(&self, map: MapId) -> Result<StructOps, StructOpsError> {
        let tables = self.tables()?;
        let of = |owner: Owner| self.answers.and_then(|answers| answers.of(owner.pack()).first()).map(|found| found.id);
        let type_id = of(Owner::StructOps(map)).ok_or(StructOpsError::NoType)?;
        tables.describe(type_id, of(Owner::StructOpsValue(map)).ok_or(StructOpsError::NoValueType)?)
    }

    /// Writes the table of a struct_ops map into `value`, of [`StructOps::value_size`] zero bytes, as the kernel lays it
    /// out. For each member that is a program, `program` is called with its 8 bytes (none where `value` is too short for
    /// them) and the index of the function.
    ///
    /// # Errors
    /// [`StructOpsError`]
    pub fn write_struct_ops(
        &self,
        map: MapId,
        value: &mut [u8],
        program: impl FnMut(&mut [u8], ProgramId),
    ) -> Result<(), StructOpsError> {
        let ops = self.struct_ops(map)?;
        let declared = self.declared.map(map).ok_or(StructOpsError::NoTable)?;
        self.tables()?.write(declared, &ops, value, program)
    }

    /// Checks the table of a struct_ops map against the kernel's struct. `each` is called with every program in it
    /// and the index of the kernel's member that it is for.
    ///
    /// # Errors
    /// [`StructOpsError`], that of `each` too.
    pub fn struct_ops_programs(
        &self,
        map: MapId,
        each: impl FnMut(ProgramId, u32) -> Result<(), StructOpsError>,
    ) -> Result<StructOps, StructOpsError> {
        let ops = self.struct_ops(map)?;
        let declared = self.declared.map(map).ok_or(StructOpsError::NoTable)?;
        self.tables()?.programs(declared, &ops, each)?;
        Ok(ops)
    }

    /// The member of a kernel's struct that a program implements in the struct_ops maps that `counts` says; `None` where none of those has the program.
    ///
    /// # Errors
    /// [`StructOpsError`]
    pub fn struct_ops_member(
        &self,
        function: ProgramId,
        counts: impl Fn(MapId) -> bool,
    ) -> Result<Option<KernelMember>, StructOpsError> {
        self.tables()?.member_of(function, counts, |map| self.struct_ops(map))
    }

    /// Whether a struct_ops map has a program.
    ///
    /// # Errors
    /// [`StructOpsError::Object`] where the map's relocations cannot be read.
    pub fn table_has(&self, map: MapId, function: ProgramId) -> Result<bool, StructOpsError> {
        match self.declared.map(map).filter(|map| map.origin() == MapOrigin::StructOps) {
            Some(map) => crate::struct_ops::has(&self.object, &self.declared, map, function),
            None => Ok(false),
        }
    }

    fn tables(&self) -> Result<Tables<'_>, StructOpsError> {
        let (Some(local), Some(answers)) = (&self.local, &self.answers) else { return Err(StructOpsError::NoType) };
        Ok(Tables { object: &self.object, declared: &self.declared, local, kernel: answers.types() })
    }

    /// Links a program. All of it lies in `scratch`, and is gone when that is.
    ///
    /// # Errors
    /// [`LinkError`]
    pub fn program<'s>(&self, program: ProgramId, scratch: &mut Arena<'s>) -> Result<LinkedProgram<'s>, LinkError> {
        self.linker().link(program, scratch)
    }

    /// Calls `each` with every map that the program refers to, itself or through what it calls.
    ///
    /// # Errors
    /// [`LinkError`]
    pub fn maps_of(
        &self,
        program: ProgramId,
        scratch: &mut Arena<'_>,
        each: impl FnMut(MapId),
    ) -> Result<(), LinkError> {
        self.linker().maps_of(program, scratch, each)
    }

    /// The object's BTF as a kernel of these features takes it; `None` where the object has none. A copy in `scratch`,
    /// or the object's own bytes where nothing must change.
    ///
    /// # Errors
    /// [`SanitizeError`]
    pub fn kernel_btf<'s>(
        &self,
        features: KernelBtfFeatures,
        scratch: &mut Arena<'s>,
    ) -> Result<Option<&'s [u8]>, SanitizeError>
    where
        'a: 's,
    {
        let Some(local) = &self.local else { return Ok(None) };
        let layout = Layout::new(&self.object, &self.declared);
        sanitize(self.object.btf_bytes(), local, &layout, features, scratch).map(Some)
    }

    fn linker(&self) -> Linker<'_> {
        Linker {
            object: &self.object,
            local: self.local.as_ref(),
            declared: &self.declared,
            decisions: &self.decisions,
        }
    }

    /// Bytes of arena that each kept structure takes.
    pub fn parts(&self) -> impl Iterator<Item = (Part, usize)> + use<'a> {
        let local = self.local.as_ref().map_or(0, Types::index_bytes);
        let (index, candidates) = self
            .answers
            .as_ref()
            .map_or((0, 0), |answers| (answers.types().index_bytes(), size_of_val(answers.candidates())));
        let queries = self.queries_len.wrapping_mul(size_of::<Query>());
        let decisions = size_of_val(self.decisions.list());
        self.declared.parts().into_iter().chain([
            (Part::LocalIndex, local),
            (Part::Queries, queries),
            (Part::Decisions, decisions),
            (Part::KernelIndex, index),
            (Part::Candidates, candidates.wrapping_add(size_of_val(self.in_modules))),
        ])
    }
}

/// What a program is loaded for.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachTarget<'a> {
    /// Nothing of the kernel's BTF.
    None,
    /// This type.
    Found(TypeId),
    /// This type of a module.
    InModule {
        /// The type.
        id: TypeId,
        /// The module, by the number that it was searched under.
        module: u16,
    },
    /// A type that the kernel does not have.
    Missing(AttachBtf<'a>),
    /// A type that the kernel was not asked for, as the program's section was given afterwards
    /// ([`Prepared::with_sections`]).
    NotAsked(AttachBtf<'a>),
}

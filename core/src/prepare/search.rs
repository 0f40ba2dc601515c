//! An object whose vmlinux was searched: modules may be, one in memory at a time.

use crate::arena::Arena;
use crate::btf::lookup::{Answers, Query, Questions};
use crate::btf::split::rebase;
use crate::btf::{Btf, TypeId, Types};
use crate::bytes::Endian;
use crate::object::{Declared, Object};
use crate::relo::OpenDecisions;
use crate::relo::decision::VMLINUX;

use super::prepared::Prepared;
use super::queries::{InModule, Owner, extern_is_compatible};
use super::sections::Sections;
use super::{Options, PrepareError, kernel_error};

/// An object whose vmlinux was searched, and whose modules may be.
#[derive(Debug)]
pub struct Search<'a> {
    pub(super) object: Object<'a>,
    pub(super) options: Options,
    pub(super) local: Option<Types<'a>>,
    pub(super) declared: Declared<'a>,
    pub(super) decisions: OpenDecisions<'a>,
    pub(super) questions: Questions<'a>,
    pub(super) answers: Answers<'a>,
    pub(super) in_modules: &'a mut [InModule],
    pub(super) visited: u32,
}

impl<'a> Search<'a> {
    /// Whether relocations are left whose root type vmlinux does not have, or programs and externs whose target it does
    /// not have: modules may have it.
    #[must_use]
    pub fn wants_modules(&self) -> bool {
        self.decisions.is_pending() || self.in_modules.iter().any(|open| open.module == VMLINUX)
    }

    /// The queries that modules may answer.
    pub(crate) fn open_queries(&self) -> impl Iterator<Item = &Query> + Clone {
        self.questions.queries().iter().filter(|query| self.is_open(query))
    }

    /// Those whose names have this hash.
    pub(crate) fn open_queries_of(&self, hash: u32) -> impl Iterator<Item = &Query> {
        let queries = self.questions.queries();
        let start = queries.partition_point(|query| query.hash() < hash);
        let same = queries.iter().skip(start).take_while(move |query| query.hash() == hash);
        same.filter(|query| self.is_open(query))
    }

    fn is_open(&self, query: &Query) -> bool {
        self.decisions.wants(TypeId(query.owner()))
            || self.in_modules.iter().any(|open| open.owner == query.owner() && open.module == VMLINUX)
    }

    /// The bytes that their names lie in.
    pub(crate) fn names(&self) -> &[u8] {
        self.object.bytes()
    }

    pub(crate) fn endian(&self) -> Endian {
        self.object.endian()
    }

    /// First of two looks at the module that has the number `module` (from 1), whose BTF is split on vmlinux, or on
    /// `distilled`, the base that it brings itself (`.BTF.base`). Its index lives in `scratch`, so that one module is in
    /// memory at a time.
    ///
    /// # Errors
    /// [`PrepareError::Kernel`], [`PrepareError::Rebase`], [`PrepareError::Arena`]
    pub fn weigh_module(
        &mut self,
        blob: &[u8],
        distilled: Option<&[u8]>,
        module: u16,
        scratch: &mut Arena<'_>,
    ) -> Result<(), PrepareError> {
        self.look_at_module(blob, distilled, scratch, |decisions, local, answers, _| {
            decisions.weigh_module(local, answers, module);
        })
    }

    /// Second look at a module, when all have been weighed.
    ///
    /// # Errors
    /// As [`Search::weigh_module`].
    pub fn search_module(
        &mut self,
        blob: &[u8],
        distilled: Option<&[u8]>,
        module: u16,
        scratch: &mut Arena<'_>,
    ) -> Result<(), PrepareError> {
        let declared = self.declared;
        self.look_at_module(blob, distilled, scratch, |decisions, local, answers, in_modules| {
            decisions.resolve_module(local, answers, module);
            for open in in_modules.iter_mut().filter(|open| open.module == VMLINUX) {
                let Some(found) = answers.of(open.owner).first() else { continue };
                if let Owner::Extern(id) = Owner::unpack(open.owner) {
                    let ext = declared.external(id);
                    let fits = ext.is_some_and(|ext| extern_is_compatible(local, ext, answers.types(), found.id));
                    open.is_incompatible = u16::from(!fits);
                }
                (open.id, open.module) = (found.id.0, module);
            }
        })?;
        Ok(())
    }

    fn look_at_module(
        &mut self,
        blob: &[u8],
        distilled: Option<&[u8]>,
        scratch: &mut Arena<'_>,
        look: impl FnOnce(&mut OpenDecisions<'a>, &Types<'_>, &Answers<'_>, &mut [InModule]),
    ) -> Result<(), PrepareError> {
        let Some(local) = &self.local else { return Ok(()) };
        // A scratch copy of the base view gives the module's types a lifetime of their own.
        let base = *self.answers.types();
        let mut scratch = scratch.scratch();
        let blob = match distilled {
            Some(distilled) => rebase(blob, distilled, &base, &mut scratch)?.blob,
            None => blob,
        };
        let btf = Btf::parse_split(blob, &base).map_err(kernel_error)?;
        let answers = self.questions.ask(btf, Some(&base), self.options.stride, &mut scratch).map_err(kernel_error)?;
        self.visited = self.visited.saturating_add(answers.visited());
        look(&mut self.decisions, local, &answers, self.in_modules);
        Ok(())
    }

    /// Ends the search.
    #[must_use]
    pub fn finish(self) -> Prepared<'a> {
        Prepared {
            object: self.object,
            local: self.local,
            declared: self.declared,
            decisions: self.decisions.settle(),
            queries_len: self.questions.len(),
            answers: Some(self.answers),
            in_modules: self.in_modules,
            visited: self.visited,
            sections: Sections::default(),
        }
    }
}

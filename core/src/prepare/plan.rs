//! What an object declares and asks, before the kernel is looked at.

use super::needs::Needs;
use crate::arena::{Arena, Part};
use crate::btf::lookup::{Query, Questions};
use crate::btf::{Btf, Types};
use crate::object::{Declared, Object, ObjectError};
use crate::relo::OpenDecisions;

use super::prepared::Prepared;
use super::queries::{Owner, Question, attach_query, extern_query, struct_ops_queries, unanswered};
use super::search::Search;
use super::sections::Sections;
use super::{Options, PrepareError, kernel_error};

/// What an object declares and asks of the kernel.
#[derive(Debug)]
pub struct Plan<'a> {
    pub(super) object: Object<'a>,
    pub(super) options: Options,
    pub(super) local: Option<Types<'a>>,
    pub(super) declared: Declared<'a>,
    pub(super) decisions: OpenDecisions<'a>,
    pub(super) queries: &'a mut [Query],
}

impl<'a> Plan<'a> {
    /// Reads all declarations of `object` and decides all that needs no kernel.
    ///
    /// # Errors
    /// [`PrepareError::Object`], [`PrepareError::Arena`]
    pub fn new(object: &Object<'a>, options: Options, arena: &mut Arena<'a>) -> Result<Self, PrepareError> {
        let (local, declared) = declarations(object, options, arena)?;
        let mut decisions = OpenDecisions::collect(object.ext(), object.endian(), arena)?;
        let mut queries = arena.grow::<Query>(Part::Queries);
        if let Some(local) = &local {
            decisions.ask(local, object.bytes(), object.strings_at(), |query| queries.push(query))?;
        }
        for (program, function) in declared.programs() {
            if let Some(query) = attach_query(object, &declared, program, function) {
                queries.push(query)?;
            }
        }
        for (id, ext) in declared.externs_by_id() {
            if let Some(query) = extern_query(object, id, ext) {
                queries.push(query)?;
            }
        }
        if let Some(local) = &local {
            for (id, map) in declared.maps_by_id() {
                for query in struct_ops_queries(object, local, id, map)?.into_iter().flatten() {
                    queries.push(query)?;
                }
            }
            for slot in declared.slots(object, local)? {
                slot?;
            }
        }
        let queries = queries.finish()?;
        Ok(Self { object: *object, options, local, declared, decisions, queries })
    }

    /// What it needs of the kernel's BTF: for a minimal one that has just that.
    #[must_use]
    pub fn needs(&self) -> Needs<'_> {
        Needs {
            local: self.local.as_ref(),
            decisions: self.decisions.list(),
            queries: self.queries,
            names: self.object.bytes(),
            endian: self.object.endian(),
        }
    }

    /// Whether the kernel's BTF must be searched. If not, it need not even be opened.
    #[must_use]
    pub fn asks_kernel(&self) -> bool {
        !self.queries.is_empty()
    }

    /// What the object declares.
    #[must_use]
    pub fn declared(&self) -> &Declared<'a> {
        &self.declared
    }

    /// The object's own types.
    #[must_use]
    pub fn local(&self) -> Option<&Types<'a>> {
        self.local.as_ref()
    }

    /// A relocation, program, extern or struct_ops map for whose sake the kernel's BTF is needed.
    #[must_use]
    pub fn first_question(&self) -> Option<Question> {
        let owner = self.queries.iter().map(Query::owner).min()?;
        Some(match Owner::unpack(owner) {
            Owner::Root(id) => Question::Root(id),
            Owner::Attach(program) => Question::Attach(program),
            Owner::Extern(id) => Question::Extern(id),
            Owner::StructOps(map) | Owner::StructOpsValue(map) => Question::StructOps(map),
        })
    }

    /// Walks over the kernel's types once, and decides every relocation whose root type has candidates there.
    ///
    /// # Errors
    /// [`PrepareError::Kernel`], [`PrepareError::ByteOrder`], [`PrepareError::Arena`]
    pub fn search(self, kernel: Btf<'a>, arena: &mut Arena<'a>) -> Result<Search<'a>, PrepareError> {
        if kernel.endian() != self.object.endian() {
            return Err(PrepareError::ByteOrder);
        }
        let Self { object, options, local, declared, mut decisions, queries } = self;
        let questions = Questions::new(queries, object.bytes());
        let mut answers = questions.ask(kernel, None, options.stride, arena).map_err(kernel_error)?;
        if let Some(byte_size) = options.target_pointer_size {
            answers = answers.with_pointer_size(byte_size);
        }
        if let Some(local) = &local {
            decisions.resolve(local, &answers);
        }
        let in_modules = unanswered(&object, &declared, &answers, arena)?;
        let visited = answers.visited();
        Ok(Search { object, options, local, declared, decisions, questions, answers, in_modules, visited })
    }

    /// The object without a kernel.
    ///
    /// # Errors
    /// [`PrepareError::KernelBtfNeeded`] where it asks something.
    pub fn finish(self) -> Result<Prepared<'a>, PrepareError> {
        if self.asks_kernel() {
            return Err(PrepareError::KernelBtfNeeded);
        }
        Ok(Prepared {
            object: self.object,
            local: self.local,
            declared: self.declared,
            decisions: self.decisions.finish(),
            answers: None,
            in_modules: &[],
            queries_len: 0,
            visited: 0,
            sections: Sections::default(),
        })
    }
}

/// The object's own types, and what it declares by them.
pub(super) fn declarations<'a>(
    object: &Object<'a>,
    options: Options,
    arena: &mut Arena<'a>,
) -> Result<(Option<Types<'a>>, Declared<'a>), PrepareError> {
    let local = match object.btf() {
        Some(btf) => {
            let types = Types::index(btf, options.local_stride, None, arena, Part::LocalIndex);
            Some(types.map_err(|error| PrepareError::from(ObjectError::from(error)))?)
        }
        None => None,
    };
    let declared = Declared::read(object, local.as_ref(), arena)?;
    Ok((local, declared))
}

//! What an object needs of a kernel's BTF.

use crate::btf::ext::ReloKind;
use crate::btf::lookup::Query;
use crate::btf::{Kind, TypeId, Types};
use crate::bytes::Endian;
use crate::relo::decision::{Decision, Verdict};

/// What a planned object needs of a kernel's BTF: see [`Plan::needs`](super::Plan::needs).
#[derive(Clone, Copy, Debug)]
pub struct Needs<'n> {
    pub(crate) local: Option<&'n Types<'n>>,
    pub(crate) decisions: &'n [Decision],
    pub(crate) queries: &'n [Query],
    /// The bytes that names of queries lie in.
    pub(crate) names: &'n [u8],
    pub(crate) endian: Endian,
}

impl<'n> Needs<'n> {
    /// The undecided relocations, by root type.
    pub(crate) fn runs(self) -> impl Iterator<Item = (TypeId, &'n [Decision])> {
        self.decisions
            .chunk_by(|one, next| one.root() == next.root())
            .filter_map(|run| Some((run.first()?.root(), run)))
            .filter(|(_, run)| run.iter().any(is_open))
    }

    /// The queries that are not about a root type: functions, variables and the like.
    pub(crate) fn others(self) -> impl Iterator<Item = &'n Query> {
        self.queries.iter().filter(move |query| self.decisions_of(query.owner()).is_empty())
    }

    /// The relocations whose root type asks under this number.
    pub(crate) fn decisions_of(self, owner: u32) -> &'n [Decision] {
        let start = self.decisions.partition_point(|decision| decision.root().0 < owner);
        let tail = self.decisions.get(start..).unwrap_or_default();
        tail.get(..tail.partition_point(|decision| decision.root().0 == owner)).unwrap_or_default()
    }

    /// Whether members count whose names are not known beforehand.
    pub(crate) fn wants_all_members(self) -> bool {
        self.compares_types() || self.others().any(|query| query.wants_kind(Kind::Struct.number()))
    }

    /// Whether some relocation compares types in full.
    pub(crate) fn compares_types(self) -> bool {
        self.decisions.iter().any(|decision| is_open(decision) && decision.kind() == ReloKind::TypeMatches)
    }
}

/// Whether candidates decide it.
pub(crate) fn is_open(decision: &Decision) -> bool {
    decision.verdict() == Verdict::Pending
}

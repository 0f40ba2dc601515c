//! The candidates of a CO-RE relocation, and what each of them gives.

use core::fmt;

use corelo_core::btf::TypeId;
use corelo_core::btf::ext::CoreRelo;
use corelo_core::btf::strings::Name;
use corelo_core::prepare::Prepared;
use corelo_core::relo::decision::VMLINUX;
use corelo_core::relo::explain::{Explanation, explain};
use corelo_core::relo::format::TypeName;

use crate::kernel::ModuleNames;

/// `; candidates: [ID] NAME in BTF: RESULT, ...` of one record; nothing where none was found in vmlinux.
pub(super) struct CandidatesReport<'r, 'a> {
    pub(super) prepared: &'r Prepared<'a>,
    pub(super) relo: &'r CoreRelo,
}

impl fmt::Display for CandidatesReport<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More than these are counted only: some names have hundreds.
        const SHOWN: usize = 8;
        let Some(answers) = self.prepared.answers() else { return Ok(()) };
        let count = answers.of(self.relo.type_id.0).len();
        for (number, tried) in candidates(self.prepared, self.relo).take(SHOWN).enumerate() {
            let before = if number == 0 { "; candidates:" } else { "," };
            let name = TypeName::new(answers.types(), tried.id);
            write!(f, "{before} [{}] {name} in vmlinux: {tried}", tried.id)?;
        }
        if count > SHOWN { write!(f, " and {} more", count - SHOWN) } else { Ok(()) }
    }
}

/// A candidate and what it gives for one relocation.
#[derive(Clone, Copy, Debug)]
pub struct CandidateReport<'l> {
    /// The target type.
    pub id: TypeId,
    /// What came of it; `None` where the local side is at fault.
    pub explanation: Option<Explanation<'l>>,
}

impl fmt::Display for CandidateReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.explanation {
            None => f.write_str("not tried"),
            Some(Explanation::Value(value)) => write!(f, "matches with value {value}"),
            Some(Explanation::NoMatch { step: Some(step) }) => write!(f, "no compatible `{}`", Name(step)),
            Some(Explanation::NoMatch { step: None }) => f.write_str("does not match"),
            Some(Explanation::Fault(fault)) => fault.fmt(f),
        }
    }
}

/// The candidates of a record in vmlinux, each tried on its own. Those of modules are not kept; what was taken of them
/// is in the decision.
pub fn candidates<'r>(
    prepared: &'r Prepared<'_>,
    relo: &'r CoreRelo,
) -> impl Iterator<Item = CandidateReport<'r>> + use<'r> {
    let answers = prepared.answers();
    let found = answers.map_or(&[][..], |answers| answers.of(relo.type_id.0));
    let endian = prepared.object().endian();
    let local = prepared.local();
    found.iter().map(move |candidate| {
        let explanation = match (local, answers) {
            (Some(local), Some(answers)) => explain(local, answers.types(), relo, candidate.id, endian),
            _ => None,
        };
        CandidateReport { id: candidate.id, explanation }
    })
}

/// The number of a decision's BTF as a name: `vmlinux`, or that of the module.
#[must_use]
pub fn btf_name<'n>(number: u16, modules: ModuleNames<'n>) -> &'n str {
    if number == VMLINUX {
        return "vmlinux";
    }
    modules.get(number).unwrap_or("module")
}

//! Where a CO-RE relocation is, and why it failed.

use core::fmt;

use corelo_core::btf::strings::Name;
use corelo_core::prepare::{Prepared, Relocation, RelocationError};
use corelo_core::relo::decision::Verdict;
use corelo_core::relo::format::LocalSpec;

use super::candidates::CandidatesReport;

/// Why a CO-RE relocation failed, with every candidate that was tried.
#[derive(Clone, Copy, Debug)]
pub struct RelocationReport<'r, 'a> {
    /// The object.
    pub prepared: &'r Prepared<'a>,
    /// The relocation.
    pub relocation: &'r Relocation<'r>,
}

impl fmt::Display for RelocationReport<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Err(error) = self.relocation.outcome else { return f.write_str("no fault") };
        let decision = self.relocation.decision;
        match error {
            RelocationError::Patch(error) => error.fmt(f)?,
            RelocationError::Undecided(Verdict::BadSpec) => {
                let error =
                    self.prepared.local().and_then(|local| self.prepared.decisions().spec_error(local, decision).err());
                return match error {
                    Some(error) => error.fmt(f),
                    None => f.write_str("access does not fit the local type"),
                };
            }
            RelocationError::Undecided(Verdict::Ambiguous { first, second }) => {
                write!(f, "ambiguous, candidates [{first}] and [{second}] differ")?;
            }
            RelocationError::Undecided(Verdict::Fault { fault, candidate }) => {
                write!(f, "candidate [{candidate}]: {fault}")?;
            }
            RelocationError::Undecided(_) => f.write_str("its candidates were not searched")?,
        }
        CandidatesReport { prepared: self.prepared, relo: &self.relocation.relo }.fmt(f)
    }
}

/// Where a relocation is: `program NAME (section SECTION), instruction N: KIND of SPEC`.
#[derive(Clone, Copy, Debug)]
pub struct RelocationPlace<'r, 'a> {
    /// The object.
    pub prepared: &'r Prepared<'a>,
    /// The relocation.
    pub relocation: &'r Relocation<'r>,
}

impl fmt::Display for RelocationPlace<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prepared, relocation } = *self;
        let section = prepared.object().section_name(relocation.section);
        let function = relocation.function.and_then(|id| prepared.declared().function(id));
        match function {
            Some(function) => {
                write_function_word(f, function.is_program())?;
                f.write_str(" ")?;
                write!(f, "{} (section {})", Name(prepared.function_name(function)), Name(section))?;
            }
            None => write!(f, "section {}", Name(section))?,
        }
        write!(f, ", instruction {}: {} relocation", relocation.insn_idx, relocation.relo.kind)?;
        match prepared.local() {
            Some(local) => write!(f, " of {}", LocalSpec::new(local, &relocation.relo)),
            None => Ok(()),
        }
    }
}

fn write_function_word(f: &mut fmt::Formatter<'_>, is_program: bool) -> fmt::Result {
    f.write_str(if is_program { "program" } else { "subprogram" })
}

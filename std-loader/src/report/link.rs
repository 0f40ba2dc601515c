//! Why a program cannot be linked.

use core::fmt;

use corelo_core::btf::strings::Name;
use corelo_core::link::{LinkCause, LinkError};
use corelo_core::object::ProgramId;
use corelo_core::prepare::{Prepared, Relocation};
use corelo_core::relo::format::LocalSpec;

use super::object::ObjectReport;
use super::relocation::RelocationReport;

/// A [`LinkError`] of the program that is function `program`, with names, spec and candidates.
#[derive(Clone, Copy, Debug)]
pub struct LinkReport<'r, 'a> {
    /// The object.
    pub prepared: &'r Prepared<'a>,
    /// The id of the program as a function.
    pub program: ProgramId,
    /// What is wrong with it.
    pub error: LinkError,
}

impl fmt::Display for LinkReport<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prepared, program, error } = *self;
        if let LinkCause::Arena(full) = error.cause {
            return full.fmt(f);
        }
        if let Some(main) = prepared.declared().function(program) {
            let (name, section) = (prepared.function_name(main), prepared.section_name(main));
            write!(f, "program {} (section {})", Name(name), Name(section))?;
            if main.symbol() != error.function {
                write!(f, ", subprogram {}", Name(prepared.object().symbol_name(error.function)))?;
            }
        }
        write!(f, ", instruction {}: ", error.insn_idx)?;
        let symbol_name = |symbol: u32| Name(prepared.object().symbol_name(symbol));
        match error.cause {
            LinkCause::Undecided { relo_idx, .. } | LinkCause::Patch { relo_idx, .. } => {
                let is_it = |relocation: &Relocation<'_>| {
                    let function = relocation.function.and_then(|id| prepared.declared().function(id));
                    relocation.relo_idx == relo_idx
                        && function.is_some_and(|function| function.symbol() == error.function)
                };
                let Some(relocation) = prepared.relocations().find(is_it) else { return error.cause.fmt(f) };
                write!(f, "{} relocation", relocation.relo.kind)?;
                if let Some(local) = prepared.local() {
                    write!(f, " of {}", LocalSpec::new(local, &relocation.relo))?;
                }
                f.write_str(": ")?;
                RelocationReport { prepared, relocation: &relocation }.fmt(f)
            }
            LinkCause::NoFunction { symbol: Some(symbol) } => {
                write!(f, "call leads to no function, by symbol `{}`", symbol_name(symbol))
            }
            LinkCause::UndefinedSymbol { symbol } => write!(f, "symbol `{}` is not defined", symbol_name(symbol)),
            LinkCause::NoMap { symbol } => write!(f, "symbol `{}` lies at no map", symbol_name(symbol)),
            LinkCause::UnsupportedSection { symbol } => {
                write!(f, "symbol `{}` lies in a section that is neither code, maps nor data", symbol_name(symbol))
            }
            LinkCause::Object(error) => ObjectReport { object: Some(prepared.object()), error }.fmt(f),
            cause => cause.fmt(f),
        }
    }
}

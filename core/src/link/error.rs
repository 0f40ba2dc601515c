//! Why a program cannot be linked.

use core::fmt;

use crate::arena::ArenaFull;
use crate::limits::{MAX_PROGRAM_INSNS, MAX_SUBPROGRAMS, MAX_USED_MAPS};
use crate::object::ObjectError;
use crate::relo::decision::Verdict;
use crate::relo::patch::PatchError;

/// Why a program cannot be linked. Instructions are numbered within the function that they were compiled in, which is
/// named by its symbol.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkError {
    /// The symbol of the function.
    pub function: u32,
    /// The instruction slot in it.
    pub insn_idx: u32,
    /// What is wrong.
    pub cause: LinkCause,
}

/// What is wrong with an instruction or its relocation.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkCause {
    /// A CO-RE relocation could not be decided.
    Undecided {
        /// Its number among the records of its section.
        relo_idx: u32,
        /// Why.
        verdict: Verdict,
    },
    /// A CO-RE relocation could not be applied to the instruction.
    Patch {
        /// Its number among the records of its section.
        relo_idx: u32,
        /// Why.
        error: PatchError,
    },
    /// A CO-RE relocation is not at the start of an instruction.
    Misaligned {
        /// Its number among the records of its section.
        relo_idx: u32,
    },
    /// A call or function address leads to no function of the object.
    NoFunction {
        /// The symbol that the relocation names; `None` for a call without one.
        symbol: Option<u32>,
    },
    /// The program's declaration tag `exception_callback:NAME` names no subprogram.
    NoExceptionCallback,
    /// The symbol is neither declared in the object nor an extern.
    UndefinedSymbol {
        /// The symbol.
        symbol: u32,
    },
    /// The symbol lies in a section of maps, but at no map.
    NoMap {
        /// The symbol.
        symbol: u32,
    },
    /// The symbol lies in a section that is neither code, maps nor global data.
    UnsupportedSection {
        /// The symbol.
        symbol: u32,
    },
    /// A relocation is on an instruction that is neither a call nor a 64-bit load.
    UnsupportedInsn {
        /// The instruction's code.
        code: u8,
    },
    /// A 64-bit load has no second half.
    BadLdImm64,
    /// The program takes more than a million instructions with all that it calls.
    TooManyInsns,
    /// The program has more subprograms, itself counted, than the kernel takes.
    TooManySubprograms,
    /// The program refers to more maps than the kernel takes.
    TooManyMaps,
    /// A symbol is referred to with an offset, which leads to nothing that is known.
    SymbolOffset {
        /// The symbol.
        symbol: u32,
    },
    /// The object file is at fault.
    Object(ObjectError),
    /// The arena is too small.
    Arena(ArenaFull),
}

impl fmt::Display for LinkCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Undecided { relo_idx, verdict } => write_verdict(f, relo_idx, verdict),
            Self::Patch { relo_idx, error } => write!(f, "CO-RE relocation #{relo_idx}: {error}"),
            Self::Misaligned { relo_idx } => {
                write!(f, "CO-RE relocation #{relo_idx} is not at the start of an instruction")
            }
            Self::NoFunction { symbol: Some(symbol) } => {
                write!(f, "call leads to no function, by symbol [{symbol}]")
            }
            Self::NoFunction { symbol: None } => f.write_str("call leads to no function"),
            Self::NoExceptionCallback => f.write_str("declaration tag exception_callback names no subprogram"),
            Self::UndefinedSymbol { symbol } => write!(f, "symbol [{symbol}] is not defined"),
            Self::NoMap { symbol } => write!(f, "symbol [{symbol}] lies at no map"),
            Self::UnsupportedSection { symbol } => {
                write!(f, "symbol [{symbol}] lies in a section that is neither code, maps nor data")
            }
            Self::UnsupportedInsn { code } => {
                write!(f, "relocation on an instruction of code {code:#04x}, neither a call nor a 64-bit load")
            }
            Self::BadLdImm64 => f.write_str("64-bit load has no second half"),
            Self::TooManyInsns => write!(f, "program has more than {MAX_PROGRAM_INSNS} instructions"),
            Self::TooManySubprograms => write!(f, "program has more than {MAX_SUBPROGRAMS} subprograms with itself"),
            Self::TooManyMaps => write!(f, "program refers to more than {MAX_USED_MAPS} maps"),
            Self::SymbolOffset { symbol } => {
                write!(f, "reference to symbol [{symbol}] has an offset, where nothing starts")
            }
            Self::Object(error) => error.fmt(f),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

fn write_verdict(f: &mut fmt::Formatter<'_>, relo_idx: u32, verdict: Verdict) -> fmt::Result {
    write!(f, "CO-RE relocation #{relo_idx}: ")?;
    match verdict {
        Verdict::Ambiguous { first, second } => {
            write!(f, "ambiguous, candidates [{first}] and [{second}] differ")
        }
        Verdict::Fault { fault, candidate } => write!(f, "candidate [{candidate}]: {fault}"),
        Verdict::BadSpec => f.write_str("access does not fit the local type"),
        Verdict::Pending => f.write_str("its candidates were not searched"),
        Verdict::Value | Verdict::Poison => f.write_str("decided"),
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "function of symbol [{}], instruction {}: {}", self.function, self.insn_idx, self.cause)
    }
}

impl core::error::Error for LinkError {}

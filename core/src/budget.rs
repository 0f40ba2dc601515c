//! How many bytes of arena an object needs, and for what.
//!
//! The number is not a formula beside the code that would have to be kept in step with it: the job is rehearsed, all of
//! it but the system calls, in an arena that is large enough (on the machine that builds the firmware), and the arena's
//! high-water mark read. As all sizes depend on the object and the kernel's BTF alone, the same job then works with
//! exactly that many bytes on the device, and with one fewer it does not. Machines of the same pointer size agree.

use core::fmt;

use heapless::Vec;

use crate::arena::{ALIGN, Arena, Part};
use crate::link::{LinkError, LinkedProgram};
use crate::object::Object;
use crate::object::section_name::split_optional;
use crate::prepare::{Options, PrepareError, Prepared, prepare};

/// More than there are parts.
const MAX_PARTS: usize = 32;

/// Bytes of scratch that one linked program takes, by part.
type Scratch = [(Part, usize); 5];

/// Bytes of arena, and what they are for.
#[derive(Clone, Debug)]
pub struct Budget {
    arena_bytes: usize,
    parts: Vec<(Part, usize), MAX_PARTS>,
}

/// Why there is no budget.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetError {
    /// The object cannot be prepared.
    Prepare(PrepareError),
    /// A program cannot be linked.
    Link(LinkError),
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prepare(error) => error.fmt(f),
            Self::Link(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for BudgetError {}

/// The bytes that preparing `object` and linking every program that is loaded by default take, one program at a time.
/// `arena` is used up to that many bytes, and must have them. What a loader takes beyond is rehearsed by the loader.
///
/// # Errors
/// [`BudgetError`]
pub fn budget<'a>(
    object: &Object<'a>,
    kernel: Option<&'a [u8]>,
    options: Options,
    arena: &mut Arena<'a>,
) -> Result<Budget, BudgetError> {
    let prepared = prepare(object, kernel, options, arena).map_err(BudgetError::Prepare)?;
    let kept = arena.used();
    for (index, function) in prepared.declared().programs() {
        if !split_optional(prepared.section_name(function)).1 {
            prepared.program(index, &mut arena.scratch()).map_err(BudgetError::Link)?;
        }
    }
    Ok(Budget::of(&prepared, arena, kept))
}

impl Budget {
    /// What the high-water mark of `arena` is made of, when a job on `prepared` was done or rehearsed in it: preparing
    /// kept `kept` bytes, the loader's tables what is used beyond, and scratch the rest.
    #[must_use]
    pub fn of(prepared: &Prepared<'_>, arena: &mut Arena<'_>, kept: usize) -> Self {
        let arena_bytes = arena.high_water();
        let all_kept = arena.used();
        let mut budget = Self { arena_bytes, parts: Vec::new() };
        budget.add(Part::HighWater, ALIGN);
        for (part, bytes) in prepared.parts() {
            budget.add(part, bytes.next_multiple_of(ALIGN));
        }
        budget.add(Part::Descriptors, all_kept.saturating_sub(kept));
        // The largest scratch is a program's as a rule, and then told by its parts; else it is that of the object's BTF,
        // or what the search needed for a moment.
        let peak = arena_bytes.saturating_sub(all_kept);
        match largest_program(prepared, arena).filter(|scratch| total(scratch) == peak) {
            Some(scratch) => scratch.into_iter().for_each(|(part, bytes)| budget.add(part, bytes)),
            None => budget.add(Part::Scratch, peak),
        }
        let sum = budget.parts.iter().map(|(_, bytes)| bytes).sum();
        budget.add(Part::Other, arena_bytes.saturating_sub(sum));
        budget
    }

    /// The buffer size that does, in bytes, for a buffer that starts at a multiple of [`ALIGN`].
    #[must_use]
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// What the bytes are for, those parts left out that take none. They add up to the whole.
    #[must_use]
    pub fn parts(&self) -> &[(Part, usize)] {
        &self.parts
    }

    fn add(&mut self, part: Part, bytes: usize) {
        if bytes > 0 {
            // There is room for every part there is, so none is lost.
            let _ = self.parts.push((part, bytes));
        }
    }
}

fn total(scratch: &Scratch) -> usize {
    scratch.iter().map(|(_, bytes)| bytes).sum()
}

/// What the largest program takes of those that are loaded by default and can be linked.
fn largest_program(prepared: &Prepared<'_>, arena: &mut Arena<'_>) -> Option<Scratch> {
    let mut largest: Option<Scratch> = None;
    for (index, function) in prepared.declared().programs() {
        if split_optional(prepared.section_name(function)).1 {
            continue;
        }
        let Ok(linked) = prepared.program(index, &mut arena.scratch()) else { continue };
        let scratch = scratch_of(&linked);
        if largest.is_none_or(|largest| total(&scratch) > total(&largest)) {
            largest = Some(scratch);
        }
    }
    largest
}

fn scratch_of(linked: &LinkedProgram<'_>) -> Scratch {
    [
        (Part::Insns, size_of_val(&*linked.insns)),
        (Part::Layout, size_of_val(linked.placements)),
        (Part::References, size_of_val(linked.references)),
        (Part::FuncInfo, linked.func_info.bytes.len()),
        (Part::LineInfo, linked.line_info.bytes.len()),
    ]
    .map(|(part, bytes)| (part, bytes.next_multiple_of(ALIGN)))
}

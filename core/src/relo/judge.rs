//! One relocation judged: by its local type alone, and against one candidate.

use super::calc::{self, Access, End, Value};
use super::compat::Pair;
use super::decision::{
    Decision, Decisions, Outcome, STATE_BAD_SPEC, STATE_PENDING, STATE_POISON, STATE_VALUE, UNKNOWN_KIND, VALIDATE,
};
use super::error::{SpecError, TargetFault};
use super::spec::{AccessSpec, Accessor};
use super::spec_match::spec_match;
use crate::btf::ext::ReloKind;
use crate::btf::lookup::Candidate;
use crate::btf::{TypeId, Types};
use crate::bytes::Endian;
use crate::limits::MAX_COMPARISONS;
use crate::numbers::to_u32;

impl Decisions<'_> {
    /// Why a decision is [`BadSpec`](super::decision::Verdict::BadSpec).
    ///
    /// # Errors
    /// The fault.
    pub fn spec_error(&self, local: &Types<'_>, decision: &Decision) -> Result<(), SpecError> {
        local_value(local, decision, self.endian).map(|_| ())
    }
}

/// The local side of a relocation: its access, and its value.
fn local_value<'l>(
    local: &Types<'l>,
    decision: &Decision,
    endian: Endian,
) -> Result<(AccessSpec<'l>, Value<'l>), SpecError> {
    let spec = AccessSpec::parse(local, &decision.record())?;
    let value = local_value_of(local, &spec, endian)?;
    if decision.needs_candidates() {
        let root = local.get(spec.root)?;
        if local.identifier(root.name_off())?.is_empty() {
            return Err(SpecError::AnonymousRoot { id: spec.root });
        }
    }
    Ok((spec, value))
}

fn local_value_of<'l>(local: &Types<'l>, spec: &AccessSpec<'l>, endian: Endian) -> Result<Value<'l>, SpecError> {
    let nowhere = Accessor { type_id: TypeId::VOID, index: 0, name: None };
    let last = spec.accessors.last().copied().unwrap_or(nowhere);
    let end = End { root: spec.root, last, bit_offset: spec.bit_offset };
    Ok(calc::value(local, spec.kind, &end, endian)?)
}

/// Decides what the local side alone decides.
pub(super) fn decide_alone(local: &Types<'_>, decision: &mut Decision, endian: Endian) {
    if decision.kind == UNKNOWN_KIND {
        decision.state = STATE_POISON;
        return;
    }
    match local_value(local, decision, endian) {
        Err(_) => decision.state = STATE_BAD_SPEC,
        Ok((_, value)) => {
            decision.local_value = value.value;
            decision.flags = if value.validate { VALIDATE } else { 0 };
            if decision.kind() == ReloKind::TypeIdLocal {
                decision.state = STATE_VALUE;
                decision.target_value = value.value;
            }
        }
    }
}

/// Compares the relocations of one root type with its candidates in one BTF.
pub(super) struct Judge<'j> {
    /// The comparison that is going on, or was the last.
    pair: Pair<'j, 'j>,
    /// What it was allowed, in pairs of types.
    allowed: u32,
    /// What was left for it and all that follow.
    left: u32,
    /// The number of the target BTF.
    btf: u16,
    endian: Endian,
}

impl<'j> Judge<'j> {
    pub(super) fn new(local: &'j Types<'j>, target: &'j Types<'j>, btf: u16, endian: Endian, left: u32) -> Self {
        let pair = Pair::new(local, target);
        Self { allowed: pair.left, pair, left, btf, endian }
    }

    /// How many pairs of types may still be compared.
    pub(super) fn left(&self) -> u32 {
        self.left.saturating_sub(self.allowed.saturating_sub(self.pair.left))
    }

    /// Where too much was to be compared, nothing that was found of these relocations counts: other candidates might
    /// have differed.
    pub(super) fn give_up(&self, run: &mut [Decision], candidates: &[Candidate]) {
        let Some(candidate) = candidates.first().filter(|_| self.left() == 0) else { return };
        for decision in run.iter_mut().filter(|decision| decision.state == STATE_PENDING) {
            decision.set_fault(candidate.id, TargetFault::TooComplex);
        }
    }

    /// How many relocations a candidate matches or cannot be judged for: a fault is no reason to drop it, and ends the
    /// relocation, as in libbpf (`bpf_core_calc_relo_insn`).
    pub(super) fn count(&mut self, run: &[Decision], candidate: TypeId) -> u32 {
        let mut count = 0u32;
        for decision in run.iter().filter(|decision| decision.state == STATE_PENDING) {
            if !matches!(self.evaluate(decision, candidate), Ok(None)) {
                count = count.saturating_add(decision.uses);
            }
        }
        count
    }

    /// Takes a chosen candidate into account.
    pub(super) fn merge(&mut self, run: &mut [Decision], candidate: TypeId) {
        for decision in run.iter_mut().filter(|decision| decision.state == STATE_PENDING) {
            match self.evaluate(decision, candidate) {
                Ok(outcome) => decision.merge(candidate, outcome, self.btf),
                Err(fault) => decision.set_fault(candidate, fault),
            }
        }
    }

    /// What candidate `id` gives; `None` where it does not match. The local side is worked out anew each time: kept, it would
    /// take a spec of some 64 steps for every relocation.
    fn evaluate(&mut self, decision: &Decision, id: TypeId) -> Result<Option<Outcome>, TargetFault> {
        self.left = self.left();
        self.allowed = self.left.min(MAX_COMPARISONS);
        self.pair.left = self.allowed;
        if self.allowed == 0 {
            return Err(TargetFault::TooComplex);
        }
        // Undecided ones have a local value.
        let local_side = local_value(self.pair.local, decision, self.endian);
        let Ok((spec, local_value)) = &local_side else { return Ok(None) };
        // The steps of the access were followed through the local types.
        self.pair.left = self.allowed.saturating_sub(to_u32(spec.accessors.len()));
        let Some(path) = spec_match(&mut self.pair, spec, id)? else { return Ok(None) };
        let end = End { root: path.root, last: path.last, bit_offset: path.bit_offset };
        let target_value = calc::value(self.pair.target, spec.kind, &end, self.endian)?;
        let (local, target) = (local_value.access, target_value.access);
        Ok(Some(Outcome {
            bit_offset: path.bit_offset,
            value: target_value.value,
            local_access: access_size(local),
            target_access: access_size(target),
            is_wrong_access: is_wrong_access(local, target),
        }))
    }
}

fn access_size(access: Option<Access<'_>>) -> u8 {
    access.map_or(0, |access| u8::try_from(access.byte_size).ok().filter(|&size| size <= 8).unwrap_or(u8::MAX))
}

/// Whether a load or store of another size would be needed, and must not be made.
fn is_wrong_access(local: Option<Access<'_>>, target: Option<Access<'_>>) -> bool {
    match (local, target) {
        (None, None) => false,
        (Some(local), Some(target)) => {
            local.byte_size != target.byte_size && !calc::may_change_access_size(&local, &target)
        }
        // A bitfield on one side only: there is no size to compare with.
        (Some(local), None) => local.byte_size != 0,
        (None, Some(target)) => target.byte_size != 0,
    }
}

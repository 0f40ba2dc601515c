//! One decision per distinct relocation, all those of one local root type judged together.
//!
//! libbpf keeps a list of candidates per root type and drops those that do not match as relocations come by, so what a
//! relocation gets can depend on the order of programs. Here all relocations of one root type are judged at once: the
//! candidates that match the most relocations are taken, the rest is dropped, and the chosen ones must agree. Wherever
//! libbpf's answer does not depend on the order, this one is the same.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::calc::{self, Access, End, Value};
use super::compat::Pair;
use super::error::{SpecError, TargetFault};
use super::spec::{AccessSpec, Accessor};
use super::spec_match::spec_match;
use crate::arena::{Arena, ArenaFull, Part};
use crate::btf::ext::{BtfExt, CoreRelo, ReloKind};
use crate::btf::lookup::{Answers, Candidate, Prefix, Query};
use crate::btf::{TypeId, Types};
use crate::bytes::Endian;
use crate::limits::{MAX_ALL_COMPARISONS, MAX_COMPARISONS};
use crate::numbers::{high_u32, low_u8, low_u32, to_u32};

/// What was decided of a relocation.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet: its candidates have not been searched.
    Pending,
    /// The instruction gets the target's value.
    Value,
    /// The instruction is poisoned: what it reads is not there.
    Poison,
    /// The access string or the local type is at fault; [`Decisions::spec_error`] tells how.
    BadSpec,
    /// Candidates that match differ.
    Ambiguous {
        /// A candidate.
        first: TypeId,
        /// One that differs from it.
        second: TypeId,
    },
    /// A candidate was found, but gives no value.
    Fault {
        /// Why.
        fault: TargetFault,
        /// The candidate.
        candidate: TypeId,
    },
}

/// A distinct relocation (local root type, access string, kind) and what was decided of it.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Decision {
    root: u32,
    access_str_off: u32,
    local_value: u64,
    /// With a verdict other than `Value`: candidate ids, the first in the low half.
    target_value: u64,
    /// How many records ask for this.
    uses: u32,
    /// Number of the BTF that the target type is in: 0 vmlinux, else a module.
    btf: u16,
    kind: u8,
    state: u8,
    local_access: u8,
    target_access: u8,
    fault: u8,
    flags: u8,
    /// The candidate taken.
    target_id: u32,
    /// Where the access leads in the target, in bits: candidates must agree in it.
    bit_offset: u32,
    /// Of the first decision on a root type: the most relocations that one candidate matches.
    most_matches: u32,
}

/// The number of vmlinux among BTFs.
pub const VMLINUX: u16 = 0;

/// Words of 32 bits in a [`Decision`].
const DECISION_WORDS: usize = size_of::<Decision>() / 4;
const _: () = assert!(size_of::<Decision>() == 48);

const VALIDATE: u8 = 1;
const WRONG_ACCESS: u8 = 2;
/// A chosen candidate was taken into account.
const SEEN: u8 = 4;
/// It matches.
const MATCHED: u8 = 8;
/// The kind number that stands for all kinds not known.
const UNKNOWN_KIND: u8 = 0xff;

const STATE_PENDING: u8 = 0;
const STATE_VALUE: u8 = 1;
const STATE_POISON: u8 = 2;
const STATE_BAD_SPEC: u8 = 3;
const STATE_AMBIGUOUS: u8 = 4;
const STATE_FAULT: u8 = 5;

impl Decision {
    fn new([root, access_str_off, kind_and_uses]: [u32; 3]) -> Self {
        Self {
            root,
            access_str_off,
            local_value: 0,
            target_value: 0,
            uses: kind_and_uses >> 8,
            btf: 0,
            kind: low_u8(kind_and_uses),
            state: STATE_PENDING,
            local_access: 0,
            target_access: 0,
            fault: 0,
            flags: 0,
            target_id: 0,
            bit_offset: 0,
            most_matches: 0,
        }
    }

    /// The local root type.
    #[must_use]
    pub fn root(&self) -> TypeId {
        TypeId(self.root)
    }

    /// What is asked for. Kinds that are not known are all [`ReloKind::Unknown`] of 255.
    #[must_use]
    pub fn kind(&self) -> ReloKind {
        ReloKind::from_number(u32::from(self.kind))
    }

    /// The record that all relocations of this decision share, without the place of an instruction.
    #[must_use]
    pub fn record(&self) -> CoreRelo {
        CoreRelo { insn_off: 0, type_id: self.root(), access_str_off: self.access_str_off, kind: self.kind() }
    }

    /// How many relocations share it.
    #[must_use]
    pub fn uses(&self) -> u32 {
        self.uses
    }

    /// What was decided.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let first = TypeId(low_u32(self.target_value));
        match self.state {
            STATE_PENDING => Verdict::Pending,
            STATE_VALUE => Verdict::Value,
            STATE_POISON => Verdict::Poison,
            STATE_BAD_SPEC => Verdict::BadSpec,
            STATE_AMBIGUOUS => Verdict::Ambiguous { first, second: TypeId(high_u32(self.target_value)) },
            _ => Verdict::Fault { fault: TargetFault::from_number(self.fault), candidate: first },
        }
    }

    /// The value by the local type.
    #[must_use]
    pub fn local_value(&self) -> u64 {
        self.local_value
    }

    /// The value by the target type; 0 where there is none.
    #[must_use]
    pub fn target_value(&self) -> u64 {
        if self.state == STATE_VALUE { self.target_value } else { 0 }
    }

    /// The candidate that gave the value: its id and the number of its BTF (0 vmlinux, else a module).
    #[must_use]
    pub fn target(&self) -> Option<(TypeId, u16)> {
        (self.state == STATE_VALUE && self.target_id != 0).then_some((TypeId(self.target_id), self.btf))
    }

    /// Whether the compiled immediate must be the local value.
    #[must_use]
    pub fn is_validated(&self) -> bool {
        self.flags & VALIDATE != 0
    }

    /// Whether a load or store compiled for the local field would read something else in the target.
    #[must_use]
    pub fn is_wrong_access(&self) -> bool {
        self.flags & WRONG_ACCESS != 0
    }

    /// Bytes of the local and the target field, for a load or store; 255 for more than 8, 0 where it does not matter.
    #[must_use]
    pub fn access_sizes(&self) -> (u8, u8) {
        (self.local_access, self.target_access)
    }

    fn key(&self) -> (u32, u32, u8) {
        (self.root, self.access_str_off, self.kind)
    }

    /// Whether candidates must be searched to decide it.
    fn needs_candidates(&self) -> bool {
        self.kind != UNKNOWN_KIND && self.kind() != ReloKind::TypeIdLocal
    }

    /// Takes what a chosen candidate gives into account; `None` where it does not match.
    fn merge(&mut self, candidate: TypeId, outcome: Option<Outcome>, btf: u16) {
        let is_first = self.flags & SEEN == 0;
        let agrees = match (self.flags & MATCHED != 0, outcome) {
            (true, Some(outcome)) => outcome.bit_offset == self.bit_offset && outcome.value == self.target_value,
            (false, None) => true,
            _ => is_first,
        };
        if !agrees {
            self.set_ids(STATE_AMBIGUOUS, TypeId(self.target_id), candidate);
            return;
        }
        self.flags |= SEEN;
        if is_first {
            self.target_id = candidate.0;
            self.btf = btf;
        }
        let Some(outcome) = outcome.filter(|_| is_first) else { return };
        self.flags |= MATCHED;
        self.bit_offset = outcome.bit_offset;
        self.target_value = outcome.value;
        self.local_access = outcome.local_access;
        self.target_access = outcome.target_access;
        if outcome.is_wrong_access {
            self.flags |= WRONG_ACCESS;
        }
    }

    /// Ends the search for candidates.
    fn settle(&mut self) {
        match self.state {
            STATE_PENDING if self.flags & MATCHED != 0 => self.state = STATE_VALUE,
            STATE_PENDING => self.set_absent(),
            _ => {}
        }
    }

    fn set_fault(&mut self, candidate: TypeId, fault: TargetFault) {
        self.set_ids(STATE_FAULT, candidate, TypeId::VOID);
        self.fault = fault.number();
    }

    fn set_ids(&mut self, state: u8, first: TypeId, second: TypeId) {
        self.state = state;
        self.target_value = u64::from(first.0) | (u64::from(second.0) << 32);
    }

    /// What a relocation gets whose field, type or enumerator is nowhere: questions of existence, size and id are
    /// answered with 0, all else is poisoned.
    fn set_absent(&mut self) {
        let is_answer = match self.kind() {
            ReloKind::FieldExists | ReloKind::EnumvalExists => true,
            kind => kind.is_type(),
        };
        self.target_value = 0;
        self.target_id = 0;
        self.state = if is_answer { STATE_VALUE } else { STATE_POISON };
    }
}

fn kind_number(kind: ReloKind) -> u8 {
    match kind {
        ReloKind::Unknown(_) => UNKNOWN_KIND,
        known => low_u8(known.number()),
    }
}

/// What one candidate gives for one relocation that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outcome {
    bit_offset: u32,
    value: u64,
    local_access: u8,
    target_access: u8,
    is_wrong_access: bool,
}

/// All distinct relocations of an object, sorted by root type, decided.
#[derive(Clone, Copy, Debug)]
pub struct Decisions<'buf> {
    list: &'buf [Decision],
    endian: Endian,
}

impl<'buf> Decisions<'buf> {
    /// All of them.
    #[must_use]
    pub fn list(&self) -> &'buf [Decision] {
        self.list
    }

    /// The decision on the relocation of this record.
    #[must_use]
    pub fn of(&self, relo: &CoreRelo) -> Option<&'buf Decision> {
        let key = (relo.type_id.0, relo.access_str_off, kind_number(relo.kind));
        let at = self.list.binary_search_by_key(&key, Decision::key).ok()?;
        self.list.get(at)
    }

    /// Why a decision is [`Verdict::BadSpec`].
    ///
    /// # Errors
    /// The fault.
    pub fn spec_error(&self, local: &Types<'_>, decision: &Decision) -> Result<(), SpecError> {
        local_value(local, decision, self.endian).map(|_| ())
    }
}

/// All distinct relocations of an object, sorted by root type, while they are being decided.
#[derive(Debug)]
pub struct Deciding<'buf> {
    list: &'buf mut [Decision],
    endian: Endian,
}

impl<'buf> Deciding<'buf> {
    /// Collects the distinct relocations of `ext`, undecided.
    ///
    /// # Errors
    /// [`ArenaFull`]
    pub fn collect(ext: &BtfExt<'_>, endian: Endian, arena: &mut Arena<'buf>) -> Result<Self, ArenaFull> {
        let mut words = arena.grow::<u32>(Part::Decisions);
        for section in ext.core_relos.sections() {
            for relo in (0..section.count).filter_map(|number| section.core_relo(number)) {
                for word in [relo.type_id.0, relo.access_str_off, u32::from(kind_number(relo.kind))] {
                    words.push(word)?;
                }
            }
        }
        let (keys, _) = words.items().as_chunks_mut::<3>();
        keys.sort_unstable();
        let distinct = count_and_compact(keys);
        words.truncate(distinct.wrapping_mul(3));
        // Keys become decisions in place: each is read before anything reaches it.
        let len = distinct.saturating_mul(DECISION_WORDS);
        while words.len() < len {
            words.push(0)?;
        }
        let area = words.finish()?;
        for number in (0..distinct).rev() {
            let key = area.as_chunks::<3>().0.get(number).copied().unwrap_or_default();
            let decision: [u32; DECISION_WORDS] = zerocopy::transmute!(Decision::new(key));
            if let Some(place) = area.as_chunks_mut::<DECISION_WORDS>().0.get_mut(number) {
                *place = decision;
            }
        }
        let list = <[Decision]>::mut_from_bytes(area.as_mut_bytes()).unwrap_or_default();
        Ok(Self { list, endian })
    }

    /// All of them.
    #[must_use]
    pub fn list(&self) -> &[Decision] {
        self.list
    }

    /// Decides all that needs no candidates, and adds a query for every root type that has relocations left. The
    /// owner of a query is the id of the local root type.
    ///
    /// `names` are the bytes that queries point into, and `strings_at` says where in them the local strings start.
    ///
    /// # Errors
    /// [`ArenaFull`]
    pub fn ask(
        &mut self,
        local: &Types<'_>,
        names: &[u8],
        strings_at: usize,
        mut add: impl FnMut(Query) -> Result<(), ArenaFull>,
    ) -> Result<(), ArenaFull> {
        for run in self.list.chunk_by_mut(|one, next| one.root == next.root) {
            let mut asks = false;
            for decision in &mut *run {
                decide_alone(local, decision, self.endian);
                asks |= decision.state == STATE_PENDING;
            }
            if !asks {
                continue;
            }
            let Some(root) = run.first().map(|decision| decision.root) else { continue };
            match root_query(local, names, strings_at, root) {
                Some(query) => add(query)?,
                // No name, or not one that could be a type's: there can be no candidate.
                None => run.iter_mut().filter(|decision| decision.state == STATE_PENDING).for_each(|decision| {
                    decision.state = STATE_BAD_SPEC;
                }),
            }
        }
        Ok(())
    }

    /// Judges all root types that have candidates in vmlinux; the others stay undecided.
    pub fn resolve(&mut self, local: &Types<'_>, answers: &Answers<'_>) {
        let mut judge = Judge::new(local, answers.types(), VMLINUX, self.endian, MAX_ALL_COMPARISONS);
        for run in self.list.chunk_by_mut(|one, next| one.root == next.root) {
            let candidates = run.first().map_or(&[][..], |decision| answers.of(decision.root));
            let most = match candidates {
                [] => continue,
                [_] => None,
                _ => candidates.iter().map(|candidate| judge.count(run, candidate.id)).max(),
            };
            for candidate in candidates {
                if most.is_none_or(|most| judge.count(run, candidate.id) == most) {
                    judge.merge(run, candidate.id);
                }
            }
            judge.give_up(run, candidates);
            run.iter_mut().for_each(Decision::settle);
        }
    }

    /// First of two looks at a module, for root types that vmlinux has no candidate for: how many relocations its
    /// candidates match. Every module is looked at before [`Deciding::resolve_module`] is called for any.
    pub fn weigh_module(&mut self, local: &Types<'_>, answers: &Answers<'_>, module: u16) {
        let mut judge = Judge::new(local, answers.types(), module, self.endian, MAX_ALL_COMPARISONS);
        for run in self.list.chunk_by_mut(|one, next| one.root == next.root) {
            let candidates = run.first().map_or(&[][..], |decision| answers.of(decision.root));
            let most = candidates.iter().map(|candidate| judge.count(run, candidate.id)).max().unwrap_or(0);
            if let Some(first) = run.first_mut() {
                first.most_matches = first.most_matches.max(most);
            }
        }
    }

    /// Second look at a module: the values that its chosen candidates give.
    pub fn resolve_module(&mut self, local: &Types<'_>, answers: &Answers<'_>, module: u16) {
        let mut judge = Judge::new(local, answers.types(), module, self.endian, MAX_ALL_COMPARISONS);
        for run in self.list.chunk_by_mut(|one, next| one.root == next.root) {
            let Some((root, most)) = run.first().map(|first| (first.root, first.most_matches)) else { continue };
            let candidates = answers.of(root);
            for candidate in candidates {
                if judge.count(run, candidate.id) == most {
                    judge.merge(run, candidate.id);
                }
            }
            judge.give_up(run, candidates);
        }
    }

    /// Decides all that is left: what no BTF has is absent.
    #[must_use]
    pub fn settle(self) -> Decisions<'buf> {
        self.list.iter_mut().for_each(Decision::settle);
        self.finish()
    }

    /// Leaves undecided what is.
    #[must_use]
    pub fn finish(self) -> Decisions<'buf> {
        Decisions { list: self.list, endian: self.endian }
    }

    /// Whether some relocation of this local root type has no decision yet.
    #[must_use]
    pub fn wants(&self, root: TypeId) -> bool {
        let start = self.list.partition_point(|decision| decision.root < root.0);
        let run = self.list.get(start..).unwrap_or_default().iter().take_while(|decision| decision.root == root.0);
        run.into_iter().any(|decision| decision.state == STATE_PENDING)
    }

    /// Whether some relocation has no decision yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.list.iter().any(|decision| decision.state == STATE_PENDING)
    }
}

/// Of the candidates for one root type, those that count: the ones that match the most of its relocations, or that
/// cannot be judged for as many. `run` are its relocations, undecided; `left` is how many pairs of types may still be
/// compared, for all root types together.
pub(crate) fn choose(
    local: &Types<'_>,
    target: &Types<'_>,
    endian: Endian,
    run: &[Decision],
    candidates: impl Iterator<Item = TypeId> + Clone,
    left: &mut u32,
    mut each: impl FnMut(TypeId) -> Result<(), ArenaFull>,
) -> Result<(), ArenaFull> {
    let mut judge = Judge::new(local, target, VMLINUX, endian, *left);
    let most = candidates.clone().map(|candidate| judge.count(run, candidate)).max().unwrap_or(0);
    for candidate in candidates {
        if most > 0 && judge.count(run, candidate) == most {
            each(candidate)?;
        }
    }
    *left = judge.left();
    Ok(())
}

/// Drops repeated keys and puts their number above the kind of the one that is kept.
fn count_and_compact(keys: &mut [[u32; 3]]) -> usize {
    const MAX_USES: u32 = 0x00ff_ffff;
    let mut kept = 0usize;
    for at in 0..keys.len() {
        let Some(&[root, access, kind]) = keys.get(at) else { break };
        let last = kept.checked_sub(1).and_then(|last| keys.get_mut(last));
        match last {
            Some([last_root, last_access, last_kind])
                if (*last_root, *last_access, *last_kind & 0xff) == (root, access, kind) =>
            {
                let uses = (*last_kind >> 8).saturating_add(1).min(MAX_USES);
                *last_kind = kind | (uses << 8);
            }
            _ => {
                if let Some(place) = keys.get_mut(kept) {
                    *place = [root, access, kind | (1 << 8)];
                }
                kept = kept.wrapping_add(1);
            }
        }
    }
    kept
}

fn root_query(local: &Types<'_>, names: &[u8], strings_at: usize, root: u32) -> Option<Query> {
    let ty = local.get(TypeId(root)).ok()?;
    let name = local.identifier(ty.name_off()).ok()?;
    let name_at = strings_at.checked_add(usize::try_from(ty.name_off()).ok()?)?;
    Query::new(names, name_at, name.len(), ty.kind(), Prefix::Root, root)
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
fn decide_alone(local: &Types<'_>, decision: &mut Decision, endian: Endian) {
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
struct Judge<'j> {
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
    fn new(local: &'j Types<'j>, target: &'j Types<'j>, btf: u16, endian: Endian, left: u32) -> Self {
        let pair = Pair::new(local, target);
        Self { allowed: pair.left, pair, left, btf, endian }
    }

    /// How many pairs of types may still be compared.
    fn left(&self) -> u32 {
        self.left.saturating_sub(self.allowed.saturating_sub(self.pair.left))
    }

    /// Where too much was to be compared, nothing that was found of these relocations counts: other candidates might
    /// have differed.
    fn give_up(&self, run: &mut [Decision], candidates: &[Candidate]) {
        let Some(candidate) = candidates.first().filter(|_| self.left() == 0) else { return };
        for decision in run.iter_mut().filter(|decision| decision.state == STATE_PENDING) {
            decision.set_fault(candidate.id, TargetFault::TooComplex);
        }
    }

    /// How many relocations a candidate matches or cannot be judged for: a fault is no reason to drop it, and ends the
    /// relocation, as in libbpf (`bpf_core_calc_relo_insn`).
    fn count(&mut self, run: &[Decision], candidate: TypeId) -> u32 {
        let mut count = 0u32;
        for decision in run.iter().filter(|decision| decision.state == STATE_PENDING) {
            if !matches!(self.evaluate(decision, candidate), Ok(None)) {
                count = count.saturating_add(decision.uses);
            }
        }
        count
    }

    /// Takes a chosen candidate into account.
    fn merge(&mut self, run: &mut [Decision], candidate: TypeId) {
        for decision in run.iter_mut().filter(|decision| decision.state == STATE_PENDING) {
            match self.evaluate(decision, candidate) {
                Ok(outcome) => decision.merge(candidate, outcome, self.btf),
                Err(fault) => decision.set_fault(candidate, fault),
            }
        }
    }

    /// What candidate `id` gives; `None` where it does not match.
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

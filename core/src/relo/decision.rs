//! A distinct relocation, and what was decided of it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::error::TargetFault;
use crate::btf::TypeId;
use crate::btf::ext::{CoreRelo, ReloKind};
use crate::bytes::Endian;
use crate::numbers::{high_u32, low_u8, low_u32};

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
    pub(super) root: u32,
    pub(super) access_str_off: u32,
    pub(super) local_value: u64,
    /// With a verdict other than `Value`: candidate ids, the first in the low half.
    pub(super) target_value: u64,
    /// How many records ask for this.
    pub(super) uses: u32,
    /// Number of the BTF that the target type is in: 0 vmlinux, else a module.
    btf: u16,
    pub(super) kind: u8,
    pub(super) state: u8,
    local_access: u8,
    target_access: u8,
    fault: u8,
    pub(super) flags: u8,
    /// The candidate taken.
    target_id: u32,
    /// Where the access leads in the target, in bits: candidates must agree in it.
    bit_offset: u32,
    /// Of the first decision on a root type: the most relocations that one candidate matches.
    pub(super) most_matches: u32,
}

/// The number of vmlinux among BTFs.
pub const VMLINUX: u16 = 0;

const _: () = assert!(size_of::<Decision>() == 48);

pub(super) const VALIDATE: u8 = 1;
const WRONG_ACCESS: u8 = 2;
/// A chosen candidate was taken into account.
const SEEN: u8 = 4;
/// It matches.
const MATCHED: u8 = 8;
/// The kind number that stands for all kinds not known.
pub(super) const UNKNOWN_KIND: u8 = 0xff;

pub(super) const STATE_PENDING: u8 = 0;
pub(super) const STATE_VALUE: u8 = 1;
pub(super) const STATE_POISON: u8 = 2;
pub(super) const STATE_BAD_SPEC: u8 = 3;
const STATE_AMBIGUOUS: u8 = 4;
const STATE_FAULT: u8 = 5;

/// A type of the kernel or of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct TargetType {
    /// Its id.
    pub id: TypeId,
    /// The index of its BTF: 0 is vmlinux, others are modules.
    pub btf: u16,
}

/// Bytes that a load or store of a field has: 255 for more than 8, 0 where it does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct AccessSizes {
    /// By the object's type.
    pub local: u8,
    /// By the kernel's type.
    pub target: u8,
}

impl Decision {
    pub(super) fn new([root, access_str_off, kind_and_uses]: [u32; 3]) -> Self {
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

    /// The candidate that gave the value.
    #[must_use]
    pub fn target(&self) -> Option<TargetType> {
        let is_there = self.state == STATE_VALUE && self.target_id != 0;
        is_there.then_some(TargetType { id: TypeId(self.target_id), btf: self.btf })
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

    /// Bytes of the local and the target field, for a load or store.
    #[must_use]
    pub fn access_sizes(&self) -> AccessSizes {
        AccessSizes { local: self.local_access, target: self.target_access }
    }

    fn key(&self) -> (u32, u32, u8) {
        (self.root, self.access_str_off, self.kind)
    }

    /// Whether candidates must be searched to decide it.
    pub(super) fn needs_candidates(&self) -> bool {
        self.kind != UNKNOWN_KIND && self.kind() != ReloKind::TypeIdLocal
    }

    /// Takes what a chosen candidate gives into account; `None` where it does not match.
    pub(super) fn merge(&mut self, candidate: TypeId, outcome: Option<Outcome>, btf: u16) {
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
    pub(super) fn settle(&mut self) {
        match self.state {
            STATE_PENDING if self.flags & MATCHED != 0 => self.state = STATE_VALUE,
            STATE_PENDING => self.set_absent(),
            _ => {}
        }
    }

    pub(super) fn set_fault(&mut self, candidate: TypeId, fault: TargetFault) {
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

pub(super) fn kind_number(kind: ReloKind) -> u8 {
    match kind {
        ReloKind::Unknown(_) => UNKNOWN_KIND,
        known => low_u8(known.number()),
    }
}

/// What one candidate gives for one relocation that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) bit_offset: u32,
    pub(super) value: u64,
    pub(super) local_access: u8,
    pub(super) target_access: u8,
    pub(super) is_wrong_access: bool,
}

/// All distinct relocations of an object, sorted by root type, decided.
#[derive(Clone, Copy, Debug)]
pub struct Decisions<'buf> {
    pub(super) list: &'buf [Decision],
    pub(super) endian: Endian,
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
}

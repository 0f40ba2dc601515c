//! The distinct relocations of an object, collected, and what each asks for.

use zerocopy::{FromBytes, IntoBytes};

use super::decision::{Decision, Decisions, STATE_BAD_SPEC, STATE_PENDING, kind_number};
use super::judge::decide_alone;
use crate::arena::{Arena, ArenaFull, Part};
use crate::btf::ext::BtfExt;
use crate::btf::lookup::{Prefix, Query};
use crate::btf::{TypeId, Types};
use crate::bytes::Endian;

/// Words of 32 bits in a [`Decision`].
const DECISION_WORDS: usize = size_of::<Decision>() / 4;

/// All distinct relocations of an object, sorted by root type, while they are being decided.
#[derive(Debug)]
pub(crate) struct OpenDecisions<'buf> {
    pub(super) list: &'buf mut [Decision],
    pub(super) endian: Endian,
}

impl<'buf> OpenDecisions<'buf> {
    /// Collects the distinct relocations of `ext`, undecided.
    ///
    /// # Errors
    /// [`ArenaFull`]
    pub(crate) fn collect(ext: &BtfExt<'_>, endian: Endian, arena: &mut Arena<'buf>) -> Result<Self, ArenaFull> {
        // Three words for every record, to be sorted: only then is known which are distinct, and only those become decisions,
        // which are four times as long.
        let mut words = arena.grow::<u32>(Part::Decisions);
        for section in ext.core_relos.sections() {
            for relo in (0..section.count).filter_map(|index| section.core_relo(index)) {
                for word in [relo.type_id.0, relo.access_str_off, u32::from(kind_number(relo.kind))] {
                    words.push(word)?;
                }
            }
        }
        let (keys, _) = words.items().as_chunks_mut::<3>();
        keys.sort_unstable();
        let distinct = count_and_compact(keys);
        words.truncate(distinct.wrapping_mul(3));
        // Keys become decisions in the bytes that they lie in, the last first: a decision is longer than a key, so none
        // reaches a key that was not read.
        let len = distinct.saturating_mul(DECISION_WORDS);
        while words.len() < len {
            words.push(0)?;
        }
        let area = words.finish()?;
        for index in (0..distinct).rev() {
            let key = area.as_chunks::<3>().0.get(index).copied().unwrap_or_default();
            let decision: [u32; DECISION_WORDS] = zerocopy::transmute!(Decision::new(key));
            if let Some(place) = area.as_chunks_mut::<DECISION_WORDS>().0.get_mut(index) {
                *place = decision;
            }
        }
        let list = <[Decision]>::mut_from_bytes(area.as_mut_bytes()).unwrap_or_default();
        Ok(Self { list, endian })
    }

    /// All of them.
    #[must_use]
    pub(crate) fn list(&self) -> &[Decision] {
        self.list
    }

    /// Decides all that needs no candidates, and adds a query for every root type that has relocations left. The
    /// owner of a query is the id of the local root type.
    ///
    /// `names` are the bytes that queries point into, and `strings_at` says where in them the local strings start.
    ///
    /// # Errors
    /// [`ArenaFull`]
    pub(crate) fn ask(
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

    /// Decides all that is left: what no BTF has is absent.
    #[must_use]
    pub(crate) fn settle(self) -> Decisions<'buf> {
        self.list.iter_mut().for_each(Decision::settle);
        self.finish()
    }

    /// Leaves undecided what is.
    #[must_use]
    pub(crate) fn finish(self) -> Decisions<'buf> {
        Decisions { list: self.list, endian: self.endian }
    }

    /// Whether some relocation of this local root type has no decision yet.
    #[must_use]
    pub(crate) fn wants(&self, root: TypeId) -> bool {
        let start = self.list.partition_point(|decision| decision.root < root.0);
        let run = self.list.get(start..).unwrap_or_default().iter().take_while(|decision| decision.root == root.0);
        run.into_iter().any(|decision| decision.state == STATE_PENDING)
    }

    /// Whether some relocation has no decision yet.
    #[must_use]
    pub(crate) fn is_pending(&self) -> bool {
        self.list.iter().any(|decision| decision.state == STATE_PENDING)
    }
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

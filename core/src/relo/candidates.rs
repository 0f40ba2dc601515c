//! Which candidates count, all relocations of one local root type judged together.
//!
//! libbpf keeps a list of candidates per root type and drops those that do not match as relocations come by, so what a
//! relocation gets can depend on the order of programs. Here all relocations of one root type are judged at once: the
//! candidates that match the most relocations are taken, the rest is dropped, and the chosen ones must agree. Wherever
//! libbpf's answer does not depend on the order, this one is the same.

use super::collect::OpenDecisions;
use super::decision::{Decision, VMLINUX};
use super::judge::Judge;
use crate::arena::ArenaFull;
use crate::btf::lookup::Answers;
use crate::btf::{TypeId, Types};
use crate::bytes::Endian;
use crate::limits::MAX_ALL_COMPARISONS;

impl OpenDecisions<'_> {
    /// Judges all root types that have candidates in vmlinux; the others stay undecided.
    // Its own function: within its caller the smallest firmware is 480 bytes larger.
    #[inline(never)]
    pub(crate) fn resolve(&mut self, local: &Types<'_>, answers: &Answers<'_>) {
        let mut judge = Judge::new(local, answers.types(), VMLINUX, self.endian, MAX_ALL_COMPARISONS);
        for run in self.list.chunk_by_mut(|one, next| one.root == next.root) {
            let candidates = run.first().map_or(&[][..], |decision| answers.of(decision.root));
            // Counted first and merged then, as which candidates count is known when all of them were compared with all
            // relocations. One alone counts however few it matches: it need not be compared twice.
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
    /// candidates match. Every module is looked at before [`OpenDecisions::resolve_module`] is called for any: the candidates
    /// of all modules are judged together, with one module in memory at a time.
    pub(crate) fn weigh_module(&mut self, local: &Types<'_>, answers: &Answers<'_>, module: u16) {
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
    pub(crate) fn resolve_module(&mut self, local: &Types<'_>, answers: &Answers<'_>, module: u16) {
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

//! Random CO-RE relocations, beside what libbpf makes of them.
//!
//! # What is generated
//! [`corelo_tests::random`] decodes a case from random numbers: local types of every kind (anonymous, nested, flexible, bitfields,
//! chains, rings through pointers, towers about as high as the limits), a target that is a copy of them with random changes and
//! further candidates, and up to 16 relocations of all kinds on all forms of instructions, some with a wrong immediate or an
//! index past the end. Each relocation is one program of one object, in either byte order.
//!
//! # What is compared
//! The object is prepared by us and by libbpf (`btf_custom_path`), which stops at the first program that fails: that is left
//! out and the rest prepared again. Each program must fail in both, or end with the same instructions in both.
//!
//! # What is left out or excused
//! The generator avoids what is known to differ (README, "As correct as libbpf"): several relocations of a local type that has
//! several candidates, unknown kinds, malformed access strings, unsigned 32-bit enumerators of 2^31 and more, left shifts in the
//! byte order that is not the host's. A bitfield is always of an integer or enumeration, as libbpf divides by the size of what
//! it takes for one, and no name is twice in a flattened struct, as libbpf then leaves a wrong offset behind. Excused, counted,
//! and only where the cause is exactly this one, are
//!
//! - a value that does not fit an ALU immediate: libbpf writes its low half, and its instruction must have just that;
//! - an offset that does not fit 32 bits: libbpf goes on with its low half;
//! - 32 typedefs, modifiers and arrays in a row: libbpf follows any number, but for a size;
//! - an element of 2^31 bytes and more: libbpf takes its size for a negative error.
//!
//! # How much
//! 3000 cases from a fixed seed, and every kind with every outcome and every reason of libbpf's must have been seen.
//! `PROPTEST_CASES=100000` runs more, `CORELO_SEED=2` others. A case that fails is shrunk and printed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use corelo_core::arena::Arena;
use corelo_core::btf::BtfError;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Prepared, Relocation, RelocationError, prepare};
use corelo_core::relo::decision::Verdict;
use corelo_core::relo::patch::{PatchError, Patched};
use corelo_core::relo::{SpecError, TargetFault};
use corelo_tests::endian::Endian;
use corelo_tests::insn::{Insn, decode};
use corelo_tests::kernel;
use corelo_tests::libbpf::{self, Autoload};
use corelo_tests::random::case::{Asked, Case};
use corelo_tests::random::relo::{Relo, kinds};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any};
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use zerocopy::IntoBytes;

const CASES: u32 = 3000;

/// What became of a relocation.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Did {
    /// The program's instructions, and whether the one in question is poisoned.
    Linked { insns: Vec<Insn>, is_poisoned: bool },
    /// The message, or libbpf's log.
    Failed(String),
}

/// A failure of ours that libbpf does not have, and is not to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The value does not fit an ALU immediate.
    CutImmediate(u64),
    /// The offset in bits does not fit 32 bits.
    Overflow,
    /// [`LONG_CHAIN`] typedefs, modifiers and arrays in a row.
    LongChain,
}

/// See [`Purpose::LongChain`].
const LONG_CHAIN: usize = 32;

/// The name of the program of a relocation.
fn name(number: usize) -> String {
    format!("p{number}")
}

/// What we make of each program, and whether its failure is one on purpose.
fn ours(case: &Case) -> Vec<(Did, Option<Purpose>)> {
    let mut words = vec![0u64; 1 << 14];
    let mut arena = Arena::new(words.as_mut_bytes());
    let object = Object::parse(&case.object).expect("a sound object");
    let prepared =
        prepare(&object, Some(&case.btf), Options::default(), &mut arena).expect("a sound object and target");
    let relocations: Vec<_> = prepared.relocations().collect();
    assert_eq!(relocations.len(), case.relos.len());
    let mut did = vec![(Did::Failed(String::new()), None); case.relos.len()];
    for (number, function) in prepared.declared().programs() {
        let name = prepared.function_name(function);
        let at: usize = String::from_utf8_lossy(&name[1..]).parse().expect("p and a number");
        let relocation = relocations.iter().find(|relocation| relocation.function == Some(number)).expect("one each");
        did[at].0 = match prepared.program(number, &mut arena.scratch()) {
            Ok(linked) => {
                let insns = decode(linked.insns.as_bytes(), case.endian);
                Did::Linked { insns, is_poisoned: relocation.outcome == Ok(Patched::Poison) }
            }
            Err(error) => {
                assert!(relocation.outcome.is_err(), "{error}");
                Did::Failed(error.to_string())
            }
        };
        did[at].1 = purpose(case, &case.relos[at], &prepared, relocation);
    }
    did
}

fn purpose(case: &Case, relo: &Relo, prepared: &Prepared<'_>, relocation: &Relocation<'_>) -> Option<Purpose> {
    let long_chain = || (case.longest_chain(relo) >= LONG_CHAIN).then_some(Purpose::LongChain);
    match relocation.outcome {
        Err(RelocationError::Patch(PatchError::ImmediateTooBig { value })) => Some(Purpose::CutImmediate(value)),
        Err(RelocationError::Undecided(Verdict::Fault { fault: TargetFault::OffsetOverflow, .. })) => {
            Some(Purpose::Overflow)
        }
        Err(RelocationError::Undecided(Verdict::Fault { fault: TargetFault::TooDeep, .. })) => long_chain(),
        Err(RelocationError::Undecided(Verdict::BadSpec)) => {
            let local = prepared.local().expect("the object has BTF");
            match prepared.decisions().spec_error(local, relocation.decision) {
                Err(SpecError::OffsetOverflow) => Some(Purpose::Overflow),
                Err(SpecError::Btf(BtfError::ChainTooLong { .. })) => long_chain(),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The program that libbpf's relocating ended at, by its log.
fn failing_program(log: &str) -> Option<String> {
    let ends = [": failed to relocate: ", ": failed to patch insn #"];
    let is_end = |line: &&str| line.contains("': relo #") && ends.iter().any(|end| line.contains(end));
    let line = log.lines().rev().find(is_end)?;
    Some(line.split_once("prog '")?.1.split_once('\'')?.0.to_owned())
}

/// What libbpf makes of each program, and its log. It stops at the first that fails, so that one is left out the next time.
fn theirs(case: &Case, directory: &Path) -> Result<(Vec<Did>, String), String> {
    let (object, btf) = (directory.join("object.o"), directory.join("target.btf"));
    std::fs::write(&object, &case.object).map_err(|error| error.to_string())?;
    std::fs::write(&btf, &case.btf).map_err(|error| error.to_string())?;
    let mut failed: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let options = libbpf::Options {
            custom_btf: Some(btf.clone()),
            autoload: Autoload::Without(failed.keys().cloned().collect()),
            ..Default::default()
        };
        let outcome = libbpf::run(&object, &options)?;
        if outcome.failed.is_none() {
            let one = |number: usize| match failed.get(&name(number)) {
                Some(why) => Did::Failed(why.clone()),
                None => {
                    let program = outcome.program(&name(number)).expect("libbpf has all programs");
                    let insns = decode(&program.insns, Endian::native());
                    let is_poisoned = insns[0] == Insn::call_helper(0x0bad_2310);
                    Did::Linked { insns, is_poisoned }
                }
            };
            let did = (0..case.relos.len()).map(one).collect();
            return Ok((did, failed.into_values().chain([outcome.log]).collect::<Vec<_>>().join("\n")));
        }
        let program = failing_program(&outcome.log).ok_or_else(|| format!("no program failed:\n{}", outcome.log))?;
        let about = format!("prog '{program}'");
        let why: Vec<&str> = outcome.log.lines().filter(|line| line.contains(&about)).collect();
        if failed.insert(program, why.join("\n")).is_some() {
            return Err(format!("a program failed twice:\n{}", outcome.log));
        }
    }
}

/// Whether libbpf took a size of 2^31 bytes and more for an error: no error number is that large.
fn is_size_for_error(why: &str) -> bool {
    let number = |line: &str| line.rsplit_once(": -")?.1.trim().parse::<u32>().ok();
    why.lines().filter(|line| line.contains("error matching candidate")).filter_map(number).any(|errno| errno > 4095)
}

/// Patched with the compiled value.
const KEPT: usize = 0;
/// Patched with another value, or another access size.
const CHANGED: usize = 1;
/// Poisoned.
const POISONED: usize = 2;
/// Failed in both.
const FAILED: usize = 3;

/// What libbpf's log says where it comes to a decision that is not the plain one.
const REASONS: [&str; 15] = [
    "parsing [",
    "target candidate search failed",
    "non-matching candidate #1",
    "error matching candidate",
    "field offset ambiguity",
    "relocation decision ambiguity",
    "can't be applied to array access",
    "can't be satisfied for bitfield",
    "(ALU/ALU64) value: got",
    "(LDX/ST/STX) value: got",
    "(LDIMM64) value: got",
    "(LDX/ST/STX) accesses field incorrectly",
    "(LDX/ST/STX) mem_sz",
    "unexpected mem size",
    "trying to relocate unrecognized insn",
];

/// As [`REASONS`], but rare: they are asked for in long runs only.
const RARE_REASONS: [&str; 3] = ["value too big", "invalid new mem size", "has unexpected form"];

/// What was compared.
#[derive(Debug, Default)]
struct Count {
    cases: u32,
    /// By kind and outcome.
    kinds: [[u32; 4]; kinds::COUNT],
    reasons: BTreeMap<&'static str, usize>,
    excused: BTreeMap<&'static str, u32>,
}

impl Count {
    fn excuse(&mut self, why: &'static str) {
        *self.excused.entry(why).or_default() += 1;
    }

    fn print(&self) {
        println!("{} cases; excused {:?}", self.cases, self.excused);
        println!("{:>16} {:>7} {:>7} {:>7} {:>7}", "", "kept", "changed", "poison", "failed");
        for (name, [kept, changed, poisoned, failed]) in kinds::NAMES.iter().zip(&self.kinds) {
            println!("{name:>16} {kept:7} {changed:7} {poisoned:7} {failed:7}");
        }
        for (reason, count) in &self.reasons {
            println!("{count:7} {reason}");
        }
    }

    /// Whether the run was worth something: every kind with every outcome that it can have.
    fn check(&self) {
        let least = self.cases as usize / 1000;
        for (kind, row) in kinds::NAMES.iter().zip(&self.kinds) {
            // Existence, sizes and ids of types have an answer where there is none.
            let has_answer = ["exists", "type_"].iter().any(|word| kind.contains(word));
            // The local id does not depend on the target, and the instructions never have it before.
            let outcomes: &[usize] = match *kind {
                "local_type_id" => &[CHANGED, FAILED],
                "target_type_id" => &[CHANGED, FAILED],
                _ if has_answer => &[KEPT, CHANGED, FAILED],
                _ => &[KEPT, CHANGED, POISONED, FAILED],
            };
            for &outcome in outcomes {
                assert!(row[outcome] as usize > least, "{kind}: outcome {outcome} was seen {} times", row[outcome]);
            }
        }
        let seen = |reason: &str| self.reasons.get(reason).copied().unwrap_or(0);
        for reason in REASONS {
            assert!(seen(reason) > least, "libbpf said {reason:?} {} times", seen(reason));
        }
        if self.cases >= 10 * CASES {
            assert!(RARE_REASONS.iter().all(|reason| seen(reason) > 0), "{:?}", self.reasons);
        }
    }
}

fn compare(case: &Case, directory: &Path, count: &mut Count) -> Result<(), String> {
    let ours = ours(case);
    let (theirs, log) = theirs(case, directory)?;
    count.cases += 1;
    for reason in REASONS.into_iter().chain(RARE_REASONS) {
        *count.reasons.entry(reason).or_default() += log.matches(reason).count();
    }
    for (number, ((ours, purpose), theirs)) in ours.iter().zip(&theirs).enumerate() {
        let relo = &case.relos[number];
        let outcome = match (ours, theirs) {
            (Did::Linked { is_poisoned: true, .. }, _) if ours == theirs => POISONED,
            (Did::Linked { insns, .. }, _) if ours == theirs => {
                if insns.starts_with(&relo.insns) {
                    KEPT
                } else {
                    CHANGED
                }
            }
            (Did::Failed(_), Did::Failed(_)) => FAILED,
            (Did::Failed(_), Did::Linked { insns, is_poisoned: false }) if matches!(purpose, Some(Purpose::CutImmediate(value)) if insns[0].imm == *value as i32) =>
            {
                count.excuse("cut immediate");
                continue;
            }
            (Did::Failed(_), Did::Linked { .. }) if *purpose == Some(Purpose::Overflow) => {
                count.excuse("cut offset");
                continue;
            }
            (Did::Failed(_), Did::Linked { .. }) if *purpose == Some(Purpose::LongChain) => {
                count.excuse("long chain");
                continue;
            }
            (Did::Linked { .. }, Did::Failed(why)) if is_size_for_error(why) => {
                count.excuse("size taken for an error");
                continue;
            }
            _ => return Err(format!("p{number}: ours {ours:?}\nlibbpf {theirs:?}")),
        };
        count.kinds[relo.kind as usize][outcome] += 1;
    }
    Ok(())
}

#[test]
fn random_relocations_end_as_libbpf_has_them() {
    if !kernel::require_kernel("prepare random objects with libbpf") {
        return;
    }
    let mut config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    let seed = std::env::var("CORELO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]));
    let numbers = (vec(any::<u16>(), 0..400), vec(any::<u16>(), 0..240), vec(any::<u16>(), 0..260));
    let count = RefCell::new(Count::default());
    let directory = tempfile::tempdir().expect("a temporary directory");
    let result = runner.run(&numbers, |(types, changes, relos)| {
        let case = Case::decode(&types, &changes, &relos, Asked::Once);
        compare(&case, directory.path(), &mut count.borrow_mut())
            .map_err(|error| TestCaseError::fail(format!("{error}\n{}", case.text())))
    });
    let count = count.into_inner();
    count.print();
    match result {
        // The numbers alone say nothing.
        Err(TestError::Fail(reason, _)) => panic!("{reason}"),
        Err(TestError::Abort(reason)) => panic!("gave up: {reason}"),
        Ok(()) => count.check(),
    }
}

//! Random CO-RE relocations against minimal BTFs: whatever the types, the relocations and their number, a minimal BTF gives what
//! the whole one gives.
//!
//! Local types, changed target and relocations are those of [`corelo_tests::random`], several relocations of one local type
//! included. Two objects with the same types are relocated against
//!
//! - the whole target,
//! - a minimal BTF made for each of them alone, and one for both together,
//! - a BTF streamed through windows of two sizes, for each of them.
//!
//! Towers of types that take more passes than a source is read in are not streamed, and counted. Compared are the decision, what it does to the instruction, and both ids of a target type: a streamed BTF has those of the
//! whole one, a minimal one its own, and says which they were.
//!
//! 3000 cases from a fixed seed, in either byte order; `PROPTEST_CASES=100000` runs more.

use std::cell::RefCell;

use corelo_core::arena::Arena;
use corelo_core::btf::Btf;
use corelo_core::min_btf::{MIN_WINDOW, SliceSource, StreamError, minimal, stream};
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Plan, Prepared, RelocationError};
use corelo_core::relo::decision::Verdict;
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding};
use corelo_tests::endian::Endian;
use corelo_tests::insn::Insn;
use corelo_tests::object_builder::ObjectBuilder;
use corelo_tests::random::case::{Asked, Case};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any};
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use zerocopy::IntoBytes;

/// The kind of relocation whose value is a type id of the target.
const TYPE_ID_TARGET: u32 = 7;

/// What was decided and done, a line for each relocation. `old_ids` are the ids that the types of the BTF had, from 1 on.
fn facts(prepared: &Prepared<'_>, old_ids: Option<&[u32]>) -> Vec<String> {
    let old = |id: u32| match old_ids {
        Some(ids) if id != 0 => ids[id as usize - 1],
        _ => id,
    };
    let one = |relocation: corelo_core::prepare::Relocation<'_>| {
        let decision = relocation.decision;
        let verdict = match decision.verdict() {
            Verdict::Ambiguous { first, second } => format!("[{}] and [{}] differ", old(first.0), old(second.0)),
            Verdict::Fault { fault, candidate } => format!("[{}] {fault}", old(candidate.0)),
            verdict => format!("{verdict:?}"),
        };
        let target = decision.target().map(|target| old(target.id.0));
        if relocation.relo.kind.number() == TYPE_ID_TARGET {
            // The instruction has the id.
            return format!("{verdict} {target:?} {}", relocation.outcome.is_ok());
        }
        let outcome = match relocation.outcome {
            Err(RelocationError::Undecided(_)) => "undecided".to_owned(),
            outcome => format!("{outcome:?}"),
        };
        let insns = relocation.insns().as_bytes();
        format!("{verdict} {target:?} {} {:?} {outcome} {insns:x?}", decision.target_value(), decision.access_sizes())
    };
    prepared.relocations().map(one).collect()
}

fn relocated(object: &[u8], btf: &[u8], old_ids: Option<&[u32]>) -> Vec<String> {
    let mut words = vec![0u64; 1 << 14];
    let mut arena = Arena::new(words.as_mut_bytes());
    let object = Object::parse(object).expect("a sound object");
    let plan = Plan::new(&object, Options::default(), &mut arena).expect("a sound object");
    let search = plan.search(Btf::parse(btf).expect("valid BTF"), &mut arena).expect("a search");
    facts(&search.finish(), old_ids)
}

/// `None` for types that nest too deep to be streamed.
fn streamed(object: &[u8], btf: &[u8], window: usize) -> Result<Option<Vec<String>>, String> {
    let mut words = vec![0u64; 1 << 14];
    let mut arena = Arena::new(words.as_mut_bytes());
    let object = Object::parse(object).expect("a sound object");
    let plan = Plan::new(&object, Options::default(), &mut arena).expect("a sound object");
    let made = match stream(SliceSource(btf), plan.needs(), window, &mut arena) {
        Ok(made) => made,
        Err(StreamError::Passes) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let search = plan.search(made.btf().expect("valid BTF"), &mut arena).expect("a search");
    Ok(Some(facts(&search.finish(), None)))
}

/// The minimal BTF for all of these, and the ids that its types had.
fn minimal_btf(objects: &[&[u8]], btf: &[u8]) -> Result<(Vec<u8>, Vec<u32>), String> {
    let mut words = vec![0u64; 1 << 15];
    let mut arena = Arena::new(words.as_mut_bytes());
    let objects: Vec<Object<'_>> = objects.iter().map(|bytes| Object::parse(bytes).expect("an object")).collect();
    let plan = |object| Plan::new(object, Options::default(), &mut arena).expect("a plan");
    let plans: Vec<Plan<'_>> = objects.iter().map(plan).collect();
    let needs: Vec<_> = plans.iter().map(Plan::needs).collect();
    let made = minimal(&needs, btf, None, &mut arena).map_err(|error| error.to_string())?;
    Ok((made.blob.to_vec(), made.ids.to_vec()))
}

fn same(how: &str, whole: &[String], other: &[String]) -> Result<(), String> {
    match whole.iter().zip(other).position(|(one, two)| one != two) {
        None if whole.len() == other.len() => Ok(()),
        at => {
            let at = at.unwrap_or(0);
            Err(format!("{how}: p{at}:\nwhole {:?}\nother {:?}", whole.get(at), other.get(at)))
        }
    }
}

#[derive(Debug, Default)]
struct Count {
    relocations: usize,
    undecided: usize,
    /// They would take more than 64 passes.
    not_streamed: usize,
    whole_bytes: usize,
    minimal_bytes: usize,
}

fn compare(cases: [&Case; 2], count: &mut Count) -> Result<(), String> {
    let btf = &cases[0].btf;
    let together = minimal_btf(&[&cases[0].object, &cases[1].object], btf)?;
    for case in cases {
        let whole = relocated(&case.object, btf, None);
        assert_eq!(whole.len(), case.relos.len());
        let (blob, ids) = minimal_btf(&[&case.object], btf)?;
        same("minimal", &whole, &relocated(&case.object, &blob, Some(&ids)))?;
        same("minimal for both", &whole, &relocated(&case.object, &together.0, Some(&together.1)))?;
        for window in [MIN_WINDOW, 4096] {
            match streamed(&case.object, btf, window)? {
                Some(streamed) => same("streamed", &whole, &streamed)?,
                None => count.not_streamed += 1,
            }
        }
        count.relocations += whole.len();
        count.undecided += whole.iter().filter(|fact| fact.contains("undecided")).count();
        count.whole_bytes += btf.len();
        count.minimal_bytes += blob.len();
    }
    Ok(())
}

/// As deep as prototypes may nest, which is one level more than there are comparisons below the first.
#[test]
fn the_innermost_of_32_prototypes_is_kept() {
    let write = |btf: &mut BtfBuilder| {
        let mut ty = btf.int("int", 4, IntEncoding::Signed);
        for _ in 0..32 {
            ty = btf.func_proto(0, &[("f", ty)]);
        }
        btf.typedef("deep", ty)
    };
    let (mut object, mut btf) = (ObjectBuilder::new(Endian::Little), BtfBuilder::new(Endian::Little));
    let root = write(&mut object.btf);
    write(&mut btf);
    object.program("socket", "p0", &[Insn::mov64_imm(0, 1), Insn::exit()]);
    object.core_relo("p0", 0, root, "0", 8);
    let (object, btf) = (object.build(), btf.build());
    let whole = relocated(&object, &btf, None);
    assert!(whole[0].starts_with("Value Some(34) 1 "), "{whole:?}");
    let (blob, ids) = minimal_btf(&[&object], &btf).expect("a minimal BTF");
    assert_eq!(same("minimal", &whole, &relocated(&object, &blob, Some(&ids))), Ok(()));
    let streamed = streamed(&object, &btf, MIN_WINDOW).expect("it can be streamed").expect("in few passes");
    assert_eq!(same("streamed", &whole, &streamed), Ok(()));
}

#[test]
fn random_relocations_against_minimal_btf_are_as_before() {
    let mut config =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 3000;
    }
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[1; 32]));
    let numbers =
        (vec(any::<u16>(), 0..400), vec(any::<u16>(), 0..240), vec(any::<u16>(), 0..260), vec(any::<u16>(), 0..260));
    let count = RefCell::new(Count::default());
    let result = runner.run(&numbers, |(types, changes, one, other)| {
        let one = Case::decode(&types, &changes, &one, Asked::Freely);
        let other = Case::decode(&types, &changes, &other, Asked::Freely);
        compare([&one, &other], &mut count.borrow_mut())
            .map_err(|error| TestCaseError::fail(format!("{error}\n{}\nand {:?}", one.text(), other.relos)))
    });
    let count = count.into_inner();
    println!("{count:?}");
    match result {
        Ok(()) => {}
        // The numbers alone say nothing.
        Err(TestError::Fail(reason, _)) => panic!("{reason}"),
        Err(TestError::Abort(reason)) => panic!("gave up: {reason}"),
    }
    assert!(count.relocations > 20_000 && count.undecided > 100, "{count:?}");
    assert!(count.not_streamed < count.relocations / 200, "{count:?}");
    assert!(count.minimal_bytes < count.whole_bytes / 2, "{count:?}");
}

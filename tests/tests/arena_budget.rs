//! The size that an arena reports is the size that does: not a byte less.

mod exact;

use std::collections::BTreeMap;

use corelo_core::arena::Arena;
use corelo_core::btf::Btf;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Plan};
use corelo_tests::fixtures::{Fixture, fixtures};
use exact::{Run, exactly, run};

fn target(fixture: &Fixture) -> Option<Vec<u8>> {
    if fixture.name == "core_insns_v4" {
        return corelo_tests::fixtures::fixture("core_insns", fixture.endian).read_target();
    }
    fixture.read_target()
}

/// Fixtures that can be prepared with the BTF that they have: their own target, or none where nothing is asked.
fn prepared_fixtures() -> Vec<(Fixture, Vec<u8>, Option<Vec<u8>>)> {
    let with_bytes = fixtures().into_iter().map(|fixture| {
        let (bytes, target) = (fixture.read(), target(&fixture));
        (fixture, bytes, target)
    });
    let is_prepared = |(_, bytes, target): &(Fixture, Vec<u8>, Option<Vec<u8>>)| {
        matches!(run(bytes, target.as_deref(), Options::default(), 1 << 20), Run::Done(..))
    };
    with_bytes.filter(is_prepared).collect()
}

#[test]
fn every_fixture_runs_in_the_bytes_that_it_reports() {
    let mut parts: BTreeMap<&str, u32> = BTreeMap::new();
    let mut checked = 0;
    for (fixture, bytes, target) in prepared_fixtures() {
        let name = format!("{}-{:?}", fixture.name, fixture.endian);
        let (_, _, full) = exactly(&name, &bytes, target.as_deref(), Options::default());
        *parts.entry(full.part.name()).or_default() += 1;
        checked += 1;
    }
    println!("{checked} objects; what did not fit in one byte less: {parts:?}");
    assert!(checked >= 40);
}

/// Every size below the one that does is refused in the same way: no size in between works, panics or gives something else.
#[test]
fn every_smaller_arena_is_refused() {
    let mut runs = 0;
    for name in ["core_fields", "core_subprogs", "nothing_asked"] {
        for endian in corelo_tests::endian::Endian::BOTH {
            let fixture = corelo_tests::fixtures::fixture(name, endian);
            let (bytes, target) = (fixture.read(), target(&fixture));
            let (_, high_water, _) = exactly(name, &bytes, target.as_deref(), Options::default());
            for size in 0..high_water {
                match run(&bytes, target.as_deref(), Options::default(), size) {
                    Run::Full(_) => runs += 1,
                    other => panic!("{name}: in {size} of {high_water} bytes: {other:?}"),
                }
            }
        }
    }
    println!("{runs} arenas too small");
}

/// Strides trade bytes for steps; results are the same.
#[test]
fn strides_change_the_bytes_and_not_the_result() {
    for (fixture, bytes, target) in prepared_fixtures() {
        let all = [(1, 1), (8, 8), (32, 8), (1000, 1000)].map(|(stride, local_stride)| {
            let options = Options { stride, local_stride, ..Options::default() };
            match run(&bytes, target.as_deref(), options, 1 << 20) {
                Run::Done(programs, high_water) => (programs, high_water),
                other => panic!("{}: stride {stride}: {other:?}", fixture.name),
            }
        });
        for pair in all.windows(2) {
            assert_eq!(pair[0].0, pair[1].0, "{}", fixture.name);
            assert!(pair[0].1 >= pair[1].1, "{}: a wider stride takes no more", fixture.name);
        }
    }
}

/// What asks nothing never needs the kernel's types.
#[test]
fn an_object_that_asks_nothing_needs_no_kernel() {
    let fixture = corelo_tests::fixtures::fixture("nothing_asked", corelo_tests::endian::Endian::Little);
    let bytes = fixture.read();
    let mut buffer = vec![0u8; 1 << 16];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(&bytes).expect("a fixture");
    let plan = Plan::new(&object, Options::default(), &mut arena).expect("a fixture");
    assert!(!plan.asks_kernel() && plan.first_question().is_none());
    let used = arena.used();
    let prepared = plan.finish().expect("nothing is asked");
    assert!(prepared.answers().is_none());
    assert_eq!(arena.used(), used);
    let other = corelo_tests::fixtures::fixture("core_fields", corelo_tests::endian::Endian::Little);
    let bytes = other.read();
    let mut buffer = vec![0u8; 1 << 16];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(&bytes).expect("a fixture");
    let plan = Plan::new(&object, Options::default(), &mut arena).expect("a fixture");
    assert!(plan.asks_kernel() && plan.first_question().is_some());
    assert!(plan.finish().is_err());
    assert!(Btf::parse(&other.read_target().expect("a target")).is_ok());
}

#[test]
fn the_budget_is_what_preparing_and_linking_then_take() {
    use corelo_core::budget::budget;
    let mut told = 0;
    for fixture in fixtures() {
        let Some(target) = fixture.read_target() else { continue };
        let file = fixture.read();
        let object = Object::parse(&file).unwrap();
        let mut buffer = vec![0u8; 1 << 20];
        let whole = budget(&object, Some(&target), Options::default(), &mut Arena::new(&mut buffer));
        // Some fixtures hold programs that must not link.
        let Ok(whole) = whole else { continue };
        let sum: usize = whole.parts().iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(sum, whole.arena_bytes(), "{}", fixture.name);
        let mut exact = vec![0u8; whole.arena_bytes()];
        budget(&object, Some(&target), Options::default(), &mut Arena::new(&mut exact)).unwrap();
        let short = exact.len() - 1;
        let error = budget(&object, Some(&target), Options::default(), &mut Arena::new(&mut exact[..short]));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("arena too small"), "{}: {error}", fixture.name);
        told += 1;
    }
    assert!(told >= 8, "only {told} fixtures have a budget");
}

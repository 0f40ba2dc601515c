//! Preparing again by what was kept: the same programs, and no type of the kernel visited.

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, PrepareError, Prepared, prepare};
use corelo_tests::corpus::corpus;
use corelo_tests::fixtures::fixtures;
use zerocopy::IntoBytes;

const BUFFER: usize = 1 << 20;

/// All programs: their instructions, or why there are none.
fn programs(prepared: &Prepared<'_>) -> Vec<Result<Vec<u8>, String>> {
    let mut buffer = vec![0u8; BUFFER];
    let mut arena = Arena::new(&mut buffer);
    let mut link = |number| {
        let linked = prepared.program(number, &mut arena.scratch());
        linked.map(|linked| linked.insns.as_bytes().to_vec()).map_err(|error| error.to_string())
    };
    prepared.declared().programs().map(|(number, _)| link(number)).collect()
}

/// Prepares twice and compares; the number of types that the first time visited, or `None` where it fails.
fn check(name: &str, file: &[u8], kernel: Option<&[u8]>) -> Option<u32> {
    let (mut first, mut second) = (vec![0u8; BUFFER], vec![0u8; BUFFER]);
    let object = Object::parse(file).ok()?;
    let cold = prepare(&object, kernel, Options::default(), &mut Arena::new(&mut first)).ok()?;
    let snapshot = cold.snapshot();
    let copy = file.to_vec();
    let again = Object::parse(&copy).expect("the same bytes are an object again");
    let warm = snapshot
        .prepare(&again, Options::default(), &mut Arena::new(&mut second))
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(warm.visited(), 0, "{name}");
    assert_eq!(programs(&warm), programs(&cold), "{name}");
    for (id, _) in cold.declared().programs() {
        assert_eq!(warm.attach_target(id), cold.attach_target(id), "{name}");
    }
    Some(cold.visited())
}

#[test]
fn fixtures_are_the_same_again() {
    let mut checked = 0;
    for fixture in fixtures() {
        let kernel = fixture.read_target();
        checked += u32::from(check(&fixture.name, &fixture.read(), kernel.as_deref()).is_some());
    }
    assert!(checked >= 20, "{checked}");
}

#[test]
fn corpus_objects_are_the_same_again() {
    let Some(corpus) = corpus() else { return };
    let kernel = corpus.kernel("amd64-6.12.117").btf();
    let visited: Vec<u32> = corpus
        .objects()
        .iter()
        .filter_map(|name| check(name, &corpus.read(name), Some(&kernel)))
        .filter(|&visited| visited > 0)
        .collect();
    assert!(visited.len() > 100 && visited.iter().all(|&visited| visited > 100_000), "{visited:?}");
}

#[test]
fn what_was_kept_of_another_object_is_refused() {
    let fixture = corelo_tests::fixtures::fixture("core_fields", corelo_tests::endian::Endian::native());
    let (file, kernel) = (fixture.read(), fixture.read_target());
    let mut buffer = vec![0u8; BUFFER];
    let object = Object::parse(&file).expect("object");
    let cold = prepare(&object, kernel.as_deref(), Options::default(), &mut Arena::new(&mut buffer)).expect("prepared");
    let snapshot = cold.snapshot();
    let mut refused = 0;
    for at in 0..file.len() {
        let mut other = file.clone();
        other[at] ^= 1;
        let Ok(other) = Object::parse(&other) else { continue };
        let result = snapshot.prepare(&other, Options::default(), &mut Arena::new(&mut []));
        assert_eq!(result.err(), Some(PrepareError::OtherObject), "byte {at}");
        refused += 1;
    }
    assert!(refused > 1000, "{refused}");
}

//! Objects taken from the first byte to the last linked instruction in an arena of a given size, to the byte.

use corelo_core::arena::{Arena, ArenaFull};
use corelo_core::link::LinkCause;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, PrepareError, prepare};
use zerocopy::IntoBytes;

/// What came of one program: its name, and its instructions or why it has none.
pub(crate) type Program = (String, Result<Vec<u8>, String>);

/// How a run in an arena ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Run {
    /// Every program, and the arena's high-water mark.
    Done(Vec<Program>, usize),
    /// The arena was too small.
    Full(ArenaFull),
    /// Something else is wrong.
    Failed(String),
}

/// Prepares and links everything in an arena of exactly `size` bytes, aligned.
pub(crate) fn run(object: &[u8], target: Option<&[u8]>, options: Options, size: usize) -> Run {
    let mut words = vec![0u64; size.div_ceil(8)];
    let mut arena = Arena::new(&mut words.as_mut_bytes()[..size]);
    let object = match Object::parse(object) {
        Ok(object) => object,
        Err(error) => return Run::Failed(error.to_string()),
    };
    let prepared = match prepare(&object, target, options, &mut arena) {
        Ok(prepared) => prepared,
        Err(PrepareError::Arena(full)) => return Run::Full(full),
        Err(error) => return Run::Failed(error.to_string()),
    };
    let mut programs = Vec::new();
    for (number, function) in prepared.declared().programs() {
        let name = String::from_utf8_lossy(prepared.function_name(function)).into_owned();
        let linked = match prepared.program(number, &mut arena.scratch()) {
            Ok(linked) => Ok(linked.insns.as_bytes().to_vec()),
            Err(error) => match error.cause {
                LinkCause::Arena(full) => return Run::Full(full),
                _ => Err(error.to_string()),
            },
        };
        programs.push((name, linked));
    }
    Run::Done(programs, arena.high_water())
}

/// Runs with room to spare, then in just what that used, which must give the same, then in one byte less, which must say what
/// did not fit. Returns the programs and the bytes.
pub(crate) fn exactly(
    name: &str,
    object: &[u8],
    target: Option<&[u8]>,
    options: Options,
) -> (Vec<Program>, usize, ArenaFull) {
    let (programs, high_water) = match run(object, target, options, 1 << 20) {
        Run::Done(programs, high_water) => (programs, high_water),
        other => panic!("{name}: {other:?}"),
    };
    match run(object, target, options, high_water) {
        Run::Done(again, mark) => {
            assert_eq!((&again, mark), (&programs, high_water), "{name}: in exactly {high_water} bytes")
        }
        other => panic!("{name}: in exactly {high_water} bytes: {other:?}"),
    }
    match run(object, target, options, high_water - 1) {
        Run::Full(full) => {
            assert!(full.left < full.wanted, "{name}: {full}");
            assert!(full.to_string().starts_with("arena too small: "), "{full}");
            (programs, high_water, full)
        }
        other => panic!("{name}: in {} bytes, one too few: {other:?}", high_water - 1),
    }
}

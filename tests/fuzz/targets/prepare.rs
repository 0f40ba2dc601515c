#![no_main]
//! An object against a kernel's BTF: the same answers in every arena that is large enough, whatever bytes it holds, and
//! in one that is as large as the high-water mark, but not in one that is a byte smaller.

use corelo_core::arena::Arena;
use corelo_core::budget::budget;
use corelo_core::object::{Object, ProgramId};
use corelo_core::prepare::{Options, prepare};
use corelo_fuzz::facts::{ROOM, Run, run};
use corelo_fuzz::input::{number, split};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (numbers, [object, kernel]) = split::<2>(data);
    let kernel = (numbers[0] != 0).then_some(kernel);
    let options = Options {
        stride: u32::from(numbers[1]),
        local_stride: u32::from(numbers[2]),
        target_pointer_size: (numbers[3] < 16).then_some(numbers[3]),
    };
    let again = |options: Options, size: usize, dirt: u64| run(object, kernel, options, numbers[4], size, dirt);
    let first = again(options, ROOM, 0);
    let Run::Done(number_of_answers, high_water) = first else {
        assert_eq!(first, again(options, ROOM, 0xa5a5_a5a5_a5a5_a5a5));
        return;
    };
    assert_eq!(first, again(options, high_water, 0xa5a5_a5a5_a5a5_a5a5), "in as many bytes as were used");
    let one_less = again(options, high_water - 1, 0);
    assert!(matches!(one_less, Run::Full(_)), "in a byte less: {one_less:?}");
    match again(options, number(&numbers, 5) % high_water, u64::MAX) {
        Run::Full(_) => {}
        other => panic!("in fewer bytes: {other:?}"),
    }
    // How types are indexed counts for nothing but bytes and time; only the list of parts tells.
    let mut buffer = vec![0u64; ROOM / 8];
    let mut arena = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..]));
    let parsed = Object::parse(object).expect("it was parsed before");
    if let Ok(budget) = budget(&parsed, kernel, options, &mut Arena::new(&mut vec![0; high_water])) {
        assert!(budget.arena_bytes() <= high_water);
        assert!(budget.parts().iter().map(|(_, bytes)| bytes).sum::<usize>() >= budget.arena_bytes());
    }
    let prepared = prepare(&parsed, kernel, options, &mut arena).expect("it was prepared before");
    let snapshot = prepared.snapshot();
    let warm = snapshot.prepare(&parsed, options, &mut arena).expect("the same object");
    for number in (0..prepared.declared().functions().len() as u32).map(ProgramId::new) {
        let cold = prepared.program(number, &mut arena.scratch()).map(|linked| linked.insns.to_vec());
        let warm = warm.program(number, &mut arena.scratch()).map(|linked| linked.insns.to_vec());
        assert_eq!(cold, warm);
    }
    assert_ne!(number_of_answers, 1);
});

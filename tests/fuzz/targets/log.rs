#![no_main]
//! A verifier's log, explained by an object.

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{Options, prepare};
use corelo_fuzz::facts::Digest;
use corelo_fuzz::input::split;
use corelo_loader::report::PoisonReport;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (_, [object, kernel, log]) = split::<3>(data);
    let mut buffer = vec![0u64; 1 << 15];
    let mut arena = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..]));
    let Ok(object) = Object::parse(object) else { return };
    let Ok(prepared) = prepare(&object, Some(kernel), Options::default(), &mut arena) else { return };
    for (number, _) in prepared.declared().programs() {
        let mut scratch = arena.scratch();
        let Ok(linked) = prepared.program(number, &mut scratch) else { continue };
        if let Some(report) = PoisonReport::find(log, &prepared, linked.placements) {
            Digest::default().add(report.to_string());
        }
    }
});

#![no_main]
//! Minimal BTF: out of any blob it is one that can be read, and out of a sound one it decides everything as the whole does,
//! whether it was borrowed or read through a window of whatever size.

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::{Btf, DEFAULT_STRIDE, Types};
use corelo_core::min_btf::{MIN_WINDOW, SliceSource, minimal, stream};
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Plan, prepare};
use corelo_fuzz::facts::{Digest, decided};
use corelo_fuzz::input::{number, split};
use corelo_fuzz::sound::is_sound;

fn buffer() -> Vec<u64> {
    vec![0; 1 << 17]
}

/// What relocating against a BTF gives; `parts` are the ids of one that has gaps.
fn outcome(object: &Object<'_>, btf: &[u8], ids: Option<&[u32]>, with_ids: bool) -> Option<u64> {
    let mut buffer = buffer();
    let mut arena = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..]));
    let mut digest = Digest::default();
    let prepared = match ids {
        None => prepare(object, Some(btf), Options::default(), &mut arena).ok()?,
        Some(ids) => {
            let plan = Plan::new(object, Options::default(), &mut arena).ok()?;
            plan.search(Btf::parse_part(btf, ids).ok()?, &mut arena).ok()?.finish()
        }
    };
    decided(&prepared, with_ids, &mut digest);
    Some(digest.finish())
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (numbers, [object, kernel]) = split::<2>(data);
    let Ok(object) = Object::parse(object) else { return };
    let (mut first, mut second) = (buffer(), buffer());
    let mut arena = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut first[..]));
    let Ok(plan) = Plan::new(&object, Options::default(), &mut arena) else { return };
    if !plan.asks_kernel() {
        return;
    }
    let made = minimal(&[plan.needs()], kernel, None, &mut arena.scratch()).map(|made| made.blob.to_vec());
    let streamed = |window: usize, arena: &mut Arena<'_>| {
        stream(SliceSource(kernel), plan.needs(), window, arena).map(|made| (made.blob.to_vec(), made.ids.to_vec()))
    };
    let mut arena = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut second[..]));
    let narrow = streamed(MIN_WINDOW + number(&numbers, 0) % 4096, &mut arena.scratch());
    let wide = streamed(1 << 17, &mut arena.scratch());
    let sound = Btf::parse(kernel)
        .ok()
        .and_then(|btf| Types::index(btf, DEFAULT_STRIDE, None, &mut arena, Part::KernelIndex).ok().filter(is_sound));
    for blob in made.iter().chain(narrow.iter().chain(&wide).map(|(blob, _)| blob)) {
        let btf = Btf::parse(blob).expect("what is made can be read");
        assert!(btf.iter().all(|ty| ty.is_ok()));
    }
    if sound.is_none() {
        return;
    }
    assert_eq!(narrow, wide, "the window counts for nothing");
    if let Ok(blob) = &made {
        assert_eq!(outcome(&object, kernel, None, false), outcome(&object, blob, None, false), "minimal");
    }
    if let Ok((blob, ids)) = &wide {
        assert_eq!(outcome(&object, kernel, None, true), outcome(&object, blob, Some(ids), true), "streamed");
    }
});

#![no_main]
//! A module's BTF, its distilled base, and a kernel's BTF to put it on.

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::split::rebase;
use corelo_core::btf::{Btf, Types};
use corelo_fuzz::input::split;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (_, [module, distilled, base]) = split::<3>(data);
    let Ok(base) = Btf::parse(base) else { return };
    let (mut first, mut second) = (vec![0u64; 1 << 15], vec![0xa5a5_a5a5_a5a5_a5a5u64; 1 << 15]);
    let mut arena = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut first[..]));
    let Ok(types) = Types::index(base, 8, None, &mut arena, Part::KernelIndex) else { return };
    let mut other = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut second[..]));
    let again = rebase(module, distilled, &types, &mut other).map(|made| (made.blob.to_vec(), made.base_ids.to_vec()));
    let mut scratch = arena.scratch();
    let made = rebase(module, distilled, &types, &mut scratch).map(|made| (made.blob.to_vec(), made.base_ids.to_vec()));
    assert_eq!(made, again);
    let Ok((blob, base_ids)) = made else { return };
    assert_eq!(blob.len(), module.len());
    assert!(base_ids.iter().all(|id| *id < types.end_id()));
    let module = Btf::parse_split(&blob, &types).expect("what is made can be read");
    assert!(module.iter().all(|ty| ty.is_ok()));
});

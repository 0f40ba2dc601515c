#![no_main]
//! Any access string on any local type, against any target type.

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::ext::{CoreRelo, ReloKind};
use corelo_core::btf::{Btf, TypeId, Types};
use corelo_core::relo::compat::{Pair, fields_are_compat, types_are_compat};
use corelo_core::relo::explain::explain;
use corelo_core::relo::spec::AccessSpec;
use corelo_core::relo::types_match::types_match;
use corelo_fuzz::input::split;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (numbers, [local, target, access]) = split::<3>(data);
    // The access string goes to the end of the local strings, which are last in the blob.
    let (Ok(parsed), false) = (Btf::parse(local), access.is_empty()) else { return };
    let mut local = local.to_vec();
    let strings_end = parsed.strings_at() as usize + parsed.strings().len();
    let at = parsed.strings().len() as u32;
    local.truncate(strings_end);
    local.extend(access);
    local.push(0);
    let len = at + access.len() as u32 + 1;
    let bytes = if local[0] == 0xeb { len.to_be_bytes() } else { len.to_le_bytes() };
    local[20..24].copy_from_slice(&bytes);
    let (Ok(local), Ok(target)) = (Btf::parse(&local), Btf::parse(target)) else { return };
    let mut buffer = vec![0u64; 1 << 14];
    let mut arena = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..]));
    let Ok(local) = Types::index(local, 4, None, &mut arena, Part::LocalIndex) else { return };
    let Ok(target) = Types::index(target, 8, None, &mut arena, Part::KernelIndex) else { return };
    let kind = ReloKind::from_number(u32::from(numbers[0] % 14));
    let endian = target.btf().endian();
    let wanted = |range: u8, id: u32| range == 0xff || u32::from(range) == id;
    for local_id in (0..=local.end_id()).filter(|&id| wanted(numbers[1], id)).take(64) {
        let relo = CoreRelo { insn_off: 0, type_id: TypeId(local_id), access_str_off: at, kind };
        if let Ok(spec) = AccessSpec::parse(&local, &relo) {
            assert!(!spec.accessors.is_empty() || !kind.is_field());
        }
        for target_id in (0..=target.end_id()).filter(|&id| wanted(numbers[2], id)).take(64) {
            let (local_id, target_id) = (TypeId(local_id), TypeId(target_id));
            let explanation = explain(&local, &target, &relo, target_id, endian);
            assert_eq!(explanation, explain(&local, &target, &relo, target_id, endian));
            let _ = fields_are_compat(&mut Pair::new(&local, &target), local_id, target_id);
            let _ = types_are_compat(&mut Pair::new(&local, &target), local_id, target_id);
            let _ = types_match(&mut Pair::new(&local, &target), local_id, target_id);
        }
    }
});

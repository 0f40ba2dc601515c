#![no_main]
//! A blob, indexed, read in every way and printed; and a second one that is split on it.

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::lookup::{Prefix, Query, Questions};
use corelo_core::btf::{Btf, BtfError, Kind, TypeId, Types, raw};
use corelo_fuzz::facts::Digest;
use corelo_fuzz::input::{number, split};

fn read(types: &Types<'_>) -> u64 {
    let mut digest = Digest::default();
    for ty in types.btf().iter() {
        let Ok(ty) = ty else { break };
        digest.add((types.byte_size(ty.id()), types.skip_modifiers(ty.id()).is_ok(), types.name(&ty)));
        assert_eq!(types.get(ty.id()).map(|again| again.tail().data().as_ptr()), Ok(ty.tail().data().as_ptr()));
    }
    let _ = raw::dump(types, &mut digest);
    digest.finish()
}

/// What is read with an index of this stride, how many types there are, and whether one is there.
fn index<'b>(btf: Btf<'b>, stride: u32, id: TypeId, arena: &mut Arena<'b>) -> Result<(u64, u32, bool), BtfError> {
    let types = Types::index(btf, stride, None, arena, Part::KernelIndex)?;
    Ok((read(&types), types.count(), types.get(id).is_ok()))
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (numbers, [blob, module]) = split::<2>(data);
    let mut buffer = vec![0u64; 1 << 15];
    let buffer = zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..]);
    let mut arena = Arena::new(buffer);
    let Ok(btf) = Btf::parse(blob) else { return };
    let id = TypeId(number(&numbers, 4) as u32);
    let one = index(btf, 1, id, &mut arena.scratch());
    let other = index(btf, number(&numbers, 0) as u32, id, &mut arena.scratch());
    assert_eq!(one, other, "the index counts for nothing but time");
    // Every name, asked for, is found where it is, and the pass sees as many types as there are.
    let names: Vec<u8> = btf.strings().to_vec();
    let mut queries: Vec<Query> = Vec::new();
    for ty in btf.iter().map_while(Result::ok).take(64) {
        let at = ty.name_off() as usize;
        let len = names.get(at..).and_then(|tail| tail.iter().position(|byte| *byte == 0));
        let query = len.and_then(|len| Query::new(&names, at, len, ty.kind(), Prefix::Exact, ty.id().0));
        queries.extend(query.filter(|_| !matches!(ty.kind(), Kind::Unknown(_))));
    }
    let wanted = queries.clone();
    let questions = Questions::new(&mut queries, &names);
    let Ok(answers) = questions.ask(btf, None, u32::from(numbers[2]), &mut arena) else { return };
    for query in &wanted {
        assert!(answers.of(query.owner()).iter().any(|found| found.id.0 == query.owner()), "{query:?}");
    }
    assert_eq!(Ok(answers.visited()), one.map(|(_, count, _)| count));
    let base = *answers.types();
    let mut scratch = arena.scratch();
    let Ok(module) = Btf::parse_split(module, &base) else { return };
    if let Ok(types) = Types::index(module, 4, Some(&base), &mut scratch, Part::KernelIndex) {
        read(&types);
    }
});

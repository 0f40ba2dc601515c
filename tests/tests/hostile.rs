//! Files cut short and files with bytes changed: an error or a result, never a panic, never an endless loop.

mod exact;

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::{Btf, TypeId, Types};
use corelo_core::min_btf::{MinimalError, SliceSource, StreamError, minimal, stream};
use corelo_core::object::{MapId, Object, ProgramId};
use corelo_core::prepare::{Options, Plan, prepare};
use corelo_core::relo::TargetFault;
use corelo_core::relo::decision::Verdict;
use corelo_core::struct_ops::KernelMember;
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding, Member};
use corelo_tests::elf_builder::{ElfBuilder, Section, SymType, Symbol};
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::{Fixture, fixture, fixtures};
use corelo_tests::insn::Insn;
use corelo_tests::object_builder::ObjectBuilder;
use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::sample::Index;

/// A kernel that every fixture may ask: small, so that cuts are quick.
fn target(fixture: &Fixture) -> Vec<u8> {
    let other = corelo_tests::fixtures::fixture("core_subprogs", fixture.endian);
    fixture.read_target().or_else(|| other.read_target()).expect("a target")
}

/// Everything that is made of an object, in an arena that lies ready. `Ok` where all of it went well.
fn whole_way(object: &[u8], target: &[u8], buffer: &mut [u8]) -> Result<(), String> {
    let mut arena = Arena::new(buffer);
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let object = Object::parse(object).map_err(|error| text(&error))?;
    let prepared = prepare(&object, Some(target), Options::default(), &mut arena).map_err(|error| text(&error))?;
    let mut failed = Ok(());
    for id in (0..prepared.declared().functions().len() as u32).map(ProgramId::new) {
        if let Err(error) = prepared.program(id, &mut arena.scratch()) {
            failed = Err(text(&error));
        }
    }
    for relocation in prepared.relocations() {
        if let Err(error) = relocation.outcome {
            failed = Err(format!("{error:?}"));
        }
    }
    for map in prepared.maps() {
        let _ = (prepared.map_name(map).len(), map.initial_data(prepared.object()).len());
    }
    failed
}

/// Reads every type of a blob in every way.
fn read_types(blob: &[u8], buffer: &mut [u8]) -> Result<(), String> {
    let mut arena = Arena::new(buffer);
    let btf = Btf::parse(blob).map_err(|error| error.to_string())?;
    let types = Types::index(btf, 4, None, &mut arena, Part::LocalIndex).map_err(|error| error.to_string())?;
    let mut failed = Ok(());
    for ty in btf.iter() {
        let ty = ty.map_err(|error| error.to_string())?;
        let parts = ty.members().count() + ty.enumerators().count() + ty.params().count() + ty.section_vars().count();
        for result in [
            types.byte_size(ty.id()).map(|_| ()),
            types.skip_modifiers(ty.id()).map(|_| ()),
            types.name(&ty).map(|_| ()),
            types.get(ty.id()).map(|_| ()),
        ] {
            if let Err(error) = result {
                failed = Err(format!("{parts}: {error}"));
            }
        }
    }
    failed
}

#[test]
fn objects_cut_at_every_length_are_refused_or_read() {
    let mut buffer = vec![0u8; 1 << 20];
    let (mut refused, mut read) = (0u32, 0u32);
    for fixture in fixtures() {
        let (bytes, target) = (fixture.read(), target(&fixture));
        let step = if bytes.len() < 8192 { 1 } else { 7 };
        for len in (0..bytes.len()).step_by(step) {
            match whole_way(&bytes[..len], &target, &mut buffer) {
                Ok(()) => read += 1,
                Err(error) => {
                    assert!(!error.is_empty());
                    refused += 1;
                }
            }
        }
    }
    println!("{refused} cut objects refused, {read} read");
    assert!(refused > 10_000);
}

#[test]
fn kernels_cut_at_every_length_are_refused_or_read() {
    let mut buffer = vec![0u8; 1 << 20];
    let (mut refused, mut read) = (0u32, 0u32);
    for fixture in fixtures() {
        let Some(target) = fixture.read_target() else { continue };
        let object = fixture.read();
        for len in 0..target.len() {
            for result in [whole_way(&object, &target[..len], &mut buffer), read_types(&target[..len], &mut buffer)] {
                match result {
                    Ok(()) => read += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    println!("{refused} cut blobs refused, {read} read");
    assert!(refused > 10_000 && read < refused / 10);
}

/// Each section by itself made shorter, all else sound: what reads that section sees the end.
#[test]
fn sections_cut_at_every_length_are_refused_or_read() {
    let mut buffer = vec![0u8; 1 << 20];
    let (mut refused, mut read) = (0u32, 0u32);
    for name in ["core_fields", "obj_maps", "obj_kconfig", "obj_ksyms"] {
        for endian in Endian::BOTH {
            let fixture = fixture(name, endian);
            let (mut bytes, target) = (fixture.read(), target(&fixture));
            // Elf64_Ehdr: e_shoff at 40, e_shnum at 60. Elf64_Shdr: 64 bytes, sh_size at 32.
            let headers = endian.read_u64(&bytes, 40).expect("a header") as usize;
            let count = endian.read_u16(&bytes, 60).expect("a header") as usize;
            for section in 1..count {
                let at = headers + section * 64 + 32;
                let size = endian.read_u64(&bytes, at).expect("a section header");
                for cut in (0..size.min(20_000)).step_by(if size < 1000 { 1 } else { 13 }) {
                    bytes[at..at + 8].copy_from_slice(&endian.u64(cut));
                    match whole_way(&bytes, &target, &mut buffer) {
                        Ok(()) => read += 1,
                        Err(_) => refused += 1,
                    }
                }
                bytes[at..at + 8].copy_from_slice(&endian.u64(size));
            }
        }
    }
    println!("cut sections: {refused} objects refused, {read} read");
    assert!(refused > 1000 && read > 100);
}

/// A change of a file.
#[derive(Debug, Clone)]
enum Change {
    Byte(Index, u8),
    Bit(Index, u8),
    Word(Index, u32),
    Copy(Index, Index, u8),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (any::<Index>(), 0..8u8).prop_map(|(at, bit)| Change::Bit(at, bit)),
        (any::<Index>(), prop_oneof![any::<u32>(), Just(u32::MAX), 0..64u32])
            .prop_map(|(at, word)| Change::Word(at, word)),
        (any::<Index>(), any::<Index>(), 1..32u8).prop_map(|(from, to, len)| Change::Copy(from, to, len)),
    ]
}

fn apply(bytes: &mut [u8], changes: &[Change]) {
    for change in changes {
        match *change {
            Change::Byte(at, byte) => bytes[at.index(bytes.len())] = byte,
            Change::Bit(at, bit) => bytes[at.index(bytes.len())] ^= 1 << bit,
            Change::Word(at, word) => {
                let at = at.index(bytes.len() - 3) & !3;
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            Change::Copy(from, to, len) => {
                let len = usize::from(len);
                let (from, to) = (from.index(bytes.len() - len), to.index(bytes.len() - len));
                bytes.copy_within(from..from + len, to);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_objects_are_refused_or_read(
        which in any::<Index>(),
        changes in proptest::collection::vec(change(), 1..8),
    ) {
        let all = fixtures();
        let fixture = &all[which.index(all.len())];
        let (mut object, target) = (fixture.read(), target(fixture));
        apply(&mut object, &changes);
        let mut buffer = vec![0u8; 1 << 20];
        let _ = whole_way(&object, &target, &mut buffer);
    }

    #[test]
    fn changed_kernels_are_refused_or_read(
        which in any::<Index>(),
        changes in proptest::collection::vec(change(), 1..8),
    ) {
        let all: Vec<Fixture> = fixtures().into_iter().filter(|fixture| fixture.target_btf.is_some()).collect();
        let fixture = &all[which.index(all.len())];
        let mut target = fixture.read_target().expect("a target");
        apply(&mut target, &changes);
        let mut buffer = vec![0u8; 1 << 20];
        let _ = whole_way(&fixture.read(), &target, &mut buffer);
        let _ = read_types(&target, &mut buffer);
    }

    #[test]
    fn noise_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let mut buffer = vec![0u8; 1 << 16];
        assert!(whole_way(&bytes, &bytes, &mut buffer).is_err());
        assert!(read_types(&bytes, &mut buffer).is_err());
    }

    /// Sound headers around noise: the types themselves are what is hostile.
    #[test]
    fn noise_for_types_is_refused_or_read(words in proptest::collection::vec(any::<u32>(), 3..128)) {
        // Kinds that exist and few parts, so that a walk comes far.
        let types: Vec<u8> = words
            .iter()
            .enumerate()
            .flat_map(|(n, word)| match n % 3 {
                0 => word % 16,
                1 => (((word >> 8) % 20) << 24) | (word % 4),
                _ => word % 64,
            }.to_le_bytes())
            .collect();
        let mut blob = vec![0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
        for word in [0, types.len() as u32, types.len() as u32, 16] {
            blob.extend(word.to_le_bytes());
        }
        blob.extend(&types);
        blob.extend(b"\0s\0plain\0task\0a\0");
        let mut buffer = vec![0u8; 1 << 16];
        let _ = read_types(&blob, &mut buffer);
        let object = fixture("core_fields", Endian::Little).read();
        let _ = whole_way(&object, &blob, &mut buffer);
    }
}

/// A mutated object whose result is a success in a large arena is one in every smaller arena too, or says that it is full.
#[test]
fn small_arenas_and_damage_do_not_add_up_to_a_panic() {
    let f = fixture("core_fields", Endian::Little);
    let (object, target) = (f.read(), f.read_target().expect("a target"));
    let mut seen = (0u32, 0u32, 0u32);
    for at in (0..object.len()).step_by(61) {
        let mut object = object.clone();
        object[at] ^= 0x41;
        for size in (0..3000).step_by(97) {
            match exact::run(&object, Some(&target), Options::default(), size) {
                exact::Run::Done(..) => seen.0 += 1,
                exact::Run::Full(full) => {
                    assert!(full.wanted > full.left, "{full}");
                    seen.1 += 1;
                }
                exact::Run::Failed(_) => seen.2 += 1,
            }
        }
    }
    println!("{} went well, {} arenas were full, {} objects were refused", seen.0, seen.1, seen.2);
    assert!(seen.1 > 0 && seen.2 > 0);
    let spare = exact::exactly("undamaged", &object, Some(&target), Options::default());
    assert!(spare.1 > 1000);
}

/// An object with `roots` local types of one name, of which each has a relocation that compares it in full, and a kernel
/// with so many types of the name. Every comparison is long: the members of the one are those of the other in reverse.
fn many_comparisons(roots: u32, candidates: u32, members: u32) -> (Vec<u8>, Vec<u8>) {
    let names: Vec<String> = (0..members).map(|number| format!("m{number}")).collect();
    let mut object = ObjectBuilder::new(Endian::Little);
    let int = object.btf.int("int", 4, IntEncoding::Signed);
    let reversed: Vec<Member<'_>> = names.iter().rev().map(|name| Member::at(name, int, 0)).collect();
    let local = object.btf.struct_("s", 4, &reversed);
    let mut insns = vec![Insn::mov64_imm(0, 1); roots as usize];
    insns.push(Insn::exit());
    object.program("xdp", "p", &insns);
    for number in 0..roots {
        let root = object.btf.typedef("t", local);
        object.core_relo("p", number, root, "0", 12);
    }
    let mut kernel = BtfBuilder::new(Endian::Little);
    let int = kernel.int("int", 4, IntEncoding::Signed);
    let members: Vec<Member<'_>> = names.iter().map(|name| Member::at(name, int, 0)).collect();
    let target = kernel.struct_("s", 4, &members);
    for _ in 0..candidates {
        kernel.typedef("t", target);
    }
    (object.build(), kernel.build())
}

/// Each comparison is bounded, and so is their sum: 150,000 of 30,000 pairs each took minutes. What is too much fails, and
/// is never taken for "the kernel lacks it".
#[test]
fn all_comparisons_together_are_bounded() {
    let mut buffer = vec![0u8; 4 << 20];
    for (roots, candidates, wanted) in [(3, 4, Verdict::Value), (300, 500, Verdict::Pending)] {
        let (object, kernel) = many_comparisons(roots, candidates, 250);
        let mut arena = Arena::new(&mut buffer);
        let object = Object::parse(&object).expect("an object");
        let plan = Plan::new(&object, Options::default(), &mut arena).expect("a plan");
        let is_too_much = wanted == Verdict::Pending;
        let made = minimal(&[plan.needs()], &kernel, None, &mut arena.scratch()).err();
        assert_eq!(made, is_too_much.then_some(MinimalError::TooComplex));
        let made = stream(SliceSource(&kernel), plan.needs(), 4096, &mut arena.scratch()).err();
        assert_eq!(made, is_too_much.then_some(StreamError::TooComplex));
        let prepared = prepare(&object, Some(&kernel), Options::default(), &mut arena).expect("it is prepared");
        let verdicts: Vec<Verdict> = prepared.relocations().map(|relocation| relocation.decision.verdict()).collect();
        assert_eq!(verdicts.len(), roots as usize);
        for verdict in verdicts {
            match verdict {
                Verdict::Fault { fault: TargetFault::TooComplex, .. } => assert_eq!(wanted, Verdict::Pending),
                verdict => assert_eq!(verdict, wanted),
            }
        }
    }
}

/// An object with struct_ops tables of one struct, at these places of their section; each has one program.
fn tables(places: &[u64]) -> Vec<u8> {
    let e = Endian::Little;
    let mut btf = BtfBuilder::new(e);
    let prototype = btf.func_proto(0, &[]);
    let pointer = btf.ptr(prototype);
    let ops = btf.struct_("ops", 16, &[Member::at("one", pointer, 0), Member::at("two", pointer, 8)]);
    let names: Vec<String> = (0..places.len()).map(|number| format!("table{number}")).collect();
    let vars: Vec<(u32, u32, u32)> = names.iter().map(|name| (btf.var(name, ops, 1), 0, 16)).collect();
    btf.datasec(".struct_ops", 0, &vars);
    let mut elf = ElfBuilder::new(e);
    let code: Vec<u8> = places.iter().flat_map(|_| Insn::exit().bytes(e)).collect();
    let text = elf.section(Section::progbits("struct_ops/one", 6, code));
    let data = elf.section(Section::progbits(".struct_ops", 3, vec![0; 16 * places.len()]));
    elf.section(Section::progbits(".BTF", 0, btf.build()));
    for (number, (&place, name)) in (0u64..).zip(places.iter().zip(&names)) {
        elf.symbol(Symbol::global(name, data, place, 16, SymType::Object));
        let function = elf.symbol(Symbol::global(&format!("f{number}"), text, number * 8, 8, SymType::Func));
        elf.relocation(data, place + 8 * (number % 2), function, 2);
    }
    elf.build()
}

/// Where tables overlap, each program was looked for in all of them, member by member: 300 programs took 17 s.
#[test]
fn tables_of_one_section_know_their_programs_also_where_they_overlap() {
    let mut kernel = BtfBuilder::new(Endian::Little);
    let prototype = kernel.func_proto(0, &[]);
    let pointer = kernel.ptr(prototype);
    // In another order than the object has them.
    let ops = kernel.struct_("ops", 16, &[Member::at("two", pointer, 0), Member::at("one", pointer, 8)]);
    kernel.struct_("bpf_struct_ops_ops", 16, &[Member::at("data", ops, 0)]);
    let kernel = kernel.build();
    for (places, overlaps) in [(&[0, 16, 32][..], false), (&[32, 0, 16], false), (&[0, 0], true), (&[16, 0, 24], true)]
    {
        let mut buffer = vec![0u8; 1 << 16];
        let mut arena = Arena::new(&mut buffer);
        let bytes = tables(places);
        let object = Object::parse(&bytes).expect("an object");
        let prepared = prepare(&object, Some(&kernel), Options::default(), &mut arena);
        let prepared = prepared.expect("tables of the kernel's struct");
        for number in 0..places.len() {
            let (map, program) = (MapId::new(number as u32), ProgramId::new(number as u32));
            if overlaps {
                // A pointer belongs to the first table that it lies in, whatever that makes of the others.
                let _ = prepared.struct_ops_member(program, |_| true);
                let _ = prepared.write_struct_ops(map, &mut [0; 16], |place, _| place.fill(1));
                continue;
            }
            let member = prepared.struct_ops_member(program, |_| true).expect("tables of the kernel's struct");
            let wanted = KernelMember { of: TypeId(ops), index: 1 - number as u32 % 2 };
            assert_eq!(member, Some(wanted), "{places:?}, program {number}");
            let mut value = [0; 16];
            prepared
                .write_struct_ops(map, &mut value, |place, function| place.fill(function.get() as u8 + 1))
                .expect("a table");
            let at = 8 * (1 - number % 2);
            assert_eq!(value[at..at + 8], [number as u8 + 1; 8]);
        }
    }
}

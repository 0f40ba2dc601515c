//! Damaged BTF gets the same verdict, in the same words, however it is read: mapped, read into memory, piece by piece, or
//! made into a minimal one first. (Through the C interface: targets/capi/core/tests/damaged_btf.rs.)

use corelo_core::arena::Arena;
use corelo_core::btf::ext::ReloKind;
use corelo_core::btf::{Btf, Kind, TypeId};
use corelo_core::min_btf::{SliceSource, StreamError, minimal, stream};
use corelo_core::object::{Object, ProgramId};
use corelo_core::prepare::{Options, Plan, PrepareError, Prepared};
use corelo_core::relo::decision::Verdict;
use corelo_loader::kernel::KernelBtfError;
use corelo_loader::prepare::{Access, Kernel, KernelError, KernelOptions};
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding, KindLayout, Member};
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::{Fixture, fixture, fixtures};
use zerocopy::IntoBytes;

fn programs(prepared: &Prepared<'_>, arena: &mut Arena<'_>) -> String {
    let mut text = String::new();
    let ids: Vec<ProgramId> = prepared.declared().programs().map(|(id, _)| id).collect();
    for id in ids {
        match prepared.program(id, &mut arena.scratch()) {
            Ok(linked) => text += &format!("{:x?}\n", linked.insns.as_bytes()),
            Err(error) => text += &format!("{error}\n"),
        }
    }
    text
}

fn words(error: PrepareError) -> String {
    match error {
        PrepareError::Kernel(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn mapped(file: &[u8], kernel: &[u8]) -> Result<String, String> {
    let mut buffer = vec![0u64; 1 << 16];
    let mut arena = Arena::new(buffer.as_mut_bytes());
    let object = Object::parse(file).unwrap();
    let plan = Plan::new(&object, Options::default(), &mut arena).unwrap();
    let btf = Btf::parse(kernel).map_err(|error| error.to_string())?;
    let prepared = plan.search(btf, &mut arena).map_err(words)?.finish();
    Ok(programs(&prepared, &mut arena))
}

fn streamed(file: &[u8], kernel: &[u8], window: usize) -> Result<String, String> {
    let mut buffer = vec![0u64; 1 << 16];
    let mut arena = Arena::new(buffer.as_mut_bytes());
    let object = Object::parse(file).unwrap();
    let plan = Plan::new(&object, Options::default(), &mut arena).unwrap();
    let made = stream(SliceSource(kernel), plan.needs(), window, &mut arena).map_err(|error| match error {
        StreamError::ByteOrder => PrepareError::ByteOrder.to_string(),
        error => error.to_string(),
    })?;
    let btf = made.btf().map_err(|error| error.to_string())?;
    let prepared = plan.search(btf, &mut arena).map_err(words)?.finish();
    Ok(programs(&prepared, &mut arena))
}

#[test]
fn the_header_and_the_strings_are_judged_alike() {
    for endian in Endian::BOTH {
        let fixture = fixture("core_fields", endian);
        let (file, kernel) = (fixture.read(), fixture.read_target().unwrap());
        let word = |at: usize| {
            let bytes: [u8; 4] = *kernel[at..].first_chunk().unwrap();
            if endian == Endian::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
        };
        let strings = (24 + word(16)) as usize;
        let strings_end = strings + word(20) as usize;
        let put = |at: usize, value: u32| {
            let mut damaged = kernel.clone();
            damaged[at..at + 4].copy_from_slice(&endian.u32(value));
            damaged
        };
        let mut first = kernel.clone();
        first[strings] = b'x';
        let mut last = kernel.clone();
        last[strings_end - 1] = b'x';
        let mut damages = vec![
            ("the first byte of the strings", first),
            ("the last byte of the strings", last),
            ("no strings", put(20, 0)),
            ("one string less", put(20, word(20) - 1)),
            ("strings beyond the end", put(20, u32::MAX)),
            ("types beyond the end", put(12, u32::MAX)),
            ("types cut", put(12, word(12) - 4)),
            ("types misaligned", put(8, 2)),
            ("a short header", put(4, 20)),
            ("a header with an unknown tail", put(4, 40)),
        ];
        let mut version = kernel.clone();
        version[2] = 2;
        damages.push(("the version", version));
        let mut magic = kernel.clone();
        magic[0] ^= 0x55;
        damages.push(("the magic number", magic));
        let foreign = corelo_tests::fixtures::fixture(
            "core_fields",
            if endian == Endian::Little { Endian::Big } else { Endian::Little },
        );
        damages.push(("the byte order", foreign.read_target().unwrap()));
        let mut refused = 0;
        for (what, damaged) in &damages {
            let wanted = mapped(&file, damaged);
            refused += u32::from(wanted.is_err());
            for window in [1024, 4096, 1 << 16] {
                assert_eq!(streamed(&file, damaged, window), wanted, "{what}, window {window}");
            }
        }
        assert!(refused >= 11, "{refused}");
        assert!(mapped(&file, &damages[0].1).unwrap_err().contains("does not start and end with a NUL"));
    }
}

#[test]
fn every_name_without_a_string_is_judged_alike() {
    for name in ["core_fields", "core_types", "core_enums", "core_flavours", "core_candidates"] {
        names_are_judged_alike(name);
    }
}

fn names_are_judged_alike(name: &str) {
    let fixture = fixture(name, Endian::Little);
    let (file, kernel) = (fixture.read(), fixture.read_target().unwrap());
    let types_len = u32::from_le_bytes(*kernel[12..].first_chunk().unwrap()) as usize;
    let (mut changed, mut refused, mut differing) = (0, 0, Vec::new());
    let sound = mapped(&file, &kernel).unwrap();
    let mut names = Vec::new();
    let mut at = 24;
    for ty in Btf::parse(&kernel).unwrap().iter().map(Result::unwrap) {
        names.push(at);
        let (once, each, has_names) = match ty.kind() {
            Kind::Int | Kind::Var | Kind::DeclTag => (4, 0, false),
            Kind::Array => (12, 0, false),
            Kind::Struct | Kind::Union | Kind::Enum64 => (0, 12, true),
            Kind::Datasec => (0, 12, false),
            Kind::Enum | Kind::FuncProto => (0, 8, true),
            _ => (0, 0, false),
        };
        let items = (0..ty.vlen() as usize).map(|number| at + 12 + once + number * each);
        names.extend(items.filter(|_| has_names));
        at += 12 + once + ty.vlen() as usize * each;
    }
    assert_eq!(at, 24 + types_len);
    for at in names {
        let mut damaged = kernel.clone();
        damaged[at..at + 4].copy_from_slice(&0x7fff_fff0u32.to_le_bytes());
        let wanted = mapped(&file, &damaged);
        match &wanted {
            Ok(text) => changed += u32::from(*text != sound),
            Err(_) => refused += 1,
        }
        let found = streamed(&file, &damaged, 4096);
        if found != wanted {
            let lines = |result: &Result<String, String>| {
                let text = result.as_ref().unwrap_or_else(|error| error).clone();
                text.lines().map(str::to_owned).collect::<Vec<_>>()
            };
            let differ: Vec<_> = lines(&found).into_iter().zip(lines(&wanted)).filter(|(a, b)| a != b).collect();
            differing.push((at, differ.first().cloned()));
        }
    }
    assert!(differing.is_empty(), "{name}: {} differ, at {:?}", differing.len(), differing.first());
    println!("{name}: {changed} changed, {refused} refused");
    assert!(changed > 2, "{name}: {changed} changed, {refused} refused");
}

/// The same values, whichever the byte order.
struct Words {
    endian: Endian,
}

impl Words {
    fn get(&self, bytes: &[u8], at: usize) -> u32 {
        let bytes: [u8; 4] = *bytes[at..].first_chunk().unwrap();
        if self.endian == Endian::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }
}

/// What became of an object: its decisions, and of each program the error, or that there is none. Ids of target types as
/// `whole` says, so that a minimal BTF's can be compared.
fn told(prepared: &Prepared<'_>, whole: &dyn Fn(u32) -> u32, arena: &mut Arena<'_>) -> Vec<String> {
    let id = |id: TypeId| if id == TypeId::VOID { 0 } else { whole(id.0) };
    let decisions = prepared.decisions().list().iter().map(|decision| {
        let verdict = match decision.verdict() {
            Verdict::Fault { fault, candidate } => format!("candidate {}: {fault}", id(candidate)),
            Verdict::Ambiguous { first, second } => format!("{} or {}", id(first), id(second)),
            Verdict::Value if decision.kind() == ReloKind::TypeIdTarget => {
                format!("id {}", id(TypeId(decision.target_value() as u32)))
            }
            other => format!("{other:?} {}", decision.target_value()),
        };
        let target = decision.target().map(|target| (id(target.id), target.btf));
        let rest = (decision.is_validated(), decision.is_wrong_access(), decision.access_sizes(), target);
        format!("{:?} {verdict} {} {rest:?}", decision.record(), decision.local_value())
    });
    let mut told: Vec<String> = decisions.collect();
    let ids: Vec<ProgramId> = prepared.declared().programs().map(|(id, _)| id).collect();
    for id in ids {
        let error = prepared.program(id, &mut arena.scratch()).err().map(|error| error.to_string());
        // Ids that the message bears are those of the decisions above.
        let error = error
            .map(|error| error.split('[').map(|part| part.split_once(']').map_or(part, |(_, part)| part)).collect());
        told.push(error.unwrap_or_else(|| String::from("linked")));
    }
    told
}

/// Made minimal for the object first, and relocated against what was made.
fn through_minimal(file: &[u8], kernel: &[u8], buffer: &mut [u64]) -> Result<Vec<String>, String> {
    let mut arena = Arena::new(buffer.as_mut_bytes());
    let object = Object::parse(file).unwrap();
    let plan = Plan::new(&object, Options::default(), &mut arena).unwrap();
    let made = minimal(&[plan.needs()], kernel, None, &mut arena).map_err(|error| error.to_string())?;
    let prepared = plan.search(Btf::parse(made.blob).unwrap(), &mut arena).map_err(words)?.finish();
    let whole = |id: u32| made.ids[id as usize - 1];
    Ok(told(&prepared, &whole, &mut arena))
}

fn whole(file: &[u8], kernel: &[u8], buffer: &mut [u64]) -> Result<Vec<String>, String> {
    let mut arena = Arena::new(buffer.as_mut_bytes());
    let object = Object::parse(file).unwrap();
    let plan = Plan::new(&object, Options::default(), &mut arena).unwrap();
    let btf = Btf::parse(kernel).map_err(|error| error.to_string())?;
    let prepared = plan.search(btf, &mut arena).map_err(words)?.finish();
    Ok(told(&prepared, &|id| id, &mut arena))
}

fn in_pieces(file: &[u8], kernel: &[u8], window: usize, buffer: &mut [u64]) -> Result<Vec<String>, String> {
    let mut arena = Arena::new(buffer.as_mut_bytes());
    let object = Object::parse(file).unwrap();
    let plan = Plan::new(&object, Options::default(), &mut arena).unwrap();
    let made = stream(SliceSource(kernel), plan.needs(), window, &mut arena).map_err(|error| error.to_string())?;
    let prepared = plan.search(made.btf().unwrap(), &mut arena).map_err(words)?.finish();
    Ok(told(&prepared, &|id| id, &mut arena))
}

/// Whether some name lies inside of another string: read piece by piece it is not looked at (README, Limits).
fn has_name_inside(kernel: &[u8]) -> bool {
    let btf = Btf::parse(kernel).unwrap();
    let is_inside = |offset: u32| {
        let before = (offset as usize).checked_sub(1).and_then(|before| btf.strings().get(before));
        before.is_some_and(|&before| before != 0) && (offset as usize) < btf.strings().len()
    };
    btf.iter().map_while(Result::ok).any(|ty| {
        is_inside(ty.name_off())
            || ty.members().any(|member| is_inside(member.name_off))
            || ty.enumerators().any(|enumerator| is_inside(enumerator.name_off))
    })
}

/// Every word of the type section, whatever it is, overwritten: references that lead nowhere or in rings, kinds and counts
/// after which the rest is read as something else, sizes, offsets.
#[test]
fn every_word_of_the_types_is_judged_alike() {
    of_all(Endian::Little);
}

#[test]
fn every_word_of_the_types_is_judged_alike_in_the_other_byte_order() {
    of_all(Endian::Big);
}

fn of_all(endian: Endian) {
    for fixture in fixtures() {
        if fixture.endian == endian && fixture.target_btf.is_some() {
            words_are_judged_alike(&fixture, endian);
        }
    }
}

fn words_are_judged_alike(fixture: &Fixture, endian: Endian) {
    let (file, kernel) = (fixture.read(), fixture.read_target().unwrap());
    let mut buffer = vec![0u64; 1 << 13];
    let word_of = Words { endian };
    let types_len = word_of.get(&kernel, 12) as usize;
    let sound = whole(&file, &kernel, &mut buffer);
    let starts: Vec<usize> = {
        let mut at = 24;
        let types = Btf::parse(&kernel).unwrap();
        let lens = types.iter().map(Result::unwrap).map(|ty| 12 + ty.tail().len());
        lens.map(|len| {
            at += len;
            at - len
        })
        .collect()
    };
    let (mut changed, mut refused, mut inside) = (0, 0, 0);
    for at in (24..24 + types_len).step_by(4) {
        let own = starts.partition_point(|&start| start <= at) as u32;
        let was = word_of.get(&kernel, at);
        let (telling, near) =
            ([0, own, 0x7fff_ffff, u32::MAX], [starts.len() as u32 + 1, was ^ 1, was.wrapping_add(1)]);
        let is_first = endian == Endian::Little;
        let windows: &[usize] = if is_first { &[1024, 4096, 1 << 14] } else { &[1024] };
        let near = near.into_iter().filter(|_| is_first).map(|value| (value, &windows[..1]));
        for (value, windows) in telling.map(|value| (value, windows)).into_iter().chain(near) {
            let mut damaged = kernel.clone();
            damaged[at..at + 4].copy_from_slice(&endian.u32(value));
            let wanted = whole(&file, &damaged, &mut buffer);
            changed += u32::from(wanted != sound);
            refused += u32::from(wanted.is_err());
            let what = format!("{} {endian:?}, type {own}, word at {at}: {was:#x} made {value:#x}", fixture.name);
            let differ = |found: &Result<Vec<String>, String>, way: &str| match (found, &wanted) {
                (Ok(found), Ok(wanted)) => {
                    let first = found.iter().zip(wanted).find(|(found, wanted)| found != wanted);
                    panic!("{what}: {way}: {first:?}")
                }
                other => panic!("{what}: {way}: {other:?}"),
            };
            let found = through_minimal(&file, &damaged, &mut buffer);
            if found != wanted {
                differ(&found, "minimal");
            }
            for &window in windows {
                let found = in_pieces(&file, &damaged, window, &mut buffer);
                if found != wanted && !has_name_inside(&damaged) {
                    differ(&found, "piece by piece");
                }
                inside += u32::from(found != wanted);
            }
        }
    }
    println!("{} {endian:?}: {changed} changed, {refused} refused, {inside} with names inside others", fixture.name);
    assert!(changed > 20 && refused > 10, "{}: {changed} changed, {refused} refused", fixture.name);
    assert!(inside <= 12, "{}: {inside}", fixture.name);
}

/// The doors of the loader: a file that is mapped, one that is read piece by piece, and what is in memory.
#[test]
fn the_loader_says_the_same_however_it_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damaged.btf");
    let fixture = fixture("core_fields", Endian::Little);
    let (file, kernel) = (fixture.read(), fixture.read_target().unwrap());
    let object = Object::parse(&file).unwrap();
    let (mut refused, mut faults, mut inside) = (0, 0, 0);
    // Of header, types and strings.
    for (at, value) in (0..kernel.len() - 4).step_by(28).flat_map(|at| [(at, 0u32), (at, 0x7fff_ffff), (at, u32::MAX)])
    {
        let mut damaged = kernel.clone();
        damaged[at..at + 4].copy_from_slice(&value.to_le_bytes());
        std::fs::write(&path, &damaged).unwrap();
        let wanted = mapped(&file, &damaged);
        refused += u32::from(wanted.is_err());
        faults += u32::from(wanted.as_ref().is_ok_and(|text| text.contains("target BTF cannot be read at this type")));
        for (access, window) in
            [(Access::Whole, 4096), (Access::Lean, 4096), (Access::Stream, 4096), (Access::Stream, 1024)]
        {
            let kernel = Kernel::new(KernelOptions { access, window, ..KernelOptions::file(&path) });
            let mut buffer = vec![0u64; 1 << 14];
            let found = match kernel.prepare(&object, Options::default(), buffer.as_mut_bytes()) {
                Ok((made, mut arena)) => Ok(programs(&made.prepared, &mut arena)),
                Err(KernelError::Prepare(error)) => Err(words(error)),
                // The magic number tells what the file is.
                Err(KernelError::Btf(KernelBtfError::NotBtf)) if at == 0 => continue,
                Err(error) => Err(error.to_string()),
            };
            if found != wanted && access == Access::Stream && has_name_inside(&damaged) {
                inside += 1;
                continue;
            }
            assert_eq!(found, wanted, "{access:?}, window {window}, {at} made {value:#x}");
        }
    }
    println!("{refused} refused, {faults} faults, {inside} with names inside others");
    assert!(refused > 3 && faults > 3, "{refused} refused, {faults} faults");
    // The NUL between two names is gone.
    assert!(inside <= 32, "{inside}");
}

/// What no type refers to in BTF that a compiler writes: a section, a tag, and a kind that is not known, which a later kernel
/// may have. None of them is `void`, though all are left out of a minimal BTF otherwise.
#[test]
fn what_a_pointer_should_not_lead_to_is_not_void() {
    let file = fixture("core_types", Endian::Little).read();
    let mut buffer = vec![0u64; 1 << 13];
    let mut told = Vec::new();
    for pointee in 0..4 {
        let mut btf = BtfBuilder::new(Endian::Little);
        let mut rows = KindLayout::known();
        rows.push(KindLayout::new(4, 8));
        btf.layout(rows);
        let int = btf.int("int", 4, IntEncoding::Signed);
        let pointees = [
            0,
            btf.raw(20, "odd", 2, false, 7, &[1, 2, 3, 4, 5]),
            btf.datasec("section", 4, &[]),
            btf.decl_tag("tag", int, -1, false),
        ];
        let pointer = btf.ptr(pointees[pointee]);
        btf.struct_("same", 16, &[Member::at("a", int, 0), Member::at("p", pointer, 8)]);
        let kernel = btf.build();
        let wanted = whole(&file, &kernel, &mut buffer).unwrap();
        assert_eq!(through_minimal(&file, &kernel, &mut buffer).as_ref(), Ok(&wanted), "{pointee}");
        assert_eq!(in_pieces(&file, &kernel, 1024, &mut buffer).as_ref(), Ok(&wanted), "{pointee}");
        told.push(wanted);
    }
    assert!(told[1..].iter().all(|other| *other != told[0]));
}

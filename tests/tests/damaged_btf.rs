//! Damaged BTF gets the same verdict, in the same words, however it is read: mapped, or piece by piece.

use corelo_core::arena::Arena;
use corelo_core::btf::{Btf, Kind};
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Plan, PrepareError, Prepared};
use corelo_core::tailor::{SliceSource, StreamError, stream};
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;
use zerocopy::IntoBytes;

fn programs(prepared: &Prepared<'_>, arena: &mut Arena<'_>) -> String {
    let mut text = String::new();
    let numbers: Vec<usize> = prepared.declared().programs().map(|(number, _)| number).collect();
    for number in numbers {
        match prepared.program(number, &mut arena.scratch()) {
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

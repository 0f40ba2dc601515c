//! The object's BTF as the kernel is given it: whole, and for kernels that lack one kind or another.

use std::collections::BTreeMap;

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::sanitize::{
    KernelBtfFeatures, ObjectLayout, Placed, SanitizeError, changed_len, needs_change, sanitize,
};
use corelo_core::btf::{Btf, DEFAULT_LOCAL_STRIDE, Kind, Types, raw};
use corelo_loader::objects::{GrowingLog, LogBuffer, load_btf};
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding};
use corelo_tests::corpus::corpus;
use corelo_tests::elf_reader::ElfFile;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::{Fixture, fixtures};
use corelo_tests::kernel::require_kernel;
use corelo_tests::numbers::numbers;

/// The places of an object's variables, read by the tests' own ELF reader.
#[derive(Debug, Default)]
struct Places {
    sections: BTreeMap<Vec<u8>, u32>,
    variables: BTreeMap<(Vec<u8>, Vec<u8>), Placed>,
    hidden_functions: Vec<Vec<u8>>,
}

impl Places {
    fn of(object: &[u8], types: &Types<'_>) -> Self {
        let elf = ElfFile::parse(object).expect("an ELF file");
        let mut places = Self::default();
        for section in &elf.sections {
            places.sections.insert(section.name.into(), section.size as u32);
        }
        for symbol in elf.symbols() {
            let is_hidden = matches!(symbol.other & 3, 1 | 2);
            let Some(section) = elf.sections.get(usize::from(symbol.section)) else {
                continue;
            };
            if symbol.bind == 0 || symbol.section == 0 {
                continue;
            }
            if symbol.sym_type == 2 && is_hidden {
                places.hidden_functions.push(symbol.name.into());
            }
            let placed = Placed { byte_offset: symbol.value as u32, is_hidden };
            places.variables.insert((section.name.into(), symbol.name.into()), placed);
        }
        let mut end = 0;
        for ty in types.btf().iter().map(Result::unwrap) {
            if ty.kind() != Kind::Datasec || types.name(&ty).unwrap() != b".kconfig" {
                continue;
            }
            for listed in ty.section_vars() {
                let name = types.name(&types.get(listed.type_id).unwrap()).unwrap();
                let placed = Placed { byte_offset: end, is_hidden: false };
                places.variables.insert((b".kconfig".into(), name.into()), placed);
                end = (end + listed.byte_size).next_multiple_of(8);
            }
            places.sections.insert(b".kconfig".into(), end);
        }
        places
    }
}

impl ObjectLayout for Places {
    fn section_size(&self, section: &[u8]) -> Option<u32> {
        self.sections.get(section).copied()
    }

    fn variable(&self, section: &[u8], name: &[u8]) -> Option<Placed> {
        self.variables.get(&(section.to_vec(), name.to_vec())).copied()
    }

    fn is_hidden_function(&self, name: &[u8]) -> bool {
        self.hidden_functions.iter().any(|hidden| hidden == name)
    }
}

fn indexed<'a>(blob: &'a [u8], arena: &mut Arena<'a>) -> Types<'a> {
    let btf = Btf::parse(blob).expect("readable BTF");
    Types::index(btf, DEFAULT_LOCAL_STRIDE, None, arena, Part::LocalIndex).expect("readable types")
}

fn dump(blob: &[u8]) -> String {
    let mut buffer = vec![0; blob.len() + 1024];
    let types = indexed(blob, &mut Arena::new(&mut buffer));
    let mut text = String::new();
    raw::dump(&types, &mut text).expect("readable types");
    text
}

/// The sanitized bytes, made in an arena of exactly the size that was announced.
fn sanitized(
    blob: &[u8],
    places: impl FnOnce(&Types<'_>) -> Places,
    features: KernelBtfFeatures,
) -> Result<Vec<u8>, SanitizeError> {
    let mut index = vec![0; blob.len() + 1024];
    let types = indexed(blob, &mut Arena::new(&mut index));
    let places = places(&types);
    let len = changed_len(&types, features)?;
    // One more word for the arena's own mark, and one for a buffer that is not aligned.
    let mut buffer = vec![0u8; len.next_multiple_of(8) + 16];
    let aligned = buffer.as_ptr().align_offset(8);
    let exact = &mut buffer[aligned..][..len.next_multiple_of(8) + 8];
    let mut arena = Arena::new(exact);
    let out = sanitize(blob, &types, &places, features, &mut arena)?;
    let is_changed = needs_change(&types, &places, features)?;
    assert_eq!(is_changed, out != blob, "the announcement is wrong");
    assert!(!is_changed || out.len() == len, "{} bytes announced, {len} written", out.len());
    Ok(out.to_vec())
}

fn lacking() -> Vec<(String, KernelBtfFeatures)> {
    let all = KernelBtfFeatures::ALL;
    let mut sets = vec![("all".to_owned(), all), ("none".to_owned(), KernelBtfFeatures::NONE)];
    for (feature, name) in KernelBtfFeatures::EACH {
        sets.push((format!("all but {name}"), all.without(feature)));
        sets.push((format!("only {name}"), feature));
    }
    sets
}

fn btf_section(object: &[u8]) -> Option<Vec<u8>> {
    let elf = ElfFile::parse(object).ok()?;
    elf.section(".BTF").map(|section| section.data.to_vec()).filter(|data| !data.is_empty())
}

fn refusal(blob: &[u8]) -> Option<String> {
    let mut log = GrowingLog::new(1 << 16, 1 << 22);
    let failure = load_btf(blob, &mut log, Default::default()).err()?;
    let text = String::from_utf8_lossy(&log.bytes()[failure.log_range()]).into_owned();
    let last: Vec<&str> = text.lines().rev().take(3).collect();
    Some(format!("{failure}: {last:?}"))
}

#[test]
fn the_kernel_takes_fixtures_with_and_without_each_kind() {
    if !require_kernel("load sanitized BTF") {
        return;
    }
    let (mut loads, mut refused) = (0, Vec::new());
    // That of GCC 12 is refused by all kernels for the encoding of an INT: what loads without it shows that.
    let is_taken = |fixture: &&Fixture| fixture.endian == Endian::native() && fixture.name != "gcc_map";
    for fixture in fixtures().iter().filter(is_taken) {
        let object = fixture.read();
        let Some(blob) = btf_section(&object) else {
            continue;
        };
        for (features, set) in lacking() {
            // A tag on a parameter, of what is then no function: no kernel knows tags and not functions.
            let no_kernel = set.has(KernelBtfFeatures::DECL_TAG) && !set.has(KernelBtfFeatures::FUNC);
            if no_kernel && fixture.name == "obj_arg_ctx" {
                continue;
            }
            match sanitized(&blob, |types| Places::of(&object, types), set) {
                Ok(blob) => match refusal(&blob) {
                    None => loads += 1,
                    Some(why) => refused.push(format!("{} with {features}: {why}", fixture.name)),
                },
                // One half of a program of two: what it declares extern is in the other's sections.
                Err(SanitizeError::NoSection { .. }) if fixture.name == "obj_link_b" => {}
                Err(error) => refused.push(format!("{} with {features}: {error}", fixture.name)),
            }
        }
    }
    println!("{loads} loads");
    assert!(refused.is_empty(), "{} refused:\n{}", refused.len(), refused.join("\n"));
    assert!(loads > 200);
}

#[test]
fn the_kernel_takes_the_corpus_objects() {
    let Some(corpus) = corpus().filter(|_| require_kernel("load sanitized BTF")) else {
        return;
    };
    let (mut loads, mut refused) = (0, Vec::new());
    for name in corpus.objects() {
        let object = corpus.read(&name);
        let Some(blob) = btf_section(&object) else {
            continue;
        };
        let is_native = ElfFile::parse(&object).is_ok_and(|elf| elf.endian == Endian::native());
        if !is_native {
            continue;
        }
        for (features, set) in lacking() {
            match sanitized(&blob, |types| Places::of(&object, types), set) {
                Ok(blob) => match refusal(&blob) {
                    None => loads += 1,
                    Some(why) => refused.push(format!("{name} with {features}: {why}")),
                },
                Err(error) => refused.push(format!("{name} with {features}: {error}")),
            }
        }
    }
    println!("{loads} loads, {} refused:\n{}", refused.len(), refused.join("\n"));
    assert!(refused.is_empty());
}

#[test]
fn both_byte_orders_become_the_same() {
    let mut compared = 0;
    for little in fixtures().iter().filter(|fixture| fixture.endian == Endian::Little) {
        let big = fixtures().into_iter().find(|other| other.name == little.name && other.endian == Endian::Big);
        let Some(big) = big else { continue };
        let (little_object, big_object) = (little.read(), big.read());
        let (Some(little_blob), Some(big_blob)) = (btf_section(&little_object), btf_section(&big_object)) else {
            continue;
        };
        // Types of one source are numbered alike in both, with few exceptions that a plain dump shows.
        if dump(&little_blob) != dump(&big_blob) {
            continue;
        }
        for (features, set) in lacking() {
            let little_out = sanitized(&little_blob, |types| Places::of(&little_object, types), set);
            let big_out = sanitized(&big_blob, |types| Places::of(&big_object, types), set);
            match (little_out, big_out) {
                (Ok(little_out), Ok(big_out)) => {
                    assert_eq!(dump(&little_out), dump(&big_out), "{} with {features}", little.name);
                    compared += 1;
                }
                (little_out, big_out) => {
                    assert_eq!(little_out.err(), big_out.err(), "{}", little.name)
                }
            }
        }
    }
    println!("{compared} pairs");
    assert!(compared > 100);
}

/// One of each: what becomes what, by hand.
fn one_of_each(endian: Endian) -> Vec<u8> {
    let mut btf = BtfBuilder::new(endian);
    let byte = btf.int("char", 1, IntEncoding::Signed);
    let visible = btf.var("visible", byte, 1);
    let hidden = btf.var("hidden", byte, 1);
    let own = btf.var("own", byte, 0);
    btf.datasec(".data.a", 0, &[(visible, 0, 1), (hidden, 0, 1), (own, 1, 1)]);
    btf.datasec("?.ops", 8, &[]);
    btf.float("float", 4);
    btf.enum64("wide", true, &[("W", u64::MAX)]);
    let proto = btf.func_proto(0, &[("", byte)]);
    let call = btf.func("call", proto, 2);
    let symbol = btf.var("symbol", 0, 2);
    btf.datasec(".ksyms", 0, &[(call, 0, 0), (symbol, 0, 0)]);
    btf.decl_tag("tag", visible, -1, false);
    btf.type_tag("user", byte, false);
    btf.func("global", proto, 1);
    btf.build()
}

fn hand_places(_: &Types<'_>) -> Places {
    let mut places = Places::default();
    places.sections.insert(b".data.a".into(), 3);
    for (name, byte_offset, is_hidden) in [("visible", 2, false), ("hidden", 0, true)] {
        let key = (b".data.a".to_vec(), name.as_bytes().to_vec());
        places.variables.insert(key, Placed { byte_offset, is_hidden });
    }
    places
}

#[test]
fn each_kind_becomes_what_it_should() {
    let all = "\
[1] INT 'char' size=1 bits_offset=0 nr_bits=8 encoding=SIGNED
[2] VAR 'visible' type_id=1, linkage=global
[3] VAR 'hidden' type_id=1, linkage=static
[4] VAR 'own' type_id=1, linkage=static
[5] DATASEC '.data.a' size=3 vlen=3
\ttype_id=3 offset=0 size=1 (VAR 'hidden')
\ttype_id=4 offset=1 size=1 (VAR 'own')
\ttype_id=2 offset=2 size=1 (VAR 'visible')
[6] DATASEC '?.ops' size=8 vlen=0
[7] FLOAT 'float' size=4
[8] ENUM64 'wide' encoding=SIGNED size=8 vlen=1
\t'W' val=-1LL
[9] FUNC_PROTO '(anon)' ret_type_id=0 vlen=1
\t'dummy_ksym' type_id=1
[10] FUNC 'call' type_id=9 linkage=global
[11] VAR 'symbol' type_id=16, linkage=global
[12] DATASEC '.ksyms' size=8 vlen=2
\ttype_id=17 offset=0 size=4 (VAR 'dummy_ksym')
\ttype_id=11 offset=4 size=4 (VAR 'symbol')
[13] DECL_TAG 'tag' type_id=2 component_idx=-1
[14] TYPE_TAG 'user' type_id=1
[15] FUNC 'global' type_id=9 linkage=global
[16] INT 'int' size=4 bits_offset=0 nr_bits=32 encoding=SIGNED
[17] VAR 'dummy_ksym' type_id=16, linkage=global
";
    let none = "\
[1] INT 'char' size=1 bits_offset=0 nr_bits=8 encoding=SIGNED
[2] INT 'visible' size=1 bits_offset=0 nr_bits=8 encoding=(none)
[3] INT 'hidden' size=1 bits_offset=0 nr_bits=8 encoding=(none)
[4] INT 'own' size=1 bits_offset=0 nr_bits=8 encoding=(none)
[5] STRUCT '_data_a' size=3 vlen=3
\t'hidden' type_id=3 bits_offset=0
\t'own' type_id=4 bits_offset=8
\t'visible' type_id=2 bits_offset=16
[6] STRUCT '__ops' size=8 vlen=0
[7] STRUCT '(anon)' size=4 vlen=0
[8] UNION 'wide' size=8 vlen=1
\t'W' type_id=18 bits_offset=0
[9] ENUM '(anon)' encoding=UNSIGNED size=4 vlen=1
\t'dummy_ksym' val=1
[10] TYPEDEF 'call' type_id=9
[11] INT 'symbol' size=1 bits_offset=0 nr_bits=8 encoding=(none)
[12] STRUCT '_ksyms' size=8 vlen=2
\t'dummy_ksym' type_id=17 bits_offset=0
\t'symbol' type_id=11 bits_offset=32
[13] INT 'tag' size=1 bits_offset=0 nr_bits=8 encoding=(none)
[14] CONST '(anon)' type_id=1
[15] TYPEDEF 'global' type_id=9
[16] INT 'int' size=4 bits_offset=0 nr_bits=32 encoding=SIGNED
[17] INT 'dummy_ksym' size=1 bits_offset=0 nr_bits=8 encoding=(none)
[18] INT 'enum64_placeholder' size=1 bits_offset=0 nr_bits=8 encoding=(none)
";
    for endian in [Endian::Little, Endian::Big] {
        let blob = one_of_each(endian);
        assert_eq!(dump(&sanitized(&blob, hand_places, KernelBtfFeatures::ALL).unwrap()), all);
        assert_eq!(dump(&sanitized(&blob, hand_places, KernelBtfFeatures::NONE).unwrap()), none);
        let static_only = KernelBtfFeatures::ALL.without(KernelBtfFeatures::GLOBAL_FUNC);
        let text = dump(&sanitized(&blob, hand_places, static_only).unwrap());
        assert!(text.contains("[15] FUNC 'global' type_id=9 linkage=static"), "{text}");
        let no_qmark = KernelBtfFeatures::ALL.without(KernelBtfFeatures::QMARK_DATASEC);
        let text = dump(&sanitized(&blob, hand_places, no_qmark).unwrap());
        assert!(text.contains("[6] DATASEC '_.ops'"), "{text}");
    }
}

#[test]
fn what_needs_nothing_is_borrowed() {
    let mut btf = BtfBuilder::new(Endian::Big);
    let int = btf.int("int", 4, IntEncoding::Signed);
    let var = btf.var("v", int, 0);
    btf.datasec(".data", 4, &[(var, 0, 4)]);
    let blob = btf.build();
    let mut index = [0; 256];
    let types = indexed(&blob, &mut Arena::new(&mut index));
    let mut arena = Arena::new(&mut []);
    let out = sanitize(&blob, &types, &Places::default(), KernelBtfFeatures::ALL, &mut arena).unwrap();
    assert!(std::ptr::eq(out, blob.as_slice()));
}

#[test]
fn what_is_missing_is_named() {
    let blob = one_of_each(Endian::Little);
    let error = sanitized(&blob, |_| Places::default(), KernelBtfFeatures::ALL).unwrap_err();
    assert_eq!(error.to_string(), "BTF section [5] has no size, and the object no such section");
    let without_symbol = |types: &Types<'_>| Places { variables: BTreeMap::new(), ..hand_places(types) };
    let error = sanitized(&blob, without_symbol, KernelBtfFeatures::ALL).unwrap_err();
    assert_eq!(error.to_string(), "variable [2] of BTF section [5] has no symbol");
}

#[test]
fn a_byte_too_few_is_said() {
    let blob = one_of_each(Endian::Little);
    let mut index = vec![0; 1024];
    let types = indexed(&blob, &mut Arena::new(&mut index));
    let places = hand_places(&types);
    let len = changed_len(&types, KernelBtfFeatures::ALL).unwrap();
    // The arena's own mark takes what is too much.
    let mut buffer = vec![0u8; len.next_multiple_of(8)];
    let mut arena = Arena::new(&mut buffer);
    let error = sanitize(&blob, &types, &places, KernelBtfFeatures::ALL, &mut arena).unwrap_err();
    let SanitizeError::Arena(full) = error else { panic!("{error}") };
    assert_eq!((full.part, full.wanted), (Part::Btf, len.next_multiple_of(8)));
}

#[test]
fn damaged_types_are_changed_or_refused_and_nothing_else() {
    let (mut changed, mut refused) = (0, 0);
    let mut number = numbers(0x5eed);
    for endian in [Endian::Little, Endian::Big] {
        let whole = one_of_each(endian);
        for _ in 0..20_000 {
            let mut blob = whole.clone();
            for _ in 0..1 + number() % 4 {
                let at = 24 + number() % (blob.len() - 24);
                blob[at] = if number().is_multiple_of(2) { number() as u8 } else { (number() % 20) as u8 };
            }
            let mut index = vec![0; blob.len() * 4 + 1024];
            let mut arena = Arena::new(&mut index);
            let types = Btf::parse(&blob).and_then(|btf| Types::index(btf, 2, None, &mut arena, Part::LocalIndex));
            let Ok(types) = types else { continue };
            let mut buffer = vec![0; blob.len() + 256];
            for set in [KernelBtfFeatures::ALL, KernelBtfFeatures::NONE] {
                let mut arena = Arena::new(&mut buffer);
                match sanitize(&blob, &types, &hand_places(&types), set, &mut arena) {
                    // What was readable stays readable, with all its types.
                    Ok(out) => {
                        let own = Btf::parse(out).unwrap().iter().map(Result::unwrap).count();
                        assert!(own >= types.count() as usize);
                        changed += 1;
                    }
                    Err(error) => {
                        assert!(!error.to_string().is_empty());
                        refused += 1;
                    }
                }
            }
        }
    }
    println!("{changed} changed, {refused} refused");
    assert!(changed > 1000 && refused > 1000);
}

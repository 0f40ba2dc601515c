//! Minimal BTF: relocating against it gives the same instructions as against the whole one.

use std::cell::Cell;

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::Btf;
use corelo_core::min_btf::{MAX_PASSES, Minimal, Source, minimal, stream};
use corelo_core::object::Object;
use corelo_core::prepare::{Options, Plan, Prepared, Relocation, RelocationError, prepare};
use corelo_core::relo::decision::Verdict;
use corelo_tests::corpus::corpus;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::{fixture, fixtures};
use zerocopy::IntoBytes;

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// What must be the same of a relocation. Ids of types are those of the BTF: `with_ids` says whether they must be too.
fn facts(relocation: &Relocation<'_>, with_ids: bool) -> String {
    let decision = relocation.decision;
    let verdict = match decision.verdict() {
        Verdict::Ambiguous { .. } if !with_ids => "ambiguous".to_owned(),
        Verdict::Fault { fault, .. } if !with_ids => format!("{fault}"),
        verdict => format!("{verdict:?}"),
    };
    let is_id = relocation.relo.kind.number() == 7;
    if is_id && !with_ids {
        return format!("{verdict} {}", decision.target().is_some());
    }
    let outcome = match relocation.outcome {
        Err(RelocationError::Undecided(_)) => "undecided".to_owned(),
        outcome => format!("{outcome:?}"),
    };
    format!(
        "{verdict} {} {:?} {outcome} {:x?}",
        decision.target_value(),
        decision.access_sizes(),
        relocation.insns().as_bytes()
    )
}

fn all_facts(prepared: &Prepared<'_>, with_ids: bool) -> Vec<String> {
    let mut facts: Vec<String> = prepared.relocations().map(|relocation| facts(&relocation, with_ids)).collect();
    for (number, _) in prepared.declared().programs() {
        let target = prepared.attach_target(number);
        facts.push(if with_ids { format!("{target:?}") } else { format!("{:?}", std::mem::discriminant(&target)) });
    }
    for (id, _) in prepared.declared().externs_by_id() {
        let found = prepared.extern_match(id);
        facts.push(if with_ids { format!("{found:?}") } else { format!("{:?}", std::mem::discriminant(&found)) });
    }
    facts
}

/// What relocating `object` against `btf` gives; `None` for an object that asks nothing or cannot be planned.
fn whole(object: &[u8], btf: &[u8], with_ids: bool) -> Option<Vec<String>> {
    let mut buffer = vec![0u8; 8 << 20];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(object).ok()?;
    if !Plan::new(&object, Options::default(), &mut arena.scratch()).ok()?.asks_kernel() {
        return None;
    }
    let prepared = prepare(&object, Some(btf), Options::default(), &mut arena).ok()?;
    Some(all_facts(&prepared, with_ids))
}

fn minimal_btf(objects: &[&[u8]], btf: &[u8], module: Option<&[u8]>) -> Vec<u8> {
    let mut buffer = vec![0u8; 64 << 20];
    let mut arena = Arena::new(&mut buffer);
    let objects: Vec<Object<'_>> = objects.iter().map(|bytes| Object::parse(bytes).expect("an object")).collect();
    let plans: Vec<Plan<'_>> =
        objects.iter().map(|object| Plan::new(object, Options::default(), &mut arena).expect("a plan")).collect();
    let needs: Vec<_> = plans.iter().map(Plan::needs).collect();
    let Minimal { blob, ids } = minimal(&needs, btf, module, &mut arena).expect("a minimal BTF");
    let parsed = Btf::parse(blob).expect("valid BTF");
    assert_eq!(parsed.iter().filter_map(Result::ok).count(), ids.len());
    assert!(ids.is_sorted_by(|one, next| one < next));
    blob.to_vec()
}

/// A source that counts passes by itself: a read before the last one's start is a new one.
struct Counted<'b> {
    bytes: &'b [u8],
    passes: &'b Cell<u32>,
    last: u64,
}

impl Source for Counted<'_> {
    type Error = std::convert::Infallible;

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Self::Error> {
        if offset < self.last {
            self.passes.set(self.passes.get() + 1);
        }
        self.last = offset;
        let tail = &self.bytes[self.bytes.len().min(offset as usize)..];
        // Short reads, as sysfs gives them.
        let len = tail.len().min(buffer.len()).min(4096);
        buffer[..len].copy_from_slice(&tail[..len]);
        Ok(len)
    }
}

/// What streaming took.
#[derive(Debug, Default)]
struct Cost {
    passes: u32,
    arena: usize,
    blob: usize,
    bytes_read: u64,
}

fn streamed(object: &[u8], btf: &[u8], window: usize) -> Option<(Vec<String>, Cost)> {
    let mut buffer = vec![0u8; 16 << 20];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(object).ok()?;
    let plan = Plan::new(&object, Options::default(), &mut arena).ok()?;
    if !plan.asks_kernel() {
        return None;
    }
    let passes = Cell::new(1);
    let source = Counted { bytes: btf, passes: &passes, last: 0 };
    let made = stream(source, plan.needs(), window, &mut arena).expect("a source that can be streamed");
    assert!(passes.get() <= made.passes, "{} passes were made, {} are told", passes.get(), made.passes);
    let search = plan.search(made.btf().expect("valid BTF"), &mut arena).expect("a search");
    let prepared = search.finish();
    let facts = all_facts(&prepared, true);
    let cost =
        Cost { passes: made.passes, arena: arena.high_water(), blob: made.blob.len(), bytes_read: made.bytes_read };
    Some((facts, cost))
}

fn assert_same(name: &str, one: &[String], other: &[String]) {
    assert_eq!(one.len(), other.len(), "{name}");
    for (number, (one, other)) in one.iter().zip(other).enumerate() {
        assert_eq!(one, other, "{name}: relocation {number}: whole, then minimal");
    }
}

/// Each fixture's object, with the BTF that it is relocated against.
fn fixture_pairs() -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let mut pairs = Vec::new();
    for item in fixtures() {
        let target = match item.name.as_str() {
            "core_insns_v4" => fixture("core_insns", item.endian).read_target(),
            _ => item.read_target(),
        };
        let running = || (item.endian == Endian::Little).then(|| std::fs::read(VMLINUX).ok()).flatten();
        if let Some(btf) = target.or_else(running) {
            pairs.push((format!("{}-{:?}", item.name, item.endian), item.read(), btf));
        }
    }
    pairs
}

#[test]
fn fixtures_relocate_against_minimal_btf_as_before() {
    let mut compared = 0;
    for (name, object, btf) in fixture_pairs() {
        let Some(before) = whole(&object, &btf, false) else { continue };
        let blob = minimal_btf(&[&object], &btf, None);
        let after = whole(&object, &blob, false).expect("it could be prepared before");
        assert_same(&name, &before, &after);
        compared += before.len();
    }
    println!("{compared} facts");
    assert!(compared > 500);
}

#[test]
fn fixtures_relocate_against_a_streamed_btf_as_before() {
    let (mut compared, mut most) = (0, 0);
    for (name, object, btf) in fixture_pairs() {
        let Some(before) = whole(&object, &btf, true) else { continue };
        for window in [1024, 16 << 10] {
            let (after, cost) = streamed(&object, &btf, window).expect("it could be prepared before");
            assert_same(&name, &before, &after);
            most = most.max(cost.passes);
        }
        compared += before.len();
    }
    println!("{compared} facts, at most {most} passes");
    assert!(compared > 500 && most <= MAX_PASSES / 4);
}

fn corpus_kernels(names: &[&str], each: impl Fn(&str, &[u8], &[(String, Vec<u8>)])) {
    let Some(corpus) = corpus() else { return };
    let objects: Vec<(String, Vec<u8>)> =
        corpus.objects().into_iter().map(|name| (name.clone(), corpus.read(&name))).collect();
    for name in names {
        let btf = if *name == "running" {
            if !corelo_tests::kernel::has(&[corelo_tests::kernel::Feature::KernelBtf]) {
                continue;
            }
            std::fs::read(VMLINUX).unwrap()
        } else {
            corpus.kernel(name).btf()
        };
        each(name, &btf, &objects);
    }
}

#[test]
fn corpus_objects_relocate_against_minimal_btf_as_before() {
    corpus_kernels(
        &[
            "amd64-5.10.223",
            "amd64-6.12.117",
            "arm64-6.12.117",
            "ppc64el-7.2.13",
            "armhf-6.1.176-from-dwarf",
            "s390x-7.2.13",
        ],
        |name, btf, objects| {
            let (mut compared, mut sizes) = (0, 0);
            let mut together: Vec<&[u8]> = Vec::new();
            for (file, object) in objects {
                let Some(before) = whole(object, btf, false) else { continue };
                let blob = minimal_btf(&[object], btf, None);
                let after = whole(object, &blob, false).expect("it could be prepared before");
                assert_same(&format!("{file} on {name}"), &before, &after);
                compared += before.len();
                sizes += blob.len();
                together.push(object);
            }
            // All of them at once.
            let blob = minimal_btf(&together, btf, None);
            for (file, object) in objects {
                let Some(before) = whole(object, btf, false) else { continue };
                let after = whole(object, &blob, false).expect("it could be prepared before");
                assert_same(&format!("{file} on {name}, with all others"), &before, &after);
            }
            println!(
                "{name}: {} objects, {compared} facts; {sizes} bytes each for itself, {} together",
                together.len(),
                blob.len()
            );
            assert!(compared > 100);
        },
    );
}

#[test]
fn corpus_objects_relocate_against_a_streamed_btf_as_before() {
    corpus_kernels(&["running", "amd64-6.1.176", "s390x-7.2.13"], |name, btf, objects| {
        let (mut compared, mut most) = (0, Cost::default());
        for (file, object) in objects {
            let Some(before) = whole(object, btf, true) else { continue };
            let (after, cost) = streamed(object, btf, 16 << 10).expect("it could be prepared before");
            assert_same(&format!("{file} on {name}"), &before, &after);
            compared += before.len();
            most.passes = most.passes.max(cost.passes);
            most.arena = most.arena.max(cost.arena);
            most.blob = most.blob.max(cost.blob);
            most.bytes_read = most.bytes_read.max(cost.bytes_read);
        }
        println!("{name}: {compared} facts; at most {most:?}");
        assert!(compared > 100 && most.passes <= MAX_PASSES / 2);
    });
}

/// A module's types and those of vmlinux, in one blob that stands alone.
#[test]
fn a_split_btf_becomes_one_that_stands_alone() {
    let Some(corpus) = corpus() else { return };
    let kernel = corpus.kernel("amd64-6.12.117");
    let btf = kernel.btf();
    let mut found = 0;
    for module in kernel.modules() {
        let split = kernel.module_btf(&module);
        for name in corpus.objects() {
            let object = corpus.read(&name);
            let mut buffer = vec![0u8; 8 << 20];
            let mut arena = Arena::new(&mut buffer);
            let Ok(parsed) = Object::parse(&object) else { continue };
            let Ok(plan) = Plan::new(&parsed, Options::default(), &mut arena) else { continue };
            if !plan.asks_kernel() {
                continue;
            }
            let Ok(mut search) = plan.search(Btf::parse(&btf).expect("valid BTF"), &mut arena) else { continue };
            if !search.wants_modules() {
                continue;
            }
            search.weigh_module(&split, None, 1, &mut arena).expect("valid BTF");
            search.search_module(&split, None, 1, &mut arena).expect("valid BTF");
            let prepared = search.finish();
            let in_module = prepared
                .relocations()
                .filter(|relocation| relocation.decision.target().is_some_and(|target| target.btf == 1))
                .count();
            if in_module == 0 {
                continue;
            }
            found += in_module;
            let before: Vec<String> = prepared.relocations().map(|relocation| facts(&relocation, false)).collect();
            let blob = minimal_btf(&[&object], &btf, Some(&split));
            let mut buffer = vec![0u8; 8 << 20];
            let mut arena = Arena::new(&mut buffer);
            let prepared =
                prepare(&parsed, Some(&blob), Options::default(), &mut arena).expect("it could be prepared before");
            let after: Vec<String> = prepared.relocations().map(|relocation| facts(&relocation, false)).collect();
            assert_same(&format!("{name} with {module}"), &before, &after);
        }
    }
    println!("{found} relocations in modules");
    assert!(found > 0);
}

/// What the smallest device pays.
#[test]
fn many_progs_streams_in_64_kib() {
    let object = fixture("many_progs", Endian::Little).read();
    corpus_kernels(&["running", "amd64-6.1.176", "amd64-7.2.13"], |name, btf, _| {
        for window in [1 << 10, 4 << 10, 16 << 10] {
            let (_, cost) = streamed(&object, btf, window).expect("an object that asks");
            println!("{name}: window {window}: {cost:?} of {} bytes", btf.len());
            assert!(cost.arena <= 64 << 10, "{cost:?}");
            assert!(cost.passes <= 16, "{cost:?}");
        }
    });
}

/// With so many bytes it works, and with fewer it says so.
#[test]
fn the_arena_may_be_of_any_size() {
    let item = fixture("core_fields", Endian::Big);
    let (object, btf) = (item.read(), item.read_target().expect("it has a target"));
    let try_with = |bytes: usize| {
        let mut words = vec![0u64; bytes.div_ceil(8)];
        let buffer = &mut words.as_mut_slice().as_mut_bytes()[..bytes];
        let mut arena = Arena::new(buffer);
        let parsed = Object::parse(&object).expect("an object");
        let plan = Plan::new(&parsed, Options::default(), &mut arena).map_err(|error| error.to_string())?;
        let source = corelo_core::min_btf::SliceSource(&btf);
        let made = stream(source, plan.needs(), 1024, &mut arena).map_err(|error| error.to_string())?;
        let _ = made.btf().expect("valid BTF");
        Ok::<usize, String>(arena.high_water())
    };
    let needed = try_with(1 << 20).expect("enough");
    assert_eq!(try_with(needed), Ok(needed));
    for bytes in 0..needed {
        let error = try_with(bytes).expect_err("too few bytes must not do");
        assert!(error.contains("arena too small"), "{bytes}: {error}");
    }
    println!("{needed} bytes; {}", Part::Window);
}

/// A blob made for another object is none for this one: the comparisons above see that.
#[test]
fn types_of_another_object_do_not_do() {
    let (item, other) = (fixture("core_fields", Endian::Little), fixture("core_enums", Endian::Little));
    let btf = item.read_target().expect("it has a target");
    let before = whole(&item.read(), &btf, false).expect("it asks");
    let blob = minimal_btf(&[&other.read()], &other.read_target().expect("it has a target"), None);
    let after = whole(&item.read(), &blob, false).expect("it asks");
    assert!(before.iter().zip(&after).filter(|(one, other)| one != other).count() > 20);
}

/// Whatever the bytes are: an end, and no panic.
#[test]
fn hostile_bytes_are_survived() {
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize
    };
    let (mut made, mut refused) = (0, 0);
    for name in ["core_fields", "core_types", "core_enums", "core_arrays", "core_candidates"] {
        for endian in [Endian::Little, Endian::Big] {
            let item = fixture(name, endian);
            let (object, btf) = (item.read(), item.read_target().expect("it has a target"));
            let mut buffer = vec![0u8; 1 << 20];
            let mut arena = Arena::new(&mut buffer);
            let parsed = Object::parse(&object).expect("an object");
            let plan = Plan::new(&parsed, Options::default(), &mut arena).expect("a plan");
            for round in 0..600 {
                let mut bytes = btf.clone();
                if round % 3 == 0 {
                    bytes.truncate(next() % (btf.len() + 1));
                }
                for _ in 0..round % 7 {
                    let len = bytes.len().max(1);
                    if let Some(byte) = bytes.get_mut(next() % len) {
                        *byte = if next() % 2 == 0 { next() as u8 } else { byte.wrapping_add(1) };
                    }
                }
                let mut scratch = arena.scratch();
                let source = corelo_core::min_btf::SliceSource(&bytes);
                match stream(source, plan.needs(), 1024, &mut scratch) {
                    Ok(streamed) => {
                        assert!(streamed.passes <= MAX_PASSES);
                        made += 1;
                    }
                    Err(_) => refused += 1,
                }
                let mut scratch = arena.scratch();
                match minimal(&[plan.needs()], &bytes, None, &mut scratch) {
                    Ok(_) => made += 1,
                    Err(_) => refused += 1,
                }
            }
        }
    }
    println!("{made} made, {refused} refused");
    assert!(made > 1000 && refused > 1000);
}

//! The one pass, whose cursors walk over a large BTF in segments: whatever it is cut into, every type is found, and what
//! cannot be read is told as a walk over the whole tells it.

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::lookup::{Candidate, Prefix, Query, Questions};
use corelo_core::btf::{Btf, BtfError, Kind, TypeId, Types};
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding, KindLayout, Member, kind};
use corelo_tests::corpus::corpus;
use corelo_tests::endian::Endian;

/// What is asked here.
const ASKED: [(&str, Kind); 6] = [
    ("task_struct", Kind::Struct),
    ("first", Kind::Struct),
    ("middle", Kind::Struct),
    ("last", Kind::Struct),
    ("pid_type", Kind::Enum),
    ("do_exit", Kind::Func),
];

/// What a pass said: how many types there are, bytes of a pointer, answers.
type Said = Result<(u32, u8, Vec<Candidate>), BtfError>;

/// Asks a blob, and looks every type up by its id; the arena has `arena` bytes.
fn ask(blob: &[u8], stride: u32, arena: usize) -> Said {
    let names: Vec<u8> = ASKED.iter().flat_map(|(name, _)| name.bytes()).collect();
    let mut at = 0;
    let mut queries: Vec<Query> = (0..)
        .zip(ASKED)
        .map(|(owner, (name, kind))| {
            at += name.len();
            Query::new(&names, at - name.len(), name.len(), kind, Prefix::Root, owner).expect("a name")
        })
        .collect();
    let questions = Questions::new(&mut queries, &names);
    let mut buffer = vec![0u64; arena.div_ceil(8)];
    let buffer = &mut zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..])[..arena];
    let mut arena = Arena::new(buffer);
    let btf = Btf::parse(blob)?;
    let answers = questions.ask(btf, None, stride, &mut arena)?;
    let types = answers.types();
    let mut count = 0;
    for ty in btf.iter() {
        let ty = ty.expect("the pass has read it");
        let found = types.get(ty.id()).expect("the pass has counted it");
        assert_eq!(
            (found.kind(), found.name_off(), found.vlen()),
            (ty.kind(), ty.name_off(), ty.vlen()),
            "{}",
            ty.id()
        );
        count += 1;
    }
    assert_eq!(answers.visited(), count);
    assert!(matches!(types.get(TypeId(count + 1)), Err(BtfError::NoSuchType { .. })));
    Ok((count, types.pointer_size(), answers.candidates().to_vec()))
}

/// The answers by a plain search: names and kinds are those asked for, flavours left out.
fn expected(blob: &[u8]) -> Vec<Candidate> {
    let btf = Btf::parse(blob).expect("BTF");
    let mut all = Vec::new();
    for ty in btf.iter().map(|ty| ty.expect("a type")) {
        let name = btf.strings()[ty.name_off() as usize..].split(|&byte| byte == 0).next().expect("a string");
        let name = std::str::from_utf8(name).expect("ASCII");
        let name = name.rfind("___").filter(|&at| at > 0).map_or(name, |at| &name[..at]);
        let kind = if ty.kind() == Kind::Enum64 { Kind::Enum } else { ty.kind() };
        let owner = ASKED.iter().position(|asked| *asked == (name, kind));
        all.extend(owner.map(|owner| Candidate { owner: owner as u32, id: ty.id() }));
    }
    all.sort_by_key(|candidate| (candidate.owner, candidate.id));
    all
}

const ROOM: usize = 4 << 20;

#[test]
fn kernels_are_walked_over_in_segments() {
    let Some(corpus) = corpus() else { return };
    for kernel in corpus.kernels() {
        let blob = kernel.btf();
        let wanted = expected(&blob);
        assert!(wanted.len() >= 2, "{}: task_struct and do_exit at the least", kernel.name);
        for stride in [7, 32] {
            let (_, pointer_size, found) = ask(&blob, stride, ROOM).expect(&kernel.name);
            assert_eq!(found, wanted, "{}, stride {stride}", kernel.name);
            assert_eq!(pointer_size, if kernel.name.contains("armhf") { 4 } else { 8 }, "{}", kernel.name);
        }
    }
}

/// 30,000 structs of a few members, with those asked for at the start, in the middle and at the end: 1 MB of types.
fn structs(b: &mut BtfBuilder) {
    let int = b.int("int", 4, IntEncoding::Signed);
    b.struct_("first", 4, &[]);
    for number in 0..30_000u32 {
        match number {
            15_000 => b.struct_("middle", 4, &[Member::at("a", int, 0)]),
            15_001 => b.struct_("middle___other", 4, &[]),
            _ => {
                let names = ["a", "b", "c", "d"];
                let members = names.map(|name| Member::at(name, int, 0));
                b.struct_("s", 16, &members[..(number % 5) as usize])
            }
        };
    }
    b.struct_("last", 4, &[]);
}

#[test]
fn the_long_integer_is_the_first_one_wherever_it_is() {
    for (at, sizes, pointer_size) in [("start", [4, 8], 4), ("end", [8, 4], 8)] {
        let mut b = BtfBuilder::new(Endian::native());
        if at == "start" {
            b.int("long unsigned int", sizes[0], IntEncoding::Unsigned);
        }
        structs(&mut b);
        if at == "end" {
            b.int("long int", sizes[0], IntEncoding::Signed);
        }
        // Not the first, and in the last segment.
        b.int("unsigned long", sizes[1], IntEncoding::Unsigned);
        assert_eq!(ask(&b.build(), 32, ROOM).map(|(_, size, _)| size), Ok(pointer_size), "{at}");
    }
}

/// A struct whose members look like a row of types covers the places where the section would be cut.
#[test]
fn a_cut_in_the_middle_of_a_type_is_taken_back() {
    for looks_like in [0x0800_0000, 0x0c00_0001, 0x0400_0001, 0x0d00_0002] {
        let mut b = BtfBuilder::new(Endian::native());
        structs(&mut b);
        // name, "info", "type": three words are a member, and a typedef, a function, ...
        let words: Vec<u32> = (0..65_000).flat_map(|_| [1, looks_like, 1]).collect();
        b.wide_info();
        b.raw(kind::STRUCT, "huge", 65_000, false, 4, &words);
        b.raw(kind::STRUCT, "huge", 65_000, false, 4, &words);
        b.struct_("last", 4, &[]);
        b.struct_("task_struct", 4, &[]);
        let blob = b.build();
        for stride in [1, 32] {
            let (count, _, found) = ask(&blob, stride, ROOM).expect("sound BTF");
            assert_eq!((count, found), (30_007, expected(&blob)), "{looks_like:#x}, stride {stride}");
        }
    }
}

/// What a walk by [`Types::index`], which has one cursor, says of a blob.
fn one_by_one(blob: &[u8]) -> Result<u32, BtfError> {
    let mut buffer = vec![0; ROOM];
    let mut arena = Arena::new(&mut buffer);
    Types::index(Btf::parse(blob)?, 32, None, &mut arena, Part::KernelIndex).map(|types| types.count())
}

#[test]
fn damage_in_any_segment_is_told_as_by_one_cursor() {
    for endian in [Endian::Little, Endian::Big] {
        let mut b = BtfBuilder::new(endian);
        structs(&mut b);
        let blob = b.build();
        let types_len = Btf::parse(&blob).expect("sound BTF").types_len();
        let mut errors = 0;
        for part in 1..100 {
            for info in [0x7f00_0000u32, 0x0400_ffff, 0x84ff_ffff, 0x0000_0000] {
                let mut spoiled = blob.clone();
                let at = 24 + (types_len / 100 * part + 28 * part) / 4 * 4;
                let word = if endian == Endian::Little { info.to_le_bytes() } else { info.to_be_bytes() };
                spoiled[at..at + 4].copy_from_slice(&word);
                let said = ask(&spoiled, 32, ROOM).map(|(count, ..)| count);
                assert_eq!(said, one_by_one(&spoiled), "{info:#x} at {at}");
                errors += usize::from(said.is_err());
            }
        }
        assert!(errors > 20, "{errors} of 396 had an effect");
    }
}

/// Kinds of the future whose length is told, and a section that ends in the middle of a word.
#[test]
fn kinds_that_the_layout_tells_are_stepped_over_in_every_segment() {
    let mut b = BtfBuilder::new(Endian::native());
    let mut rows = KindLayout::known();
    rows.resize(101, KindLayout::default());
    rows[100] = KindLayout::new(8, 4);
    b.wide_info();
    b.layout(rows.clone());
    for number in 0..30_000u32 {
        b.raw(100, "beyond", number % 3, number % 2 == 0, 0, &[9; 4][..2 + (number % 3) as usize]);
        b.struct_(if number == 20_000 { "middle" } else { "s" }, 4, &[]);
    }
    let blob = b.build();
    assert_eq!(ask(&blob, 32, ROOM), Ok((60_000, 8, expected(&blob))));

    // As libbpf: types consist of whole words.
    rows[100] = KindLayout::new(6, 4);
    b.layout(rows);
    let error = ask(&b.build(), 32, ROOM).expect_err("no whole words");
    assert_eq!(error, BtfError::UnknownKind { id: TypeId(1), offset: 0, kind: 100 });
}

/// A module's BTF has no layout section of its own where the kernel's has one.
#[test]
fn the_layout_of_the_base_counts_for_what_is_split_on_it() {
    let mut b = BtfBuilder::new(Endian::native());
    let mut rows = KindLayout::known();
    rows.resize(101, KindLayout::default());
    rows[100] = KindLayout::new(8, 4);
    b.wide_info();
    b.layout(rows);
    b.int("int", 4, IntEncoding::Signed);
    let mut module = b.split_on();
    module.wide_info();
    module.raw(100, "beyond", 1, false, 0, &[9; 3]);
    let last = module.struct_("last", 4, &[]);
    let (base, module) = (b.build(), module.build());
    let mut buffer = vec![0; 4096];
    let mut arena = Arena::new(&mut buffer);
    let base = Types::index(Btf::parse(&base).expect("a base"), 8, None, &mut arena, Part::KernelIndex).expect("types");
    let split = Btf::parse_split(&module, &base).expect("a module");
    let types = Types::index(split, 8, Some(&base), &mut arena, Part::KernelIndex).expect("its types");
    assert_eq!((types.count(), types.get(TypeId(last)).map(|ty| ty.kind())), (2, Ok(Kind::Struct)));
}

/// What the arena must hold does not depend on what a cut was worth: from the first size that does, every size does.
#[test]
fn a_byte_too_few_is_one_too_few_in_segments_too() {
    let mut b = BtfBuilder::new(Endian::native());
    structs(&mut b);
    let blob = b.build();
    let fits = |arena: usize| ask(&blob, 32, arena).is_ok();
    let (mut low, mut high) = (0, ROOM);
    while low + 1 < high {
        let middle = (low + high) / 2;
        if fits(middle) { high = middle } else { low = middle }
    }
    // 8 bytes of high-water mark, an entry for each 32 of 30,003 types and two to spare, four answers.
    assert_eq!(high, 8 + (30_003usize.div_ceil(32) + 2) * 4 + 4 * 8);
    assert!((high..high + 64).all(fits) && !(high - 64..high).any(fits));
}

//! Modules with a base of their own, put onto a kernel's.

use std::collections::{BTreeMap, HashSet};

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::split::{RebaseError, rebase};
use corelo_core::btf::{Btf, DEFAULT_STRIDE, Kind, Type, TypeId, Types, raw};
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding, Member};
use corelo_tests::corpus::corpus;
use corelo_tests::endian::Endian;
use corelo_tests::numbers::numbers;

fn indexed<'a>(blob: &'a [u8], arena: &mut Arena<'a>) -> Types<'a> {
    let btf = Btf::parse(blob).expect("readable BTF");
    Types::index(btf, DEFAULT_STRIDE, None, arena, Part::KernelIndex).expect("readable types")
}

fn split_on<'a>(blob: &'a [u8], base: &'a Types<'a>, arena: &mut Arena<'a>) -> Types<'a> {
    let btf = Btf::parse_split(blob, base).expect("readable split BTF");
    Types::index(btf, 4, Some(base), arena, Part::KernelIndex).expect("readable types")
}

fn named<'a>(types: &Types<'a>) -> BTreeMap<(u8, Vec<u8>), Vec<TypeId>> {
    let mut found: BTreeMap<_, Vec<TypeId>> = BTreeMap::new();
    for ty in types.btf().iter().map(Result::unwrap) {
        let name = types.name(&ty).unwrap();
        if !name.is_empty() {
            found.entry((ty.kind().number(), name.to_vec())).or_default().push(ty.id());
        }
    }
    found
}

/// Two views of one module on one kernel: are two of their types the same, down to the kernel's own?
struct Comparison<'t, 'a> {
    ours: &'t Types<'a>,
    wanted: &'t Types<'a>,
    first_split: u32,
    seen: HashSet<(u32, u32)>,
    shared: u32,
}

impl Comparison<'_, '_> {
    fn compare(&mut self, ours: TypeId, wanted: TypeId, path: &str) {
        if ours == wanted && ours.0 < self.first_split {
            self.shared += u32::from(ours != TypeId::VOID);
            return;
        }
        if !self.seen.insert((ours.0, wanted.0)) {
            return;
        }
        let (ours, wanted) = (self.ours.get(ours).expect(path), self.wanted.get(wanted).expect(path));
        let name = |types: &Types<'_>, offset| String::from_utf8(types.string(offset).expect(path).to_vec()).unwrap();
        let path = &format!("{path} > {} {}", wanted.kind(), name(self.wanted, wanted.name_off()));
        assert_eq!(ours.info(), wanted.info(), "{path}: [{}] and [{}]", ours.id(), wanted.id());
        let same_name = |left: u32, right: u32| assert_eq!(name(self.ours, left), name(self.wanted, right), "{path}");
        same_name(ours.name_off(), wanted.name_off());
        for (left, right) in ours.members().zip(wanted.members()) {
            same_name(left.name_off, right.name_off);
            assert_eq!((left.bit_offset, left.bitfield_size), (right.bit_offset, right.bitfield_size), "{path}");
        }
        for (left, right) in ours.params().zip(wanted.params()) {
            same_name(left.name_off, right.name_off);
        }
        for (left, right) in ours.enumerators().zip(wanted.enumerators()) {
            same_name(left.name_off, right.name_off);
            assert_eq!(left.value, right.value, "{path}");
        }
        let (our_ids, wanted_ids) = (ids(&ours), ids(&wanted));
        assert_eq!(our_ids.len(), wanted_ids.len(), "{path}");
        if our_ids.is_empty() {
            assert_eq!(ours.size_or_type(), wanted.size_or_type(), "{path}");
        }
        for (left, right) in our_ids.into_iter().zip(wanted_ids) {
            self.compare(left, right, path);
        }
    }
}

fn ids(ty: &Type<'_>) -> Vec<TypeId> {
    let own = match ty.kind() {
        Kind::Int | Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 | Kind::Datasec | Kind::Float => None,
        Kind::Fwd | Kind::Array => None,
        _ => Some(ty.type_id()),
    };
    let array = ty.array().into_iter().flat_map(|array| [array.element, array.index]);
    let vars = ty.section_vars().map(|var| var.type_id);
    let parts = ty.members().map(|m| m.type_id).chain(ty.params().map(|p| p.type_id));
    own.into_iter().chain(array).chain(vars).chain(parts).collect()
}

#[test]
fn distilled_modules_become_what_they_are_on_their_kernel() {
    let Some(corpus) = corpus() else { return };
    let mut modules = 0;
    for kernel in corpus.kernels() {
        let distilled = kernel.distilled();
        if distilled.is_empty() {
            continue;
        }
        let vmlinux = kernel.btf();
        let mut buffer = vec![0; vmlinux.len() / 8];
        let base = indexed(&vmlinux, &mut Arena::new(&mut buffer));
        for (module, split, own_base) in distilled {
            let what = format!("{} {module}", kernel.name);
            let mut buffer = vec![0; split.len() * 4 + own_base.len() * 8 + 4096];
            let mut arena = Arena::new(&mut buffer);
            let rebased =
                rebase(&split, &own_base, &base, &mut arena).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(rebased.blob.len(), split.len());
            let (used, high_water) = (arena.used(), arena.high_water());

            let original = kernel.module_btf(&module);
            let (mut one, mut two) = (vec![0; split.len()], vec![0; original.len()]);
            let ours = split_on(rebased.blob, &base, &mut Arena::new(&mut one));
            let wanted = split_on(&original, &base, &mut Arena::new(&mut two));
            let (our_names, wanted_names) = (named(&ours), named(&wanted));
            let first_split = base.end_id();
            let mut comparison =
                Comparison { ours: &ours, wanted: &wanted, first_split, seen: HashSet::new(), shared: 0 };
            let mut compared = 0;
            for ((kind, name), wanted_ids) in &wanted_names {
                let our_ids = our_names.get(&(*kind, name.clone())).unwrap_or_else(|| {
                    panic!("{what}: {} {} is missing", Kind::from_number(*kind), name.escape_ascii())
                });
                // Distilling adds base types that have no place in the small base, after the module's own.
                assert!(our_ids.len() >= wanted_ids.len(), "{what}: {}", name.escape_ascii());
                for (&left, &right) in our_ids.iter().zip(wanted_ids) {
                    comparison.compare(left, right, &what);
                    compared += 1;
                }
            }
            println!(
                "{what}: {} distilled, {compared} named types and {} in all as on the kernel, {} references to it; \
                 {used} bytes kept, {high_water} at most",
                rebased.base_ids.len() - 1,
                comparison.seen.len(),
                comparison.shared
            );
            assert!(compared > 10 && comparison.shared > 10);
            modules += 1;
        }
    }
    println!("{modules} modules");
    assert!(modules >= 6);
}

/// A base with what the distilled types may find.
fn base_blob(endian: Endian) -> Vec<u8> {
    let mut btf = BtfBuilder::new(endian);
    let int = btf.int("int", 4, IntEncoding::Signed); // 1
    btf.int("int", 4, IntEncoding::Unsigned); // 2
    btf.struct_("once", 8, &[Member::at("a", int, 0)]); // 3
    btf.struct_("twice", 4, &[Member::at("a", int, 0)]); // 4
    btf.struct_("twice", 12, &[Member::at("a", int, 0)]); // 5
    btf.struct_("same", 4, &[Member::at("a", int, 0)]); // 6
    btf.struct_("same", 4, &[Member::at("b", int, 0)]); // 7
    btf.union_("once", 16, &[]); // 8
    btf.enum64("wide", false, &[("W", 1 << 40)]); // 9
    btf.fwd("declared", true); // 10
    btf.float("double", 8); // 11
    btf.build()
}

struct Distilled {
    base: BtfBuilder,
    ids: Vec<u32>,
}

fn try_rebase(
    endian: Endian,
    distil: impl FnOnce(&mut BtfBuilder) -> Vec<u32>,
    fill: impl FnOnce(&mut BtfBuilder, &[u32]),
) -> Result<(String, Vec<u32>), RebaseError> {
    let mut made = Distilled { base: BtfBuilder::new(endian), ids: Vec::new() };
    made.ids = distil(&mut made.base);
    let mut split = made.base.split_on();
    fill(&mut split, &made.ids);
    let (distilled, split, base) = (made.base.build(), split.build(), base_blob(endian));
    let mut index = [0; 512];
    let base = indexed(&base, &mut Arena::new(&mut index));
    let mut buffer = [0; 4096];
    let mut arena = Arena::new(&mut buffer);
    let rebased = rebase(&split, &distilled, &base, &mut arena)?;
    let mut index = [0; 512];
    let types = split_on(rebased.blob, &base, &mut Arena::new(&mut index));
    let mut text = String::new();
    raw::dump(&types, &mut text).unwrap();
    Ok((text, rebased.base_ids.to_vec()))
}

#[test]
fn each_kind_finds_its_like() {
    for endian in [Endian::Little, Endian::Big] {
        let distil = |btf: &mut BtfBuilder| {
            vec![
                btf.struct_("twice", 12, &[]),
                btf.int("int", 4, IntEncoding::Unsigned),
                btf.fwd("once", false),
                btf.struct_("once", 99, &[]),
                btf.enum_("wide", 8, false, &[]),
                btf.union_("declared", 4, &[]),
                btf.float("double", 8),
            ]
        };
        let (text, base_ids) = try_rebase(endian, distil, |split, ids| {
            let ptr = split.ptr(ids[3]);
            let array = split.array(ids[0], ids[1], 2);
            split.struct_("mine", 32, &[Member::at("twice", array, 0), Member::at("p", ptr, 24)]);
            let proto = split.func_proto(ids[4], &[("double", ids[6]), ("f", ids[2])]);
            split.func("once", proto, 0);
            split.typedef("u", ids[5]);
        })
        .unwrap();
        assert_eq!(base_ids, [0, 5, 2, 3, 3, 9, 10, 11]);
        let wanted = "\
[12] PTR '(anon)' type_id=3
[13] ARRAY '(anon)' type_id=5 index_type_id=2 nr_elems=2
[14] STRUCT 'mine' size=32 vlen=2
\t'twice' type_id=13 bits_offset=0
\t'p' type_id=12 bits_offset=192
[15] FUNC_PROTO '(anon)' ret_type_id=9 vlen=2
\t'double' type_id=11
\t'f' type_id=3
[16] FUNC 'once' type_id=15 linkage=static
[17] TYPEDEF 'u' type_id=10
";
        assert_eq!(text, wanted);
    }
}

#[test]
fn what_has_no_like_or_several_is_refused() {
    type Distil = fn(&mut BtfBuilder) -> u32;
    let id = TypeId(1);
    let embeds = |split: &mut BtfBuilder, ids: &[u32]| {
        let modified = split.const_(ids[0]);
        split.struct_("mine", 8, &[Member::at("m", modified, 0)]);
    };
    let no_match = |differs| RebaseError::NoMatch { id, differs };
    let rows: [(&str, Distil, RebaseError); 8] = [
        ("missing", |btf| btf.struct_("missing", 4, &[]), no_match(false)),
        ("embedded, of another size", |btf| btf.struct_("once", 99, &[]), no_match(true)),
        ("of two, neither of the size", |btf| btf.struct_("twice", 8, &[]), no_match(true)),
        ("two of the size", |btf| btf.struct_("same", 4, &[]), RebaseError::Ambiguous { id, first: TypeId(6) }),
        ("another encoding", |btf| btf.int("int", 4, IntEncoding::Bool), no_match(true)),
        ("another kind", |btf| btf.float("int", 4), no_match(false)),
        ("pointer", |btf| btf.ptr(0), RebaseError::UnexpectedKind { id, kind: Kind::Ptr }),
        ("nameless", |btf| btf.struct_("", 4, &[]), RebaseError::Anonymous { id }),
    ];
    for (what, distil, wanted) in rows {
        let result = try_rebase(Endian::Little, |btf| vec![distil(btf)], embeds);
        assert_eq!(result.unwrap_err(), wanted, "{what}");
    }
}

#[test]
fn too_small_an_arena_is_an_error_at_every_size() {
    let endian = Endian::Little;
    let mut distilled = BtfBuilder::new(endian);
    let once = distilled.struct_("once", 8, &[]);
    let mut split = distilled.split_on();
    split.struct_("mine", 8, &[Member::at("m", once, 0)]);
    let (distilled, split, base) = (distilled.build(), split.build(), base_blob(endian));
    let mut index = [0; 512];
    let base = indexed(&base, &mut Arena::new(&mut index));
    let mut whole = vec![0; 4096];
    let mut arena = Arena::new(&mut whole);
    rebase(&split, &distilled, &base, &mut arena).unwrap();
    let needed = arena.high_water();
    for len in 0..=needed {
        let result = rebase(&split, &distilled, &base, &mut Arena::new(&mut whole[..len]));
        assert_eq!(result.is_ok(), len == needed, "{len} of {needed} bytes");
        if let Err(error) = result {
            assert!(matches!(error, RebaseError::Arena(_)), "{len} bytes: {error}");
        }
    }
}

#[test]
fn damaged_blobs_are_refused_or_stay_readable() {
    let mut distilled = BtfBuilder::new(Endian::Big);
    let once = distilled.struct_("once", 8, &[]);
    let int = distilled.int("int", 4, IntEncoding::Signed);
    let mut split = distilled.split_on();
    let array = split.array(once, int, 3);
    split.struct_("mine", 32, &[Member::at("m", array, 0), Member::at("int", int, 24)]);
    let proto = split.func_proto(int, &[("p", array)]);
    split.func("f", proto, 1);
    let (distilled, split, base) = (distilled.build(), split.build(), base_blob(Endian::Little));
    let mut index = [0; 512];
    let base = indexed(&base, &mut Arena::new(&mut index));
    let mut number = numbers(0xba5e);
    let (mut rebased, mut refused) = (0, 0);
    for _ in 0..40_000 {
        let (mut distilled, mut split) = (distilled.clone(), split.clone());
        let blob = if number().is_multiple_of(3) { &mut distilled } else { &mut split };
        for _ in 0..1 + number() % 3 {
            let at = 24 + number() % (blob.len() - 24);
            blob[at] = if number().is_multiple_of(2) { number() as u8 } else { (number() % 20) as u8 };
        }
        let mut buffer = [0; 4096];
        match rebase(&split, &distilled, &base, &mut Arena::new(&mut buffer)) {
            Ok(out) => {
                assert!(Btf::parse_split(out.blob, &base).unwrap().iter().all(|ty| ty.is_ok()));
                rebased += 1;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    println!("{rebased} rebased, {refused} refused");
    assert!(rebased > 1000 && refused > 1000);
}

//! Legacy `maps` sections, and what a reference by a section's symbol leads to: exactly what lies there, or nothing.

use corelo_core::arena::Arena;
use corelo_core::link::{LinkCause, ReferenceKind};
use corelo_core::object::{MapId, Object, ObjectError, Pinning};
use corelo_core::prepare::{Options, PrepareError, Prepared, prepare};
use corelo_tests::btf_builder::{IntEncoding, Member};
use corelo_tests::elf_builder::{
    Bind, ElfBuilder, R_BPF_64_64, R_BPF_64_ABS64, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, Section, SymType, Symbol,
};
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;
use corelo_tests::insn::{Insn, encode};
use corelo_tests::object_builder::ObjectBuilder;
use zerocopy::IntoBytes;

fn with_prepared<T>(file: &[u8], then: impl FnOnce(Result<&Prepared<'_>, PrepareError>, &mut Arena<'_>) -> T) -> T {
    let mut words = vec![0u64; 1 << 13];
    let mut arena = Arena::new(words.as_mut_bytes());
    let object = Object::parse(file).unwrap();
    let prepared = prepare(&object, None, Options::default(), &mut arena);
    then(prepared.as_ref().map_err(|error| *error), &mut arena.scratch())
}

/// A map's name and an offset in it.
type Place = Result<(String, i32), LinkCause>;

/// The map that each program's only reference leads to, and the offset in it, or why there is none.
fn references(file: &[u8]) -> Vec<(String, Place)> {
    with_prepared(file, |prepared, arena| {
        let prepared = prepared.unwrap();
        let of = |number| {
            let mut scratch = arena.scratch();
            let linked = prepared.program(number, &mut scratch).map_err(|error| error.cause)?;
            let reference = linked.references[0];
            let name = match reference.kind() {
                ReferenceKind::Map(map) | ReferenceKind::MapValue(map) => {
                    prepared.map_name(prepared.declared().map(map).unwrap()).to_vec()
                }
                kind => panic!("{kind:?}"),
            };
            let offset = linked.insns[reference.insn_idx as usize + 1].imm(prepared.object().endian());
            Ok((String::from_utf8(name).unwrap(), offset))
        };
        let mut of = of;
        let programs: Vec<_> = prepared.declared().programs().collect();
        let name = |function| String::from_utf8_lossy(prepared.function_name(function)).into_owned();
        programs.into_iter().map(|(number, function)| (name(function), of(number))).collect()
    })
}

#[test]
fn a_static_map_is_the_one_that_is_referred_to() {
    for endian in Endian::BOTH {
        let found = references(&fixture("obj_legacy_static", endian).read());
        let wanted = [("reads_own", "own"), ("reads_shared", "shared")];
        assert_eq!(found, wanted.map(|(program, map)| (program.to_owned(), Ok((map.to_owned(), 0)))));
    }
}

/// An object whose one program loads the address `imm` bytes behind the symbol of section `holder`.
fn by_section_symbol(endian: Endian, holder: &Section, symbols: &[(&str, u64, u64)], imm: i32) -> Vec<u8> {
    let mut elf = ElfBuilder::new(endian);
    let mut insns = Insn::ld_imm64(1, 0, 0).to_vec();
    insns[0].imm = imm;
    insns.extend([Insn::mov64_imm(0, 0), Insn::exit()]);
    let flags = SHF_ALLOC | SHF_EXECINSTR;
    let code = elf.section(Section::progbits("socket", flags, encode(&insns, endian)));
    elf.symbol(Symbol::global("program", code, 0, 32, SymType::Func));
    let holder = elf.section(holder.clone());
    for &(name, at, size) in symbols {
        elf.symbol(Symbol::global(name, holder, at, size, SymType::Object));
    }
    let symbol = Symbol { bind: Bind::Local, ..Symbol::global("", holder, 0, 0, SymType::Section) };
    let symbol = elf.symbol(symbol);
    elf.relocation(code, 0, symbol, R_BPF_64_64);
    elf.build()
}

#[test]
fn a_section_symbol_with_an_offset_finds_what_lies_there_or_nothing() {
    for endian in Endian::BOTH {
        let words = [[2u32, 4, 8, 1, 0], [1, 4, 8, 3, 0]].concat();
        let bytes: Vec<u8> = words.iter().flat_map(|&word| endian.u32(word)).collect();
        let maps = Section::progbits("maps", SHF_ALLOC | SHF_WRITE, bytes);
        let symbols = [("first", 0, 20), ("second", 20, 20)];
        let only = |imm| references(&by_section_symbol(endian, &maps, &symbols, imm)).remove(0).1;
        assert_eq!(only(0), Ok(("first".to_owned(), 0)));
        assert_eq!(only(20), Ok(("second".to_owned(), 0)));
        for imm in [4, 19, 21, 40, -20, i32::MIN] {
            assert!(matches!(only(imm), Err(LinkCause::NoMap { .. })), "{imm}: {:?}", only(imm));
        }
        // A map without a name of its own is no other one.
        let only = |imm| references(&by_section_symbol(endian, &maps, &symbols[..1], imm)).remove(0).1;
        assert!(matches!(only(20), Err(LinkCause::NoMap { .. })), "{:?}", only(20));
        let data = Section::progbits(".data", SHF_ALLOC | SHF_WRITE, vec![0; 24]);
        let only = |imm| references(&by_section_symbol(endian, &data, &[], imm)).remove(0).1;
        assert_eq!(only(23), Ok((".data".to_owned(), 23)));
        for imm in [24, -1, i32::MIN, i32::MAX] {
            assert!(matches!(only(imm), Err(LinkCause::NoMap { .. })), "{imm}: {:?}", only(imm));
        }
        // Functions: a subprogram starts at 16.
        let text = [Insn::mov64_imm(0, 1), Insn::exit()].repeat(2);
        let text = Section::progbits(".text", SHF_ALLOC | SHF_EXECINSTR, encode(&text, endian));
        let file = |imm| {
            let mut file = by_section_symbol(endian, &text, &[("one", 0, 16), ("two", 16, 16)], imm);
            // Objects among the symbols become functions: their type is the low half of a byte in each entry.
            let section = corelo_tests::elf_reader::section_data(&file, ".symtab").unwrap();
            let at = section.as_ptr().addr() - file.as_ptr().addr();
            let end = at + section.len();
            for entry in (at..end).step_by(24) {
                if file[entry + 4] & 15 == 1 {
                    file[entry + 4] += 1;
                }
            }
            file
        };
        let link = |imm| {
            with_prepared(&file(imm), |prepared, arena| {
                let prepared = prepared.unwrap();
                let (number, _) = prepared.declared().programs().next().unwrap();
                let linked = prepared.program(number, arena).map_err(|error| error.cause)?;
                let function = linked.placements[1].function;
                let function = prepared.declared().function(function).unwrap();
                Ok(String::from_utf8_lossy(prepared.function_name(function)).into_owned())
            })
        };
        assert_eq!(link(0), Ok("one".to_owned()));
        assert_eq!(link(16), Ok("two".to_owned()));
        for imm in [1, 8, 15, 17, 23, 32, -8] {
            assert!(matches!(link(imm), Err(LinkCause::NoFunction { .. })), "{imm}: {:?}", link(imm));
        }
    }
}

#[test]
fn an_extern_with_an_offset_is_refused() {
    for endian in Endian::BOTH {
        let build = |imm| {
            let mut object = ObjectBuilder::new(endian);
            let int = object.btf.int("int", 4, IntEncoding::Signed);
            let var = object.btf.var("LINUX_KERNEL_VERSION", int, 2);
            object.btf.datasec(".kconfig", 4, &[(var, 0, 4)]);
            let mut insns = Insn::ld_imm64(1, 0, 0).to_vec();
            insns[0].imm = imm;
            insns.extend([Insn::mov64_imm(0, 0), Insn::exit()]);
            object.program("socket", "program", &insns).load_symbol("program", 0, "LINUX_KERNEL_VERSION");
            object.build()
        };
        assert_eq!(references(&build(0)).remove(0).1, Ok((".kconfig".to_owned(), 0)));
        assert!(matches!(references(&build(4)).remove(0).1, Err(LinkCause::SymbolOffset { .. })));
    }
}

/// Definitions of these words, with a struct of these members in the BTF, if any.
fn definitions(endian: Endian, members: &[&str], maps: &[(&str, &[u32])]) -> Vec<u8> {
    let mut object = ObjectBuilder::new(endian);
    object.program("socket", "program", &[Insn::mov64_imm(0, 0), Insn::exit()]);
    if !members.is_empty() {
        let word = object.btf.int("unsigned int", 4, IntEncoding::Unsigned);
        let members: Vec<_> =
            members.iter().enumerate().map(|(at, name)| Member::at(name, word, at as u32 * 4)).collect();
        let size = members.len() as u32 * 4;
        let definition = object.btf.struct_("definition", size, &members);
        // As aya's are: within another struct.
        let wrapped = object.btf.struct_("Map", size, &[Member::at("def", definition, 0)]);
        let vars: Vec<_> =
            maps.iter().map(|(name, words)| (object.btf.var(name, wrapped, 1), 0, words.len() as u32 * 4)).collect();
        object.btf.datasec("maps", size * maps.len() as u32, &vars);
    }
    for (name, words) in maps {
        object.legacy_map(name, words);
    }
    object.build()
}

const SAMPLES: [&str; 7] = ["type", "key_size", "value_size", "max_entries", "map_flags", "inner_map_idx", "numa_node"];
const AYA: [&str; 7] = ["type", "key_size", "value_size", "max_entries", "map_flags", "id", "pinning"];
const IPROUTE2: [&str; 9] =
    ["type", "size_key", "size_value", "max_elem", "flags", "id", "pinning", "inner_id", "inner_idx"];

fn refused(file: &[u8]) -> (u32, u32) {
    with_prepared(file, |prepared, _| match prepared.map(|_| ()) {
        Err(PrepareError::Object(error @ ObjectError::LegacyMapWord { word, value, .. })) => {
            let said = error.to_string();
            assert!(said.contains("inner_map_idx") && said.contains("iproute2"), "{said}");
            (word, value)
        }
        other => panic!("{other:?}"),
    })
}

#[test]
fn words_beyond_five_count_only_where_btf_names_them() {
    const NUMA: u32 = 4;
    for endian in Endian::BOTH {
        let one = |members: &[&str], words: &[u32]| definitions(endian, members, &[("map", words)]);
        // All of a word's names that are known, and no names: the word counts, or the object is refused.
        let numa = [1, 4, 8, 4, NUMA, 0, 1];
        with_prepared(&one(&SAMPLES, &numa), |prepared, _| {
            let map = prepared.unwrap().maps()[0];
            assert_eq!((map.numa_node, map.pinning()), (1, Pinning::None));
        });
        with_prepared(&one(&AYA, &numa), |prepared, _| {
            let map = prepared.unwrap().maps()[0];
            assert_eq!((map.numa_node, map.pinning()), (0, Pinning::ByName));
        });
        assert_eq!(refused(&one(&[], &numa)), (6, 1));
        assert_eq!(refused(&one(&AYA, &[1, 4, 8, 4, 0, 0, 2])), (6, 2));
        assert_eq!(refused(&one(&AYA, &[1, 4, 8, 4, 0, 7, 0])), (5, 7));
        assert_eq!(refused(&one(&IPROUTE2, &[2, 4, 8, 4, 0, 0, 2, 0, 0])), (6, 2));
        // iproute2's older layout is as long as aya's, and by its names it is not aya's.
        assert_eq!(refused(&one(&IPROUTE2[..7], &[2, 4, 8, 4, 0, 0, 1])), (6, 1));
        assert_eq!(refused(&one(&SAMPLES, &[1, 4, 8, 4, 0, 77, 0])), (5, 77));
        assert_eq!(refused(&one(&[], &[1, 4, 8, 4, 0, 0, 0, 0, 3])), (8, 3));
        // Zeros are no words.
        with_prepared(&one(&[], &[1, 4, 8, 4, 0, 0, 0, 0, 0]), |prepared, _| {
            assert_eq!(prepared.unwrap().maps().len(), 1);
        });
    }
}

#[test]
fn the_inner_map_of_a_legacy_definition_is_the_one_of_its_index() {
    for endian in Endian::BOTH {
        let inner: &[u32] = &[1, 4, 8, 4, 0, 0, 0];
        let of = |index: u32| [12, 4, 4, 4, 0, index, 0];
        let build = |index| definitions(endian, &SAMPLES, &[("first", inner), ("outer", &of(index)), ("third", inner)]);
        for index in [0, 2] {
            with_prepared(&build(index), |prepared, _| {
                assert_eq!(prepared.unwrap().maps()[1].inner(), Some(MapId::new(index)));
            });
        }
        // Itself, and none.
        assert_eq!(refused(&build(1)), (5, 1));
        assert_eq!(refused(&build(3)), (5, 3));
        assert_eq!(refused(&build(u32::MAX)), (5, u32::MAX));
    }
}

#[test]
fn definitions_of_two_lengths_share_a_section() {
    for endian in Endian::BOTH {
        let file = definitions(endian, &[], &[("short", &[2, 4, 8, 1, 0]), ("long", &[1, 4, 8, 2, 0, 0, 0])]);
        with_prepared(&file, |prepared, _| {
            let maps = prepared.unwrap().maps();
            assert_eq!(maps.iter().map(|map| (map.map_type, map.max_entries)).collect::<Vec<_>>(), [(2, 1), (1, 2)]);
        });
        let file = definitions(endian, &[], &[("short", &[2, 4, 8, 1])]);
        with_prepared(&file, |prepared, _| {
            assert!(matches!(prepared.map(|_| ()), Err(PrepareError::Object(ObjectError::BadLegacyMaps { .. }))));
        });
    }
}

#[test]
fn a_slot_is_filled_with_what_its_pointer_leads_to() {
    // `.maps` in the file holds the distance from the symbol of its section.
    for endian in Endian::BOTH {
        let build = |addend: u64| {
            let mut object = ObjectBuilder::new(endian);
            let int = object.btf.int("int", 4, IntEncoding::Signed);
            let number = |object: &mut ObjectBuilder, value| {
                let array = object.btf.array(int, int, value);
                object.btf.ptr(array)
            };
            let (hash, array_of_maps, four) = (number(&mut object, 1), number(&mut object, 12), number(&mut object, 4));
            let plain = [("type", hash), ("key_size", four), ("value_size", four), ("max_entries", four)];
            let plain: Vec<_> =
                plain.iter().zip([0, 8, 16, 24]).map(|(&(name, ty), at)| Member::at(name, ty, at)).collect();
            let inner = object.btf.struct_("", 32, &plain);
            let to_inner = object.btf.ptr(inner);
            let values = object.btf.array(to_inner, int, 0);
            let members = [
                Member::at("type", array_of_maps, 0),
                Member::at("key_size", four, 8),
                Member::at("max_entries", four, 16),
                Member::at("values", values, 24),
            ];
            let outer = object.btf.struct_("", 24, &members);
            let vars = [("one", inner, 0), ("two", inner, 32), ("outer", outer, 64)]
                .map(|(name, ty, at)| (object.btf.var(name, ty, 1), at, 32));
            object.btf.datasec(".maps", 96, &vars);
            let mut elf = ElfBuilder::new(endian);
            let mut data = vec![0; 96];
            data[88..].copy_from_slice(&endian.u64(addend));
            let maps = elf.section(Section::progbits(".maps", SHF_ALLOC | SHF_WRITE, data));
            for (name, at) in [("one", 0), ("two", 32), ("outer", 64)] {
                elf.symbol(Symbol::global(name, maps, at, 32, SymType::Object));
            }
            let section = Symbol { bind: Bind::Local, ..Symbol::global("", maps, 0, 0, SymType::Section) };
            let section = elf.symbol(section);
            elf.relocation(maps, 88, section, R_BPF_64_ABS64);
            elf.section(Section::progbits(".BTF", 0, object.btf.build()));
            elf.build()
        };
        let slot = |addend| {
            with_prepared(&build(addend), |prepared, _| {
                let slots: Result<Vec<_>, _> = prepared?.slots().collect();
                Ok::<_, PrepareError>(slots?[0])
            })
        };
        use corelo_core::object::SlotTarget::Map;
        let number = |addend| match slot(addend).unwrap().target {
            Map(id) => id.get(),
            other => panic!("{other:?}"),
        };
        assert_eq!((number(0), number(32)), (0, 1));
        for addend in [1, 31, 33, 96, u64::MAX] {
            assert!(matches!(slot(addend), Err(PrepareError::Object(ObjectError::BadSlot { .. }))), "{addend}");
        }
    }
}

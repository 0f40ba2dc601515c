//! The support code checked: what it builds is read back by other tools, or byte by byte.

use std::process::Command;

use corelo_tests::btf_builder::{BtfBuilder, IntEncoding, KindLayout, Member, kind};
use corelo_tests::btf_ext_builder::{BtfExtBuilder, CoreReloRecord, LineRecord};
use corelo_tests::corpus::{CoreStatus, corpus};
use corelo_tests::elf_builder::{Bind, R_BPF_64_32, R_BPF_64_64, Section};
use corelo_tests::elf_reader::{ElfFile, section_data};
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::{fixture, fixtures};
use corelo_tests::insn::{Insn, Width, decode, encode, without_references};
use corelo_tests::kernel;
use corelo_tests::object_builder::{MapDef, ObjectBuilder};

/// Whether a test may be skipped is for [`kernel`] alone to say, which knows what every kernel has.
#[test]
fn tests_are_skipped_by_one_helper() {
    fn look(dir: &std::path::Path, files: &mut usize, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    look(&path, files, found);
                }
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                *files += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                // In two halves, so that this file is none of them.
                for words in [concat!("\"CORELO_REQUIRE_", "KERNEL\""), concat!("println!(\"skip", "ped")] {
                    if text.contains(words) {
                        found.push(format!("{}: {words}", path.display()));
                    }
                }
            }
        }
    }
    let root = corelo_tests::corpus::workspace_root();
    let (mut files, mut found) = (0, Vec::new());
    for dir in ["core", "std-loader", "targets", "tests/tests"] {
        look(&root.join(dir), &mut files, &mut found);
    }
    assert!(files > 100, "{files} files");
    assert!(found.is_empty(), "{found:#?}");
}

/// One type of each kind, 1 to 19 and a few twice; returns the lines that bpftool prints for it.
fn every_kind(b: &mut BtfBuilder) -> Vec<&'static str> {
    let int = b.int("int", 4, IntEncoding::Signed);
    let ptr = b.ptr(int);
    b.array(int, int, 7);
    b.struct_("plain", 16, &[Member::at("a", int, 0), Member::at("b", ptr, 8)]);
    b.struct_("bits", 4, &[Member::bits("x", int, 0, 3), Member::bits("y", int, 3, 29)]);
    b.union_("u", 8, &[Member::at("i", int, 0), Member::at("p", ptr, 0)]);
    b.enum_("e", 4, true, &[("MINUS", -1), ("ONE", 1)]);
    b.fwd("later", true);
    b.typedef("alias", int);
    b.volatile(int);
    b.const_(int);
    b.restrict(ptr);
    let proto = b.func_proto(int, &[("first", int), ("second", ptr)]);
    b.func("f", proto, 1);
    let var = b.var("v", int, 1);
    b.datasec(".data", 4, &[(var, 0, 4)]);
    b.float("double", 8);
    b.decl_tag("mark", 4, 1, false);
    b.type_tag("user", int, false);
    b.enum64("big", false, &[("HUGE", 0x1_0000_0002)]);
    vec![
        "[1] INT 'int' size=4 bits_offset=0 nr_bits=32 encoding=SIGNED",
        "[2] PTR '(anon)' type_id=1",
        "[3] ARRAY '(anon)' type_id=1 index_type_id=1 nr_elems=7",
        "[4] STRUCT 'plain' size=16 vlen=2",
        "\t'a' type_id=1 bits_offset=0",
        "\t'b' type_id=2 bits_offset=64",
        "[5] STRUCT 'bits' size=4 vlen=2",
        "\t'x' type_id=1 bits_offset=0 bitfield_size=3",
        "\t'y' type_id=1 bits_offset=3 bitfield_size=29",
        "[6] UNION 'u' size=8 vlen=2",
        "\t'i' type_id=1 bits_offset=0",
        "\t'p' type_id=2 bits_offset=0",
        "[7] ENUM 'e' encoding=SIGNED size=4 vlen=2",
        "\t'MINUS' val=-1",
        "\t'ONE' val=1",
        "[8] FWD 'later' fwd_kind=union",
        "[9] TYPEDEF 'alias' type_id=1",
        "[10] VOLATILE '(anon)' type_id=1",
        "[11] CONST '(anon)' type_id=1",
        "[12] RESTRICT '(anon)' type_id=2",
        "[13] FUNC_PROTO '(anon)' ret_type_id=1 vlen=2",
        "\t'first' type_id=1",
        "\t'second' type_id=2",
        "[14] FUNC 'f' type_id=13 linkage=global",
        "[15] VAR 'v' type_id=1, linkage=global",
        "[16] DATASEC '.data' size=4 vlen=1",
        "\ttype_id=15 offset=0 size=4 (VAR 'v')",
        "[17] FLOAT 'double' size=8",
        "[18] DECL_TAG 'mark' type_id=4 component_idx=1",
        "[19] TYPE_TAG 'user' type_id=1",
        "[20] ENUM64 'big' encoding=UNSIGNED size=8 vlen=1",
        "\t'HUGE' val=4294967298ULL",
    ]
}

#[test]
fn bpftool_reads_every_kind_in_both_orders() {
    if !kernel::has_bpftool() {
        kernel::skip("compare built BTF with bpftool's dump", "bpftool is not installed");
        return;
    }
    for endian in Endian::BOTH {
        let mut b = BtfBuilder::new(endian);
        let wanted = every_kind(&mut b);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b.build()).unwrap();
        let path = file.path().to_str().unwrap();
        let dump = kernel::bpftool_plain(&["btf", "dump", "file", path, "format", "raw"]).unwrap();
        assert_eq!(dump.lines().collect::<Vec<_>>(), wanted, "{endian:?}");

        let mut split = b.split_on();
        let own = split.struct_("own", 4, &[Member::at("a", 1, 0)]);
        assert_eq!(own, 21);
        let split_file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(split_file.path(), split.build()).unwrap();
        let split_path = split_file.path().to_str().unwrap();
        let dump = kernel::bpftool_plain(&["-B", path, "btf", "dump", "file", split_path, "format", "raw"]).unwrap();
        assert_eq!(dump, "[21] STRUCT 'own' size=4 vlen=1\n\t'a' type_id=1 bits_offset=0\n", "{endian:?}");
    }
}

/// A walk over the types with the layout section alone must end where the types do: checks the rows and the words of each kind.
#[test]
fn the_layout_section_steps_over_every_kind() {
    for endian in Endian::BOTH {
        let mut b = BtfBuilder::new(endian);
        let types = every_kind(&mut b).iter().filter(|line| line.starts_with('[')).count();
        b.wide_info();
        b.raw(100, "unknown", 3, true, 9, &[1, 2, 3, 4]);
        let mut rows = KindLayout::known();
        rows.resize(101, KindLayout::default());
        rows[100] = KindLayout::new(4, 4);
        b.layout(rows);
        let bytes = b.build();
        let word = |offset: usize| endian.read_u32(&bytes, offset).unwrap() as usize;
        assert_eq!(word(4), 32);
        let (type_len, str_off, str_len) = (word(12), word(16), word(20));
        let (layout_off, layout_len) = (word(24), word(28));
        assert_eq!((layout_off, layout_len), (type_len, 101 * 4));
        assert_eq!(str_off, type_len + layout_len);
        assert_eq!(bytes.len(), 32 + str_off + str_len);

        let (mut at, mut seen) = (32, 0);
        while at < 32 + type_len {
            let info = word(at + 4);
            let row = 32 + layout_off + (info >> 24 & 0x7f) * 4;
            at += 12 + usize::from(bytes[row]) + usize::from(bytes[row + 1]) * (info & 0x00ff_ffff);
            seen += 1;
        }
        assert_eq!((at, seen), (32 + type_len, types + 1));
    }
}

#[test]
fn header_tail_and_wide_vlen() {
    let mut b = BtfBuilder::new(Endian::Little);
    b.header_tail(&[0, 0, 0, 0, 0, 0, 0, 7]);
    b.wide_info();
    let int = b.int("int", 4, IntEncoding::Signed);
    let members: Vec<Member<'_>> = (0..70_000).map(|i| Member::at("", int, i * 4)).collect();
    b.struct_("wide", 280_000, &members);
    let bytes = b.build();
    assert_eq!(bytes[4], 40);
    assert_eq!(bytes[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    let info = Endian::Little.read_u32(&bytes, 40 + 16 + 4).unwrap();
    assert_eq!((info & 0x00ff_ffff, info >> 24), (70_000, u32::from(kind::STRUCT)));
}

#[test]
#[should_panic(expected = "needs wide_info()")]
fn classic_info_refuses_a_wide_vlen() {
    BtfBuilder::new(Endian::Little).raw(kind::STRUCT, "s", 65_536, false, 0, &[]);
}

#[test]
fn a_type_can_name_itself_and_be_changed_later() {
    let mut b = BtfBuilder::new(Endian::Big);
    let own = b.next_id();
    assert_eq!(b.typedef("ring", own), own);
    assert_eq!(Endian::Big.read_u32(&b.build(), 24 + 8), Some(own));
    b.set_size_or_type(own, 77);
    assert_eq!(Endian::Big.read_u32(&b.build(), 24 + 8), Some(77));
}

#[test]
fn btf_ext_keeps_record_sizes() {
    for endian in Endian::BOTH {
        let mut ext = BtfExtBuilder::new(endian);
        ext.header_len(40).record_sizes(12, 16, 24);
        ext.func_info(1, &[(0, 9)]);
        ext.line_info(1, &[LineRecord { insn_off: 0, file_name_off: 2, line_off: 3, line_col: 1 << 10 | 4 }]);
        ext.core_relo(1, &[CoreReloRecord { insn_off: 8, type_id: 5, access_str_off: 6, kind: 2 }; 2]);
        let bytes = ext.build();
        let word = |offset: usize| endian.read_u32(&bytes, offset).unwrap();
        // hdr_len, then offset and length of func_info, line_info, core_relo
        let header: Vec<u32> = (1..8).map(|i| word(i * 4)).collect();
        assert_eq!(header, [40, 0, 24, 24, 28, 52, 60]);
        let core: Vec<u32> = (0..15).map(|i| word(40 + 52 + i * 4)).collect();
        assert_eq!(core, [24, 1, 2, 8, 5, 6, 2, 0, 0, 8, 5, 6, 2, 0, 0]);
        assert_eq!(bytes.len(), 40 + 52 + 60);
    }
}

#[test]
fn insns_read_back_and_have_the_known_bytes() {
    // *(u32 *)(r1 + 0x10) into r2, and a call: as llvm-mc gives them for bpfel and bpfeb.
    let load = Insn::ldx(Width::W, 2, 1, 0x10);
    assert_eq!(load.bytes(Endian::Little), [0x61, 0x12, 0x10, 0, 0, 0, 0, 0]);
    assert_eq!(load.bytes(Endian::Big), [0x61, 0x21, 0, 0x10, 0, 0, 0, 0]);
    let [low, high] = Insn::ld_imm64(3, 1, 0xffff_fffe_8000_0001);
    assert_eq!((low.imm, high.imm), (i32::MIN + 1, -2));
    let insns = [load, low, high, Insn::call_bpf(-1), Insn::st(Width::Dw, 10, -8, 5), Insn::exit()];
    for endian in Endian::BOTH {
        assert_eq!(decode(&encode(&insns, endian), endian), insns);
    }
}

#[test]
fn references_are_taken_out_and_nothing_else() {
    let program = |map, offset: u64, variable, kfunc, module| {
        let [a, b] = Insn::ld_imm64(1, 1, map);
        let [c, d] = Insn::ld_imm64(2, 2, offset << 32 | map);
        let [e, f] = Insn::ld_imm64(3, 3, variable);
        let [g, h] = Insn::ld_imm64(4, 0, 0x1_0000_0001);
        vec![a, b, c, d, e, f, g, h, Insn::new(0x85, 0, 2, module, kfunc), Insn::call_helper(5), Insn::call_bpf(3)]
    };
    for endian in Endian::BOTH {
        let taken = |insns: &[Insn]| without_references(&encode(insns, endian), endian);
        let zeroed = encode(&program(0, 8, 0, 0, 0), endian);
        assert_eq!(taken(&program(7, 8, 0x5_0000_0004, 99, 2)), zeroed);
        assert_ne!(taken(&program(7, 16, 0, 0, 0)), zeroed, "the offset in a map value stays");
    }
}

/// An object with everything the builder can put into one.
fn full_object(endian: Endian) -> Vec<u8> {
    let mut object = ObjectBuilder::new(endian);
    let int = object.btf.int("int", 4, IntEncoding::Signed);
    let task = object.btf.struct_("task_struct", 8, &[Member::at("a", int, 0), Member::at("pid", int, 4)]);
    let [low, high] = Insn::ld_imm64(1, 0, 0);
    object.program("socket", "first", &[Insn::mov64_imm(0, 4), low, high, Insn::call_bpf(-1), Insn::exit()]);
    object.program("socket", "second", &[Insn::mov64_imm(0, 4), Insn::exit()]);
    object.function(".text", "helper", Bind::Local, true, &[Insn::mov64_imm(0, 0), Insn::exit()]);
    object.core_relo("first", 0, task, "0:1", 0).core_relo("second", 0, task, "0:1", 0);
    object.map_def(MapDef { name: "table", map_type: 1, key_size: 4, value_size: 8, max_entries: 16 });
    object.load_symbol("first", 1, "table").call_symbol("first", 3, "helper");
    object.data_section(Section::progbits(".rodata", 2, vec![1, 2, 3, 4]), "constant");
    object.build()
}

#[test]
fn objects_read_back() {
    for endian in Endian::BOTH {
        let bytes = full_object(endian);
        let elf = ElfFile::parse(&bytes).unwrap();
        assert_eq!(elf.endian, endian);
        let names: Vec<&str> = elf.sections.iter().map(|s| s.name).collect();
        let wanted = [
            "",
            "socket",
            ".text",
            ".maps",
            ".rodata",
            "license",
            ".BTF",
            ".BTF.ext",
            ".relsocket",
            ".symtab",
            ".strtab",
        ];
        assert_eq!(names, wanted);
        assert_eq!(section_data(&bytes, "license"), Some(&b"GPL\0"[..]));
        let symbols = elf.symbols();
        let first = symbols.iter().find(|s| s.name == "first").unwrap();
        let second = symbols.iter().find(|s| s.name == "second").unwrap();
        assert_eq!((first.value, first.size, second.value, second.size), (0, 40, 40, 16));
        assert_eq!(symbols[1].name, "helper", "local symbols come first");
        let relocations = elf.relocations(1);
        let named: Vec<_> = relocations.iter().map(|r| (r.offset, symbols[r.symbol as usize].name, r.r_type)).collect();
        assert_eq!(named, [(8, "table", R_BPF_64_64), (24, "helper", R_BPF_64_32)]);
        let btf = section_data(&bytes, ".BTF").unwrap();
        assert_eq!(endian.read_u16(btf, 0), Some(0xeb9f));
    }
}

#[test]
fn other_tools_read_built_objects() {
    let Ok(version) = Command::new("llvm-readelf-19").arg("--version").output() else {
        return kernel::skip("read built objects with llvm-readelf-19", "it is not installed");
    };
    assert!(version.status.success());
    for endian in Endian::BOTH {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), full_object(endian)).unwrap();
        let out = Command::new("llvm-readelf-19").args(["-S", "-s", "-r"]).arg(file.path()).output().unwrap();
        let (text, warnings) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() && warnings.is_empty(), "{endian:?}: {warnings}");
        for wanted in ["R_BPF_64_64", "R_BPF_64_32", "table", "helper", ".BTF.ext"] {
            assert!(text.contains(wanted), "{endian:?}: no {wanted} in {text}");
        }
    }
}

#[test]
fn compiled_fixtures_read_back() {
    for endian in Endian::BOTH {
        let fixture = fixture("many_progs", endian);
        let bytes = fixture.read();
        let elf = ElfFile::parse(&bytes).unwrap();
        assert_eq!(elf.endian, endian);
        let functions = elf.symbols().iter().filter(|s| s.sym_type == 2 && s.bind == 1).count();
        assert_eq!(functions, 30, "programs in {}", fixture.path.display());
        assert!(elf.section(".BTF.ext").is_some());
    }
    for fixture in fixtures() {
        let bytes = fixture.read();
        let elf = ElfFile::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", fixture.path.display()));
        assert_eq!(elf.endian, fixture.endian, "{}", fixture.path.display());
        if let Some(target) = fixture.read_target() {
            assert_eq!(fixture.endian.read_u16(&target, 0), Some(0xeb9f), "{}", fixture.path.display());
        }
    }
}

#[test]
fn the_corpus_unpacks_and_its_tables_parse() {
    let Some(corpus) = corpus() else { return };
    let objects = corpus.objects();
    let verdicts = corpus.verdicts();
    let named: Vec<&str> = verdicts.iter().map(|row| row.object.as_str()).collect();
    assert!(objects.iter().all(|object| named.contains(&object.as_str())) && objects.len() == named.len());
    for object in &objects {
        let bytes = corpus.read(object);
        let elf = ElfFile::parse(&bytes).unwrap_or_else(|error| panic!("{object}: {error}"));
        let row = verdicts.iter().find(|row| row.object == *object).unwrap();
        assert_eq!(row.endian, if elf.endian == Endian::Little { "LE" } else { "BE" }, "{object}");
    }
    assert!(corpus.programs().len() > 1_000 && corpus.maps().iter().any(|row| row.flags == 0x80));

    for kernel in corpus.kernels() {
        let btf = kernel.btf();
        assert_eq!(kernel.endian().read_u16(&btf, 0), Some(0xeb9f), "{}", kernel.name);
        for module in kernel.modules() {
            let btf = kernel.module_btf(&module);
            assert_eq!(kernel.endian().read_u16(&btf, 0), Some(0xeb9f), "{} {module}", kernel.name);
        }
        for (module, split, base) in kernel.distilled() {
            assert!(!split.is_empty() && !base.is_empty(), "{} {module}", kernel.name);
        }
    }
    let mut rows = 0;
    for table in corpus.core_tables() {
        for row in corpus.core_rows(&table) {
            rows += 1;
            // The poison is a call of helper 0xbad2310 in every slot.
            let poisoned = row.target_insn.chunks(8).all(|slot| slot == [0x85, 0, 0, 0, 0x10, 0x23, 0xad, 0x0b]);
            assert_eq!(poisoned, row.status == CoreStatus::Poison, "{table}: {row:?}");
            assert!(matches!(row.local_insn.len(), 8 | 16), "{table}: {row:?}");
        }
    }
    println!("{} objects, {rows} CO-RE rows in {} tables", objects.len(), corpus.core_tables().len());
    assert!(rows > 20_000);
}

#[test]
fn fds_shows_what_is_open() {
    let before = kernel::fds();
    let file = tempfile::NamedTempFile::new().unwrap();
    let name = file.path().to_string_lossy().into_owned();
    assert!(!before.contains(&name) && kernel::fds().contains(&name));
}

#[test]
fn bpftool_answers_in_json_where_the_kernel_allows() {
    if !kernel::require_kernel("list programs with bpftool") {
        return;
    }
    if !kernel::has_bpftool() {
        kernel::skip("list programs with bpftool", "bpftool is not installed");
        return;
    }
    let list: serde_json::Value = serde_json::from_str(&kernel::bpftool(&["prog", "list"]).unwrap()).unwrap();
    assert!(list.is_array());
    assert!(kernel::bpftool(&["prog", "show", "id", "4294967295"]).is_err());
}

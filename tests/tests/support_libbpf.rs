//! The wrapper around libbpf checked, on fixtures, on built objects and on the corpus.

use corelo_tests::btf_builder::{BtfBuilder, IntEncoding, Member};
use corelo_tests::corpus::{CoreStatus, corpus};
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixture;
use corelo_tests::insn::{Insn, Width, decode};
use corelo_tests::kernel;
use corelo_tests::libbpf::{self, Autoload, LogStatus, Options, Stage};
use corelo_tests::object_builder::{MapDef, ObjectBuilder};

#[test]
fn opens_without_privilege() {
    for endian in Endian::BOTH {
        let options = Options { stage: Stage::Open, ..Options::default() };
        let outcome = libbpf::run(&fixture("many_progs", endian).path, &options).unwrap();
        assert_eq!((outcome.programs.len(), outcome.failed.as_deref()), (30, None));
        assert!(outcome.programs.iter().all(|program| program.prog_type == 2 && program.autoload), "kprobes");
        assert!(!outcome.maps.is_empty() && outcome.programs.iter().all(|program| !program.insns.is_empty()));
    }
    let error = libbpf::run("absent.o".as_ref(), &Options::default()).unwrap_err();
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn prepares_many_progs_against_the_running_kernel() {
    if !kernel::require_kernel("prepare many_progs with libbpf") {
        return;
    }
    // libbpf prepares the other byte order too, though it refuses to load it; its instructions are in the machine's order.
    let mut both = Vec::new();
    for endian in Endian::BOTH {
        let outcome = libbpf::open_and_prepare(&fixture("many_progs", endian).path, None).unwrap();
        assert_eq!(outcome.failed, None, "{}", outcome.log);
        let relos = outcome.core_relos();
        assert_eq!(relos.len(), 90, "three relocations in each program");
        for relo in &relos {
            assert!(matches!(relo.status, LogStatus::Patched { .. }), "{relo:?}");
            assert!(relo.candidates.iter().any(|c| c.matching), "{relo:?}");
        }
        let values = |relo: &libbpf::ReloLog| (relo.program.clone(), relo.relo_idx, relo.status.clone());
        both.push(relos.iter().map(values).collect::<Vec<_>>());
    }
    assert_eq!(both[0], both[1], "values do not depend on the object's byte order");
}

#[test]
fn prepares_a_built_object_against_built_btf() {
    if !kernel::require_kernel("prepare a built object with libbpf") {
        return;
    }
    let mut object = ObjectBuilder::new(Endian::native());
    let int = object.btf.int("int", 4, IntEncoding::Signed);
    let task = object.btf.struct_("task_struct", 8, &[Member::at("a", int, 0), Member::at("pid", int, 4)]);
    let uint = object.btf.int("unsigned int", 4, IntEncoding::Unsigned);
    let sized = object.btf.struct_("sized", 4, &[Member::at("n", uint, 0)]);
    let gone = object.btf.struct_("gone", 4, &[Member::at("g", int, 0)]);
    let insns = [
        Insn::mov64_imm(0, 4),
        Insn::ldx(Width::W, 2, 1, 0),
        Insn::mov64_imm(3, 0),
        Insn::mov64_imm(4, 1),
        Insn::mov64_imm(0, 0),
        Insn::exit(),
    ];
    object.program("socket", "prog", &insns);
    object.core_relo("prog", 0, task, "0:1", 0);
    object.core_relo("prog", 1, sized, "0:0", 0);
    object.core_relo("prog", 2, gone, "0:0", 0);
    object.core_relo("prog", 3, gone, "0", 8);
    object.map_def(MapDef { name: "table", map_type: 1, key_size: 4, value_size: 8, max_entries: 16 });

    let mut target = BtfBuilder::new(Endian::native());
    let int = target.int("int", 4, IntEncoding::Signed);
    let ulong = target.int("unsigned long", 8, IntEncoding::Unsigned);
    target.struct_("task_struct", 24, &[Member::at("pid", int, 20), Member::at("a", int, 0)]);
    target.struct_("sized", 16, &[Member::at("n", ulong, 8)]);

    let dir = tempfile::tempdir().unwrap();
    let (object_path, btf_path) = (dir.path().join("built.o"), dir.path().join("built.btf"));
    std::fs::write(&object_path, object.build()).unwrap();
    std::fs::write(&btf_path, target.build()).unwrap();
    let outcome = libbpf::open_and_prepare(&object_path, Some(&btf_path)).unwrap();
    assert_eq!(outcome.failed, None, "{}", outcome.log);
    assert_eq!(outcome.maps.len(), 1);
    assert_eq!((outcome.maps[0].key_size, outcome.maps[0].value_size, outcome.maps[0].max_entries), (4, 8, 16));

    let got = decode(&outcome.program("prog").unwrap().insns, Endian::native());
    let poison = Insn::call_helper(0x0bad_2310);
    let wanted = [
        Insn::mov64_imm(0, 20),
        Insn::ldx(Width::Dw, 2, 1, 8),
        poison,
        Insn::mov64_imm(4, 0),
        Insn::mov64_imm(0, 0),
        Insn::exit(),
    ];
    assert_eq!(got, wanted);

    let relos = outcome.core_relos();
    let statuses: Vec<&LogStatus> = relos.iter().map(|relo| &relo.status).collect();
    let wanted = [
        &LogStatus::Patched { local_value: 4, target_value: 20, mem_size: None },
        &LogStatus::Patched { local_value: 0, target_value: 8, mem_size: Some((4, 8)) },
        &LogStatus::Poisoned,
        &LogStatus::Patched { local_value: 1, target_value: 0, mem_size: None },
    ];
    assert_eq!(statuses, wanted);
    let kinds: Vec<&str> = relos.iter().map(|relo| relo.kind.as_str()).collect();
    assert_eq!(kinds, ["byte_off", "byte_off", "byte_off", "type_exists"]);
    assert_eq!(relos[0].candidates[0].target_id, 3);

    let skip = Options {
        custom_btf: Some(btf_path),
        autoload: Autoload::Without(vec!["prog".to_owned()]),
        ..Options::default()
    };
    let skipped = libbpf::run(&object_path, &skip).unwrap();
    assert_eq!(decode(&skipped.program("prog").unwrap().insns, Endian::native()), insns);
}

#[test]
fn loads_what_the_kernel_takes_and_reads_it_back() {
    if !kernel::require_kernel("load nothing_asked with libbpf") {
        return;
    }
    if !kernel::has_bpftool() {
        kernel::skip("read loaded programs back", "bpftool is not installed");
        return;
    }
    let options = Options { stage: Stage::Load, xlated: true, ..Options::default() };
    let outcome = libbpf::run(&fixture("nothing_asked", Endian::Little).path, &options).unwrap();
    assert_eq!(outcome.failed, None, "{}", outcome.log);
    assert!(!outcome.programs.is_empty());
    for program in &outcome.programs {
        let xlated = decode(program.xlated.as_deref().unwrap(), Endian::native());
        assert_eq!(xlated.last(), Some(&Insn::exit()), "{}", program.name);
    }
}

/// libbpf stops at the first relocation that fails, so each faulty program is prepared alone.
#[test]
fn the_log_tells_failures_apart() {
    if !kernel::require_kernel("prepare faulty objects with libbpf") {
        return;
    }
    let mut object = ObjectBuilder::new(Endian::native());
    let int = object.btf.int("int", 4, IntEncoding::Signed);
    let twice = object.btf.struct_("twice", 8, &[Member::at("a", int, 0), Member::at("b", int, 4)]);
    let anonymous = object.btf.struct_("", 4, &[Member::at("a", int, 0)]);
    for (name, type_id, access, imm) in [
        ("ambiguous", twice, "0:1", 4),
        ("past_the_end", twice, "0:2", 0),
        ("wrong_value", twice, "0:0", 3),
        ("nameless", anonymous, "0:0", 0),
    ] {
        let section = format!("socket/{name}");
        object.program(&section, name, &[Insn::mov64_imm(0, imm), Insn::exit()]);
        object.core_relo(name, 0, type_id, access, 0);
    }
    let mut target = BtfBuilder::new(Endian::native());
    let int = target.int("int", 4, IntEncoding::Signed);
    for offset in [4, 8] {
        target.struct_("twice", 12, &[Member::at("a", int, 0), Member::at("b", int, offset)]);
    }
    let dir = tempfile::tempdir().unwrap();
    let (object_path, btf_path) = (dir.path().join("faulty.o"), dir.path().join("faulty.btf"));
    std::fs::write(&object_path, object.build()).unwrap();
    std::fs::write(&btf_path, target.build()).unwrap();
    for (name, kind, wanted) in [
        ("ambiguous", "byte_off", "field offset ambiguity: 64 != 32"),
        ("past_the_end", "", "parsing [2] struct twice + 0:2 failed"),
        ("wrong_value", "byte_off", "value: got 3, exp 0 -> 0"),
        ("nameless", "", "target candidate search failed for [3] struct"),
    ] {
        let options = Options {
            custom_btf: Some(btf_path.clone()),
            autoload: Autoload::Only(vec![name.to_owned()]),
            ..Options::default()
        };
        let outcome = libbpf::run(&object_path, &options).unwrap();
        assert!(outcome.failed.is_some(), "{name}: {}", outcome.log);
        let relos = outcome.core_relos();
        assert_eq!(relos.len(), 1, "{name}: {}", outcome.log);
        assert_eq!((relos[0].program.as_str(), relos[0].kind.as_str()), (name, kind));
        let LogStatus::Failed(message) = &relos[0].status else { panic!("{name}: {:?}", relos[0]) };
        assert!(message.contains(wanted), "{name}: {message}");
    }
}

#[test]
fn names_every_section_definition() {
    let names = libbpf::section_definitions();
    assert!(names.len() > 80, "{names:?}");
    // BPF_PROG_TYPE_SOCKET_FILTER, _KPROBE and _XDP with BPF_XDP
    assert_eq!(libbpf::classify_section("socket").map(|(prog_type, _)| prog_type), Some(1));
    assert_eq!(libbpf::classify_section("kprobe/do_exit").map(|(prog_type, _)| prog_type), Some(2));
    assert_eq!(libbpf::classify_section("xdp"), Some((6, 37)));
    assert_eq!(libbpf::classify_section("nonsense"), None);
    let unknown: Vec<&String> = names
        .iter()
        .filter(|name| {
            let name = name.trim_end_matches('+');
            let target = if name.ends_with('/') { format!("{name}x") } else { name.to_owned() };
            libbpf::classify_section(&target).is_none()
        })
        .collect();
    assert!(unknown.is_empty(), "libbpf lists but does not know {unknown:?}");
}

/// libbpf's own log agrees with the oracle's rows, and so do the instructions: a few objects, one kernel.
#[test]
fn agrees_with_the_recorded_rows() {
    let Some(corpus) = corpus() else { return };
    if !kernel::require_kernel("prepare objects of the corpus with libbpf") {
        return;
    }
    let kernel = corpus.kernel("amd64-6.12.117");
    let rows = corpus.core_rows(&kernel.name);
    let mut compared = 0;
    let mut objects: Vec<&String> = rows.iter().map(|row| &row.object).collect();
    objects.dedup();
    for object in objects.into_iter().take(12) {
        let options = Options {
            custom_btf: Some(kernel.btf_path()),
            autoload: Autoload::All,
            size_maps: true,
            ..Options::default()
        };
        let Ok(outcome) = libbpf::run(&corpus.path(object), &options) else {
            println!("{object}: not opened");
            continue;
        };
        // In the object's order of records within a section, and libbpf's of sections: both lists follow .BTF.ext.
        for relo in outcome.core_relos() {
            let of_object = rows.iter().filter(|row| row.object == *object);
            let mut same = of_object.filter(|row| {
                row.program == relo.program && row.relo_idx == relo.relo_idx && Some(row.insn_idx) == relo.insn_idx
            });
            let Some(row) = same.next() else { panic!("{object}: no row for {relo:?}") };
            match (&relo.status, &row.status) {
                (LogStatus::Patched { target_value, .. }, CoreStatus::Ok) => {
                    assert_eq!(Some(*target_value), row.target_value, "{object}: {relo:?}");
                }
                (LogStatus::Poisoned, CoreStatus::Poison) => {}
                _ => panic!("{object}: {relo:?} against {row:?}"),
            }
            compared += 1;
        }
    }
    println!("{compared} relocations compared");
    assert!(compared > 50, "{compared}");
}

//! Modules that bring their own base (`.BTF.base`): put onto the kernel's BTF by every door that takes a module's file.

mod common;

use std::path::Path;

use common::{corelo, lines};
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding, Member};
use corelo_tests::elf_builder::{ElfBuilder, Section};
use corelo_tests::endian::Endian;
use corelo_tests::insn::Insn;
use corelo_tests::object_builder::ObjectBuilder;

/// A kernel in which nothing has the place that it has in the distilled base.
fn kernel(task_size: u32) -> BtfBuilder {
    let mut btf = BtfBuilder::new(Endian::Little);
    for name in ["one", "other", "third"] {
        btf.float(name, 8);
    }
    let int = btf.int("int", 4, IntEncoding::Signed);
    btf.struct_("task_struct", task_size, &[Member::at("pid", int, 4)]);
    btf
}

/// A module's file: `struct module_state { struct task_struct whole; ...; int count; }` on a distilled base, in ELF.
fn module(path: &Path) {
    let mut base = BtfBuilder::new(Endian::Little);
    let task = base.struct_("task_struct", 16, &[]);
    let int = base.int("int", 4, IntEncoding::Signed);
    let mut split = base.split_on();
    split.struct_("module_state", 32, &[Member::at("whole", task, 0), Member::at("count", int, 24)]);
    let mut elf = ElfBuilder::new(Endian::Little);
    elf.section(Section::progbits(".BTF", 0, split.build()));
    elf.section(Section::progbits(".BTF.base", 0, base.build()));
    std::fs::write(path, elf.build()).unwrap();
}

/// An object that asks where `count` is in `struct module_state`.
fn object(path: &Path) {
    let mut object = ObjectBuilder::new(Endian::Little);
    let int = object.btf.int("int", 4, IntEncoding::Signed);
    let state = object.btf.struct_("module_state", 8, &[Member::at("count", int, 0)]);
    object.program("kprobe/vfs_read", "program", &[Insn::mov64_imm(0, 0), Insn::exit()]);
    object.core_relo("program", 0, state, "0:0", 0);
    std::fs::write(path, object.build()).unwrap();
}

#[test]
fn a_module_with_a_base_of_its_own_is_put_onto_the_kernels() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (object_path, module_path) = (path("object.bpf.o"), path("module.ko"));
    let (fits, differs) = (path("fits.btf"), path("differs.btf"));
    object(Path::new(&object_path));
    module(Path::new(&module_path));
    std::fs::write(&fits, kernel(16).build()).unwrap();
    std::fs::write(&differs, kernel(8).build()).unwrap();
    let named = format!("module={module_path}");

    for way in [&[][..], &["--stream"], &["--read"]] {
        let run = corelo(&[&["relocs", &object_path, "--json", "--btf", &fits, "--module-btf", &named], way].concat());
        let rows = lines(&run.stdout);
        let row = rows.iter().find(|row| row["kind"] == "byte_off").unwrap_or_else(|| panic!("{run:?}"));
        assert_eq!(row["target_value"], 24, "{way:?}: {row}");
    }
    // The size that the module was built with is no longer that of the kernel's struct: refused in words.
    let run = corelo(&["relocs", &object_path, "--btf", &differs, "--module-btf", &named]);
    assert_ne!(run.code, 0, "{run:?}");
    assert!(run.stderr.contains(".BTF.base") && run.stderr.contains("none of its size"), "{run:?}");

    let dump = corelo(&["btf", "dump", &module_path, "--base", &fits]);
    assert!(dump.stdout.contains("'count' type_id=4 bits_offset=192"), "{dump:?}");
    assert!(dump.stdout.contains("'whole' type_id=5 bits_offset=0"), "{dump:?}");
    let dump = corelo(&["btf", "dump", &module_path, "--base", &differs]);
    assert_eq!(dump.code, 2, "{dump:?}");
    assert!(dump.stderr.contains(".BTF.base: base has types of the name"), "{dump:?}");
    // Without another base it stands on its own.
    let dump = corelo(&["btf", "dump", &module_path]);
    assert!(dump.stdout.contains("[3] STRUCT 'module_state'") && dump.stdout.contains("'count' type_id=2"), "{dump:?}");
    let found = corelo(&["btf", "find", &module_path, "module_state"]);
    assert_eq!(found.code, 0, "{found:?}");
}

//! Writes the inputs that fuzzing starts from, made of the fixtures: `seeds DIRECTORY` fills one directory for each target.

use std::fs;
use std::path::Path;

use corelo_fuzz::input::join;
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding, Member};
use corelo_tests::elf_reader::section_data;
use corelo_tests::endian::Endian;
use corelo_tests::fixtures::fixtures;
// The instrumentation calls it.
use libfuzzer_sys as _;

fn main() {
    let directory = std::env::args_os().nth(1).expect("usage: seeds DIRECTORY");
    let directory = Path::new(&directory);
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let directory = directory.join(target);
        fs::create_dir_all(&directory).expect("a directory");
        fs::write(directory.join(name), bytes).expect("a seed");
    };
    let plain = [0xff; 8];
    let targets: Vec<(Endian, Vec<u8>)> =
        fixtures().iter().filter_map(|fixture| Some((fixture.endian, fixture.read_target()?))).collect();
    for fixture in fixtures() {
        let (object, name) = (fixture.read(), format!("{}-{:?}", fixture.name, fixture.endian));
        let other = targets.iter().find(|(endian, _)| *endian == fixture.endian).map(|(_, target)| target.clone());
        let target = fixture.read_target().or(other).unwrap_or_default();
        write("object", &name, &object);
        write("file", &name, &object);
        for pair in ["prepare", "min_btf"] {
            write(pair, &name, &join(plain, &[&object, &target]));
        }
        let btf = section_data(&object, ".BTF").unwrap_or_default();
        let ext = section_data(&object, ".BTF.ext").unwrap_or_default();
        write("btf", &name, &join(plain, &[btf]));
        write("btf", &format!("{name}-target"), &join(plain, &[&target, btf]));
        write("btf_ext", &name, ext);
        if !ext.is_empty() && fixture.read_target().is_some() {
            write("relo", &name, &join(plain, &[btf, &target, b"0:0:1"]));
        }
        write("log", &name, &join(plain, &[&object, &target, b"1: (b7) r0 = 0\n2: (85) call unknown#195896080\n"]));
    }
    for endian in Endian::BOTH {
        let [base, distilled, split] = module(endian);
        write("rebase", &format!("{endian:?}"), &join(plain, &[&split, &distilled, &base]));
        write("btf", &format!("split-{endian:?}"), &join(plain, &[&distilled, &split]));
    }
    let program = std::env::current_exe().and_then(fs::read).unwrap_or_default();
    write("file", "program", &program[..program.len().min(512)]);
    for (number, text) in TEXTS.iter().enumerate() {
        write("text", &number.to_string(), &join([number as u8; 8], &[text]));
    }
    for kind in 0..2u8 {
        let record = [8u32.to_ne_bytes(), [0; 4], [1; 4], [2; 4]].concat();
        let perf = [9u32.to_ne_bytes(), [0, 0, 16, 0], [1; 4], [2; 4]].concat();
        let records = if kind == 0 { record.repeat(4) } else { perf.repeat(4) };
        write("ring", &kind.to_string(), &join([kind, 0, 0, 0, 0, 0, 64, 0], &[&records]));
    }
}

const TEXTS: [&[u8]; 8] = [
    b"ffffffff81000000 T _text\nffffffffc0a01000 t f.llvm.12\t[module]\n0000000000000000 A x\n",
    b"# comment\nCONFIG_X=y\nCONFIG_HZ=250\nCONFIG_NAME=\"text\"\nCONFIG_ADDR=0xffff\n",
    b"0-3,5,7-8191\n",
    b"vfs_*_?ead\0vfs_new_read",
    b"-4@%eax 8@-8(%rbp) 4@$5 8@8(%rax,%rbx,4) 8@[sp, 96] 4@#5 -4@-28(%r15) 8@a1",
    b"0: R1=ctx() R10=fp0\n0: (b7) r0 = 0\n7: (85) call unknown#195896080\nprocessed 2 insns\n",
    b"fentry.s/module:function",
    b"kprobe.multi/vfs_*",
];

/// A kernel's BTF, a distilled base, and a module's on that.
fn module(endian: Endian) -> [Vec<u8>; 3] {
    let mut base = BtfBuilder::new(endian);
    let int = base.int("int", 4, IntEncoding::Signed);
    base.struct_("other", 4, &[Member::at("x", int, 0)]);
    base.struct_("task", 8, &[Member::at("pid", int, 0), Member::at("tgid", int, 4)]);
    base.enum_("state", 4, false, &[("IDLE", 0), ("BUSY", 1)]);
    let mut distilled = BtfBuilder::new(endian);
    distilled.int("int", 4, IntEncoding::Signed);
    distilled.struct_("task", 8, &[]);
    distilled.enum_("state", 4, false, &[]);
    let mut split = distilled.split_on();
    let pointer = split.ptr(2);
    split.struct_("mine", 24, &[Member::at("task", 2, 0), Member::at("next", pointer, 8), Member::at("n", 1, 16)]);
    [base.build(), distilled.build(), split.build()]
}

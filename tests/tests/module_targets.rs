//! Programs and externs whose targets are in a kernel module: found when vmlinux lacks them, with the module's number,
//! and checked against the module's types.

use std::collections::BTreeSet;

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::{Btf, Kind, Types};
use corelo_core::min_btf::{ModuleSieve, SliceSource};
use corelo_core::object::{ExternId, Object};
use corelo_core::prepare::{ExternMatch, Options, Plan, Prepared};
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding};
use corelo_tests::corpus::corpus;
use corelo_tests::endian::Endian;
use corelo_tests::insn::Insn;
use corelo_tests::object_builder::ObjectBuilder;

const LINKAGE_STATIC: u32 = 0;
/// `BPF_CORE_TYPE_EXISTS`
const TYPE_EXISTS: u32 = 8;

/// A vmlinux with `int` and the two functions that obj_kfunc calls.
fn vmlinux(endian: Endian) -> BtfBuilder {
    let mut btf = BtfBuilder::new(endian);
    btf.int("int", 4, IntEncoding::Signed);
    let proto = btf.func_proto(0, &[]);
    btf.func("bpf_rcu_read_lock", proto, LINKAGE_STATIC);
    btf.func("bpf_rcu_read_unlock", proto, LINKAGE_STATIC);
    btf
}

/// A module with `no_such_kfunc`, of so many parameters of type `int`.
fn module(base: &BtfBuilder, params: &[(&str, u32)]) -> (Vec<u8>, u32) {
    let mut btf = base.split_on();
    let proto = btf.func_proto(1, params);
    let id = btf.func("no_such_kfunc", proto, LINKAGE_STATIC);
    (btf.build(), id)
}

fn with_modules<T>(modules: &[Vec<u8>], then: impl FnOnce(&Prepared<'_>, ExternId) -> T) -> T {
    let file = corelo_tests::fixtures::fixture("obj_kfunc", Endian::Little).read();
    let kernel = vmlinux(Endian::Little).build();
    let mut buffer = vec![0u8; 1 << 20];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(&file).unwrap();
    let plan = Plan::new(&object, Options::default(), &mut arena).unwrap();
    let mut search = plan.search(Btf::parse(&kernel).unwrap(), &mut arena).unwrap();
    assert!(search.wants_modules());
    for (number, module) in (1u16..).zip(modules) {
        search.weigh_module(module, None, number, &mut arena.scratch()).unwrap();
    }
    for (number, module) in (1u16..).zip(modules) {
        search.search_module(module, None, number, &mut arena.scratch()).unwrap();
    }
    let prepared = search.finish();
    let mut externs = prepared.declared().externs_by_id();
    let (id, _) = externs.find(|(_, ext)| object.symbol_name(ext.symbol()) == b"no_such_kfunc").unwrap();
    then(&prepared, id)
}

#[test]
fn a_kernel_function_of_a_module() {
    let base = vmlinux(Endian::Little);
    let empty = base.split_on().build();
    let (blob, id) = module(&base, &[("x", 1)]);
    // The first of two modules that has it counts.
    with_modules(&[empty, blob.clone(), blob], |prepared, number| {
        let ExternMatch::Found { id: found, module: 2 } = prepared.extern_match(number) else {
            panic!("{:?}", prepared.extern_match(number))
        };
        assert_eq!(found.0, id);
        assert_eq!(prepared.module_targets(), 1);
        let there = prepared.declared().externs_by_id().filter(|(other, _)| *other != number);
        for (number, _) in there {
            assert!(matches!(prepared.extern_match(number), ExternMatch::Found { module: 0, .. }));
        }
    });
}

#[test]
fn a_kernel_function_of_another_type_or_of_no_module() {
    let base = vmlinux(Endian::Little);
    let (blob, id) = module(&base, &[("x", 1), ("y", 1)]);
    with_modules(&[blob], |prepared, number| {
        let ExternMatch::Incompatible { id: found, module: 1 } = prepared.extern_match(number) else {
            panic!("{:?}", prepared.extern_match(number))
        };
        assert_eq!(found.0, id);
    });
    with_modules(&[], |prepared, number| {
        assert_eq!(prepared.extern_match(number), ExternMatch::Missing);
        assert_eq!(prepared.module_targets(), 0);
    });
}

/// An object that asks whether there is a struct of this name.
fn asks_for(name: &str, endian: Endian) -> Vec<u8> {
    let mut object = ObjectBuilder::new(endian);
    let root = object.btf.struct_(name, 4, &[]);
    object.program("kprobe/any", "prog", &[Insn::mov64_imm(0, 0), Insn::exit()]);
    object.core_relo("prog", 0, root, "0", TYPE_EXISTS);
    object.build()
}

/// What the sieve says of each module.
fn sifted(name: &str, kernel: &[u8], modules: &[Vec<u8>], endian: Endian) -> Vec<bool> {
    let file = asks_for(name, endian);
    let (mut buffer, mut window) = (vec![0u8; 1 << 20], [0u8; 2048]);
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(&file).unwrap();
    let plan = Plan::new(&object, Options::default(), &mut arena).unwrap();
    let search = plan.search(Btf::parse(kernel).unwrap(), &mut arena).unwrap();
    assert!(search.wants_modules(), "{name}");
    let mut sieve = ModuleSieve::new(SliceSource(kernel), &search, &mut window).unwrap();
    modules.iter().map(|module| sieve.may_answer(SliceSource(module), &search).unwrap()).collect()
}

/// The names of a module's structs, flavours left out.
fn structs_of(module: &[u8], base: &Types<'_>) -> BTreeSet<String> {
    let split = Btf::parse_split(module, base).unwrap();
    let structs = split.iter().map(Result::unwrap).filter(|ty| ty.kind() == Kind::Struct && ty.name_off() != 0);
    let own = u32::try_from(base.btf().strings().len()).unwrap();
    let name = |offset: u32| match offset.checked_sub(own) {
        Some(offset) => split.strings()[offset as usize..].split(|&byte| byte == 0).next().unwrap().to_vec(),
        None => base.string(offset).unwrap().to_vec(),
    };
    structs.map(|ty| String::from_utf8(name(ty.name_off())).unwrap()).filter(|name| !name.contains("___")).collect()
}

#[test]
fn modules_that_have_nothing_of_what_is_asked_are_told_from_the_others() {
    let Some(corpus) = corpus() else { return };
    let (mut asked, mut yes, mut by_base_name) = (0, 0, 0);
    for kernel in corpus.kernels() {
        let blob = kernel.btf();
        let modules: Vec<Vec<u8>> = kernel.modules().iter().map(|name| kernel.module_btf(name)).collect();
        let mut buffer = vec![0; 1 << 20];
        let mut arena = Arena::new(&mut buffer);
        let btf = Btf::parse(&blob).unwrap();
        let base = Types::index(btf, 32, None, &mut arena, Part::KernelIndex).unwrap();
        let in_kernel: BTreeSet<&[u8]> = btf
            .iter()
            .map(Result::unwrap)
            .filter(|ty| ty.kind() == Kind::Struct)
            .map(|ty| base.name(&ty).unwrap())
            .collect();
        let strings: BTreeSet<&[u8]> = btf.strings().split(|&byte| byte == 0).collect();
        let structs: Vec<BTreeSet<String>> = modules.iter().map(|module| structs_of(module, &base)).collect();
        let mut names: BTreeSet<&str> = BTreeSet::from(["corelo_no_such_struct"]);
        for of_module in &structs {
            // Of those that the kernel lacks: the first and the last by name, and one whose name is a string of the kernel's.
            let lacking = || of_module.iter().map(String::as_str).filter(|name| !in_kernel.contains(name.as_bytes()));
            names.extend(lacking().next());
            names.extend(lacking().next_back());
            let of_base = lacking().find(|name| strings.contains(name.as_bytes()));
            by_base_name += usize::from(of_base.is_some());
            names.extend(of_base);
        }
        for name in names {
            let endian = if btf.endian() == corelo_core::bytes::Endian::Little { Endian::Little } else { Endian::Big };
            let has: Vec<bool> = structs.iter().map(|structs| structs.contains(name)).collect();
            assert_eq!(sifted(name, &blob, &modules, endian), has, "{}: {name}", kernel.name);
            asked += has.len();
            yes += has.iter().filter(|&&has| has).count();
        }
    }
    println!("{asked} answers, {yes} of them yes; {by_base_name} names lie in the kernel's strings");
    assert!(yes > 20 && asked > 2 * yes && by_base_name > 5);
}

//! Programs and externs whose targets are in a kernel module: found when vmlinux lacks them, with the module's number,
//! and checked against the module's types.

use corelo_core::arena::Arena;
use corelo_core::btf::Btf;
use corelo_core::object::Object;
use corelo_core::prepare::{ExternMatch, Options, Plan, Prepared};
use corelo_tests::btf_builder::{BtfBuilder, IntEncoding};
use corelo_tests::endian::Endian;

const LINKAGE_STATIC: u32 = 0;

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

fn with_modules<T>(modules: &[Vec<u8>], then: impl FnOnce(&Prepared<'_>, usize) -> T) -> T {
    let file = corelo_tests::fixtures::fixture("obj_kfunc", Endian::Little).read();
    let kernel = vmlinux(Endian::Little).build();
    let mut buffer = vec![0u8; 1 << 20];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(&file).unwrap();
    let plan = Plan::new(&object, Options::default(), &mut arena).unwrap();
    let mut searched = plan.search(Btf::parse(&kernel).unwrap(), &mut arena).unwrap();
    assert!(searched.wants_modules());
    for (number, module) in (1u16..).zip(modules) {
        searched.weigh_module(module, number, &mut arena.scratch()).unwrap();
    }
    for (number, module) in (1u16..).zip(modules) {
        searched.search_module(module, number, &mut arena.scratch()).unwrap();
    }
    let prepared = searched.finish();
    let externs = prepared.declared().externs();
    let number = externs.iter().position(|ext| object.symbol_name(ext.symbol()) == b"no_such_kfunc").unwrap();
    then(&prepared, number)
}

#[test]
fn case_29_a_kernel_function_of_a_module() {
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
        let there = prepared.declared().externs().iter().enumerate().filter(|(other, _)| *other != number);
        for (number, _) in there {
            assert!(matches!(prepared.extern_match(number), ExternMatch::Found { module: 0, .. }));
        }
    });
}

#[test]
fn case_29_one_of_another_type_and_none() {
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

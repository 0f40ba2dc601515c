//! Externs: kernel variables, functions and configuration values, there and absent.

use crate::common::{alone, fixture, has_kernel, load, load_fixture, number, run_named, run_raw};
use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::prepare::{ExternMatch, Options, Plan};
use corelo_loader::kernel::KernelBtf;
use corelo_loader::load::{ExternError, LoadError, LoadOptions};

fn elements(collection: &corelo_loader::load::Collection<'_>, name: &str) -> Vec<u64> {
    let variable = collection.raw_global(name).unwrap();
    let mut bytes = vec![0u8; variable.byte_size()];
    variable.read(&mut bytes).unwrap();
    bytes.chunks(8).map(number).collect()
}

#[test]
fn addresses_of_kernel_symbols_and_of_weak_absent_ones() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_ksyms", &[], |collection| {
        run_raw(collection, "untyped");
        run_raw(collection, "typed_absent");
        let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let line = symbols.lines().find(|line| line.ends_with(" vfs_read")).unwrap();
        let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        assert_eq!(elements(collection, "seen"), [address, 0, 0, 0]);
    });
}

#[test]
fn a_typed_kernel_variable() {
    if !has_kernel() {
        return;
    }
    // Its descriptor, however soon it is closed, is not to be another test's that counts those left open.
    let kernel = {
        let _alone = alone();
        KernelBtf::open().unwrap()
    };
    let file = fixture("obj_ksyms");
    let mut buffer = vec![0u8; 1 << 20];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(&file).unwrap();
    let plan = Plan::new(&object, Options::default(), &mut arena).unwrap();
    let search = plan.search(corelo_core::btf::Btf::parse(&kernel).unwrap(), &mut arena).unwrap();
    // The weak one that vmlinux lacks may be in a module.
    assert!(search.wants_modules());
    let prepared = search.finish();
    let mut externs = prepared.declared().externs_by_id();
    let (id, _) = externs.find(|(_, ext)| object.symbol_name(ext.symbol()) == b"runqueues").unwrap();
    let ExternMatch::Found { module: 0, .. } = prepared.extern_match(id) else {
        return corelo_tests::kernel::not_here("variables of the kernel", "its BTF has none");
    };
    // The verifier looks a variable's address up, which takes CONFIG_KALLSYMS_ALL.
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    if !symbols.lines().any(|line| line.ends_with(" runqueues")) {
        // Not a matter of the machine's rights: the id was found above, which is all that a loader does about it.
        return corelo_tests::kernel::not_here("addresses of variables", "the kernel's kallsyms have none");
    }
    load_fixture("obj_ksyms", &["typed"], |collection| {
        run_raw(collection, "typed");
        assert_eq!(elements(collection, "seen")[2], 1);
    });
}

#[test]
fn kernel_functions_that_are_there_and_that_are_not() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_kfunc", &[], |collection| {
        assert_eq!(run_named(collection, "call_there"), 21);
        assert_eq!(run_named(collection, "call_absent"), 22);
    });
}

#[test]
fn a_kernel_function_of_another_type_is_refused_and_a_weak_one_is_absent() {
    if !has_kernel() {
        return;
    }
    // The prototype of `bpf_rcu_read_lock` in the object gets a result: an int in place of void.
    let refused = load(&fixture("bad_kfunc_type"), &LoadOptions::new(b"bad"), |_| ()).unwrap_err();
    assert!(matches!(refused.error, LoadError::Extern { error: ExternError::OtherType(_), .. }), "{}", refused.text);
    assert!(refused.text.contains("bpf_rcu_read_lock"), "{}", refused.text);
    let value = load(&fixture("obj_kfunc_weak_type"), &LoadOptions::new(b"weak"), |collection| {
        run_named(collection, "call_other")
    });
    assert_eq!(value.unwrap(), 23);
}

#[test]
fn externs_have_the_values_of_the_configuration() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_kconfig", &[], |collection| {
        run_named(collection, "read_all");
        let seen = elements(collection, "seen");
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u64>().unwrap_or(0));
        let mut part = || parts.next().unwrap_or(0);
        let (major, minor, patch) = (part(), part(), part());
        assert_eq!(seen[0], (major << 16) + (minor << 8) + patch.min(255));
        // Bpf cookies came with 5.15; CONFIG_BPF is what lets this test run at all.
        assert_eq!(seen[1], u64::from((major, minor) >= (5, 15)));
        assert_eq!(seen[3], 1);
        assert_eq!(seen[12], 0);
    });
}

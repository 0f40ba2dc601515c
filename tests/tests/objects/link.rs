//! Linking: subprograms, callbacks, equal names, weak functions, late instructions, exceptions, replaced functions.

use crate::common::{fixture, has_kernel, load, load_among_others, load_fixture, run, run_named, variable};
use corelo_core::object::Object;
use corelo_loader::load::{Change, LoadError, LoadOptions, Setting};
use corelo_loader::sys::Errno;
use corelo_loader::sys::bpf::prog_info;

#[test]
fn callbacks_by_address() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_callbacks", &[], |collection| {
        assert_eq!(run_named(collection, "loop"), 20);
        assert_eq!(run_named(collection, "each"), 10);
        assert_eq!(run_named(collection, "loop_again"), 18);
    });
}

#[test]
fn weak_and_hidden_functions_are_functions() {
    if has_kernel() {
        load_fixture("obj_weak", &[], |collection| assert_eq!(run_named(collection, "calls"), 28));
    }
}

#[test]
fn equal_static_names_of_two_units_are_told_apart() {
    if !has_kernel() {
        return;
    }
    if cfg!(target_endian = "big") {
        return corelo_tests::kernel::not_here("obj_link", "it is little-endian only");
    }
    load_fixture("obj_link", &[], |collection| {
        assert_eq!(run_named(collection, "from_a"), 125);
        assert_eq!(run_named(collection, "from_b"), 1135);
        assert_eq!(variable(collection, "shared_total"), 2);
    });
}

#[test]
fn late_instructions() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_modern", &["may_goto", "signed_math", "swap_bytes"], |collection| {
        let run = |name: &str, len: usize| run(collection.program(name).unwrap().fd(), len);
        // Socket filters see the packet without the Ethernet header: 14 bytes less.
        assert_eq!(run("may_goto", 64), 50);
        assert_eq!(run("signed_math", 64), 79);
        assert_eq!(run("swap_bytes", 64), 50u32.swap_bytes());
    });
}

#[test]
fn exceptions_with_and_without_a_callback() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_exception", &["throws", "throws_plainly"], |collection| {
        let run = |name: &str, len: usize| run(collection.program(name).unwrap().fd(), len);
        assert_eq!((run("throws", 64), run("throws", 200)), (3, 51));
        assert_eq!((run("throws_plainly", 64), run("throws_plainly", 200)), (3, 60));
    });
}

#[test]
fn optional_programs_load_when_asked_for() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_optional", &[], |collection| {
        assert_eq!(run_named(collection, "always"), 1);
        assert!(collection.program("on_request").is_err());
    });
    load_fixture("obj_optional", &["on_request"], |collection| {
        assert_eq!(run_named(collection, "on_request"), 2);
        assert!(collection.program("always").is_err());
    });
}

#[test]
fn licence_and_name_reach_the_kernel() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_run", &[], |collection| {
        let info = prog_info(collection.program("run_cgroup_egress").unwrap().fd()).unwrap();
        assert!(info.gpl_compatible);
        assert_eq!(&info.name, b"run_cgroup_egre\0");
        assert!(info.nr_func_info >= 1 && info.nr_line_info > 1 && info.btf_id != 0);
        assert_eq!(info.nr_map_ids, 1);
    });
}

#[test]
fn a_licence_ends_at_its_first_nul_or_with_its_section() {
    let mut file = fixture("obj_weak");
    let place = file.windows(13).position(|bytes| bytes == b"Dual MIT/GPL\0").unwrap();
    assert_eq!(Object::parse(&file).unwrap().license(), b"Dual MIT/GPL");
    file[place + 12] = b'!';
    assert_eq!(Object::parse(&file).unwrap().license(), b"Dual MIT/GPL!");
    file[place + 3] = 0;
    assert_eq!(Object::parse(&file).unwrap().license(), b"Dua");
    if has_kernel() {
        let options = LoadOptions::new(b"obj_weak");
        let info = load(&file, &options, |collection| prog_info(collection.program("calls").unwrap().fd()).unwrap());
        assert!(!info.unwrap().gpl_compatible);
    }
}

#[test]
fn an_xdp_program_loads_with_its_attach_type() {
    if has_kernel() {
        // Kernels from 5.9 on know it; the retry without is tested with a fake kernel in the loader itself.
        load_fixture("obj_run", &["run_xdp"], |collection| {
            let program = collection.program("run_xdp").unwrap().fd();
            assert_eq!(prog_info(program).unwrap().prog_type, 6);
        });
    }
}

#[test]
fn a_program_that_replaces_needs_its_target() {
    if !has_kernel() {
        return;
    }
    let file = fixture("obj_replace");
    let refused = load(&file, &LoadOptions::new(b"obj_replace"), |_| ()).unwrap_err();
    assert!(matches!(refused.error, LoadError::NoReplaced { .. }), "{}", refused.text);
    assert!(refused.text.contains("new_add"), "{}", refused.text);
    // What cannot be asked for its functions is not one that has none of the name.
    load_fixture("nothing_asked", &[], |other| {
        use std::os::fd::AsFd;
        let map = other.raw_map("packets").unwrap();
        let settings = [Setting::new("new_add", Change::Replace(map.as_fd()))];
        let options = LoadOptions { settings: &settings, ..LoadOptions::new(b"obj_replace") };
        let refused = load_among_others(&file, &options, |_| ()).unwrap_err();
        assert!(matches!(refused.error, LoadError::ReplacedBtf { errno: Errno::EINVAL, .. }), "{}", refused.text);
        assert!(refused.text.contains("new_add"), "{}", refused.text);
    });
    load_fixture("obj_weak", &[], |weak| {
        let settings = [Setting::new("new_add", Change::Replace(weak.program("calls").unwrap().fd()))];
        let options = LoadOptions { settings: &settings, ..LoadOptions::new(b"obj_replace") };
        match load_among_others(&file, &options, |collection| {
            prog_info(collection.program("new_add").unwrap().fd()).unwrap()
        }) {
            Ok(info) => assert_eq!(info.prog_type, 28),
            // Machines without trampolines refuse every program of this type.
            Err(refused) => {
                println!("the kernel refuses it: {}", refused.text);
                assert!(matches!(refused.error, LoadError::Program { .. }), "{}", refused.text);
            }
        }
    });
}

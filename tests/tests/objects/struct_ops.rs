//! struct_ops: a congestion control moved into the kernel's layout, registered, seen by the kernel, taken back.

use crate::common::{fixture, has_kernel, load, load_fixture};
use corelo_core::struct_ops::StructOpsError;
use corelo_loader::load::{Change, Collection, LoadError, LoadOptions, Setting};
use corelo_loader::objects::map_info;
use corelo_loader::sys::bpf::prog_info;

fn available() -> String {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default()
}

fn is_registered(name: &str) -> bool {
    available().split_whitespace().any(|found| found == name)
}

fn check_programs(collection: &Collection<'_>) {
    for name in ["ssthresh", "undo_cwnd", "cong_avoid"] {
        let info = prog_info(collection.program(name).unwrap().fd()).unwrap();
        assert_eq!(info.prog_type, 27, "{name}");
        assert_ne!(info.attach_btf_id, 0, "{name}");
    }
}

#[test]
fn tables_are_registered_and_taken_back() {
    use std::os::fd::AsFd;
    if !has_kernel() {
        return;
    }
    load_fixture("obj_struct_ops", &[], |collection| {
        check_programs(collection);
        let map = collection.raw_map("plain").unwrap();
        let info = map_info(map.as_fd()).unwrap();
        assert_eq!((info.map_type, info.key_size, info.max_entries), (26, 4, 1));
        assert_ne!(info.btf_vmlinux_value_type_id, 0);
        assert!(!is_registered("corelo_plain"));
        let link = collection.attach_table("plain").unwrap();
        assert!(is_registered("corelo_plain"), "{}", available());
        drop(link);
        // The table is set free after an RCU grace period.
        for _ in 0..200 {
            if !is_registered("corelo_plain") {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("still registered: {}", available());
    });
}

#[test]
fn members_that_the_kernel_lacks_are_dropped_where_they_are_zero_and_the_others_moved() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_struct_ops_vendor", &[], |collection| {
        check_programs(collection);
        let link = collection.attach_table("vendor").unwrap();
        // That the name is right shows that the members were moved.
        assert!(is_registered("corelo_vendor"), "{}", available());
        drop(link);
        assert!(collection.attach_table("no_such").is_err());
    });
}

#[test]
fn programs_go_with_the_tables_that_have_them() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_struct_ops_optional", &[], |collection| {
        check_programs(collection);
        assert!(collection.raw_map("left").is_err());
        for name in ["left_ssthresh", "nobodys"] {
            assert!(collection.program(name).is_err(), "{name}");
        }
        let _link = collection.attach_table("made").unwrap();
        assert!(is_registered("corelo_made"), "{}", available());
    });
    // Asked for by its name, the other table brings its program.
    let settings = [Setting::new("left", Change::Create(true))];
    let options = LoadOptions { settings: &settings, ..LoadOptions::new(b"optional") };
    load(&fixture("obj_struct_ops_optional"), &options, |collection| {
        assert!(collection.program("left_ssthresh").is_ok());
        let _link = collection.attach_table("left").unwrap();
        assert!(is_registered("corelo_left"), "{}", available());
    })
    .unwrap();
}

#[test]
fn a_member_that_the_kernel_lacks_and_that_is_set_is_refused() {
    if !has_kernel() {
        return;
    }
    let mut file = fixture("obj_struct_ops_vendor");
    // `vendor_cookie` is the 8 bytes before the name.
    let name = file.windows(13).position(|bytes| bytes == b"corelo_vendor").unwrap();
    file[name - 8] = 1;
    let refused = load(&file, &LoadOptions::new(b"vendor"), |_| ()).unwrap_err();
    assert!(matches!(refused.error, LoadError::StructOps { .. }), "{}", refused.text);
    assert!(refused.text.contains("vendor"), "{}", refused.text);
}

/// Each was loaded without a word: the error that told of it was taken for "the table does not have the program".
#[test]
fn programs_for_two_members_and_for_members_that_the_kernel_lacks_are_refused() {
    if !has_kernel() {
        return;
    }
    type Fault = (&'static str, &'static str, fn(StructOpsError) -> bool);
    let faults: [Fault; 3] = [
        ("ops_twice", "undo_cwnd", |error| matches!(error, StructOpsError::TwoMembers { .. })),
        ("ops_three", "undo_cwnd", |error| matches!(error, StructOpsError::TwoMembers { .. })),
        ("ops_missing", "vendor_hook", |error| matches!(error, StructOpsError::NoMember { member: 0 })),
    ];
    for (name, named, is_it) in faults {
        let refused = load(&fixture(name), &LoadOptions::new(name.as_bytes()), |_| ()).unwrap_err();
        println!("{}", refused.text);
        let LoadError::StructOps { error, .. } = refused.error else { panic!("{name}: {}", refused.text) };
        assert!(is_it(error), "{name}: {}", refused.text);
        assert!(refused.text.contains("faulty") && refused.text.contains(named), "{name}: {}", refused.text);
    }
    // A program that the caller does not want is no reason to overlook that its table is wrong.
    let settings = [Setting::new("vendor_hook", Change::Load(false))];
    let options = LoadOptions { settings: &settings, ..LoadOptions::new(b"missing") };
    assert!(load(&fixture("ops_missing"), &options, |_| ()).is_err());
}

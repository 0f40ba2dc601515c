//! Global data: each section its own map, made where a program uses it, set by name before, read and written after.

use std::os::fd::AsFd;

use crate::common::{fixture, has_kernel, load, load_fixture, run, run_named, variable};
use corelo_loader::kernel::{Feature, Features, Support};
use corelo_loader::load::{Change, LoadError, LoadOptions, Setting, SettingError};
use corelo_loader::loader::Cause;
use corelo_loader::objects::map_info;
use corelo_loader::sys::{Errno, page_size};

#[test]
fn each_section_is_a_map_of_its_own_made_when_used_and_frozen_when_read_only() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_globals", &[], |collection| {
        for (name, kernel_name) in [
            (".rodata", &b"obj_glob.rodata\0"[..]),
            (".data", b"obj_glob.data\0\0\0"),
            (".bss", b"obj_glob.bss\0\0\0\0"),
            (".rodata.cfg", b".rodata.cfg\0\0\0\0\0"),
            (".data.own", b".data.own\0\0\0\0\0\0\0"),
            (".bss.own", b".bss.own\0\0\0\0\0\0\0\0"),
            (".rodata.str1.1", b".rodata.str1.1\0\0"),
        ] {
            let map = collection.raw_map(name).unwrap_or_else(|errno| panic!("{name}: {errno}"));
            let info = map_info(map.as_fd()).unwrap();
            assert_eq!(&info.name, kernel_name, "{name}");
            let mut value = vec![0u8; map.value_bytes()];
            map.lookup(&0u32.to_ne_bytes(), &mut value, 0).unwrap();
            let written = map.update(&0u32.to_ne_bytes(), &value, 0);
            if name.starts_with(".rodata") {
                assert_eq!(written, Err(Errno::EPERM), "{name} is frozen");
            } else {
                assert_eq!(written, Ok(()), "{name}");
            }
        }
        assert_eq!(collection.raw_map(".data.unused").unwrap_err().cause(), &Cause::NotLoaded);
    });
    // Asked for, its section is there.
    load_fixture("obj_globals", &["uses_unused"], |collection| {
        assert_eq!(run_named(collection, "uses_unused"), 17);
        assert!(collection.raw_map(".data.unused").is_ok());
        assert_eq!(collection.raw_map(".data").unwrap_err().cause(), &Cause::NotLoaded);
    });
}

#[test]
fn data_starts_as_the_object_has_it_and_programs_share_it() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_globals", &[], |collection| {
        assert_eq!(run_named(collection, "sum"), 38);
        assert_eq!(run_named(collection, "sum"), 38);
        assert_eq!(run_named(collection, "read_rw"), 1002);
        assert_eq!(run_named(collection, "read_locals"), 906);
        assert_eq!(run_named(collection, "string"), u32::from(b'c'));
        assert_eq!(variable(collection, "rw"), 1002);
        assert_eq!(variable(collection, "zero"), 2);
        assert_eq!(variable(collection, "bss_own"), 8);
        assert_eq!(variable(collection, "ro"), 7);
    });
}

#[test]
fn variables_are_written_in_place() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_globals", &[], |collection| {
        let rw = collection.raw_global("rw").unwrap();
        assert!(rw.is_mapped());
        assert_eq!(rw.byte_size(), 8);
        rw.write(&5000u64.to_ne_bytes()).unwrap();
        assert_eq!(run_named(collection, "read_rw"), 5000);
        run_named(collection, "sum");
        assert_eq!(variable(collection, "rw"), 5001);
        assert_eq!(rw.write(&[1]), Err(Errno::EINVAL));
        let ro = collection.raw_global("ro").unwrap();
        assert!(matches!(ro.write(&9u32.to_ne_bytes()), Err(Errno::EACCES | Errno::EPERM)));
        // Statics have no name of their own.
        for name in ["no_such", "local_rw"] {
            assert_eq!(collection.raw_global(name).unwrap_err().cause(), &Cause::Unknown);
        }
        let unknown = collection.raw_global("row").unwrap_err().to_string();
        assert!(unknown.starts_with("the object has no variable row; it has ro"), "{unknown}");
    });
}

#[test]
fn variables_are_set_by_name_before_loading() {
    if !has_kernel() {
        return;
    }
    let file = fixture("obj_globals");
    let settings = [
        Setting { name: "ro", change: Change::Value(&99u32.to_ne_bytes()) },
        // Of two for one name the last counts.
        Setting { name: "rw", change: Change::Value(&8u64.to_ne_bytes()) },
        Setting { name: "rw", change: Change::Value(&7u64.to_ne_bytes()) },
        Setting { name: "zero", change: Change::Value(&40u32.to_ne_bytes()) },
        Setting { name: "ro_cfg", change: Change::Value(&0u32.to_ne_bytes()) },
    ];
    let options = LoadOptions { settings: &settings, ..LoadOptions::new(b"obj_globals") };
    load(&file, &options, |collection| {
        assert_eq!(run_named(collection, "string"), u32::from(b'o'));
        assert_eq!(run_named(collection, "sum"), 99 + 3 + 4 + 13);
        assert_eq!(variable(collection, "rw"), 8);
        assert_eq!(variable(collection, "zero"), 41);
    })
    .unwrap();
    for (name, bytes, error) in [
        ("nowhere", &[0u8; 4][..], SettingError::NoVariable),
        ("local_rw", &[0u8; 8], SettingError::NoVariable),
        ("ro", &[0u8; 8], SettingError::Size { wanted: 4, given: 8 }),
        ("ro", &[], SettingError::Size { wanted: 4, given: 0 }),
    ] {
        let settings = [Setting::new(name, Change::Value(bytes))];
        let options = LoadOptions { settings: &settings, ..LoadOptions::new(b"obj_globals") };
        let refused = load(&file, &options, |_| ()).unwrap_err();
        assert_eq!(refused.error, LoadError::Setting { index: 0, error });
    }
}

#[test]
fn an_arena_at_a_fixed_address_starts_with_its_data() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_arena_fixed", &[], |collection| {
        let map = collection.raw_map("arena").unwrap();
        assert_eq!(map_info(map.as_fd()).unwrap().map_extra, 0x1000_0000_0000);
        assert_eq!(run(collection.program("count_in_arena").unwrap().fd(), 64), 9);
        // On the last of its two pages where the kernel can load its address, so that address 0 is no variable's.
        let at_end = match Features::default().get(Feature::LdImm64FullRange) {
            Support::Present => true,
            Support::Missing => false,
            refused @ Support::Refused(_) => panic!("{refused}"),
        };
        let offset = run(collection.program("where_in_arena").unwrap().fd(), 64);
        assert_eq!(offset, if at_end { page_size() as u32 } else { 0 });
        println!("variables at byte {offset} of the arena");
    });
}

#[test]
fn an_arena_of_another_size_starts_with_its_data() {
    if !has_kernel() {
        return;
    }
    for pages in [1, 9] {
        let settings = [Setting::new("arena", Change::MaxEntries(pages))];
        let options = LoadOptions { settings: &settings, ..LoadOptions::new(b"obj_arena") };
        load(&fixture("obj_arena"), &options, |collection| {
            assert_eq!(collection.raw_map("arena").unwrap().max_entries(), pages);
            assert_eq!(run(collection.program("count_in_arena").unwrap().fd(), 64), 6);
        })
        .unwrap();
    }
}

#[test]
fn an_arena_starts_with_its_data() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_arena", &[], |collection| {
        assert_eq!(run(collection.program("count_in_arena").unwrap().fd(), 64), 6);
        assert_eq!(run(collection.program("names_arena").unwrap().fd(), 64), 16);
        assert_eq!(run(collection.program("count_in_arena").unwrap().fd(), 64), 17);
    });
}

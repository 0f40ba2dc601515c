//! Maps: every attribute as the kernel says it has it, slots filled from the start, contents read and written.

use crate::common::{alone, fixture, has_kernel, load, load_among_others, load_fixture, run_named};
use corelo_core::object::MapId;
use std::sync::atomic::{AtomicU32, Ordering};

use corelo_loader::load::{Change, Collection, LoadOptions, Setting};
use corelo_loader::loader::Cause;
use corelo_loader::objects::{self, MapInfo, MapSpec, Memlock, PerCpuMap, map_info};

fn info(collection: &Collection<'_>, name: &str) -> MapInfo {
    use std::os::fd::AsFd;
    let map = collection.raw_map(name).unwrap_or_else(|errno| panic!("{name}: {errno}"));
    map_info(map.as_fd()).unwrap()
}

/// Loads obj_maps, whose one pinned map goes to a directory of this call's own; its path is the second argument.
fn with_obj_maps<T>(settings: &[Setting<'_>], then: impl FnOnce(&Collection<'_>, &std::path::Path) -> T) -> T {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let root = format!("/sys/fs/bpf/corelo-objects-{}-{call}", std::process::id());
    std::fs::create_dir(&root).unwrap_or_else(|error| panic!("{root}: {error}: is bpffs mounted?"));
    let pinned = std::path::Path::new(&root).join("pinned");
    let options = LoadOptions { settings, pin_root: &root, ..LoadOptions::new(b"obj_maps") };
    let loaded = load(&fixture("obj_maps"), &options, |collection| then(collection, &pinned));
    let _ = std::fs::remove_file(&pinned);
    let _ = std::fs::remove_dir(&root);
    loaded.unwrap_or_else(|refused| panic!("{}", refused.text))
}

#[test]
fn every_attribute_reaches_the_kernel() {
    if !has_kernel() {
        return;
    }
    with_obj_maps(&[], |collection, pinned| {
        let sizes = |name: &str| {
            let info = info(collection, name);
            (info.map_type, info.key_size, info.value_size, info.max_entries, info.map_flags)
        };
        assert_eq!(sizes("by_type"), (1, 4, 8, 16, 0));
        assert_ne!(info(collection, "by_type").btf_key_type_id, 0);
        assert_ne!(info(collection, "by_type").btf_value_type_id, 0);
        assert_eq!(sizes("by_size"), (1, 12, 20, 17, 0));
        assert_eq!(info(collection, "by_size").btf_key_type_id, 0);
        assert_eq!(sizes("by_typedef"), (2, 4, 4, 18, 0));
        assert_eq!(sizes("bloom"), (30, 0, 4, 100, 0));
        assert_eq!(info(collection, "bloom").map_extra, 5);
        assert_eq!(sizes("on_node"), (1, 4, 4, 8, 4));
        assert_eq!(sizes("trie"), (11, 8, 4, 32, 1));
        assert_eq!(sizes("perf").3, corelo_loader::kernel::possible_cpus().unwrap());
        assert_eq!(sizes("odd_ring").3, 8192);
        let long = info(collection, "a_name_far_longer_than_fifteen").name;
        assert_eq!(&long, b"a_name_far_long\0");
        assert_eq!(sizes("weak_map"), (2, 4, 8, 1, 0));
        assert!(pinned.exists());
    });
}

#[test]
fn slots_of_maps_and_of_programs_are_filled_from_the_start() {
    if !has_kernel() {
        return;
    }
    with_obj_maps(&[], |collection, _| {
        let outer = collection.raw_map("outer_array").unwrap();
        let slot = |index: u32| {
            let mut value = [0u8; 4];
            outer.lookup(&index.to_ne_bytes(), &mut value, 0).map(|()| u32::from_ne_bytes(value))
        };
        assert_eq!(slot(0).unwrap(), info(collection, "inner_a").id);
        assert!(slot(1).is_err());
        assert_eq!(slot(2).unwrap(), info(collection, "inner_b").id);
        assert!(slot(3).is_err());
        assert_eq!(run_named(collection, "through_outer"), 1);
        assert_eq!(run_named(collection, "jump_2"), 12);
        assert_eq!(run_named(collection, "jump_1"), 11);
        // A map of maps with a model alone has its shape, and takes a map of it.
        assert_eq!(info(collection, "outer_hash").max_entries, 5);
    });
}

#[test]
fn a_slot_for_a_program_that_is_not_loaded_stays_empty() {
    if !has_kernel() {
        return;
    }
    let result =
        with_obj_maps(&[Setting::new("slot_2", Change::Load(false))], |collection, _| run_named(collection, "jump_2"));
    // bpf_tail_call falls through: -1.
    assert_eq!(result, u32::MAX);
}

#[test]
fn a_map_of_maps_without_a_model_takes_the_callers() {
    use corelo_loader::load::LoadError;
    use std::os::fd::AsFd;
    if !has_kernel() {
        return;
    }
    let file = fixture("obj_inner_given");
    let refused = load(&file, &LoadOptions::new(b"given"), |_| ()).unwrap_err();
    assert!(matches!(refused.error, LoadError::MapCreate { map, .. } if map.index() == 0), "{}", refused.text);
    assert!(refused.text.contains("outer"), "{}", refused.text);
    let _alone = alone();
    let spec = MapSpec { map_type: 2, key_size: 4, value_size: 4, max_entries: 3, ..MapSpec::default() };
    let model = objects::create_map(&spec, Memlock::RaiseIfRefused).unwrap();
    model.update(&0u32.to_ne_bytes(), &123u32.to_ne_bytes(), 0).unwrap();
    let settings = [Setting::new("outer", Change::InnerMap(model.as_fd()))];
    let options = LoadOptions { settings: &settings, ..LoadOptions::new(b"given") };
    load_among_others(&file, &options, |collection| {
        assert_eq!(run_named(collection, "through_outer"), u32::MAX);
        collection.map_of_maps::<u32>("outer").unwrap().insert(&1, &model).unwrap();
        assert_eq!(run_named(collection, "through_outer"), 123);
    })
    .unwrap();
}

#[test]
fn a_hidden_map_loads() {
    if has_kernel() {
        load_fixture("obj_hidden_map", &[], |collection| assert_eq!(run_named(collection, "program"), 31));
    }
}

#[test]
fn contents_by_bytes_and_by_types() {
    if !has_kernel() {
        return;
    }
    load_fixture("obj_callbacks", &[], |collection| {
        assert_eq!(run_named(collection, "each"), 10);
        let four = collection.raw_map("four").unwrap();
        let typed = collection.map::<u32, u64>("four").unwrap();
        let found: Vec<(u32, u64)> = typed.iter().map(Result::unwrap).collect();
        assert_eq!(found, [(0, 1), (1, 3), (2, 6), (3, 10)]);
        typed.insert(&2, &99, 0).unwrap();
        let mut bytes = [0; 8];
        four.lookup(&2u32.to_ne_bytes(), &mut bytes, 0).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 99);
        let of_other_size = collection.map::<u32, u32>("four").unwrap_err();
        let words = "map four: the map has keys of 4 and values of 8 bytes, the types have 4 and 4";
        assert_eq!(of_other_size.to_string(), words);
        let unknown = collection.raw_map("fore").unwrap_err();
        assert_eq!(unknown.cause(), &Cause::Unknown);
        assert!(unknown.to_string().starts_with("the object has no map fore; it has four"), "{unknown}");
    });
}

#[test]
fn per_cpu_values() {
    if !has_kernel() {
        return;
    }
    let _alone = alone();
    let spec = MapSpec { map_type: 6, key_size: 4, value_size: 4, max_entries: 2, ..MapSpec::default() };
    let map = objects::create_map(&spec, Memlock::RaiseIfRefused).unwrap();
    let values = PerCpuMap::<u32, u32>::new(&map).unwrap();
    let mut buffer = vec![0u8; values.buffer_len()];
    values.insert(&1, &mut buffer, |cpu| 100 + cpu, 0).unwrap();
    let found: Vec<u32> = values.get(&1, &mut buffer).unwrap().unwrap().collect();
    let cpus = corelo_loader::kernel::possible_cpus().unwrap();
    assert_eq!(found, (0..cpus).map(|cpu| 100 + cpu).collect::<Vec<_>>());
}

/// A failed load left its new pin, so that the next one found a map that nobody had asked for.
#[test]
fn a_load_that_fails_takes_its_pins_back_and_no_others() {
    if !has_kernel() {
        return;
    }
    let top = format!("/sys/fs/bpf/corelo-pins-{}", std::process::id());
    let root = format!("{top}/further/down");
    let pin = std::path::Path::new(&root).join("corelo_pinned");
    let options = LoadOptions { pin_root: &root, ..LoadOptions::new(b"pins") };
    let faults = ["pins_map", "pins_slot", "pins_program"];
    for name in faults {
        assert!(load(&fixture(name), &options, |_| ()).is_err(), "{name}");
        assert!(!std::path::Path::new(&top).exists(), "{name}: its pin or its directories are left");
    }
    // What was there before stays, at whatever step the load fails, and is what the next load takes.
    let first = load(&fixture("pins_sound"), &options, |collection| {
        assert!(collection.pin_of(MapId::new(0)).is_some_and(|(path, was_there)| pin == *path.as_ref() && !was_there));
        info(collection, "corelo_pinned").id
    })
    .unwrap();
    for name in faults {
        assert!(load(&fixture(name), &options, |_| ()).is_err(), "{name}");
        assert!(pin.exists(), "{name}");
    }
    // By hand, of a load that went well: none that is another's.
    let mut buffer = vec![0u8; 1 << 16];
    let unpin_new = |buffer: &mut [u8]| {
        let _alone = alone();
        let file = fixture("pins_sound");
        let mut arena = corelo_core::arena::Arena::new(buffer);
        let object = corelo_core::object::Object::parse(&file).unwrap();
        let prepared = corelo_core::prepare::prepare(&object, None, Default::default(), &mut arena).unwrap();
        let mut collection = Collection::create(&prepared, &options, &mut arena).unwrap();
        let id = info(&collection, "corelo_pinned").id;
        collection.unpin_new().unwrap();
        id
    };
    assert_eq!(unpin_new(&mut buffer), first);
    assert!(pin.exists());
    std::fs::remove_file(&pin).unwrap();
    assert_ne!(unpin_new(&mut buffer), first);
    assert!(!pin.exists());
    std::fs::remove_dir(&root).unwrap();
    std::fs::remove_dir(std::path::Path::new(&root).parent().unwrap()).unwrap();
    std::fs::remove_dir(&top).unwrap();
    // Where no BPF file system is, the directories go too.
    let elsewhere = std::env::temp_dir().join(format!("corelo-pins-{}", std::process::id()));
    let root = elsewhere.join("further").display().to_string();
    let options = LoadOptions { pin_root: &root, ..LoadOptions::new(b"pins") };
    assert!(load(&fixture("pins_sound"), &options, |_| ()).is_err());
    assert!(!elsewhere.exists());
}

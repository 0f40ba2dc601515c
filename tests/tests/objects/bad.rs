//! Faulty declarations: one typed error that names what is at fault, and no descriptor left open. (Every load of
//! these tests checks that.)

use crate::common::{fixture, has_kernel, load};
use corelo_core::link::LinkCause;
use corelo_core::object::ObjectError;
use corelo_core::prepare::PrepareError;
use corelo_loader::load::{ExternError, LoadError, LoadOptions};

/// A fixture, the name that its error must have, and the error.
type Fault = (&'static str, &'static str, fn(&LoadError) -> bool);

fn object_error(error: &LoadError) -> Option<ObjectError> {
    match error {
        LoadError::Prepare(PrepareError::Object(error)) => Some(*error),
        _ => None,
    }
}

const FAULTS: [Fault; 14] = [
    ("bad_map_no_type", "faulty", |e| matches!(object_error(e), Some(ObjectError::MapWithoutType { .. }))),
    ("bad_key_size", "faulty", |e| {
        matches!(object_error(e), Some(ObjectError::MapSizeConflict { given: 4, found: 8, .. }))
    }),
    ("bad_static_map", "faulty", |e| matches!(object_error(e), Some(ObjectError::StaticMap { .. }))),
    ("bad_map_attribute", "faulty", |e| matches!(object_error(e), Some(ObjectError::BadMapAttribute { .. }))),
    ("bad_inner_of_inner", "faulty", |e| matches!(object_error(e), Some(ObjectError::InnerOfInner { .. }))),
    ("bad_circular_inner", "faulty", |e| matches!(object_error(e), Some(ObjectError::InnerOfInner { .. }))),
    ("bad_slot_target", "faulty", |e| matches!(object_error(e), Some(ObjectError::BadSlot { .. }))),
    ("bad_too_many_slots", "faulty", |e| matches!(e, LoadError::Slot { index: 3, .. })),
    ("bad_undefined_call", "no_such_function", |e| {
        matches!(object_error(e), Some(ObjectError::ExternNotInBtf { .. } | ObjectError::UnknownExternSection { .. }))
            || matches!(e, LoadError::Link { error, .. } if matches!(error.cause, LinkCause::UndefinedSymbol { .. }))
    }),
    ("bad_missing_ksym", "no_such_symbol", |e| matches!(e, LoadError::Extern { error: ExternError::Missing, .. })),
    ("bad_missing_kfunc", "no_such_kfunc", |e| matches!(e, LoadError::Extern { error: ExternError::Missing, .. })),
    ("bad_kfunc_type", "bpf_rcu_read_lock", |e| {
        matches!(e, LoadError::Extern { error: ExternError::OtherType(_), .. })
    }),
    ("bad_too_large", ".bss", |e| matches!(e, LoadError::MapCreate { .. })),
    ("bad_section", "no_such_kind/of_program", |e| matches!(e, LoadError::UnknownSection { .. })),
];

#[test]
fn each_fault_is_one_error_that_names_it_and_leaves_no_descriptor() {
    if !has_kernel() {
        return;
    }
    for (name, named, is_it) in FAULTS {
        let refused = load(&fixture(name), &LoadOptions::new(name.as_bytes()), |_| ()).unwrap_err();
        println!("{name}: {}", refused.text);
        assert!(is_it(&refused.error), "{name}: {:?}", refused.error);
        assert!(refused.text.contains(named), "{name}: {}", refused.text);
        assert_eq!(refused.text.lines().count(), 1, "{name}: {}", refused.text);
    }
}

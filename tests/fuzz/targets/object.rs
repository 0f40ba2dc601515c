#![no_main]
//! An object and all that it declares, without a kernel.

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::object::section_name;
use corelo_core::prepare::{Options, Plan};
use corelo_fuzz::facts::Digest;
use corelo_loader::report::{NoKernelBtf, ObjectReport};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut digest = Digest::default();
    let object = match Object::parse(data) {
        Ok(object) => object,
        Err(error) => return digest.add(ObjectReport { object: None, error }.to_string()),
    };
    let mut buffer = vec![0u64; 1 << 15];
    let mut arena = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut buffer[..]));
    let plan = match Plan::new(&object, Options::default(), &mut arena) {
        Ok(plan) => plan,
        Err(corelo_core::prepare::PrepareError::Object(error)) => {
            return digest.add(ObjectReport { object: Some(&object), error }.to_string());
        }
        Err(_) => return,
    };
    for (_, function) in plan.declared().programs() {
        let name = object.section_name(plan.declared().section_of(function));
        digest.add((section_name::parse(name), section_name::parse_older(name)));
    }
    if plan.asks_kernel() {
        digest.add(NoKernelBtf { object: &object, plan: &plan, reason: "none" }.to_string());
    }
    assert_eq!(plan.asks_kernel(), plan.finish().is_err());
});

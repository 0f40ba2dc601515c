//! `corelo_budget` through the C interface: with that many bytes everything works, with one fewer it does not, and wrong
//! arguments are said to be wrong.
#![expect(unsafe_code, reason = "the functions of a C interface are called")]

use std::path::Path;
use std::ptr;

use corelo_capi_core::error::{Code, Error};
use corelo_capi_core::prepared::{Prepared, corelo_budget, corelo_prepare};
use corelo_capi_core::programs::{corelo_link, corelo_program_count};

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Prepares and links everything in exactly `size` bytes.
fn all(object: &[u8], btf: &[u8], memory: &mut [u64], size: usize) -> Code {
    assert!(size <= size_of_val(memory));
    let mut prepared: *mut Prepared = ptr::null_mut();
    // SAFETY: slices that live until the end of this function, and a place for the result.
    let code = unsafe {
        let memory = memory.as_mut_ptr().cast();
        let (object, btf) = ((object.as_ptr(), object.len()), (btf.as_ptr(), btf.len()));
        corelo_prepare(object.0, object.1, btf.0, btf.1, memory, size, &raw mut prepared, ptr::null_mut())
    };
    if code != Code::Ok {
        return code;
    }
    // SAFETY: just prepared.
    let programs = unsafe { corelo_program_count(prepared) };
    for program in 0..programs {
        let (mut insns, mut patches) = (0, 0);
        // SAFETY: just prepared; the counts alone are asked for.
        let code = unsafe {
            let (no_insns, no_patches) = (ptr::null_mut(), ptr::null_mut());
            let (insns, patches) = (&raw mut insns, &raw mut patches);
            corelo_link(prepared, program, no_insns, 0, insns, no_patches, 0, patches, ptr::null_mut())
        };
        if code != Code::Space {
            return code;
        }
        assert!(insns > 0);
    }
    Code::Ok
}

#[test]
fn exactly_the_budget_is_enough() {
    let mut memory = vec![0u64; 1 << 14];
    for name in ["core_fields", "core_enums", "core_types", "core_subprogs"] {
        let object = fixture(&format!("{name}-el.o"));
        let btf = fixture(&format!("{name}-target-el.btf"));
        let mut needed = 0;
        // SAFETY: slices that live on, and a place for the result.
        let code = unsafe {
            let (place, size) = (memory.as_mut_ptr().cast(), size_of_val(&memory[..]));
            let (object, btf) = ((object.as_ptr(), object.len()), (btf.as_ptr(), btf.len()));
            corelo_budget(object.0, object.1, btf.0, btf.1, place, size, &raw mut needed, ptr::null_mut())
        };
        assert_eq!(code, Code::Ok, "{name}");
        assert_eq!(all(&object, &btf, &mut memory, needed), Code::Ok, "{name}: {needed}");
        assert_eq!(all(&object, &btf, &mut memory, needed - 1), Code::Memory, "{name}: {needed}");
        // Whatever the size, there is an answer.
        for size in (0..needed).step_by(97) {
            assert_eq!(all(&object, &btf, &mut memory, size), Code::Memory, "{name}: {size}");
        }
    }
}

#[test]
fn wrong_arguments_are_said_to_be_wrong() {
    let mut text = [1u8; 64];
    let mut error = Error {
        text: text.as_mut_ptr().cast(),
        text_size: text.len(),
        code: Code::Ok,
        os_error: 0,
        wanted: 0,
        left: 0,
    };
    let mut prepared: *mut Prepared = ptr::null_mut();
    // SAFETY: NULL with a size is what is tested; nothing else is passed but places for results.
    let code = unsafe {
        let (prepared, error) = (&raw mut prepared, &raw mut error);
        corelo_prepare(ptr::null(), 10, ptr::null(), 0, ptr::null_mut(), 0, prepared, error)
    };
    assert_eq!((code, error.code), (Code::Argument, Code::Argument));
    assert!(text.starts_with(b"object is NULL\0"));
    // SAFETY: NULL is nothing.
    assert_eq!(unsafe { corelo_program_count(ptr::null()) }, 0);
}

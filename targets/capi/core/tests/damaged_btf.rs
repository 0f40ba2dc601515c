//! Kernel BTF at fault through the C interface: what the library says of it, in the same words.
#![expect(unsafe_code, reason = "the functions of a C interface are called")]

use std::ffi::CStr;
use std::path::Path;
use std::ptr;

use corelo_capi_core::error::{Code, Error};
use corelo_capi_core::prepared::{Prepared, corelo_prepare};
use corelo_capi_core::programs::{corelo_link, corelo_program_count};
use corelo_core::arena::Arena;
use corelo_core::object::{Object, ProgramId};
use corelo_core::prepare::{self, Options};
use zerocopy::IntoBytes;

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The error of preparing, or those of linking each program.
fn by_the_library(object: &[u8], btf: &[u8], memory: &mut [u64]) -> Vec<String> {
    let mut arena = Arena::new(memory.as_mut_bytes());
    let object = Object::parse(object).unwrap();
    let prepared = match prepare::prepare(&object, Some(btf), Options::default(), &mut arena) {
        Ok(prepared) => prepared,
        Err(error) => return vec![error.to_string()],
    };
    let numbers = prepared.declared().programs().map(|(number, _)| number);
    let link = |number| prepared.program(number, &mut arena.scratch()).map(|_| ());
    numbers.filter_map(link_error(link)).collect()
}

fn link_error<E: ToString>(
    mut link: impl FnMut(ProgramId) -> Result<(), E>,
) -> impl FnMut(ProgramId) -> Option<String> {
    move |number| link(number).err().map(|error| error.to_string())
}

fn in_c(object: &[u8], btf: &[u8], memory: &mut [u64]) -> Vec<String> {
    let mut text = [0u8; 512];
    let mut error = Error {
        text: text.as_mut_ptr().cast(),
        text_size: text.len(),
        code: Code::Ok,
        os_error: 0,
        wanted: 0,
        left: 0,
    };
    let said = |error: &Error| {
        // SAFETY: a text that ends with NUL was stored there.
        unsafe { CStr::from_ptr(error.text) }.to_str().unwrap().to_owned()
    };
    let mut prepared: *mut Prepared = ptr::null_mut();
    let size = size_of_val(memory);
    // SAFETY: slices that live until the end of this function, and places for results.
    let code = unsafe {
        let (memory, error) = (memory.as_mut_ptr().cast(), &raw mut error);
        let (object, btf) = ((object.as_ptr(), object.len()), (btf.as_ptr(), btf.len()));
        corelo_prepare(object.0, object.1, btf.0, btf.1, memory, size, &raw mut prepared, error)
    };
    if code != Code::Ok {
        return vec![said(&error)];
    }
    // SAFETY: just prepared.
    let programs = unsafe { corelo_program_count(prepared) };
    let link = |program| {
        let (mut insns, mut patches) = (0, 0);
        // SAFETY: just prepared; the counts alone are asked for.
        let code = unsafe {
            let (insns, patches) = (&raw mut insns, &raw mut patches);
            corelo_link(prepared, program, ptr::null_mut(), 0, insns, ptr::null_mut(), 0, patches, &raw mut error)
        };
        (code != Code::Space).then(|| said(&error))
    };
    (0..programs).filter_map(link).collect()
}

#[test]
fn damaged_btf_is_told_in_the_same_words() {
    let (object, btf) = (fixture("core_fields-el.o"), fixture("core_fields-target-el.btf"));
    let mut memory = vec![0u64; 1 << 14];
    let (mut refused, mut faults) = (0, 0);
    for (at, value) in (0..btf.len() - 4).step_by(20).flat_map(|at| [(at, 0u32), (at, 0x7fff_ffff), (at, u32::MAX)]) {
        let mut damaged = btf.clone();
        damaged[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let wanted = by_the_library(&object, &damaged, &mut memory);
        assert_eq!(in_c(&object, &damaged, &mut memory), wanted, "{at} made {value:#x}");
        refused += u32::from(wanted.first().is_some_and(|error| error.starts_with("kernel BTF: ")));
        faults += u32::from(wanted.iter().any(|error| error.contains("target BTF cannot be read at this type")));
    }
    assert!(refused > 3 && faults > 3, "{refused} refused, {faults} faults");
}

#![no_main]
//! An ELF file of a user's: functions of a program by name and pattern, its static probes, a kernel's BTF in it.

use std::os::fd::OwnedFd;

use corelo_fuzz::{memory, sources};
use corelo_loader::attach::symbols;
use corelo_loader::kernel::{KernelBtf, StreamedBtf};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (file, path) = memory::file(data);
    for name in ["main", "", "f@V", "read@@V1"] {
        let by_path = symbols::function_offset(&path, name);
        let fd = OwnedFd::from(file.try_clone().expect("a descriptor"));
        assert_eq!(by_path, symbols::function_offset_in(fd, name));
    }
    for pattern in ["*", "m*n?"] {
        let found = symbols::matching_offsets(&path, pattern);
        assert!(found.is_err() || found.is_ok_and(|found| !found.as_slice().is_empty()));
    }
    sources::notes(&path);
    let whole = KernelBtf::from_file(&path);
    let streamed = StreamedBtf::from_file(&path);
    assert!(streamed.is_ok() || whole.is_err());
});

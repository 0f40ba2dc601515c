//! Objects whose BTF the kernel refuses and that do not need it there: they load without, as with libbpf.

use std::os::fd::AsFd;

use crate::common::{fixture, has_kernel, load, run_named};
use corelo_loader::load::LoadOptions;
use corelo_loader::objects::map_info;
use corelo_loader::sys::bpf::prog_info;
use corelo_tests::elf_reader::section_data;
use corelo_tests::endian::Endian;

/// The object with the encoding of every INT of its BTF set to SIGNED and CHAR at once, which kernels refuse.
fn bent(mut file: Vec<u8>) -> Vec<u8> {
    let endian = Endian::native();
    let btf = section_data(&file, ".BTF").expect("BTF").to_vec();
    let start = file.windows(btf.len()).position(|window| window == btf).expect("in the file");
    let word = |at: usize| endian.read_u32(&btf, at).expect("a word") as usize;
    let (mut at, end) = (word(4) + word(8), word(4) + word(8) + word(12));
    let mut count = 0;
    while at < end {
        let info = word(at + 4);
        let (kind, vlen) = (info >> 24 & 31, info & 0xffff);
        if kind == 1 {
            let encoding = word(at + 12) as u32 & !(0xf << 24) | 3 << 24;
            file[start + at + 12..start + at + 16].copy_from_slice(&endian.u32(encoding));
            count += 1;
        }
        at += 12
            + match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * vlen,
                6 | 13 => 8 * vlen,
                _ => 0,
            };
    }
    assert!(count > 0, "no INT");
    file
}

#[test]
fn maps_with_types_load_where_the_kernel_refuses_the_objects_btf() {
    if !has_kernel() {
        return;
    }
    let options = LoadOptions::new(b"refused");
    for (what, file, map, program, returns) in [
        ("of GCC", fixture("gcc_map"), "counts", "counted", Some(7)),
        ("bent", bent(fixture("nothing_asked")), "packets", "count_packets", None),
    ] {
        let loaded = load(&file, &options, |collection| {
            assert!(collection.btf().is_none(), "{what}: the kernel takes it, so nothing is shown");
            let info = map_info(collection.raw_map(map).unwrap().as_fd()).unwrap();
            assert_eq!([info.btf_id, info.btf_key_type_id, info.btf_value_type_id], [0; 3], "{what}");
            let program = collection.program(program).unwrap().fd();
            assert_eq!(prog_info(program).unwrap().btf_id, 0, "{what}");
            if let Some(returns) = returns {
                assert_eq!(run_named(collection, "counted"), returns, "{what}");
            }
        });
        loaded.unwrap_or_else(|refused| panic!("{what}: {}", refused.text));
    }
    // And it is the bending that the kernel refuses.
    load(&fixture("nothing_asked"), &options, |collection| assert!(collection.btf().is_some())).unwrap();
}

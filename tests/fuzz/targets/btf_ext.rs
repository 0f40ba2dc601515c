#![no_main]
//! A `.BTF.ext` section, in either byte order.

use corelo_core::btf::ext::BtfExt;
use corelo_core::bytes::Endian;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    for endian in [Endian::Little, Endian::Big] {
        let Ok(ext) = BtfExt::parse(data, endian) else { continue };
        for list in [ext.func_info, ext.line_info, ext.core_relos] {
            let mut count = 0;
            for section in list.sections() {
                count += section.count as usize;
                for number in 0..section.count {
                    assert_eq!(section.record(number).map(|record| record.len() as u32), Some(list.record_size()));
                    let offset = section.insn_off(number).expect("a record has an offset");
                    let range = section.range(offset, offset.saturating_add(1));
                    assert!(!section.is_sorted() || offset == u32::MAX || range.contains(&number));
                    std::hint::black_box(section.core_relo(number));
                }
            }
            assert_eq!(count, list.count());
        }
    }
});

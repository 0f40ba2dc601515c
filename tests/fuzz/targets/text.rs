#![no_main]
//! Texts: of /proc and /sys, of a kernel's configuration, of probes, patterns and section names, of the verifier.

use corelo_core::object::section_name;
use corelo_fuzz::input::{number, split};
use corelo_fuzz::{memory, sources};
use corelo_loader::kernel::Cpus;
use corelo_loader::kernel::kconfig::{self, KconfigType};
use corelo_loader::report::verdict_line;

fn kconfig_values(text: &[u8], size: usize) {
    let mut out = [0xa5; 16];
    for ty in [
        KconfigType::Bool,
        KconfigType::Tristate,
        KconfigType::Char { is_signed: true },
        KconfigType::Integer { is_signed: size.is_multiple_of(3) },
        KconfigType::CharArray,
    ] {
        let _ = kconfig::write(Some(ty), text, &mut out[..size % 16]);
        assert_eq!(out[15], 0xa5, "no byte more");
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (numbers, [text]) = split::<1>(data);
    match numbers[0] % 8 {
        0 => assert_eq!(sources::kallsyms(text, 8192), sources::kallsyms(text, 1 + number(&numbers, 1) % 64)),
        1 => {
            let mut each = |_: &[u8], value: &[u8]| kconfig_values(value, usize::from(numbers[1]));
            sources::kconfig(memory::file(text).0.into(), memory::file(text).0.into(), &mut each);
            kconfig_values(text, usize::from(numbers[2]));
        }
        2 => {
            let Some(cpus) = Cpus::parse(text) else { return };
            assert_eq!(cpus.iter().count(), cpus.count() as usize);
        }
        3 => {
            let (pattern, name) = text.split_at(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
            assert!(sources::matches(&[pattern, b"*"].concat(), &[pattern, name].concat()));
            assert!(!sources::matches(pattern, name) || sources::matches(&[b"*", pattern].concat(), name));
        }
        4 => sources::arguments(numbers[1], text),
        5 => assert!(!verdict_line(text).contains(&b'\n')),
        _ => {
            let (name, _) = section_name::split_optional(text);
            std::hint::black_box((section_name::parse(name), section_name::parse_older(name)));
        }
    }
});

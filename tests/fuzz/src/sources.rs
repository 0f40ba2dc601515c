//! Modules of the loader that no caller can reach by themselves, compiled into this crate from where they are: what
//! they read is what files and rings of the kernel say.

// The loader's own lints have seen these files; here some of them is used only.
#![allow(dead_code, unused_imports, unreachable_pub, unfulfilled_lint_expectations)]

#[path = "../../../std-loader/src"]
mod loader {
    pub(crate) mod sys {
        pub(crate) mod env;
        mod errno;
        pub(crate) mod files;
        pub(crate) mod lines;
        pub(crate) mod list;
        pub(crate) mod mmap;
        pub(crate) mod ring;

        pub use errno::Errno;

        pub fn page_size() -> usize {
            rustix::param::page_size()
        }
    }

    pub(crate) mod kernel {
        pub(crate) mod kallsyms;

        pub(crate) mod kconfig {
            pub(crate) mod text;

            /// Reads a configuration as it is, and as gzip.
            pub fn read(plain: std::os::fd::OwnedFd, gzip: std::os::fd::OwnedFd, each: &mut dyn FnMut(&[u8], &[u8])) {
                let _ = text::plain(&plain, each);
                let _ = text::gzip(&gzip, each);
            }
        }
    }

    pub(crate) mod attach {
        pub(crate) mod glob;
        pub(crate) mod symbols;

        pub(crate) mod usdt {
            mod args;
            mod notes;

            use elf::abi;
            use elf::file::Class;

            /// Reads arguments as those of a machine; the number says which.
            pub fn arguments(machine: u8, text: &[u8]) {
                let machines = [
                    (abi::EM_386, Class::ELF32),
                    (abi::EM_X86_64, Class::ELF64),
                    (abi::EM_ARM, Class::ELF32),
                    (abi::EM_AARCH64, Class::ELF64),
                    (abi::EM_RISCV, Class::ELF32),
                    (abi::EM_RISCV, Class::ELF64),
                    (abi::EM_S390, Class::ELF64),
                ];
                let (machine, class) = machines[usize::from(machine) % machines.len()];
                let machine = args::Machine::of(machine, class).expect("all of them are known");
                let result = args::parse(machine, text);
                assert_eq!(result, args::parse(machine, text));
                for argument in result.unwrap_or_default() {
                    assert!(argument.bytes.is_power_of_two() && argument.bytes <= 8);
                }
            }

            /// Reads the notes of a program.
            pub fn notes(path: &std::path::Path) {
                let Ok(file) = crate::attach::symbols::File::open(path) else { return };
                let Ok(Some(notes)) = notes::Notes::read(&file) else { return };
                let mut count = 0;
                for note in notes.iter().map_while(Result::ok) {
                    assert!(!note.name.contains(&0) && !note.name.is_empty());
                    let _ = file.place(note.location);
                    count += 1;
                }
                std::hint::black_box(count);
            }
        }
    }
}

pub(crate) use loader::{attach, sys};

pub use loader::attach::usdt::{arguments, notes};
pub use loader::kernel::kconfig::read as kconfig;

/// Whether a name is as a pattern says.
#[must_use]
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    attach::glob::matches(pattern, name)
}

/// Reads lines of /proc/kallsyms that come in pieces.
pub fn kallsyms(text: &[u8], piece: usize) -> u64 {
    let (mut pieces, mut count) = (text.chunks(piece), 0u64);
    let mut each = |symbol: loader::kernel::kallsyms::Symbol<'_>| {
        assert!(symbol.source_name().len() <= symbol.name.len());
        count = count.wrapping_mul(31).wrapping_add(symbol.address ^ symbol.name.len() as u64);
        std::ops::ControlFlow::<()>::Continue(())
    };
    let read = |buffer: &mut [u8]| {
        let piece = pieces.next().unwrap_or_default();
        buffer[..piece.len()].copy_from_slice(piece);
        Ok(piece.len())
    };
    let _ = loader::kernel::kallsyms::each_of(read, &mut vec![0; piece], &mut each);
    count
}

/// Reads records of a BPF ring buffer, out of a file of its consumer's page, its producer's and the data twice.
pub fn bpf_ring(file: std::os::fd::BorrowedFd<'_>, size: u32) -> u32 {
    let mut records = 0;
    let Ok(mut ring) = sys::ring::RingPages::new(file, size) else { return 0 };
    while let Ok((bytes, step)) = ring.peek() {
        assert!(step >= 8 && bytes.is_none_or(|bytes| bytes.len() + 8 <= step as usize));
        bytes.map(|bytes| std::hint::black_box(bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte))));
        ring.advance(step);
        records += 1;
    }
    records
}

/// Reads records of a perf ring, out of a file of its page and `pages` of data.
pub fn perf_ring(file: std::os::fd::BorrowedFd<'_>, pages: u32) -> u32 {
    let mut records = 0;
    let Ok(mut ring) = sys::ring::PerfPages::new(file, pages) else { return 0 };
    while let Ok((_, head, tail, step)) = ring.peek() {
        assert!(step >= 8 && head.len() + tail.len() + 8 == step as usize);
        std::hint::black_box(head.iter().chain(tail).fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
        ring.advance(step);
        records += 1;
    }
    records
}

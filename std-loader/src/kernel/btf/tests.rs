//! Blobs of every kind of file, mapped, read and streamed.

use corelo_tests::kernel::{Feature, has};

use super::places::VMLINUX;
use super::*;
use crate::sys::page_size;
use std::io::Write;

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// ELF of one class and order with the sections given.
fn elf(wide: bool, big: bool, sections: &[(&str, &[u8])]) -> Vec<u8> {
    let u = |value: u64, len: usize| -> Vec<u8> {
        let mut bytes = value.to_le_bytes()[..len].to_vec();
        if big {
            bytes.reverse();
        }
        bytes
    };
    let long = if wide { 8 } else { 4 };
    let mut names = vec![0u8];
    let mut data = Vec::<u8>::new();
    let head = if wide { 64 } else { 52 };
    let mut headers = vec![vec![0u8; if wide { 64 } else { 40 }]];
    let mut all: Vec<(&str, Vec<u8>)> = sections.iter().map(|(n, b)| (*n, b.to_vec())).collect();
    for (name, _) in &all {
        names.extend(name.bytes());
        names.push(0);
    }
    names.extend(b".shstrtab\0");
    all.push((".shstrtab", names));
    let mut name_at = 1u64;
    for (name, bytes) in &all {
        let mut header = u(name_at, 4);
        header.extend(u(1, 4));
        header.extend(u(0, long));
        header.extend(u(0, long));
        header.extend(u((head + data.len()) as u64, long));
        header.extend(u(bytes.len() as u64, long));
        header.extend(u(0, 8));
        header.extend(u(1, long));
        header.extend(u(0, long));
        headers.push(header);
        data.extend(bytes);
        name_at += name.len() as u64 + 1;
    }
    let mut file = vec![0x7f, b'E', b'L', b'F', if wide { 2 } else { 1 }, if big { 2 } else { 1 }, 1];
    file.resize(16, 0);
    file.extend(u(1, 2));
    file.extend(u(247, 2));
    file.extend(u(1, 4));
    file.extend(u(0, long));
    file.extend(u(0, long));
    file.extend(u((head + data.len()) as u64, long));
    file.extend(u(0, 4));
    file.extend(u(head as u64, 2));
    file.extend(u(0, 4));
    file.extend(u(if wide { 64 } else { 40 }, 2));
    file.extend(u(headers.len() as u64, 2));
    file.extend(u(headers.len() as u64 - 1, 2));
    assert_eq!(file.len(), head);
    file.extend(data);
    file.extend(headers.concat());
    file
}

#[test]
fn raw_files_of_both_orders() {
    for magic in [[0x9f, 0xeb], [0xeb, 0x9f]] {
        let mut bytes = magic.to_vec();
        bytes.resize(10_000, 3);
        let btf = KernelBtf::from_file(file(&bytes).path()).unwrap();
        assert_eq!((&btf[..], btf.source()), (&bytes[..], Source::File));
    }
}

#[test]
fn elf_files_of_both_classes_and_orders() {
    for wide in [false, true] {
        for big in [false, true] {
            let bytes = elf(wide, big, &[(".text", b"abc"), (".BTF.ext", b"no"), (".BTF", b"the one")]);
            let btf = KernelBtf::from_file(file(&bytes).path()).unwrap();
            assert_eq!((&btf[..], btf.source()), (&b"the one"[..], Source::File));
            let without = elf(wide, big, &[(".text", b"abc")]);
            assert_eq!(KernelBtf::from_file(file(&without).path()).err(), Some(KernelBtfError::NoSection));
            for len in 4..bytes.len() {
                let error = KernelBtf::from_file(file(&bytes[..len]).path()).err();
                assert_eq!(error, Some(KernelBtfError::Elf), "cut at {len}");
            }
        }
    }
}

#[test]
fn what_is_no_btf() {
    for (bytes, want) in
        [(&b""[..], KernelBtfError::NotBtf), (b"\x9f", KernelBtfError::NotBtf), (b"hello", KernelBtfError::NotBtf)]
    {
        assert_eq!(KernelBtf::from_file(file(bytes).path()).err(), Some(want));
    }
    assert_eq!(KernelBtf::from_file(Path::new("/nonexistent/x")).err(), Some(KernelBtfError::Open(Errno::ENOENT)));
    assert!(matches!(KernelBtf::from_file(Path::new("/")).err(), Some(KernelBtfError::Read(Errno(libc::EISDIR)))));
}

#[test]
fn reading_goes_on_beyond_the_stated_size() {
    let bytes = vec![5u8; 3 * page_size() + 17];
    let named = file(&bytes);
    for hint in [0, 1, bytes.len(), 10 * bytes.len()] {
        let fd = files::open(CPath::new(named.path()).unwrap().as_c_str(), OFlags::RDONLY).unwrap();
        let btf = read_all(&fd, hint, Source::Read).unwrap();
        assert_eq!(&btf[..], &bytes[..]);
    }
}

#[test]
fn streams_give_the_bytes_of_their_file_or_section() {
    use corelo_core::min_btf::Source as _;
    let blob = [0x9f, 0xeb, 1, 0, 5, 6, 7, 8, 9];
    for bytes in
        [blob.to_vec(), elf(true, false, &[(".BTF", &blob)]), elf(false, true, &[(".x", b"y"), (".BTF", &blob)])]
    {
        let named = file(&bytes);
        let mut streamed = StreamedBtf::from_file(named.path()).unwrap();
        assert_eq!(streamed.len(), 9);
        let mut buffer = [0; 16];
        assert_eq!(streamed.read_at(4, &mut buffer), Ok(5));
        assert_eq!(buffer[..5], blob[4..]);
        assert_eq!(streamed.read_at(9, &mut buffer), Ok(0));
        assert_eq!(streamed.read_at(u64::MAX, &mut buffer), Ok(0));
    }
    let named = file(b"hello");
    assert_eq!(StreamedBtf::from_file(named.path()).err(), Some(KernelBtfError::NotBtf));
}

#[test]
fn btf_mapped_and_btf_read_are_the_same_bytes() {
    if !has(&[Feature::KernelBtf]) {
        return;
    }
    let fd = files::open(VMLINUX, OFlags::RDONLY).unwrap();
    let read = read_all(&fd, 0, Source::Read).unwrap();
    let open = KernelBtf::open().unwrap();
    assert_eq!(&read[..2], 0xeb9fu16.to_ne_bytes());
    assert!(read[..] == open[..], "the two sources differ");
    match LeanBtf::open().unwrap() {
        LeanBtf::Whole(whole) => assert!(whole.source() == Source::Mmap && whole[..] == read[..]),
        LeanBtf::Streamed(streamed) => assert!(open.source() == Source::Read && bytes_of(streamed) == read[..]),
    }
    assert!(bytes_of(StreamedBtf::open().unwrap()) == read[..], "the stream differs");
}

fn bytes_of(mut streamed: StreamedBtf) -> Vec<u8> {
    use corelo_core::min_btf::Source as _;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 5000]);
    loop {
        match streamed.read_at(bytes.len() as u64, &mut buffer).unwrap() {
            0 => return bytes,
            len => bytes.extend(&buffer[..len]),
        }
    }
}

#[test]
fn what_is_refused_to_be_mapped_is_streamed_by_the_lean_and_read_by_the_other() {
    // A file of sysfs has a size of one page and attributes that no kernel maps; one of procfs tells no size.
    for path in [c"/sys/kernel/fscaps", c"/proc/version"] {
        let wanted = std::fs::read(path.to_str().unwrap()).unwrap();
        let LeanBtf::Streamed(streamed) = LeanBtf::from_sysfs(path).unwrap() else {
            panic!("{path:?} was mapped");
        };
        assert_eq!(bytes_of(streamed), wanted, "{path:?}");
        let read = KernelBtf::from_sysfs(path).unwrap();
        assert_eq!((&read[..], read.source()), (&wanted[..], Source::Read), "{path:?}");
    }
    let missing = LeanBtf::from_sysfs(c"/sys/kernel/btf/no_such_module").err();
    assert_eq!(missing, Some(KernelBtfError::Open(Errno::ENOENT)));
}

#[test]
fn what_no_btf_can_be_is_refused_before_it_is_read() {
    let whole = |path: &Path| KernelBtf::from_file(path).err();
    let streamed = |path: &Path| StreamedBtf::from_file(path).err();
    for path in ["/dev/zero", "/dev/null"].map(Path::new) {
        assert_eq!([whole(path), streamed(path)], [Some(KernelBtfError::NotBtf); 2], "{path:?}");
    }
    let named = file(&[0x9f, 0xeb, 1, 0]);
    for (size, error) in [(MAX_BYTES as u64 + 1, KernelBtfError::TooLarge), (1 << 40, KernelBtfError::TooLarge)] {
        // No block of it is on the disk.
        std::fs::OpenOptions::new().write(true).open(named.path()).unwrap().set_len(size).unwrap();
        assert_eq!([whole(named.path()), streamed(named.path())], [Some(error); 2], "{size}");
    }
}

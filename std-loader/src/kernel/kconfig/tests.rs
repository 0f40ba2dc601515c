use std::io::Write;
use std::os::fd::OwnedFd;

use super::*;

const SIGNED: Option<KconfigType> = Some(KconfigType::Integer { is_signed: true });
const UNSIGNED: Option<KconfigType> = Some(KconfigType::Integer { is_signed: false });
const CHAR: Option<KconfigType> = Some(KconfigType::Char { is_signed: true });
const BOOL: Option<KconfigType> = Some(KconfigType::Bool);
const TRISTATE: Option<KconfigType> = Some(KconfigType::Tristate);
const CHARS: Option<KconfigType> = Some(KconfigType::CharArray);

fn one<const N: usize>(ty: Option<KconfigType>, text: &[u8]) -> Result<[u8; N], ValueError> {
    let mut out = [0xaa; N];
    match write(ty, text, &mut out) {
        Err(error) => {
            assert_eq!(out, [0xaa; N], "written to in spite of {error}");
            Err(error)
        }
        Ok(()) => Ok(out),
    }
}

#[test]
fn y_n_and_m_fit_bools_tristates_and_chars() {
    assert_eq!(one(BOOL, b"y"), Ok([1]));
    assert_eq!(one(BOOL, b"n"), Ok([0]));
    assert_eq!(one::<1>(BOOL, b"m"), Err(ValueError::ModuleIntoBool));
    for (letter, value) in [(b"n", 0u32), (b"y", 1), (b"m", 2)] {
        assert_eq!(one(TRISTATE, letter), Ok(value.to_ne_bytes()));
        assert_eq!(one(TRISTATE, letter), Ok(u64::from(value).to_ne_bytes()));
        assert_eq!(one(CHAR, letter), Ok(*letter));
        assert_eq!(one::<4>(SIGNED, letter), Err(ValueError::TristateIntoOther));
        assert_eq!(one::<9>(CHARS, letter), Err(ValueError::TristateIntoOther));
    }
    assert_eq!(one::<4>(None, b"y"), Err(ValueError::UnknownType));
}

#[test]
fn numbers_are_read_as_c_writes_them_and_fit_their_types() {
    assert_eq!(one(SIGNED, b"1000"), Ok(1000i32.to_ne_bytes()));
    assert_eq!(one(SIGNED, b"-5"), Ok((-5i32).to_ne_bytes()));
    assert_eq!(one(SIGNED, b"-5"), Ok((-5i64).to_ne_bytes()));
    assert_eq!(one(UNSIGNED, b"0xdeadBEEF"), Ok(0xdead_beefu32.to_ne_bytes()));
    assert_eq!(one(UNSIGNED, b"0"), Ok(0u32.to_ne_bytes()));
    assert_eq!(one(UNSIGNED, b"010"), Ok(8u32.to_ne_bytes()));
    assert_eq!(one(UNSIGNED, b"0xffffffffffffffff"), Ok(u64::MAX.to_ne_bytes()));
    for (text, signed, unsigned) in [
        (&b"127"[..], true, true),
        (b"128", false, true),
        (b"255", false, true),
        (b"256", false, false),
        (b"-1", true, false),
        (b"-128", true, false),
        (b"-129", false, false),
    ] {
        let signed_char = one::<1>(Some(KconfigType::Char { is_signed: true }), text);
        let unsigned_char = one::<1>(Some(KconfigType::Char { is_signed: false }), text);
        assert_eq!((signed_char.is_ok(), unsigned_char.is_ok()), (signed, unsigned));
        assert!(signed_char.is_ok() || signed_char == Err(ValueError::OutOfRange));
    }
    assert_eq!(one::<2>(SIGNED, b"32768"), Err(ValueError::OutOfRange));
    assert_eq!(one(SIGNED, b"-32768"), Ok(i16::MIN.to_ne_bytes()));
    assert_eq!(one::<4>(UNSIGNED, b"4294967296"), Err(ValueError::OutOfRange));
    for text in [&b"18446744073709551616"[..], b"-9223372036854775809"] {
        assert_eq!(one::<8>(SIGNED, text), Err(ValueError::OutOfRange));
    }
    assert_eq!(one(BOOL, b"1"), Ok([1]));
    assert_eq!(one::<1>(BOOL, b"2"), Err(ValueError::OutOfRange));
    assert_eq!(one::<4>(TRISTATE, b"1"), Err(ValueError::NumberIntoOther));
    assert_eq!(one::<4>(CHARS, b"1"), Err(ValueError::NumberIntoOther));
    for text in [&b""[..], b"-", b"--5", b"+-5", b"0x", b"0x-1", b"12a", b"09", b"yes", b"\xff", b"1 2"] {
        assert_eq!(one::<4>(SIGNED, text), Err(ValueError::Malformed), "{text:?}");
    }
}

#[test]
fn strings_are_cut_to_their_arrays_and_end_with_zero() {
    assert_eq!(one(CHARS, b"\"abc\""), Ok(*b"abc\0\0"));
    assert_eq!(one(CHARS, b"\"abcd\""), Ok(*b"abcd\0"));
    assert_eq!(one(CHARS, b"\"abcdefgh\""), Ok(*b"abcd\0"));
    assert_eq!(one(CHARS, b"\"\""), Ok([0; 3]));
    assert_eq!(one(CHARS, b"\"a\""), Ok([0]));
    assert_eq!(one(CHARS, b"\"say \\\"hi\\\"\""), Ok(*b"say \\\"hi\\\"\0"));
    assert_eq!(one::<4>(SIGNED, b"\"1\""), Err(ValueError::StringIntoOther));
    assert_eq!(one::<1>(CHAR, b"\"y\""), Err(ValueError::StringIntoOther));
    for text in [&b"\""[..], b"\"abc", b"abc\""] {
        assert_eq!(one::<4>(CHARS, text), Err(ValueError::Malformed));
    }
}

/// What it says of everything: an answer, or that it cannot be asked.
struct Fake(bool);

impl Virtual for Fake {
    fn version(&self) -> Result<KernelVersion, Errno> {
        if self.0 { Ok(KernelVersion::new(6, 1, 7)) } else { Err(Errno::EACCES) }
    }

    fn has_bpf_cookie(&self) -> Result<bool, Errno> {
        if self.0 { Ok(true) } else { Err(Errno::EPERM) }
    }

    fn has_syscall_wrapper(&self) -> Result<bool, KallsymsError> {
        if self.0 { Ok(false) } else { Err(KallsymsError::Empty) }
    }
}

type Source<'a> = dyn FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<Option<ConfigFile>, TextError> + 'a;

fn no_file(_: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<ConfigFile>, TextError> {
    Ok(None)
}

fn config(each: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<ConfigFile>, TextError> {
    each(b"CONFIG_HZ", b"250");
    each(b"CONFIG_HZ", b"300");
    each(b"CONFIG_EXT4_FS", b"m");
    Ok(Some(ConfigFile::Boot))
}

fn fill_one(name: &[u8], ty: Option<KconfigType>, is_weak: bool, source: Box<Source<'_>>) -> Result<u32, KconfigError> {
    let mut value = [0xaa; 4];
    let len = match ty {
        Some(KconfigType::Bool) => 1,
        _ => 4,
    };
    let wanted = Wanted { name, ty, is_weak };
    let mut list = [(wanted, &mut value[..len])];
    fill_from(&mut list[..], &Fake(true), source)?;
    value[len..].fill(0);
    Ok(u32::from_ne_bytes(value))
}

#[test]
fn virtual_externs_need_no_configuration() {
    let mut values = [[0xaau8; 4]; 4];
    let [version, cookie, wrapper, later] = &mut values;
    let wanted = |name, is_weak| Wanted { name, ty: SIGNED, is_weak };
    let mut list = [
        (wanted(b"LINUX_KERNEL_VERSION", false), &mut version[..]),
        (wanted(b"LINUX_HAS_BPF_COOKIE", false), &mut cookie[..]),
        (wanted(b"LINUX_HAS_SYSCALL_WRAPPER", false), &mut wrapper[..]),
        (wanted(b"LINUX_HAS_WHAT_COMES", true), &mut later[..]),
    ];
    fill_from(&mut list[..], &Fake(true), |_| panic!("no file is needed")).unwrap();
    assert_eq!(values.map(u32::from_ne_bytes), [(6 << 16) + (1 << 8) + 7, 1, 0, 0]);
    assert_eq!(
        fill_one(b"LINUX_HAS_WHAT_COMES", SIGNED, false, Box::new(no_file)),
        Err(KconfigError::UnknownName { index: 0 })
    );
    assert_eq!(fill_one(b"HZ", SIGNED, true, Box::new(no_file)), Err(KconfigError::UnknownName { index: 0 }));
    assert_eq!(
        fill_one(b"LINUX_KERNEL_VERSION", BOOL, false, Box::new(no_file)),
        Err(KconfigError::Value { index: 0, error: ValueError::OutOfRange })
    );
}

#[test]
fn an_absent_option_is_zero_if_weak_and_an_error_if_strong() {
    let get = |name: &[u8], ty, is_weak| fill_one(name, ty, is_weak, Box::new(config));
    assert_eq!(get(b"CONFIG_HZ", SIGNED, false), Ok(250));
    assert_eq!(get(b"CONFIG_EXT4_FS", TRISTATE, false), Ok(2));
    assert_eq!(
        get(b"CONFIG_EXT4_FS", BOOL, true),
        Err(KconfigError::Value { index: 0, error: ValueError::ModuleIntoBool })
    );
    assert_eq!(get(b"CONFIG_ABSENT", SIGNED, true), Ok(0));
    assert_eq!(get(b"CONFIG_ABSENT", SIGNED, false), Err(KconfigError::Missing { index: 0 }));
    assert_eq!(fill_one(b"CONFIG_HZ", SIGNED, true, Box::new(no_file)), Ok(0));
    assert_eq!(fill_one(b"CONFIG_HZ", SIGNED, false, Box::new(no_file)), Err(KconfigError::NoConfig { index: 0 }));
}

fn file(bytes: &[u8]) -> OwnedFd {
    use std::io::Seek;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file.into()
}

type NamesAndValues = Vec<(Vec<u8>, Vec<u8>)>;

/// Two megabytes of configuration: more than one window and more than one buffer.
fn long_config() -> (Vec<u8>, NamesAndValues) {
    let (mut text, mut want) = (Vec::new(), Vec::new());
    text.extend(b"#\n# Linux\n#\n# CONFIG_UNSET is not set\n\n");
    for number in 0u64..60_000 {
        let (name, value) =
            (format!("CONFIG_VALUE_{number}"), format!("{:#x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        writeln!(text, "{name}={value}").unwrap();
        want.push((name.into_bytes(), value.into_bytes()));
    }
    text.extend(b"CONFIG_LAST=\"a = b\"");
    want.push((b"CONFIG_LAST".to_vec(), b"\"a = b\"".to_vec()));
    (text, want)
}

fn collect(
    read: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> Result<(), TextError>,
) -> Result<NamesAndValues, TextError> {
    let mut got = Vec::new();
    read(&mut |name, value| got.push((name.to_vec(), value.to_vec())))?;
    Ok(got)
}

#[test]
fn plain_and_compressed_text_are_the_same() {
    let (text, want) = long_config();
    let plain = collect(|each| {
        assert!(text::plain(&file(&text), each).unwrap());
        Ok(())
    });
    assert!(plain.unwrap() == want);
    let deflated = miniz_oxide::deflate::compress_to_vec(&text, 6);
    // Every optional part of the header, then none.
    let with_all: &[u8] = b"\x1f\x8b\x08\x1e\0\0\0\0\0\x03\x03\0abcname\0comment\0\0\0";
    for head in [with_all, b"\x1f\x8b\x08\0\0\0\0\0\0\x03"] {
        let mut gzip = [head, &deflated].concat();
        gzip.extend([0; 8]);
        assert!(collect(|each| text::gzip(&file(&gzip), each).map(|any| assert!(any))).unwrap() == want);
        for len in [1, 5, head.len(), gzip.len() / 2, gzip.len() - 9] {
            let cut = collect(|each| text::gzip(&file(&gzip[..len]), each).map(drop));
            assert_eq!(cut.err(), Some(TextError::Gzip), "cut at {len}");
        }
    }
    assert_eq!(collect(|each| text::gzip(&file(&text), each).map(drop)).err(), Some(TextError::Gzip));
}

#[test]
fn text_without_end_is_refused() {
    let zero: OwnedFd = std::fs::File::open("/dev/zero").unwrap().into();
    let plain = collect(|each| text::plain(&zero, each).map(drop));
    assert_eq!(plain.err(), Some(TextError::TooLarge(ConfigFile::Boot)));
    // What inflates a thousandfold, and a file name in the header that does not end.
    let deflated = miniz_oxide::deflate::compress_to_vec(&vec![b'x'; 17 << 20], 9);
    let bomb = [b"\x1f\x8b\x08\0\0\0\0\0\0\x03", &*deflated].concat();
    assert!(bomb.len() < 100_000);
    let name = [b"\x1f\x8b\x08\x08\0\0\0\0\0\x03", &*vec![b'x'; 17 << 20]].concat();
    for bytes in [bomb, name] {
        let inflated = collect(|each| text::gzip(&file(&bytes), each).map(drop));
        assert_eq!(inflated.err(), Some(TextError::TooLarge(ConfigFile::Proc)));
    }
    assert_eq!(
        TextError::TooLarge(ConfigFile::Proc).to_string(),
        "/proc/config.gz: larger than 16 MiB, which no configuration is"
    );
}

#[test]
fn an_empty_file_is_none() {
    let nothing = |name: &[u8], value: &[u8]| panic!("{name:?} {value:?}");
    assert_eq!(text::gzip(&file(b""), &mut { nothing }), Ok(false));
    assert_eq!(text::plain(&file(b""), &mut { nothing }), Ok(false));
}

#[test]
fn what_cannot_be_asked_is_neither_yes_nor_no() {
    let unknown = |reason| Err(KconfigError::Unknown { index: 0, reason });
    for (name, reason) in [
        (&b"LINUX_KERNEL_VERSION"[..], Unknown::Version(Errno::EACCES)),
        (b"LINUX_HAS_BPF_COOKIE", Unknown::Cookie(Errno::EPERM)),
        (b"LINUX_HAS_SYSCALL_WRAPPER", Unknown::Wrapper(KallsymsError::Empty)),
    ] {
        let fill = |is_weak| {
            let mut value = [0xaa; 4];
            let filled = {
                let mut list = [(Wanted { name, ty: UNSIGNED, is_weak }, &mut value[..])];
                fill_from(&mut list[..], &Fake(false), |_| panic!("no file is needed"))
            };
            filled.map(|()| u32::from_ne_bytes(value))
        };
        assert_eq!(fill(false), unknown(reason));
        assert_eq!(fill(true), Ok(0));
    }
    let closed = TextError::Open { file: ConfigFile::Proc, errno: Errno::EACCES };
    let get = |is_weak| fill_one(b"CONFIG_HZ", SIGNED, is_weak, Box::new(move |_| Err(closed)));
    assert_eq!(get(false), unknown(Unknown::Config(closed)));
    assert_eq!(get(true), Ok(0));
    // What is read in part says nothing of the rest.
    let damaged = fill_one(b"CONFIG_HZ", SIGNED, true, Box::new(|_| Err(TextError::Gzip)));
    assert_eq!(damaged, Err(KconfigError::Text(TextError::Gzip)));
}

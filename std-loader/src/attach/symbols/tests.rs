use std::io::Write;

use corelo_tests::kernel::not_here;

use super::*;

#[derive(Clone, Copy)]
struct Sym {
    name: &'static str,
    value: u64,
    info: u8,
    section: u16,
    /// The version's number, with 0x8000 for one that is not the default.
    version: u16,
}

const FUNC: u8 = 1 << 4 | 2;
const WEAK_FUNC: u8 = 2 << 4 | 2;
const OBJECT: u8 = 1 << 4 | 1;

const fn sym(name: &'static str, value: u64) -> Sym {
    Sym { name, value, info: FUNC, section: 1, version: 1 }
}

struct Build {
    wide: bool,
    big: bool,
    e_type: u16,
    dynamic: Vec<Sym>,
    full: Vec<Sym>,
    versions: bool,
}

impl Build {
    fn number(&self, value: u64, len: usize) -> Vec<u8> {
        let mut bytes = value.to_le_bytes()[..len].to_vec();
        if self.big {
            bytes.reverse();
        }
        bytes
    }

    fn symbols(&self, symbols: &[Sym], names: &mut Vec<u8>) -> Vec<u8> {
        let mut out = vec![0; if self.wide { 24 } else { 16 }];
        for symbol in symbols {
            let name = self.number(names.len() as u64, 4);
            names.extend(symbol.name.bytes());
            names.push(0);
            let info = [symbol.info, 0];
            let section = self.number(u64::from(symbol.section), 2);
            let long = if self.wide { 8 } else { 4 };
            let value = self.number(symbol.value, long);
            let size = self.number(16, long);
            out.extend(if self.wide {
                [&name[..], &info, &section, &value, &size].concat()
            } else {
                [&name[..], &value, &size, &info, &section].concat()
            });
        }
        out
    }

    /// One loaded segment: addresses from 0x40_0000 on are at 0x1000 and further in the file, 0x800 bytes of them.
    fn build(&self) -> Vec<u8> {
        let n = |value, len| self.number(value, len);
        let long = if self.wide { 8 } else { 4 };
        let (head, phsize, shsize) = if self.wide { (64, 56, 64) } else { (52, 32, 40) };
        let mut names = vec![0u8];
        let dynamic = self.symbols(&self.dynamic, &mut names);
        let full = self.symbols(&self.full, &mut names);
        let mut versym = n(0, 2);
        versym.extend(self.dynamic.iter().flat_map(|s| n(s.version.into(), 2)));
        let mut verdef = Vec::new();
        for (number, name) in [(2u64, "LIB_1.0"), (3, "LIB_2.0")] {
            verdef.extend([n(1, 2), n(0, 2), n(number, 2), n(1, 2), n(0, 4), n(20, 4)].concat());
            verdef.extend(n(if number == 2 { 28 } else { 0 }, 4));
            verdef.extend([n(names.len() as u64, 4), n(0, 4)].concat());
            names.extend(name.bytes());
            names.push(0);
        }
        // (type, link, info, entry size, bytes); the names are section 1.
        let mut sections = vec![(3u64, 0u64, 0u64, 0u64, names)];
        if !self.full.is_empty() {
            sections.push((2, 1, 1, full.len() as u64, full));
        }
        if !self.dynamic.is_empty() {
            sections.push((11, 1, 1, dynamic.len() as u64, dynamic));
        }
        if self.versions {
            sections.push((0x6fff_ffff, 0, 0, 2, versym));
            sections.push((0x6fff_fffd, 1, 2, 0, verdef));
        }
        let mut data = Vec::new();
        let mut headers = vec![0; shsize];
        for (kind, link, info, entry, bytes) in sections {
            headers.extend([n(0, 4), n(kind, 4), n(0, long), n(0, long)].concat());
            headers.extend(n((head + phsize + data.len()) as u64, long));
            headers.extend([n(bytes.len() as u64, long), n(link, 4), n(info, 4)].concat());
            headers.extend([n(1, long), n(entry, long)].concat());
            data.extend(bytes);
        }
        let section_count = headers.len() / shsize;
        let mut file = vec![0x7f, b'E', b'L', b'F', 1 + u8::from(self.wide), 1 + u8::from(self.big), 1];
        file.resize(16, 0);
        file.extend([n(self.e_type.into(), 2), n(0, 2), n(1, 4), n(0, long), n(head as u64, long)].concat());
        file.extend(n((head + phsize + data.len()) as u64, long));
        file.extend([n(0, 4), n(head as u64, 2), n(phsize as u64, 2), n(1, 2), n(shsize as u64, 2)].concat());
        file.extend([n(section_count as u64, 2), n(0, 2)].concat());
        assert_eq!(file.len(), head);
        let places = [n(0x1000, long), n(0x40_0000, long), n(0, long), n(0x800, long), n(0x9000, long)].concat();
        file.extend(n(1, 4));
        file.extend(if self.wide {
            [n(5, 4), places, n(0x1000, long)].concat()
        } else {
            [places, n(5, 4), n(0x1000, long)].concat()
        });
        assert_eq!(file.len(), head + phsize);
        file.extend(data);
        file.extend(headers);
        file
    }

    fn find(&self, name: &str) -> Result<u64, SymbolError> {
        find(&self.build(), name)
    }
}

fn find(bytes: &[u8], name: &str) -> Result<u64, SymbolError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    function_offset(file.path(), name)
}

fn library(dynamic: &[Sym], full: &[Sym]) -> Build {
    Build {
        wide: true,
        big: false,
        e_type: abi::ET_DYN,
        dynamic: dynamic.to_vec(),
        full: full.to_vec(),
        versions: false,
    }
}

#[test]
fn both_classes_and_orders() {
    for wide in [false, true] {
        for big in [false, true] {
            for e_type in [abi::ET_DYN, abi::ET_EXEC] {
                // More symbols than one piece has, and the ones that count at the end.
                let mut many: Vec<Sym> = (0..400).map(|n| sym("other", 0x40_0000 + n)).collect();
                many.push(sym("the_one", 0x40_0123));
                many.push(sym("the_one_more", 0x40_0200));
                let build = Build { wide, big, e_type, dynamic: Vec::new(), full: many, versions: false };
                assert_eq!(build.find("the_one"), Ok(0x1123));
                assert_eq!(build.find("the_one_more"), Ok(0x1200));
                assert_eq!(build.find("the_on"), Err(SymbolError::Missing));
                assert_eq!(build.find(""), Err(SymbolError::Missing));
            }
        }
    }
}

#[test]
fn what_has_no_offset() {
    let data = Sym { info: OBJECT, ..sym("data", 0x40_0010) };
    let undefined = Sym { section: 0, ..sym("undefined", 0) };
    let build = library(&[data, undefined, sym("below", 0x3f_ffff), sym("bss", 0x40_0800)], &[]);
    assert_eq!(build.find("data"), Err(SymbolError::Missing));
    assert_eq!(build.find("undefined"), Err(SymbolError::Missing));
    for (name, address) in [("below", 0x3f_ffff), ("bss", 0x40_0800)] {
        assert_eq!(build.find(name), Err(SymbolError::NotInFile { address }));
    }
    assert_eq!(library(&[], &[]).find("x"), Err(SymbolError::NoSymbols));
    let object = Build { e_type: abi::ET_REL, ..library(&[sym("f", 0x40_0000)], &[]) };
    assert_eq!(object.find("f"), Err(SymbolError::NotLoadable));
    for text in [&b""[..], b"\x7fEL", b"#!/bin/sh\n"] {
        assert_eq!(find(text, "f"), Err(SymbolError::NotElf));
    }
    assert_eq!(function_offset(Path::new("/nonexistent/x"), "f"), Err(SymbolError::Open(Errno::ENOENT)));
}

#[test]
fn dynamic_symbols_go_first() {
    let build = library(&[sym("shared", 0x40_0010)], &[sym("shared", 0x40_0020), sym("private", 0x40_0030)]);
    assert_eq!(build.find("shared"), Ok(0x1010));
    assert_eq!(build.find("private"), Ok(0x1030));
}

#[test]
fn weak_symbols_give_way() {
    let weak = |value| Sym { info: WEAK_FUNC, ..sym("f", value) };
    let strong = |value| sym("f", value);
    let find = |symbols: &[Sym]| library(symbols, &[]).find("f");
    assert_eq!(find(&[weak(0x40_0001), strong(0x40_0002)]), Ok(0x1002));
    assert_eq!(find(&[strong(0x40_0002), weak(0x40_0001)]), Ok(0x1002));
    assert_eq!(find(&[weak(0x40_0001), weak(0x40_0002)]), Ok(0x1001));
    assert_eq!(find(&[strong(0x40_0002), strong(0x40_0002)]), Ok(0x1002));
    assert_eq!(
        find(&[strong(0x40_0001), strong(0x40_0002)]),
        Err(SymbolError::Ambiguous { first: 0x1001, second: 0x1002 })
    );
}

#[test]
fn versions_of_a_library() {
    let versioned = |value, version| Sym { version, ..sym("f", value) };
    for (wide, big) in [(true, false), (false, false), (true, true), (false, true)] {
        let build = Build {
            versions: true,
            wide,
            big,
            ..library(&[versioned(0x40_0001, 0x8002), versioned(0x40_0002, 3), sym("g", 0x40_0003)], &[])
        };
        assert_eq!(build.find("f"), Ok(0x1002));
        assert_eq!(build.find("f@LIB_1.0"), Ok(0x1001));
        assert_eq!(build.find("f@LIB_2.0"), Ok(0x1002));
        assert_eq!(build.find("f@@LIB_2.0"), Ok(0x1002));
        assert_eq!(build.find("g"), Ok(0x1003));
        for name in ["f@LIB_3.0", "f@LIB_1", "f@LIB_1.00", "f@", "g@LIB_1.0"] {
            assert_eq!(build.find(name), Err(SymbolError::Missing), "{name}");
        }
    }
    // The full table has them in the names.
    let build = library(&[], &[sym("f@LIB_1.0", 0x40_0001), sym("f@@LIB_2.0", 0x40_0002), sym("h", 0x40_0003)]);
    assert_eq!(build.find("f"), Ok(0x1002));
    assert_eq!(build.find("f@LIB_1.0"), Ok(0x1001));
    assert_eq!(build.find("f@LIB_2.0"), Ok(0x1002));
    assert_eq!(build.find("h@LIB_2.0"), Err(SymbolError::Missing));
}

fn matching(build: &Build, pattern: &str) -> Result<Vec<u64>, SymbolError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&build.build()).unwrap();
    matching_offsets(file.path(), pattern).map(|offsets| offsets.as_slice().to_vec())
}

#[test]
fn all_functions_of_a_pattern() {
    for (wide, big) in [(true, false), (false, true)] {
        let data = Sym { info: OBJECT, ..sym("read_data", 0x40_0001) };
        let undefined = Sym { section: 0, ..sym("read_elsewhere", 0) };
        // More than one piece of symbols; two names of one function; one outside the file.
        let mut full: Vec<Sym> = (0..400).map(|n| sym("other", 0x40_0100 + n)).collect();
        full.extend([
            sym("read_b", 0x40_0030),
            sym("read_a", 0x40_0020),
            sym("read_alias", 0x40_0020),
            data,
            undefined,
        ]);
        full.extend([sym("read_bss", 0x40_0800), sym("pread@@LIB_2.0", 0x40_0040), sym("pread@LIB_1.0", 0x40_0050)]);
        let dynamic = [sym("read_b", 0x40_0030), sym("only_dynamic", 0x40_0060)];
        let build = Build { wide, big, ..library(&dynamic, &full) };
        assert_eq!(matching(&build, "read_*"), Ok(vec![0x1020, 0x1030]));
        assert_eq!(matching(&build, "read_?"), Ok(vec![0x1020, 0x1030]));
        assert_eq!(matching(&build, "read_b"), Ok(vec![0x1030]));
        assert_eq!(matching(&build, "oth*r").map(|offsets| offsets.len()), Ok(400));
        // With the version and without.
        assert_eq!(matching(&build, "pread"), Ok(vec![0x1040, 0x1050]));
        assert_eq!(matching(&build, "pread@@*"), Ok(vec![0x1040]));
        // The full table has nothing: the dynamic one is searched.
        assert_eq!(matching(&build, "only_*"), Ok(vec![0x1060]));
        for pattern in ["read_bss", "read_data", "read_elsewhere", "nothing*", ""] {
            assert_eq!(matching(&build, pattern), Err(SymbolError::Missing), "{pattern}");
        }
        assert_eq!(matching(&Build { wide, big, ..library(&[], &[]) }, "*"), Err(SymbolError::NoSymbols));
    }
}

#[test]
fn cut_and_bent_files_give_errors() {
    let bytes = Build { versions: true, ..library(&[sym("f", 0x40_0001), sym("g", 0x40_0002)], &[]) }.build();
    assert_eq!(find(&bytes, "g"), Ok(0x1002));
    for len in 4..bytes.len() {
        // Where nothing but unread bytes is cut off, the answer stays.
        let answer = find(&bytes[..len], "g");
        assert!(matches!(answer, Ok(0x1002) | Err(SymbolError::Damaged)), "cut at {len}: {answer:?}");
    }
    for at in 4..bytes.len() {
        let mut bent = bytes.clone();
        bent[at] ^= 0xff;
        // Whatever it says, it says it.
        let answer = find(&bent, "g");
        assert_ne!(answer, Ok(u64::MAX), "byte {at}");
    }
}

#[test]
fn the_c_library_has_its_own_functions() {
    if cfg!(not(target_env = "gnu")) || cfg!(target_feature = "crt-static") {
        return not_here("functions of glibc", "this program is linked statically or with another C library");
    }
    let file = find_file(Path::new("libc.so.6")).unwrap();
    let offset = function_offset(file.as_path(), "malloc").unwrap();
    assert!(offset > 0);
    assert_eq!(function_offset(file.as_path(), "corelo_no_such_function"), Err(SymbolError::Missing));
}

/// The file with other segments: of each its type, its first address and its place in the file; all have 0x800 bytes.
fn with_segments(build: &Build, segments: &[(u32, u64, u64)]) -> Vec<u8> {
    let mut file = build.build();
    let at = file.len() as u64;
    file[32..40].copy_from_slice(&at.to_le_bytes());
    file[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
    for &(kind, address, offset) in segments {
        file.extend([kind.to_le_bytes(), 5u32.to_le_bytes()].concat());
        file.extend([offset, address, 0, 0x800, 0x800, 0x1000].map(u64::to_le_bytes).concat());
    }
    file
}

#[test]
fn functions_of_two_segments_by_turns() {
    let build = library(&[], &[sym("f1", 0x40_0010), sym("f2", 0x80_0010), sym("f3", 0x40_0020), sym("f4", 0x80_0020)]);
    let file = with_segments(&build, &[(abi::PT_LOAD, 0x40_0000, 0x1000), (abi::PT_LOAD, 0x80_0000, 0x3000)]);
    let mut on_disk = tempfile::NamedTempFile::new().unwrap();
    on_disk.write_all(&file).unwrap();
    let offsets = matching_offsets(on_disk.path(), "f?").unwrap();
    assert_eq!(offsets.as_slice(), [0x1010, 0x1020, 0x3010, 0x3020]);
}

/// With thousands of segments, looking one function up after the other took as many reads each.
#[test]
fn no_more_segments_are_looked_at_than_the_kernel_would() {
    let build = library(&[], &[sym("f", 0x40_0010)]);
    for (others, wanted) in
        [(MAX_SEGMENTS - 1, Ok(0x1010)), (MAX_SEGMENTS, Err(SymbolError::NotInFile { address: 0x40_0010 }))]
    {
        let mut segments = vec![(abi::PT_NULL, 0x40_0000, 0); others as usize];
        segments.push((abi::PT_LOAD, 0x40_0000, 0x1000));
        assert_eq!(find(&with_segments(&build, &segments), "f"), wanted);
    }
}

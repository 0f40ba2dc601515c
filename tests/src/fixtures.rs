//! Our own BPF objects, compiled from `tests/fixtures` in both byte orders, and the BTF that some are to be relocated against.

use std::fs;
use std::path::PathBuf;

use crate::corpus::workspace_root;
use crate::endian::Endian;

/// A compiled fixture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixture {
    /// Name, without byte order and ending.
    pub name: String,
    /// Byte order.
    pub endian: Endian,
    /// The object.
    pub path: PathBuf,
    /// The target BTF made for it, `NAME-target-el.btf`, if it has one.
    pub target_btf: Option<PathBuf>,
}

impl Fixture {
    /// The object's bytes.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn read(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }

    /// The target BTF's bytes, if there is one.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn read_target(&self) -> Option<Vec<u8>> {
        let path = self.target_btf.as_ref()?;
        Some(fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }
}

fn suffix(endian: Endian) -> &'static str {
    match endian {
        Endian::Little => "el",
        Endian::Big => "eb",
    }
}

/// One fixture by name and byte order.
///
/// # Panics
/// If it is not there: fixtures are part of the repository, and a test without its input must not pass.
#[must_use]
pub fn fixture(name: &str, endian: Endian) -> Fixture {
    let dir = workspace_root().join("tests/fixtures");
    let path = dir.join(format!("{name}-{}.o", suffix(endian)));
    assert!(path.is_file(), "no fixture {}", path.display());
    let target = dir.join(format!("{name}-target-{}.btf", suffix(endian)));
    Fixture { name: name.to_owned(), endian, path, target_btf: target.is_file().then_some(target) }
}

/// Every fixture in every byte order that it was built in, sorted by name.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn fixtures() -> Vec<Fixture> {
    let dir = workspace_root().join("tests/fixtures");
    let mut names: Vec<String> = fs::read_dir(&dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    let of_file = |file: &String| {
        Endian::BOTH.into_iter().find_map(|endian| {
            let name = file.strip_suffix(".o")?.strip_suffix(suffix(endian))?.strip_suffix('-')?;
            Some(fixture(name, endian))
        })
    };
    let found: Vec<Fixture> = names.iter().filter_map(of_file).collect();
    assert!(!found.is_empty(), "no fixtures in {}", dir.display());
    found
}

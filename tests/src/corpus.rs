//! The corpus of real kernels' BTF, real BPF objects and libbpf's recorded answers.
//!
//! It lies beside the workspace, at `../shared/corpus` seen from the workspace's root, or where `CORELO_CORPUS` says; its README
//! tells how each file was made. Without it [`corpus`] prints one line and the tests that use it skip, or fail where
//! `CORELO_REQUIRE_CORPUS=1`.

mod rows;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Once;

pub use rows::{CoreRow, CoreStatus, MapRow, ProgramRow, VerdictRow};

use crate::endian::Endian;

/// The corpus's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corpus {
    root: PathBuf,
}

/// A kernel of the corpus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// `ARCH-VERSION`, as in the file names.
    pub name: String,
    root: PathBuf,
}

/// The workspace's root directory.
#[must_use]
pub fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The corpus, or `None` and a printed line where there is none.
///
/// # Panics
/// Instead of printing, when `CORELO_REQUIRE_CORPUS=1`.
#[must_use]
pub fn corpus() -> Option<Corpus> {
    static SAID: Once = Once::new();
    let root =
        std::env::var_os("CORELO_CORPUS").map_or_else(|| workspace_root().join("../shared/corpus"), PathBuf::from);
    if root.join("MANIFEST.tsv").is_file() {
        return Some(Corpus { root });
    }
    let is_required = std::env::var_os("CORELO_REQUIRE_CORPUS").is_some_and(|value| value == "1");
    assert!(!is_required, "CORELO_REQUIRE_CORPUS=1, but there is no corpus at {}", root.display());
    SAID.call_once(|| println!("skipped: no corpus at {} (CORELO_CORPUS names another place)", root.display()));
    None
}

fn sorted_names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

impl Corpus {
    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Every BPF object, by its path below the directory (as the oracle's tables name it), sorted.
    ///
    /// # Panics
    /// If the directory has none: a corpus without objects would let every test pass.
    #[must_use]
    pub fn objects(&self) -> Vec<String> {
        let mut found = Vec::new();
        for part in ["carved", "debian"] {
            for package in sorted_names(&self.root.join(part)) {
                for file in sorted_names(&self.root.join(part).join(&package)) {
                    if file.ends_with(".o") {
                        found.push(format!("{part}/{package}/{file}"));
                    }
                }
            }
        }
        assert!(!found.is_empty(), "no objects below {}", self.root.display());
        found
    }

    /// Where a file of the corpus lies.
    #[must_use]
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The bytes of a file of the corpus, unpacked if its name ends in `.zst`.
    ///
    /// # Panics
    /// If it cannot be read or unpacked.
    #[must_use]
    pub fn read(&self, relative: &str) -> Vec<u8> {
        let path = self.root.join(relative);
        if relative.ends_with(".zst") {
            let cached = unpacked(&path);
            return fs::read(&cached).unwrap_or_else(|error| panic!("{}: {error}", cached.display()));
        }
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The kernels with a vmlinux BTF, sorted by name.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn kernels(&self) -> Vec<Kernel> {
        let names = sorted_names(&self.root.join("btf"));
        let kernels: Vec<Kernel> = names
            .iter()
            .filter_map(|name| name.strip_suffix(".btf.zst"))
            .map(|name| Kernel { name: name.to_owned(), root: self.root.clone() })
            .collect();
        assert!(!kernels.is_empty(), "no kernels below {}", self.root.display());
        kernels
    }

    /// One kernel by name.
    ///
    /// # Panics
    /// If there is none of that name.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Kernel {
        let found = self.kernels().into_iter().find(|kernel| kernel.name == name);
        found.unwrap_or_else(|| panic!("the corpus has no kernel {name}"))
    }

    fn table(&self, relative: &str) -> String {
        String::from_utf8(self.read(relative)).unwrap_or_else(|error| panic!("{relative}: {error}"))
    }

    /// The rows of libbpf's verdict on each object.
    ///
    /// # Panics
    /// If the table is not as its README says.
    #[must_use]
    pub fn verdicts(&self) -> Vec<VerdictRow> {
        rows::parse(&self.table("oracle/verdicts.tsv"), "oracle/verdicts.tsv")
    }

    /// The programs that libbpf finds in each object.
    ///
    /// # Panics
    /// If the table is not as its README says.
    #[must_use]
    pub fn programs(&self) -> Vec<ProgramRow> {
        rows::parse(&self.table("oracle/programs.tsv"), "oracle/programs.tsv")
    }

    /// The maps that libbpf finds in each object.
    ///
    /// # Panics
    /// If the table is not as its README says.
    #[must_use]
    pub fn maps(&self) -> Vec<MapRow> {
        rows::parse(&self.table("oracle/maps.tsv"), "oracle/maps.tsv")
    }

    /// libbpf's result for each CO-RE record against a kernel: its name, or `local-amd64-...` for the one without a blob here.
    ///
    /// # Panics
    /// If there is no such table or it is not as its README says.
    #[must_use]
    pub fn core_rows(&self, kernel: &str) -> Vec<CoreRow> {
        let relative = format!("oracle/core-{kernel}.tsv.zst");
        rows::parse(&self.table(&relative), &relative)
    }

    /// The names of the kernels that have a CO-RE table, sorted; among them one whose blob is not here.
    #[must_use]
    pub fn core_tables(&self) -> Vec<String> {
        let names = sorted_names(&self.root.join("oracle"));
        names.iter().filter_map(|name| Some(name.strip_prefix("core-")?.strip_suffix(".tsv.zst")?.to_owned())).collect()
    }
}

impl Kernel {
    /// Byte order, by the architecture's name.
    #[must_use]
    pub fn endian(&self) -> Endian {
        if self.name.starts_with("s390x") { Endian::Big } else { Endian::Little }
    }

    /// The unpacked vmlinux BTF.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn btf(&self) -> Vec<u8> {
        let path = self.btf_path();
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// A file with the unpacked vmlinux BTF, for tools that want a path.
    ///
    /// # Panics
    /// If it cannot be unpacked.
    #[must_use]
    pub fn btf_path(&self) -> PathBuf {
        unpacked(&self.root.join(format!("btf/{}.btf.zst", self.name)))
    }

    /// The names of the modules whose split BTF is here, sorted.
    #[must_use]
    pub fn modules(&self) -> Vec<String> {
        let names = sorted_names(&self.root.join(format!("btf/{}-modules", self.name)));
        let mut modules: Vec<String> = names
            .iter()
            .filter_map(|name| Some(name.strip_suffix(".zst").unwrap_or(name).strip_suffix(".btf")?.to_owned()))
            .collect();
        modules.dedup();
        modules
    }

    /// The split BTF of a module, on top of [`Kernel::btf`].
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn module_btf(&self, module: &str) -> Vec<u8> {
        let path = self.module_path(module);
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// A file with the split BTF of a module.
    ///
    /// # Panics
    /// If it cannot be unpacked.
    #[must_use]
    pub fn module_path(&self, module: &str) -> PathBuf {
        let plain = self.root.join(format!("btf/{}-modules/{module}.btf", self.name));
        if plain.exists() { plain } else { unpacked(&plain.with_extension("btf.zst")) }
    }

    /// Modules with distilled BTF: (name, `.BTF`, `.BTF.base`), sorted by name.
    ///
    /// # Panics
    /// If one of a pair cannot be read.
    #[must_use]
    pub fn distilled(&self) -> Vec<(String, Vec<u8>, Vec<u8>)> {
        let dir = self.root.join(format!("btf/{}-distilled", self.name));
        let read = |path: PathBuf| fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let pair = |module: &str| {
            let (split, base) = (dir.join(format!("{module}.btf")), dir.join(format!("{module}.btf_base")));
            (module.to_owned(), read(split), read(base))
        };
        sorted_names(&dir).iter().filter_map(|name| name.strip_suffix(".btf")).map(pair).collect()
    }
}

/// FNV-1a: a key for the cache, no protection against anyone.
fn fnv64(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn cache_dir() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace_root().join("target"), PathBuf::from);
    let dir = target.join("corpus-cache");
    if fs::create_dir_all(&dir).is_ok() {
        return dir;
    }
    let dir = std::env::temp_dir().join("corelo-corpus-cache");
    fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    dir
}

/// A cached file with what a `.zst` file unpacks to, named by the size and hash of the packed bytes. Several test processes may
/// make it at once: each writes a file of its own and renames it.
fn unpacked(path: &Path) -> PathBuf {
    let packed = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let wanted = cache_dir().join(format!("{}-{:016x}-{name}", packed.len(), fnv64(&packed)));
    if wanted.is_file() {
        return wanted;
    }
    let mut bytes = Vec::new();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed.as_slice())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    decoder.read_to_end(&mut bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "-");
    let partial = wanted.with_file_name(format!("partial-{}-{thread}{name}", std::process::id()));
    fs::write(&partial, &bytes).unwrap_or_else(|error| panic!("{}: {error}", partial.display()));
    fs::rename(&partial, &wanted).unwrap_or_else(|error| panic!("{}: {error}", wanted.display()));
    wanted
}

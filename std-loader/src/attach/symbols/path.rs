//! From the name of a program or library to its file, as libbpf's `resolve_full_path` finds it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{FileType, OFlags, fstat};

use crate::sys::files::{self, CPath};
use crate::sys::{Errno, env};

/// Where Debian's family keeps the libraries of this architecture; `None` for one that it does not have.
const MULTIARCH: Option<&str> = if cfg!(target_arch = "x86_64") {
    Some("x86_64-linux-gnu")
} else if cfg!(target_arch = "x86") {
    Some("i386-linux-gnu")
} else if cfg!(target_arch = "aarch64") {
    Some("aarch64-linux-gnu")
} else if cfg!(all(target_arch = "arm", target_abi = "eabihf")) {
    Some("arm-linux-gnueabihf")
} else if cfg!(target_arch = "arm") {
    Some("arm-linux-gnueabi")
} else if cfg!(target_arch = "s390x") {
    Some("s390x-linux-gnu")
} else if cfg!(target_arch = "riscv64") {
    Some("riscv64-linux-gnu")
} else if cfg!(all(target_arch = "powerpc64", target_endian = "little")) {
    Some("powerpc64le-linux-gnu")
} else {
    None
};

/// A file's path, held without the heap.
pub struct FoundFile(CPath);

impl FoundFile {
    /// The path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.0.as_c_str().to_bytes()))
    }
}

impl core::fmt::Debug for FoundFile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_path().fmt(f)
    }
}

/// The file that `name` stands for. A name with a slash is a path and stays as it is. A library (`.so` at the end, or `.so.`
/// inside) is looked for in LD_LIBRARY_PATH and the system's library directories, a program in PATH and the system's directories
/// for programs. The first that may be read (and run, for a program) is it.
///
/// # Errors
/// ENOENT where it is nowhere, ENAMETOOLONG and EINVAL for names that are none.
pub fn find_file(name: &Path) -> Result<FoundFile, Errno> {
    let bytes = name.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(Errno::ENOENT);
    }
    if bytes.contains(&b'/') {
        return CPath::from_bytes(bytes).map(FoundFile);
    }
    let is_library = bytes.ends_with(b".so") || bytes.windows(4).any(|part| part == b".so.");
    if is_library {
        env::var(c"LD_LIBRARY_PATH", |list| search(bytes, list, true))
    } else {
        env::var(c"PATH", |list| search(bytes, list, false))
    }
}

fn search(name: &[u8], list: Option<&[u8]>, is_library: bool) -> Result<FoundFile, Errno> {
    let given = list.unwrap_or_default().split(|byte| *byte == b':');
    let system: &[&str] = if is_library { &["/usr/lib64", "/usr/lib"] } else { &["/usr/bin", "/usr/sbin"] };
    let system = system.iter().map(|directory| directory.as_bytes());
    // As execvp: what is there and closed to us is not said to be nowhere.
    let mut nowhere = Errno::ENOENT;
    let mut found = |parts: &[&[u8]]| match file_in(parts, is_library) {
        Err(Errno::EACCES) => {
            nowhere = Errno::EACCES;
            Ok(None)
        }
        found => found,
    };
    for directory in given.chain(system).filter(|directory| !directory.is_empty()) {
        if let Some(file) = found(&[directory, b"/", name])? {
            return Ok(file);
        }
    }
    if let (true, Some(arch)) = (is_library, MULTIARCH) {
        for directory in ["/lib/", "/usr/lib/"] {
            let parts = [directory.as_bytes(), arch.as_bytes(), b"/", name];
            if let Some(file) = found(&parts)? {
                return Ok(file);
            }
        }
    }
    Err(nowhere)
}

/// `None` where there is no such file, or none that a program or library can be; EACCES where it may not be read.
fn file_in(parts: &[&[u8]], is_library: bool) -> Result<Option<FoundFile>, Errno> {
    let path = CPath::join(parts)?;
    // Opened as it will be, with the effective ids; without waiting for whom a pipe may have at its other end.
    let file = match files::open(path.as_c_str(), OFlags::RDONLY | OFlags::NONBLOCK) {
        Ok(file) => file,
        Err(Errno::EACCES) => return Err(Errno::EACCES),
        Err(_) => return Ok(None),
    };
    let stat = fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let runs = is_library || stat.st_mode & 0o111 != 0;
    Ok((is_file && runs).then_some(FoundFile(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn paths_stay() {
        let found = find_file(Path::new("./no/such")).unwrap();
        assert_eq!(found.as_path(), Path::new("./no/such"));
        assert_eq!(find_file(Path::new("")).err(), Some(Errno::ENOENT));
        assert_eq!(find_file(Path::new("corelo-no-such-program")).err(), Some(Errno::ENOENT));
        assert_eq!(find_file(Path::new("libcorelo-no-such.so.1")).err(), Some(Errno::ENOENT));
    }

    #[test]
    fn programs_have_to_be_executable() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("corelo-tool");
        let list = [b"/nonexistent::", directory.path().as_os_str().as_bytes()].concat();
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let program = |list: &[u8]| search(b"corelo-tool", Some(list), false);
        assert_eq!(program(&list).err(), Some(Errno::ENOENT));
        // A library needs no such permission.
        let library = search(b"corelo-tool", Some(&list), true).unwrap();
        assert_eq!(library.as_path(), file);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(program(&list).unwrap().as_path(), file);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert_eq!(program(&list).err(), Some(Errno::ENOENT));
    }

    #[test]
    fn the_system_is_searched_without_a_variable() {
        let shell = search(b"env", None, false).unwrap();
        assert_eq!(shell.as_path(), Path::new("/usr/bin/env"));
    }
}

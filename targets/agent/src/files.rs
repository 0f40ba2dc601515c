//! Files that commands write: beside the old one, and renamed when they are whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Writes a file as a whole. Where that fails (a full disk), what was there before stays as it is.
///
/// What is no regular file, such as a device or a pipe, is written to as it is.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A link stays a link: the file that it leads to is replaced.
    let (path, before) = match fs::canonicalize(path) {
        Ok(real) => {
            let before = fs::metadata(&real)?;
            (real, Some(before))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (path.to_owned(), None),
        Err(error) => return Err(error),
    };
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        return OpenOptions::new().write(true).open(&path)?.write_all(bytes);
    }
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
    let written = whole(&mut file, bytes, before.as_ref()).and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        // The error of writing is the one to report.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn whole(file: &mut File, bytes: &[u8], before: Option<&fs::Metadata>) -> io::Result<()> {
    if let Some(before) = before {
        file.set_permissions(before.permissions())?;
    }
    file.write_all(bytes)?;
    // Some file systems tell of a full disk only now.
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn files_are_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("out"), dir.path().join("link"));
        write(&path, b"first").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("out", &link).unwrap();
        write(&link, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left beside them");
        write(Path::new("/dev/null"), b"x").unwrap();
        assert!(fs::metadata("/dev/null").is_ok_and(|found| !found.is_file()));
        assert!(write(&dir.path().join("no/such"), b"x").is_err());
    }
}

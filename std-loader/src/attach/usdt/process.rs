//! Where a process has mapped a file: /proc/PID/maps. Only kernels without attach cookies need it.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::OFlags;

use super::UsdtError;
use crate::attach::LinkError;
use crate::sys::Errno;
use crate::sys::files::{self, CPath};
use crate::sys::lines::Lines;
use crate::sys::list::Numbers;

/// Executable mappings of one file.
#[derive(Debug)]
pub(super) struct Mappings {
    /// Start, end and file offset of each, one after the other.
    numbers: Numbers,
}

impl Mappings {
    /// Those of the open file in a process.
    pub(super) fn of(file: BorrowedFd<'_>, pid: u32) -> Result<Mappings, LinkError> {
        let failed = |errno: Errno| LinkError::File { file: "the process's maps in /proc", errno };
        let stat = rustix::fs::fstat(file).map_err(|errno| failed(errno.into()))?;
        let path = CPath::format(format_args!("/proc/{pid}/maps")).map_err(failed)?;
        let mappings = Mappings::read(path.as_c_str(), stat.st_ino).map_err(failed)?;
        if mappings.numbers.as_slice().is_empty() {
            return Err(UsdtError::NotMapped { pid }.into());
        }
        Ok(mappings)
    }

    /// A file is known by its inode only: the device that overlay file systems show here is not that of stat(2).
    fn read(path: &CStr, inode: u64) -> Result<Mappings, Errno> {
        let fd = files::open(path, OFlags::RDONLY)?;
        let mut mappings = Mappings { numbers: Numbers::new() };
        let mut lines = Lines::new();
        let mut buffer = [0; 4096];
        loop {
            match files::read_full(&fd, &mut buffer)? {
                0 => break,
                len => lines.push(&buffer[..len], |line| mappings.take(line, inode))?,
            }
        }
        lines.finish(|line| mappings.take(line, inode))?;
        Ok(mappings)
    }

    fn take(&mut self, line: &[u8], inode: u64) -> Result<(), Errno> {
        for number in mapping(line, inode).into_iter().flatten() {
            self.numbers.push(number)?;
        }
        Ok(())
    }

    /// The address of the byte at an offset of the file.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        self.numbers.as_slice().chunks_exact(3).find_map(|mapping| {
            let inside = offset.checked_sub(mapping[2])?;
            (inside < mapping[1].saturating_sub(mapping[0])).then(|| mapping[0].wrapping_add(inside))
        })
    }
}

/// `START-END rwxp OFFSET DEVICE INODE PATH`, where it is executable and of this inode: start, end and offset.
fn mapping(line: &[u8], wanted: u64) -> Option<[u64; 3]> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let hex = |word: &[u8]| u64::from_str_radix(core::str::from_utf8(word).ok()?, 16).ok();
    let mut ends = words.next()?.split(|byte| *byte == b'-');
    let (start, end) = (hex(ends.next()?)?, hex(ends.next()?)?);
    let is_code = words.next()?.get(2) == Some(&b'x');
    let offset = hex(words.next()?)?;
    let inode = core::str::from_utf8(words.nth(1)?).ok()?.parse::<u64>().ok()?;
    (is_code && inode == wanted).then_some([start, end, offset])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn lines_of_maps() {
        let line = b"7f5c6f5d8000-7f5c6f5da000 r-xp 00001000 103:01 362990598      /usr/lib/lib hello.so";
        assert_eq!(mapping(line, 362_990_598), Some([0x7f5c_6f5d_8000, 0x7f5c_6f5d_a000, 0x1000]));
        assert_eq!(mapping(line, 1), None);
        let data = b"7f5c6f5d1000-7f5c6f5d3000 rw-p 001c7000 08:04 21238613      /usr/lib64/libc-2.17.so";
        assert_eq!(mapping(data, 21_238_613), None);
        for none in [&b"7f5c6f5d3000-7f5c6f5d5000 r-xp 00000000 00:00 0"[..], b"", b"x-y r-xp 0 0 0", b"1-2 r"] {
            assert_eq!(mapping(none, 5), None, "{}", none.escape_ascii());
        }
    }

    #[test]
    fn a_function_of_this_program() {
        let here = std::fs::File::open("/proc/self/exe").unwrap();
        let mappings = Mappings::of(here.as_fd(), std::process::id()).unwrap();
        let address = mapping as *const () as u64;
        let found = mappings.numbers.as_slice().chunks_exact(3).find(|found| (found[0]..found[1]).contains(&address));
        let found = found.expect("the function is in a mapping");
        assert_eq!(mappings.address(address - found[0] + found[2]), Some(address));
        assert_eq!(mappings.address(u64::MAX), None);
        let other = tempfile::tempfile().unwrap();
        let pid = std::process::id();
        assert_eq!(Mappings::of(other.as_fd(), pid).err(), Some(UsdtError::NotMapped { pid }.into()));
    }
}

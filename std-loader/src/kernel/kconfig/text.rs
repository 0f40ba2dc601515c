//! Where the configuration's text comes from, and its lines.

use core::fmt;
use std::os::fd::OwnedFd;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, TINFL_LZ_DICT_SIZE, decompress};
use rustix::fs::OFlags;

use crate::sys::Errno;
use crate::sys::files::{self, CPath};
use crate::sys::lines::Lines;
use crate::sys::mmap::AnonMap;

/// The file that the values came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigFile {
    /// /proc/config.gz: the running kernel's own.
    Proc,
    /// /boot/config-RELEASE: what the distribution says it built.
    Boot,
}

impl fmt::Display for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigFile::Proc => "/proc/config.gz",
            ConfigFile::Boot => "the kernel configuration in /boot",
        })
    }
}

/// The longest text that is read, in bytes: configurations have a few hundred thousand, and a file of a megabyte inflates to a
/// gigabyte.
const MAX_TEXT: usize = 16 << 20;

/// Why a configuration that is there cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TextError {
    /// The file is there and cannot be opened: nothing is known of the configuration.
    Open {
        /// Which.
        file: ConfigFile,
        /// How.
        errno: Errno,
    },
    /// The file cannot be read to its end.
    Read {
        /// Which.
        file: ConfigFile,
        /// How.
        errno: Errno,
    },
    /// The text has more than 16 MiB, which no configuration has: where it is compressed, more than that comes out.
    TooLarge(ConfigFile),
    /// /proc/config.gz is no gzip file, or a damaged one.
    Gzip,
    /// There is no memory for the window of the decompression.
    Memory(Errno),
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextError::Open { file, errno } | TextError::Read { file, errno } => write!(f, "{file}: {errno}"),
            TextError::TooLarge(file) => {
                write!(f, "{file}: larger than {} MiB, which no configuration is", MAX_TEXT >> 20)
            }
            TextError::Gzip => f.write_str("/proc/config.gz is no gzip file, or a damaged one"),
            TextError::Memory(errno) => write!(f, "no memory for /proc/config.gz: {errno}"),
        }
    }
}

impl core::error::Error for TextError {}

/// Calls `each` with the name and the value of each line `CONFIG_NAME=value` of the running kernel's configuration. The value
/// is as written: `y`, `m`, a number, or a string in its quotes. The result is the file, `None` where there is none, or an
/// empty one: what masks a file in a container is /dev/null.
///
/// # Errors
/// [`TextError`] for a file that is there and of no use.
pub fn each(each: &mut dyn FnMut(&[u8], &[u8])) -> Result<Option<ConfigFile>, TextError> {
    let unknown = |file| move |errno| TextError::Open { file, errno };
    let masked = match files::open(c"/proc/config.gz", OFlags::RDONLY) {
        Ok(fd) => match gzip(&fd, each)? {
            true => return Ok(Some(ConfigFile::Proc)),
            false => None,
        },
        Err(Errno::ENOENT) => None,
        // The other file may do.
        Err(errno) => Some(unknown(ConfigFile::Proc)(errno)),
    };
    let uname = rustix::system::uname();
    let release = uname.release().to_str().unwrap_or_default();
    let path = CPath::format(format_args!("/boot/config-{release}")).map_err(unknown(ConfigFile::Boot))?;
    match files::open(path.as_c_str(), OFlags::RDONLY) {
        Ok(fd) if plain(&fd, each)? => Ok(Some(ConfigFile::Boot)),
        Ok(_) | Err(Errno::ENOENT) => masked.map_or(Ok(None), Err),
        Err(errno) => Err(masked.unwrap_or(unknown(ConfigFile::Boot)(errno))),
    }
}

/// A line's name and value, if it has them: `# CONFIG_X is not set` does not.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    if !line.starts_with(b"CONFIG_") {
        return None;
    }
    let equals = line.iter().position(|byte| *byte == b'=')?;
    Some((&line[..equals], line[equals + 1..].trim_ascii_end()))
}

/// Never fails: the type is that of the lines' callback.
type Never = core::convert::Infallible;

fn push(lines: &mut Lines, piece: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) {
    let Ok(()) = lines.push::<Never>(piece, |line| {
        if let Some((name, value)) = split(line) {
            each(name, value);
        }
        Ok(())
    });
}

/// A last line without a line feed.
fn end(lines: &mut Lines, each: &mut dyn FnMut(&[u8], &[u8])) {
    push(lines, b"\n", each);
}

/// Whether there was anything to read.
pub(super) fn plain(fd: &OwnedFd, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool, TextError> {
    const FILE: ConfigFile = ConfigFile::Boot;
    let mut buffer = [0; 4096];
    let mut lines = Lines::new();
    let mut total = 0;
    loop {
        let len = files::read_full(fd, &mut buffer).map_err(|errno| TextError::Read { file: FILE, errno })?;
        if len == 0 {
            break;
        }
        total += len;
        if total > MAX_TEXT {
            return Err(TextError::TooLarge(FILE));
        }
        push(&mut lines, &buffer[..len], each);
    }
    end(&mut lines, each);
    Ok(total != 0)
}

/// A file read in pieces, of which one byte at a time can be taken.
struct Input<'f> {
    fd: &'f OwnedFd,
    buffer: [u8; 4096],
    at: usize,
    len: usize,
}

impl Input<'_> {
    /// What is left of the piece, the next piece where nothing is; empty at the end.
    fn piece(&mut self) -> Result<&[u8], TextError> {
        if self.at == self.len {
            self.at = 0;
            self.len = files::read_full(self.fd, &mut self.buffer)
                .map_err(|errno| TextError::Read { file: ConfigFile::Proc, errno })?;
        }
        Ok(&self.buffer[self.at..self.len])
    }

    fn byte(&mut self) -> Result<u8, TextError> {
        let byte = *self.piece()?.first().ok_or(TextError::Gzip)?;
        self.at += 1;
        Ok(byte)
    }

    /// The header of RFC 1952, whatever it says of names and comments.
    fn skip_header(&mut self) -> Result<(), TextError> {
        const HEADER_CRC: u8 = 2;
        const EXTRA: u8 = 4;
        const NAME: u8 = 8;
        const COMMENT: u8 = 16;
        let mut head = [0; 10];
        for byte in &mut head {
            *byte = self.byte()?;
        }
        let [0x1f, 0x8b, 8, flags, ..] = head else {
            return Err(TextError::Gzip);
        };
        if flags & EXTRA != 0 {
            let len = u16::from_le_bytes([self.byte()?, self.byte()?]);
            for _ in 0..len {
                self.byte()?;
            }
        }
        for flag in [NAME, COMMENT] {
            let mut left = if flags & flag != 0 { MAX_TEXT } else { 0 };
            while left > 0 && self.byte()? != 0 {
                left -= 1;
            }
            if flags & flag != 0 && left == 0 {
                return Err(TextError::TooLarge(ConfigFile::Proc));
            }
        }
        if flags & HEADER_CRC != 0 {
            self.byte()?;
            self.byte()?;
        }
        Ok(())
    }
}

/// Inflates through a window of 32 KiB, which is all that deflate ever looks back. The checksum at the end is not compared:
/// the kernel made the file for this read. The result is false for an empty file.
pub(super) fn gzip(fd: &OwnedFd, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool, TextError> {
    let mut input = Input { fd, buffer: [0; 4096], at: 0, len: 0 };
    if input.piece()?.is_empty() {
        return Ok(false);
    }
    input.skip_header()?;
    let mut window = AnonMap::new(TINFL_LZ_DICT_SIZE).map_err(TextError::Memory)?;
    let mut inflate = DecompressorOxide::new();
    let mut lines = Lines::new();
    let (mut at, mut total) = (0, 0);
    loop {
        let piece = input.piece()?;
        let flags = if piece.is_empty() { 0 } else { TINFL_FLAG_HAS_MORE_INPUT };
        let (status, taken, made) = decompress(&mut inflate, piece, &mut window, at, flags);
        input.at += taken;
        total += made;
        if total > MAX_TEXT {
            return Err(TextError::TooLarge(ConfigFile::Proc));
        }
        push(&mut lines, &window[at..at + made], each);
        at = (at + made) % TINFL_LZ_DICT_SIZE;
        match status {
            TINFLStatus::Done => break,
            TINFLStatus::NeedsMoreInput | TINFLStatus::HasMoreOutput => {}
            _ => return Err(TextError::Gzip),
        }
    }
    end(&mut lines, each);
    Ok(true)
}

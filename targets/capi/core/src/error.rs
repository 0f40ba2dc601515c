//! Errors for C: a code as the result of every call, and the words in the caller's buffer.

use core::ffi::c_char;
use core::fmt::{self, Write as _};

use corelo_core::arena::ArenaFull;
use corelo_core::link::{LinkCause, LinkError};
use corelo_core::object::ObjectError;
use corelo_core::prepare::PrepareError;

use crate::memory;

/// What a call ended with. Codes keep their numbers; new ones are added at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Done.
    Ok = 0,
    /// A pointer is NULL that must not be, or a number is out of range.
    Argument = 1,
    /// The memory given is too small: `wanted` and `left` of the error say how much.
    Memory = 2,
    /// The buffer given for the result is too small; the count that was stored says how much it would take.
    Space = 3,
    /// The object is damaged, or no BPF object.
    Object = 4,
    /// The kernel's BTF is damaged, or no BTF.
    KernelBtf = 5,
    /// The object asks something of the kernel's BTF, and there is none.
    NeedsBtf = 6,
    /// Object, kernel BTF and this machine do not all have one byte order.
    ByteOrder = 7,
    /// A program cannot be linked: a relocation of it fails.
    Link = 8,
    /// There is nothing of this name or number.
    NotFound = 9,
    /// A system call failed: `os_error` says how.
    System = 10,
    /// The kernel refuses a program; `corelo_log` has the verifier's words.
    Verifier = 11,
    /// A program cannot be attached.
    Attach = 12,
    /// Called in the wrong order: maps before loading, loading twice.
    State = 13,
}

/// Why a call failed. The caller sets `text` and `text_size`; the call fills in the rest. A NULL instead of the whole
/// struct is fine: the code is the result of the call anyway.
#[repr(C)]
#[derive(Debug)]
pub struct Error {
    /// Where the words go: one line, with a NUL, cut where they do not fit. May be NULL.
    pub text: *mut c_char,
    /// Bytes at `text`.
    pub text_size: usize,
    /// The call's result again.
    pub code: Code,
    /// The errno of the system call that failed, or 0.
    pub os_error: i32,
    /// With `Memory`: bytes that were wanted for one piece of the work. 0 otherwise.
    pub wanted: usize,
    /// With `Memory`: bytes that were left.
    pub left: usize,
}

/// A failure on its way to C: what [`Error`] is filled from.
#[derive(Debug)]
pub struct Failure<D> {
    /// The call's result.
    pub code: Code,
    /// The errno, or 0.
    pub os_error: i32,
    /// Set with [`Code::Memory`].
    pub full: Option<ArenaFull>,
    /// The words.
    pub words: D,
}

impl<D: fmt::Display> Failure<D> {
    /// A failure without more to it than words.
    pub const fn new(code: Code, words: D) -> Self {
        Self { code, os_error: 0, full: None, words }
    }

    /// Writes it where the caller of a C function wants it, and gives the code back.
    ///
    /// # Safety
    /// `error` is NULL or points to an [`Error`] whose `text` is NULL or has `text_size` writable bytes.
    pub unsafe fn report(&self, error: *mut Error) -> Code {
        // SAFETY: NULL or valid, the caller's promise.
        if let Some(error) = unsafe { error.as_mut() } {
            error.code = self.code;
            error.os_error = self.os_error;
            error.wanted = self.full.map_or(0, |full| full.wanted);
            error.left = self.full.map_or(0, |full| full.left);
            // SAFETY: the caller's promise for `text` and `text_size`.
            let buffer = unsafe { memory::buffer(error.text.cast::<u8>(), error.text_size) };
            write_text(buffer.unwrap_or_default(), &self.words);
        }
        self.code
    }
}

/// Words of one of two kinds.
#[derive(Debug)]
pub enum Words {
    /// Known before.
    Text(&'static str),
    /// The object is at fault.
    Object(ObjectError),
    /// Preparation failed.
    Prepare(PrepareError),
    /// Linking failed.
    Link(LinkError),
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Object(error) => error.fmt(f),
            Self::Prepare(error) => error.fmt(f),
            Self::Link(error) => error.fmt(f),
        }
    }
}

/// The failures of this crate.
pub type CoreFailure = Failure<Words>;

impl CoreFailure {
    /// A wrong argument.
    pub const fn argument(text: &'static str) -> Self {
        Self::text(Code::Argument, text)
    }

    /// A failure known before. Without the feature `words` the text takes no room in the library.
    pub const fn text(code: Code, text: &'static str) -> Self {
        Self::new(code, Words::Text(if cfg!(feature = "words") { text } else { "" }))
    }
}

impl From<ObjectError> for CoreFailure {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Arena(full) => PrepareError::Arena(full).into(),
            error => Self::new(Code::Object, Words::Object(error)),
        }
    }
}

impl From<PrepareError> for CoreFailure {
    fn from(error: PrepareError) -> Self {
        let (code, full) = match error {
            PrepareError::Object(_) => (Code::Object, None),
            PrepareError::Kernel(_) => (Code::KernelBtf, None),
            PrepareError::KernelBtfNeeded => (Code::NeedsBtf, None),
            PrepareError::ByteOrder => (Code::ByteOrder, None),
            PrepareError::Arena(full) => (Code::Memory, Some(full)),
            _ => (Code::Object, None),
        };
        Self { code, os_error: 0, full, words: Words::Prepare(error) }
    }
}

impl From<LinkError> for CoreFailure {
    fn from(error: LinkError) -> Self {
        match error.cause {
            LinkCause::Arena(full) => PrepareError::Arena(full).into(),
            _ => Self::new(Code::Link, Words::Link(error)),
        }
    }
}

/// `words` with a NUL in `buffer`, cut at a character where they do not fit. The result is the bytes written, without
/// the NUL.
pub fn write_text(buffer: &mut [u8], words: &dyn fmt::Display) -> usize {
    if !cfg!(feature = "words") {
        if let Some(end) = buffer.first_mut() {
            *end = 0;
        }
        return 0;
    }
    let mut text = Text { buffer, len: 0 };
    // An error only says that the text was cut.
    let _ = write!(text, "{words}");
    let len = text.len;
    if let Some(end) = text.buffer.get_mut(len) {
        *end = 0;
    }
    len
}

struct Text<'b> {
    buffer: &'b mut [u8],
    len: usize,
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.buffer.len().saturating_sub(1).saturating_sub(self.len);
        let mut fits = text.len().min(room);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        let place = self.buffer.get_mut(self.len..self.len + fits).ok_or(fmt::Error)?;
        place.copy_from_slice(text.as_bytes().get(..fits).ok_or(fmt::Error)?);
        self.len += fits;
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// The result of a C function: `Ok` leaves the caller's error struct with code 0 and no text.
///
/// # Safety
/// As [`Failure::report`].
pub unsafe fn finish<D: fmt::Display>(result: Result<(), Failure<D>>, error: *mut Error) -> Code {
    let failure = match result {
        // SAFETY: the caller's promise.
        Ok(()) => return unsafe { Failure::new(Code::Ok, "").report(error) },
        Err(failure) => failure,
    };
    // SAFETY: the caller's promise.
    unsafe { failure.report(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_a_character_and_ends_with_a_nul() {
        for size in 0..12 {
            let mut buffer = [0xffu8; 12];
            let len = write_text(&mut buffer[..size], &"grüße");
            let want = ["", "", "g", "gr", "gr", "grü", "grü", "grüß", "grüße"];
            // Bytes: g r ü(2) ß(2) e.
            let text = core::str::from_utf8(&buffer[..len]).unwrap();
            assert!(want.contains(&text) && len < size.max(1), "{size}: {text}");
            if size > 0 {
                assert_eq!(buffer[len], 0);
            }
            assert!(buffer[size..].iter().all(|&byte| byte == 0xff));
        }
    }
}

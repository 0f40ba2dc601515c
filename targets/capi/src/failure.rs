//! Errors of the loader as codes and words.

use core::ffi::{CStr, c_char};

use corelo_capi_core::error::{Code, CoreFailure, Failure};
use corelo_loader::kernel::KernelBtfError;
use corelo_loader::load::LoadError;
use corelo_loader::loader::{Cause, Error};
use corelo_loader::prepare::KernelError;
use corelo_loader::sys::Errno;

/// A failure with words of its own.
pub type LoaderFailure = Failure<String>;

pub(crate) fn argument(text: &str) -> LoaderFailure {
    Failure::new(Code::Argument, text.to_owned())
}

pub(crate) fn state(text: &str) -> LoaderFailure {
    Failure::new(Code::State, text.to_owned())
}

pub(crate) fn system(words: String, errno: Errno) -> LoaderFailure {
    Failure { code: kernels(errno), os_error: errno.0, full: None, words }
}

/// What the loader says: its first line, as what the verifier said is in a buffer of its own.
pub(crate) fn failed(error: Error) -> LoaderFailure {
    let words = error.to_string().lines().next().unwrap_or_default().to_owned();
    let os_error = error.errno().map_or(0, |errno| errno.0);
    match error.arena_full() {
        Some(full) => Failure { code: Code::Memory, os_error, full: Some(full), words },
        None => Failure { code: code(error.cause()), os_error, full: None, words },
    }
}

/// The same, with the file that it is about in front.
pub(crate) fn failed_in(file: &str, error: Error) -> LoaderFailure {
    let failure = failed(error);
    Failure { words: format!("{file}: {}", failure.words), ..failure }
}

fn code(cause: &Cause) -> Code {
    match *cause {
        Cause::Object(error) => CoreFailure::from(error).code,
        Cause::Kernel(KernelError::Prepare(error)) => CoreFailure::from(error).code,
        Cause::Kernel(KernelError::Btf(error)) => btf(error),
        Cause::Kernel(_) => Code::KernelBtf,
        Cause::Load(error) => load(error),
        Cause::Attach(_) | Cause::NoTarget => Code::Attach,
        Cause::Unknown | Cause::NotLoaded => Code::NotFound,
        Cause::Kernels(errno) => kernels(errno),
        _ => Code::System,
    }
}

fn kernels(errno: Errno) -> Code {
    if errno == Errno::ENOENT { Code::NotFound } else { Code::System }
}

fn btf(error: KernelBtfError) -> Code {
    match error {
        KernelBtfError::Missing | KernelBtfError::NoSysfs => Code::NeedsBtf,
        KernelBtfError::Open(_) | KernelBtfError::Read(_) | KernelBtfError::Memory(_) => Code::System,
        _ => Code::KernelBtf,
    }
}

fn load(error: LoadError) -> Code {
    match error {
        LoadError::ByteOrder => Code::ByteOrder,
        LoadError::Program { .. } => Code::Verifier,
        LoadError::Link { .. } => Code::Link,
        LoadError::MissingTarget { .. }
        | LoadError::NoTarget { .. }
        | LoadError::NoReplaced { .. }
        | LoadError::Extern { .. }
        | LoadError::Setting { .. } => Code::NotFound,
        LoadError::Pin { .. } => Code::System,
        error if error.errno().is_some() => Code::System,
        _ => Code::Object,
    }
}

/// A string of C's.
///
/// # Safety
/// `text` is NULL or a string with a NUL that stays as it is for as long as `'a`.
pub(crate) unsafe fn string<'a>(text: *const c_char, what: &str) -> Result<&'a str, LoaderFailure> {
    if text.is_null() {
        return Err(argument(&format!("{what} is NULL")));
    }
    // SAFETY: not NULL, and a string by the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| argument(&format!("{what} is not UTF-8")))
}

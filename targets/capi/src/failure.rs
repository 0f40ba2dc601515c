//! Errors of the loader as codes and words.

use core::ffi::{CStr, c_char};

use corelo_capi_core::error::{Code, CoreFailure, Failure};
use corelo_loader::attach::LinkError;
use corelo_loader::events::RingError;
use corelo_loader::kernel::KernelBtfError;
use corelo_loader::load::LoadError;
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
    let code = if errno == Errno::ENOENT { Code::NotFound } else { Code::System };
    Failure { code, os_error: errno.0, full: None, words }
}

pub(crate) fn from_core(failure: CoreFailure, name: &str) -> LoaderFailure {
    let words = format!("{name}: {}", failure.words);
    Failure { code: failure.code, os_error: failure.os_error, full: failure.full, words }
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

/// The code and errno of a kernel BTF that cannot be had.
pub(crate) fn btf_failure(error: KernelBtfError, words: String) -> LoaderFailure {
    let (code, os_error) = match error {
        KernelBtfError::Missing | KernelBtfError::NoSysfs => (Code::NeedsBtf, 0),
        KernelBtfError::Open(errno) | KernelBtfError::Read(errno) | KernelBtfError::Memory(errno) => {
            (Code::System, errno.0)
        }
        _ => (Code::KernelBtf, 0),
    };
    Failure { code, os_error, full: None, words }
}

/// The code and errno of a load that failed.
pub(crate) fn load_failure(error: LoadError, words: String) -> LoaderFailure {
    let (code, os_error, full) = match error {
        LoadError::ByteOrder => (Code::ByteOrder, 0, None),
        LoadError::Arena(full) => (Code::Memory, 0, Some(full)),
        LoadError::MapCreate { errno, .. }
        | LoadError::Cpus { errno, .. }
        | LoadError::MapFill { errno, .. }
        | LoadError::BtfLoad { errno }
        | LoadError::ReplacedBtf { errno, .. } => (Code::System, errno.0, None),
        LoadError::Pin { .. } => (Code::System, 0, None),
        LoadError::Program { failure, .. } => (Code::Verifier, failure.errno.0, None),
        LoadError::Link { .. } => (Code::Link, 0, None),
        LoadError::MissingTarget { .. }
        | LoadError::NoTarget { .. }
        | LoadError::NoReplaced { .. }
        | LoadError::Extern { .. } => (Code::NotFound, 0, None),
        _ => (Code::Object, 0, None),
    };
    Failure { code, os_error, full, words }
}

pub(crate) fn attach_failure(error: LinkError, program: &str) -> LoaderFailure {
    let os_error = match error {
        LinkError::Kernel { errno, .. } | LinkError::File { errno, .. } | LinkError::Lockdown { errno, .. } => errno.0,
        _ => 0,
    };
    Failure { code: Code::Attach, os_error, full: None, words: format!("program {program}: {error}") }
}

pub(crate) fn ring_failure(error: RingError) -> LoaderFailure {
    let os_error = if let RingError::Kernel { errno, .. } = error { errno.0 } else { 0 };
    Failure { code: Code::System, os_error, full: None, words: error.to_string() }
}

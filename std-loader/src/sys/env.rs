//! Environment variables where they lie: std copies them to the heap.

use std::ffi::CStr;

/// Calls `with` with the value of a variable, `None` where it is not set.
pub(crate) fn var<R>(name: &CStr, with: impl FnOnce(Option<&[u8]>) -> R) -> R {
    // SAFETY: the name is NUL-terminated. The value stays as it is while `with` runs: whoever changes the environment while
    // another thread reads it breaks the contract of std::env::set_var and of setenv(3).
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return with(None);
    }
    // SAFETY: getenv(3) returns a NUL-terminated string of the environment, live for as long as said above.
    let value = unsafe { CStr::from_ptr(value) };
    with(Some(value.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn the_same_as_std() {
        let want = std::env::var_os("PATH");
        let want = want.as_ref().map(|path| path.as_bytes());
        var(c"PATH", |path| assert_eq!(path, want));
        var(c"CORELO_IS_NEVER_SET", |value| assert_eq!(value, None));
    }
}

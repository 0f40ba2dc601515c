//! Where kernels keep BTF: sysfs, and images on disk.

use core::ops::ControlFlow;
use std::ffi::CStr;
use std::mem::MaybeUninit;

use rustix::fs::{OFlags, RawDir};

use super::KernelBtfError;
use crate::sys::Errno;
use crate::sys::files::{self, CPath};

/// The places that libbpf's `btf__load_vmlinux_btf()` searches after sysfs; `{}` is uname's release.
const IMAGES: [(&str, &str); 7] = [
    ("/boot/vmlinux-", ""),
    ("/lib/modules/", "/vmlinux-{}"),
    ("/lib/modules/", "/build/vmlinux"),
    ("/usr/lib/modules/", "/kernel/vmlinux"),
    ("/usr/lib/debug/boot/vmlinux-", ""),
    ("/usr/lib/debug/boot/vmlinux-", ".debug"),
    ("/usr/lib/debug/lib/modules/", "/vmlinux"),
];

pub(super) const VMLINUX: &CStr = c"/sys/kernel/btf/vmlinux";

/// What `open` makes of the first image of the running kernel that has BTF.
pub(super) fn from_images<T>(open: impl Fn(&CStr) -> Result<T, KernelBtfError>) -> Result<T, KernelBtfError> {
    let uname = rustix::system::uname();
    let release = uname.release().to_str().unwrap_or_default();
    for (before, after) in IMAGES {
        let path = match after.split_once("{}") {
            Some((after, _)) => CPath::format(format_args!("{before}{release}{after}{release}")),
            None => CPath::format(format_args!("{before}{release}{after}")),
        };
        let Ok(path) = path else { continue };
        // As libbpf: an image without BTF (or that we may not read) is not the last word, the next place may have it.
        if let Ok(found) = open(path.as_c_str()) {
            return Ok(found);
        }
    }
    // Nothing is missing where nothing is shown.
    match files::exists(c"/sys/kernel") {
        Ok(true) => Err(KernelBtfError::Missing),
        Ok(false) => Err(KernelBtfError::NoSysfs),
        Err(errno) => Err(KernelBtfError::Open(errno)),
    }
}

/// Where a loaded module's BTF is.
pub(super) fn module_path(name: &str) -> Result<CPath, KernelBtfError> {
    // A name and no path: what lies elsewhere is no module's.
    if name.is_empty() || name.contains('/') || matches!(name, "." | "..") {
        return Err(KernelBtfError::Open(Errno::ENOENT));
    }
    CPath::format(format_args!("/sys/kernel/btf/{name}")).map_err(KernelBtfError::Open)
}

/// Calls `each` with the name of every loaded module that has BTF, until it breaks. The blobs are not opened:
/// [`super::KernelBtf::open_module`] does that for those that the caller wants, one at a time.
///
/// # Errors
/// The error of reading /sys/kernel/btf; a kernel without that directory (before 5.4) or without module BTF (before
/// 5.11) has no modules to name, which is no error.
pub fn modules<B>(mut each: impl FnMut(&str) -> ControlFlow<B>) -> Result<ControlFlow<B>, Errno> {
    let fd = match files::open(c"/sys/kernel/btf", OFlags::RDONLY | OFlags::DIRECTORY) {
        Err(Errno::ENOENT) => return Ok(ControlFlow::Continue(())),
        result => result?,
    };
    let mut buffer = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(fd, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if matches!(name, "." | ".." | "vmlinux") {
            continue;
        }
        if let ControlFlow::Break(found) = each(name) {
            return Ok(ControlFlow::Break(found));
        }
    }
    Ok(ControlFlow::Continue(()))
}

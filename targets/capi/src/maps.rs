//! Operations on the maps of a loader.

use core::ffi::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};

use corelo_capi_core::error::{Code, Error, Failure, finish};
use corelo_capi_core::memory::{buffer, bytes, store};
use corelo_core::object::MapId;
use corelo_loader::sys::Errno;
use corelo_loader::sys::fd_table::MapRef;

use crate::failure::{LoaderFailure, argument, failed, string, system};
use crate::loader::{Loader, loader};

/// A map in the kernel: its sizes as lookups and updates take them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// The number of the map, for the other calls.
    pub number: u32,
    /// Its descriptor. The loader keeps it; duplicate it to have one for longer.
    pub fd: c_int,
    /// `enum bpf_map_type`
    pub map_type: u32,
    /// How many entries it can hold.
    pub max_entries: u32,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of a value; in per-CPU maps those of all possible CPUs, each rounded up to a multiple of 8.
    pub value_size: usize,
}

/// Finds a loaded map by its name in the source (of global data: `.bss`, `.data`, `.rodata`).
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_STATE`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_map_find(
    handle: *mut Loader,
    name: *const c_char,
    map: *mut Map,
    error: *mut Error,
) -> Code {
    let find = || {
        // SAFETY: the caller's promise.
        let (loader, name) = unsafe { (loader(handle)?, string(name, "name")?) };
        let found = loader.loaded()?.raw_map(name).map_err(failed)?;
        let found = Map {
            number: found.id().get(),
            fd: found.as_fd().as_raw_fd(),
            map_type: found.map_type(),
            max_entries: found.max_entries(),
            key_size: found.key_size(),
            value_size: found.value_bytes(),
        };
        // SAFETY: NULL or writable, the caller's promise.
        unsafe { store(map, found) }.ok_or_else(|| argument("map is NULL"))
    };
    // SAFETY: the caller's promise.
    unsafe { finish(find(), error) }
}

/// A map of the loader's by its number, and the call that failed on it.
fn map<'l>(loader: &'l Loader, number: u32) -> Result<MapRef<'l>, LoaderFailure> {
    let fd = loader.loaded()?.map_fd(MapId::new(number));
    let fd = fd.ok_or_else(|| Failure::new(Code::NotFound, format!("no map #{number}")))?;
    MapRef::new(fd).map_err(|errno| system(format!("map #{number}: {errno}"), errno))
}

fn refused(number: u32, call: &str) -> impl FnOnce(Errno) -> LoaderFailure {
    let words = format!("map #{number}: {call}");
    move |errno| system(format!("{words}: {errno}"), errno)
}

/// Reads the value of a key. Sizes must be those of `corelo_map_find`.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_NOT_FOUND` where there is no such key, `CORELO_CODE_SYSTEM`,
/// `CORELO_CODE_STATE`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_map_lookup(
    handle: *mut Loader,
    number: u32,
    key: *const u8,
    key_size: usize,
    value: *mut u8,
    value_size: usize,
    error: *mut Error,
) -> Code {
    let call = || {
        // SAFETY: the caller's promise.
        let loader = unsafe { loader(handle) }?;
        // SAFETY: the caller's promise.
        let key = unsafe { bytes(key, key_size) }.ok_or_else(|| argument("key is NULL"))?;
        // SAFETY: the caller's promise.
        let value = unsafe { buffer(value, value_size) }.ok_or_else(|| argument("value is NULL"))?;
        map(loader, number)?.lookup(key, value, 0).map_err(refused(number, "lookup"))
    };
    // SAFETY: the caller's promise.
    unsafe { finish(call(), error) }
}

/// Writes the value of a key. `flags` are BPF_ANY (0), BPF_NOEXIST (1), BPF_EXIST (2).
///
/// Result: as `corelo_map_lookup`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_map_update(
    handle: *mut Loader,
    number: u32,
    key: *const u8,
    key_size: usize,
    value: *const u8,
    value_size: usize,
    flags: u64,
    error: *mut Error,
) -> Code {
    let call = || {
        // SAFETY: the caller's promise.
        let loader = unsafe { loader(handle) }?;
        // SAFETY: the caller's promise.
        let key = unsafe { bytes(key, key_size) }.ok_or_else(|| argument("key is NULL"))?;
        // SAFETY: the caller's promise.
        let value = unsafe { bytes(value, value_size) }.ok_or_else(|| argument("value is NULL"))?;
        map(loader, number)?.update(key, value, flags).map_err(refused(number, "update"))
    };
    // SAFETY: the caller's promise.
    unsafe { finish(call(), error) }
}

/// Removes a key.
///
/// Result: as `corelo_map_lookup`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_map_delete(
    handle: *mut Loader,
    number: u32,
    key: *const u8,
    key_size: usize,
    error: *mut Error,
) -> Code {
    let call = || {
        // SAFETY: the caller's promise.
        let loader = unsafe { loader(handle) }?;
        // SAFETY: the caller's promise.
        let key = unsafe { bytes(key, key_size) }.ok_or_else(|| argument("key is NULL"))?;
        map(loader, number)?.delete(key).map_err(refused(number, "delete"))
    };
    // SAFETY: the caller's promise.
    unsafe { finish(call(), error) }
}

/// The key after `key` in `next`, or the first where `key` is NULL. Both have the map's key size.
///
/// Result: `CORELO_CODE_NOT_FOUND` behind the last; else as `corelo_map_lookup`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_map_next_key(
    handle: *mut Loader,
    number: u32,
    key: *const u8,
    next: *mut u8,
    key_size: usize,
    error: *mut Error,
) -> Code {
    let call = || {
        // SAFETY: the caller's promise.
        let loader = unsafe { loader(handle) }?;
        // SAFETY: the caller's promise.
        let key = if key.is_null() { None } else { unsafe { bytes(key, key_size) } };
        // SAFETY: the caller's promise.
        let next = unsafe { buffer(next, key_size) }.ok_or_else(|| argument("next is NULL"))?;
        let found = map(loader, number)?.next_key(key, next).map_err(refused(number, "next key"))?;
        if found { Ok(()) } else { Err(Failure::new(Code::NotFound, format!("map #{number}: no further key"))) }
    };
    // SAFETY: the caller's promise.
    unsafe { finish(call(), error) }
}

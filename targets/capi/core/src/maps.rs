//! What there is to create.

use corelo_core::object::{MapId, MapOrigin};

use crate::error::{Code, CoreFailure, Error, finish};
use crate::memory::{Text, store};
use crate::prepared::Prepared;

/// A map as the object declares it: numbers as BPF_MAP_CREATE takes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MapInfo {
    /// Its name in the source; of global data, the section's.
    pub name: Text,
    /// What the map holds at first: `value_size` bytes or fewer (the rest is zero); empty for maps that start empty.
    pub data: Text,
    /// Flags beyond `flags`, for some map types.
    pub extra: u64,
    /// `enum bpf_map_type`
    pub map_type: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// How many entries it can hold.
    pub max_entries: u32,
    /// BPF_F_*
    pub flags: u32,
    /// The number of the map that is the model of this one's inner maps, or UINT32_MAX.
    pub inner: u32,
    /// Whether it holds global data, and so is an array of one element.
    pub is_data: bool,
}

/// How many maps the object has. NULL has none.
///
/// # Safety
/// `prepared` is NULL or from `corelo_prepare`, and still valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_map_count(prepared: *const Prepared) -> usize {
    // SAFETY: NULL or valid, the caller's promise.
    unsafe { prepared.as_ref() }.map_or(0, |prepared| prepared.inner.maps().len())
}

/// What the map numbered `map` (from 0) is.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_map_info(
    prepared: *const Prepared,
    map: usize,
    info: *mut MapInfo,
    error: *mut Error,
) -> Code {
    let ask = || {
        // SAFETY: NULL or valid, the caller's promise.
        let prepared = unsafe { prepared.as_ref() }.ok_or(CoreFailure::argument("prepared is NULL"))?;
        let nothing = CoreFailure::text(Code::NotFound, "there is no map of this number");
        let map = prepared.inner.maps().get(map).ok_or(nothing)?;
        let data = match map.origin() {
            MapOrigin::Data(_) => map.initial_data(prepared.inner.object()),
            _ => &[],
        };
        let found = MapInfo {
            name: Text::new(prepared.inner.map_name(map)),
            data: Text::new(data),
            extra: map.extra,
            map_type: map.map_type,
            key_size: map.key_size,
            value_size: map.value_size,
            max_entries: map.max_entries,
            flags: map.flags,
            inner: map.inner().map_or(u32::MAX, MapId::get),
            is_data: map.is_internal(),
        };
        // SAFETY: NULL or writable, the caller's promise.
        unsafe { store(info, found) }.ok_or(CoreFailure::argument("info is NULL"))
    };
    // SAFETY: the caller's promise.
    unsafe { finish(ask(), error) }
}

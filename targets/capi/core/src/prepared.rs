//! An object made ready in memory of the caller's: the handle itself lies at its start, the arena behind it.

use core::mem::{MaybeUninit, align_of, size_of};

use corelo_core::arena::{ALIGN, Arena};
use corelo_core::bytes::Endian;
use corelo_core::object::Object;
use corelo_core::prepare::{self, Options, Plan};

use crate::error::{Code, CoreFailure, Error, finish};
use crate::memory::{Text, aligned, bytes, store};

/// An object made ready. It lies in the memory given to `corelo_prepare`, borrows the object and the kernel's BTF, and
/// needs no end: when the three are no longer used they may be freed.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) inner: prepare::Prepared<'static>,
    pub(crate) arena: Arena<'static>,
}

const _: () = assert!(align_of::<Prepared>() <= ALIGN);

/// What an object says of itself at first sight.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ObjectInfo {
    /// The licence; empty where there is none.
    pub license: Text,
    /// The number in the section `version`, or 0.
    pub version: u32,
    /// Whether it is big-endian.
    pub is_big_endian: bool,
    /// Whether it has BTF.
    pub has_btf: bool,
}

/// The version of this interface: the major number times 1000, plus the minor number. The same major number means that
/// programs compiled against an older header work.
#[unsafe(no_mangle)]
pub extern "C" fn corelo_abi_version() -> u32 {
    1000
}

/// Parses an object's headers and says what it is. No memory is needed.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_OBJECT`, `CORELO_CODE_ARGUMENT`. `info` may be NULL.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_check(
    object: *const u8,
    object_size: usize,
    info: *mut ObjectInfo,
    error: *mut Error,
) -> Code {
    // SAFETY: the caller's promise.
    let result = unsafe { parse(object, object_size) }.map(|object| {
        let found = ObjectInfo {
            license: Text::new(object.license()),
            version: object.version(),
            is_big_endian: object.endian() == Endian::Big,
            has_btf: object.btf().is_some(),
        };
        // SAFETY: NULL or writable, the caller's promise. NULL is fine here.
        let _ = unsafe { store(info, found) };
    });
    // SAFETY: the caller's promise.
    unsafe { finish(result, error) }
}

/// Whether an object asks anything of the kernel's BTF: where not, none need be found. `memory` is used while this runs.
///
/// Result: `CORELO_CODE_OK`, with the answer in `answer`; `CORELO_CODE_OBJECT`, `CORELO_CODE_MEMORY`,
/// `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_needs_btf(
    object: *const u8,
    object_size: usize,
    memory: *mut u8,
    memory_size: usize,
    answer: *mut bool,
    error: *mut Error,
) -> Code {
    let ask = || {
        // SAFETY: the caller's promise.
        let object = unsafe { parse(object, object_size) }?;
        // SAFETY: the caller's promise.
        let memory = unsafe { aligned(memory, memory_size) }.ok_or(CoreFailure::argument("memory is NULL"))?;
        let plan = Plan::new(&object, Options::default(), &mut Arena::new(memory))?;
        // SAFETY: NULL or writable, the caller's promise.
        unsafe { store(answer, plan.asks_kernel()) }.ok_or(CoreFailure::argument("answer is NULL"))
    };
    // SAFETY: the caller's promise.
    unsafe { finish(ask(), error) }
}

/// Makes an object ready in `memory`: every relocation is decided. `btf` is the kernel's BTF, or NULL with size 0 where
/// the object asks nothing of it (`corelo_needs_btf`). On success `*prepared` is valid for as long as `object`, `btf`
/// and `memory` stay where they are, unchanged; nothing has to be freed.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_OBJECT`, `CORELO_CODE_KERNEL_BTF`, `CORELO_CODE_NEEDS_BTF`,
/// `CORELO_CODE_BYTE_ORDER`, `CORELO_CODE_MEMORY`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_prepare(
    object: *const u8,
    object_size: usize,
    btf: *const u8,
    btf_size: usize,
    memory: *mut u8,
    memory_size: usize,
    prepared: *mut *mut Prepared,
    error: *mut Error,
) -> Code {
    let make = || {
        // SAFETY: the caller's promise.
        let made = unsafe { prepare_in(object, object_size, btf, btf_size, memory, memory_size) }?;
        // SAFETY: NULL or writable, the caller's promise.
        unsafe { store(prepared, made) }.ok_or(CoreFailure::argument("prepared is NULL"))
    };
    // SAFETY: the caller's promise.
    unsafe { finish(make(), error) }
}

/// The bytes of memory that an object needs with this kernel's BTF: all of `corelo_prepare`, and `corelo_link` of every
/// program. With `*needed` bytes that start at a multiple of 8 both work; with one fewer they do not. It is found by
/// doing the work once in `memory`, which may be larger, so it belongs on a build machine (of the device's pointer size)
/// or into a first boot.
///
/// Result: as `corelo_prepare` and `corelo_link`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_budget(
    object: *const u8,
    object_size: usize,
    btf: *const u8,
    btf_size: usize,
    memory: *mut u8,
    memory_size: usize,
    needed: *mut usize,
    error: *mut Error,
) -> Code {
    let count = || {
        // SAFETY: the caller's promise.
        let made = unsafe { prepare_in(object, object_size, btf, btf_size, memory, memory_size) }?;
        // SAFETY: just made, in memory that is ours for the length of this call.
        let prepared = unsafe { &mut *made };
        for (number, _) in prepared.inner.declared().programs() {
            prepared.inner.program(number, &mut prepared.arena.scratch())?;
        }
        let total = size_of::<Prepared>().saturating_add(prepared.arena.high_water());
        // SAFETY: NULL or writable, the caller's promise.
        unsafe { store(needed, total) }.ok_or(CoreFailure::argument("needed is NULL"))
    };
    // SAFETY: the caller's promise.
    unsafe { finish(count(), error) }
}

/// # Safety
/// As [`bytes`].
unsafe fn parse<'a>(object: *const u8, object_size: usize) -> Result<Object<'a>, CoreFailure> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(object, object_size) }.ok_or(CoreFailure::argument("object is NULL"))?;
    Ok(Object::parse(bytes)?)
}

/// # Safety
/// The three memories are as [`bytes`] and [`aligned`] want them, for as long as the result is used.
unsafe fn prepare_in(
    object: *const u8,
    object_size: usize,
    btf: *const u8,
    btf_size: usize,
    memory: *mut u8,
    memory_size: usize,
) -> Result<*mut Prepared, CoreFailure> {
    // SAFETY: the caller's promise.
    let object: Object<'static> = unsafe { parse(object, object_size) }?;
    // SAFETY: the caller's promise.
    let btf: &'static [u8] = unsafe { bytes(btf, btf_size) }.ok_or(CoreFailure::argument("btf is NULL"))?;
    // SAFETY: the caller's promise.
    let memory: &'static mut [u8] =
        unsafe { aligned(memory, memory_size) }.ok_or(CoreFailure::argument("memory is NULL"))?;
    let (head, rest) = memory.split_at_mut(size_of::<Prepared>().min(memory.len()));
    let mut arena = Arena::new(rest);
    let kernel = if btf.is_empty() { None } else { Some(btf) };
    let inner = prepare::prepare(&object, kernel, Options::default(), &mut arena)?;
    // An arena in which anything was prepared is not empty, so the head in front of it is whole.
    let place = head.as_mut_ptr().cast::<MaybeUninit<Prepared>>();
    if head.len() < size_of::<Prepared>() {
        return Err(CoreFailure::argument("memory is too small"));
    }
    // SAFETY: the head is as long as the handle and starts at a multiple of ALIGN, which is enough for it (asserted
    // above); nobody else has it.
    Ok(unsafe { (*place).write(Prepared { inner, arena }) })
}

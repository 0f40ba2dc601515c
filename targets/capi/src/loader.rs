//! An object with its maps, programs and links, behind one handle.

use core::ffi::c_char;
use std::path::Path;

use corelo_capi_core::error::{Code, Error, Failure, finish};
use corelo_capi_core::memory::{aligned, buffer, bytes, store};
use corelo_loader::kernel::KernelBtf;
use corelo_loader::load::{Change, Collection, Counts, Relocations, Setting};
use corelo_loader::loader::{Buffer, OwnedCollection};
use corelo_loader::objects::Memlock;
use corelo_loader::prepare::{Kernel, KernelError, ObjectFile, Step};

use crate::failure::{LoaderFailure, argument, failed, failed_in, state, string, system};
use crate::options::{Checked, Options};

/// An object that is loaded, or is to be.
#[derive(Debug)]
pub struct Loader {
    loaded: Option<OwnedCollection>,
    /// What the verifier said.
    log: Vec<u8>,
    /// The object's bytes, until it is loaded.
    object: Box<[u8]>,
    /// What errors call it.
    file: String,
    name: String,
    options: Checked,
}

/// Memory of C's, for as long as a loader is there.
struct Lent(*mut u8, usize);

// SAFETY: the caller lends the memory to the loader alone, whichever thread that is used in.
unsafe impl Send for Lent {}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the promise of corelo_open's caller, good until the loader is gone. It was checked there, so that nothing
        // is left out here.
        unsafe { aligned(self.0, self.1) }.unwrap_or_default()
    }
}

/// Reads the object in a file, for `corelo_load` to load: nothing of it is looked at yet. `corelo_close` ends what is stored
/// in `*loader`.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_SYSTEM`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_open(
    path: *const c_char,
    options: *const Options,
    loader: *mut *mut Loader,
    error: *mut Error,
) -> Code {
    let open = || {
        // SAFETY: the caller's promise.
        let (path, options) = unsafe { (string(path, "path")?, Checked::new(options)?) };
        let object =
            ObjectFile::read(Path::new(path)).map_err(|error| system(format!("{path}: {error}"), error.errno()))?;
        let stem = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
        // SAFETY: the caller's promise for `loader`.
        unsafe { hand_out(&object, path, stem.split('.').next().unwrap_or_default(), options, loader) }
    };
    // SAFETY: the caller's promise.
    unsafe { finish(open(), error) }
}

/// As `corelo_open`, with an object that is in memory already. It is copied.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_open_memory(
    object: *const u8,
    object_size: usize,
    options: *const Options,
    loader: *mut *mut Loader,
    error: *mut Error,
) -> Code {
    let open = || {
        // SAFETY: the caller's promise.
        let options = unsafe { Checked::new(options) }?;
        // SAFETY: the caller's promise.
        let object = unsafe { bytes(object, object_size) }.ok_or_else(|| argument("object is NULL"))?;
        // SAFETY: the caller's promise for `loader`.
        unsafe { hand_out(object, "object", "object", options, loader) }
    };
    // SAFETY: the caller's promise.
    unsafe { finish(open(), error) }
}

/// # Safety
/// `place` is NULL or writable, and the memory in the options as the header's rules say.
unsafe fn hand_out(
    object: &[u8],
    file: &str,
    stem: &str,
    options: Checked,
    place: *mut *mut Loader,
) -> Result<(), LoaderFailure> {
    if place.is_null() {
        return Err(argument("loader is NULL"));
    }
    let name = options.name.as_deref().unwrap_or(stem).to_owned();
    let (loaded, log, object, file) = (None, Vec::new(), object.into(), file.to_owned());
    let loader = Box::new(Loader { loaded, log, object, file, name, options });
    // SAFETY: not NULL, and writable by the caller's promise.
    unsafe { store(place, Box::into_raw(loader)) }.ok_or_else(|| argument("loader is NULL"))
}

/// Ends a loader: links are detached, programs and maps closed (pinned ones stay), memory is freed. NULL is nothing.
///
/// # Safety
/// `loader` is NULL or from `corelo_open`, not closed yet, and in use by nobody.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_close(loader: *mut Loader) {
    if !loader.is_null() {
        // SAFETY: it came from a box, and is given back once: the caller's promise.
        drop(unsafe { Box::from_raw(loader) });
    }
}

/// # Safety
/// `loader` is NULL or valid and in use by nobody else for as long as the result.
pub(crate) unsafe fn loader<'l>(loader: *mut Loader) -> Result<&'l mut Loader, LoaderFailure> {
    // SAFETY: the caller's promise.
    unsafe { loader.as_mut() }.ok_or_else(|| argument("loader is NULL"))
}

/// Makes the object ready (every relocation is decided), creates the maps and loads the programs. On failure nothing is left
/// in the kernel, and it may be tried again.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_OBJECT`, `CORELO_CODE_KERNEL_BTF`, `CORELO_CODE_NEEDS_BTF`,
/// `CORELO_CODE_BYTE_ORDER`, `CORELO_CODE_MEMORY`, `CORELO_CODE_VERIFIER` (see `corelo_log`), `CORELO_CODE_SYSTEM`,
/// `CORELO_CODE_LINK`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_STATE` where it is loaded, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_load(handle: *mut Loader, error: *mut Error) -> Code {
    // SAFETY: the caller's promise.
    let load = || unsafe { loader(handle) }.and_then(Loader::load);
    // SAFETY: the caller's promise.
    unsafe { finish(load(), error) }
}

impl Loader {
    fn load(&mut self) -> Result<(), LoaderFailure> {
        if self.loaded.is_some() {
            return Err(state("it is loaded already"));
        }
        let (options, log) = (&self.options, &mut self.log);
        log.clear();
        let kernel = match &options.btf_path {
            Some(path) => Kernel::of(
                KernelBtf::from_file(Path::new(path))
                    .map_err(|error| failed_in(path, KernelError::Btf(error).into()))?,
            ),
            None => Kernel::running(),
        };
        let skipped: Vec<Setting<'_>> =
            options.skip.iter().map(|name| Setting::new(name, Change::Load(false))).collect();
        let mut loader = corelo_loader::loader::Loader::new(&self.object)
            .name(&self.name)
            .settings(&skipped)
            .pin_root(options.pin_root());
        if options.keep_memlock {
            loader = loader.memlock(Memlock::Keep);
        }
        let buffer = match options.memory {
            Some((memory, size)) => Buffer::given(Lent(memory, size)),
            None => Buffer::growing(),
        };
        let loaded = loader.load_owned_watched(kernel, buffer, &mut |progress| {
            if let Step::Refused { log: said, .. } = progress.step {
                log.extend_from_slice(said);
            }
        });
        self.loaded = Some(loaded.map_err(|error| failed_in(&self.file, error))?);
        // The collection has a copy of its own.
        self.object = Box::default();
        Ok(())
    }

    pub(crate) fn loaded(&self) -> Result<&Collection<'_>, LoaderFailure> {
        self.loaded.as_ref().map(OwnedCollection::collection).ok_or_else(|| state("it is not loaded yet"))
    }

    fn change<R>(&mut self, change: impl FnOnce(&mut Collection<'_>) -> R) -> Result<R, LoaderFailure> {
        self.loaded.as_mut().map(|loaded| loaded.with_mut(change)).ok_or_else(|| state("it is not loaded yet"))
    }
}

/// Attaches loaded programs as their sections say, and registers struct_ops tables: all of them, or the program called
/// `program`. Of all, those whose section names nothing to attach to by itself (networks, cgroups, sockets) are left out; and
/// those that are attached already always are. `count` may be NULL; it gets the number of programs and tables attached. On
/// failure none of this call stays attached.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_ATTACH`, `CORELO_CODE_NOT_FOUND` (also for a program that is not loaded),
/// `CORELO_CODE_STATE`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_attach(
    handle: *mut Loader,
    program: *const c_char,
    count: *mut usize,
    error: *mut Error,
) -> Code {
    let attach = || {
        // SAFETY: the caller's promise.
        let loader = unsafe { loader(handle) }?;
        // SAFETY: the caller's promise.
        let only = if program.is_null() { None } else { Some(unsafe { string(program, "program") }?) };
        let attached = loader.change(|collection| match only {
            Some(program) => collection.attach(program).map(usize::from),
            None => collection.attach_all(),
        })?;
        // SAFETY: NULL or writable, the caller's promise. NULL is fine here.
        let _ = unsafe { store(count, attached.map_err(failed)?) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { finish(attach(), error) }
}

/// Detaches all programs. They stay loaded, and their maps too.
///
/// Result: `CORELO_CODE_OK`, also where nothing is loaded; `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_detach(handle: *mut Loader, error: *mut Error) -> Code {
    let detach = || {
        // SAFETY: the caller's promise.
        let loader = unsafe { loader(handle) }?;
        if let Some(loaded) = &mut loader.loaded {
            loaded.with_mut(|collection| collection.detach_all());
        }
        Ok::<(), LoaderFailure>(())
    };
    // SAFETY: the caller's promise.
    unsafe { finish(detach(), error) }
}

/// What is in the kernel, and what it took: all 0 before `corelo_load`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Maps created.
    pub maps: u32,
    /// Programs loaded.
    pub programs: u32,
    /// Programs attached.
    pub links: u32,
    /// CO-RE relocations that got a value, in the programs loaded.
    pub patched: u32,
    /// CO-RE relocations that were poisoned, in the programs loaded.
    pub poisoned: u32,
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// The most that was ever in use of them.
    pub arena_used: usize,
}

impl Summary {
    fn of(collection: &Collection<'_>) -> Self {
        let Counts { maps, programs } = collection.counts();
        let Relocations { patched, poisoned } = collection.relocations();
        let arena = collection.arena_bytes();
        Self {
            maps: maps as u32,
            programs: programs as u32,
            links: collection.links().len() as u32,
            patched,
            poisoned,
            arena_bytes: arena.capacity,
            arena_used: arena.high_water,
        }
    }
}

/// What is in the kernel now.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_summary(handle: *mut Loader, summary: *mut Summary, error: *mut Error) -> Code {
    let ask = || {
        // SAFETY: the caller's promise.
        let loader = unsafe { loader(handle) }?;
        let found = loader.loaded.as_ref().map_or_else(Summary::default, |loaded| Summary::of(loaded.collection()));
        // SAFETY: NULL or writable, the caller's promise.
        unsafe { store(summary, found) }.ok_or_else(|| argument("summary is NULL"))
    };
    // SAFETY: the caller's promise.
    unsafe { finish(ask(), error) }
}

/// How many records the object's programs found no room for in their rings, by their own count: in a map called `lost`, an
/// array (per CPU or not) of one 64-bit number. The kernel itself counts nothing of a ring buffer; how full one was found
/// says `corelo_ring_fill`.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_NOT_FOUND` where the object has no such map, `CORELO_CODE_SYSTEM`,
/// `CORELO_CODE_STATE`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_lost(handle: *mut Loader, count: *mut u64, error: *mut Error) -> Code {
    let ask = || {
        // SAFETY: the caller's promise.
        let loader = unsafe { loader(handle) }?;
        let lost = loader.loaded()?.lost().map_err(|errno| system(format!("map lost: {errno}"), errno))?;
        let lost =
            lost.ok_or_else(|| Failure::new(Code::NotFound, "the object counts nothing in a map `lost`".into()))?;
        // SAFETY: NULL or writable, the caller's promise.
        unsafe { store(count, lost) }.ok_or_else(|| argument("count is NULL"))
    };
    // SAFETY: the caller's promise.
    unsafe { finish(ask(), error) }
}

/// The verifier's log of the last `corelo_load` that ended in `CORELO_CODE_VERIFIER`: its tail, as far as it fits, with
/// a NUL in `text`. The result is the length of the whole log, 0 where there is none.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_log(handle: *mut Loader, text: *mut c_char, text_size: usize) -> usize {
    // SAFETY: the caller's promise.
    let Ok(loader) = (unsafe { loader(handle) }) else { return 0 };
    let log = loader.log.as_slice();
    // SAFETY: the caller's promise.
    let buffer = unsafe { buffer(text.cast::<u8>(), text_size) }.unwrap_or_default();
    if let Some(room) = buffer.len().checked_sub(1) {
        let tail = &log[log.len().saturating_sub(room)..];
        buffer[..tail.len()].copy_from_slice(tail);
        buffer[tail.len()] = 0;
    }
    log.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;
    use std::ffi::CString;

    /// Opens a fixture with maps pinned in `root`, in `memory` or (where it is empty) in memory of its own.
    fn opened(name: &str, root: &str, memory: &mut [u64], bytes: usize) -> *mut Loader {
        let endian = if cfg!(target_endian = "big") { "eb" } else { "el" };
        let path = format!("{}/../../tests/fixtures/{name}-{endian}.o", env!("CARGO_MANIFEST_DIR"));
        let (path, root) = (CString::new(path).unwrap(), CString::new(root).unwrap());
        let options = Options {
            size: size_of::<Options>(),
            btf_path: ptr::null(),
            name: ptr::null(),
            pin_root: root.as_ptr(),
            memory: if memory.is_empty() { ptr::null_mut() } else { memory.as_mut_ptr().cast() },
            memory_size: bytes,
            skip: ptr::null(),
            keep_memlock: false,
        };
        let mut handle = ptr::null_mut();
        // SAFETY: all of it lives until the call returns, and the memory until the loader is closed.
        let code = unsafe { corelo_open(path.as_ptr(), &options, &mut handle, ptr::null_mut()) };
        assert_eq!(code as i32, Code::Ok as i32);
        handle
    }

    #[test]
    fn an_object_without_end_is_refused() {
        let mut text = [0u8; 256];
        let mut error = Error {
            text: text.as_mut_ptr().cast(),
            text_size: text.len(),
            code: Code::Ok,
            os_error: 0,
            wanted: 0,
            left: 0,
        };
        let mut handle = ptr::null_mut();
        // SAFETY: all of it lives until the call returns.
        let code = unsafe { corelo_open(c"/dev/zero".as_ptr(), ptr::null(), &mut handle, &mut error) };
        assert!(code as i32 == Code::System as i32 && handle.is_null());
        assert_eq!(error.os_error, corelo_loader::sys::Errno::EFBIG.0);
        let said = core::ffi::CStr::from_bytes_until_nul(&text).unwrap();
        assert_eq!(said.to_str(), Ok("/dev/zero: larger than 64 MiB, which no object is"));
    }

    /// corelo.h promises it: the second try in exactly the bytes that one takes failed.
    #[test]
    fn after_a_failed_load_the_same_memory_does_for_the_next() {
        let root = format!("/sys/fs/bpf/corelo-capi-{}", std::process::id());
        if let Err(error) = std::fs::create_dir(&root) {
            return corelo_tests::kernel::skip("write to a BPF file system", &error.to_string());
        }
        let pin = format!("{root}/corelo_pinned");
        let load = |handle: *mut Loader| {
            // SAFETY: a loader that is open; no error is asked for.
            unsafe { corelo_load(handle, ptr::null_mut()) as i32 }
        };
        // SAFETY: as above.
        let used = |handle: *mut Loader| unsafe { (*handle).loaded().unwrap().arena_bytes().high_water };
        let handle = opened("pins_sound", &root, &mut [], 0);
        assert_eq!(load(handle), Code::Ok as i32);
        let budget = used(handle);
        // SAFETY: from corelo_open, and not used again.
        unsafe { corelo_close(handle) };
        std::fs::remove_file(&pin).unwrap();

        let mut memory = vec![0u64; budget.div_ceil(8)];
        let handle = opened("pins_sound", &root, &mut memory, budget);
        // Where the pin is to go there is a directory: the load fails after the tables were made.
        std::fs::create_dir(&pin).unwrap();
        for _ in 0..3 {
            assert_eq!(load(handle), Code::System as i32);
        }
        std::fs::remove_dir(&pin).unwrap();
        assert_eq!(load(handle), Code::Ok as i32);
        assert_eq!(used(handle), budget);
        assert_eq!(load(handle), Code::State as i32);
        // SAFETY: as above.
        unsafe { corelo_close(handle) };
        std::fs::remove_file(&pin).unwrap();

        // And one that the verifier refuses, again and again, leaves nothing.
        let handle = opened("pins_program", &root, &mut [], 0);
        for _ in 0..3 {
            assert_eq!(load(handle), Code::Verifier as i32);
            let mut log = [0; 4096];
            // SAFETY: as above, and the buffer is as large as said.
            let len = unsafe { corelo_log(handle, log.as_mut_ptr(), log.len()) };
            // SAFETY: it ends with a NUL.
            let said = unsafe { core::ffi::CStr::from_ptr(log.as_ptr()) }.to_str().unwrap();
            assert!(len > 0 && said.contains("R0"), "{len}: {said}");
            assert!(!std::path::Path::new(&pin).exists());
        }
        // SAFETY: as above.
        unsafe { corelo_close(handle) };
        std::fs::remove_dir(&root).unwrap();
    }
}

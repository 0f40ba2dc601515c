//! An object with its maps, programs and links, behind one handle.

use core::ffi::c_char;
use core::ptr::NonNull;
use std::path::Path;

use corelo_capi_core::error::{Code, CoreFailure, Error, Failure, finish};
use corelo_capi_core::memory::{aligned, buffer, bytes, store};
use corelo_core::arena::Arena;
use corelo_core::object::{Object, ProgramId};
use corelo_core::prepare::{Options as PrepareOptions, Plan, PrepareError, Prepared};
use corelo_loader::attach::Link;
use corelo_loader::kernel::{KernelBtf, Modules};
use corelo_loader::load::{Change, Collection, LoadError, LoadOptions, Setting, rehearse};
use corelo_loader::objects::{GrowingLog, Memlock};
use corelo_loader::prepare::{Kernel, KernelError, KernelOptions, ObjectFile};
use corelo_loader::report::{LoadReport, Name, NoKernelBtf, ObjectReport};

use crate::failure::{
    LoaderFailure, argument, attach_failure, btf_failure, from_core, load_failure, state, string, system,
};
use crate::options::{Checked, Options};

/// Something on the heap that others borrow from for as long as it lives, whatever the compiler sees.
#[derive(Debug)]
struct Pinned<T: ?Sized>(NonNull<T>);

impl<T: ?Sized> Pinned<T> {
    fn new(value: Box<T>) -> Self {
        Self(NonNull::from(Box::leak(value)))
    }

    /// # Safety
    /// The result is not used once `self` is dropped, nor beside one of [`Pinned::get_mut`].
    unsafe fn get(&self) -> &'static T {
        // SAFETY: it lives until `self` is dropped, which is the caller's to see to.
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    /// As [`Pinned::get`], and it is the only one.
    unsafe fn get_mut(&mut self) -> &'static mut T {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}

impl<T: ?Sized> Drop for Pinned<T> {
    fn drop(&mut self) {
        // SAFETY: it came from a box and is given back once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// An object that is being loaded. Fields are dropped in this order: each borrows from those below it.
#[derive(Debug)]
pub struct Loader {
    links: Vec<(ProgramId, Link)>,
    pub(crate) collection: Option<Collection<'static>>,
    prepared: Pinned<Prepared<'static>>,
    arena: Arena<'static>,
    /// The arena's buffer, where it is not the caller's.
    _buffer: Option<Pinned<[u64]>>,
    _kernel: Option<Pinned<Kernel<'static>>>,
    _object: Pinned<[u8]>,
    /// The modules that were searched.
    modules: Modules<'static>,
    log: GrowingLog,
    log_len: usize,
    options: Checked,
    name: String,
}

/// Opens the object in a file and makes it ready: every relocation is decided, nothing is in the kernel yet.
/// `corelo_close` ends what is stored in `*loader`.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_SYSTEM`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_OBJECT`,
/// `CORELO_CODE_KERNEL_BTF`, `CORELO_CODE_NEEDS_BTF`, `CORELO_CODE_BYTE_ORDER`, `CORELO_CODE_MEMORY`,
/// `CORELO_CODE_ARGUMENT`.
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
        let object = ObjectFile::read(Path::new(path))
            .map_err(|error| crate::failure::system(format!("{path}: {error}"), error.errno()))?;
        let object = Box::from(&*object);
        let stem = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
        let stem = stem.split('.').next().unwrap_or_default().to_owned();
        // SAFETY: the caller's promise for `loader` and the memory in the options.
        unsafe { hand_out(open(object, path, &stem, options), loader) }
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
        // SAFETY: the caller's promise for `loader` and the memory in the options.
        unsafe { hand_out(open(object.into(), "object", "object", options), loader) }
    };
    // SAFETY: the caller's promise.
    unsafe { finish(open(), error) }
}

/// # Safety
/// `place` is NULL or writable.
unsafe fn hand_out(opened: Result<Loader, LoaderFailure>, place: *mut *mut Loader) -> Result<(), LoaderFailure> {
    let loader = Box::new(opened?);
    if place.is_null() {
        return Err(argument("loader is NULL"));
    }
    // SAFETY: not NULL, and writable by the caller's promise.
    unsafe { store(place, Box::into_raw(loader)) }.ok_or_else(|| argument("loader is NULL"))
}

/// Where an allocated arena starts and ends growing.
const ARENA_START: usize = 64 << 10;
const ARENA_LIMIT: usize = 1 << 30;

/// # Safety
/// The memory in the options is the caller's to give until the loader is gone.
unsafe fn open(object: Box<[u8]>, file: &str, stem: &str, options: Checked) -> Result<Loader, LoaderFailure> {
    let object = Pinned::new(object);
    let name = options.name.clone().unwrap_or_else(|| stem.to_owned());
    let mut kernel = None;
    // SAFETY: all that borrows from object, kernel and buffer is dropped before them: here by the order of declaration, in
    // the loader by the order of its fields.
    let bytes = unsafe { object.get() };
    let mut size = ARENA_START;
    let (buffer, arena, (prepared, modules)) = loop {
        let mut buffer = None;
        let memory = match options.memory {
            // SAFETY: the caller's promise; what borrowed it in the last round is gone.
            Some((memory, size)) => unsafe { aligned(memory, size) }.ok_or_else(|| argument("memory is NULL"))?,
            None => {
                // Zero pages, of which only those that are used become memory.
                let words = buffer.insert(Pinned::new(vec![0u64; size / 8].into_boxed_slice()));
                // SAFETY: the only borrow of it; it is dropped after the arena.
                let words = unsafe { words.get_mut() };
                // SAFETY: the same bytes, seen as bytes.
                unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size) }
            }
        };
        let mut arena = Arena::new(memory);
        let mut tried = prepare(bytes, file, &options, &mut kernel, &mut arena);
        if let (Ok((prepared, modules)), None) = (&tried, options.memory) {
            // It is to be large enough for loading, too.
            let mut scratch = arena.scratch();
            let rehearsed = with_options(&options, &name, modules, |load| rehearse(prepared, load, &mut scratch));
            if let Err(error) = rehearsed {
                let words = format!("{file}: {}", LoadReport { prepared, error, pin_root: options.pin_root() });
                tried = Err(load_failure(error, words).into());
            }
        }
        let may_grow = options.memory.is_none() && size < ARENA_LIMIT;
        match tried {
            Ok(made) => break (buffer, arena, made),
            Err(Unready { failure, .. }) if may_grow && failure.code == Code::Memory => size *= 2,
            Err(unready) if unready.is_tried_again(kernel.as_ref()) => {}
            Err(Unready { failure, .. }) => return Err(failure),
        }
    };
    Ok(Loader {
        links: Vec::new(),
        collection: None,
        prepared: Pinned::new(Box::new(prepared)),
        arena,
        _buffer: buffer,
        _kernel: kernel,
        _object: object,
        modules,
        log: GrowingLog::new(16 << 10, 16 << 20),
        log_len: 0,
        options,
        name,
    })
}

fn with_options<R>(options: &Checked, name: &str, modules: &Modules<'_>, job: impl FnOnce(&LoadOptions<'_>) -> R) -> R {
    let settings: Vec<Setting<'_>> =
        options.skip.iter().map(|skipped| Setting::new(skipped, Change::Load(false))).collect();
    let load = LoadOptions::new(name.as_bytes());
    job(&LoadOptions {
        settings: &settings,
        modules: modules.names(),
        pin_root: options.pin_root(),
        memlock: if options.keep_memlock { Memlock::Keep } else { load.memlock },
        ..load
    })
}

/// Why an object is not prepared: for the caller, and for another try.
struct Unready {
    failure: LoaderFailure,
    error: Option<KernelError>,
}

impl Unready {
    /// Whether the kernel's BTF as a whole may do, which is taken from now on.
    fn is_tried_again(&self, kernel: Option<&Pinned<Kernel<'static>>>) -> bool {
        // SAFETY: for this call only.
        let kernel = kernel.map(|kernel| unsafe { kernel.get() });
        kernel.zip(self.error).is_some_and(|(kernel, error)| kernel.takes_whole_after(&error))
    }
}

impl From<LoaderFailure> for Unready {
    fn from(failure: LoaderFailure) -> Self {
        Self { failure, error: None }
    }
}

/// Prepares an object with the modules that it needs. The kernel is opened into `kernel` when it is asked for.
fn prepare(
    bytes: &'static [u8],
    file: &str,
    options: &Checked,
    kernel: &mut Option<Pinned<Kernel<'static>>>,
    arena: &mut Arena<'static>,
) -> Result<(Prepared<'static>, Modules<'static>), Unready> {
    let object = Object::parse(bytes).map_err(|error| from_core(error.into(), file))?;
    let failed = |error: KernelError| {
        let failure = match error {
            KernelError::Prepare(PrepareError::Object(error)) => {
                Failure::new(Code::Object, format!("{file}: {}", ObjectReport { object: Some(&object), error }))
            }
            KernelError::Prepare(error) => from_core(CoreFailure::from(error), file),
            error => Failure::new(Code::KernelBtf, format!("{file}: {error}")),
        };
        Unready { failure, error: Some(error) }
    };
    let plan = Plan::new(&object, PrepareOptions::default(), arena).map_err(|error| failed(error.into()))?;
    if !plan.asks_kernel() {
        return Ok((plan.finish().map_err(|error| failed(error.into()))?, Modules::default()));
    }
    let kernel = match kernel {
        Some(kernel) => kernel,
        None => {
            let chosen = match &options.btf_path {
                Some(path) => KernelBtf::from_file(Path::new(path))
                    .map(Kernel::of)
                    .map_err(|error| btf_failure(error, format!("{path}: {error}")))?,
                None => Kernel::new(KernelOptions::RUNNING),
            };
            kernel.insert(Pinned::new(Box::new(chosen)))
        }
    };
    // SAFETY: the caller keeps the kernel for longer than what is prepared with it.
    let mut opened = unsafe { kernel.get() }.open().map_err(|reason| {
        let words = NoKernelBtf { object: &object, plan: &plan, reason };
        btf_failure(reason, format!("{file}: {words}"))
    })?;
    let types = opened.types(&plan, arena).map_err(failed)?;
    let mut search = plan.search(types, arena).map_err(|error| failed(error.into()))?;
    // A module that cannot be read is none that has the type.
    let modules = opened.modules(&search, &mut |_, _| {}).map_err(failed)?;
    modules.search(&mut search, arena, &mut |_, _, _| {}).map_err(|error| failed(error.into()))?;
    Ok((search.finish(), modules))
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

/// Creates the maps and loads the programs. On failure nothing is left in the kernel, and it may be tried again.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_VERIFIER` (see `corelo_log`), `CORELO_CODE_SYSTEM`, `CORELO_CODE_LINK`,
/// `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_MEMORY`, `CORELO_CODE_BYTE_ORDER`, `CORELO_CODE_STATE` where it is loaded.
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
        if self.collection.is_some() {
            return Err(state("it is loaded already"));
        }
        // SAFETY: the collection is dropped before it, and nobody borrows it mutably.
        let prepared = unsafe { self.prepared.get() };
        self.log_len = 0;
        // What a try takes is in a child of the arena, so that after a failure all of it is there for the next.
        // SAFETY: all that lies in the child is dropped on failure, or is the collection, which goes before the arena and
        // its buffer. Meanwhile nothing is taken from the arena itself.
        let mut child = unsafe { core::mem::transmute::<Arena<'_>, Arena<'static>>(self.arena.scratch()) };
        let (arena, log) = (&mut child, &mut self.log);
        let loaded = with_options(&self.options, &self.name, &self.modules, |options| {
            let mut collection = Collection::create(prepared, options, arena)?;
            collection.load_programs(options, arena, log)?;
            Ok(collection)
        });
        match loaded {
            Ok(collection) => {
                self.collection = Some(collection);
                Ok(())
            }
            Err(error) => {
                if let LoadError::Program { failure, .. } = error {
                    self.log_len = failure.log_len as usize;
                }
                Err(load_failure(error, LoadReport { prepared, error, pin_root: self.options.pin_root() }.to_string()))
            }
        }
    }

    pub(crate) fn loaded(&self) -> Result<&Collection<'static>, LoaderFailure> {
        self.collection.as_ref().ok_or_else(|| state("it is not loaded yet"))
    }

    fn attach(&mut self, only: Option<&str>) -> Result<usize, LoaderFailure> {
        // SAFETY: as in `load`.
        let prepared = unsafe { self.prepared.get() };
        let Some(collection) = &self.collection else { return Err(state("it is not loaded yet")) };
        let before = self.links.len();
        let mut is_known = only.is_none();
        for (number, function) in prepared.declared().programs() {
            let name = prepared.function_name(function);
            if only.is_some_and(|only| only.as_bytes() != name) {
                continue;
            }
            is_known = true;
            if self.links.iter().any(|(attached, _)| *attached == number) {
                continue;
            }
            match collection.attach_program(number) {
                Ok(Some(link)) => self.links.push((number, link)),
                Ok(None) => {}
                Err(error) => {
                    self.links.truncate(before);
                    return Err(attach_failure(error, &Name(name).to_string()));
                }
            }
        }
        if !is_known {
            return Err(Failure::new(Code::NotFound, format!("no program {}", only.unwrap_or_default())));
        }
        Ok(self.links.len() - before)
    }
}

/// Attaches loaded programs as their sections say: all of them, or the one called `program`. Those whose section names
/// nothing to attach to by itself (networks, cgroups, sockets) are left out, and so are those that are attached already.
/// `count` may be NULL; it gets the number of programs attached. On failure none of this call stays attached.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_ATTACH`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_STATE`.
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
        let attached = loader.attach(only)?;
        // SAFETY: NULL or writable, the caller's promise. NULL is fine here.
        let _ = unsafe { store(count, attached) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { finish(attach(), error) }
}

/// Detaches all programs. They stay loaded, and their maps too.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_detach(handle: *mut Loader, error: *mut Error) -> Code {
    // SAFETY: the caller's promise.
    let detach = || unsafe { loader(handle) }.map(|loader| loader.links.clear());
    // SAFETY: the caller's promise.
    unsafe { finish(detach(), error) }
}

/// What is in the kernel, and what it took.
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
        let (maps, programs) = loader.collection.as_ref().map_or((0, 0), Collection::counts);
        let (patched, poisoned) = loader.collection.as_ref().map_or((0, 0), Collection::relocations);
        let found = Summary {
            maps: maps as u32,
            programs: programs as u32,
            links: loader.links.len() as u32,
            patched,
            poisoned,
            arena_bytes: loader.arena.capacity(),
            arena_used: loader.arena.high_water(),
        };
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
    let log = loader.log.as_bytes().get(..loader.log_len).unwrap_or_default();
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
        let used = |handle: *mut Loader| unsafe { (*handle).arena.high_water() };
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
            assert!(!std::path::Path::new(&pin).exists());
        }
        // SAFETY: as above.
        unsafe { corelo_close(handle) };
        std::fs::remove_dir(&root).unwrap();
    }
}

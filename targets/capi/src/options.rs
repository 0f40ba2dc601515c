//! How an object is opened.

use core::ffi::c_char;

use crate::failure::{LoaderFailure, argument, string};

/// How an object is opened. All zero but `size` is a fine choice, and so is NULL instead of the whole.
#[repr(C)]
#[derive(Debug)]
pub struct Options {
    /// `sizeof(corelo_options)`: what lies beyond is taken as zero.
    pub size: usize,
    /// The file with the kernel's BTF (raw, or an ELF file with a `.BTF` section); NULL for the running kernel's.
    pub btf_path: *const c_char,
    /// The object's name, for the maps of its global data; NULL for the file's name without its ending.
    pub name: *const c_char,
    /// Where maps that ask for it are pinned; NULL for /sys/fs/bpf.
    pub pin_root: *const c_char,
    /// Memory for all that the loader works out, until `corelo_close`; NULL to let it be allocated. A shortage is
    /// `CORELO_CODE_MEMORY`.
    pub memory: *mut u8,
    /// Bytes of it.
    pub memory_size: usize,
    /// Programs not to load: their names with commas between; NULL for none.
    pub skip: *const c_char,
    /// Whether RLIMIT_MEMLOCK is left alone even where an old kernel refuses for its sake.
    pub keep_memlock: bool,
}

/// The same, checked, with strings of our own.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) btf_path: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) pin_root: Option<String>,
    pub(crate) memory: Option<(*mut u8, usize)>,
    pub(crate) skip: Vec<String>,
    pub(crate) keep_memlock: bool,
}

impl Checked {
    /// # Safety
    /// `options` is NULL or valid for `size` bytes, its strings with NULs.
    pub(crate) unsafe fn new(options: *const Options) -> Result<Self, LoaderFailure> {
        // SAFETY: the size stands first in every version of the struct.
        let Some(options) = (unsafe { options.as_ref() }) else { return Ok(Self::default()) };
        if options.size < size_of::<Options>() {
            return Err(argument("size of corelo_options is smaller than this version's"));
        }
        let text = |text: *const c_char, what| {
            // SAFETY: the caller's promise for the strings.
            let copy = || unsafe { string(text, what) }.map(str::to_owned);
            if text.is_null() { Ok(None) } else { copy().map(Some) }
        };
        if options.memory.is_null() && options.memory_size != 0 {
            return Err(argument("memory is NULL"));
        }
        Ok(Self {
            btf_path: text(options.btf_path, "btf_path")?,
            name: text(options.name, "name")?,
            pin_root: text(options.pin_root, "pin_root")?,
            memory: (!options.memory.is_null()).then_some((options.memory, options.memory_size)),
            skip: text(options.skip, "skip")?.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect(),
            keep_memlock: options.keep_memlock,
        })
    }
}

//! How an object is opened.

use core::ffi::c_char;
use corelo_loader::load::PIN_ROOT;

use crate::failure::{LoaderFailure, argument, string};

/// How an object is opened. All zero but `size` is a fine choice, and so is NULL instead of the whole.
#[repr(C)]
#[derive(Debug)]
pub struct Options {
    /// `sizeof(corelo_options)`: no more is read, and what lies beyond is taken as zero.
    pub size: usize,
    /// The file with the kernel's BTF (raw, or an ELF file with a `.BTF` section), which every `corelo_load` reads; NULL for
    /// the running kernel's, which is opened only for an object that asks for it.
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
    /// Programs not to load: their names with commas between; NULL for none. One that the object does not have is
    /// `CORELO_CODE_NOT_FOUND`.
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
    /// Where maps are pinned.
    pub(crate) fn pin_root(&self) -> &str {
        self.pin_root.as_deref().unwrap_or(PIN_ROOT)
    }

    /// # Safety
    /// `options` is NULL or has as many bytes as its `size` says, its strings with NULs.
    pub(crate) unsafe fn new(options: *const Options) -> Result<Self, LoaderFailure> {
        if options.is_null() {
            return Ok(Self::default());
        }
        // SAFETY: the caller's promise: so many bytes are there as the first word says.
        let Given { options, keep_memlock } = unsafe { Given::read(options) }?;
        let text = |text: *const c_char, what| {
            // SAFETY: the caller's promise for the strings.
            let copy = || unsafe { string(text, what) }.map(str::to_owned);
            if text.is_null() { Ok(None) } else { copy().map(Some) }
        };
        if options.memory.is_null() && options.memory_size != 0 {
            return Err(argument("memory is NULL"));
        }
        if isize::try_from(options.memory_size).is_err() {
            return Err(argument("memory_size is more than any memory has"));
        }
        Ok(Self {
            btf_path: text(options.btf_path, "btf_path")?,
            name: text(options.name, "name")?,
            pin_root: text(options.pin_root, "pin_root")?,
            memory: (!options.memory.is_null()).then_some((options.memory, options.memory_size)),
            skip: text(options.skip, "skip")?
                .iter()
                .flat_map(|names| names.split(','))
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            keep_memlock,
        })
    }
}

/// The options as far as the caller has them, zero beyond.
struct Given {
    /// Its `keep_memlock` is false: what C left there may be no `bool`.
    options: Options,
    keep_memlock: bool,
}

impl Given {
    /// # Safety
    /// `options` is not NULL, its first word can be read, and as many bytes as that says.
    unsafe fn read(options: *const Options) -> Result<Self, LoaderFailure> {
        /// More than any version's options: a size beyond is a number that was never set.
        const LIMIT: usize = 4096;
        // SAFETY: the size stands first in every version of the struct. No more is read before it is known.
        let size = unsafe { options.cast::<usize>().read_unaligned() };
        if !(size_of::<usize>()..=LIMIT).contains(&size) {
            return Err(argument("size of corelo_options is not one that it ever had"));
        }
        // SAFETY: so many bytes are there: the caller's promise.
        let bytes = unsafe { core::slice::from_raw_parts(options.cast::<u8>(), size) };
        let (known, unknown) = bytes.split_at(size.min(size_of::<Options>()));
        if unknown.iter().any(|&byte| byte != 0) {
            return Err(argument("corelo_options has something set that this version does not know"));
        }
        const FLAG: usize = core::mem::offset_of!(Options, keep_memlock);
        let mut copy = [0u8; size_of::<Options>()];
        copy[..known.len()].copy_from_slice(known);
        // Zero where it is beyond what the caller has; what is padding is no matter.
        let keep_memlock = copy[FLAG] != 0;
        copy[FLAG] = 0;
        // SAFETY: any bytes are a size, an address or a number, and the flag was just made false.
        let options = unsafe { copy.as_ptr().cast::<Options>().read_unaligned() };
        Ok(Self { options, keep_memlock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr;

    /// Only as many bytes as its size says are there: under a checker of memory, reading more is an error, and here a
    /// wrong answer.
    #[test]
    fn no_more_is_read_than_the_size_says() {
        let checked = |bytes: &[u8]| {
            // SAFETY: the first word is the slice's length, or a size that is refused.
            unsafe { Checked::new(bytes.as_ptr().cast()) }
        };
        let of_size = |size: usize, len: usize, fill: u8| {
            let mut bytes = vec![fill; len];
            bytes[..size_of::<usize>()].copy_from_slice(&size.to_ne_bytes());
            bytes
        };
        // Garbage behind the size: of a caller whose version had no more.
        let word = size_of::<usize>();
        let options = checked(&of_size(word, size_of::<Options>(), 0xff)).unwrap();
        assert!(options.btf_path.is_none() && options.memory.is_none() && !options.keep_memlock);
        for size in [0, word - 1, usize::MAX] {
            assert!(checked(&of_size(size, size_of::<Options>(), 0)).is_err(), "{size}");
        }
        // A newer caller, who sets nothing that we do not know, or something.
        let newer = size_of::<Options>() + 8;
        assert!(checked(&of_size(newer, newer, 0)).is_ok());
        let mut set = of_size(newer, newer, 0);
        set[newer - 1] = 1;
        assert!(checked(&set).is_err());
        // Memory that there is not.
        let mut lent = of_size(size_of::<Options>(), size_of::<Options>(), 0);
        let number = core::mem::offset_of!(Options, memory);
        lent[number] = 8;
        assert!(checked(&lent).is_ok_and(|options| options.memory.is_some()));
        let number = core::mem::offset_of!(Options, memory_size);
        lent[number..number + word].fill(0xff);
        assert!(checked(&lent).is_err());
        // A bool of C that is neither 0 nor 1.
        let mut flagged = of_size(size_of::<Options>(), size_of::<Options>(), 0);
        flagged[core::mem::offset_of!(Options, keep_memlock)] = 0x40;
        assert!(checked(&flagged).unwrap().keep_memlock);
        // SAFETY: NULL is fine.
        assert!(unsafe { Checked::new(ptr::null()) }.is_ok());
    }
}

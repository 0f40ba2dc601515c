//! How an object is loaded.

use core::fmt;
use std::os::fd::BorrowedFd;

use corelo_core::btf::sanitize::KernelBtfFeatures;

use crate::kernel::ModuleNames;
use crate::objects::Memlock;

/// Where maps are pinned unless the caller says otherwise (libbpf: `BPF_FS_DEFAULT_PATH`).
pub const PIN_ROOT: &str = "/sys/fs/bpf";

/// How an object is loaded.
#[derive(Clone, Copy)]
pub struct LoadOptions<'o> {
    /// The object's name, for the maps of its global data: a file's name without its ending.
    pub name: &'o [u8],
    /// Whether a program, given by its name, is loaded; those of sections with a `?` are asked about too, with `false`
    /// as the second argument. Optional struct_ops tables are asked about in the same way.
    pub wants: &'o dyn Fn(&[u8], bool) -> bool,
    /// Where maps that ask for it are pinned.
    pub pin_root: &'o str,
    /// Whether RLIMIT_MEMLOCK may be raised.
    pub memlock: Memlock,
    /// What the object's BTF may have; narrowed by itself where the kernel refuses it.
    pub btf_features: KernelBtfFeatures,
    /// Maps of 0 entries get this many instead; `None` leaves the kernel to refuse them.
    pub default_max_entries: Option<u32>,
    /// Global variables that start with other bytes than the object gives them: name, and bytes in the machine's order.
    pub variables: &'o [(&'o [u8], &'o [u8])],
    /// Models of the inner maps of those maps of maps that define none: the outer map's name, and a map like those that
    /// will be in it.
    pub inner_maps: &'o [(&'o [u8], BorrowedFd<'o>)],
    /// Names of the kernel modules that were searched.
    pub modules: ModuleNames<'o>,
    /// What `freplace` programs replace a function of: the program's name, the loaded program that has the function.
    pub replaced: &'o [(&'o [u8], BorrowedFd<'o>)],
}

impl fmt::Debug for LoadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions")
            .field("name", &self.name.escape_ascii())
            .field("pin_root", &self.pin_root)
            .field("memlock", &self.memlock)
            .field("btf_features", &self.btf_features)
            .finish_non_exhaustive()
    }
}

/// Loads what sections without a `?` hold.
fn wants_default(_: &[u8], by_default: bool) -> bool {
    by_default
}

impl<'o> LoadOptions<'o> {
    /// All programs but optional ones, pins in `/sys/fs/bpf`, memory limit raised where the kernel asks for it.
    #[must_use]
    pub const fn new(name: &'o [u8]) -> Self {
        Self {
            name,
            wants: &wants_default,
            pin_root: PIN_ROOT,
            memlock: Memlock::RaiseIfRefused,
            btf_features: KernelBtfFeatures::ALL,
            default_max_entries: None,
            variables: &[],
            inner_maps: &[],
            modules: ModuleNames::new(&[]),
            replaced: &[],
        }
    }
}

//! How an object is loaded.

use corelo_core::btf::sanitize::KernelBtfFeatures;

use super::{Autoload, Setting};
use crate::kernel::ModuleNames;
use crate::objects::Memlock;

/// Where maps are pinned unless the caller says otherwise (libbpf: `BPF_FS_DEFAULT_PATH`).
pub const PIN_ROOT: &str = "/sys/fs/bpf";

/// How an object is loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions<'o> {
    /// The object's name, for the maps of its global data: a file's name without its ending.
    pub name: &'o [u8],
    /// Which programs are loaded, and struct_ops tables made, that no setting names.
    pub autoload: Autoload,
    /// What is to be other than the object says.
    pub settings: &'o [Setting<'o>],
    /// More of the same. Of two settings of one kind for one name the last counts.
    pub more: &'o [Setting<'o>],
    /// Where maps that ask for it are pinned.
    pub pin_root: &'o str,
    /// Whether RLIMIT_MEMLOCK may be raised.
    pub memlock: Memlock,
    /// What the object's BTF may have; narrowed by itself where the kernel refuses it.
    pub btf_features: KernelBtfFeatures,
    /// Maps of 0 entries get this many instead; `None` leaves the kernel to refuse them.
    pub default_max_entries: Option<u32>,
    /// Names of the kernel modules that were searched.
    pub modules: ModuleNames<'o>,
}

impl<'o> LoadOptions<'o> {
    /// All programs but optional ones, pins in `/sys/fs/bpf`, memory limit raised where the kernel asks for it.
    #[must_use]
    pub const fn new(name: &'o [u8]) -> Self {
        Self {
            name,
            autoload: Autoload::BySection,
            settings: &[],
            more: &[],
            pin_root: PIN_ROOT,
            memlock: Memlock::RaiseIfRefused,
            btf_features: KernelBtfFeatures::ALL,
            default_max_entries: None,
            modules: ModuleNames::new(&[]),
        }
    }
}

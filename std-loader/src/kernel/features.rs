//! What the running kernel knows, found out by trying.
//!
//! A feature is asked for when something was refused for which it may be the reason, or by a check of the whole machine:
//! never beforehand, so that a load on a recent kernel makes no call beyond its own. Each is tried once at most in the life of
//! a [`Features`] value; there is no state beyond it.
//!
//! A call that was refused for want of a right, by kernel lockdown or for want of memory says nothing of the kernel's age:
//! that is [`Support::Refused`], and not [`Support::Missing`].

mod btf;
mod probes;

use core::cell::Cell;
use core::fmt;

use corelo_core::btf::sanitize::KernelBtfFeatures;

use crate::kernel::lockdown;
use crate::objects::Memlock;
use crate::sys::Errno;

macro_rules! features {
    ($($(#[$meta:meta])* $name:ident $text:literal $since:literal,)*) => {
        /// Something that kernels know from some version on, or when they are built for it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Feature {
            $($(#[$meta])* $name,)*
        }

        impl Feature {
            /// All of them, the BTF kinds first.
            pub const ALL: &[Feature] = &[$(Feature::$name,)*];

            /// A few words for it.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Feature::$name => $text,)*
                }
            }

            /// The first Linux version that has it (distributions may have it in older ones).
            #[must_use]
            pub const fn since(self) -> &'static str {
                match self {
                    $(Feature::$name => $since,)*
                }
            }
        }
    };
}

features! {
    /// BPF_BTF_LOAD takes BTF at all.
    Btf "BTF" "4.18",
    /// BTF_KIND_FUNC and FUNC_PROTO.
    BtfFunc "BTF functions" "5.0",
    /// Functions of global linkage.
    BtfFuncGlobal "BTF global functions" "5.6",
    /// BTF_KIND_VAR and DATASEC.
    BtfDatasec "BTF variables and sections" "5.2",
    /// BTF_KIND_FLOAT.
    BtfFloat "BTF floats" "5.13",
    /// BTF_KIND_DECL_TAG.
    BtfDeclTag "BTF declaration tags" "5.16",
    /// BTF_KIND_TYPE_TAG.
    BtfTypeTag "BTF type tags" "5.17",
    /// BTF_KIND_ENUM64.
    BtfEnum64 "BTF 64-bit enums" "6.0",
    /// Sections whose name starts with `?`.
    BtfQmarkDatasec "BTF optional sections" "6.9",
    /// BTF objects have names: the mark of BTF for modules.
    ModuleBtf "module BTF" "5.11",
    /// Names of programs and maps.
    ProgName "program names" "4.15",
    /// Values of array maps addressed by LD_IMM64.
    GlobalData "global data" "5.2",
    /// BPF_F_MMAPABLE.
    ArrayMmap "mappable arrays" "5.5",
    /// expected_attach_type.
    ExpAttachType "expected attach types" "4.17",
    /// bpf_probe_read_kernel and its siblings.
    ProbeReadKernel "bpf_probe_read_kernel" "5.5",
    /// BPF_PROG_BIND_MAP.
    ProgBindMap "maps bound to programs" "5.10",
    /// Links on perf events.
    PerfLink "perf event links" "5.15",
    /// bpf_get_attach_cookie.
    BpfCookie "attach cookies" "5.15",
    /// Maps and programs are charged to memory cgroups, not to RLIMIT_MEMLOCK.
    MemcgAccount "memory cgroup accounting" "5.11",
    /// log_true_size of BPF_PROG_LOAD.
    LogTrueSize "verifier log sizes" "6.4",
    /// The declaration tag `arg:ctx`: which argument of a global function is the program's context.
    ArgCtx "context tags" "6.8",
    /// LD_IMM64 of a map's value with an offset of 2^29 and more, as the end of a large arena has.
    LdImm64FullRange "64-bit loads of any offset" "7.0",
    /// BPF_TRACE_KPROBE_MULTI.
    KprobeMulti "multi-kprobes" "5.18",
    /// BPF_TRACE_UPROBE_MULTI.
    UprobeMulti "multi-uprobes" "6.6",
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// The kernel has it.
    Present,
    /// The kernel does not: too old, or built without it.
    Missing,
    /// The kernel did not let us try: EPERM without the capability or under lockdown, ENOMEM and the like.
    Refused(Errno),
}

impl Support {
    /// Whether it is there, or why that is not known.
    ///
    /// # Errors
    /// What a probe was refused with that says nothing of the kernel's age.
    pub fn known(self) -> Result<bool, Errno> {
        match self {
            Support::Present => Ok(true),
            Support::Missing => Ok(false),
            Support::Refused(errno) => Err(errno),
        }
    }

    /// It is there for certain.
    #[must_use]
    pub fn is_present(self) -> bool {
        self == Support::Present
    }

    /// It is not there for certain.
    #[must_use]
    pub fn is_missing(self) -> bool {
        self == Support::Missing
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Support::Present => f.write_str("yes"),
            Support::Missing => f.write_str("no"),
            Support::Refused(errno) => write!(f, "not to be found out: {errno}"),
        }
    }
}

/// What a refusal says.
fn verdict(feature: Feature, errno: Errno, mode: impl Fn() -> Result<lockdown::Mode, Errno>) -> Support {
    match errno {
        // What old kernels answer to what they do not know: bpf(2) itself, a command, an attribute, a flag, an instruction, a
        // helper, a kind of type.
        Errno::ENOSYS
        | Errno::EINVAL
        | Errno::E2BIG
        | Errno::EACCES
        | Errno::EBADF
        | Errno::ENOENT
        | Errno::ENOTSUPP
        | Errno::EOPNOTSUPP => {
            // In this mode helpers that read kernel memory are gone, and that is an EINVAL or EACCES from the verifier.
            match mode() {
                _ if errno == Errno::ENOSYS => Support::Missing,
                Ok(lockdown::Mode::Confidentiality) => Support::Refused(errno),
                // It may be that mode.
                Err(_) if feature == Feature::ProbeReadKernel => Support::Refused(errno),
                _ => Support::Missing,
            }
        }
        _ => Support::Refused(errno),
    }
}

/// The kernel's features, each tried when it is first asked for.
#[derive(Debug)]
pub struct Features {
    known: [Cell<Option<Support>>; Feature::ALL.len()],
    memlock: Memlock,
}

impl Default for Features {
    fn default() -> Self {
        Features::new(Memlock::default())
    }
}

impl Features {
    /// Nothing is known yet, and no call made. `memlock` says whether probes may raise RLIMIT_MEMLOCK, which old kernels
    /// count their maps and programs against.
    #[must_use]
    pub const fn new(memlock: Memlock) -> Features {
        Features { known: [const { Cell::new(None) }; Feature::ALL.len()], memlock }
    }

    /// Whether the kernel has it; a few calls of bpf(2) the first time.
    pub fn get(&self, feature: Feature) -> Support {
        let known = &self.known[feature as usize];
        if let Some(support) = known.get() {
            return support;
        }
        let support = match probes::run(feature, self.memlock) {
            Ok(true) => Support::Present,
            Ok(false) => Support::Missing,
            Err(errno) => verdict(feature, errno, lockdown::known),
        };
        known.set(Some(support));
        support
    }

    /// What is known without a call.
    #[must_use]
    pub fn known(&self, feature: Feature) -> Option<Support> {
        self.known[feature as usize].get()
    }

    /// What BTF the kernel takes, to rewrite an object's BTF that was refused; `None` where it takes none at all. What is
    /// not known to be missing counts as there: where loading was refused for want of a right, nothing is to be gained by
    /// rewriting.
    pub fn btf_features(&self) -> Option<KernelBtfFeatures> {
        if self.get(Feature::Btf).is_missing() {
            return None;
        }
        let mut there = KernelBtfFeatures::NONE;
        for (feature, bit) in BTF_FEATURES {
            if !self.get(feature).is_missing() {
                there = there.with(bit);
            }
        }
        Some(there)
    }
}

const BTF_FEATURES: [(Feature, KernelBtfFeatures); 8] = [
    (Feature::BtfFunc, KernelBtfFeatures::FUNC),
    (Feature::BtfFuncGlobal, KernelBtfFeatures::GLOBAL_FUNC),
    (Feature::BtfDatasec, KernelBtfFeatures::DATASEC),
    (Feature::BtfFloat, KernelBtfFeatures::FLOAT),
    (Feature::BtfDeclTag, KernelBtfFeatures::DECL_TAG),
    (Feature::BtfTypeTag, KernelBtfFeatures::TYPE_TAG),
    (Feature::BtfEnum64, KernelBtfFeatures::ENUM64),
    (Feature::BtfQmarkDatasec, KernelBtfFeatures::QMARK_DATASEC),
];

#[cfg(test)]
mod tests;

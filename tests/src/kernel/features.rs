//! What tests need of a kernel, and which kernels have it.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use super::bpf::{self, Program, returning};

/// Why a kernel has something not.
#[derive(Debug)]
pub enum Refused {
    /// The smallest program, map or link of that kind was refused.
    Kernel(io::Error),
    /// There is no such file.
    NoFile(&'static str),
    /// The kernel's BTF has no such type.
    NoType(&'static str),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Kernel(error) => match error.raw_os_error() {
                Some(1) => f.write_str("the kernel refuses it with EPERM"),
                Some(13) => f.write_str("the kernel refuses it with EACCES"),
                Some(22) => f.write_str("the kernel refuses it with EINVAL"),
                Some(95) => f.write_str("the kernel refuses it with EOPNOTSUPP"),
                Some(524) => f.write_str("the kernel refuses it with ENOTSUPP"),
                _ => write!(f, "the kernel refuses it: {error}"),
            },
            Refused::NoFile(path) => write!(f, "there is no {path}"),
            Refused::NoType(name) => write!(f, "the kernel's BTF has no {name}"),
        }
    }
}

/// What may stand against something on a kernel that is new enough for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unless {
    /// Nothing: a plain kernel has it.
    Never,
    /// A policy of the host (an LSM, a seccomp filter, a patched kernel) that says EPERM or EACCES.
    Policy,
    /// The kernel was built without it, or policy.
    Built,
}

macro_rules! features {
    ($($(#[$meta:meta])* $name:ident $text:literal $since:tt $on:ident $unless:ident $ask:expr,)*) => {
        /// Something that a test needs of the kernel.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Feature {
            $($(#[$meta])* $name,)*
        }

        impl Feature {
            /// All of them.
            pub const ALL: &[Feature] = &[$(Feature::$name,)*];

            fn ask_once(self) -> Result<(), Refused> {
                match self {
                    $(Feature::$name => $ask,)*
                }
            }

            /// The first Linux version, the machines, and what may stand against it there.
            fn row(self) -> ((u32, u32), On, Unless) {
                match self {
                    $(Feature::$name => ($since, On::$on, Unless::$unless),)*
                }
            }
        }

        impl fmt::Display for Feature {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Feature::$name => $text,)*
                })
            }
        }
    };
}

/// The machines whose kernels have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    All,
    /// But 32-bit ARM, whose distribution kernels are built without BTF.
    Btf,
    /// With BPF trampolines since the version of the row.
    Amd64,
}

impl On {
    fn here(self) -> bool {
        match self {
            On::All => true,
            On::Btf => !cfg!(target_arch = "arm"),
            On::Amd64 => cfg!(target_arch = "x86_64"),
        }
    }
}

const KPROBE: u32 = 2;
const TRACING: u32 = 26;
const LSM: u32 = 29;
const SLEEPABLE: u32 = 1 << 4;
const LOOPBACK: u32 = 1;

// What, in words; since which version; on which machines; what may stand against it; how it is asked.
features! {
    /// bpf(2), as root.
    Bpf "bpf(2)" (4, 4) All Never map(2, 4, 4, 1),
    /// The kernel's own BTF.
    KernelBtf "kernel BTF" (5, 2) Btf Never file("/sys/kernel/btf/vmlinux"),
    /// Ring buffers.
    RingBuffers "ring buffers" (5, 8) All Never map(27, 0, 0, 65536),
    /// Maps bound to programs: since the same version raw tracepoint programs have test runs.
    BoundMaps "maps bound to programs" (5, 10) All Never bound_map(),
    /// A hash map's element is taken out as it is read.
    TakenElements "elements of hash maps read and removed" (5, 14) All Never taken_element(),
    /// The kernel's BTF is an object with an id, and BTF objects have names.
    KernelBtfObject "the kernel's BTF as an object" (5, 11) Btf Never kernel_btf_object(),
    /// Programs of type syscall.
    SyscallPrograms "programs of type syscall" (5, 14) All Never
        program(Program { flags: SLEEPABLE, ..Program::new(31) }),
    /// Links of XDP programs.
    XdpLinks "links of XDP programs" (5, 9) All Never link(Program { attach_type: 37, ..Program::new(6) }, LOOPBACK),
    /// Links on the way in and out of an interface.
    Tcx "tcx" (6, 6) All Never link(Program { attach_type: 46, ..Program::new(3) }, LOOPBACK),
    /// Maps of sockets.
    SocketMaps "maps of sockets" (4, 14) All Built map(15, 4, 4, 1),
    /// A cgroup2 file system.
    Cgroup2 "cgroup2" (5, 7) All Never mounted("cgroup2"),
    /// tracefs.
    Tracefs "tracefs" (4, 1) All Never mounted("tracefs"),
    /// Probes on functions of the kernel.
    Kprobes "kprobes" (4, 17) All Built file("/sys/bus/event_source/devices/kprobe/type"),
    /// Probes on functions of programs.
    Uprobes "uprobes" (4, 17) All Built file("/sys/bus/event_source/devices/uprobe/type"),
    /// A program's own number for each of its links.
    Cookies "attach cookies" (5, 15) All Never cookies(),
    /// Programs that may sleep on functions of programs.
    SleepableUprobes "sleepable uprobes" (6, 0) All Never program(Program { flags: SLEEPABLE, ..Program::new(KPROBE) }),
    /// One link to many functions of the kernel.
    KprobeMulti "multi-kprobes" (5, 18) All Built kprobe_multi(42),
    /// The same, on entry and return.
    KprobeSession "kprobe sessions" (6, 10) All Built kprobe_multi(56),
    /// One link to many functions of programs.
    UprobeMulti "multi-uprobes" (6, 6) All Built uprobe_multi(48),
    /// The same, on entry and return.
    UprobeSession "uprobe sessions" (6, 13) All Built uprobe_multi(57),
    /// Raw tracepoints with types.
    TpBtf "tp_btf" (5, 5) Btf Policy tracing(23, "btf_trace_sched_process_exec"),
    /// Trampolines on entry.
    Fentry "fentry" (5, 5) Amd64 Policy tracing(24, "do_exit"),
    /// Trampolines that may decide.
    FmodRet "fmod_ret" (5, 7) Amd64 Policy tracing(26, "security_file_open"),
    /// LSM programs.
    Lsm "LSM programs" (5, 7) Amd64 Built typed(LSM, 27, "bpf_lsm_file_open"),
    /// Iterators over all maps.
    MapIterators "iterators of maps" (5, 8) Btf Policy typed(TRACING, 28, "bpf_iter_bpf_map"),
    /// Iterators over a map's elements.
    ElementIterators "iterators of map elements" (5, 9) Btf Policy typed(TRACING, 28, "bpf_iter_bpf_map_elem"),
    /// Iterators over processes.
    TaskIterators "iterators of tasks" (5, 8) Btf Policy typed(TRACING, 28, "bpf_iter_task"),
}

impl Feature {
    /// Asks the kernel, one question at a time, and not again for what is there: the descriptors of a question are not to be
    /// those that another test finds left open.
    ///
    /// # Errors
    /// What stands against it.
    pub fn ask(self) -> Result<(), Refused> {
        static THERE: Mutex<Vec<Feature>> = Mutex::new(Vec::new());
        let mut there = THERE.lock().unwrap_or_else(PoisonError::into_inner);
        if !there.contains(&self) {
            self.ask_anew()?;
            there.push(self);
        }
        Ok(())
    }

    fn ask_anew(self) -> Result<(), Refused> {
        match self.ask_once() {
            // Maps and programs were charged to RLIMIT_MEMLOCK then, and the question is not how much of it is left.
            Err(Refused::Kernel(error)) if error.raw_os_error() == Some(1) && running_version() < (5, 11) => {
                bpf::without_memlock_limit(|| self.ask_once()).unwrap_or(Err(Refused::Kernel(error)))
            }
            answer => answer,
        }
    }

    /// Whether a kernel may be without it: older, another machine's, built so, or for this answer a host's policy.
    #[must_use]
    pub fn is_excused(self, refused: &Refused, version: (u32, u32)) -> bool {
        let (since, on, unless) = self.row();
        let is_policy = matches!(refused, Refused::Kernel(error) if matches!(error.raw_os_error(), Some(1 | 13)));
        match unless {
            _ if version < since || !on.here() => true,
            Unless::Never => false,
            Unless::Policy => is_policy,
            Unless::Built => true,
        }
    }
}

/// The version of the running kernel.
pub(super) fn running_version() -> (u32, u32) {
    let path = "/proc/sys/kernel/osrelease";
    let release = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|word| word.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor),
        _ => panic!("{path}: {release}"),
    }
}

fn asked<T>(made: io::Result<T>) -> Result<(), Refused> {
    made.map(drop).map_err(Refused::Kernel)
}

fn map(map_type: u32, key_size: u32, value_size: u32, max_entries: u32) -> Result<(), Refused> {
    asked(bpf::map(map_type, key_size, value_size, max_entries))
}

fn program(kind: Program) -> Result<(), Refused> {
    asked(kind.load(&returning(0)))
}

/// Reads it as whoever needs it will: a file may be there and not for us.
fn file(path: &'static str) -> Result<(), Refused> {
    match fs::File::open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Refused::NoFile(path)),
        Err(error) => Err(Refused::Kernel(error)),
    }
}

fn bound_map() -> Result<(), Refused> {
    let program = Program::new(1).load(&returning(0)).map_err(Refused::Kernel)?;
    let map = bpf::map(2, 4, 4, 1).map_err(Refused::Kernel)?;
    asked(bpf::bind_map(program.as_fd(), map.as_fd()))
}

fn mounted(fs_type: &'static str) -> Result<(), Refused> {
    let mounts = fs::read_to_string("/proc/mounts").map_err(Refused::Kernel)?;
    let is_there = mounts.lines().any(|line| line.split(' ').nth(2) == Some(fs_type));
    if is_there {
        Ok(())
    } else {
        Err(Refused::NoFile(if fs_type == "cgroup2" { "cgroup2 mount" } else { "tracefs mount" }))
    }
}

fn link(kind: Program, target: u32) -> Result<(), Refused> {
    let program = kind.load(&returning(if kind.prog_type == 3 { -1 } else { 2 })).map_err(Refused::Kernel)?;
    match bpf::link(program.as_fd(), target, kind.attach_type) {
        // Another test has it now, which is an answer too.
        Err(error) if error.raw_os_error() == Some(16) => Ok(()),
        made => asked(made),
    }
}

fn taken_element() -> Result<(), Refused> {
    match bpf::take_element() {
        // Nothing is in it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        made => asked(made),
    }
}

fn kernel_btf_object() -> Result<(), Refused> {
    match bpf::first_btf_id().map_err(Refused::Kernel)? {
        1 => Ok(()),
        _ => Err(Refused::NoType("object of its own, which has the id 1")),
    }
}

fn cookies() -> Result<(), Refused> {
    // bpf_get_attach_cookie(ctx)
    asked(Program::new(KPROBE).load(&[bpf::insn(0x85, (0, 0), 174), bpf::insn(0x95, (0, 0), 0)]))
}

fn kprobe_multi(attach_type: u32) -> Result<(), Refused> {
    let kind = Program { attach_type, ..Program::new(KPROBE) };
    let program = kind.load(&returning(0)).map_err(Refused::Kernel)?;
    asked(bpf::link_kprobe_multi(program.as_fd(), attach_type, "do_exit"))
}

fn uprobe_multi(attach_type: u32) -> Result<(), Refused> {
    let kind = Program { attach_type, ..Program::new(KPROBE) };
    let program = kind.load(&returning(0)).map_err(Refused::Kernel)?;
    // No function is in a directory: who knows these links says so, EBADF.
    match bpf::link_uprobe_multi(program.as_fd(), attach_type, "/") {
        Err(error) if error.raw_os_error() == Some(9) => Ok(()),
        made => asked(made),
    }
}

fn typed(prog_type: u32, attach_type: u32, target: &'static str) -> Result<(), Refused> {
    loaded(prog_type, attach_type, target).map(drop)
}

fn loaded(prog_type: u32, attach_type: u32, target: &'static str) -> Result<std::os::fd::OwnedFd, Refused> {
    const PATH: &str = "/sys/kernel/btf/vmlinux";
    let btf = match fs::read(PATH) {
        Ok(btf) => btf,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Refused::NoFile(PATH)),
        Err(error) => return Err(Refused::Kernel(error)),
    };
    let kind = if attach_type == 23 { KIND_TYPEDEF } else { KIND_FUNC };
    let attach_btf_id = btf_id(&btf, kind, target).ok_or(Refused::NoType(target))?;
    let kind = Program { prog_type, attach_type, attach_btf_id, ..Program::default() };
    kind.load(&returning(0)).map_err(Refused::Kernel)
}

/// Loaded, and attached: a kernel whose machine has no trampolines loads the program all the same.
fn tracing(attach_type: u32, target: &'static str) -> Result<(), Refused> {
    let program = loaded(TRACING, attach_type, target)?;
    asked(bpf::raw_tracepoint(program.as_fd()))
}

const KIND_TYPEDEF: u32 = 8;
const KIND_FUNC: u32 = 12;

/// The id of the type of this kind and name in the kernel's BTF, in this machine's byte order.
///
/// # Panics
/// If the blob is damaged.
#[must_use]
pub fn btf_id(btf: &[u8], kind: u32, name: &str) -> Option<u32> {
    let word = |at: usize| u32::from_ne_bytes([btf[at], btf[at + 1], btf[at + 2], btf[at + 3]]);
    let header = word(4) as usize;
    let mut at = header + word(8) as usize;
    let end = at + word(12) as usize;
    let strings = &btf[header + word(16) as usize..];
    let mut id = 0;
    while at < end {
        id += 1;
        let info = word(at + 4);
        let (found, vlen) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        let text = &strings[word(at) as usize..];
        if found == kind && text.starts_with(name.as_bytes()) && text[name.len()] == 0 {
            return Some(id);
        }
        at += 12
            + match found {
                // INT, VAR, DECL_TAG
                1 | 14 | 17 => 4,
                // ARRAY
                3 => 12,
                // STRUCT, UNION, DATASEC, ENUM64
                4 | 5 | 15 | 19 => 12 * vlen,
                // ENUM, FUNC_PROTO
                6 | 13 => 8 * vlen,
                _ => 0,
            };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: i32) -> Refused {
        Refused::Kernel(io::Error::from_raw_os_error(errno))
    }

    #[test]
    fn what_may_be_missing_where() {
        // Older kernels may be without anything.
        assert!(Feature::RingBuffers.is_excused(&refused(22), (5, 7)));
        assert!(!Feature::RingBuffers.is_excused(&refused(22), (5, 8)));
        // Root must be let: a refusal for want of a right is no policy there.
        assert!(!Feature::Bpf.is_excused(&refused(1), (6, 18)));
        // A host's policy is EPERM, and not that the kernel does not know it.
        assert_eq!(Feature::ElementIterators.is_excused(&refused(22), (6, 18)), cfg!(target_arch = "arm"));
        assert!(Feature::ElementIterators.is_excused(&refused(1), (6, 18)));
        // What kernels may be built without.
        assert!(Feature::Kprobes.is_excused(&Refused::NoFile("x"), (6, 18)));
        assert_eq!(Feature::KernelBtf.is_excused(&Refused::NoFile("x"), (6, 18)), cfg!(target_arch = "arm"));
    }

    #[test]
    fn ids_of_types() {
        let mut btf = crate::btf_builder::BtfBuilder::new(crate::endian::Endian::native());
        let int = btf.int("int", 4, crate::btf_builder::IntEncoding::Signed);
        let proto = btf.func_proto(int, &[("x", int)]);
        let func = btf.func("f", proto, 1);
        let blob = btf.build();
        assert_eq!(btf_id(&blob, KIND_FUNC, "f"), Some(func));
        assert_eq!(btf_id(&blob, KIND_TYPEDEF, "f"), None);
    }
}

//! What the name of a program's section says: type, attach type, flags, and where to attach.
//!
//! The names and the rules by which they match are those of libbpf 1.7 (`section_defs`, `sec_def_matches`), so that an
//! object means the same to both, and the names that libbpf took after it until 2026-07. A target follows a `/`: `kprobe/vfs_read+8`, `tp/sched/sched_switch`,
//! `uprobe//usr/bin/bash:readline`.
//!
//! ```
//! use corelo_core::object::section_name::{Target, parse};
//! use corelo_core::uapi::ProgType;
//!
//! let kind = parse(b"kretprobe/vfs_read").unwrap();
//! assert_eq!(kind.prog_type, ProgType::KPROBE);
//! assert_eq!(kind.target, Target::Kprobe { function: b"vfs_read", offset: 0, is_return: true });
//! assert!(parse(b"kretprobes/vfs_read").is_none());
//! ```

use crate::btf::Kind;
use crate::btf::lookup::Prefix;
use crate::numbers::low_u8;
use crate::uapi::{AttachType, ProgType};

/// What a section name says of the programs in the section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramKind<'s> {
    /// The type to load it with.
    pub prog_type: ProgType,
    /// The attach type to load it with; [`AttachType::NONE`] where the program type needs none.
    pub expected_attach_type: AttachType,
    /// Whether the attach type is left out on kernels that refuse it (libbpf: `SEC_EXP_ATTACH_OPT`).
    pub is_attach_type_optional: bool,
    /// Whether it may sleep: to be loaded with `BPF_F_SLEEPABLE`.
    pub is_sleepable: bool,
    /// Whether it takes XDP packets in several buffers: to be loaded with `BPF_F_XDP_HAS_FRAGS`.
    pub has_xdp_frags: bool,
    /// Whether it must be loaded with a type of a kernel's or another program's BTF as its target.
    pub needs_attach_btf: bool,
    /// The kernel type that it is loaded for; `None` where it needs none, where the section names none (the caller has
    /// to), and for `freplace`, whose target is another program's function.
    pub attach_btf: Option<AttachBtf<'s>>,
    /// What the section says about attaching it.
    pub target: Target<'s>,
}

/// A type to be found in the kernel's BTF for a program to be loaded.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachBtf<'s> {
    /// The module that must have it, from `module:name`; `vmlinux` for the kernel itself.
    pub module: Option<&'s [u8]>,
    /// The name, without what the kernel puts before it.
    pub name: &'s [u8],
    /// What the kernel puts before it.
    pub prefix: Prefix,
    /// The kind of the type.
    pub kind: Kind,
}

/// What a section name says about attaching its programs, as bytes of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target<'s> {
    /// Nothing: the kind always needs a target from outside (a network interface, a cgroup, a socket), or the section
    /// leaves it out.
    Manual,
    /// The section has a target that cannot be read. The program can still be loaded, as with libbpf.
    Malformed,
    /// A kernel function.
    Kprobe {
        /// The function.
        function: &'s [u8],
        /// Bytes after its start; 0 for a return probe.
        offset: u64,
        /// Whether it runs on return.
        is_return: bool,
    },
    /// All kernel functions whose names fit a pattern with `*` and `?`.
    KprobeMulti {
        /// The pattern.
        pattern: &'s [u8],
        /// Whether it runs on return.
        is_return: bool,
        /// Whether it runs on both and may hand a value from entry to return.
        is_session: bool,
    },
    /// A system call, by its name without the architecture's prefix.
    Ksyscall {
        /// The system call.
        name: &'s [u8],
        /// Whether it runs on return.
        is_return: bool,
    },
    /// A function of a binary.
    Uprobe {
        /// The binary: a path, or a name to be looked for where the system has its programs and libraries.
        path: &'s [u8],
        /// The function, or an address in the form `0x1234`.
        function: &'s [u8],
        /// Bytes after its start; 0 for a return probe.
        offset: u64,
        /// Whether it runs on return.
        is_return: bool,
    },
    /// All functions of a binary whose names fit a pattern.
    UprobeMulti {
        /// The binary.
        path: &'s [u8],
        /// The pattern.
        pattern: &'s [u8],
        /// Whether it runs on return.
        is_return: bool,
        /// Whether it runs on both.
        is_session: bool,
    },
    /// A static probe of a binary.
    Usdt {
        /// The binary.
        path: &'s [u8],
        /// The probe's provider.
        provider: &'s [u8],
        /// The probe.
        name: &'s [u8],
    },
    /// A tracepoint, through tracefs.
    Tracepoint {
        /// Its category (subsystem).
        category: &'s [u8],
        /// Its name.
        name: &'s [u8],
    },
    /// A raw tracepoint.
    RawTracepoint {
        /// Its name.
        name: &'s [u8],
    },
    /// What [`ProgramKind::attach_btf`] names: a traced function, a BTF tracepoint or an LSM hook; loaded for it, it is
    /// attached without a further name.
    Trace,
    /// All functions of the kernel's BTF, or of a module's, whose names fit a pattern with `*` and `?`.
    TraceMulti {
        /// The module, from `module:pattern`; `None` for the kernel itself.
        module: Option<&'s [u8]>,
        /// The pattern.
        pattern: &'s [u8],
    },
    /// An iterator: attached for a link from which a file is made.
    Iter,
    /// A function of another program, to be replaced.
    Replace {
        /// The function.
        function: &'s [u8],
    },
    /// A member of a struct_ops map, which attaches it; the name is for readers only.
    StructOps {
        /// What follows the `/`; empty where nothing does.
        name: &'s [u8],
    },
}

/// A section name without the `?` that keeps its programs from being loaded by default, and whether it was there.
///
/// ```
/// # use corelo_core::object::section_name::split_optional;
/// assert_eq!(split_optional(b"?xdp"), (&b"xdp"[..], true));
/// ```
#[must_use]
pub fn split_optional(section: &[u8]) -> (&[u8], bool) {
    match section.strip_prefix(b"?") {
        Some(rest) => (rest, true),
        None => (section, false),
    }
}

/// What a section name says, by the rules of libbpf 1.x; `None` where it is no program's. A leading `?` must be
/// [taken off](split_optional) before.
#[must_use]
pub fn parse(section: &[u8]) -> Option<ProgramKind<'_>> {
    let (row, rest) = TABLE.iter().find_map(|row| Some((row, row.matched(section)?)))?;
    Some(row.kind(section, rest))
}

/// As [`parse`], for names that libbpf took before 1.0 and objects still have: `xdp_devmap/…`, `xdp_cpumap/…`, and any
/// name of the table that takes no target, followed by `/…` or `_…` (`xdp/prog1`, `classifier/in`, `xdp_filter`).
///
/// The type is sure only as far as the object's author meant what old libbpf made of it; the caller decides whether
/// that will do.
#[must_use]
pub fn parse_older(section: &[u8]) -> Option<ProgramKind<'_>> {
    let starts = |name: &str| {
        let rest = section.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| matches!(rest.first(), Some(b'/' | b'_')))
    };
    let row = OLDER.iter().find(|row| section == row.name.as_bytes() || starts(row.name));
    let row = row.or_else(|| {
        let fits = TABLE.iter().filter(|row| !row.takes_target && starts(row.name));
        fits.max_by_key(|row| row.name.len())
    })?;
    Some(row.kind(section, &[]))
}

/// The names of the table: with a `+` at the end where a target may follow.
pub fn names() -> impl Iterator<Item = (&'static str, bool)> {
    TABLE.iter().map(|row| (row.name, row.takes_target))
}

const OPTIONAL: u8 = 1;
const SLEEPABLE: u8 = 2;
const FRAGS: u8 = 4;
const BTF: u8 = 8;

/// How what follows the `/` is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Manual,
    Kprobe { is_return: bool },
    KprobeMulti { is_return: bool, is_session: bool },
    Ksyscall { is_return: bool },
    Uprobe { is_return: bool },
    UprobeMulti { is_return: bool, is_session: bool },
    Usdt,
    Tracepoint,
    RawTracepoint,
    Trace,
    TraceMulti,
    Iter,
    Replace,
    StructOps,
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    /// Whether `/` and a target may follow.
    takes_target: bool,
    /// The numbers of both types, which fit into bytes: the table is a good part of the smallest firmware.
    prog_type: u8,
    attach_type: u8,
    flags: u8,
    form: Form,
}

impl Row {
    /// What follows the `/`, where this row is for `section`.
    fn matched<'s>(&self, section: &'s [u8]) -> Option<&'s [u8]> {
        let rest = section.strip_prefix(self.name.as_bytes())?;
        match rest.split_first() {
            None => Some(rest),
            Some((b'/', target)) if self.takes_target => Some(target),
            Some(_) => None,
        }
    }

    fn kind<'s>(&self, section: &'s [u8], rest: &'s [u8]) -> ProgramKind<'s> {
        let has_target = self.takes_target && section.len() > self.name.len();
        let target = if has_target { self.form.read(rest) } else { self.form.without_target() };
        let needs_attach_btf = self.flags & BTF != 0;
        let prog_type = ProgType(u32::from(self.prog_type));
        let attach_type = AttachType(u32::from(self.attach_type));
        let has_kernel_target = has_target && needs_attach_btf && prog_type != ProgType::EXT;
        ProgramKind {
            prog_type,
            expected_attach_type: attach_type,
            is_attach_type_optional: self.flags & OPTIONAL != 0,
            is_sleepable: self.flags & SLEEPABLE != 0,
            has_xdp_frags: self.flags & FRAGS != 0,
            needs_attach_btf,
            attach_btf: has_kernel_target.then(|| attach_btf(attach_type, rest)),
            target,
        }
    }
}

/// libbpf: `btf_get_kernel_prefix_kind`, `find_kernel_btf_id`
fn attach_btf(attach_type: AttachType, target: &[u8]) -> AttachBtf<'_> {
    let (prefix, kind) = match attach_type {
        AttachType::TRACE_RAW_TP => (Prefix::Trace, Kind::Typedef),
        AttachType::LSM_MAC | AttachType::LSM_CGROUP => (Prefix::Lsm, Kind::Func),
        AttachType::TRACE_ITER => (Prefix::Iter, Kind::Func),
        _ => (Prefix::Exact, Kind::Func),
    };
    let (module, name) = match split(target, b':') {
        Some((module, name)) => (Some(module), name),
        None => (None, target),
    };
    AttachBtf { module, name, prefix, kind }
}

impl Form {
    fn without_target<'s>(self) -> Target<'s> {
        match self {
            Self::StructOps => Target::StructOps { name: &[] },
            _ => Target::Manual,
        }
    }

    fn read(self, rest: &[u8]) -> Target<'_> {
        let target = match self {
            Self::Manual => Some(Target::Manual),
            Self::Kprobe { is_return } => kprobe(rest, is_return),
            Self::KprobeMulti { is_return, is_session } => {
                let pattern = leading(rest, |byte| is_symbol(byte) || matches!(byte, b'*' | b'?'));
                filled(pattern).map(|pattern| Target::KprobeMulti { pattern, is_return, is_session })
            }
            Self::Ksyscall { is_return } => filled(rest).map(|name| Target::Ksyscall { name, is_return }),
            Self::Uprobe { is_return } => uprobe(rest, is_return),
            Self::UprobeMulti { is_return, is_session } => {
                binary(rest).map(|(path, pattern)| Target::UprobeMulti { path, pattern, is_return, is_session })
            }
            Self::Usdt => usdt(rest),
            Self::Tracepoint => split(rest, b'/').and_then(|(category, name)| {
                Some(Target::Tracepoint { category: filled(category)?, name: filled(name)? })
            }),
            Self::RawTracepoint => filled(rest).map(|name| Target::RawTracepoint { name }),
            Self::Trace => filled(rest).map(|_| Target::Trace),
            Self::TraceMulti => trace_multi(rest),
            Self::Iter => filled(rest).map(|_| Target::Iter),
            Self::Replace => filled(rest).map(|function| Target::Replace { function }),
            Self::StructOps => Some(Target::StructOps { name: rest }),
        };
        target.unwrap_or(Target::Malformed)
    }
}

/// `function`, `function+8`, `function+0x8`
fn kprobe(rest: &[u8], is_return: bool) -> Option<Target<'_>> {
    let function = filled(leading(rest, is_symbol))?;
    let offset = match rest.get(function.len()..)?.strip_prefix(b"+") {
        Some(offset) => number(offset)?,
        None => 0,
    };
    (!is_return || offset == 0).then_some(Target::Kprobe { function, offset, is_return })
}

/// `path:function`, `path:function+8`
fn uprobe(rest: &[u8], is_return: bool) -> Option<Target<'_>> {
    let (path, function) = binary(rest)?;
    let plus = function.iter().rposition(|&byte| byte == b'+');
    // What follows a `+` and is no number belongs to the name: C++ has `operator+`.
    let with_offset =
        plus.and_then(|plus| Some((function.get(..plus)?, number(function.get(plus.checked_add(1)?..)?)?)));
    let (function, offset) = with_offset.unwrap_or((function, 0));
    (!is_return || offset == 0).then_some(Target::Uprobe { path, function, offset, is_return })
}

/// `pattern`, `module:pattern`
fn trace_multi(rest: &[u8]) -> Option<Target<'_>> {
    let (module, pattern) = match split(rest, b':') {
        Some((module, pattern)) => (Some(filled(module)?), pattern),
        None => (None, rest),
    };
    Some(Target::TraceMulti { module: module.filter(|&module| module != b"vmlinux"), pattern: filled(pattern)? })
}

/// `path:provider:name`
fn usdt(rest: &[u8]) -> Option<Target<'_>> {
    let (path, probe) = binary(rest)?;
    let (provider, name) = split(probe, b':')?;
    let name = leading(name, |byte| byte != b':');
    Some(Target::Usdt { path, provider: filled(provider)?, name: filled(name)? })
}

/// The path and what follows its `:`.
fn binary(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (path, symbol) = split(rest, b':')?;
    Some((filled(path)?, filled(symbol)?))
}

/// What stands before the first `at` and after it.
fn split(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = bytes.iter().position(|&byte| byte == at)?;
    Some((bytes.get(..position)?, bytes.get(position.checked_add(1)?..)?))
}

fn filled(bytes: &[u8]) -> Option<&[u8]> {
    (!bytes.is_empty()).then_some(bytes)
}

fn leading(bytes: &[u8], belongs: impl Fn(u8) -> bool) -> &[u8] {
    let len = bytes.iter().position(|&byte| !belongs(byte)).unwrap_or(bytes.len());
    bytes.get(..len).unwrap_or(bytes)
}

fn is_symbol(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')
}

/// A number as C writes it: decimal, `0x` hexadecimal, `0` octal.
fn number(digits: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(digits).ok()?;
    let (digits, radix) = if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        (hex, 16)
    } else if let Some(octal) = digits.strip_prefix('0').filter(|octal| !octal.is_empty()) {
        (octal, 8)
    } else {
        (digits, 10)
    };
    // The parser below would take a sign.
    if !digits.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

const fn exact(name: &'static str, prog_type: ProgType, attach_type: AttachType, flags: u8) -> Row {
    row(name, false, prog_type, attach_type, flags, Form::Manual)
}

const fn with_target(name: &'static str, prog_type: ProgType, attach_type: AttachType, flags: u8, form: Form) -> Row {
    row(name, true, prog_type, attach_type, flags, form)
}

const fn row(
    name: &'static str,
    takes_target: bool,
    prog_type: ProgType,
    attach_type: AttachType,
    flags: u8,
    form: Form,
) -> Row {
    Row { name, takes_target, prog_type: low_u8(prog_type.0), attach_type: low_u8(attach_type.0), flags, form }
}

const TABLE: &[Row] = &{
    use AttachType as A;
    use Form as F;
    use ProgType as P;
    [
        exact("socket", P::SOCKET_FILTER, A::NONE, 0),
        exact("sk_reuseport/migrate", P::SK_REUSEPORT, A::SK_REUSEPORT_SELECT_OR_MIGRATE, 0),
        exact("sk_reuseport", P::SK_REUSEPORT, A::SK_REUSEPORT_SELECT, 0),
        with_target("kprobe", P::KPROBE, A::NONE, 0, F::Kprobe { is_return: false }),
        with_target("kretprobe", P::KPROBE, A::NONE, 0, F::Kprobe { is_return: true }),
        with_target("uprobe", P::KPROBE, A::NONE, 0, F::Uprobe { is_return: false }),
        with_target("uprobe.s", P::KPROBE, A::NONE, SLEEPABLE, F::Uprobe { is_return: false }),
        with_target("uretprobe", P::KPROBE, A::NONE, 0, F::Uprobe { is_return: true }),
        with_target("uretprobe.s", P::KPROBE, A::NONE, SLEEPABLE, F::Uprobe { is_return: true }),
        with_target("kprobe.multi", P::KPROBE, A::TRACE_KPROBE_MULTI, 0, KPROBE_MULTI),
        with_target("kretprobe.multi", P::KPROBE, A::TRACE_KPROBE_MULTI, 0, KRETPROBE_MULTI),
        with_target("kprobe.session", P::KPROBE, A::TRACE_KPROBE_SESSION, 0, KPROBE_SESSION),
        with_target("uprobe.multi", P::KPROBE, A::TRACE_UPROBE_MULTI, 0, UPROBE_MULTI),
        with_target("uprobe.multi.s", P::KPROBE, A::TRACE_UPROBE_MULTI, SLEEPABLE, UPROBE_MULTI),
        with_target("uretprobe.multi", P::KPROBE, A::TRACE_UPROBE_MULTI, 0, URETPROBE_MULTI),
        with_target("uretprobe.multi.s", P::KPROBE, A::TRACE_UPROBE_MULTI, SLEEPABLE, URETPROBE_MULTI),
        with_target("uprobe.session", P::KPROBE, A::TRACE_UPROBE_SESSION, 0, UPROBE_SESSION),
        with_target("uprobe.session.s", P::KPROBE, A::TRACE_UPROBE_SESSION, SLEEPABLE, UPROBE_SESSION),
        with_target("ksyscall", P::KPROBE, A::NONE, 0, F::Ksyscall { is_return: false }),
        with_target("kretsyscall", P::KPROBE, A::NONE, 0, F::Ksyscall { is_return: true }),
        with_target("usdt", P::KPROBE, A::NONE, 0, F::Usdt),
        with_target("usdt.s", P::KPROBE, A::NONE, SLEEPABLE, F::Usdt),
        exact("tc/ingress", P::SCHED_CLS, A::TCX_INGRESS, 0),
        exact("tc/egress", P::SCHED_CLS, A::TCX_EGRESS, 0),
        exact("tcx/ingress", P::SCHED_CLS, A::TCX_INGRESS, 0),
        exact("tcx/egress", P::SCHED_CLS, A::TCX_EGRESS, 0),
        exact("tc", P::SCHED_CLS, A::NONE, 0),
        exact("classifier", P::SCHED_CLS, A::NONE, 0),
        exact("action", P::SCHED_ACT, A::NONE, 0),
        exact("netkit/primary", P::SCHED_CLS, A::NETKIT_PRIMARY, 0),
        exact("netkit/peer", P::SCHED_CLS, A::NETKIT_PEER, 0),
        with_target("tracepoint", P::TRACEPOINT, A::NONE, 0, F::Tracepoint),
        with_target("tp", P::TRACEPOINT, A::NONE, 0, F::Tracepoint),
        with_target("tracepoint.s", P::TRACEPOINT, A::NONE, SLEEPABLE, F::Tracepoint),
        with_target("tp.s", P::TRACEPOINT, A::NONE, SLEEPABLE, F::Tracepoint),
        with_target("raw_tracepoint", P::RAW_TRACEPOINT, A::NONE, 0, F::RawTracepoint),
        with_target("raw_tp", P::RAW_TRACEPOINT, A::NONE, 0, F::RawTracepoint),
        with_target("raw_tracepoint.s", P::RAW_TRACEPOINT, A::NONE, SLEEPABLE, F::RawTracepoint),
        with_target("raw_tp.s", P::RAW_TRACEPOINT, A::NONE, SLEEPABLE, F::RawTracepoint),
        with_target("raw_tracepoint.w", P::RAW_TRACEPOINT_WRITABLE, A::NONE, 0, F::RawTracepoint),
        with_target("raw_tp.w", P::RAW_TRACEPOINT_WRITABLE, A::NONE, 0, F::RawTracepoint),
        with_target("tp_btf", P::TRACING, A::TRACE_RAW_TP, BTF, F::Trace),
        with_target("tp_btf.s", P::TRACING, A::TRACE_RAW_TP, BTF | SLEEPABLE, F::Trace),
        with_target("fentry", P::TRACING, A::TRACE_FENTRY, BTF, F::Trace),
        with_target("fentry.s", P::TRACING, A::TRACE_FENTRY, BTF | SLEEPABLE, F::Trace),
        with_target("fmod_ret", P::TRACING, A::MODIFY_RETURN, BTF, F::Trace),
        with_target("fmod_ret.s", P::TRACING, A::MODIFY_RETURN, BTF | SLEEPABLE, F::Trace),
        with_target("fexit", P::TRACING, A::TRACE_FEXIT, BTF, F::Trace),
        with_target("fexit.s", P::TRACING, A::TRACE_FEXIT, BTF | SLEEPABLE, F::Trace),
        with_target("fsession", P::TRACING, A::TRACE_FSESSION, BTF, F::Trace),
        with_target("fsession.s", P::TRACING, A::TRACE_FSESSION, BTF | SLEEPABLE, F::Trace),
        with_target("fentry.multi", P::TRACING, A::TRACE_FENTRY_MULTI, 0, F::TraceMulti),
        with_target("fentry.multi.s", P::TRACING, A::TRACE_FENTRY_MULTI, SLEEPABLE, F::TraceMulti),
        with_target("fexit.multi", P::TRACING, A::TRACE_FEXIT_MULTI, 0, F::TraceMulti),
        with_target("fexit.multi.s", P::TRACING, A::TRACE_FEXIT_MULTI, SLEEPABLE, F::TraceMulti),
        with_target("fsession.multi", P::TRACING, A::TRACE_FSESSION_MULTI, 0, F::TraceMulti),
        with_target("fsession.multi.s", P::TRACING, A::TRACE_FSESSION_MULTI, SLEEPABLE, F::TraceMulti),
        with_target("freplace", P::EXT, A::NONE, BTF, F::Replace),
        with_target("lsm", P::LSM, A::LSM_MAC, BTF, F::Trace),
        with_target("lsm.s", P::LSM, A::LSM_MAC, BTF | SLEEPABLE, F::Trace),
        // A hook of a cgroup: which cgroup, the section cannot say.
        with_target("lsm_cgroup", P::LSM, A::LSM_CGROUP, BTF, F::Manual),
        with_target("iter", P::TRACING, A::TRACE_ITER, BTF, F::Iter),
        with_target("iter.s", P::TRACING, A::TRACE_ITER, BTF | SLEEPABLE, F::Iter),
        exact("syscall", P::SYSCALL, A::NONE, SLEEPABLE),
        exact("xdp.frags/devmap", P::XDP, A::XDP_DEVMAP, FRAGS),
        exact("xdp/devmap", P::XDP, A::XDP_DEVMAP, 0),
        exact("xdp.frags/cpumap", P::XDP, A::XDP_CPUMAP, FRAGS),
        exact("xdp/cpumap", P::XDP, A::XDP_CPUMAP, 0),
        exact("xdp.frags", P::XDP, A::XDP, FRAGS),
        exact("xdp", P::XDP, A::XDP, OPTIONAL),
        exact("perf_event", P::PERF_EVENT, A::NONE, 0),
        exact("lwt_in", P::LWT_IN, A::NONE, 0),
        exact("lwt_out", P::LWT_OUT, A::NONE, 0),
        exact("lwt_xmit", P::LWT_XMIT, A::NONE, 0),
        exact("lwt_seg6local", P::LWT_SEG6LOCAL, A::NONE, 0),
        exact("sockops", P::SOCK_OPS, A::CGROUP_SOCK_OPS, OPTIONAL),
        exact("sk_skb/stream_parser", P::SK_SKB, A::SK_SKB_STREAM_PARSER, OPTIONAL),
        exact("sk_skb/stream_verdict", P::SK_SKB, A::SK_SKB_STREAM_VERDICT, OPTIONAL),
        exact("sk_skb/verdict", P::SK_SKB, A::SK_SKB_VERDICT, OPTIONAL),
        exact("sk_skb", P::SK_SKB, A::NONE, 0),
        exact("sk_msg", P::SK_MSG, A::SK_MSG_VERDICT, OPTIONAL),
        exact("lirc_mode2", P::LIRC_MODE2, A::LIRC_MODE2, OPTIONAL),
        exact("flow_dissector", P::FLOW_DISSECTOR, A::FLOW_DISSECTOR, OPTIONAL),
        exact("cgroup_skb/ingress", P::CGROUP_SKB, A::CGROUP_INET_INGRESS, OPTIONAL),
        exact("cgroup_skb/egress", P::CGROUP_SKB, A::CGROUP_INET_EGRESS, OPTIONAL),
        exact("cgroup/skb", P::CGROUP_SKB, A::NONE, 0),
        exact("cgroup/sock_create", P::CGROUP_SOCK, A::CGROUP_INET_SOCK_CREATE, 0),
        exact("cgroup/sock_release", P::CGROUP_SOCK, A::CGROUP_INET_SOCK_RELEASE, 0),
        exact("cgroup/sock", P::CGROUP_SOCK, A::CGROUP_INET_SOCK_CREATE, OPTIONAL),
        exact("cgroup/post_bind4", P::CGROUP_SOCK, A::CGROUP_INET4_POST_BIND, 0),
        exact("cgroup/post_bind6", P::CGROUP_SOCK, A::CGROUP_INET6_POST_BIND, 0),
        exact("cgroup/bind4", P::CGROUP_SOCK_ADDR, A::CGROUP_INET4_BIND, 0),
        exact("cgroup/bind6", P::CGROUP_SOCK_ADDR, A::CGROUP_INET6_BIND, 0),
        exact("cgroup/connect4", P::CGROUP_SOCK_ADDR, A::CGROUP_INET4_CONNECT, 0),
        exact("cgroup/connect6", P::CGROUP_SOCK_ADDR, A::CGROUP_INET6_CONNECT, 0),
        exact("cgroup/connect_unix", P::CGROUP_SOCK_ADDR, A::CGROUP_UNIX_CONNECT, 0),
        exact("cgroup/sendmsg4", P::CGROUP_SOCK_ADDR, A::CGROUP_UDP4_SENDMSG, 0),
        exact("cgroup/sendmsg6", P::CGROUP_SOCK_ADDR, A::CGROUP_UDP6_SENDMSG, 0),
        exact("cgroup/sendmsg_unix", P::CGROUP_SOCK_ADDR, A::CGROUP_UNIX_SENDMSG, 0),
        exact("cgroup/recvmsg4", P::CGROUP_SOCK_ADDR, A::CGROUP_UDP4_RECVMSG, 0),
        exact("cgroup/recvmsg6", P::CGROUP_SOCK_ADDR, A::CGROUP_UDP6_RECVMSG, 0),
        exact("cgroup/recvmsg_unix", P::CGROUP_SOCK_ADDR, A::CGROUP_UNIX_RECVMSG, 0),
        exact("cgroup/getpeername4", P::CGROUP_SOCK_ADDR, A::CGROUP_INET4_GETPEERNAME, 0),
        exact("cgroup/getpeername6", P::CGROUP_SOCK_ADDR, A::CGROUP_INET6_GETPEERNAME, 0),
        exact("cgroup/getpeername_unix", P::CGROUP_SOCK_ADDR, A::CGROUP_UNIX_GETPEERNAME, 0),
        exact("cgroup/getsockname4", P::CGROUP_SOCK_ADDR, A::CGROUP_INET4_GETSOCKNAME, 0),
        exact("cgroup/getsockname6", P::CGROUP_SOCK_ADDR, A::CGROUP_INET6_GETSOCKNAME, 0),
        exact("cgroup/getsockname_unix", P::CGROUP_SOCK_ADDR, A::CGROUP_UNIX_GETSOCKNAME, 0),
        exact("cgroup/sysctl", P::CGROUP_SYSCTL, A::CGROUP_SYSCTL, 0),
        exact("cgroup/getsockopt", P::CGROUP_SOCKOPT, A::CGROUP_GETSOCKOPT, 0),
        exact("cgroup/setsockopt", P::CGROUP_SOCKOPT, A::CGROUP_SETSOCKOPT, 0),
        exact("cgroup/dev", P::CGROUP_DEVICE, A::CGROUP_DEVICE, OPTIONAL),
        with_target("struct_ops", P::STRUCT_OPS, A::NONE, 0, F::StructOps),
        with_target("struct_ops.s", P::STRUCT_OPS, A::NONE, SLEEPABLE, F::StructOps),
        exact("sk_lookup", P::SK_LOOKUP, A::SK_LOOKUP, 0),
        exact("netfilter", P::NETFILTER, A::NETFILTER, 0),
    ]
};

/// Names that libbpf 1.0 dropped.
const OLDER: &[Row] = &[
    exact("xdp_devmap", ProgType::XDP, AttachType::XDP_DEVMAP, 0),
    exact("xdp_cpumap", ProgType::XDP, AttachType::XDP_CPUMAP, 0),
];

const KPROBE_MULTI: Form = Form::KprobeMulti { is_return: false, is_session: false };
const KRETPROBE_MULTI: Form = Form::KprobeMulti { is_return: true, is_session: false };
const KPROBE_SESSION: Form = Form::KprobeMulti { is_return: false, is_session: true };
const UPROBE_MULTI: Form = Form::UprobeMulti { is_return: false, is_session: false };
const URETPROBE_MULTI: Form = Form::UprobeMulti { is_return: true, is_session: false };
const UPROBE_SESSION: Form = Form::UprobeMulti { is_return: false, is_session: true };

#[cfg(test)]
mod tests {
    use super::*;

    type Types = Option<(ProgType, AttachType)>;

    #[test]
    fn names_match_whole_or_before_a_slash() {
        let rows: [(&[u8], Types); 16] = [
            (b"xdp", Some((ProgType::XDP, AttachType::XDP))),
            (b"xdp/devmap", Some((ProgType::XDP, AttachType::XDP_DEVMAP))),
            (b"xdp/other", None),
            (b"xdp_other", None),
            (b"kprobe", Some((ProgType::KPROBE, AttachType::NONE))),
            (b"kprobe/", Some((ProgType::KPROBE, AttachType::NONE))),
            (b"kprobes", None),
            (b"kprobe.multi/a*", Some((ProgType::KPROBE, AttachType::TRACE_KPROBE_MULTI))),
            (b"tc", Some((ProgType::SCHED_CLS, AttachType::NONE))),
            (b"tc/ingress", Some((ProgType::SCHED_CLS, AttachType::TCX_INGRESS))),
            (b"raw_tp.w/x", Some((ProgType::RAW_TRACEPOINT_WRITABLE, AttachType::NONE))),
            (b"sk_skb", Some((ProgType::SK_SKB, AttachType::NONE))),
            (b"fentry.s/f", Some((ProgType::TRACING, AttachType::TRACE_FENTRY))),
            (b"fentry.x/f", None),
            (b".text", None),
            (b"", None),
        ];
        for (section, wanted) in rows {
            let found = parse(section).map(|kind| (kind.prog_type, kind.expected_attach_type));
            assert_eq!(found, wanted, "{}", section.escape_ascii());
        }
    }

    #[test]
    fn flags_follow_the_name() {
        assert!(parse(b"xdp").unwrap().is_attach_type_optional);
        assert!(!parse(b"xdp/devmap").unwrap().is_attach_type_optional);
        assert!(parse(b"xdp.frags").unwrap().has_xdp_frags);
        assert!(parse(b"lsm.s/file_open").unwrap().is_sleepable);
        assert!(!parse(b"lsm/file_open").unwrap().is_sleepable);
        assert!(parse(b"syscall").unwrap().is_sleepable);
        let sleepable = ["tp.s", "tracepoint.s", "raw_tp.s", "raw_tracepoint.s", "tp_btf.s", "fentry.multi.s"];
        for name in sleepable.iter().chain(&["fexit.multi.s", "fsession.multi.s"]) {
            let (kind, plain) = (parse(name.as_bytes()).unwrap(), parse(name.strip_suffix(".s").unwrap().as_bytes()));
            assert_eq!(ProgramKind { is_sleepable: false, ..kind }, plain.unwrap(), "{name}");
            assert!(kind.is_sleepable, "{name}");
        }
        for (name, number) in [("fentry", 59), ("fexit", 60), ("fsession", 61)] {
            let section = std::format!("{name}.multi/f");
            let kind = parse(section.as_bytes()).unwrap();
            assert_eq!(
                (kind.expected_attach_type.0, kind.prog_type, kind.attach_btf),
                (number, ProgType::TRACING, None)
            );
        }
    }

    #[test]
    fn targets_are_read_from_what_follows() {
        let rows: [(&[u8], Target<'_>); 38] = [
            (b"tp.s/sched/sched_switch", Target::Tracepoint { category: b"sched", name: b"sched_switch" }),
            (b"raw_tracepoint.s/sys_enter", Target::RawTracepoint { name: b"sys_enter" }),
            (b"tp_btf.s/sys_enter", Target::Trace),
            (b"fentry.multi/tcp_*", Target::TraceMulti { module: None, pattern: b"tcp_*" }),
            (b"fexit.multi.s/xfs:xfs_?", Target::TraceMulti { module: Some(b"xfs"), pattern: b"xfs_?" }),
            (b"fsession.multi/vmlinux:f", Target::TraceMulti { module: None, pattern: b"f" }),
            (b"fsession.multi/", Target::Malformed),
            (b"fentry.multi/:f", Target::Malformed),
            (b"kprobe", Target::Manual),
            (b"kprobe/", Target::Malformed),
            (b"kprobe/vfs_read", Target::Kprobe { function: b"vfs_read", offset: 0, is_return: false }),
            (b"kprobe/f.isra.0+0x10", Target::Kprobe { function: b"f.isra.0", offset: 16, is_return: false }),
            (b"kprobe/f+010", Target::Kprobe { function: b"f", offset: 8, is_return: false }),
            (b"kprobe/f+-1", Target::Malformed),
            (b"kretprobe/f+8", Target::Malformed),
            (b"kretprobe/f", Target::Kprobe { function: b"f", offset: 0, is_return: true }),
            (b"kprobe.multi/tcp_*", Target::KprobeMulti { pattern: b"tcp_*", is_return: false, is_session: false }),
            (b"kprobe.session/tcp_?", Target::KprobeMulti { pattern: b"tcp_?", is_return: false, is_session: true }),
            (b"ksyscall/openat", Target::Ksyscall { name: b"openat", is_return: false }),
            (b"kretsyscall/openat", Target::Ksyscall { name: b"openat", is_return: true }),
            (
                b"uprobe//bin/bash:readline+0x4",
                Target::Uprobe { path: b"/bin/bash", function: b"readline", offset: 4, is_return: false },
            ),
            (
                b"uretprobe.s/libc.so.6:malloc",
                Target::Uprobe { path: b"libc.so.6", function: b"malloc", offset: 0, is_return: true },
            ),
            (b"uprobe/a:operator+", Target::Uprobe { path: b"a", function: b"operator+", offset: 0, is_return: false }),
            (b"uprobe//bin/bash", Target::Malformed),
            (b"uretprobe/a:b+4", Target::Malformed),
            (
                b"uprobe.multi.s/a:b*",
                Target::UprobeMulti { path: b"a", pattern: b"b*", is_return: false, is_session: false },
            ),
            (
                b"uprobe.session/a:b*",
                Target::UprobeMulti { path: b"a", pattern: b"b*", is_return: false, is_session: true },
            ),
            (b"usdt/libc.so.6:libc:setjmp", Target::Usdt { path: b"libc.so.6", provider: b"libc", name: b"setjmp" }),
            (b"usdt/libc.so.6:libc", Target::Malformed),
            (b"tp/sched/sched_switch", Target::Tracepoint { category: b"sched", name: b"sched_switch" }),
            (b"tracepoint/sched", Target::Malformed),
            (b"raw_tp/sys_enter", Target::RawTracepoint { name: b"sys_enter" }),
            (b"fexit/f", Target::Trace),
            (b"iter/task", Target::Iter),
            (b"freplace/f", Target::Replace { function: b"f" }),
            (b"struct_ops/init", Target::StructOps { name: b"init" }),
            (b"struct_ops", Target::StructOps { name: b"" }),
            (b"cgroup/connect4", Target::Manual),
        ];
        for (section, wanted) in rows {
            assert_eq!(parse(section).unwrap().target, wanted, "{}", section.escape_ascii());
        }
    }

    #[test]
    fn kernel_types_are_named_as_the_kernel_names_them() {
        let exact = |name| AttachBtf { module: None, name, prefix: Prefix::Exact, kind: Kind::Func };
        let rows: [(&[u8], Option<AttachBtf<'_>>); 9] = [
            (b"fentry/do_exit", Some(exact(b"do_exit"))),
            (b"fentry/xfs:xfs_open", Some(AttachBtf { module: Some(b"xfs"), ..exact(b"xfs_open") })),
            (
                b"tp_btf/sys_enter",
                Some(AttachBtf { prefix: Prefix::Trace, kind: Kind::Typedef, ..exact(b"sys_enter") }),
            ),
            (b"lsm/file_open", Some(AttachBtf { prefix: Prefix::Lsm, ..exact(b"file_open") })),
            (b"lsm_cgroup/file_open", Some(AttachBtf { prefix: Prefix::Lsm, ..exact(b"file_open") })),
            (b"iter.s/task", Some(AttachBtf { prefix: Prefix::Iter, ..exact(b"task") })),
            (b"freplace/f", None),
            (b"fentry", None),
            (b"kprobe/f", None),
        ];
        for (section, wanted) in rows {
            assert_eq!(parse(section).unwrap().attach_btf, wanted, "{}", section.escape_ascii());
        }
        assert!(parse(b"fentry").unwrap().needs_attach_btf);
        assert!(parse(b"freplace/f").unwrap().needs_attach_btf);
        assert!(!parse(b"kprobe/f").unwrap().needs_attach_btf);
    }

    #[test]
    fn older_names_are_known_apart() {
        let rows: [(&[u8], Types); 8] = [
            (b"xdp_devmap/x", Some((ProgType::XDP, AttachType::XDP_DEVMAP))),
            (b"xdp_cpumap", Some((ProgType::XDP, AttachType::XDP_CPUMAP))),
            (b"xdp/prog1", Some((ProgType::XDP, AttachType::XDP))),
            (b"classifier/in", Some((ProgType::SCHED_CLS, AttachType::NONE))),
            (b"cgroup/connect4/x", Some((ProgType::CGROUP_SOCK_ADDR, AttachType::CGROUP_INET4_CONNECT))),
            (b"xdpx", None),
            (b"kprobe_x", None),
            (b"maps", None),
        ];
        for (section, wanted) in rows {
            let found = parse_older(section).map(|kind| (kind.prog_type, kind.expected_attach_type));
            assert_eq!(found, wanted, "{}", section.escape_ascii());
        }
    }
}

//! From ids to names: what went wrong, in one line that a person can act on.
//!
//! The core's errors are small values that name sections, symbols and types by number. Here they meet the object they
//! came from. Nothing is decided here and nothing allocated: each report is a [`Display`](fmt::Display) value.

use core::fmt;

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::ext::CoreRelo;
pub use corelo_core::btf::strings::Name;
use corelo_core::btf::{TypeId, Types};
use corelo_core::insn::POISON_HELPER;
use corelo_core::link::{LinkCause, LinkError, Placement};
use corelo_core::object::section_name::{AttachType, ProgType, ProgramKind, Target};
use corelo_core::object::{Map, Object, ObjectError};
use corelo_core::prepare::{AttachTarget, Plan, Prepared, Question, Relocation, RelocationError};
use corelo_core::relo::explain::{Explanation, explain};
use corelo_core::relo::format::{LocalSpec, TypeName};
use corelo_core::relo::resolve::{VMLINUX, Verdict};
use corelo_core::struct_ops::StructOpsError;
use rustix::thread::CapabilitySet;

use crate::kernel::{ModuleNames, lockdown};
use crate::load::{LoadError, program_kind};
use crate::sys::Errno;

/// An [`ObjectError`] of `object`, with the names of what it numbers.
#[derive(Clone, Copy, Debug)]
pub struct ObjectReport<'r> {
    /// The object; `None` where it could not be parsed at all.
    pub object: Option<&'r Object<'r>>,
    /// What is wrong with it.
    pub error: ObjectError,
}

impl fmt::Display for ObjectReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)?;
        if let ObjectError::NotBpf { machine, .. } = self.error {
            return write_machine(f, machine);
        }
        let Some(object) = self.object else { return Ok(()) };
        match self.error {
            ObjectError::BadSection { section }
            | ObjectError::BadRelocations { section }
            | ObjectError::Compressed { section }
            | ObjectError::DataTooLarge { section }
            | ObjectError::StructOpsWithoutBtf { section }
            | ObjectError::BadLegacyMaps { section } => {
                write_known(f, "section", section, object.section_name(section))
            }
            ObjectError::BadSymbol { symbol }
            | ObjectError::BadFunction { symbol }
            | ObjectError::StaticProgram { symbol }
            | ObjectError::ExternNotInBtf { symbol }
            | ObjectError::UnknownExternSection { symbol }
            | ObjectError::BadKconfigType { symbol }
            | ObjectError::LegacyMapWord { symbol, .. }
            | ObjectError::BadSlot { symbol, .. } => write_known(f, "symbol", symbol, object.symbol_name(symbol)),
            ObjectError::StaticMap { id } | ObjectError::MapWithoutType { id } | ObjectError::InnerOfInner { id } => {
                write_known(f, "variable", id.0, type_name(object, id))
            }
            ObjectError::BadMapDefinition { id } => write_known(f, "type", id.0, type_name(object, id)),
            ObjectError::BadMapAttribute { id, member } | ObjectError::MapSizeConflict { id, member, .. } => {
                write_known(f, "variable", id.0, type_name(object, id))?;
                let name = map_attribute(object, id, member);
                write_known(f, "member", member, name)
            }
            _ => Ok(()),
        }
    }
}

/// Whose code an ELF file of another machine holds, and how it would be BPF's.
fn write_machine(f: &mut fmt::Formatter<'_>, machine: u16) -> fmt::Result {
    let name = match machine {
        elf::abi::EM_386 => "x86",
        elf::abi::EM_X86_64 => "x86-64",
        elf::abi::EM_ARM => "32-bit ARM",
        elf::abi::EM_AARCH64 => "64-bit ARM",
        elf::abi::EM_MIPS => "MIPS",
        elf::abi::EM_PPC | elf::abi::EM_PPC64 => "PowerPC",
        elf::abi::EM_RISCV => "RISC-V",
        elf::abi::EM_S390 => "s390",
        elf::abi::EM_LOONGARCH => "LoongArch",
        _ => return Ok(()),
    };
    write!(f, ": an object for {name}; compile it with clang -target bpf")
}

/// Adds ` (WHAT [NUMBER] is NAME)`, or nothing where there is no name.
fn write_known(f: &mut fmt::Formatter<'_>, what: &str, number: u32, name: &[u8]) -> fmt::Result {
    if name.is_empty() { Ok(()) } else { write!(f, " ({what} [{number}] is `{}`)", Name(name)) }
}

/// The object's own types with next to no index, for messages: one entry, and a walk for each type.
fn with_local<R>(object: &Object<'_>, read: impl FnOnce(&Types<'_>) -> R) -> Option<R> {
    let mut buffer = [0u64; 8];
    let mut arena = Arena::new(zerocopy::IntoBytes::as_mut_bytes(&mut buffer));
    let types = Types::index(object.btf()?, u32::MAX, None, &mut arena, Part::LocalIndex).ok()?;
    Some(read(&types))
}

fn type_name<'o>(object: &Object<'o>, id: TypeId) -> &'o [u8] {
    let Some(btf) = object.btf() else { return &[] };
    let ty = btf.iter().map_while(Result::ok).find(|ty| ty.id() == id);
    let name = ty.and_then(|ty| btf_string(object, ty.name_off()));
    name.unwrap_or(&[])
}

fn btf_string<'o>(object: &Object<'o>, offset: u32) -> Option<&'o [u8]> {
    let strings = object.btf()?.strings().get(usize::try_from(offset).ok()?..)?;
    strings.split(|&byte| byte == 0).next()
}

/// The name of a member of the struct that the map variable `id` is of.
fn map_attribute<'o>(object: &Object<'o>, id: TypeId, member: u32) -> &'o [u8] {
    let offset = with_local(object, |types| {
        let var = types.get(id).ok()?;
        let definition = types.skip_modifiers(var.type_id()).ok()?;
        Some(definition.member(member)?.name_off)
    });
    offset.flatten().and_then(|offset| btf_string(object, offset)).unwrap_or(&[])
}

/// The name of a member of the struct that type `id` is.
fn member_name<'o>(object: &Object<'o>, id: TypeId, member: u32) -> &'o [u8] {
    let offset = with_local(object, |types| Some(types.skip_modifiers(id).ok()?.member(member)?.name_off));
    offset.flatten().and_then(|offset| btf_string(object, offset)).unwrap_or(&[])
}

/// Why a CO-RE relocation failed, with every candidate that was tried.
#[derive(Clone, Copy, Debug)]
pub struct RelocationReport<'r, 'a> {
    /// The object.
    pub prepared: &'r Prepared<'a>,
    /// The relocation.
    pub relocation: &'r Relocation<'r>,
}

impl fmt::Display for RelocationReport<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Err(error) = self.relocation.outcome else { return f.write_str("no fault") };
        let decision = self.relocation.decision;
        match error {
            RelocationError::Patch(error) => error.fmt(f)?,
            RelocationError::Undecided(Verdict::BadSpec) => {
                let error =
                    self.prepared.local().and_then(|local| self.prepared.decisions().spec_error(local, decision).err());
                return match error {
                    Some(error) => error.fmt(f),
                    None => f.write_str("access does not fit the local type"),
                };
            }
            RelocationError::Undecided(Verdict::Ambiguous { first, second }) => {
                write!(f, "ambiguous, candidates [{first}] and [{second}] differ")?;
            }
            RelocationError::Undecided(Verdict::Fault { fault, candidate }) => {
                write!(f, "candidate [{candidate}]: {fault}")?;
            }
            RelocationError::Undecided(_) => f.write_str("its candidates were not searched")?,
        }
        CandidatesReport { prepared: self.prepared, relo: &self.relocation.relo }.fmt(f)
    }
}

/// `; candidates: [ID] NAME in BTF: RESULT, ...` of one record; nothing where none was found in vmlinux.
struct CandidatesReport<'r, 'a> {
    prepared: &'r Prepared<'a>,
    relo: &'r CoreRelo,
}

impl fmt::Display for CandidatesReport<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// More than these are counted only: some names have hundreds.
        const SHOWN: usize = 8;
        let Some(answers) = self.prepared.answers() else { return Ok(()) };
        let count = answers.of(self.relo.type_id.0).len();
        for (number, tried) in candidates(self.prepared, self.relo).take(SHOWN).enumerate() {
            let before = if number == 0 { "; candidates:" } else { "," };
            let name = TypeName::new(answers.types(), tried.id);
            write!(f, "{before} [{}] {name} in vmlinux: {tried}", tried.id)?;
        }
        if count > SHOWN { write!(f, " and {} more", count - SHOWN) } else { Ok(()) }
    }
}

/// A candidate and what it gives for one relocation.
#[derive(Clone, Copy, Debug)]
pub struct CandidateReport<'l> {
    /// The target type.
    pub id: TypeId,
    /// What came of it; `None` where the local side is at fault.
    pub explanation: Option<Explanation<'l>>,
}

impl fmt::Display for CandidateReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.explanation {
            None => f.write_str("not tried"),
            Some(Explanation::Value(value)) => write!(f, "matches with value {value}"),
            Some(Explanation::NoMatch { step: Some(step) }) => write!(f, "no compatible `{}`", Name(step)),
            Some(Explanation::NoMatch { step: None }) => f.write_str("does not match"),
            Some(Explanation::Fault(fault)) => fault.fmt(f),
        }
    }
}

/// The candidates of a record in vmlinux, each tried on its own. Those of modules are not kept; what was taken of them
/// is in the decision.
pub fn candidates<'r>(
    prepared: &'r Prepared<'_>,
    relo: &'r CoreRelo,
) -> impl Iterator<Item = CandidateReport<'r>> + use<'r> {
    let answers = prepared.answers();
    let found = answers.map_or(&[][..], |answers| answers.of(relo.type_id.0));
    let endian = prepared.object().endian();
    let local = prepared.local();
    found.iter().map(move |candidate| {
        let explanation = match (local, answers) {
            (Some(local), Some(answers)) => explain(local, answers.types(), relo, candidate.id, endian),
            _ => None,
        };
        CandidateReport { id: candidate.id, explanation }
    })
}

/// The number of a decision's BTF as a name: `vmlinux`, or that of the module.
#[must_use]
pub fn btf_name<'n>(number: u16, modules: ModuleNames<'n>) -> &'n str {
    if number == VMLINUX {
        return "vmlinux";
    }
    modules.get(number).unwrap_or("module")
}

/// Where a relocation is: `program NAME (section SECTION), instruction N: KIND of SPEC`.
#[derive(Clone, Copy, Debug)]
pub struct RelocationPlace<'r, 'a> {
    /// The object.
    pub prepared: &'r Prepared<'a>,
    /// The relocation.
    pub relocation: &'r Relocation<'r>,
}

impl fmt::Display for RelocationPlace<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prepared, relocation } = *self;
        let section = prepared.object().section_name(relocation.section);
        let function = relocation.function.and_then(|number| prepared.declared().functions().get(number));
        match function {
            Some(function) => {
                write_function_word(f, function.is_program())?;
                f.write_str(" ")?;
                write!(f, "{} (section {})", Name(prepared.function_name(function)), Name(section))?;
            }
            None => write!(f, "section {}", Name(section))?,
        }
        write!(f, ", instruction {}: {} relocation", relocation.insn_idx, relocation.relo.kind)?;
        match prepared.local() {
            Some(local) => write!(f, " of {}", LocalSpec::new(local, &relocation.relo)),
            None => Ok(()),
        }
    }
}

fn write_function_word(f: &mut fmt::Formatter<'_>, is_program: bool) -> fmt::Result {
    f.write_str(if is_program { "program" } else { "subprogram" })
}

/// A [`LinkError`] of the program that is function `program`, with names, spec and candidates.
#[derive(Clone, Copy, Debug)]
pub struct LinkReport<'r, 'a> {
    /// The object.
    pub prepared: &'r Prepared<'a>,
    /// The number of the program as a function.
    pub program: usize,
    /// What is wrong with it.
    pub error: LinkError,
}

impl fmt::Display for LinkReport<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prepared, program, error } = *self;
        if let LinkCause::Arena(full) = error.cause {
            return full.fmt(f);
        }
        let functions = prepared.declared().functions();
        if let Some(main) = functions.get(program) {
            let (name, section) = (prepared.function_name(main), prepared.section_name(main));
            write!(f, "program {} (section {})", Name(name), Name(section))?;
            if main.symbol() != error.function {
                write!(f, ", subprogram {}", Name(prepared.object().symbol_name(error.function)))?;
            }
        }
        write!(f, ", instruction {}: ", error.insn_idx)?;
        let symbol_name = |symbol: u32| Name(prepared.object().symbol_name(symbol));
        match error.cause {
            LinkCause::Undecided { relo_idx, .. } | LinkCause::Patch { relo_idx, .. } => {
                let is_it = |relocation: &Relocation<'_>| {
                    let function = relocation.function.and_then(|number| functions.get(number));
                    relocation.relo_idx == relo_idx
                        && function.is_some_and(|function| function.symbol() == error.function)
                };
                let Some(relocation) = prepared.relocations().find(is_it) else { return error.cause.fmt(f) };
                write!(f, "{} relocation", relocation.relo.kind)?;
                if let Some(local) = prepared.local() {
                    write!(f, " of {}", LocalSpec::new(local, &relocation.relo))?;
                }
                f.write_str(": ")?;
                RelocationReport { prepared, relocation: &relocation }.fmt(f)
            }
            LinkCause::NoFunction { symbol: Some(symbol) } => {
                write!(f, "call leads to no function, by symbol `{}`", symbol_name(symbol))
            }
            LinkCause::UndefinedSymbol { symbol } => write!(f, "symbol `{}` is not defined", symbol_name(symbol)),
            LinkCause::NoMap { symbol } => write!(f, "symbol `{}` lies at no map", symbol_name(symbol)),
            LinkCause::UnsupportedSection { symbol } => {
                write!(f, "symbol `{}` lies in a section that is neither code, maps nor data", symbol_name(symbol))
            }
            LinkCause::Object(error) => ObjectReport { object: Some(prepared.object()), error }.fmt(f),
            cause => cause.fmt(f),
        }
    }
}

/// A [`LoadError`] with the names of what it numbers.
#[derive(Clone, Copy, Debug)]
pub struct LoadReport<'r, 'a> {
    /// The object.
    pub prepared: &'r Prepared<'a>,
    /// What went wrong.
    pub error: LoadError,
    /// The directory of the pins ([`LoadOptions::pin_root`](crate::load::LoadOptions::pin_root)).
    pub pin_root: &'r str,
}

impl LoadReport<'_, '_> {
    fn write_map(&self, f: &mut fmt::Formatter<'_>, number: usize) -> fmt::Result {
        let name = self.prepared.maps().get(number).map_or(&[][..], |map| self.prepared.map_name(map));
        write!(f, "map {}: ", Name(name))
    }

    fn kind_of(&self, number: usize) -> Option<ProgramKind<'_>> {
        program_kind(self.prepared, self.prepared.declared().functions().get(number)?)
    }

    /// Whether the program is of a kind that the kernel gained after 7.2.
    fn is_newer_kind(&self, number: usize) -> bool {
        let Some(kind) = self.kind_of(number) else { return false };
        match kind.target {
            Target::TraceMulti { .. } => true,
            _ => {
                let is_tracepoint = matches!(kind.prog_type, ProgType::TRACEPOINT | ProgType::RAW_TRACEPOINT)
                    || kind.expected_attach_type == AttachType::TRACE_RAW_TP;
                is_tracepoint && kind.is_sleepable
            }
        }
    }

    fn write_program(&self, f: &mut fmt::Formatter<'_>, number: usize) -> fmt::Result {
        let Some(function) = self.prepared.declared().functions().get(number) else { return Ok(()) };
        let section = self.prepared.section_name(function);
        write!(f, "program {} (section {}): ", Name(self.prepared.function_name(function)), Name(section))
    }
}

impl fmt::Display for LoadReport<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error {
            LoadError::MapCreate { map, errno } => {
                self.write_map(f, map)?;
                write!(f, "the kernel refuses to create it: {errno}")?;
                write_privileges(f, errno, CapabilitySet::BPF)
            }
            LoadError::Cpus { map, errno } => {
                self.write_map(f, map)?;
                write!(f, "how many CPUs there may be: /sys/devices/system/cpu/possible: {errno}")
            }
            LoadError::Pin { map, error } => {
                self.write_map(f, map)?;
                let name = self.prepared.maps().get(map).map_or(&[][..], |map| self.prepared.map_name(map));
                write!(f, "{}/{}: {error}", self.pin_root, Name(name))
            }
            LoadError::MapFill { map, errno } => {
                self.write_map(f, map)?;
                write!(f, "its contents cannot be written: {errno}")
            }
            LoadError::Slot { map, index, errno } => {
                self.write_map(f, map)?;
                write!(f, "its initial slot {index} cannot be filled: {errno}")
            }
            LoadError::StructOps { map, error } => {
                self.write_map(f, map)?;
                error.fmt(f)?;
                match error {
                    StructOpsError::NoMember { member }
                    | StructOpsError::Bitfield { member }
                    | StructOpsError::OtherKind { member }
                    | StructOpsError::OtherSize { member, .. } => {
                        let definition = self.prepared.maps().get(map).map_or(TypeId(0), Map::definition);
                        write_known(f, "member", member, member_name(self.prepared.object(), definition, member))
                    }
                    StructOpsError::TwoMembers { function } => {
                        let function = self.prepared.declared().functions().get(function);
                        let name = function.map_or(&[][..], |function| self.prepared.function_name(function));
                        write!(f, " (program {})", Name(name))
                    }
                    StructOpsError::BadPointer { symbol, .. } => {
                        write_known(f, "symbol", symbol, self.prepared.object().symbol_name(symbol))
                    }
                    _ => Ok(()),
                }
            }
            LoadError::ModuleBtf { function, errno } => {
                self.write_program(f, function)?;
                write!(f, "the BTF of its target's module cannot be had: {errno}")?;
                write_privileges(f, errno, CapabilitySet::SYS_ADMIN)
            }
            LoadError::ReplacedBtf { function, errno } => {
                self.write_program(f, function)?;
                write!(f, "the BTF of the program that it replaces cannot be had: {errno}")?;
                write_privileges(f, errno, CapabilitySet::SYS_ADMIN)
            }
            LoadError::Extern { number, error } => {
                let ext = self.prepared.declared().externs().get(number);
                let name = ext.map_or(&[][..], |ext| self.prepared.object().symbol_name(ext.symbol()));
                write!(f, "extern {}: {error}", Name(name))
            }
            LoadError::Link { function, error } => {
                LinkReport { prepared: self.prepared, program: function, error }.fmt(f)
            }
            LoadError::UnknownSection { function } => {
                self.write_program(f, function)?;
                f.write_str("its section is not that of any program type")
            }
            LoadError::NoTarget { function } => {
                self.write_program(f, function)?;
                f.write_str("no target is given: its section must name one, as in SEC(\"")?;
                let section = self.prepared.declared().functions().get(function);
                let section = section.map_or(&[][..], |function| self.prepared.section_name(function));
                let section = section.strip_prefix(b"?").unwrap_or(section);
                write!(f, "{}/NAME\")", Name(section.strip_suffix(b"/").unwrap_or(section)))
            }
            LoadError::NoReplaced { function } => {
                self.write_program(f, function)?;
                f.write_str("its target is a program, which is not given: with `corelo`, --replace PROGRAM=TARGET")
            }
            LoadError::MissingTarget { function } => {
                self.write_program(f, function)?;
                match self.prepared.attach_target(function) {
                    AttachTarget::Missing(wanted) => {
                        write!(f, "the kernel lacks {}{}", Name(wanted.prefix.bytes()), Name(wanted.name))
                    }
                    _ => match self.kind_of(function).map(|kind| kind.target) {
                        Some(Target::Replace { function }) => {
                            write!(f, "the program to be replaced in has no function {} in its BTF", Name(function))
                        }
                        _ => f.write_str("the kernel lacks what it is to be attached to"),
                    },
                }
            }
            LoadError::Program { function, failure } => {
                self.write_program(f, function)?;
                failure.fmt(f)?;
                if failure.errno == Errno::EINVAL && self.is_newer_kind(function) {
                    f.write_str(": a kernel after Linux 7.2 is needed for sections of this name")?;
                }
                let wanted = self.kind_of(function).map_or(CapabilitySet::BPF, |kind| capabilities(kind.prog_type));
                write_privileges(f, failure.errno, wanted)
            }
            error => error.fmt(f),
        }
    }
}

/// What the kernel asks of who loads a program of this type, if not CAP_SYS_ADMIN (`is_net_admin_prog_type`,
/// `is_perfmon_prog_type`).
fn capabilities(prog_type: ProgType) -> CapabilitySet {
    let reads_kernel = matches!(
        prog_type,
        ProgType::KPROBE
            | ProgType::TRACEPOINT
            | ProgType::PERF_EVENT
            | ProgType::RAW_TRACEPOINT
            | ProgType::RAW_TRACEPOINT_WRITABLE
            | ProgType::TRACING
            | ProgType::LSM
            | ProgType::STRUCT_OPS
            | ProgType::EXT
    );
    let is_network = matches!(
        prog_type,
        ProgType::SCHED_CLS
            | ProgType::SCHED_ACT
            | ProgType::XDP
            | ProgType::LWT_IN
            | ProgType::LWT_OUT
            | ProgType::LWT_XMIT
            | ProgType::LWT_SEG6LOCAL
            | ProgType::SK_SKB
            | ProgType::SK_MSG
            | ProgType::FLOW_DISSECTOR
            | ProgType::CGROUP_DEVICE
            | ProgType::CGROUP_SOCK
            | ProgType::CGROUP_SOCK_ADDR
            | ProgType::CGROUP_SOCKOPT
            | ProgType::CGROUP_SYSCTL
            | ProgType::SOCK_OPS
            | ProgType::EXT
            | ProgType::NETFILTER
    );
    let mut wanted = CapabilitySet::BPF;
    wanted.set(CapabilitySet::PERFMON, reads_kernel);
    wanted.set(CapabilitySet::NET_ADMIN, is_network);
    wanted
}

/// `wanted` is what suffices where CAP_SYS_ADMIN is not there.
fn write_privileges(f: &mut fmt::Formatter<'_>, errno: Errno, wanted: CapabilitySet) -> fmt::Result {
    if errno != Errno::EPERM {
        return Ok(());
    }
    let held = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    f.write_str(refusal(held, wanted, lockdown::mode()))
}

/// Who refuses something with EPERM, as far as can be told from the capabilities of this process.
fn refusal(held: CapabilitySet, wanted: CapabilitySet, mode: lockdown::Mode) -> &'static str {
    let may_load = held.contains(CapabilitySet::SYS_ADMIN) || held.contains(wanted);
    let of_kernel = wanted.contains(CapabilitySet::PERFMON);
    let of_network = wanted.contains(CapabilitySet::NET_ADMIN);
    match (may_load, mode) {
        (false, _) if wanted == CapabilitySet::SYS_ADMIN => ": run as root, or with CAP_SYS_ADMIN",
        (false, _) if of_kernel && of_network => ": run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN",
        (false, _) if of_kernel => ": run as root, or with CAP_BPF and CAP_PERFMON",
        (false, _) if of_network => ": run as root, or with CAP_BPF and CAP_NET_ADMIN",
        (false, _) => ": run as root, or with CAP_BPF",
        (true, lockdown::Mode::Confidentiality) => ": the kernel is locked down (confidentiality)",
        (true, _) => ": though the capabilities are there: lockdown, a security module or a user namespace may be why",
    }
}

/// The last line of a verifier log that says what is wrong: statistics and empty lines are left out.
#[must_use]
pub fn verdict_line(log: &[u8]) -> &[u8] {
    let lines = log.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let mut said = lines.filter(|line| {
        !line.is_empty()
            && !line.starts_with(b"processed ")
            && !line.starts_with(b"verification time ")
            && !line.starts_with(b"stack depth ")
            && !line.starts_with(b"insns_idx ")
    });
    said.next_back().unwrap_or_default()
}

/// The kernel's BTF is needed and there is none: which relocation or target needs it, on which kernel, and the ways out.
#[derive(Clone, Copy, Debug)]
pub struct NoKernelBtf<'r, 'a, E> {
    /// The object.
    pub object: &'r Object<'a>,
    /// What it declares.
    pub plan: &'r Plan<'a>,
    /// Why there is no BTF.
    pub reason: E,
}

impl<E: fmt::Display> fmt::Display for NoKernelBtf<'_, '_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, plan, reason } = self;
        match plan.first_question() {
            Some(Question::Root(root)) => match plan.local() {
                Some(local) => write_first_record(f, object, local, root)?,
                None => f.write_str("a CO-RE relocation")?,
            },
            Some(Question::Attach(number)) => {
                let name = plan
                    .declared()
                    .functions()
                    .get(number)
                    .map_or(&[][..], |function| object.symbol_name(function.symbol()));
                write!(f, "the attach target of program {}", Name(name))?;
            }
            Some(Question::Extern(number)) => {
                let name =
                    plan.declared().externs().get(number).map_or(&[][..], |ext| object.symbol_name(ext.symbol()));
                write!(f, "extern {}", Name(name))?;
            }
            Some(Question::StructOps(number)) => {
                let name = plan.declared().maps().get(number).map_or(&[][..], |map| map.name(object, plan.local()));
                write!(f, "the struct_ops type of map {}", Name(name))?;
            }
            None => f.write_str("the object")?,
        }
        let uname = rustix::system::uname();
        write!(
            f,
            " needs the BTF of kernel {}, but {reason}: give it with --btf FILE, use a kernel built with \
             CONFIG_DEBUG_INFO_BTF, or make a small one of the same kernel with `corelo min-btf`",
            Name(uname.release().to_bytes())
        )
    }
}

fn write_first_record(f: &mut fmt::Formatter<'_>, object: &Object<'_>, local: &Types<'_>, root: TypeId) -> fmt::Result {
    for section in object.ext().core_relos.sections() {
        let records = (0..section.count).filter_map(|number| section.core_relo(number));
        let Some(relo) = records.into_iter().find(|relo| relo.type_id == root) else { continue };
        let name = local.string(section.name_off).unwrap_or(b"?");
        let (kind, spec, slot) = (relo.kind, LocalSpec::new(local, &relo), relo.insn_off / 8);
        return write!(f, "{kind} relocation of {spec} (section {}, instruction {slot})", Name(name));
    }
    write!(f, "a CO-RE relocation of {}", TypeName::new(local, root))
}

/// Says of a verifier log that complains about the poison helper which relocation put it there.
#[derive(Clone, Copy, Debug)]
pub struct PoisonReport<'r, 'a> {
    prepared: &'r Prepared<'a>,
    relocation: Relocation<'r>,
    insn_idx: u32,
}

impl<'r, 'a> PoisonReport<'r, 'a> {
    /// Looks through the log of a program whose functions lie at `placements`; `None` where the log is about something
    /// else.
    #[must_use]
    pub fn find(log: &[u8], prepared: &'r Prepared<'a>, placements: &[Placement]) -> Option<Self> {
        let insn_idx = poisoned_insn(log)?;
        let place = placements.iter().rfind(|place| place.insn_start <= insn_idx)?;
        let in_function = insn_idx - place.insn_start;
        let relocation = prepared.relocations().find(|relocation| {
            let slots = u32::try_from(relocation.insns().len()).unwrap_or(1);
            relocation.function == usize::try_from(place.function).ok()
                && (relocation.insn_idx..relocation.insn_idx.saturating_add(slots)).contains(&in_function)
        })?;
        Some(Self { prepared, relocation, insn_idx })
    }

    /// The relocation that was poisoned.
    #[must_use]
    pub fn relocation(&self) -> &Relocation<'r> {
        &self.relocation
    }
}

impl fmt::Display for PoisonReport<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { prepared, relocation, insn_idx } = self;
        let place = RelocationPlace { prepared, relocation };
        write!(
            f,
            "{place}: the kernel lacks it, so the instruction was poisoned (call of helper {POISON_HELPER}), and the \
             verifier reaches it as instruction {insn_idx} of the linked program"
        )?;
        CandidatesReport { prepared, relo: &relocation.relo }.fmt(f)?;
        f.write_str("; guard the access with bpf_core_field_exists() or its like")
    }
}

/// The slot that the verifier was at when it met the poison helper: `N: (85) call unknown#195896080`.
fn poisoned_insn(log: &[u8]) -> Option<u32> {
    let mut last = None;
    for line in log.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii_start();
        let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = line.split_at(digits);
        let number = core::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        if rest.starts_with(b": (") {
            last = number;
        }
        if contains(line, b"#195896080") {
            return last;
        }
    }
    None
}

fn contains(line: &[u8], wanted: &[u8]) -> bool {
    line.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_poisoned_instruction_is_read_from_the_log() {
        let log = b"0: R1=ctx() R10=fp0\n0: (b7) r0 = 0\n; x = y;\n7: (85) call unknown#195896080\ninvalid func \
                    unknown#195896080\nprocessed 2 insns\n";
        assert_eq!(poisoned_insn(log), Some(7));
        assert_eq!(poisoned_insn(b"3: (85) call unknown#7\ninvalid func unknown#7\n"), None);
        assert_eq!(poisoned_insn(b"invalid func unknown#195896080\n"), None);
        assert_eq!(poisoned_insn(b""), None);
    }

    #[test]
    fn the_text_that_is_looked_for_is_the_poison_helper() {
        assert_eq!(POISON_HELPER.to_string(), "195896080");
    }

    #[test]
    fn the_verdict_is_the_last_line_that_says_something() {
        let log =
            b"0: (b7) r0 = 0\nR1 !read_ok\nverification time 40 usec\nstack depth 0\nprocessed 1 insns (limit)\n\n";
        assert_eq!(verdict_line(log), b"R1 !read_ok");
        assert_eq!(verdict_line(b""), b"");
    }

    #[test]
    fn names_stay_on_one_line() {
        assert_eq!(Name(b"a\nb\xff").to_string(), "a\\nb\u{fffd}");
    }

    #[test]
    fn case_34_eperm_is_told_by_the_capabilities() {
        let (none, admin) = (CapabilitySet::empty(), CapabilitySet::SYS_ADMIN);
        let both = CapabilitySet::BPF | CapabilitySet::PERFMON;
        for (held, mode, said) in [
            (none, lockdown::Mode::Confidentiality, "run as root"),
            (CapabilitySet::BPF, lockdown::Mode::None, "run as root"),
            (both, lockdown::Mode::Confidentiality, "locked down"),
            (admin, lockdown::Mode::Confidentiality, "locked down"),
            (admin, lockdown::Mode::Integrity, "lockdown, a security module"),
            (both, lockdown::Mode::None, "lockdown, a security module"),
        ] {
            let words = refusal(held, CapabilitySet::BPF | CapabilitySet::PERFMON, mode);
            assert!(words.contains(said), "{held:?}, {mode:?}: {words}");
        }
    }
}

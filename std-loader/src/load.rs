//! From a prepared object to maps and programs in the kernel.
//!
//! ```text
//! Prepared --create--> Collection      maps created, filled, frozen; the object's BTF loaded
//! Collection --load_programs-->        one program at a time: linked in scratch, loaded, its scratch given back
//! Collection --attach--> Link          as the program's section says
//! ```
//!
//! Nothing here uses the heap: tables of descriptors come from the arena that the object was prepared in. Whatever
//! fails, a [`Collection`] closes what it has when it goes.

mod contents;
mod modules;
mod tables;
mod variables;

use core::fmt;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use corelo_core::arena::{Arena, ArenaFull, Part};
use corelo_core::btf::Types;
use corelo_core::btf::sanitize::{KernelBtfFeatures, SanitizeError};
use corelo_core::bytes::Endian;
use corelo_core::insn::{POISON_KFUNC_BASE, pseudo};
use corelo_core::link::{LinkCause, LinkError, LinkedProgram, ReferenceKind};
use corelo_core::object::section_name::{ProgType, ProgramKind, Target, parse, parse_older, split_optional};
use corelo_core::object::{ExternKind, Function, Map, MapOrigin, Object, Pinning};
use corelo_core::prepare::{AttachTarget, PrepareError, Prepared};
use corelo_core::struct_ops::StructOpsError;
use zerocopy::IntoBytes;

use crate::attach;
use crate::externs::{ExternError, Externs};
use crate::features::Features;
use crate::links;
use crate::maps::{self, MapSpec, Memlock, map_type};
use crate::pin::PinError;
use crate::programs::{LoadFailure, LogBuffer, ProgramSpec, load_btf, load_program};
use crate::sys::fd_table::{FdTable, MapRef};
use crate::sys::mmap::ArrayMap;
use crate::sys::{Errno, bpf};
use crate::version::KernelVersion;
use modules::Modules;

pub use contents::VariableError;
pub use variables::VariableRef;

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
    /// Names of the kernel modules that were searched: module 1 is the first.
    pub modules: &'o [&'o str],
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
            pin_root: "/sys/fs/bpf",
            memlock: Memlock::RaiseIfRefused,
            btf_features: KernelBtfFeatures::ALL,
            default_max_entries: None,
            variables: &[],
            inner_maps: &[],
            modules: &[],
            replaced: &[],
        }
    }
}

/// Why an object cannot be loaded. Maps, functions and externs are given by their numbers in the prepared object, which
/// [`report`](crate::report) turns into names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The object has the other byte order than this machine.
    ByteOrder,
    /// The object could not be prepared.
    Prepare(PrepareError),
    /// The object's BTF could not be made ready for the kernel.
    Btf(SanitizeError),
    /// The kernel refuses a map.
    MapCreate {
        /// The map.
        map: usize,
        /// Its answer.
        errno: Errno,
    },
    /// A map could not be pinned, or the one that is pinned is another.
    Pin {
        /// The map.
        map: usize,
        /// Why.
        error: PinError,
    },
    /// The first contents of a map could not be written, or the map not be frozen.
    MapFill {
        /// The map.
        map: usize,
        /// The kernel's answer.
        errno: Errno,
    },
    /// A slot of a map cannot be filled with what its definition says.
    Slot {
        /// The map.
        map: usize,
        /// The slot.
        index: u32,
        /// The kernel's answer; ENOENT where what goes there was not created.
        errno: Errno,
    },
    /// A struct_ops table does not fit the kernel.
    StructOps {
        /// The map.
        map: usize,
        /// Why.
        error: StructOpsError,
    },
    /// A variable cannot be set.
    Variable {
        /// Its place in [`LoadOptions::variables`].
        index: usize,
        /// Why.
        error: VariableError,
    },
    /// The BTF of a module that a program is loaded for cannot be had.
    ModuleBtf {
        /// The function.
        function: usize,
        /// The kernel's answer.
        errno: Errno,
    },
    /// An extern has no value.
    Extern {
        /// The extern.
        number: usize,
        /// Why.
        error: ExternError,
    },
    /// A program could not be linked.
    Link {
        /// The function.
        function: usize,
        /// Why.
        error: LinkError,
    },
    /// A program's section says of no program type what it is.
    UnknownSection {
        /// The function.
        function: usize,
    },
    /// The kernel lacks what a program is to be attached to.
    MissingTarget {
        /// The function.
        function: usize,
    },
    /// The kernel refuses a program.
    Program {
        /// The function.
        function: usize,
        /// Its answer; the verifier's log is in the caller's buffer.
        failure: LoadFailure,
    },
    /// The arena is too small.
    Arena(ArenaFull),
}

impl From<ArenaFull> for LoadError {
    fn from(full: ArenaFull) -> Self {
        Self::Arena(full)
    }
}

impl From<PrepareError> for LoadError {
    fn from(error: PrepareError) -> Self {
        match error {
            PrepareError::Arena(full) => Self::Arena(full),
            error => Self::Prepare(error),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByteOrder => f.write_str("the object has the other byte order than this machine"),
            Self::Prepare(error) => error.fmt(f),
            Self::Btf(error) => write!(f, "the object's BTF: {error}"),
            Self::MapCreate { map, errno } => write!(f, "map #{map}: the kernel refuses to create it: {errno}"),
            Self::Pin { map, error } => write!(f, "map #{map}: {error}"),
            Self::MapFill { map, errno } => write!(f, "map #{map}: its contents cannot be written: {errno}"),
            Self::Slot { map, index, errno } => write!(f, "map #{map}: slot {index} cannot be filled: {errno}"),
            Self::StructOps { map, error } => write!(f, "struct_ops table #{map}: {error}"),
            Self::Variable { index, error } => write!(f, "variable #{index}: {error}"),
            Self::ModuleBtf { function, errno } => {
                write!(f, "function #{function}: the BTF of its target's module cannot be had: {errno}")
            }
            Self::Extern { number, error } => write!(f, "extern #{number}: {error}"),
            Self::Link { error, .. } => error.fmt(f),
            Self::UnknownSection { function } => {
                write!(f, "function #{function}: its section is not that of any program type")
            }
            Self::MissingTarget { function } => {
                write!(f, "function #{function}: the kernel lacks what it is to be attached to")
            }
            Self::Program { function, failure } => write!(f, "function #{function}: {failure}"),
            Self::Arena(full) => full.fmt(f),
        }
    }
}

impl core::error::Error for LoadError {}

/// Maps and programs of one object in the kernel. All is closed when it goes.
#[derive(Debug)]
pub struct Collection<'p, 'a> {
    prepared: &'p Prepared<'a>,
    /// By the map's number.
    maps: FdTable<'a>,
    /// By the function's number.
    programs: FdTable<'a>,
    btf: Option<OwnedFd>,
    externs: Externs<'a>,
    modules: Modules<'a>,
    /// The object's arena.
    arena: Option<ArrayMap>,
    /// How many argument specifications of static probes are in the object's map for them.
    usdt_specs: Mutex<u32>,
    patched: u32,
    poisoned: u32,
}

/// BPF_F_SLEEPABLE
const SLEEPABLE: u32 = 1 << 4;
/// BPF_F_XDP_HAS_FRAGS
const XDP_HAS_FRAGS: u32 = 1 << 5;

/// The bytes of arena that loading takes beyond what `prepared` keeps, found by doing all but the system calls: after
/// it, [`Arena::high_water`] is the least buffer that will do.
///
/// # Errors
/// [`LoadError::Arena`], [`LoadError::Link`], [`LoadError::Btf`]
pub fn rehearse<'a>(
    prepared: &Prepared<'a>,
    options: &LoadOptions<'_>,
    arena: &mut Arena<'a>,
) -> Result<(), LoadError> {
    let tables = Collection::empty(prepared, arena)?;
    contents::check_variables(prepared, options)?;
    prepared.kernel_btf(options.btf_features, &mut arena.scratch()).map_err(btf_error)?;
    Externs::rehearse(prepared, arena)?;
    let mut scratch = arena.scratch();
    let used = used_maps(prepared, options, &mut scratch)?;
    for (number, map) in prepared.maps().iter().enumerate() {
        if !is_made(prepared, number, map, used, options) {
            continue;
        }
        match map.origin() {
            MapOrigin::Data(_) => {
                contents::contents(prepared, number, map, options, &mut scratch.scratch())?;
            }
            MapOrigin::Kconfig => {
                scratch.scratch().slice::<u8>(map.value_size as usize, Part::MapData)?;
            }
            _ => {}
        }
    }
    for (number, function) in prepared.declared().programs() {
        if is_wanted(prepared, number, function, options) {
            let mut scratch = arena.scratch();
            if program_kind(prepared, function).is_some_and(|kind| kind.prog_type == ProgType::EXT) {
                replaced_function(prepared, function, options, &mut scratch.scratch())?;
            }
            link(prepared, number, &mut scratch)?;
            tables.modules.fd_array(&mut scratch)?;
        }
    }
    Ok(())
}

impl<'p, 'a> Collection<'p, 'a> {
    fn empty(prepared: &'p Prepared<'a>, arena: &mut Arena<'a>) -> Result<Self, LoadError> {
        let maps = arena.slice::<i32>(prepared.maps().len(), Part::Descriptors)?;
        let programs = arena.slice::<i32>(prepared.declared().functions().len(), Part::Descriptors)?;
        Ok(Self {
            prepared,
            maps: FdTable::new(maps),
            programs: FdTable::new(programs),
            btf: None,
            externs: Externs::default(),
            modules: Modules::new(prepared, arena)?,
            arena: None,
            usdt_specs: Mutex::new(0),
            patched: 0,
            poisoned: 0,
        })
    }

    /// Loads the object's BTF, creates its maps, and fills those of global data.
    ///
    /// # Errors
    /// [`LoadError`]; what was created is closed.
    pub fn create(
        prepared: &'p Prepared<'a>,
        options: &LoadOptions<'_>,
        arena: &mut Arena<'a>,
    ) -> Result<Self, LoadError> {
        if prepared.object().endian() != Endian::host() {
            return Err(LoadError::ByteOrder);
        }
        let mut collection = Self::empty(prepared, arena)?;
        contents::check_variables(prepared, options)?;
        collection.btf = collection.load_btf(options, arena)?;
        collection.externs =
            Externs::resolve(prepared, &mut |module| collection.modules.open(module, options.modules), arena)
                .map_err(extern_error)?;
        let mut scratch = arena.scratch();
        let used = used_maps(prepared, options, &mut scratch)?;
        for (number, map) in prepared.maps().iter().enumerate() {
            if is_made(prepared, number, map, used, options) {
                collection.create_map(number, map, options)?;
                collection.fill(number, map, options, &mut scratch.scratch())?;
            }
        }
        collection.fill_map_slots()?;
        Ok(collection)
    }

    /// Gives the kernel the object's BTF. Where the kernel refuses it, it is asked what it knows, and offered that.
    /// Without any BTF the object is loaded all the same, and has no types and lines in the kernel.
    fn load_btf(&self, options: &LoadOptions<'_>, arena: &mut Arena<'a>) -> Result<Option<OwnedFd>, LoadError> {
        let try_with = |features: KernelBtfFeatures, arena: &mut Arena<'a>| {
            let mut scratch = arena.scratch();
            let Some(blob) = self.prepared.kernel_btf(features, &mut scratch).map_err(btf_error)? else {
                return Ok(None);
            };
            let mut no_log: &mut [u8] = &mut [];
            Ok(load_btf(blob, &mut no_log, options.memlock).ok())
        };
        let first = try_with(options.btf_features, arena)?;
        if first.is_some() || self.prepared.local().is_none() {
            return Ok(first);
        }
        let Some(known) = Features::new(options.memlock).btf_features() else { return Ok(None) };
        if known.has(options.btf_features) { Ok(None) } else { try_with(known, arena) }
    }

    fn create_map(&mut self, number: usize, map: &Map, options: &LoadOptions<'_>) -> Result<(), LoadError> {
        let prepared = self.prepared;
        let inner = match map.inner().and_then(|inner| Some((inner, self.prepared.maps().get(inner)?))) {
            Some((inner, model)) => {
                let spec = MapSpec { name: b"", ..self.spec(model, options, &[], None) };
                let created = maps::create(&spec, options.memlock);
                Some(OwnedFd::from(created.map_err(|errno| LoadError::MapCreate { map: inner, errno })?))
            }
            None => None,
        };
        let mut name = [0; 16];
        let name = map_name_into(map, prepared.object(), prepared.local(), options.name, &mut name);
        let given = || {
            let mut models = options.inner_maps.iter().filter(|(outer, _)| *outer == prepared.map_name(map));
            models.next().map(|(_, model)| *model)
        };
        let model = inner.as_ref().map(std::os::fd::AsFd::as_fd).or_else(given);
        let mut spec = self.spec(map, options, name, model);
        if map.origin() == MapOrigin::StructOps {
            let ops =
                tables::describe(prepared, number).map_err(|error| LoadError::StructOps { map: number, error })?;
            spec.value_size = ops.value_size;
            spec.btf_vmlinux_value_type_id = ops.value_type_id.0;
        }
        let created = if map.pinning() == Pinning::ByName {
            let mut path = heapless::String::<256>::new();
            let name = core::str::from_utf8(self.prepared.map_name(map)).unwrap_or_default();
            let too_long = LoadError::Pin { map: number, error: PinError::Pin(Errno::ENAMETOOLONG) };
            fmt::write(&mut path, format_args!("{}/{name}", options.pin_root)).map_err(|_| too_long)?;
            let pinned = crate::pin::reuse_or_create(std::path::Path::new(path.as_str()), &spec, options.memlock);
            pinned.map_err(|error| LoadError::Pin { map: number, error })?.0
        } else {
            let mut created = maps::create(&spec, options.memlock);
            if created.is_err() && map.is_internal() && map.flags & maps::BPF_F_MMAPABLE != 0 {
                // Kernels before 5.5 cannot map arrays; the variables are there all the same.
                spec.map_flags &= !maps::BPF_F_MMAPABLE;
                created = created.or_else(|errno| maps::create(&spec, options.memlock).map_err(|_| errno));
            }
            created.map_err(|errno| LoadError::MapCreate { map: number, errno })?
        };
        self.maps.set(number, created.into());
        Ok(())
    }

    fn spec<'s>(
        &'s self,
        map: &Map,
        options: &LoadOptions<'_>,
        name: &'s [u8],
        inner_map_fd: Option<BorrowedFd<'s>>,
    ) -> MapSpec<'s> {
        use std::os::fd::AsFd;
        let has_types = takes_btf_types(map.map_type);
        let type_of = |id: Option<corelo_core::btf::TypeId>| id.filter(|_| has_types).map_or(0, |id| id.0);
        MapSpec {
            name,
            map_type: map.map_type,
            key_size: map.key_size,
            value_size: map.value_size,
            max_entries: match (map.max_entries, options.default_max_entries) {
                (0, Some(entries)) => entries,
                (entries, _) => entries,
            },
            map_flags: map.flags,
            map_extra: map.extra,
            numa_node: map.numa_node,
            btf_fd: self.btf.as_ref().filter(|_| has_types).map(AsFd::as_fd),
            btf_key_type_id: type_of(map.key_type()),
            btf_value_type_id: type_of(map.value_type()),
            inner_map_fd,
            ..MapSpec::default()
        }
    }

    /// Loads the programs that the options want, one at a time.
    ///
    /// # Errors
    /// [`LoadError`]; what was loaded before stays in the collection until that goes.
    pub fn load_programs(
        &mut self,
        options: &LoadOptions<'_>,
        arena: &mut Arena<'_>,
        log: &mut dyn LogBuffer,
    ) -> Result<(), LoadError> {
        for (number, function) in self.prepared.declared().programs() {
            if is_wanted(self.prepared, number, function, options) {
                self.load_program(number, options, &mut arena.scratch(), log)?;
            }
        }
        self.fill_program_slots()
    }

    /// Loads one program, given by its function's number.
    ///
    /// # Errors
    /// [`LoadError`]
    pub fn load_program(
        &mut self,
        number: usize,
        options: &LoadOptions<'_>,
        scratch: &mut Arena<'_>,
        log: &mut dyn LogBuffer,
    ) -> Result<(), LoadError> {
        use std::os::fd::AsFd;
        let prepared = self.prepared;
        let unknown = LoadError::UnknownSection { function: number };
        let function = prepared.declared().functions().get(number).ok_or(unknown)?;
        let kind = program_kind(prepared, function).ok_or(unknown)?;
        let mut attach_type = kind.expected_attach_type.0;
        let mut attach_fd = None;
        let attach_btf_id = match prepared.attach_target(number) {
            AttachTarget::None if kind.prog_type == ProgType::EXT => {
                let found = replaced_function(prepared, function, options, &mut scratch.scratch())?;
                let (program, id) = found.ok_or(LoadError::MissingTarget { function: number })?;
                attach_fd = Some(program);
                id
            }
            AttachTarget::None if kind.prog_type == ProgType::STRUCT_OPS => {
                let member = prepared.struct_ops_member(number);
                let map = || prepared.maps().iter().position(|map| map.origin() == MapOrigin::StructOps);
                let member = member.map_err(|error| LoadError::StructOps { map: map().unwrap_or_default(), error })?;
                let (id, member) = member.ok_or(LoadError::MissingTarget { function: number })?;
                attach_type = member;
                id.0
            }
            AttachTarget::None => 0,
            AttachTarget::Found(id) => id.0,
            AttachTarget::InModule { id, module } => {
                let opened = self.modules.open(module, options.modules);
                opened.map_err(|errno| LoadError::ModuleBtf { function: number, errno })?;
                attach_fd = self.modules.fd(module);
                id.0
            }
            AttachTarget::Missing(_) => return Err(LoadError::MissingTarget { function: number }),
        };
        // As one link to all places of a probe wants it; kernels without such links (before 6.6) do not look at it.
        let is_usdt = is_usdt(prepared, function);
        if is_usdt && cfg!(target_pointer_width = "64") {
            attach_type = links::attach_type::TRACE_UPROBE_MULTI;
        }
        let mut linked = link(prepared, number, scratch)?;
        let fd_array = self.modules.fd_array(scratch)?;
        self.fill_in(&mut linked);
        let has_btf = self.btf.is_some() && !linked.func_info.0.is_empty();
        let mut license = [0u8; 128];
        let license = license_of(prepared.object().license(), &mut license);
        let spec = ProgramSpec {
            name: prepared.function_name(function),
            expected_attach_type: attach_type,
            attach_type_optional: kind.is_attach_type_optional || is_usdt,
            license,
            kern_version: Some(prepared.object().version()).filter(|&version| version != 0),
            flags: if kind.is_sleepable { SLEEPABLE } else { 0 } | if kind.has_xdp_frags { XDP_HAS_FRAGS } else { 0 },
            btf_fd: self.btf.as_ref().filter(|_| has_btf).map(AsFd::as_fd),
            func_info: if has_btf { linked.func_info.0 } else { &[] },
            func_info_rec_size: if has_btf { linked.func_info.1 } else { 0 },
            line_info: if has_btf { linked.line_info.0 } else { &[] },
            line_info_rec_size: if has_btf { linked.line_info.1 } else { 0 },
            attach_btf_id,
            attach_fd,
            fd_array,
            memlock: options.memlock,
            ..ProgramSpec::new(kind.prog_type.0)
        };
        let loaded = load_program(&spec, linked.insns.as_bytes(), log);
        let fd = loaded.map_err(|failure| LoadError::Program { function: number, failure })?;
        self.programs.set(number, fd);
        self.patched += linked.patched;
        self.poisoned += linked.poisoned;
        Ok(())
    }

    /// Puts the descriptors of maps and what externs are into a linked program.
    fn fill_in(&self, linked: &mut LinkedProgram<'_>) {
        let endian = Endian::host();
        for reference in linked.references {
            let Some(pair) = linked.insns.get_mut(reference.insn_idx as usize..) else { continue };
            let Some((first, rest)) = pair.split_first_mut() else { continue };
            match reference.kind() {
                ReferenceKind::Map | ReferenceKind::MapValue => {
                    let fd = self.maps.get(reference.number()).map_or(-1, |fd| fd.as_raw_fd());
                    first.set_imm(fd, endian);
                }
                ReferenceKind::ExternLoad => {
                    let Some(value) = self.externs.get(reference.number()) else { continue };
                    let externs = self.prepared.declared().externs();
                    let is_function =
                        externs.get(reference.number()).is_some_and(|ext| ext.kind() == ExternKind::Kfunc);
                    let address = self.modules.address(value, is_function, KernelVersion::running());
                    if address.is_type {
                        first.set_src_reg(pseudo::BTF_ID, endian);
                    }
                    let (low, high) = (address.low, address.high);
                    first.set_imm(low.cast_signed(), endian);
                    if let Some(second) = rest.first_mut() {
                        second.set_imm(high.cast_signed(), endian);
                    }
                }
                ReferenceKind::ExternCall => {
                    let value = self.externs.get(reference.number());
                    match value.and_then(|value| Some((value.type_id()?, value.module()))) {
                        Some((id, module)) => {
                            first.set_imm(id.0.cast_signed(), endian);
                            first.set_off(self.modules.index(module), endian);
                        }
                        // A weak function that the kernel lacks: the verifier accepts the call in dead code only.
                        None => {
                            first.set_src_reg(0, endian);
                            first.set_imm(POISON_KFUNC_BASE.saturating_add(reference.number() as i32), endian);
                        }
                    }
                }
            }
        }
    }

    /// Attaches a loaded program as its section says; `None` where the section names no target that this can be done
    /// with, or the program was not loaded.
    ///
    /// # Errors
    /// [`LinkError`](links::LinkError)
    pub fn attach(&self, number: usize) -> Result<Option<links::Link>, links::LinkError> {
        let function = self.prepared.declared().functions().get(number);
        let kind = function.and_then(|function| program_kind(self.prepared, function));
        let (Some(kind), Some(program)) = (kind, self.programs.get(number)) else { return Ok(None) };
        attach::attach(program, &kind, |usdt| links::usdt::attach(program, usdt, &self.usdt_support()))
    }

    /// Attaches a loaded USDT program, by its function's number, to a static probe: one whose section names none, or to
    /// one process only. The object's maps of bpf/usdt.bpf.h tell the program how to read the probe's arguments.
    ///
    /// # Errors
    /// [`LinkError`](links::LinkError): EBADF where the program was not loaded, EINVAL where it is none of a `usdt`
    /// section.
    pub fn attach_usdt(&self, number: usize, usdt: &links::usdt::Usdt<'_>) -> Result<links::Link, links::LinkError> {
        let failed = |errno| links::LinkError::Kernel { call: "BPF_LINK_CREATE", errno };
        let program = self.programs.get(number).ok_or(failed(Errno::EBADF))?;
        let function = self.prepared.declared().functions().get(number);
        if !function.is_some_and(|function| is_usdt(self.prepared, function)) {
            return Err(failed(Errno::EINVAL));
        }
        links::usdt::attach(program, usdt, &self.usdt_support())
    }

    fn usdt_support(&self) -> links::usdt::Support<'_> {
        let find = |name: &str| {
            let mut maps = self.prepared.maps().iter().enumerate();
            let (number, map) = maps.find(|(_, map)| self.prepared.map_name(map) == name.as_bytes())?;
            Some((self.maps.get(number)?, map))
        };
        let specs = find(links::usdt::SPECS);
        let spec_type = specs.and_then(|(_, map)| self.prepared.local().zip(map.value_type()));
        links::usdt::Support {
            specs: specs.map(|(fd, _)| fd),
            spec_type,
            used: &self.usdt_specs,
            addresses: find(links::usdt::ADDRESSES).map(|(fd, _)| fd),
        }
    }

    /// Where a program runs, as its section says.
    #[must_use]
    pub fn program_kind(&self, number: usize) -> Option<ProgramKind<'a>> {
        program_kind(self.prepared, self.prepared.declared().functions().get(number)?)
    }

    /// The descriptor of a loaded program, by its function's number.
    #[must_use]
    pub fn program(&self, number: usize) -> Option<BorrowedFd<'_>> {
        self.programs.get(number)
    }

    /// The descriptor of a loaded program, by its name.
    #[must_use]
    pub fn program_by_name(&self, name: &str) -> Option<BorrowedFd<'_>> {
        let functions = self.prepared.declared().programs();
        let mut named = functions.filter(|(_, function)| self.prepared.function_name(function) == name.as_bytes());
        named.find_map(|(number, _)| self.programs.get(number))
    }

    /// The descriptor of a created map, by its number.
    #[must_use]
    pub fn map_fd(&self, number: usize) -> Option<BorrowedFd<'_>> {
        self.maps.get(number)
    }

    /// A map by its name in the source, for its contents: `events`, `.bss`.
    ///
    /// # Errors
    /// ENOENT where there is none of the name or it was not created; the kernel's error where it cannot be asked.
    pub fn map(&self, name: &str) -> Result<MapRef<'_>, Errno> {
        let maps = self.prepared.maps().iter();
        let number = maps
            .enumerate()
            .find(|(number, map)| self.prepared.map_name(map) == name.as_bytes() && self.maps.get(*number).is_some());
        let fd = number.and_then(|(number, _)| self.maps.get(number)).ok_or(Errno::ENOENT)?;
        MapRef::new(fd)
    }

    /// What it was made from.
    #[must_use]
    pub fn prepared(&self) -> &'p Prepared<'a> {
        self.prepared
    }

    /// The object's BTF in the kernel.
    #[must_use]
    pub fn btf(&self) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.btf.as_ref().map(AsFd::as_fd)
    }

    /// CO-RE relocations in the programs loaded: those that got a value, and those that were poisoned.
    #[must_use]
    pub fn relocations(&self) -> (u32, u32) {
        (self.patched, self.poisoned)
    }

    /// How many maps were created, and programs loaded.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let count = |table: &FdTable<'_>| (0..table.len()).filter(|&place| table.get(place).is_some()).count();
        (count(&self.maps), count(&self.programs))
    }
}

fn btf_error(error: SanitizeError) -> LoadError {
    match error {
        SanitizeError::Arena(full) => LoadError::Arena(full),
        error => LoadError::Btf(error),
    }
}

fn extern_error((number, error): (usize, ExternError)) -> LoadError {
    match error {
        ExternError::Arena(full) => LoadError::Arena(full),
        error => LoadError::Extern { number, error },
    }
}

fn link<'s>(prepared: &Prepared<'_>, function: usize, scratch: &mut Arena<'s>) -> Result<LinkedProgram<'s>, LoadError> {
    prepared.program(function, scratch).map_err(|error| link_error(function, error))
}

fn link_error(function: usize, error: LinkError) -> LoadError {
    match error.cause {
        LinkCause::Arena(full) => LoadError::Arena(full),
        _ => LoadError::Link { function, error },
    }
}

/// What the section of a function says.
fn program_kind<'a>(prepared: &Prepared<'a>, function: &Function) -> Option<ProgramKind<'a>> {
    let (section, _) = split_optional(prepared.section_name(function));
    parse(section).or_else(|| parse_older(section))
}

/// Whether its section is one of USDT programs.
fn is_usdt(prepared: &Prepared<'_>, function: &Function) -> bool {
    links::usdt::is_section(split_optional(prepared.section_name(function)).0)
}

fn is_wanted(prepared: &Prepared<'_>, number: usize, function: &Function, options: &LoadOptions<'_>) -> bool {
    let (_, is_optional) = split_optional(prepared.section_name(function));
    let table_is_made = |map: usize| prepared.maps().get(map).is_some_and(|map| is_table_made(prepared, map, options));
    // A program in a struct_ops table goes with the table, whatever its own section says.
    let by_default = tables::is_in_table(prepared, number, function, table_is_made).unwrap_or(!is_optional);
    (options.wants)(prepared.function_name(function), by_default)
}

/// Whether a struct_ops table is created.
fn is_table_made(prepared: &Prepared<'_>, map: &Map, options: &LoadOptions<'_>) -> bool {
    let (_, is_optional) = split_optional(prepared.object().section_name(map.section()));
    !is_optional || (options.wants)(prepared.map_name(map), false)
}

/// Whether a map is created: global data only where a wanted program uses it (`used`).
fn is_made(prepared: &Prepared<'_>, number: usize, map: &Map, used: &[u8], options: &LoadOptions<'_>) -> bool {
    match map.origin() {
        MapOrigin::Inner => false,
        MapOrigin::StructOps => is_table_made(prepared, map, options),
        _ => !map.is_internal() || used.get(number).is_some_and(|&used| used != 0),
    }
}

/// The program that a `freplace` program is for, and the function of it that its section names: the id in that
/// program's BTF, which lies in `scratch` meanwhile.
fn replaced_function<'o>(
    prepared: &Prepared<'_>,
    function: &Function,
    options: &LoadOptions<'o>,
    scratch: &mut Arena<'_>,
) -> Result<Option<(BorrowedFd<'o>, u32)>, ArenaFull> {
    use std::os::fd::AsFd;
    let Some(Target::Replace { function: wanted }) = program_kind(prepared, function).map(|kind| kind.target) else {
        return Ok(None);
    };
    let name = prepared.function_name(function);
    let Some((_, program)) = options.replaced.iter().find(|(of, _)| *of == name) else { return Ok(None) };
    let open = || {
        let id = bpf::prog_info(*program).ok()?.btf_id;
        let btf = bpf::fd_by_id(bpf::ObjectKind::Btf, id).ok()?;
        let size = bpf::btf_info(btf.as_fd(), &mut [], &mut []).ok()?.btf_size;
        Some((btf, size as usize))
    };
    let Some((btf, size)) = open() else { return Ok(None) };
    let bytes = scratch.slice::<u8>(size, Part::Btf)?;
    let mut find = || {
        bpf::btf_info(btf.as_fd(), bytes, &mut []).ok()?;
        function_id(bytes, wanted)
    };
    Ok(find().map(|id| (*program, id)))
}

/// The id of the function of this name in a BTF blob.
fn function_id(bytes: &[u8], wanted: &[u8]) -> Option<u32> {
    let blob = corelo_core::btf::Btf::parse(bytes).ok()?;
    let mut functions = blob.iter().map_while(Result::ok).filter(|ty| ty.kind() == corelo_core::btf::Kind::Func);
    let named = |offset: u32| blob.strings().get(offset as usize..)?.split(|&byte| byte == 0).next();
    let found = functions.find(|ty| named(ty.name_off()) == Some(wanted))?;
    Some(found.id().0)
}

/// The name that the kernel is given for a map: of the plain sections of global data the object's name comes first, as
/// in `monitor.rodata` (libbpf: `internal_map_name`). Of other maps it is the whole name, which
/// [`maps::kernel_name`](crate::maps::kernel_name) cuts.
fn map_name_into<'n>(
    map: &Map,
    object: &Object<'n>,
    local: Option<&Types<'n>>,
    object_name: &[u8],
    buffer: &'n mut [u8; 16],
) -> &'n [u8] {
    let name = map.name(object, local);
    if !map.is_internal() {
        return name;
    }
    // A custom section's name stands for itself.
    let prefix = if name.iter().filter(|&&byte| byte == b'.').count() == 1 {
        let room = (buffer.len() - 1).saturating_sub(name.len().max(7));
        object_name.get(..room).unwrap_or(object_name)
    } else {
        &[]
    };
    let mut len = 0;
    for (place, &byte) in buffer.iter_mut().take(15).zip(prefix.iter().chain(name)) {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
        *place = if is_plain { byte } else { b'_' };
        len += 1;
    }
    buffer.get(..len).unwrap_or_default()
}

/// The name of a map as libbpf's users know it: the variable's, or for global data the object's and the section's,
/// 15 bytes at most.
#[must_use]
pub fn map_name(
    map: &Map,
    object: &Object<'_>,
    local: Option<&Types<'_>>,
    object_name: &[u8],
) -> heapless::Vec<u8, 64> {
    let mut buffer = [0; 16];
    let name = map_name_into(map, object, local, object_name, &mut buffer);
    heapless::Vec::from_slice(name.get(..name.len().min(64)).unwrap_or_default()).unwrap_or_default()
}

/// Which maps some wanted program refers to: 1 by the map's number. Only global data depends on it, so that objects
/// without any are not searched.
fn used_maps<'s>(
    prepared: &Prepared<'_>,
    options: &LoadOptions<'_>,
    scratch: &mut Arena<'s>,
) -> Result<&'s [u8], LoadError> {
    let used = scratch.slice::<u8>(prepared.maps().len(), Part::Maps)?;
    if !prepared.maps().iter().any(Map::is_internal) {
        return Ok(used);
    }
    for (number, function) in prepared.declared().programs() {
        if !is_wanted(prepared, number, function, options) {
            continue;
        }
        let mark = |map: usize| {
            if let Some(used) = used.get_mut(map) {
                *used = 1;
            }
        };
        prepared.maps_of(number, &mut scratch.scratch(), mark).map_err(|error| link_error(number, error))?;
    }
    Ok(used)
}

/// Whether the kernel takes types of keys and values for maps of this type (libbpf: `bpf_object__create_map`).
fn takes_btf_types(map_type: u32) -> bool {
    use map_type::{
        ARENA, ARRAY_OF_MAPS, CGROUP_ARRAY, CPUMAP, DEVMAP, DEVMAP_HASH, HASH_OF_MAPS, PERF_EVENT_ARRAY, QUEUE,
        SOCKHASH, SOCKMAP, STACK, STACK_TRACE, XSKMAP,
    };
    !matches!(
        map_type,
        ARENA
            | ARRAY_OF_MAPS
            | CGROUP_ARRAY
            | CPUMAP
            | DEVMAP
            | DEVMAP_HASH
            | HASH_OF_MAPS
            | PERF_EVENT_ARRAY
            | QUEUE
            | SOCKHASH
            | SOCKMAP
            | STACK
            | STACK_TRACE
            | XSKMAP
    )
}

/// The licence with a NUL, in `buffer`; one that is longer is cut.
fn license_of<'b>(license: &[u8], buffer: &'b mut [u8; 128]) -> &'b CStr {
    let len = license.len().min(buffer.len() - 1);
    if let (Some(place), Some(license)) = (buffer.get_mut(..len), license.get(..len)) {
        place.copy_from_slice(license);
    }
    CStr::from_bytes_until_nul(buffer).unwrap_or_default()
}

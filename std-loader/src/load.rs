//! From a prepared object to maps and programs in the kernel.
//!
//! ```text
//! Prepared --create--> Collection      maps created, filled, frozen; the object's BTF loaded
//! Collection --load_programs-->        one program at a time: linked in scratch, loaded, its scratch given back
//! Collection --attach_program--> Link  as the program's section says
//! ```
//!
//! Nothing here uses the heap: tables of descriptors come from the arena that the object was prepared in. Whatever
//! fails, a [`Collection`] closes what it has when it goes.
//!
//! - `options`: how an object is loaded ([`LoadOptions`])
//! - `settings`: what the caller wants other than the object says it
//! - `error`: why it is not ([`LoadError`])
//! - `externs`: what the running kernel gives for what an object expects of it
//! - `maps`: which maps are created, under which names, and how
//! - `contents`: what they hold from the start
//! - `pins`: the pins that a load makes by itself
//! - `variables`: global variables by name
//! - `modules`: BTF objects of kernel modules
//! - `programs`: linked one at a time in scratch, and loaded
//! - `old`: what old kernels need of a program, given to them when they refuse it
//! - `tables`: struct_ops tables
//! - `targets`: attach targets of sections that are given at run time

mod contents;
mod error;
mod externs;
mod maps;
mod modules;
mod old;
mod options;
mod pins;
mod programs;
mod settings;
mod tables;
mod targets;
mod variables;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Mutex;

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::sanitize::KernelBtfFeatures;
use corelo_core::bytes::Endian;
use corelo_core::object::section_name::{ProgramKind, parse, parse_older, split_optional};
use corelo_core::object::{Function, Map, MapId, MapOrigin, ProgramId};
use corelo_core::prepare::Prepared;
use corelo_core::uapi::ProgType;

use crate::attach;
use crate::kernel::Modules as SearchedModules;
use crate::kernel::{Feature, Features};
use crate::objects::{Memlock, load_btf};
use crate::prepare::{Preparation, WarmStart};
use crate::sys::Errno;
use crate::sys::fd_table::FdTable;
use crate::sys::mmap::ArrayMap;
use crate::sys::owned_list::List;
use error::{btf_error, extern_error};
use maps::{is_made, used_maps};
use modules::Modules;
use pins::Pins;
use programs::{link, replaced_function};

pub use contents::EmptySlot;
pub use error::LoadError;
pub use externs::{ExternError, ExternValue, Externs};
pub use maps::map_name;
pub use options::{LoadOptions, PIN_ROOT};
pub use settings::{Autoload, Change, Setting, SettingError};
pub use variables::VariableRef;

/// Maps and programs of one object in the kernel. All is closed when it goes.
#[derive(Debug)]
pub struct Collection<'a> {
    /// What it attached itself. First, so that nothing runs any more when the rest is closed.
    links: List<(Attached, attach::Link)>,
    prepared: Prepared<'a>,
    /// By the map's id.
    maps: FdTable<'a>,
    /// By the index of the function.
    programs: FdTable<'a>,
    btf: Option<OwnedFd>,
    externs: Externs<'a>,
    modules: Modules<'a>,
    pins: Pins<'a>,
    /// The object's arena.
    arena: Option<ArrayMap>,
    /// Where its variables start in it.
    arena_data_offset: u32,
    /// How many argument specifications of static probes are in the object's map for them.
    usdt_specs: Mutex<u32>,
    /// What the kernel was found to lack.
    old: old::Old,
    relocations: Relocations,
    /// The modules that were searched, for the next time.
    searched: SearchedModules<'a>,
    arena_bytes: ArenaBytes,
}

/// What a link is of, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    Program(ProgramId),
    Table(MapId),
}

/// How much of an object is in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Maps created.
    pub maps: usize,
    /// Programs loaded.
    pub programs: usize,
}

/// CO-RE relocations in the programs that are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relocations {
    /// Those that got a value.
    pub patched: u32,
    /// Those that were poisoned, as the kernel lacks what they ask for.
    pub poisoned: u32,
}

/// What the arena of a collection had and took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaBytes {
    /// Bytes that it had.
    pub capacity: usize,
    /// Bytes that are in use for as long as the collection is.
    pub kept: usize,
    /// The most that were in use at once: so many would just have done.
    pub high_water: usize,
}

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
    settings::check(prepared, options)?;
    let prepared = &settings::with_sections(prepared, options, arena)?;
    let tables = Collection::empty(prepared, options, arena)?;
    tables::words(prepared, &mut arena.scratch())?;
    prepared.kernel_btf(options.btf_features, &mut arena.scratch()).map_err(btf_error)?;
    Externs::rehearse(prepared, arena)?;
    let mut scratch = arena.scratch();
    let used = used_maps(prepared, options, &mut scratch)?;
    for (id, map) in prepared.declared().maps_by_id() {
        if !is_made(prepared, id, map, used, options) {
            continue;
        }
        match map.origin() {
            MapOrigin::Data(_) => {
                contents::contents(prepared, id, map, options, &mut scratch.scratch())?;
            }
            MapOrigin::Kconfig => {
                scratch.scratch().slice::<u8>(map.value_size as usize, Part::MapData)?;
            }
            _ => {}
        }
    }
    for (id, function) in prepared.declared().programs() {
        if is_wanted(prepared, id, function, options)? {
            let mut scratch = arena.scratch();
            if program_kind(prepared, function).is_some_and(|kind| kind.prog_type == ProgType::EXT) {
                let found = replaced_function(prepared, function, options, &mut scratch.scratch());
                found.map_err(|error| error.of(id))?;
            }
            link(prepared, id, &mut scratch)?;
            tables.modules.fd_array(&mut scratch)?;
        }
    }
    Ok(())
}

impl<'a> Collection<'a> {
    fn empty(prepared: &Prepared<'a>, options: &LoadOptions<'_>, arena: &mut Arena<'a>) -> Result<Self, LoadError> {
        let maps = arena.slice::<i32>(prepared.maps().len(), Part::Descriptors)?;
        let programs = arena.slice::<i32>(prepared.declared().functions().len(), Part::Descriptors)?;
        Ok(Self {
            links: List::new(),
            prepared: *prepared,
            maps: FdTable::new(maps),
            programs: FdTable::new(programs),
            btf: None,
            externs: Externs::default(),
            modules: Modules::new(prepared, arena)?,
            pins: Pins::new(prepared, options, arena)?,
            arena: None,
            arena_data_offset: 0,
            usdt_specs: Mutex::new(0),
            old: old::Old::default(),
            relocations: Relocations::default(),
            searched: SearchedModules::default(),
            arena_bytes: ArenaBytes::default(),
        })
    }

    /// Loads the object's BTF, creates its maps, and fills those of global data.
    ///
    /// # Errors
    /// [`LoadError`]; what was created is closed, and unpinned unless it was pinned before.
    pub fn create(
        prepared: &Prepared<'a>,
        options: &LoadOptions<'_>,
        arena: &mut Arena<'a>,
    ) -> Result<Self, LoadError> {
        if prepared.object().endian() != Endian::host() {
            return Err(LoadError::ByteOrder);
        }
        settings::check(prepared, options)?;
        let prepared = &settings::with_sections(prepared, options, arena)?;
        let mut collection = Self::empty(prepared, options, arena)?;
        tables::check(prepared, options, &mut arena.scratch())?;
        collection.btf = collection.load_btf(options, arena)?;
        collection.externs =
            Externs::resolve(prepared, &mut |module| collection.modules.open(module, options.modules), arena)
                .map_err(extern_error)?;
        match collection.create_maps(options, arena) {
            Ok(()) => Ok(collection),
            Err(error) => {
                // The load's own error is the one to report.
                let _ = collection.unpin_new();
                Err(error)
            }
        }
    }

    fn create_maps(&mut self, options: &LoadOptions<'_>, arena: &mut Arena<'a>) -> Result<(), LoadError> {
        let prepared = self.prepared;
        let mut scratch = arena.scratch();
        let used = used_maps(&prepared, options, &mut scratch)?;
        for (id, map) in prepared.declared().maps_by_id() {
            if is_made(&prepared, id, map, used, options) {
                self.create_map(id, map, options)?;
                if options.reused(prepared.map_name(map)).is_none() {
                    self.fill(id, map, options, &mut scratch.scratch())?;
                }
            }
        }
        self.fill_map_slots()
    }

    /// Gives the kernel the object's BTF. Where the kernel refuses it, it is asked what it knows, and offered that.
    /// Without any BTF the object is loaded all the same unless it has struct_ops tables, and has no types and lines in
    /// the kernel: neither programs nor maps.
    fn load_btf(&self, options: &LoadOptions<'_>, arena: &mut Arena<'a>) -> Result<Option<OwnedFd>, LoadError> {
        if self.prepared.local().is_none() {
            return Ok(None);
        }
        let try_with = |features: KernelBtfFeatures, arena: &mut Arena<'a>| {
            let mut scratch = arena.scratch();
            let Some(blob) = self.prepared.kernel_btf(features, &mut scratch).map_err(btf_error)? else {
                return Ok(Ok(None));
            };
            let mut no_log: &mut [u8] = &mut [];
            match load_btf(blob, &mut no_log, options.memlock) {
                Ok(fd) => Ok(Ok(Some(fd))),
                Err(failure) if is_passing(failure.errno) => Err(LoadError::BtfLoad { errno: failure.errno }),
                Err(failure) => Ok(Err(failure.errno)),
            }
        };
        let mut result = try_with(options.btf_features, arena)?;
        if result.is_err()
            && let Some(known) = Features::new(options.memlock).btf_features()
            && !known.has(options.btf_features)
        {
            result = try_with(known, arena)?;
        }
        match result {
            Ok(fd) => Ok(fd),
            // Registering a table takes the types of its programs (libbpf: `kernel_needs_btf`).
            Err(errno) if self.prepared.maps().iter().any(|map| map.origin() == MapOrigin::StructOps) => {
                Err(LoadError::BtfLoad { errno })
            }
            Err(_) => Ok(None),
        }
    }

    /// Attaches a loaded program as its section says; `None` where the section names no target that this can be done
    /// with, or the program was not loaded.
    ///
    /// # Errors
    /// [`LinkError`](attach::LinkError)
    pub fn attach_program(&self, id: ProgramId) -> Result<Option<attach::Link>, attach::LinkError> {
        let function = self.prepared.declared().function(id);
        let kind = function.and_then(|function| program_kind(&self.prepared, function));
        let (Some(kind), Some(program)) = (kind, self.program_fd(id)) else { return Ok(None) };
        attach::attach(program, &kind, |usdt| self.attach_probe(program, usdt))
    }

    /// Attaches a loaded USDT program to a static probe: one whose section names none, or to
    /// one process only. The object's maps of bpf/usdt.bpf.h tell the program how to read the probe's arguments.
    ///
    /// # Errors
    /// [`LinkError`](attach::LinkError): EBADF where the program was not loaded, EINVAL where it is none of a `usdt`
    /// section.
    pub fn attach_usdt(&self, id: ProgramId, usdt: &attach::usdt::Usdt<'_>) -> Result<attach::Link, attach::LinkError> {
        let failed = |errno| attach::LinkError::Kernel { call: "BPF_LINK_CREATE", errno };
        let program = self.program_fd(id).ok_or(failed(Errno::EBADF))?;
        let function = self.prepared.declared().function(id);
        if !function.is_some_and(|function| is_usdt(&self.prepared, function)) {
            return Err(failed(Errno::EINVAL));
        }
        self.attach_probe(program, usdt)
    }

    fn attach_probe(
        &self,
        program: BorrowedFd<'_>,
        usdt: &attach::usdt::Usdt<'_>,
    ) -> Result<attach::Link, attach::LinkError> {
        if cfg!(feature = "usdt") {
            attach::usdt::attach(program, usdt, &self.usdt_support())
        } else {
            Err(attach::UsdtError::NotBuilt.into())
        }
    }

    fn usdt_support(&self) -> attach::usdt::Support<'_> {
        let find = |name: &str| {
            let mut maps = self.prepared.declared().maps_by_id();
            let (id, map) = maps.find(|(_, map)| self.prepared.map_name(map) == name.as_bytes())?;
            Some((self.map_fd(id)?, map))
        };
        let specs = find(attach::usdt::SPECS);
        let spec_type = specs.and_then(|(_, map)| self.prepared.local().zip(map.value_type()));
        attach::usdt::Support {
            specs: specs.map(|(fd, _)| fd),
            spec_type,
            used: &self.usdt_specs,
            has_cookies: || Features::new(Memlock::RaiseIfRefused).get(Feature::BpfCookie).known(),
            addresses: find(attach::usdt::ADDRESSES).map(|(fd, _)| fd),
        }
    }

    /// Where a program runs, as its section says.
    #[must_use]
    pub fn program_kind(&self, id: ProgramId) -> Option<ProgramKind<'a>> {
        program_kind(&self.prepared, self.prepared.declared().function(id)?)
    }

    /// The descriptor of a loaded program.
    #[must_use]
    pub fn program_fd(&self, id: ProgramId) -> Option<BorrowedFd<'_>> {
        self.programs.get(id.index())
    }

    /// The descriptor of a created map.
    #[must_use]
    pub fn map_fd(&self, id: MapId) -> Option<BorrowedFd<'_>> {
        self.maps.get(id.index())
    }

    /// What it was made from.
    #[must_use]
    pub fn prepared(&self) -> &Prepared<'a> {
        &self.prepared
    }

    /// The object's BTF in the kernel.
    #[must_use]
    pub fn btf(&self) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.btf.as_ref().map(AsFd::as_fd)
    }

    /// CO-RE relocations in the programs loaded: those that got a value, and those that were poisoned.
    #[must_use]
    pub fn relocations(&self) -> Relocations {
        self.relocations
    }

    /// The links that it keeps: those of [`Collection::attach_all`] and [`Collection::attach`].
    pub fn links(&self) -> impl ExactSizeIterator<Item = &attach::Link> {
        self.links.as_slice().iter().map(|(_, link)| link)
    }

    /// Keeps a link for as long as the collection is there; the errno is that of a want of memory.
    pub(crate) fn keep_link(&mut self, of: Attached, link: attach::Link) -> Result<(), Errno> {
        self.links.push((of, link))
    }

    /// Whether it keeps a link of this.
    pub(crate) fn is_attached(&self, what: Attached) -> bool {
        self.links.as_slice().iter().any(|(attached, _)| *attached == what)
    }

    /// Detaches all but the first `count` links that are kept.
    pub(crate) fn detach_after(&mut self, count: usize) {
        while self.links.as_slice().len() > count {
            drop(self.links.pop());
        }
    }

    /// Detaches what [`Collection::attach_all`] and [`Collection::attach`] attached, the last first.
    pub fn detach_all(&mut self) {
        self.detach_after(0);
    }

    /// What the arena had and took.
    #[must_use]
    pub fn arena_bytes(&self) -> ArenaBytes {
        self.arena_bytes
    }

    /// What the whole way took, and found.
    pub(crate) fn remember(&mut self, searched: SearchedModules<'a>, arena: &Arena<'_>) {
        self.searched = searched;
        self.arena_bytes =
            ArenaBytes { capacity: arena.capacity(), kept: arena.used(), high_water: arena.high_water() };
    }

    /// Closes it, and keeps what the kernel answered: the warm start of the same object, by
    /// [`Loader::warm`](crate::loader::Loader::warm). The buffer stays in use.
    #[must_use]
    pub fn snapshot(self) -> WarmStart<'a> {
        Preparation { prepared: self.prepared, modules: self.searched }.snapshot()
    }

    /// How many maps were created, and programs loaded.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |table: &FdTable<'_>| (0..table.len()).filter(|&place| table.get(place).is_some()).count();
        Counts { maps: count(&self.maps), programs: count(&self.programs) }
    }
}

/// Whether a refusal says nothing of what was refused: the same may be taken a moment later.
fn is_passing(errno: Errno) -> bool {
    matches!(errno, Errno::ENOMEM | Errno::EAGAIN | Errno::EINTR | Errno::EMFILE | Errno::ENFILE)
}

/// What the section of a function says.
pub(crate) fn program_kind<'a>(prepared: &Prepared<'a>, function: &Function) -> Option<ProgramKind<'a>> {
    let (section, _) = split_optional(prepared.section_name(function));
    parse(section).or_else(|| parse_older(section))
}

/// Whether its section is one of USDT programs.
fn is_usdt(prepared: &Prepared<'_>, function: &Function) -> bool {
    attach::usdt::is_section(split_optional(prepared.section_name(function)).0)
}

fn is_wanted(
    prepared: &Prepared<'_>,
    id: ProgramId,
    function: &Function,
    options: &LoadOptions<'_>,
) -> Result<bool, LoadError> {
    let (_, is_optional) = split_optional(prepared.section_name(function));
    let table_is_made =
        |map: MapId| prepared.declared().map(map).is_some_and(|map| is_table_made(prepared, map, options));
    // A program in a struct_ops table goes with the table, whatever its own section says.
    let by_default = tables::is_in_table(prepared, id, function, table_is_made)?.unwrap_or(!is_optional);
    Ok(options.is_loaded(prepared.function_name(function), by_default))
}

/// Whether a struct_ops table is created.
fn is_table_made(prepared: &Prepared<'_>, map: &Map, options: &LoadOptions<'_>) -> bool {
    let (_, is_optional) = split_optional(prepared.object().section_name(map.section()));
    options.is_created(prepared.map_name(map)).unwrap_or(options.by_default(!is_optional))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::bpf::cmd;
    use crate::sys::fake::{install, some_fd, u32_at};
    use corelo_core::object::Object;
    use corelo_core::prepare::{Options, prepare};

    /// BPF_MAP_CREATE's btf_fd, btf_key_type_id and btf_value_type_id.
    const MAP_BTF: [usize; 3] = [48, 52, 56];

    /// Creates the maps of a fixture that asks nothing of the kernel's BTF, on a kernel that answers every BPF_BTF_LOAD
    /// with `answer`.
    fn create_with(answer: Result<(), Errno>) -> Result<(), LoadError> {
        let endian = if cfg!(target_endian = "big") { "eb" } else { "el" };
        let path = format!("{}/../tests/fixtures/nothing_asked-{endian}.o", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read(path).unwrap();
        let mut buffer = vec![0u8; 1 << 16];
        let mut arena = Arena::new(&mut buffer);
        let object = Object::parse(&file).unwrap();
        let prepared = prepare(&object, None, Options::default(), &mut arena).unwrap();
        assert!(prepared.maps().iter().any(|map| map.key_type().is_some()), "a map with types");
        let _guard = install(move |command, block| match command {
            cmd::BTF_LOAD => Some(answer.map(|()| some_fd())),
            cmd::MAP_CREATE => {
                let words = MAP_BTF.map(|offset| u32_at(block, offset) != 0);
                // What kernels say to ids without BTF.
                Some(if words[0] == (words[1] || words[2]) { Ok(some_fd()) } else { Err(Errno::EINVAL) })
            }
            _ => Some(Ok(0)),
        });
        Collection::create(&prepared, &LoadOptions::new(b"test"), &mut arena).map(|collection| {
            assert_eq!(collection.btf().is_some(), answer.is_ok());
        })
    }

    #[test]
    fn where_the_kernel_refuses_good_btf_maps_are_made_without_types() {
        assert_eq!(create_with(Ok(())), Ok(()));
        for errno in [Errno::EINVAL, Errno::ENOTSUPP, Errno::E2BIG, Errno::EPERM] {
            assert_eq!(create_with(Err(errno)), Ok(()), "{errno}");
        }
    }

    #[test]
    fn a_refusal_of_btf_that_may_pass_is_reported_as_itself() {
        for errno in [Errno::ENOMEM, Errno::EAGAIN, Errno::EINTR, Errno::EMFILE, Errno::ENFILE] {
            assert_eq!(create_with(Err(errno)), Err(LoadError::BtfLoad { errno }), "{errno}");
        }
    }
}

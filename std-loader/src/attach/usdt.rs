//! Static probes of user programs (USDT, SystemTap's `sys/sdt.h`): libbpf's `usdt_manager_attach_usdt`.
//!
//! Linux 4.17, with semaphores 4.20; CAP_BPF and CAP_PERFMON
//!
//! A program or library has a `nop` wherever a probe is, and a note that says where that is and where the probe's
//! arguments are at that moment: in registers, in memory, or constants. Attaching puts a uprobe on every place of the probe,
//! raises its semaphore (a counter that the program may look at), and tells the BPF program through maps of its own object how to
//! read the arguments: `__bpf_usdt_specs` has the specifications, and the attach cookie says which one counts. Those
//! maps come with bpf/usdt.bpf.h. On kernels without cookies (before 5.15) programs find the number in
//! `__bpf_usdt_ip_to_spec_id` by the probe's address, which for libraries and position-independent programs depends on the
//! process.
//!
//! A program that never asks for arguments needs no maps, and without them the cookie is what the caller gives. (libbpf refuses
//! such objects.)

mod args;
mod notes;
mod process;
mod sites;
mod specs;

use core::fmt;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Mutex;

use corelo_core::btf::{TypeId, Types};
use elf::abi;
use elf::endian::AnyEndian;

use super::uprobe::{self, UprobeMulti};
use super::{Link, LinkError, call};
use crate::attach::symbols::{File, SymbolError};
use crate::sys::files::read_at;
use args::Machine;
use notes::{Note, Notes};
use process::Mappings;
use sites::Sites;
use specs::Specs;

pub(super) use sites::Attached;

pub use args::ArgumentFault;

/// The map of the specifications.
pub(crate) const SPECS: &str = "__bpf_usdt_specs";
/// The map from addresses to their numbers.
pub(crate) const ADDRESSES: &str = "__bpf_usdt_ip_to_spec_id";

const HOST_ENDIAN: AnyEndian = if cfg!(target_endian = "big") { AnyEndian::Big } else { AnyEndian::Little };

/// Which probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usdt<'a> {
    /// The program or library.
    pub path: &'a Path,
    /// Who provides the probe: the first half of its name.
    pub provider: &'a str,
    /// The second half.
    pub name: &'a str,
    /// A process, or `None` for all.
    pub pid: Option<u32>,
    /// What bpf_usdt_cookie gives the program.
    pub cookie: u64,
}

/// Why there is nothing to attach to, or why the program could not read the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UsdtError {
    /// The loader was built without the cargo feature `usdt`.
    NotBuilt,
    /// The file has no static probes at all.
    NoNotes,
    /// It has none of this provider and name.
    Missing,
    /// The file is for another machine than the one that we run on, or for one whose arguments cannot be read.
    Machine {
        /// `e_machine` of its ELF header.
        machine: u16,
    },
    /// A probe is at an address that holds no code.
    NotCode {
        /// The address.
        address: u64,
    },
    /// A probe is no 32-bit ARM `nop`, and so in Thumb code: a breakpoint of the kernel's, which is an ARM instruction, would end
    /// whoever comes there.
    Thumb {
        /// The address.
        address: u64,
    },
    /// A probe's semaphore is where nothing can be written.
    Semaphore {
        /// The address.
        address: u64,
    },
    /// The kernel does not count semaphores: before 4.20.
    NoSemaphores,
    /// An argument cannot be read.
    Argument {
        /// Its number, from 0.
        number: usize,
        /// What is wrong with it.
        fault: ArgumentFault,
    },
    /// An argument is in memory at a register plus an index, which the object's usdt.bpf.h (before libbpf 1.7) cannot read.
    NoIndex {
        /// Its number, from 0.
        number: usize,
    },
    /// The values of the map `__bpf_usdt_specs` are not as they are in any known version of usdt.bpf.h.
    Layout {
        /// Their size, in bytes.
        value_size: u32,
    },
    /// The map `__bpf_usdt_specs` is full: BPF_USDT_MAX_SPEC_CNT before usdt.bpf.h makes it larger.
    SpecsFull {
        /// Its entries.
        max_entries: u32,
    },
    /// The kernel has no attach cookies (before 5.15), and the object no map `__bpf_usdt_ip_to_spec_id`.
    NoAddressMap,
    /// The kernel has no attach cookies (before 5.15): probes of libraries and position-independent programs can only be attached
    /// in one process.
    NeedsProcess,
    /// The kernel has no attach cookies (before 5.15), so that at one place there can be one program of an object.
    AddressTaken {
        /// The address.
        address: u64,
    },
    /// The process does not run the file.
    NotMapped {
        /// The process.
        pid: u32,
    },
}

impl fmt::Display for UsdtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UsdtError::NotBuilt => f.write_str("built without static probes (cargo feature usdt)"),
            UsdtError::NoNotes => f.write_str("the file has no static probes (no section .note.stapsdt)"),
            UsdtError::Missing => f.write_str("the file has no static probe of this provider and name"),
            UsdtError::Machine { machine } => {
                write!(f, "the file is for ELF machine {machine}, whose static probes cannot be read on this one")
            }
            UsdtError::NotCode { address } => write!(f, "the probe's address {address:#x} holds no code"),
            UsdtError::Thumb { address } => write!(
                f,
                "the probe at {address:#x} is in Thumb code, which this kernel cannot probe: build the program with -marm"
            ),
            UsdtError::Semaphore { address } => {
                write!(f, "the probe's semaphore at {address:#x} is in no part of the file that can be written")
            }
            UsdtError::NoSemaphores => {
                f.write_str("the probe has a semaphore, which this kernel does not count: it needs Linux 4.20")
            }
            UsdtError::Argument { number, fault } => write!(f, "the probe's argument {number} {fault}"),
            UsdtError::NoIndex { number } => write!(
                f,
                "the probe's argument {number} is at a register plus an index, which needs an object with usdt.bpf.h of \
                 libbpf 1.7"
            ),
            UsdtError::Layout { value_size } => {
                write!(f, "map {SPECS}: values of {value_size} bytes are of no known version of usdt.bpf.h")
            }
            UsdtError::SpecsFull { max_entries } => {
                write!(f, "map {SPECS}: all {max_entries} entries are in use: define BPF_USDT_MAX_SPEC_CNT")
            }
            UsdtError::NoAddressMap => {
                write!(f, "this kernel has no attach cookies (Linux 5.15), and the object has no map {ADDRESSES}")
            }
            UsdtError::NeedsProcess => f.write_str(
                "this kernel has no attach cookies (Linux 5.15): static probes of a library or position-independent program \
                 can only be attached in one process",
            ),
            UsdtError::AddressTaken { address } => write!(
                f,
                "this kernel has no attach cookies (Linux 5.15), and a program of this object is at {address:#x} already"
            ),
            UsdtError::NotMapped { pid } => write!(f, "process {pid} does not run the file"),
        }
    }
}

impl core::error::Error for UsdtError {}

impl From<UsdtError> for LinkError {
    fn from(error: UsdtError) -> LinkError {
        LinkError::Usdt(error)
    }
}

/// Whether a section's name, without a leading `?`, is that of USDT programs.
pub(crate) fn is_section(name: &[u8]) -> bool {
    let rest = name.strip_prefix(b"usdt").map(|rest| rest.strip_prefix(b".s").unwrap_or(rest));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// What a collection has for its USDT programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Support<'c> {
    /// Map [`SPECS`], and what its values are.
    pub(crate) specs: Option<BorrowedFd<'c>>,
    pub(crate) spec_type: Option<(&'c Types<'c>, TypeId)>,
    /// How many of its elements are in use.
    pub(crate) used: &'c Mutex<u32>,
    /// Whether the kernel has attach cookies.
    pub(crate) has_cookies: fn() -> Result<bool, crate::sys::Errno>,
    /// Map [`ADDRESSES`].
    pub(crate) addresses: Option<BorrowedFd<'c>>,
}

/// Attaches to all places of a probe: by one link to many (Linux 6.6), else by a uprobe for each (4.17).
pub(crate) fn attach(program: BorrowedFd<'_>, usdt: &Usdt<'_>, support: &Support<'_>) -> Result<Link, LinkError> {
    let file = File::open(usdt.path).map_err(LinkError::Symbol)?;
    let mut sites = find(&file, usdt, support)?;
    let by_one_link = UprobeMulti {
        path: usdt.path,
        offsets: sites.offsets(),
        ref_ctr_offsets: sites.counters(),
        cookies: sites.cookies(),
        returns: false,
        pid: usdt.pid,
        session: false,
    };
    match uprobe::attach_multi(program, by_one_link) {
        Err(LinkError::NoMulti { .. }) => {}
        result => return result,
    }
    // As the program is told by LINUX_HAS_BPF_COOKIE.
    if support.specs.is_none() || (support.has_cookies)().map_err(super::call("BPF_PROG_LOAD"))? {
        return sites.attach(program, usdt.path, usdt.pid, None);
    }
    let addresses = support.addresses.ok_or(UsdtError::NoAddressMap)?;
    if file.header().e_type == abi::ET_DYN {
        let pid = usdt.pid.ok_or(UsdtError::NeedsProcess)?;
        let mappings = Mappings::of(file.fd(), pid)?;
        sites.relocate(|offset| mappings.address(offset).ok_or(UsdtError::NotMapped { pid }))?;
    }
    sites.attach(program, usdt.path, usdt.pid, Some(addresses))
}

/// The places of a probe; what programs need to read its arguments there goes into their map.
fn find(file: &File, usdt: &Usdt<'_>, support: &Support<'_>) -> Result<Sites, LinkError> {
    let header = file.header();
    let machine = Machine::of(header.e_machine, header.class)
        .filter(|machine| Some(*machine) == Machine::RUNNING && header.endianness == HOST_ENDIAN)
        .ok_or(UsdtError::Machine { machine: header.e_machine })?;
    let notes = Notes::read(file).map_err(LinkError::Symbol)?.ok_or(UsdtError::NoNotes)?;
    let mut specs = match support.specs {
        Some(map) => Some(Specs::new(map, support.spec_type, support.used)?),
        None => None,
    };
    let mut sites = Sites::default();
    for note in notes.iter() {
        let note = note.map_err(LinkError::Symbol)?;
        if note.provider != usdt.provider.as_bytes() || note.name != usdt.name.as_bytes() {
            continue;
        }
        let (offset, counter) = offsets(file, &note)?;
        if machine == Machine::Arm && !is_arm_nop(read_insn(file, offset)?) {
            return Err(UsdtError::Thumb { address: note.location }.into());
        }
        let cookie = match &mut specs {
            None => usdt.cookie,
            Some(specs) => {
                let arguments = args::parse(machine, note.arguments)
                    .map_err(|(number, fault)| UsdtError::Argument { number, fault })?;
                u64::from(specs.id(&arguments, usdt.cookie)?)
            }
        };
        sites.push(offset, counter, cookie, note.location)?;
    }
    if sites.offsets().is_empty() { Err(UsdtError::Missing.into()) } else { Ok(sites) }
}

fn read_insn(file: &File, offset: u64) -> Result<[u8; 4], LinkError> {
    let mut insn = [0; 4];
    read_at(file.fd(), &mut insn, offset).map_err(call("pread"))?;
    Ok(insn)
}

/// Whether a probe's instruction is the `nop` of 32-bit ARM: the hint, or `mov r0, r0` where there is none (before ARMv6K).
/// Nothing else tells ARM code from Thumb in a stripped file, and as Thumb neither is something that a probe would have.
fn is_arm_nop(insn: [u8; 4]) -> bool {
    matches!(u32::from_le_bytes(insn), 0xe320_f000 | 0xe1a0_0000)
}

/// The file offsets of a place and its semaphore (0 for none).
fn offsets(file: &File, note: &Note<'_>) -> Result<(u64, u64), LinkError> {
    let place = file.place(note.location).map_err(|error| match error {
        SymbolError::NotInFile { address } => UsdtError::NotCode { address }.into(),
        error => LinkError::Symbol(error),
    })?;
    if place.flags & abi::PF_X == 0 {
        return Err(UsdtError::NotCode { address: note.location }.into());
    }
    if note.semaphore == 0 {
        return Ok((place.offset, 0));
    }
    let bad = UsdtError::Semaphore { address: note.semaphore };
    let semaphore = file.place(note.semaphore).map_err(|error| match error {
        SymbolError::NotInFile { .. } => bad.into(),
        error => LinkError::Symbol(error),
    })?;
    // The kernel raises what is mapped for writing, and nothing else.
    if semaphore.flags & abi::PF_W == 0 {
        return Err(bad.into());
    }
    Ok((place.offset, semaphore.offset))
}

#[cfg(test)]
mod tests;

//! Why an object is not loaded.

use core::fmt;

use corelo_core::btf::TypeId;
use corelo_core::btf::strings::Name;
use corelo_core::object::section_name::{ProgramKind, Target};
use corelo_core::object::{Map, MapId, ProgramId};
use corelo_core::prepare::{AttachTarget, Prepared};
use corelo_core::struct_ops::StructOpsError;
use corelo_core::uapi::{AttachType, ProgType};
use rustix::thread::CapabilitySet;

use super::link::LinkReport;
use super::names::{member_name, write_known};
use super::privileges::{capabilities, write_privileges};
use crate::load::{LoadError, program_kind};
use crate::sys::Errno;

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
    fn write_map(&self, f: &mut fmt::Formatter<'_>, id: MapId) -> fmt::Result {
        let name = self.prepared.declared().map(id).map_or(&[][..], |map| self.prepared.map_name(map));
        write!(f, "map {}: ", Name(name))
    }

    fn kind_of(&self, id: ProgramId) -> Option<ProgramKind<'_>> {
        program_kind(self.prepared, self.prepared.declared().function(id)?)
    }

    /// Whether the program is of a kind that the kernel gained after 7.2.
    fn is_newer_kind(&self, id: ProgramId) -> bool {
        let Some(kind) = self.kind_of(id) else { return false };
        match kind.target {
            Target::TraceMulti { .. } => true,
            _ => {
                let is_tracepoint = matches!(kind.prog_type, ProgType::TRACEPOINT | ProgType::RAW_TRACEPOINT)
                    || kind.expected_attach_type == AttachType::TRACE_RAW_TP;
                is_tracepoint && kind.is_sleepable
            }
        }
    }

    fn write_program(&self, f: &mut fmt::Formatter<'_>, id: ProgramId) -> fmt::Result {
        let Some(function) = self.prepared.declared().function(id) else { return Ok(()) };
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
                let name = self.prepared.declared().map(map).map_or(&[][..], |map| self.prepared.map_name(map));
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
                        let definition = self.prepared.declared().map(map).map_or(TypeId(0), Map::definition);
                        write_known(f, "member", member, member_name(self.prepared.object(), definition, member))
                    }
                    StructOpsError::TwoMembers { function } => {
                        let function = self.prepared.declared().function(function);
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
            LoadError::TargetBtf { function, error } => {
                self.write_program(f, function)?;
                write!(f, "the kernel's BTF, which has its target, cannot be had: {error}")
            }
            LoadError::ReplacedBtf { function, errno } => {
                self.write_program(f, function)?;
                write!(f, "the BTF of the program that it replaces cannot be had: {errno}")?;
                write_privileges(f, errno, CapabilitySet::SYS_ADMIN)
            }
            LoadError::Extern { id, error } => {
                let ext = self.prepared.declared().external(id);
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
                let section = self.prepared.declared().function(function);
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

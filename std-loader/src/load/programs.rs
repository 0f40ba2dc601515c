//! The programs of an object: linked one at a time in scratch, and loaded.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use corelo_core::arena::{Arena, ArenaFull, Part};
use corelo_core::btf::Kind;
use corelo_core::bytes::Endian;
use corelo_core::insn::{Insn, POISON_KFUNC_BASE, POISON_MAP_BASE, pseudo};
use corelo_core::link::{LinkedProgram, ReferenceKind};
use corelo_core::object::section_name::Target;
use corelo_core::object::{ExternKind, Function, ProgramId};
use corelo_core::prepare::{AttachTarget, Prepared};
use corelo_core::uapi::{AttachType, map_type};
use corelo_core::uapi::{BPF_F_SLEEPABLE, BPF_F_XDP_HAS_FRAGS, ProgType};

use super::error::link_error;
use super::old::Parts;
use super::{Collection, LoadError, LoadOptions, is_usdt, is_wanted, program_kind, tables, targets};
use crate::kernel::{KernelVersion, btf_object};
use crate::objects::{LogBuffer, ProgramSpec};
use crate::sys::{Errno, bpf};

impl Collection<'_> {
    /// Loads the programs that the options want, one at a time.
    ///
    /// # Errors
    /// [`LoadError`]; what was loaded before stays in the collection until that goes, but its new pins are removed.
    pub fn load_programs(
        &mut self,
        options: &LoadOptions<'_>,
        arena: &mut Arena<'_>,
        log: &mut dyn LogBuffer,
    ) -> Result<(), LoadError> {
        let loaded = self.load_wanted(options, arena, log);
        if loaded.is_err() {
            // The load's own error is the one to report.
            let _ = self.unpin_new();
        }
        loaded
    }

    fn load_wanted(
        &mut self,
        options: &LoadOptions<'_>,
        arena: &mut Arena<'_>,
        log: &mut dyn LogBuffer,
    ) -> Result<(), LoadError> {
        let prepared = self.prepared;
        for (id, function) in prepared.declared().programs() {
            if is_wanted(&prepared, id, function, options)? {
                self.load_program(id, options, &mut arena.scratch(), log)?;
            }
        }
        self.fill_program_slots()
    }

    /// Loads one program.
    ///
    /// # Errors
    /// [`LoadError`]
    pub fn load_program(
        &mut self,
        program: ProgramId,
        options: &LoadOptions<'_>,
        scratch: &mut Arena<'_>,
        log: &mut dyn LogBuffer,
    ) -> Result<(), LoadError> {
        use std::os::fd::AsFd;
        let prepared = &self.prepared;
        let unknown = LoadError::UnknownSection { function: program };
        let function = prepared.declared().function(program).ok_or(unknown)?;
        let kind = program_kind(prepared, function).ok_or(unknown)?;
        let mut attach_type = kind.expected_attach_type.0;
        let mut many_of = None;
        let mut attach_fd = None;
        let attach_btf_id = match prepared.attach_target(program) {
            AttachTarget::None if kind.prog_type == ProgType::EXT => {
                let name = prepared.function_name(function);
                if options.replaced(name).is_none() {
                    return Err(LoadError::NoReplaced { function: program });
                }
                let found = replaced_function(prepared, function, options, &mut scratch.scratch());
                let found = found.map_err(|error| error.of(program))?;
                let (replaced, id) = found.ok_or(LoadError::MissingTarget { function: program })?;
                attach_fd = Some(replaced);
                id
            }
            AttachTarget::None if kind.prog_type == ProgType::STRUCT_OPS => {
                let found = tables::member(prepared, program, options)?;
                let member = found.ok_or(LoadError::MissingTarget { function: program })?;
                attach_type = member.index;
                member.of.0
            }
            AttachTarget::None if kind.needs_attach_btf => return Err(LoadError::NoTarget { function: program }),
            AttachTarget::None => {
                // Which functions of the module, the link says.
                if let Target::TraceMulti { module: Some(module), .. } = kind.target {
                    let opened = module_btf(module);
                    let opened = opened.map_err(|errno| LoadError::ModuleBtf { function: program, errno })?;
                    let opened: &OwnedFd = many_of.insert(opened);
                    attach_fd = Some(opened.as_fd());
                }
                0
            }
            AttachTarget::Found(id) => id.0,
            AttachTarget::InModule { id, module } => {
                let opened = self.modules.open(module, options.modules);
                opened.map_err(|errno| LoadError::ModuleBtf { function: program, errno })?;
                attach_fd = self.modules.fd(module);
                id.0
            }
            AttachTarget::NotAsked(wanted) => targets::find(program, &wanted)?,
            AttachTarget::Missing(_) => return Err(LoadError::MissingTarget { function: program }),
        };
        // As one link to all places of a probe wants it; kernels without such links (before 6.6) do not look at it.
        let is_usdt = is_usdt(prepared, function);
        if is_usdt && cfg!(target_pointer_width = "64") {
            attach_type = AttachType::TRACE_UPROBE_MULTI.0;
        }
        let mut linked = link(prepared, program, scratch)?;
        let fd_array = self.modules.fd_array(scratch)?;
        self.fill_in(&mut linked);
        let has_btf = self.btf.is_some() && !linked.func_info.bytes.is_empty();
        let mut license = [0u8; 128];
        let license = license_of(prepared.object().license(), &mut license);
        let spec = ProgramSpec {
            name: prepared.function_name(function),
            expected_attach_type: attach_type,
            attach_type_optional: kind.is_attach_type_optional || is_usdt,
            license,
            kern_version: Some(prepared.object().version()).filter(|&version| version != 0),
            flags: if kind.is_sleepable { BPF_F_SLEEPABLE } else { 0 }
                | if kind.has_xdp_frags { BPF_F_XDP_HAS_FRAGS } else { 0 },
            btf_fd: self.btf.as_ref().filter(|_| has_btf).map(AsFd::as_fd),
            func_info: if has_btf { linked.func_info.bytes } else { &[] },
            func_info_rec_size: if has_btf { linked.func_info.record_size } else { 0 },
            line_info: if has_btf { linked.line_info.bytes } else { &[] },
            line_info_rec_size: if has_btf { linked.line_info.record_size } else { 0 },
            attach_btf_id,
            attach_fd,
            fd_array,
            log_level: options.log_level(prepared.function_name(function)),
            memlock: options.memlock,
            ..ProgramSpec::new(kind.prog_type.0)
        };
        let prog_type = kind.prog_type;
        let mut parts = Parts { prepared, options, insns: linked.insns, prog_type, function: program };
        let fd = self.old.load(&mut parts, &spec, scratch, log)?;
        self.programs.set(program.index(), fd);
        self.relocations.patched += linked.patched;
        self.relocations.poisoned += linked.poisoned;
        Ok(())
    }

    /// Puts the descriptors of maps and what externs are into a linked program.
    pub(super) fn fill_in(&self, linked: &mut LinkedProgram<'_>) {
        let endian = Endian::host();
        for reference in linked.references {
            let Some(pair) = linked.insns.get_mut(reference.insn_idx as usize..) else { continue };
            let Some((first, rest)) = pair.split_first_mut() else { continue };
            match reference.kind() {
                ReferenceKind::Map(id) | ReferenceKind::MapValue(id) => {
                    let Some(fd) = self.map_fd(id) else {
                        // Not created, as the caller wants it: the verifier accepts that in dead code only.
                        let mut call = Insn::poison(endian);
                        call.set_imm(POISON_MAP_BASE.saturating_add(id.get().cast_signed()), endian);
                        *first = call;
                        if let Some(second) = rest.first_mut() {
                            *second = call;
                        }
                        continue;
                    };
                    first.set_imm(fd.as_raw_fd(), endian);
                    let map = self.prepared.declared().map(id);
                    let is_arena = map.is_some_and(|map| map.map_type == map_type::ARENA);
                    if let (true, ReferenceKind::MapValue(_), Some(second)) =
                        (is_arena, reference.kind(), rest.first_mut())
                    {
                        let offset = second.imm(endian).cast_unsigned().wrapping_add(self.arena_data_offset);
                        second.set_imm(offset.cast_signed(), endian);
                    }
                }
                ReferenceKind::ExternLoad(id) => {
                    let Some(value) = self.externs.get(id) else { continue };
                    let ext = self.prepared.declared().external(id);
                    let is_function = ext.is_some_and(|ext| ext.kind() == ExternKind::Kfunc);
                    let address = self.modules.address(value, is_function.then(KernelVersion::running));
                    if address.is_type {
                        first.set_src_reg(pseudo::BTF_ID, endian);
                    }
                    let (low, high) = (address.low, address.high);
                    first.set_imm(low.cast_signed(), endian);
                    if let Some(second) = rest.first_mut() {
                        second.set_imm(high.cast_signed(), endian);
                    }
                }
                ReferenceKind::ExternCall(ext) => {
                    let value = self.externs.get(ext);
                    match value.and_then(|value| Some((value.type_id()?, value.module()))) {
                        Some((id, module)) => {
                            first.set_imm(id.0.cast_signed(), endian);
                            first.set_off(self.modules.index(module), endian);
                        }
                        // A weak function that the kernel lacks: the verifier accepts the call in dead code only.
                        None => {
                            first.set_src_reg(0, endian);
                            first.set_imm(POISON_KFUNC_BASE.saturating_add(ext.get().cast_signed()), endian);
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn link<'s>(
    prepared: &Prepared<'_>,
    function: ProgramId,
    scratch: &mut Arena<'s>,
) -> Result<LinkedProgram<'s>, LoadError> {
    prepared.program(function, scratch).map_err(|error| link_error(function, error))
}

/// The program that a `freplace` program is for, and the function of it that its section names: the id in that
/// program's BTF, which lies in `scratch` meanwhile.
pub(super) fn replaced_function<'o>(
    prepared: &Prepared<'_>,
    function: &Function,
    options: &LoadOptions<'o>,
    scratch: &mut Arena<'_>,
) -> Result<Option<(BorrowedFd<'o>, u32)>, ReplacedError> {
    use std::os::fd::AsFd;
    let Some(Target::Replace { function: wanted }) = program_kind(prepared, function).map(|kind| kind.target) else {
        return Ok(None);
    };
    let Some(program) = options.replaced(prepared.function_name(function)) else { return Ok(None) };
    let open = || {
        let id = match bpf::prog_info(program)?.btf_id {
            // A program without BTF has no function that could be named.
            0 => return Ok(None),
            id => id,
        };
        let btf = bpf::fd_by_id(bpf::ObjectKind::Btf, id)?;
        let size = bpf::btf_info(btf.as_fd(), &mut [], &mut [])?.btf_size;
        Ok(Some((btf, size as usize)))
    };
    let Some((btf, size)) = open().map_err(ReplacedError::Btf)? else { return Ok(None) };
    let bytes = scratch.slice::<u8>(size, Part::Btf).map_err(ReplacedError::Arena)?;
    bpf::btf_info(btf.as_fd(), bytes, &mut []).map_err(ReplacedError::Btf)?;
    // The kernel has checked what it hands out.
    let id = targets::find_in(bytes, Kind::Func, b"", wanted).map_err(|_| ReplacedError::Btf(Errno::EINVAL))?;
    Ok(id.map(|id| (program, id)))
}

/// Why the program that is replaced cannot be asked for its functions.
pub(super) enum ReplacedError {
    Arena(ArenaFull),
    Btf(Errno),
}

impl ReplacedError {
    pub(super) fn of(self, function: ProgramId) -> LoadError {
        match self {
            Self::Arena(full) => LoadError::Arena(full),
            Self::Btf(errno) => LoadError::ReplacedBtf { function, errno },
        }
    }
}

/// The kernel's BTF object of a module.
fn module_btf(module: &[u8]) -> Result<OwnedFd, Errno> {
    let name = core::str::from_utf8(module).map_err(|_| Errno::ENOENT)?;
    Ok(btf_object(name)?.ok_or(Errno::ENOENT)?.0)
}

/// The licence with a NUL, in `buffer`; one that is longer is cut.
fn license_of<'b>(license: &[u8], buffer: &'b mut [u8; 128]) -> &'b CStr {
    let len = license.len().min(buffer.len() - 1);
    if let (Some(place), Some(license)) = (buffer.get_mut(..len), license.get(..len)) {
        place.copy_from_slice(license);
    }
    CStr::from_bytes_until_nul(buffer).unwrap_or_default()
}

//! What old kernels need of a program, given to them when they refuse it.
//!
//! | what the kernel lacks | what is done | libbpf |
//! |---|---|---|
//! | functions in BTF (before 5.0) | no BTF, function and line info | `bpf_object_load_prog` |
//! | `bpf_probe_read_kernel` and its like (before 5.5) | `bpf_probe_read` instead | `bpf_object__sanitize_prog` |
//! | `arg:ctx` (before 6.8) | BTF with the expected types | `bpf_program_fixup_func_info` |
//!
//! Nobody is asked before a program was refused, and each thing is asked once for an object: the programs behind that one
//! are given what the kernel takes at once. `../../OLD-KERNELS.md` has the whole list.

use std::os::fd::{AsFd, OwnedFd};

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::KernelBtfFeatures;
use corelo_core::btf::context::with_contexts;
use corelo_core::bytes::Endian;
use corelo_core::insn::Insn;
use corelo_core::object::ProgramId;
use corelo_core::prepare::Prepared;
use corelo_core::uapi::{ProgType, helper};
use zerocopy::IntoBytes;

use super::error::btf_error;
use super::{LoadError, LoadOptions};
use crate::kernel::{Feature, Features};
use crate::objects::{LogBuffer, ProgramSpec, load_btf, load_program};
use crate::sys::Errno;

/// Whether the kernel lacks something; `None` where it was not asked yet.
type Lacks = Option<bool>;

/// What is known of the kernel since it refused a program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Old {
    functions: Lacks,
    probe_read: Lacks,
    contexts: Lacks,
    /// What BTF it takes.
    btf: Option<KernelBtfFeatures>,
}

/// What a program is loaded from.
pub(super) struct Parts<'l, 'p, 'a> {
    pub(super) prepared: &'p Prepared<'a>,
    pub(super) options: &'l LoadOptions<'l>,
    pub(super) insns: &'l mut [Insn],
    pub(super) prog_type: ProgType,
    pub(super) function: ProgramId,
}

impl Old {
    /// Loads a program, as it is or as the kernel takes it.
    pub(super) fn load(
        &mut self,
        parts: &mut Parts<'_, '_, '_>,
        spec: &ProgramSpec<'_>,
        scratch: &mut Arena<'_>,
        log: &mut dyn LogBuffer,
    ) -> Result<OwnedFd, LoadError> {
        let mut spec = *spec;
        // What is known is not tried again.
        if self.functions == Some(true) {
            without_btf(&mut spec);
        }
        if self.probe_read == Some(true) {
            replace_helpers(parts.insns);
        }
        let mut scratch = scratch.scratch();
        let own;
        let mut is_given = false;
        if self.contexts == Some(true)
            && let Some(contexts) = Contexts::new(&mut self.btf, parts, &spec, &mut scratch)?
        {
            own = contexts.load(parts)?;
            spec.btf_fd = Some(own.as_fd());
            spec.func_info = contexts.func_info;
            is_given = true;
        }
        let failed = |failure| LoadError::Program { function: parts.function, failure };
        let mut failure = match load_program(&spec, parts.insns.as_bytes(), log) {
            Ok(fd) => return Ok(fd),
            // Any other answer says nothing of the kernel's age.
            Err(failure) if !matches!(failure.errno, Errno::EINVAL | Errno::E2BIG | Errno::EACCES) => {
                return Err(failed(failure));
            }
            Err(failure) => failure,
        };
        let features = Features::new(parts.options.memlock);
        let lacks = |feature| features.get(feature).is_missing();
        if self.functions.is_none() && spec.btf_fd.is_some() {
            let is_missing = lacks(Feature::BtfFunc);
            self.functions = Some(is_missing);
            if is_missing {
                without_btf(&mut spec);
                match load_program(&spec, parts.insns.as_bytes(), log) {
                    Ok(fd) => return Ok(fd),
                    Err(again) => failure = again,
                }
            }
        }
        if self.probe_read.is_none() && parts.insns.iter().any(|insn| older_helper(insn).is_some()) {
            let is_missing = lacks(Feature::ProbeReadKernel);
            self.probe_read = Some(is_missing);
            if is_missing {
                replace_helpers(parts.insns);
                match load_program(&spec, parts.insns.as_bytes(), log) {
                    Ok(fd) => return Ok(fd),
                    Err(again) => failure = again,
                }
            }
        }
        if self.contexts != Some(false) && !is_given && spec.btf_fd.is_some() {
            let is_missing = lacks(Feature::ArgCtx);
            self.contexts = Some(is_missing);
            // Newer kernels take no memory for it: a refusal there is not to become a shortage.
            if is_missing && let Some(contexts) = Contexts::new(&mut self.btf, parts, &spec, &mut scratch)? {
                let own = contexts.load(parts)?;
                let spec = ProgramSpec { btf_fd: Some(own.as_fd()), func_info: contexts.func_info, ..spec };
                return load_program(&spec, parts.insns.as_bytes(), log).map_err(failed);
            }
        }
        Err(failed(failure))
    }
}

fn without_btf(spec: &mut ProgramSpec<'_>) {
    (spec.btf_fd, spec.func_info, spec.line_info) = (None, &[], &[]);
}

/// What `bpf_probe_read_user`, `bpf_probe_read_kernel` and their `_str` forms were before they were told apart.
fn older_helper(insn: &Insn) -> Option<i32> {
    if !insn.is_call() || insn.src_reg(Endian::host()) != 0 {
        return None;
    }
    match insn.imm(Endian::host()) {
        helper::PROBE_READ_USER | helper::PROBE_READ_KERNEL => Some(helper::PROBE_READ),
        helper::PROBE_READ_USER_STR | helper::PROBE_READ_KERNEL_STR => Some(helper::PROBE_READ_STR),
        _ => None,
    }
}

fn replace_helpers(insns: &mut [Insn]) {
    for insn in insns {
        if let Some(older) = older_helper(insn) {
            insn.set_imm(older, Endian::host());
        }
    }
}

/// The object's BTF with types for the contexts of one program's functions, and the function info that names them.
struct Contexts<'s> {
    blob: &'s [u8],
    func_info: &'s [u8],
}

impl<'s> Contexts<'s> {
    /// `None` where no function of the program needs any.
    fn new<'a: 's>(
        known: &mut Option<KernelBtfFeatures>,
        parts: &Parts<'_, '_, 'a>,
        spec: &ProgramSpec<'_>,
        scratch: &mut Arena<'s>,
    ) -> Result<Option<Self>, LoadError> {
        let (Some(local), Some(_)) = (parts.prepared.local(), spec.btf_fd) else { return Ok(None) };
        let func_info = scratch.slice::<u8>(spec.func_info.len(), Part::Btf)?;
        func_info.copy_from_slice(spec.func_info);
        // As the kernel takes it, which may be less than what it was given first.
        let known = match *known {
            Some(known) => known,
            None => match Features::new(parts.options.memlock).btf_features() {
                Some(features) => *known.insert(features),
                None => return Ok(None),
            },
        };
        let taken = parts.options.btf_features.without(KernelBtfFeatures::ALL.without(known));
        let blob = parts.prepared.kernel_btf(taken, scratch).map_err(btf_error)?;
        let Some(blob) = blob else { return Ok(None) };
        let size = spec.func_info_rec_size;
        let blob = with_contexts(local, blob, parts.prog_type, func_info, size, scratch).map_err(btf_error)?;
        Ok(blob.map(|blob| Self { blob, func_info }))
    }

    fn load(&self, parts: &Parts<'_, '_, '_>) -> Result<OwnedFd, LoadError> {
        let mut no_log: &mut [u8] = &mut [];
        let loaded = load_btf(self.blob, &mut no_log, parts.options.memlock);
        loaded.map_err(|failure| LoadError::Program { function: parts.function, failure })
    }
}

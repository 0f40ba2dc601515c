//! What there is to load, and its instructions.

use core::mem::MaybeUninit;

use corelo_core::insn::{INSN_SIZE, Insn};
use corelo_core::link::ReferenceKind;
use corelo_core::object::section_name::{parse, parse_older, split_optional};
use corelo_core::object::{Function, ProgramId};
use corelo_core::prepare::AttachTarget;

use crate::error::{Code, CoreFailure, Error, finish};
use crate::memory::{Text, buffer, store};
use crate::prepared::Prepared;

/// A program as the object declares it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProgramInfo {
    /// Its name: the function's.
    pub name: Text,
    /// Its section: what it attaches to.
    pub section: Text,
    /// `enum bpf_prog_type`, as the section says; 0 where the section says nothing known.
    pub prog_type: u32,
    /// `enum bpf_attach_type` to load it with.
    pub expected_attach_type: u32,
    /// The kernel type that it is loaded for (fentry, fexit, lsm, tp_btf and others), or 0.
    pub attach_btf_id: u32,
    /// Instructions of 8 bytes of the function itself; what it calls is appended by `corelo_link`.
    pub insn_count: u32,
    /// Whether it is to be loaded with BPF_F_SLEEPABLE.
    pub is_sleepable: bool,
    /// Whether its section starts with `?`: not loaded unless asked for.
    pub is_optional: bool,
    /// Whether the kernel lacks the type that it is loaded for.
    pub is_target_missing: bool,
}

/// What stands in an instruction that the loader fills in.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A map's descriptor goes into `imm` of the first slot.
    Map = 0,
    /// The same; `imm` of the second slot already has the offset into the map's value.
    MapValue = 1,
    /// A kernel symbol's address goes into both slots, or its BTF id into the first (`src_reg` 3).
    ExternLoad = 2,
    /// A kernel function's BTF id goes into `imm`.
    ExternCall = 3,
}

/// An instruction that the loader fills in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Patch {
    /// The slot in the linked program.
    pub insn_idx: u32,
    /// What it stands for.
    pub kind: Reference,
    /// The number of the map or extern.
    pub number: u32,
}

fn function(prepared: &Prepared, program: usize) -> Result<(ProgramId, &'static Function), CoreFailure> {
    let nothing = CoreFailure::text(Code::NotFound, "there is no program of this number");
    prepared.inner.declared().programs().nth(program).ok_or(nothing)
}

/// How many programs the object has. NULL has none.
///
/// # Safety
/// `prepared` is NULL or from `corelo_prepare`, and still valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_program_count(prepared: *const Prepared) -> usize {
    // SAFETY: NULL or valid, the caller's promise.
    unsafe { prepared.as_ref() }.map_or(0, |prepared| prepared.inner.declared().programs().count())
}

/// What the program numbered `program` (from 0) is.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_program_info(
    prepared: *const Prepared,
    program: usize,
    info: *mut ProgramInfo,
    error: *mut Error,
) -> Code {
    let ask = || {
        // SAFETY: NULL or valid, the caller's promise.
        let prepared = unsafe { prepared.as_ref() }.ok_or(CoreFailure::argument("prepared is NULL"))?;
        let (id, function) = function(prepared, program)?;
        let section = prepared.inner.section_name(function);
        let (bare, is_optional) = split_optional(section);
        let kind = parse(bare).or_else(|| parse_older(bare));
        let target = prepared.inner.attach_target(id);
        let found = ProgramInfo {
            name: Text::new(prepared.inner.function_name(function)),
            section: Text::new(section),
            prog_type: kind.map_or(0, |kind| kind.prog_type.0),
            expected_attach_type: kind.map_or(0, |kind| kind.expected_attach_type.0),
            attach_btf_id: if let AttachTarget::Found(id) = target { id.0 } else { 0 },
            insn_count: function.insn_count(),
            is_sleepable: kind.is_some_and(|kind| kind.is_sleepable),
            is_optional,
            is_target_missing: matches!(target, AttachTarget::Missing(_)),
        };
        // SAFETY: NULL or writable, the caller's promise.
        unsafe { store(info, found) }.ok_or(CoreFailure::argument("info is NULL"))
    };
    // SAFETY: the caller's promise.
    unsafe { finish(ask(), error) }
}

/// Links the program numbered `program`: its subprograms appended, relocations applied, `insn_count` instructions of 8
/// bytes written to `insns` in the object's byte order. References to maps and externs are listed in `patches`: their
/// immediates are for the loader to fill in. `insns` and `patches` may be NULL with size 0, to learn the counts only.
///
/// Result: `CORELO_CODE_OK`; `CORELO_CODE_SPACE` where either buffer is too small, with the counts needed stored and
/// nothing written; `CORELO_CODE_LINK`, `CORELO_CODE_MEMORY`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_link(
    prepared: *mut Prepared,
    program: usize,
    insns: *mut u64,
    insns_size: usize,
    insn_count: *mut usize,
    patches: *mut Patch,
    patches_size: usize,
    patch_count: *mut usize,
    error: *mut Error,
) -> Code {
    let link = || {
        // SAFETY: NULL or valid and used by nobody else now, the caller's promise.
        let prepared = unsafe { prepared.as_mut() }.ok_or(CoreFailure::argument("prepared is NULL"))?;
        // SAFETY: the caller's promise.
        let insns = unsafe { buffer(insns.cast::<MaybeUninit<u64>>(), insns_size) }
            .ok_or(CoreFailure::argument("insns is NULL"))?;
        // SAFETY: the caller's promise.
        let patches = unsafe { buffer(patches.cast::<MaybeUninit<Patch>>(), patches_size) }
            .ok_or(CoreFailure::argument("patches is NULL"))?;
        let (id, _) = function(prepared, program)?;
        let mut scratch = prepared.arena.scratch();
        let linked = prepared.inner.program(id, &mut scratch)?;
        // SAFETY: NULL or writable, the caller's promise.
        unsafe { store(insn_count, linked.insns.len()) }.ok_or(CoreFailure::argument("insn_count is NULL"))?;
        // SAFETY: NULL or writable, the caller's promise.
        unsafe { store(patch_count, linked.references.len()) }.ok_or(CoreFailure::argument("patch_count is NULL"))?;
        let (Some(insns), Some(patches)) =
            (insns.get_mut(..linked.insns.len()), patches.get_mut(..linked.references.len()))
        else {
            return Err(CoreFailure::text(Code::Space, "too little room for the linked program"));
        };
        for (place, insn) in insns.iter_mut().zip(linked.insns.iter()) {
            place.write(u64::from_ne_bytes(raw(*insn)));
        }
        for (place, reference) in patches.iter_mut().zip(linked.references) {
            let (kind, number) = match reference.kind() {
                ReferenceKind::Map(map) => (Reference::Map, map.get()),
                ReferenceKind::MapValue(map) => (Reference::MapValue, map.get()),
                ReferenceKind::ExternLoad(id) => (Reference::ExternLoad, id.get()),
                ReferenceKind::ExternCall(id) => (Reference::ExternCall, id.get()),
            };
            place.write(Patch { insn_idx: reference.insn_idx, kind, number });
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { finish(link(), error) }
}

/// An instruction's bytes as they lie in the object.
pub(crate) fn raw(insn: Insn) -> [u8; INSN_SIZE] {
    let mut bytes = [0; INSN_SIZE];
    bytes.copy_from_slice(zerocopy::IntoBytes::as_bytes(&insn));
    bytes
}

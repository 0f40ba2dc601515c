//! Contexts of global functions for kernels that do not know `arg:ctx` (before 6.8).
//!
//! The verifier looks at a global function alone, and takes a parameter for the program's context by its type: a pointer to
//! a struct of the name that the program type has for it. A function that programs of several types call declares `void *`
//! and the tag `arg:ctx`, which older kernels do not read. As libbpf (`bpf_program_fixup_func_info`), each function that a
//! program has gets a copy of its FUNC and FUNC_PROTO with the expected type for the parameters that bear the tag, and the
//! program's function info names the copies. Ids stay: what is added comes after the last type.

use super::sanitize::{HEADER, SanitizeError, Writer};
use super::{Btf, BtfError, FIXED, Info, Kind, Type, TypeId, Types};
use crate::arena::{Arena, Part};
use crate::bytes::u32_bytes;
use crate::limits::MAX_CHAIN;
use crate::numbers::{to_u32, to_usize};
use crate::uapi::{ProgType, linkage};

const TAG: &[u8] = b"arg:ctx";
/// The typedef that stands for the registers of a kprobe.
const USER_REGS: &[u8] = b"bpf_user_pt_regs_t";
/// Bytes of a parameter; of a declaration tag.
const PARAM: usize = 8;
const DECL_TAG: usize = FIXED + 4;
/// Where the type's id is in a record of function info.
const INFO_TYPE: usize = 4;

/// The struct that the verifier knows the context of these programs by; `None` where it has no name.
#[must_use]
pub fn struct_name(program: ProgType) -> Option<&'static [u8]> {
    Some(match program {
        ProgType::CGROUP_DEVICE => b"bpf_cgroup_dev_ctx",
        ProgType::CGROUP_SOCK => b"bpf_sock",
        ProgType::CGROUP_SOCK_ADDR => b"bpf_sock_addr",
        ProgType::CGROUP_SOCKOPT => b"bpf_sockopt",
        ProgType::CGROUP_SYSCTL => b"bpf_sysctl",
        ProgType::KPROBE => USER_REGS,
        ProgType::NETFILTER => b"bpf_nf_ctx",
        ProgType::PERF_EVENT => b"bpf_perf_event_data",
        ProgType::RAW_TRACEPOINT | ProgType::RAW_TRACEPOINT_WRITABLE => b"bpf_raw_tracepoint_args",
        ProgType::SK_LOOKUP => b"bpf_sk_lookup",
        ProgType::SK_MSG => b"sk_msg_md",
        ProgType::SK_REUSEPORT => b"sk_reuseport_md",
        ProgType::SOCK_OPS => b"bpf_sock_ops",
        ProgType::XDP => b"xdp_md",
        ProgType::CGROUP_SKB
        | ProgType::FLOW_DISSECTOR
        | ProgType::LWT_IN
        | ProgType::LWT_OUT
        | ProgType::LWT_SEG6LOCAL
        | ProgType::LWT_XMIT
        | ProgType::SCHED_ACT
        | ProgType::SCHED_CLS
        | ProgType::SK_SKB
        | ProgType::SOCKET_FILTER => b"__sk_buff",
        _ => return None,
    })
}

/// What [`struct_name`] stands for on this architecture, as programs of perf events may declare it.
const REGS: &[u8] = if cfg!(any(target_arch = "aarch64", target_arch = "s390x")) {
    b"user_pt_regs"
} else if cfg!(any(target_arch = "riscv64", target_arch = "riscv32")) {
    b"user_regs_struct"
} else {
    b"pt_regs"
};

/// The BTF for one program: that of the object as the kernel was given it (`kernel`; `types` are the object's own), with
/// types for the contexts of the functions in `func_info` behind it; `func_info`, of `record_len` bytes each, then names
/// those. `None` where no function needs any, and nothing is changed.
///
/// # Errors
/// [`SanitizeError::Btf`], [`SanitizeError::Arena`]
pub fn with_contexts<'a>(
    types: &Types<'_>,
    kernel: &[u8],
    program: ProgType,
    func_info: &mut [u8],
    record_len: u32,
    arena: &mut Arena<'a>,
) -> Result<Option<&'a [u8]>, SanitizeError> {
    let Some(name) = struct_name(program) else { return Ok(None) };
    let kernel = Btf::parse(kernel)?;
    let work = Work { types, kernel, program, name };
    let record_len = to_usize(record_len).max(FIXED - 4);
    let mut added = 0usize;
    for record in func_info.chunks_exact(record_len) {
        added = added.saturating_add(work.added_len(id_of(record, &kernel))?);
    }
    if added == 0 {
        return Ok(None);
    }
    // The struct, and the pointer to it.
    added = added.saturating_add(2 * FIXED);
    let types_len = kernel.types_len().saturating_add(added);
    let strings_len = kernel.strings().len().saturating_add(name.len()).saturating_add(1);
    let len = to_usize(HEADER).saturating_add(types_len).saturating_add(strings_len);
    let copy = arena.take::<u8>(len, Part::Btf)?;
    let mut out = Writer { left: &mut *copy, endian: kernel.endian() };
    out.header(to_u32(types_len), to_u32(strings_len));
    out.bytes(kernel.types.data());
    let mut next = work.end_id()?;
    out.words(&[to_u32(kernel.strings().len()), Info::new(Kind::Struct, 0, false).0, 0]);
    out.words(&[0, Info::new(Kind::Ptr, 0, false).0, next]);
    let pointer = next.saturating_add(1);
    next = next.saturating_add(2);
    for record in func_info.chunks_exact_mut(record_len) {
        let id = id_of(record, &kernel);
        if work.added_len(id)? != 0 {
            let func = work.write(id, pointer, next, &mut out)?;
            if let Some(place) = record.get_mut(INFO_TYPE..INFO_TYPE + 4) {
                place.copy_from_slice(&u32_bytes(func, kernel.endian()));
            }
            next = func.saturating_add(1).saturating_add(to_u32(work.tags(id)?));
        }
    }
    out.bytes(kernel.strings());
    out.bytes(name);
    out.bytes(&[0]);
    Ok(Some(copy))
}

fn id_of(record: &[u8], btf: &Btf<'_>) -> TypeId {
    TypeId(crate::bytes::Bytes::new(record, btf.endian()).u32(INFO_TYPE).unwrap_or(0))
}

struct Work<'w, 'a> {
    types: &'w Types<'a>,
    kernel: Btf<'w>,
    program: ProgType,
    name: &'static [u8],
}

impl<'w> Work<'w, '_> {
    /// The type after the last one of the kernel's BTF.
    fn end_id(&self) -> Result<u32, BtfError> {
        let mut end = 1;
        for ty in self.kernel.iter() {
            end = ty?.id().0.saturating_add(1);
        }
        Ok(end)
    }

    /// A type as the kernel got it.
    fn kernel_type(&self, id: TypeId) -> Result<Type<'w>, BtfError> {
        for ty in self.kernel.iter() {
            let ty = ty?;
            if ty.id() == id {
                return Ok(ty);
            }
        }
        Err(BtfError::NoSuchType { id })
    }

    /// Whether the kernel is given declaration tags: else they are integers.
    fn tags(&self, func: TypeId) -> Result<usize, BtfError> {
        let mut tags = 0usize;
        self.each(func, |tag, _| {
            if self.kernel_type(tag)?.kind() == Kind::DeclTag {
                tags = tags.saturating_add(1);
            }
            Ok(())
        })?;
        Ok(tags)
    }

    /// Calls `each` with the tag and the number of every parameter of the function that is to have another type.
    fn each(&self, func: TypeId, mut each: impl FnMut(TypeId, u32) -> Result<(), BtfError>) -> Result<(), BtfError> {
        let Ok(ty) = self.types.get(func) else { return Ok(()) };
        if ty.kind() != Kind::Func || ty.linkage() != linkage::GLOBAL {
            return Ok(());
        }
        let proto = self.types.get(ty.type_id())?;
        if proto.kind() != Kind::FuncProto {
            return Ok(());
        }
        for tag in self.types.btf().iter() {
            let tag = tag?;
            if tag.kind() != Kind::DeclTag || tag.type_id() != func || !self.types.string_is(tag.name_off(), TAG) {
                continue;
            }
            let index = tag.component_idx();
            let param = u32::try_from(index).ok().and_then(|index| Some((index, proto.param(index)?)));
            let Some((index, param)) = param else { continue };
            if self.is_other_type(param.type_id)? {
                each(tag.id(), index)?;
            }
        }
        Ok(())
    }

    /// Whether the verifier would not know a parameter of this type for the context (libbpf: `need_func_arg_type_fixup`).
    fn is_other_type(&self, id: TypeId) -> Result<bool, BtfError> {
        let types = self.types;
        let pointer = types.skip_modifiers(id)?;
        if pointer.kind() != Kind::Ptr {
            return Ok(false);
        }
        let is_probe = self.program == ProgType::KPROBE || self.program == ProgType::PERF_EVENT;
        if is_probe && self.is_user_regs(pointer.type_id())? {
            return Ok(false);
        }
        let ty = types.skip_modifiers(pointer.type_id())?;
        if ty.id() == TypeId::VOID {
            return Ok(true);
        }
        let is_struct = |name: &[u8]| ty.kind() == Kind::Struct && types.string_is(ty.name_off(), name);
        if is_struct(self.name) {
            return Ok(false);
        }
        Ok(match self.program {
            ProgType::KPROBE => is_struct(b"pt_regs"),
            ProgType::PERF_EVENT => is_struct(REGS),
            ProgType::RAW_TRACEPOINT | ProgType::RAW_TRACEPOINT_WRITABLE => {
                ty.kind() == Kind::Int && ty.byte_size() == 8
            }
            _ => false,
        })
    }

    /// Whether it is the typedef by which the verifier knows the registers of a probe, perhaps const.
    fn is_user_regs(&self, id: TypeId) -> Result<bool, BtfError> {
        let mut ty = self.types.get(id)?;
        for _ in 0..MAX_CHAIN {
            match ty.kind() {
                Kind::Typedef => return Ok(self.types.string_is(ty.name_off(), USER_REGS)),
                kind if kind.is_modifier_or_typedef() => ty = self.types.get(ty.type_id())?,
                _ => return Ok(false),
            }
        }
        Err(BtfError::ChainTooLong { id })
    }

    /// Bytes of the types that are added for a function: 0 where it stays as it is.
    fn added_len(&self, func: TypeId) -> Result<usize, BtfError> {
        let mut params = 0usize;
        self.each(func, |_, _| {
            params = params.saturating_add(1);
            Ok(())
        })?;
        if params == 0 {
            return Ok(0);
        }
        let ty = self.kernel_type(func)?;
        if ty.kind() != Kind::Func {
            return Ok(0);
        }
        let proto = self.kernel_type(ty.type_id())?;
        let tags = self.tags(func)?.saturating_mul(DECL_TAG);
        Ok((2 * FIXED).saturating_add(to_usize(proto.vlen()).saturating_mul(PARAM)).saturating_add(tags))
    }

    /// Writes the copy of a prototype, of its function and of the tags; the result is the function's id.
    fn write(&self, func: TypeId, pointer: u32, proto_id: u32, out: &mut Writer<'_>) -> Result<u32, BtfError> {
        let ty = self.kernel_type(func)?;
        let proto = self.kernel_type(ty.type_id())?;
        out.words(&[proto.name_off(), proto.info().0, proto.size_or_type()]);
        for (index, param) in proto.params().enumerate() {
            let mut type_id = param.type_id.0;
            self.each(func, |_, context| {
                if to_usize(context) == index {
                    type_id = pointer;
                }
                Ok(())
            })?;
            out.words(&[param.name_off, type_id]);
        }
        let func_id = proto_id.saturating_add(1);
        out.words(&[ty.name_off(), ty.info().0, proto_id]);
        self.each(func, |tag, index| {
            let tag = self.kernel_type(tag)?;
            if tag.kind() == Kind::DeclTag {
                out.words(&[tag.name_off(), tag.info().0, func_id, index]);
            }
            Ok(())
        })?;
        Ok(func_id)
    }
}

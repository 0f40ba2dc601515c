//! One fentry, fexit or fsession program on many functions: `fentry.multi` and its like.
//!
//! Linux after 7.2; CAP_BPF and CAP_PERFMON

use std::os::fd::BorrowedFd;

use corelo_core::arena::{Arena, Part};
use corelo_core::btf::{Btf, BtfError, Kind, Type, Types};

use super::{Link, LinkError, Multi, call, multi};
use crate::attach::glob;
use crate::kernel::{KernelBtf, KernelBtfError};
use crate::sys::list::Ids;
use crate::sys::mmap::AnonMap;
use crate::sys::{Errno, bpf};

/// Types per entry of the index, and how many bytes of types there are at least to each byte of the index then.
const STRIDE: u32 = 64;
const TYPES_PER_INDEX: usize = 128;

/// The kernel traces no function with more arguments, and none with an argument of more bytes.
const MAX_ARGUMENTS: u32 = 12;
const MAX_ARGUMENT_SIZE: u32 = 16;

/// Attaches to every function of the kernel, or of a module, whose name fits a pattern with `*` and `?` and that can be
/// traced, by one link. `attach_type` is the one that the program was loaded with; a program for a module was loaded with
/// that module's BTF.
///
/// # Errors
/// [`LinkError::NoFunction`] where nothing fits, [`LinkError::NoMulti`], [`LinkError::File`], [`LinkError::Kernel`].
pub fn attach_pattern(
    program: BorrowedFd<'_>,
    attach_type: u32,
    module: Option<&str>,
    pattern: &[u8],
) -> Result<Link, LinkError> {
    let kernel = KernelBtf::open().map_err(|error| unreadable("/sys/kernel/btf/vmlinux", error))?;
    let module =
        module.map(KernelBtf::open_module).transpose().map_err(|error| unreadable("BTF of the module", error))?;
    let ids = functions(&kernel, module.as_deref(), pattern)?;
    if ids.as_slice().is_empty() {
        return Err(LinkError::NoFunction);
    }
    attach(program, attach_type, ids.as_slice(), &[])
}

/// Attaches to functions by the ids of their `FUNC`s. `cookies` is empty or as long as the functions.
///
/// # Errors
/// [`LinkError::NoMulti`], [`LinkError::Kernel`].
pub fn attach(program: BorrowedFd<'_>, attach_type: u32, ids: &[u32], cookies: &[u64]) -> Result<Link, LinkError> {
    multi::create_as(program, Multi::Tracing, attach_type, &bpf::LinkTarget::TracingMulti { ids, cookies })
}

fn unreadable(file: &'static str, error: KernelBtfError) -> LinkError {
    let errno = match error {
        KernelBtfError::Open(errno) | KernelBtfError::Read(errno) | KernelBtfError::Memory(errno) => errno,
        KernelBtfError::Missing => Errno::ENOENT,
        _ => Errno::EINVAL,
    };
    LinkError::File { file, errno }
}

/// The ids of the functions that fit and can be traced.
fn functions(kernel: &[u8], module: Option<&[u8]>, pattern: &[u8]) -> Result<Ids, LinkError> {
    let bytes = kernel.len().saturating_add(module.map_or(0, <[u8]>::len)) / TYPES_PER_INDEX + 4096;
    let mut memory = AnonMap::new(bytes).map_err(call("mmap"))?;
    let mut arena = Arena::new(&mut memory);
    let mut ids = Ids::new();
    let mut no_memory = None;
    let mut find = || -> Result<(), BtfError> {
        let base = Types::index(Btf::parse(kernel)?, STRIDE, None, &mut arena, Part::KernelIndex)?;
        let mut scratch = arena.scratch();
        let types = match module {
            Some(module) => {
                let module = Btf::parse_split(module, &base)?;
                Types::index(module, STRIDE, Some(&base), &mut scratch, Part::KernelIndex)?
            }
            None => base,
        };
        for ty in types.btf().iter() {
            let ty = ty?;
            let fits = ty.kind() == Kind::Func && glob::matches(pattern, types.name(&ty)?);
            if !fits || !can_be_traced(&types, &ty)? {
                continue;
            }
            if let Err(errno) = ids.push(ty.id().0) {
                no_memory = Some(errno);
                break;
            }
        }
        Ok(())
    };
    find().map_err(|_| LinkError::File { file: "/sys/kernel/btf", errno: Errno::EINVAL })?;
    match no_memory {
        Some(errno) => Err(call("mmap")(errno)),
        None => Ok(ids),
    }
}

/// Whether the kernel has a trampoline for such a function (kernel: `btf_distill_func_proto`).
fn can_be_traced(types: &Types<'_>, function: &Type<'_>) -> Result<bool, BtfError> {
    let prototype = types.get(function.type_id())?;
    if prototype.kind() != Kind::FuncProto || prototype.vlen() > MAX_ARGUMENTS {
        return Ok(false);
    }
    if types.skip_modifiers(prototype.type_id())?.kind().is_composite() {
        return Ok(false);
    }
    for param in prototype.params() {
        let ty = types.skip_modifiers(param.type_id)?;
        // As the last one void stands for variable arguments.
        if ty.kind() == Kind::Void || types.byte_size(ty.id())? > MAX_ARGUMENT_SIZE {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelo_tests::btf_builder::{BtfBuilder, IntEncoding};
    use corelo_tests::endian::Endian;

    #[test]
    fn functions_that_fit_and_can_be_traced_are_found() {
        let mut btf = BtfBuilder::new(Endian::native());
        let int = btf.int("int", 4, IntEncoding::Signed);
        let (small, large) = (btf.struct_("small", 16, &[]), btf.struct_("large", 17, &[]));
        let alias = btf.typedef("alias", large);
        let ptr = btf.ptr(large);
        let add = |btf: &mut BtfBuilder, name: &str, returns, params: &[u32]| {
            let params: Vec<(&str, u32)> = params.iter().map(|&ty| (if ty == 0 { "" } else { "p" }, ty)).collect();
            let proto = btf.func_proto(returns, &params);
            btf.func(name, proto, 0)
        };
        let wanted = [
            add(&mut btf, "tcp_plain", int, &[int, ptr]),
            add(&mut btf, "tcp_none", 0, &[]),
            add(&mut btf, "tcp_small", ptr, &[small]),
            add(&mut btf, "tcp_twelve", 0, &[int; 12]),
        ];
        add(&mut btf, "udp_plain", int, &[int]);
        add(&mut btf, "tcp_thirteen", 0, &[int; 13]);
        add(&mut btf, "tcp_large", 0, &[large]);
        add(&mut btf, "tcp_alias", 0, &[alias]);
        add(&mut btf, "tcp_struct", small, &[]);
        add(&mut btf, "tcp_variable", 0, &[int, 0]);
        add(&mut btf, "tcp_void", 0, &[0, int]);
        let mut module = btf.split_on();
        let of_module = add(&mut module, "tcp_module", int, &[int]);
        let (kernel, module) = (btf.build(), module.build());
        assert_eq!(functions(&kernel, None, b"tcp_*").unwrap().as_slice(), wanted);
        assert_eq!(functions(&kernel, Some(&module), b"tcp_*").unwrap().as_slice(), [of_module]);
        assert_eq!(functions(&kernel, None, b"tcp_?mall").unwrap().as_slice(), [wanted[2]]);
        assert!(functions(&kernel, None, b"sctp_*").unwrap().as_slice().is_empty());
        assert!(functions(&kernel[..40], None, b"*").is_err());
    }

    #[test]
    fn a_kernel_without_such_links_says_so() {
        use std::os::fd::AsFd;
        // No program at all: whatever is refused first, it is no link.
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(attach(file.as_fd(), 59, &[1, 2], &[]).is_err());
        let short = attach(file.as_fd(), 59, &[1, 2], &[1]);
        let is_refused = matches!(
            short,
            Err(LinkError::NoMulti { errno: Errno::EINVAL, .. } | LinkError::Kernel { errno: Errno::EINVAL, .. })
        );
        assert!(is_refused, "{short:?}");
    }

    #[test]
    fn ids_and_cookies_reach_the_kernel_where_it_looks_for_them() {
        use crate::sys::fake::{install, read_from, some_fd, u32_at};
        use std::os::fd::AsFd;
        let null = std::fs::File::open("/dev/null").unwrap();
        let _guard = install(|command, block| {
            assert_eq!((command, u32_at(block, 8), u32_at(block, 12)), (bpf::cmd::LINK_CREATE, 60, 0));
            assert_eq!(read_from(block, 16, 8), [7u32, 70_000].map(u32::to_ne_bytes).as_flattened());
            assert_eq!(read_from(block, 24, 16), [1u64, u64::MAX].map(u64::to_ne_bytes).as_flattened());
            assert_eq!((u32_at(block, 32), block.len() >= 36), (2, true));
            Some(Ok(some_fd()))
        });
        drop(attach(null.as_fd(), 60, &[7, 70_000], &[1, u64::MAX]).unwrap());
    }
}

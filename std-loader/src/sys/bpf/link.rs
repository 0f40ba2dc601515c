//! Links: `BPF_LINK_*`, raw tracepoints and iterators.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, OwnedFd};

use zerocopy::IntoBytes;

use super::super::attr;
use super::super::{Errno, raw_bpf};
use super::{address, bpf_fd, c_address, cmd, length, raw};

/// BPF_RAW_TRACEPOINT_OPEN: raw tracepoints by name, and programs whose target was fixed at load (tp_btf, fentry, lsm) by
/// `None`.
pub(crate) fn raw_tracepoint_open(name: Option<&CStr>, program: BorrowedFd<'_>, cookie: u64) -> Result<OwnedFd, Errno> {
    let mut block =
        attr::RawTracepointOpen { name: name.map_or(0, c_address), prog_fd: raw(program), cookie, ..attr::zeroed() };
    // SAFETY: the name is NUL-terminated; the result is a new descriptor.
    unsafe { bpf_fd(cmd::RAW_TRACEPOINT_OPEN, &mut block) }
}

/// A pointer to a C string in the form that the multi-attach lists want.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct CStrAddress<'a>(u64, PhantomData<&'a CStr>);

impl<'a> CStrAddress<'a> {
    /// The address of `text`.
    #[must_use]
    pub fn new(text: &'a CStr) -> Self {
        CStrAddress(c_address(text), PhantomData)
    }
}

/// Where a link goes: the union of BPF_LINK_CREATE.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LinkTarget<'a> {
    /// Nothing beyond the target descriptor or interface index.
    Plain,
    /// What an iterator walks: `union bpf_iter_link_info` as bytes.
    Iter(&'a [u8]),
    PerfEvent {
        cookie: u64,
    },
    Tracing {
        target_btf_id: u32,
        cookie: u64,
    },
    KprobeMulti {
        functions: Functions<'a>,
        cookies: &'a [u64],
        flags: u32,
    },
    TracingMulti {
        ids: &'a [u32],
        cookies: &'a [u64],
    },
    UprobeMulti {
        path: &'a CStr,
        offsets: &'a [u64],
        ref_ctr_offsets: &'a [u64],
        cookies: &'a [u64],
        pid: u32,
        flags: u32,
    },
    Netfilter {
        pf: u32,
        hooknum: u32,
        priority: i32,
        flags: u32,
    },
    /// tcx, netkit, cgroup: beside which other program.
    Ordered {
        relative: u32,
        expected_revision: u64,
    },
}

/// The functions of a multi-kprobe.
#[derive(Debug, Clone, Copy)]
pub enum Functions<'a> {
    /// By symbol.
    Symbols(&'a [CStrAddress<'a>]),
    /// By address.
    Addresses(&'a [u64]),
}

/// BPF_LINK_CREATE. `object` is the program (the map for struct_ops), `target` the target's descriptor or interface index.
pub(crate) fn link_create(
    object: BorrowedFd<'_>,
    target: u32,
    attach_type: u32,
    flags: u32,
    how: &LinkTarget<'_>,
) -> Result<OwnedFd, Errno> {
    let mut block = attr::LinkCreate { prog_fd: raw(object), target_fd: target, attach_type, flags, target: [0; 6] };
    let union = block.target.as_mut_bytes();
    let filled = match *how {
        LinkTarget::Plain => Ok(()),
        LinkTarget::Iter([]) => Ok(()),
        LinkTarget::Iter(bytes) => {
            attr::LinkIter { iter_info: address(bytes), iter_info_len: length(bytes)?, ..attr::zeroed() }
                .write_to_prefix(union)
                .map_err(drop)
        }
        LinkTarget::PerfEvent { cookie } => {
            attr::LinkPerfEvent { bpf_cookie: cookie }.write_to_prefix(union).map_err(drop)
        }
        LinkTarget::Tracing { target_btf_id, cookie } => {
            attr::LinkTracing { target_btf_id, cookie, ..attr::zeroed() }.write_to_prefix(union).map_err(drop)
        }
        LinkTarget::KprobeMulti { functions, cookies, flags } => {
            let (cnt, syms, addrs) = match functions {
                Functions::Symbols(symbols) => (symbols.len(), address(symbols), 0),
                Functions::Addresses(addresses) => (addresses.len(), 0, address(addresses)),
            };
            if !cookies.is_empty() && cookies.len() != cnt {
                return Err(Errno::EINVAL);
            }
            attr::LinkKprobeMulti { flags, cnt: cnt as u32, syms, addrs, cookies: address(cookies) }
                .write_to_prefix(union)
                .map_err(drop)
        }
        LinkTarget::TracingMulti { ids, cookies } => {
            if !cookies.is_empty() && cookies.len() != ids.len() {
                return Err(Errno::EINVAL);
            }
            attr::LinkTracingMulti { ids: address(ids), cookies: address(cookies), cnt: ids.len() as u32, pad: 0 }
                .write_to_prefix(union)
                .map_err(drop)
        }
        LinkTarget::UprobeMulti { path, offsets, ref_ctr_offsets, cookies, pid, flags } => {
            let fits = |list: &[u64]| list.is_empty() || list.len() == offsets.len();
            if !fits(ref_ctr_offsets) || !fits(cookies) {
                return Err(Errno::EINVAL);
            }
            attr::LinkUprobeMulti {
                path: c_address(path),
                offsets: address(offsets),
                ref_ctr_offsets: address(ref_ctr_offsets),
                cookies: address(cookies),
                cnt: offsets.len() as u32,
                flags,
                pid,
                pad: 0,
            }
            .write_to_prefix(union)
            .map_err(drop)
        }
        LinkTarget::Netfilter { pf, hooknum, priority, flags } => {
            attr::LinkNetfilter { pf, hooknum, priority, flags }.write_to_prefix(union).map_err(drop)
        }
        LinkTarget::Ordered { relative, expected_revision } => {
            attr::LinkOrdered { relative, expected_revision, ..attr::zeroed() }.write_to_prefix(union).map_err(drop)
        }
    };
    filled.map_err(|()| Errno::E2BIG)?;
    // SAFETY: every list has its own length beside it, paths and symbols are NUL-terminated and outlive the call; the
    // result is a new descriptor.
    unsafe { bpf_fd(cmd::LINK_CREATE, &mut block) }
}

/// A descriptor where a target or an interface index goes.
pub(crate) fn target_fd(fd: BorrowedFd<'_>) -> u32 {
    raw(fd)
}

/// BPF_LINK_UPDATE: another program (another map for struct_ops) behind the same link; `old` makes it conditional.
///
/// # Errors
/// EPERM where `old` is given and not what is attached, EINVAL where the kind of link cannot change its program.
pub fn link_update(link: BorrowedFd<'_>, new: BorrowedFd<'_>, old: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    const BPF_F_REPLACE: u32 = 1 << 2;
    let mut block = attr::LinkUpdate {
        link_fd: raw(link),
        new_fd: raw(new),
        flags: if old.is_some() { BPF_F_REPLACE } else { 0 },
        old_fd: old.map_or(0, raw),
    };
    // SAFETY: no pointers.
    unsafe { raw_bpf(cmd::LINK_UPDATE, &mut block) }.map(drop)
}

/// BPF_LINK_DETACH: detaches now, whoever else holds the link.
///
/// # Errors
/// EOPNOTSUPP where the kind of link cannot.
pub fn link_detach(link: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut block = attr::LinkDetach { link_fd: raw(link) };
    // SAFETY: no pointers.
    unsafe { raw_bpf(cmd::LINK_DETACH, &mut block) }.map(drop)
}

/// BPF_ITER_CREATE: one walk of an iterator link, to be read.
pub(crate) fn iter_create(link: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut block = attr::IterCreate { link_fd: raw(link), flags: 0 };
    // SAFETY: no pointers; the result is a new descriptor.
    unsafe { bpf_fd(cmd::ITER_CREATE, &mut block) }
}

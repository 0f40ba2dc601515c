//! bpf(2), one safe function per command.
//!
//! Each builds its argument block from descriptors and slices, so that every pointer in it is valid for the length
//! beside it, and turns the result into an `OwnedFd` or an [`Errno`]. Nothing is retried here except where it says so.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::attr;
use super::{Errno, raw_bpf};

/// Command numbers: `enum bpf_cmd` of the uapi.
pub(crate) mod cmd {
    pub(crate) const MAP_CREATE: u32 = 0;
    pub(crate) const MAP_LOOKUP_ELEM: u32 = 1;
    pub(crate) const MAP_UPDATE_ELEM: u32 = 2;
    pub(crate) const MAP_DELETE_ELEM: u32 = 3;
    pub(crate) const MAP_GET_NEXT_KEY: u32 = 4;
    pub(crate) const PROG_LOAD: u32 = 5;
    pub(crate) const OBJ_PIN: u32 = 6;
    pub(crate) const OBJ_GET: u32 = 7;
    pub(crate) const PROG_ATTACH: u32 = 8;
    pub(crate) const PROG_DETACH: u32 = 9;
    pub(crate) const PROG_TEST_RUN: u32 = 10;
    pub(crate) const PROG_GET_NEXT_ID: u32 = 11;
    pub(crate) const MAP_GET_NEXT_ID: u32 = 12;
    pub(crate) const PROG_GET_FD_BY_ID: u32 = 13;
    pub(crate) const MAP_GET_FD_BY_ID: u32 = 14;
    pub(crate) const OBJ_GET_INFO_BY_FD: u32 = 15;
    pub(crate) const RAW_TRACEPOINT_OPEN: u32 = 17;
    pub(crate) const BTF_LOAD: u32 = 18;
    pub(crate) const BTF_GET_FD_BY_ID: u32 = 19;
    pub(crate) const MAP_LOOKUP_AND_DELETE_ELEM: u32 = 21;
    pub(crate) const MAP_FREEZE: u32 = 22;
    pub(crate) const BTF_GET_NEXT_ID: u32 = 23;
    pub(crate) const LINK_CREATE: u32 = 28;
    pub(crate) const LINK_UPDATE: u32 = 29;
    pub(crate) const LINK_GET_FD_BY_ID: u32 = 30;
    pub(crate) const LINK_GET_NEXT_ID: u32 = 31;
    pub(crate) const ITER_CREATE: u32 = 33;
    pub(crate) const LINK_DETACH: u32 = 34;
    pub(crate) const PROG_BIND_MAP: u32 = 35;
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// A slice's address as the uapi wants it; an empty slice is a null pointer, which is how "not given" is written.
fn address<T>(slice: &[T]) -> u64 {
    if slice.is_empty() { 0 } else { slice.as_ptr().expose_provenance() as u64 }
}

fn address_mut<T>(slice: &mut [T]) -> u64 {
    if slice.is_empty() { 0 } else { slice.as_mut_ptr().expose_provenance() as u64 }
}

fn c_address(text: &CStr) -> u64 {
    text.as_ptr().expose_provenance() as u64
}

fn length(bytes: &[u8]) -> Result<u32, Errno> {
    u32::try_from(bytes.len()).map_err(|_| Errno::E2BIG)
}

/// # Safety
/// As for `raw_bpf`, and `command` must return a new descriptor.
unsafe fn bpf_fd<A: IntoBytes + FromBytes>(command: u32, block: &mut A) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's promise.
    let fd = unsafe { raw_bpf(command, block)? };
    // SAFETY: the kernel has just made this descriptor for us; bpf(2) makes all of them close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A map's descriptor with the sizes that the kernel reads and writes through pointers: the reason why element
/// operations are safe.
#[derive(Debug)]
pub struct MapFd {
    fd: OwnedFd,
    map_type: u32,
    key_size: u32,
    /// Bytes of one value as user space exchanges it: per-CPU maps multiply.
    value_bytes: u32,
    max_entries: u32,
    map_flags: u32,
}

/// What a [`MapFd`] holds beside the descriptor.
pub(super) struct MapSizes {
    map_type: u32,
    key_size: u32,
    value_bytes: u32,
    max_entries: u32,
    map_flags: u32,
}

/// The map types with a value for each possible CPU: PERCPU_HASH, PERCPU_ARRAY, LRU_PERCPU_HASH, PERCPU_CGROUP_STORAGE.
pub(crate) const fn is_per_cpu(map_type: u32) -> bool {
    matches!(map_type, 5 | 6 | 10 | 21)
}

fn value_bytes(map_type: u32, value_size: u32) -> Result<u32, Errno> {
    if !is_per_cpu(map_type) {
        return Ok(value_size);
    }
    let cpus = crate::cpus::possible_count().map_err(|_| Errno::EIO)?;
    value_size.checked_next_multiple_of(8).and_then(|size| size.checked_mul(cpus)).ok_or(Errno::E2BIG)
}

impl AsFd for MapFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<MapFd> for OwnedFd {
    fn from(map: MapFd) -> OwnedFd {
        map.fd
    }
}

impl MapFd {
    /// Takes a map's descriptor from elsewhere (a pin, an id, another process) and asks the kernel for its sizes: one
    /// bpf(2) call.
    ///
    /// # Errors
    /// The kernel's error: EINVAL where `fd` is no map.
    pub fn from_fd(fd: OwnedFd) -> Result<MapFd, Errno> {
        let sizes = MapFd::sizes(&map_info(fd.as_fd())?)?;
        Ok(MapFd::with_sizes(fd, sizes))
    }

    pub(super) fn sizes(info: &MapInfo) -> Result<MapSizes, Errno> {
        Ok(MapSizes {
            map_type: info.map_type,
            key_size: info.key_size,
            value_bytes: value_bytes(info.map_type, info.value_size)?,
            max_entries: info.max_entries,
            map_flags: info.map_flags,
        })
    }

    pub(super) fn with_sizes(fd: OwnedFd, sizes: MapSizes) -> MapFd {
        MapFd {
            fd,
            map_type: sizes.map_type,
            key_size: sizes.key_size,
            value_bytes: sizes.value_bytes,
            max_entries: sizes.max_entries,
            map_flags: sizes.map_flags,
        }
    }

    /// A second descriptor of the same map.
    ///
    /// # Errors
    /// EMFILE and the like.
    pub fn try_clone(&self) -> Result<MapFd, Errno> {
        Ok(MapFd {
            fd: rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?,
            map_type: self.map_type,
            key_size: self.key_size,
            value_bytes: self.value_bytes,
            max_entries: self.max_entries,
            map_flags: self.map_flags,
        })
    }

    /// `enum bpf_map_type`.
    #[must_use]
    pub fn map_type(&self) -> u32 {
        self.map_type
    }

    /// Bytes of a key.
    #[must_use]
    pub fn key_size(&self) -> usize {
        self.key_size as usize
    }

    /// Bytes of a value as lookups and updates exchange it; for a per-CPU map, the size rounded up to 8, times the
    /// possible CPUs.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.value_bytes as usize
    }

    /// The number of entries asked for (or found, for a map that was there already).
    #[must_use]
    pub fn max_entries(&self) -> u32 {
        self.max_entries
    }

    /// BPF_F_* of creation.
    #[must_use]
    pub fn map_flags(&self) -> u32 {
        self.map_flags
    }

    fn elem(
        &self,
        command: u32,
        key: Option<&[u8]>,
        value: u64,
        value_len: Option<usize>,
        flags: u64,
    ) -> Result<(), Errno> {
        let key = key.unwrap_or(&[]);
        if key.len() != self.key_size() || value_len.is_some_and(|len| len != self.value_bytes()) {
            return Err(Errno::EINVAL);
        }
        let mut block =
            attr::MapElem { map_fd: raw(self.fd.as_fd()), key: address(key), value, flags, ..attr::zeroed() };
        // SAFETY: the kernel reads key_size bytes of the key, and reads or writes value_bytes of the value: both
        // lengths were just compared, and a map's sizes never change.
        unsafe { raw_bpf(command, &mut block) }.map(drop)
    }

    /// BPF_MAP_LOOKUP_ELEM: `value` is [`MapFd::value_bytes`] long.
    ///
    /// # Errors
    /// ENOENT where there is no such key; EINVAL also where a slice has another length than the map wants.
    pub fn lookup(&self, key: &[u8], value: &mut [u8], flags: u64) -> Result<(), Errno> {
        let len = value.len();
        self.elem(cmd::MAP_LOOKUP_ELEM, Some(key), address_mut(value), Some(len), flags)
    }

    /// BPF_MAP_LOOKUP_AND_DELETE_ELEM: pops from queues and stacks (an empty key), takes out of hash maps.
    ///
    /// # Errors
    /// As [`MapFd::lookup`].
    pub fn lookup_and_delete(&self, key: &[u8], value: &mut [u8], flags: u64) -> Result<(), Errno> {
        let len = value.len();
        self.elem(cmd::MAP_LOOKUP_AND_DELETE_ELEM, Some(key), address_mut(value), Some(len), flags)
    }

    /// BPF_MAP_UPDATE_ELEM. `flags`: 0 any, 1 only new (BPF_NOEXIST), 2 only existing (BPF_EXIST).
    ///
    /// # Errors
    /// EEXIST, ENOENT by `flags`; E2BIG where the map is full; EPERM where it is frozen; EINVAL for a wrong length.
    pub fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        self.elem(cmd::MAP_UPDATE_ELEM, Some(key), address(value), Some(value.len()), flags)
    }

    /// BPF_MAP_DELETE_ELEM.
    ///
    /// # Errors
    /// ENOENT where there is no such key; EINVAL where the type has no deletion.
    pub fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        self.elem(cmd::MAP_DELETE_ELEM, Some(key), 0, None, 0)
    }

    /// BPF_MAP_GET_NEXT_KEY: the key after `key` (the first for `None`) into `next`; false at the end.
    ///
    /// # Errors
    /// The kernel's error, or EINVAL for a wrong length.
    pub fn next_key(&self, key: Option<&[u8]>, next: &mut [u8]) -> Result<bool, Errno> {
        if next.len() != self.key_size() || key.is_some_and(|key| key.len() != self.key_size()) {
            return Err(Errno::EINVAL);
        }
        let mut block = attr::MapElem {
            map_fd: raw(self.fd.as_fd()),
            key: key.map_or(0, address),
            value: address_mut(next),
            ..attr::zeroed()
        };
        // SAFETY: the kernel reads and writes key_size bytes, which is what both slices have.
        match unsafe { raw_bpf(cmd::MAP_GET_NEXT_KEY, &mut block) } {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// BPF_MAP_FREEZE (Linux 5.2): user space may no longer write; programs are not affected.
    ///
    /// # Errors
    /// EBUSY where it is frozen already or mapped writable; EINVAL on older kernels.
    pub fn freeze(&self) -> Result<(), Errno> {
        freeze(self.fd.as_fd())
    }
}

/// Writes the one element of an array map, whose value has `value_size` bytes.
///
/// # Errors
/// EINVAL where `value` has not as many bytes; the kernel's error.
pub(crate) fn update_array(map: BorrowedFd<'_>, value: &[u8], value_size: u32) -> Result<(), Errno> {
    if value.len() != value_size as usize {
        return Err(Errno::EINVAL);
    }
    let key = 0u32;
    let mut block =
        attr::MapElem { map_fd: raw(map), key: address(key.as_bytes()), value: address(value), ..attr::zeroed() };
    // SAFETY: the key has the 4 bytes of an array's, the value as many as the map's; both live until the call returns.
    unsafe { raw_bpf(cmd::MAP_UPDATE_ELEM, &mut block) }.map(drop)
}

/// BPF_MAP_FREEZE by descriptor.
///
/// # Errors
/// The kernel's error.
pub(crate) fn freeze(map: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut block = attr::MapElem { map_fd: raw(map), ..attr::zeroed() };
    // SAFETY: no pointers.
    unsafe { raw_bpf(cmd::MAP_FREEZE, &mut block) }.map(drop)
}

/// BPF_MAP_CREATE.
pub(crate) fn map_create(block: &attr::MapCreate) -> Result<MapFd, Errno> {
    let mut copy = *block;
    let value_bytes = value_bytes(block.map_type, block.value_size)?;
    // SAFETY: no pointers; the result is a new descriptor.
    let fd = unsafe { bpf_fd(cmd::MAP_CREATE, &mut copy)? };
    Ok(MapFd {
        fd,
        map_type: block.map_type,
        key_size: block.key_size,
        value_bytes,
        max_entries: block.max_entries,
        map_flags: block.map_flags,
    })
}

/// What BPF_PROG_LOAD gets, borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgLoad<'a> {
    pub(crate) prog_type: u32,
    pub(crate) expected_attach_type: u32,
    pub(crate) insns: &'a [u8],
    pub(crate) license: &'a CStr,
    pub(crate) kern_version: u32,
    pub(crate) flags: u32,
    pub(crate) name: [u8; 16],
    pub(crate) ifindex: u32,
    pub(crate) btf_fd: Option<BorrowedFd<'a>>,
    pub(crate) func_info: &'a [u8],
    pub(crate) func_info_rec_size: u32,
    pub(crate) line_info: &'a [u8],
    pub(crate) line_info_rec_size: u32,
    pub(crate) attach_btf_id: u32,
    pub(crate) attach_fd: Option<BorrowedFd<'a>>,
    pub(crate) fd_array: &'a [i32],
    pub(crate) fd_array_cnt: u32,
    pub(crate) log_level: u32,
}

fn records(bytes: &[u8], size: u32) -> u32 {
    // Whole records only, so that the kernel reads no byte beyond the slice.
    (bytes.len() as u32).checked_div(size).unwrap_or(0)
}

/// BPF_PROG_LOAD. The second result is log_true_size: 0 on kernels before 6.4 and without a log.
pub(crate) fn prog_load(load: &ProgLoad<'_>, log: &mut [u8], log_true_size: &mut u32) -> Result<OwnedFd, Errno> {
    let func_info_cnt = records(load.func_info, load.func_info_rec_size);
    let line_info_cnt = records(load.line_info, load.line_info_rec_size);
    let mut block = attr::ProgLoad {
        prog_type: load.prog_type,
        insn_cnt: length(load.insns)? / 8,
        insns: address(load.insns),
        license: c_address(load.license),
        log_level: if log.is_empty() { 0 } else { load.log_level },
        log_size: length(log)?,
        log_buf: address_mut(log),
        kern_version: load.kern_version,
        prog_flags: load.flags,
        prog_name: load.name,
        prog_ifindex: load.ifindex,
        expected_attach_type: load.expected_attach_type,
        prog_btf_fd: load.btf_fd.map_or(0, raw),
        func_info_rec_size: load.func_info_rec_size * u32::from(func_info_cnt > 0),
        func_info: if func_info_cnt > 0 { address(load.func_info) } else { 0 },
        func_info_cnt,
        line_info_rec_size: load.line_info_rec_size * u32::from(line_info_cnt > 0),
        line_info: if line_info_cnt > 0 { address(load.line_info) } else { 0 },
        line_info_cnt,
        attach_btf_id: load.attach_btf_id,
        attach_fd: load.attach_fd.map_or(0, raw),
        fd_array: address(load.fd_array),
        fd_array_cnt: load.fd_array_cnt.min(load.fd_array.len() as u32),
        ..attr::zeroed()
    };
    // SAFETY: instructions, licence (NUL-terminated), both info tables and the log have the lengths given beside them;
    // the kernel only reads from the fd array. The result is a new descriptor.
    let result = unsafe { bpf_fd(cmd::PROG_LOAD, &mut block) };
    *log_true_size = block.log_true_size;
    result
}

/// BPF_BTF_LOAD.
pub(crate) fn btf_load(btf: &[u8], log: &mut [u8], log_level: u32, log_true_size: &mut u32) -> Result<OwnedFd, Errno> {
    let mut block = attr::BtfLoad {
        btf: address(btf),
        btf_log_buf: address_mut(log),
        btf_size: length(btf)?,
        btf_log_size: length(log)?,
        btf_log_level: if log.is_empty() { 0 } else { log_level },
        ..attr::zeroed()
    };
    // SAFETY: both slices have the lengths given beside them; the result is a new descriptor.
    let result = unsafe { bpf_fd(cmd::BTF_LOAD, &mut block) };
    *log_true_size = block.btf_log_true_size;
    result
}

/// BPF_OBJ_PIN: gives the object a name on a bpf file system.
///
/// # Errors
/// EEXIST where the name is taken, EPERM where the path is on no bpf file system, ENOENT for a missing directory.
pub fn obj_pin(fd: BorrowedFd<'_>, path: &CStr) -> Result<(), Errno> {
    let mut block = attr::Obj { pathname: c_address(path), bpf_fd: raw(fd), ..attr::zeroed() };
    // SAFETY: the path is NUL-terminated.
    unsafe { raw_bpf(cmd::OBJ_PIN, &mut block) }.map(drop)
}

/// BPF_OBJ_GET: a descriptor of a pinned map, program or link.
///
/// # Errors
/// ENOENT, EACCES, or EINVAL for a file that is no pin.
pub fn obj_get(path: &CStr) -> Result<OwnedFd, Errno> {
    let mut block = attr::Obj { pathname: c_address(path), ..attr::zeroed() };
    // SAFETY: the path is NUL-terminated; the result is a new descriptor.
    unsafe { bpf_fd(cmd::OBJ_GET, &mut block) }
}

/// BPF_PROG_ATTACH: the way of kernels, and of targets (sockmap), that have no link.
pub(crate) fn prog_attach(
    target: BorrowedFd<'_>,
    program: BorrowedFd<'_>,
    attach_type: u32,
    flags: u32,
) -> Result<(), Errno> {
    let mut block = attr::ProgAttach {
        target_fd: raw(target),
        attach_bpf_fd: raw(program),
        attach_type,
        attach_flags: flags,
        ..attr::zeroed()
    };
    // SAFETY: no pointers.
    unsafe { raw_bpf(cmd::PROG_ATTACH, &mut block) }.map(drop)
}

/// BPF_PROG_DETACH.
pub(crate) fn prog_detach(target: BorrowedFd<'_>, program: BorrowedFd<'_>, attach_type: u32) -> Result<(), Errno> {
    let mut block =
        attr::ProgAttach { target_fd: raw(target), attach_bpf_fd: raw(program), attach_type, ..attr::zeroed() };
    // SAFETY: no pointers.
    unsafe { raw_bpf(cmd::PROG_DETACH, &mut block) }.map(drop)
}

/// What BPF_PROG_TEST_RUN gets. Empty slices are "not given".
#[derive(Debug, Default)]
pub struct TestRun<'a> {
    /// The packet.
    pub data_in: &'a [u8],
    /// Where the packet goes after the run.
    pub data_out: &'a mut [u8],
    /// The context; `syscall` programs write to it.
    pub ctx_in: &'a mut [u8],
    /// Where the context goes after the run (not for raw tracepoints and `syscall`).
    pub ctx_out: &'a mut [u8],
    /// How many times; 0 is once.
    pub repeat: u32,
    /// BPF_F_TEST_RUN_ON_CPU (1) and the like.
    pub flags: u32,
    /// The CPU, with that flag.
    pub cpu: u32,
    /// Batch size of live XDP frames.
    pub batch_size: u32,
}

/// What BPF_PROG_TEST_RUN answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestRunResult {
    /// What the program returned.
    pub retval: u32,
    /// Nanoseconds of one run, averaged over the repeats.
    pub duration_ns: u32,
    /// Bytes of the packet after the run.
    pub data_size: u32,
    /// Bytes of the context after the run.
    pub ctx_size: u32,
}

/// BPF_PROG_TEST_RUN. EAGAIN (interrupted by a signal) is retried at most 5 times.
///
/// # Errors
/// ENOTSUPP (524) where the program type has no test run, ENOSPC where an output slice was too short.
pub fn prog_test_run(program: BorrowedFd<'_>, run: &mut TestRun<'_>) -> Result<TestRunResult, Errno> {
    let mut block = attr::TestRun {
        prog_fd: raw(program),
        data_size_in: length(run.data_in)?,
        data_size_out: length(run.data_out)?,
        data_in: address(run.data_in),
        data_out: address_mut(run.data_out),
        repeat: run.repeat,
        ctx_size_in: length(run.ctx_in)?,
        ctx_size_out: length(run.ctx_out)?,
        ctx_in: address_mut(run.ctx_in),
        ctx_out: address_mut(run.ctx_out),
        flags: run.flags,
        cpu: run.cpu,
        batch_size: run.batch_size,
        ..attr::zeroed()
    };
    let asked = block;
    for attempt in 0.. {
        // SAFETY: all four buffers have the lengths given beside them, and those that the kernel may write to
        // (`ctx_in` too) are borrowed mutably.
        match unsafe { raw_bpf(cmd::PROG_TEST_RUN, &mut block) } {
            Err(Errno::EAGAIN) if attempt < 5 => block = asked,
            Err(errno) => return Err(errno),
            Ok(_) => break,
        }
    }
    Ok(TestRunResult {
        retval: block.retval,
        duration_ns: block.duration,
        data_size: block.data_size_out,
        ctx_size: block.ctx_size_out,
    })
}

/// The kinds of object that the kernel numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// Programs.
    Program,
    /// Maps.
    Map,
    /// BTF objects, the kernel's own and its modules' among them.
    Btf,
    /// Links.
    Link,
}

/// BPF_*_GET_NEXT_ID: the first id above `id`, or `None`.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
pub fn next_id(kind: ObjectKind, id: u32) -> Result<Option<u32>, Errno> {
    let command = match kind {
        ObjectKind::Program => cmd::PROG_GET_NEXT_ID,
        ObjectKind::Map => cmd::MAP_GET_NEXT_ID,
        ObjectKind::Btf => cmd::BTF_GET_NEXT_ID,
        ObjectKind::Link => cmd::LINK_GET_NEXT_ID,
    };
    let mut block = attr::Id { id, ..attr::zeroed() };
    // SAFETY: no pointers.
    match unsafe { raw_bpf(command, &mut block) } {
        Ok(_) => Ok(Some(block.next_id)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// BPF_*_GET_FD_BY_ID.
///
/// # Errors
/// ENOENT where the object is gone meanwhile, EPERM without CAP_SYS_ADMIN.
pub fn fd_by_id(kind: ObjectKind, id: u32) -> Result<OwnedFd, Errno> {
    let command = match kind {
        ObjectKind::Program => cmd::PROG_GET_FD_BY_ID,
        ObjectKind::Map => cmd::MAP_GET_FD_BY_ID,
        ObjectKind::Btf => cmd::BTF_GET_FD_BY_ID,
        ObjectKind::Link => cmd::LINK_GET_FD_BY_ID,
    };
    let mut block = attr::Id { id, ..attr::zeroed() };
    // SAFETY: no pointers; the result is a new descriptor.
    unsafe { bpf_fd(command, &mut block) }
}

/// # Safety
/// Every pointer inside `info` must be valid for the count or length beside it.
unsafe fn info<T: IntoBytes + FromBytes + Immutable>(fd: BorrowedFd<'_>, info: &mut T) -> Result<(), Errno> {
    let mut block = attr::Info {
        bpf_fd: raw(fd),
        info_len: size_of::<T>() as u32,
        info: std::ptr::from_mut(info).expose_provenance() as u64,
    };
    // SAFETY: `info` is a live block of `info_len` bytes; the caller vouches for the pointers in it.
    unsafe { raw_bpf(cmd::OBJ_GET_INFO_BY_FD, &mut block) }.map(drop)
}

/// What the kernel says of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapInfo {
    /// `enum bpf_map_type`.
    pub map_type: u32,
    /// The kernel's number of it.
    pub id: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value, of one CPU.
    pub value_size: u32,
    /// Entries.
    pub max_entries: u32,
    /// BPF_F_* of creation.
    pub map_flags: u32,
    /// The name, NUL-padded.
    pub name: [u8; 16],
    /// The device it is offloaded to, or 0.
    pub ifindex: u32,
    /// The BTF object's id, or 0.
    pub btf_id: u32,
    /// The key's type there.
    pub btf_key_type_id: u32,
    /// The value's type there.
    pub btf_value_type_id: u32,
    /// The value's type in vmlinux, for struct_ops.
    pub btf_vmlinux_value_type_id: u32,
    /// Type-specific (bloom filters, arenas).
    pub map_extra: u64,
}

/// BPF_OBJ_GET_INFO_BY_FD of a map.
///
/// # Errors
/// EINVAL where `fd` is no BPF object.
pub fn map_info(fd: BorrowedFd<'_>) -> Result<MapInfo, Errno> {
    let mut block = attr::zeroed::<attr::MapInfo>();
    // SAFETY: the block has no pointers.
    unsafe { info(fd, &mut block)? };
    Ok(MapInfo {
        map_type: block.map_type,
        id: block.id,
        key_size: block.key_size,
        value_size: block.value_size,
        max_entries: block.max_entries,
        map_flags: block.map_flags,
        name: block.name,
        ifindex: block.ifindex,
        btf_id: block.btf_id,
        btf_key_type_id: block.btf_key_type_id,
        btf_value_type_id: block.btf_value_type_id,
        btf_vmlinux_value_type_id: block.btf_vmlinux_value_type_id,
        map_extra: block.map_extra,
    })
}

/// What the kernel says of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgInfo {
    /// `enum bpf_prog_type`.
    pub prog_type: u32,
    /// The kernel's number of it.
    pub id: u32,
    /// Hash of its instructions.
    pub tag: [u8; 8],
    /// The name, NUL-padded.
    pub name: [u8; 16],
    /// Bytes of machine code; 0 without a JIT or the right to know.
    pub jited_size: u32,
    /// Bytes of instructions after the verifier rewrote them.
    pub xlated_size: u32,
    /// Load time, nanoseconds since boot.
    pub load_time_ns: u64,
    /// How many maps it uses.
    pub nr_map_ids: u32,
    /// The BTF object's id, or 0.
    pub btf_id: u32,
    /// Functions described in it.
    pub nr_func_info: u32,
    /// Lines described in it.
    pub nr_line_info: u32,
    /// Whether the licence was compatible with the GPL.
    pub gpl_compatible: bool,
    /// Instructions the verifier walked; 0 before Linux 5.16.
    pub verified_insns: u32,
    /// BTF object of the attach target (id), or 0.
    pub attach_btf_obj_id: u32,
    /// Type id of the attach target there, or 0.
    pub attach_btf_id: u32,
}

/// BPF_OBJ_GET_INFO_BY_FD of a program.
///
/// # Errors
/// EINVAL where `fd` is no BPF object.
pub fn prog_info(fd: BorrowedFd<'_>) -> Result<ProgInfo, Errno> {
    let mut block = attr::zeroed::<attr::ProgInfo>();
    // SAFETY: all pointers are null and all counts 0.
    unsafe { info(fd, &mut block)? };
    Ok(ProgInfo {
        prog_type: block.prog_type,
        id: block.id,
        tag: block.tag,
        name: block.name,
        jited_size: block.jited_prog_len,
        xlated_size: block.xlated_prog_len,
        load_time_ns: block.load_time,
        nr_map_ids: block.nr_map_ids,
        btf_id: block.btf_id,
        nr_func_info: block.nr_func_info,
        nr_line_info: block.nr_line_info,
        // A one-bit field in C: the low bit on little-endian hosts, the high one on big-endian ones.
        gpl_compatible: block.gpl_compatible & if cfg!(target_endian = "big") { 1 << 31 } else { 1 } != 0,
        verified_insns: block.verified_insns,
        attach_btf_obj_id: block.attach_btf_obj_id,
        attach_btf_id: block.attach_btf_id,
    })
}

/// The ids of the maps that a program uses, as many as `ids` holds; the result is how many there are in all.
///
/// # Errors
/// EINVAL where `fd` is no BPF object.
pub fn prog_map_ids(fd: BorrowedFd<'_>, ids: &mut [u32]) -> Result<u32, Errno> {
    let mut block = attr::ProgInfo { nr_map_ids: ids.len() as u32, map_ids: address_mut(ids), ..attr::zeroed() };
    // SAFETY: the only pointer has its own slice's length beside it.
    unsafe { info(fd, &mut block)? };
    Ok(block.nr_map_ids)
}

/// The instructions of a program as the verifier left them, as many bytes as `insns` holds (the kernel cuts); the
/// result is how many bytes there are in all.
///
/// # Errors
/// EINVAL where `fd` is no BPF object.
pub fn prog_xlated(fd: BorrowedFd<'_>, insns: &mut [u8]) -> Result<u32, Errno> {
    let mut block =
        attr::ProgInfo { xlated_prog_len: length(insns)?, xlated_prog_insns: address_mut(insns), ..attr::zeroed() };
    // SAFETY: the only pointer has its own slice's length beside it.
    unsafe { info(fd, &mut block)? };
    Ok(block.xlated_prog_len)
}

/// What the kernel says of a BTF object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BtfInfo {
    /// The kernel's number of it.
    pub id: u32,
    /// Its size in bytes.
    pub btf_size: u32,
    /// Whether it belongs to the kernel or a module.
    pub kernel_btf: bool,
    /// Bytes of its name; 0 for an object's BTF and before Linux 5.11.
    pub name_len: u32,
}

/// BPF_OBJ_GET_INFO_BY_FD of a BTF object: its bytes into `data` and its name, with a NUL, into `name`, as far as they go;
/// both may be empty.
///
/// # Errors
/// ENOSPC where `name` is not empty and too short (it has the name's start then).
pub fn btf_info(fd: BorrowedFd<'_>, data: &mut [u8], name: &mut [u8]) -> Result<BtfInfo, Errno> {
    let mut block = attr::BtfInfo {
        btf: address_mut(data),
        btf_size: length(data)?,
        name: address_mut(name),
        name_len: length(name)?,
        ..attr::zeroed()
    };
    // SAFETY: both pointers have their own slice's length beside them.
    unsafe { info(fd, &mut block)? };
    Ok(BtfInfo { id: block.id, btf_size: block.btf_size, kernel_btf: block.kernel_btf != 0, name_len: block.name_len })
}

/// What the kernel says of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkInfo {
    /// `enum bpf_link_type`.
    pub link_type: u32,
    /// The kernel's number of it.
    pub id: u32,
    /// The program's number.
    pub prog_id: u32,
}

/// BPF_OBJ_GET_INFO_BY_FD of a link.
///
/// # Errors
/// EINVAL where `fd` is no BPF object.
pub fn link_info(fd: BorrowedFd<'_>) -> Result<LinkInfo, Errno> {
    let mut block = attr::zeroed::<attr::LinkInfo>();
    // SAFETY: the pointers of the union are null and their lengths 0.
    unsafe { info(fd, &mut block)? };
    Ok(LinkInfo { link_type: block.link_type, id: block.id, prog_id: block.prog_id })
}

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

/// BPF_PROG_BIND_MAP (Linux 5.10): the map lives as long as the program, as for `.rodata` that only tools read.
///
/// # Errors
/// EINVAL on older kernels.
pub fn prog_bind_map(program: BorrowedFd<'_>, map: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut block = attr::ProgBindMap { prog_fd: raw(program), map_fd: raw(map), flags: 0 };
    // SAFETY: no pointers.
    unsafe { raw_bpf(cmd::PROG_BIND_MAP, &mut block) }.map(drop)
}

//! What a kernel of a version says of a call of bpf(2), before the real one is asked.

use super::{Version, age, sys};

pub(super) const MAP_CREATE: u32 = 0;
pub(super) const PROG_LOAD: u32 = 5;
pub(super) const OBJ_GET_INFO_BY_FD: u32 = 15;
pub(super) const BTF_LOAD: u32 = 18;
pub(super) const LINK_CREATE: u32 = 28;

const KPROBE: u32 = 2;

/// One call of bpf(2), as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpfCall {
    /// `enum bpf_cmd`.
    pub cmd: u32,
    /// The argument block, as long as the caller said.
    pub attr: Vec<u8>,
    /// The instructions of BPF_PROG_LOAD, the blob of BPF_BTF_LOAD.
    pub payload: Vec<u8>,
    /// The function info of BPF_PROG_LOAD.
    pub func_info: Vec<u8>,
    /// Why the fake kernel refused it, in words and as an error number; `None` where it was passed on.
    pub refused: Option<(i32, String)>,
}

impl BpfCall {
    /// The word at a byte offset of the block; 0 beyond its end.
    #[must_use]
    pub fn word(&self, offset: usize) -> u32 {
        let bytes = self.attr.get(offset..offset + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }

    /// The pointer or number of 64 bits at a byte offset of the block; 0 beyond its end.
    #[must_use]
    pub fn long(&self, offset: usize) -> u64 {
        let bytes = self.attr.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    }

    /// The helpers that the program calls, in order.
    #[must_use]
    pub fn helpers(&self) -> Vec<i32> {
        self.insns().filter(|insn| insn.code == 0x85 && insn.src == 0).map(|insn| insn.imm).collect()
    }

    fn insns(&self) -> impl Iterator<Item = Insn> {
        self.payload.chunks_exact(8).map(|bytes| {
            let (low, high) = (bytes[1] & 15, bytes[1] >> 4);
            Insn {
                code: bytes[0],
                src: u32::from(if cfg!(target_endian = "big") { low } else { high }),
                off: i16::from_ne_bytes([bytes[2], bytes[3]]),
                imm: i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            }
        })
    }
}

struct Insn {
    code: u8,
    src: u32,
    off: i16,
    imm: i32,
}

fn read_memory(pid: u32, address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    if len == 0 || sys::read(pid, address, &mut bytes).is_ok_and(|read| read == len) { bytes } else { Vec::new() }
}

/// The call with what it points to.
pub(super) fn read(pid: u32, args: &[u64; 6]) -> BpfCall {
    // The kernel's own limit is a page.
    let len = (args[2] as usize).min(4096);
    let mut call = BpfCall {
        cmd: args[0] as u32,
        attr: read_memory(pid, args[1], len),
        payload: Vec::new(),
        func_info: Vec::new(),
        refused: None,
    };
    match call.cmd {
        PROG_LOAD => {
            let count = call.word(4).min(1_000_000) as usize;
            call.payload = read_memory(pid, call.long(8), 8 * count);
            let (size, count) = (call.word(76).min(1 << 12) as usize, call.word(88).min(1 << 16) as usize);
            call.func_info = read_memory(pid, call.long(80), size * count);
        }
        BTF_LOAD => call.payload = read_memory(pid, call.long(0), call.word(16).min(64 << 20) as usize),
        _ => {}
    }
    call
}

type Refusal = (i32, String);

fn refuse(is_refused: bool, errno: i32, why: impl FnOnce() -> String) -> Result<(), Refusal> {
    if is_refused { Err((errno, why())) } else { Ok(()) }
}

/// Whether a kernel of the version refuses the call of process `pid`.
pub(super) fn judge(version: Version, pid: u32, call: &BpfCall) -> Result<(), Refusal> {
    let cmd = call.cmd;
    refuse(cmd >= age::at(age::COMMANDS, version), libc::EINVAL, || format!("command {cmd}"))?;
    let nonzero_from = |offset: u32| call.attr.iter().skip(offset as usize).any(|byte| *byte != 0);
    let size = age::at(age::ATTR_SIZE, version);
    refuse(nonzero_from(size), libc::E2BIG, || {
        format!("command {cmd}: something beyond the {size} bytes of bpf_attr")
    })?;
    let table = age::FIELDS_END.iter().find(|(of, _)| *of == cmd);
    let end = table.map_or(u32::MAX, |(_, growth)| age::at(growth, version));
    refuse(nonzero_from(end), libc::EINVAL, || {
        format!("command {cmd}: something beyond its fields, which end at {end}")
    })?;
    match cmd {
        MAP_CREATE => map_create(version, call),
        PROG_LOAD => prog_load(version, pid, call),
        BTF_LOAD => btf_load(version, &call.payload),
        LINK_CREATE => {
            let attach_type = call.word(8);
            refuse(attach_type >= age::at(age::ATTACH_TYPES, version), libc::EINVAL, || {
                format!("attach type {attach_type}")
            })
        }
        OBJ_GET_INFO_BY_FD => {
            let size = info_len(version, pid, call.word(0)) as usize;
            let info = read_memory(pid, call.long(8), call.word(4).min(4096) as usize);
            let beyond = info.iter().skip(size).any(|byte| *byte != 0);
            refuse(beyond, libc::E2BIG, || format!("something beyond the {size} bytes of information"))
        }
        _ => Ok(()),
    }
}

/// The size of the struct that the version tells of what the descriptor is.
fn info_len(version: Version, pid: u32, fd: u32) -> u32 {
    let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
    let growth = match link.to_str() {
        Some("anon_inode:bpf-map") => age::MAP_INFO,
        Some("anon_inode:bpf-prog") => age::PROG_INFO,
        Some("anon_inode:btf") => age::BTF_INFO,
        _ => return u32::MAX,
    };
    age::at(growth, version)
}

/// Has the real kernel tell no more than the version would: it is asked for that much.
pub(super) fn cut(version: Version, pid: u32, address: u64, call: &BpfCall) {
    const LEN: usize = 4;
    let len = info_len(version, pid, call.word(0));
    if call.cmd == OBJ_GET_INFO_BY_FD && len < call.word(LEN) {
        // A block that cannot be written to is one that the kernel cannot answer in either.
        let _ = sys::write(pid, address + LEN as u64, &len.to_ne_bytes());
    }
}

fn name_is_fine(version: Version, name: &[u8]) -> bool {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'.' && version >= age::DOTS)
}

fn name_at(call: &BpfCall, offset: usize) -> &[u8] {
    call.attr.get(offset..).map_or(&[], |rest| &rest[..rest.len().min(16)])
}

fn flags_are_known(bits: u32, flags: u32) -> bool {
    u64::from(flags) >> bits == 0
}

fn map_create(version: Version, call: &BpfCall) -> Result<(), Refusal> {
    let map_type = call.word(0);
    refuse(map_type >= age::at(age::MAP_TYPES, version), libc::EINVAL, || format!("map type {map_type}"))?;
    let flags = call.word(16);
    let bits = age::at(age::MAP_FLAG_BITS, version);
    refuse(!flags_are_known(bits, flags), libc::EINVAL, || format!("map flags {flags:#x}"))?;
    refuse(!name_is_fine(version, name_at(call, 28)), libc::EINVAL, || "a dot in a map's name".into())?;
    // ENOTSUPP, which no header has.
    let has_types = call.word(52) != 0 || call.word(56) != 0;
    let takes_types = map_type == 2 || version >= age::HASH_BTF;
    refuse(has_types && !takes_types, 524, || format!("types for a map of type {map_type}"))
}

fn prog_load(version: Version, pid: u32, call: &BpfCall) -> Result<(), Refusal> {
    let flags = call.word(44);
    let bits = age::at(age::PROG_FLAG_BITS, version);
    refuse(!flags_are_known(bits, flags), libc::EINVAL, || format!("program flags {flags:#x}"))?;
    refuse(!name_is_fine(version, name_at(call, 48)), libc::EINVAL, || "a dot in a program's name".into())?;
    let count = call.word(4);
    refuse(count > 4096 && version < age::LONG_PROGRAMS, libc::E2BIG, || format!("{count} instructions"))?;
    let (prog_type, stated) = (call.word(0), call.word(40));
    let compares = prog_type == KPROBE && version < age::ANY_KERN_VERSION;
    refuse(compares && stated != version.code(), libc::EINVAL, || format!("kern_version {stated:#x}"))?;
    refuse(prog_type >= age::at(age::PROG_TYPES, version), libc::EINVAL, || format!("program type {prog_type}"))?;
    let mut insns = call.insns().enumerate();
    while let Some((index, insn)) = insns.next() {
        verify(version, &insn).map_err(|(errno, why)| (errno, format!("instruction {index}: {why}")))?;
        if insn.code == 0x18 {
            insns.next();
        }
    }
    contexts(version, pid, call)
}

fn verify(version: Version, insn: &Insn) -> Result<(), Refusal> {
    let Insn { code, src, off, imm } = *insn;
    let class = code & 7;
    let is_jump = class == 5 || class == 6;
    match code {
        0x85 => {
            refuse(src >= age::at(age::CALL_FORMS, version), libc::EINVAL, || format!("a call of form {src}"))?;
            let unknown = src == 0 && imm.cast_unsigned() >= age::at(age::HELPERS, version);
            refuse(unknown, libc::EINVAL, || format!("invalid func unknown#{imm}"))?;
        }
        0x18 => {
            refuse(src >= age::at(age::LD_IMM64_FORMS, version), libc::EINVAL, || format!("LD_IMM64 of form {src}"))?;
        }
        0xc3 | 0xdb => refuse(imm != 0 && version < age::ATOMICS, libc::EINVAL, || format!("atomic {imm:#x}"))?,
        _ => {}
    }
    refuse(class == 6 && version < age::JMP32, libc::EINVAL, || format!("unknown opcode {code:02x}"))?;
    // Sign-extending loads and moves, signed division, byte swaps, far jumps.
    let is_v4 = class == 1 && code & 0xe0 == 0x80
        || matches!(code, 0xbc | 0xbf | 0x34 | 0x37 | 0x3c | 0x3f | 0x94 | 0x97 | 0x9c | 0x9f) && off != 0
        || matches!(code, 0xd7 | 0x06);
    refuse(is_v4 && version < age::CPU_V4, libc::EINVAL, || format!("unknown opcode {code:02x}"))?;
    let is_back = is_jump && code != 0x85 && code != 0x95 && off < 0;
    refuse(is_back && version < age::LOOPS, libc::EINVAL, || "back-edge".into())
}

/// Global functions are verified alone from 5.6 on; until 6.8 an argument that is a pointer to nothing in particular is
/// not the context there.
fn contexts(version: Version, pid: u32, call: &BpfCall) -> Result<(), Refusal> {
    if version < age::GLOBAL_FUNC || version >= age::ARG_CTX || call.func_info.is_empty() {
        return Ok(());
    }
    let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", call.word(72))).unwrap_or_default();
    let id = info.lines().find_map(|line| line.strip_prefix("btf_id:")?.trim().parse().ok());
    let blob = id.and_then(|id| sys::btf_by_id(id).ok()).unwrap_or_default();
    let Some(types) = types(&blob) else { return Ok(()) };
    let record = call.word(76) as usize;
    for (index, record) in call.func_info.chunks_exact(record).enumerate().skip(1) {
        let func = types.get(word(record, 4) as usize).copied().unwrap_or_default();
        if kind(func) != FUNC || vlen(func) != 1 {
            continue;
        }
        let proto = types.get(word(func, 8) as usize).copied().unwrap_or_default();
        for param in proto.get(12..).unwrap_or_default().chunks_exact(8) {
            let Some(pointer) = skip_modifiers(&types, word(param, 4)) else { continue };
            let is_void = kind(pointer) == PTR && skip_modifiers(&types, word(pointer, 8)).is_none();
            refuse(is_void, libc::EINVAL, || {
                format!("function {index}: an argument of type PTR is not supported yet")
            })?;
        }
    }
    Ok(())
}

const PTR: u32 = 2;
const ENUM: u32 = 6;
const FUNC: u32 = 12;
const DATASEC: u32 = 15;

fn word(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..offset + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn kind(ty: &[u8]) -> u32 {
    word(ty, 4) >> 24 & 0x1f
}

fn vlen(ty: &[u8]) -> u32 {
    word(ty, 4) & 0xffff
}

/// The type behind typedefs, const and the like; `None` is void.
fn skip_modifiers<'b>(types: &[&'b [u8]], mut id: u32) -> Option<&'b [u8]> {
    for _ in 0..types.len() {
        let ty = types.get(id as usize).filter(|_| id != 0)?;
        match kind(ty) {
            8..=11 | 18 => id = word(ty, 8),
            _ => return Some(ty),
        }
    }
    None
}

/// The types of a blob by id, the first of them void; `None` where that is none, or has kinds that nobody knows.
fn types(blob: &[u8]) -> Option<Vec<&[u8]>> {
    let start = word(blob, 4) as usize + word(blob, 8) as usize;
    let mut rest = blob.get(start..start + word(blob, 12) as usize)?;
    let mut types: Vec<&[u8]> = vec![&[]];
    while !rest.is_empty() {
        let items = vlen(rest) as usize;
        let len = 12
            + match kind(rest) {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | DATASEC | 19 => 12 * items,
                ENUM | 13 => 8 * items,
                2 | 7..=12 | 16 | 18 => 0,
                _ => return None,
            };
        let (ty, behind) = rest.split_at_checked(len)?;
        types.push(ty);
        rest = behind;
    }
    Some(types)
}

fn btf_load(version: Version, blob: &[u8]) -> Result<(), Refusal> {
    // What is no BTF at all is for the real kernel to refuse.
    let Some(types) = types(blob) else { return Ok(()) };
    let strings = word(blob, 4) as usize + word(blob, 16) as usize;
    for (id, ty) in types.iter().enumerate().skip(1) {
        let (kind, flag) = (kind(ty), word(ty, 4) >> 31 != 0);
        let no = |is_refused, why: &str| refuse(is_refused, libc::EINVAL, || format!("type [{id}]: {why}"));
        no(kind >= age::at(age::BTF_KINDS, version), &format!("kind {kind}"))?;
        no(kind == FUNC && vlen(ty) != 0 && version < age::GLOBAL_FUNC, "linkage of a function")?;
        no(kind == ENUM && flag && version < age::SIGNED_ENUM, "kind_flag of an enumeration")?;
        no(matches!(kind, 4 | 5) && flag && version < age::BITFIELD_FLAG, "kind_flag of a struct")?;
        let first = blob.get(strings + word(ty, 0) as usize);
        no(kind == DATASEC && first == Some(&b'?') && version < age::QMARK, "a section's name")?;
    }
    Ok(())
}

/// Says why in the caller's log buffer, as a verifier does.
pub(super) fn write_log(pid: u32, call: &BpfCall, why: &str) {
    let (size, address) = match call.cmd {
        PROG_LOAD => (call.word(28), call.long(32)),
        BTF_LOAD => (call.word(20), call.long(8)),
        _ => return,
    };
    let mut text = why.as_bytes().to_vec();
    text.truncate((size as usize).saturating_sub(2));
    text.extend(b"\n\0");
    if size as usize >= text.len() && address != 0 {
        // Who gave a buffer that cannot be written to gets the error number all the same.
        let _ = sys::write(pid, address, &text);
    }
}

//! Addresses of kernel symbols: /proc/kallsyms, read once for many names.
//!
//! A line is `address type name`, and for a module's symbol a tab and `[module]`. Addresses are those of the kernel, 64 bits
//! also for a 32-bit process. A kernel that hides them (kptr_restrict of proc_sys_kernel(5)) shows zeros throughout; a zero
//! among other addresses is one, as of per-CPU symbols.

use core::fmt;
use core::ops::ControlFlow;

use rustix::fs::OFlags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::sys::Errno;
use crate::sys::files;
use crate::sys::lines::Lines;

/// One line of /proc/kallsyms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Where it is in the kernel; 0 where the kernel hides that.
    pub address: u64,
    /// nm(1)'s letter: `T`, `t` for functions, `D`, `d`, `B`, `b`, `R`, `r` for data.
    pub kind: u8,
    /// As the kernel has it, with suffixes like `.llvm.123`.
    pub name: &'a [u8],
    /// The module it belongs to (`bpf` for programs), `None` for the kernel itself.
    pub module: Option<&'a [u8]>,
}

impl<'a> Symbol<'a> {
    fn parse(line: &'a [u8]) -> Option<Symbol<'a>> {
        let mut words = line.split(|byte| *byte == b' ');
        let address = core::str::from_utf8(words.next()?).ok()?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let &[kind] = words.next()? else { return None };
        let rest = words.next()?;
        let (name, module) = match rest.iter().position(|byte| *byte == b'\t') {
            None => (rest, None),
            Some(tab) => {
                let module = rest[tab + 1..].strip_prefix(b"[")?.strip_suffix(b"]")?;
                (&rest[..tab], Some(module))
            }
        };
        Some(Symbol { address, kind, name, module })
    }

    /// The name in the source: without the `.llvm.123` that clang's link-time optimisation puts behind static functions that
    /// it makes global.
    #[must_use]
    pub fn source_name(&self) -> &'a [u8] {
        let suffix = b".llvm.";
        let at = self.name.windows(suffix.len()).position(|part| part == suffix);
        &self.name[..at.unwrap_or(self.name.len())]
    }
}

/// Why addresses are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KallsymsError {
    /// /proc/kallsyms cannot be opened: ENOENT on kernels without CONFIG_KALLSYMS and where /proc is not mounted.
    Open(Errno),
    /// It cannot be read.
    Read(Errno),
    /// The kernel shows every address as 0: kernel.kptr_restrict is 2, or 1 and CAP_SYSLOG is missing (also where
    /// kernel.perf_event_paranoid is above 1 for a process without it).
    Hidden,
    /// It is empty, or no line is as they should be.
    Empty,
}

impl fmt::Display for KallsymsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KallsymsError::Open(errno) => write!(f, "/proc/kallsyms cannot be opened: {errno}"),
            KallsymsError::Read(errno) => write!(f, "/proc/kallsyms cannot be read: {errno}"),
            KallsymsError::Hidden => {
                f.write_str("/proc/kallsyms shows every address as 0: see sysctl kernel.kptr_restrict, and CAP_SYSLOG")
            }
            KallsymsError::Empty => f.write_str("/proc/kallsyms has no symbols"),
        }
    }
}

impl core::error::Error for KallsymsError {}

/// Calls `each` with every symbol until it breaks. Addresses are as the kernel shows them, perhaps all 0.
///
/// # Errors
/// [`KallsymsError::Open`], [`KallsymsError::Read`].
pub fn each<B>(mut each: impl FnMut(Symbol<'_>) -> ControlFlow<B>) -> Result<ControlFlow<B>, KallsymsError> {
    let fd = files::open(c"/proc/kallsyms", OFlags::RDONLY).map_err(KallsymsError::Open)?;
    // The kernel hands out a page at a time.
    let mut buffer = [0; 8192];
    each_of(
        |buffer| match files::read_full(&fd, buffer) {
            Ok(len) => Ok(len),
            Err(errno) => Err(KallsymsError::Read(errno)),
        },
        &mut buffer,
        &mut each,
    )
}

pub(crate) fn each_of<B>(
    mut read: impl FnMut(&mut [u8]) -> Result<usize, KallsymsError>,
    buffer: &mut [u8],
    each: &mut impl FnMut(Symbol<'_>) -> ControlFlow<B>,
) -> Result<ControlFlow<B>, KallsymsError> {
    let mut lines = Lines::new();
    let mut line = |line: &[u8]| match Symbol::parse(line).map(&mut *each) {
        Some(ControlFlow::Break(value)) => Err(value),
        _ => Ok(()),
    };
    loop {
        let len = read(buffer)?;
        let result = match len {
            0 => lines.finish(&mut line),
            len => lines.push(&buffer[..len], &mut line),
        };
        match result {
            Err(value) => return Ok(ControlFlow::Break(value)),
            Ok(()) if len == 0 => return Ok(ControlFlow::Continue(())),
            Ok(()) => {}
        }
    }
}

/// What a lookup found for one name. All zero is "nothing", so slices of it may come out of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Found {
    first: u64,
    second: u64,
    /// 0 nothing, 1 one address, 2 two and perhaps more.
    addresses: u64,
}

/// The outcome of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// No symbol has the name.
    Missing,
    /// All symbols of the name are here.
    At(u64),
    /// Symbols of the name are here and there, and perhaps elsewhere too; libbpf takes none of them either.
    Ambiguous(u64, u64),
}

impl Found {
    /// What it says.
    #[must_use]
    pub fn address(self) -> Address {
        match self.addresses {
            0 => Address::Missing,
            1 => Address::At(self.first),
            _ => Address::Ambiguous(self.first, self.second),
        }
    }

    fn add(&mut self, address: u64) {
        match self.addresses {
            0 => (self.first, self.addresses) = (address, 1),
            1 if self.first != address => (self.second, self.addresses) = (address, 2),
            _ => {}
        }
    }
}

/// Looks up `names`, which go into `found` in the same order; the shorter of the two says how many.
///
/// # Errors
/// As [`lookup_by`].
pub fn lookup(names: &[&[u8]], found: &mut [Found]) -> Result<(), KallsymsError> {
    let count = names.len().min(found.len());
    lookup_by(&mut found[..count], |index| names[index])
}

/// Looks up the names `name(0)` to `name(found.len() - 1)` in one pass. Names in ascending order are found by binary search,
/// others by going through all of them for each symbol.
///
/// # Errors
/// [`KallsymsError`]; for no names there is none, and nothing is read.
pub fn lookup_by<'n>(found: &mut [Found], name: impl Fn(usize) -> &'n [u8]) -> Result<(), KallsymsError> {
    found.fill(Found::default());
    if found.is_empty() {
        return Ok(());
    }
    let mut search = Search::new(found, name);
    // It never breaks: a second address may come last.
    let _: ControlFlow<()> = each(|symbol| {
        search.take(symbol);
        ControlFlow::Continue(())
    })?;
    search.finish()
}

struct Search<'f, F> {
    found: &'f mut [Found],
    name: F,
    is_sorted: bool,
    any: bool,
    any_address: bool,
}

impl<'f, 'n, F: Fn(usize) -> &'n [u8]> Search<'f, F> {
    fn new(found: &'f mut [Found], name: F) -> Self {
        let is_sorted = (1..found.len()).all(|index| name(index - 1) < name(index));
        Search { found, name, is_sorted, any: false, any_address: false }
    }

    fn take(&mut self, symbol: Symbol<'_>) {
        self.any = true;
        self.any_address |= symbol.address != 0;
        let wanted = symbol.source_name();
        if !self.is_sorted {
            for (index, found) in self.found.iter_mut().enumerate() {
                if (self.name)(index) == wanted {
                    found.add(symbol.address);
                }
            }
            return;
        }
        let (mut start, mut end) = (0, self.found.len());
        while start < end {
            let middle = start + (end - start) / 2;
            match (self.name)(middle).cmp(wanted) {
                core::cmp::Ordering::Less => start = middle + 1,
                core::cmp::Ordering::Greater => end = middle,
                core::cmp::Ordering::Equal => return self.found[middle].add(symbol.address),
            }
        }
    }

    fn finish(self) -> Result<(), KallsymsError> {
        match (self.any, self.any_address) {
            (false, _) => Err(KallsymsError::Empty),
            (true, false) => Err(KallsymsError::Hidden),
            (true, true) => Ok(()),
        }
    }
}

/// Whether system calls have wrappers that take their arguments in `struct pt_regs` (since Linux 4.17 on x86-64, and on most
/// other architectures later): what libbpf tells programs as `LINUX_HAS_SYSCALL_WRAPPER`. Names are shown even where
/// addresses are not.
///
/// # Errors
/// [`KallsymsError`], but for [`KallsymsError::Hidden`]: without names nothing is known.
pub fn has_syscall_wrapper() -> Result<bool, KallsymsError> {
    Ok(syscall_wrapper_prefix()?.is_some())
}

/// What the names of the system calls' wrappers start with in this kernel, `__x64_sys_` for example; `None` where it has none,
/// and the functions are `__se_sys_NAME`. It is the kernel's architecture that counts, for a 32-bit process too.
///
/// # Errors
/// As [`has_syscall_wrapper`].
pub fn syscall_wrapper_prefix() -> Result<Option<&'static str>, KallsymsError> {
    let mut search = WrapperSearch::default();
    let mut any = false;
    let _: ControlFlow<()> = each(|symbol| {
        any = true;
        search.take(symbol.name)
    })?;
    // A file that is masked has no names, which is not to say that the kernel has none.
    if any { Ok(search.prefix()) } else { Err(KallsymsError::Empty) }
}

/// CONFIG_ARCH_HAS_SYSCALL_WRAPPER, by architecture. A 64-bit x86 kernel has the 32-bit names beside the others: they are last.
const WRAPPERS: [&str; 8] = [
    "__x64_sys_",
    "__arm64_sys_",
    "__riscv_sys_",
    "__s390x_sys_",
    "__powerpc_sys_",
    "__arm_sys_",
    "__mips_sys_",
    "__ia32_sys_",
];

/// Looks for the wrapper of bpf(2) itself: a kernel that is asked has that call.
#[derive(Default)]
struct WrapperSearch(Option<usize>);

impl WrapperSearch {
    fn take(&mut self, name: &[u8]) -> ControlFlow<()> {
        let prefix = name.strip_suffix(b"bpf");
        let found = prefix.and_then(|prefix| WRAPPERS.iter().position(|wrapper| wrapper.as_bytes() == prefix));
        if let Some(found) = found {
            self.0 = Some(self.0.map_or(found, |before| before.min(found)));
        }
        match self.0 {
            Some(found) if found + 1 < WRAPPERS.len() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn prefix(&self) -> Option<&'static str> {
        WRAPPERS.get(self.0?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &[u8], piece: usize, names: &[&[u8]]) -> Result<Vec<Address>, KallsymsError> {
        let mut found = vec![Found::default(); names.len()];
        let mut search = Search::new(&mut found, |index| names[index]);
        let mut rest = text;
        let mut buffer = vec![0; piece];
        let _: ControlFlow<()> = each_of(
            |buffer| {
                let len = rest.len().min(buffer.len());
                buffer[..len].copy_from_slice(&rest[..len]);
                rest = &rest[len..];
                Ok(len)
            },
            &mut buffer,
            &mut |symbol| {
                search.take(symbol);
                ControlFlow::Continue(())
            },
        )?;
        search.finish()?;
        Ok(found.into_iter().map(Found::address).collect())
    }

    const TEXT: &[u8] = b"0000000000000000 A fixed_percpu_data\n\
        ffffffff81000000 T _text\n\
        ffffffff81000010 t twice\n\
        ffffffff81000020 t twice\n\
        ffffffff81000030 t alias\n\
        ffffffff81000030 T alias\n\
        ffffffff81000040 t clang_made.llvm.12345678\n\
        ffffffff81000048 t near.cold\n\
        ffffffffc0000000 t in_module\t[some_module]\n\
        ffffffffc0000100 d last";

    #[test]
    fn one_pass_finds_the_addresses_of_many_names() {
        let mut names: [&[u8]; 8] =
            [b"_text", b"absent", b"alias", b"clang_made", b"fixed_percpu_data", b"in_module", b"last", b"twice"];
        let want = [
            Address::At(0xffff_ffff_8100_0000),
            Address::Missing,
            Address::At(0xffff_ffff_8100_0030),
            Address::At(0xffff_ffff_8100_0040),
            Address::At(0),
            Address::At(0xffff_ffff_c000_0000),
            Address::At(0xffff_ffff_c000_0100),
            Address::Ambiguous(0xffff_ffff_8100_0010, 0xffff_ffff_8100_0020),
        ];
        for piece in [1, 7, 64, 4096] {
            assert_eq!(run(TEXT, piece, &names).unwrap(), want);
        }
        names.reverse();
        let mut reversed = run(TEXT, 64, &names).unwrap();
        reversed.reverse();
        assert_eq!(reversed, want);
        // A suffix of another kind is another function, and so is the name with its suffix.
        let names: [&[u8]; 2] = [b"clang_made.llvm.12345678", b"near"];
        assert_eq!(run(TEXT, 64, &names).unwrap(), [Address::Missing; 2]);
    }

    #[test]
    fn hidden_addresses_are_no_addresses() {
        let text = b"0000000000000000 T _text\n0000000000000000 t wanted\n";
        assert_eq!(run(text, 9, &[b"wanted"]), Err(KallsymsError::Hidden));
        // 32-bit kernels write eight digits.
        assert_eq!(run(b"c0008000 T _text\n", 9, &[b"_text"]).unwrap(), [Address::At(0xc000_8000)]);
        assert_eq!(run(b"00000000 T _text\n", 9, &[b"_text"]), Err(KallsymsError::Hidden));
    }

    #[test]
    fn wrappers_of_system_calls() {
        let find = |names: &[&str]| {
            let mut search = WrapperSearch::default();
            let _ = names.iter().try_for_each(|name| match search.take(name.as_bytes()) {
                ControlFlow::Break(()) => Err(()),
                ControlFlow::Continue(()) => Ok(()),
            });
            search.prefix()
        };
        assert_eq!(find(&["__ia32_sys_bpf", "__x64_sys_bpf"]), Some("__x64_sys_"));
        assert_eq!(find(&["__x64_sys_bpf", "__ia32_sys_bpf"]), Some("__x64_sys_"));
        assert_eq!(find(&["__ia32_sys_bpf"]), Some("__ia32_sys_"));
        assert_eq!(find(&["__arm64_sys_bpf"]), Some("__arm64_sys_"));
        assert_eq!(find(&["__se_sys_bpf", "sys_bpf", "__x64_sys_bpf.cold", "__x64_sys_read", "bpf", ""]), None);
    }

    #[test]
    fn no_symbols() {
        for text in [&b""[..], b"\n", b"nonsense", b"12 T", b"zz T name", b"12 TT name"] {
            assert_eq!(run(text, 9, &[b"name"]), Err(KallsymsError::Empty));
        }
    }

    #[test]
    fn modules() {
        let symbol = Symbol::parse(b"ffffffffc0000000 t init\t[ext4]").unwrap();
        assert_eq!((symbol.name, symbol.module, symbol.kind), (&b"init"[..], Some(&b"ext4"[..]), b't'));
        assert_eq!(Symbol::parse(b"ffffffffc0000000 t init\text4"), None);
    }
}

//! The kernel functions that fit a pattern, by address: libbpf's `libbpf_available_kprobes_parse` and
//! `libbpf_available_kallsyms_parse`.
//!
//! What can be traced is in `available_filter_functions` of tracefs, a line `name` or `name [module]` for each function; since
//! Linux 6.5 `available_filter_functions_addrs` has the address before it. Without that file, addresses come from /proc/kallsyms,
//! where other symbols may have the same name: all of them that are code count.

use core::ops::ControlFlow;

use super::{LinkError, call, tracefs};
use crate::attach::glob;
use crate::kernel::kallsyms::{self, KallsymsError, Symbol};
use crate::sys::Errno;
use crate::sys::files;
use crate::sys::lines::Lines;
use crate::sys::list::{Bytes, Numbers};

const NAMES: &str = "available_filter_functions";
const ADDRESSES: &str = "available_filter_functions_addrs";

/// What ftrace calls a place whose function the linker has dropped (FTRACE_INVALID_FUNCTION): nothing to attach to.
const INVALID: &[u8] = b"__ftrace_invalid_address__";

/// The addresses of all functions that fit; at least one. They are not sorted.
pub(super) fn addresses(pattern: &[u8]) -> Result<Numbers, LinkError> {
    let found = match tracefs::open(ADDRESSES) {
        Ok(file) => listed_addresses(pattern, |buffer| files::read_full(&file, buffer))?,
        Err(LinkError::NoTracefs) => return Err(LinkError::NoTracefs),
        // Older than the file, or it may not be read.
        Err(_) => {
            let file = tracefs::open(NAMES)?;
            let mut names = Names::read(pattern, |buffer| files::read_full(&file, buffer))?;
            if names.is_empty() {
                return Err(LinkError::NoFunction);
            }
            names.sort();
            let mut search = Search::new(pattern, &names);
            let ended = kallsyms::each(|symbol| search.take(symbol)).map_err(LinkError::Kallsyms)?;
            search.finish(ended)?
        }
    };
    if found.as_slice().is_empty() { Err(LinkError::NoFunction) } else { Ok(found) }
}

/// Calls `each` with all lines of a file of tracefs, which is read a piece at a time.
fn each_line(
    file: &'static str,
    mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    mut each: impl FnMut(&[u8]) -> Result<(), LinkError>,
) -> Result<(), LinkError> {
    let mut lines = Lines::new();
    let mut buffer = [0; 8192];
    loop {
        match read(&mut buffer).map_err(|errno| LinkError::File { file, errno })? {
            0 => return lines.finish(&mut each),
            len => lines.push(&buffer[..len], &mut each)?,
        }
    }
}

/// The first word of a line.
fn first_word(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b' ').next().unwrap_or_default()
}

/// `ADDRESS name [module]`
fn listed_addresses(pattern: &[u8], read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Numbers, LinkError> {
    let mut found = Numbers::new();
    each_line(ADDRESSES, read, |line| {
        let address = first_word(line);
        let name = first_word(line.get(address.len() + 1..).unwrap_or_default());
        let number = core::str::from_utf8(address).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        let Some(number) = number.filter(|_| !name.is_empty()) else {
            return Err(LinkError::File { file: ADDRESSES, errno: Errno::EINVAL });
        };
        if !glob::matches(pattern, name) || name.starts_with(INVALID) {
            return Ok(());
        }
        if number == 0 {
            // As in /proc/kallsyms: whoever may not see addresses is shown none.
            return Err(LinkError::Kallsyms(KallsymsError::Hidden));
        }
        found.push(number).map_err(call("mmap"))
    })?;
    Ok(found)
}

/// Names that can be traced and fit.
struct Names {
    text: Bytes,
    /// For each where it starts in `text` (the upper half) and its length.
    places: Numbers,
}

impl Names {
    fn read(pattern: &[u8], read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Names, LinkError> {
        let mut names = Names { text: Bytes::new(), places: Numbers::new() };
        each_line(NAMES, read, |line| {
            let name = first_word(line);
            if name.is_empty() || !glob::matches(pattern, name) || name.starts_with(INVALID) {
                return Ok(());
            }
            let start = names.text.as_slice().len() as u64;
            names.places.push(start << 32 | name.len() as u64).map_err(call("mmap"))?;
            names.text.extend(name).map_err(call("mmap"))
        })?;
        Ok(names)
    }

    fn is_empty(&self) -> bool {
        self.places.as_slice().is_empty()
    }

    fn name(text: &Bytes, place: u64) -> &[u8] {
        let (start, len) = ((place >> 32) as usize, (place & 0xffff_ffff) as usize);
        text.as_slice().get(start..start + len).unwrap_or_default()
    }

    fn sort(&mut self) {
        let text = &self.text;
        self.places.as_mut_slice().sort_unstable_by(|a, b| Names::name(text, *a).cmp(Names::name(text, *b)));
    }

    /// Whether it is among them; they must be sorted.
    fn has(&self, name: &[u8]) -> bool {
        self.places.as_slice().binary_search_by(|place| Names::name(&self.text, *place).cmp(name)).is_ok()
    }
}

/// Takes all kernel symbols, and keeps the addresses of those with one of the names.
struct Search<'n> {
    pattern: &'n [u8],
    names: &'n Names,
    found: Numbers,
}

impl<'n> Search<'n> {
    fn new(pattern: &'n [u8], names: &'n Names) -> Search<'n> {
        Search { pattern, names, found: Numbers::new() }
    }

    fn take(&mut self, symbol: Symbol<'_>) -> ControlFlow<LinkError> {
        let is_code = matches!(symbol.kind, b'T' | b't' | b'W' | b'w');
        if !is_code || !glob::matches(self.pattern, symbol.name) {
            return ControlFlow::Continue(());
        }
        // Some kernels leave clang's suffix out in tracefs only.
        if !self.names.has(symbol.name) && !self.names.has(symbol.source_name()) {
            return ControlFlow::Continue(());
        }
        if symbol.address == 0 {
            return ControlFlow::Break(LinkError::Kallsyms(KallsymsError::Hidden));
        }
        match self.found.push(symbol.address) {
            Ok(()) => ControlFlow::Continue(()),
            Err(errno) => ControlFlow::Break(call("mmap")(errno)),
        }
    }

    fn finish(self, ended: ControlFlow<LinkError>) -> Result<Numbers, LinkError> {
        match ended {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(self.found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text` in pieces of at most `piece` bytes.
    fn reader(mut text: &[u8], piece: usize) -> impl FnMut(&mut [u8]) -> Result<usize, Errno> {
        move |buffer| {
            let len = text.len().min(buffer.len()).min(piece);
            buffer[..len].copy_from_slice(&text[..len]);
            text = &text[len..];
            Ok(len)
        }
    }

    #[test]
    fn addresses_beside_the_names() {
        let text = b"ffffffff81000010 vfs_read\nffffffff81000020 vfs_readv\nffffffff81000030 vfs_open\n\
            ffffffffc0000000 vfs_rename [overlay]\nffffffff81000040 __ftrace_invalid_address___64\n";
        let find = |pattern: &str, piece| {
            listed_addresses(pattern.as_bytes(), reader(text, piece)).map(|found| found.as_slice().to_vec())
        };
        for piece in [1, 10, 8192] {
            let all = [0xffff_ffff_8100_0010, 0xffff_ffff_8100_0020, 0xffff_ffff_8100_0030, 0xffff_ffff_c000_0000];
            assert_eq!(find("*", piece).unwrap(), all);
            assert_eq!(find("vfs_r*", piece).unwrap(), [all[0], all[1], all[3]]);
            assert_eq!(find("vfs_rea?", piece).unwrap(), [all[0]]);
            assert_eq!(find("overlay*", piece).unwrap(), []);
        }
    }

    #[test]
    fn lists_that_are_none() {
        let find = |text: &[u8]| listed_addresses(b"*", reader(text, 8192)).map(|found| found.as_slice().len());
        let bad = Err(LinkError::File { file: ADDRESSES, errno: Errno::EINVAL });
        assert_eq!(find(b"zz name\n"), bad);
        assert_eq!(find(b"ffffffff81000010\n"), bad);
        assert_eq!(find(b"ffffffff81000010 name"), Ok(1));
        assert_eq!(find(b"0000000000000000 name\n"), Err(LinkError::Kallsyms(KallsymsError::Hidden)));
        let failing = listed_addresses(b"*", |_| Err(Errno::EIO));
        assert_eq!(failing.map(|_| ()), Err(LinkError::File { file: ADDRESSES, errno: Errno::EIO }));
    }

    fn in_both(pattern: &str, names: &[u8], symbols: &[u8]) -> Result<Vec<u64>, LinkError> {
        let pattern = pattern.as_bytes();
        let mut names = Names::read(pattern, reader(names, 7))?;
        names.sort();
        let mut search = Search::new(pattern, &names);
        let mut read = reader(symbols, 100);
        let ended =
            kallsyms::each_of(|buffer| read(buffer).map_err(KallsymsError::Read), &mut [0; 100], &mut |symbol| {
                search.take(symbol)
            })
            .map_err(LinkError::Kallsyms)?;
        search.finish(ended).map(|found| found.as_slice().to_vec())
    }

    #[test]
    fn names_of_one_list_and_addresses_of_the_other() {
        let names = b"vfs_write\nvfs_read\nvfs_open\nstatic_one\nvfs_of_clang\nvfs_in_module [overlay]\n";
        let symbols = b"ffffffff81000001 T vfs_open\nffffffff81000002 t vfs_read\nffffffff81000003 D vfs_write\n\
            ffffffff81000004 T vfs_not_traced\nffffffff81000005 t static_one\nffffffff81000006 t static_one\n\
            ffffffff81000007 t vfs_of_clang.llvm.123\nffffffffc0000000 t vfs_in_module\t[overlay]\n";
        let low = |pattern: &str| -> Vec<u64> {
            in_both(pattern, names, symbols).unwrap().into_iter().map(|address| address & 0xf000_000f).collect()
        };
        assert_eq!(low("vfs_*"), [0x8000_0001, 0x8000_0002, 0x8000_0007, 0xc000_0000]);
        assert_eq!(low("vfs_????"), [0x8000_0001, 0x8000_0002]);
        assert_eq!(low("static_*"), [0x8000_0005, 0x8000_0006]);
        assert_eq!(low("nothing*"), []);
        let hidden = b"0000000000000000 T vfs_open\n";
        assert_eq!(in_both("vfs_*", names, hidden), Err(LinkError::Kallsyms(KallsymsError::Hidden)));
    }

    #[test]
    fn the_running_kernels_functions_or_why_not() {
        let opens = match addresses(b"vfs_open*") {
            // No tracefs, no dynamic ftrace, no rights, or a locked-down kernel: whoever attaches is told.
            Err(
                error @ (LinkError::NoTracefs
                | LinkError::File { file: NAMES, .. }
                | LinkError::Lockdown { .. }
                | LinkError::Kallsyms(_)),
            ) => {
                println!("this kernel's traceable functions cannot be read: {error}");
                return;
            }
            found => found.unwrap(),
        };
        assert!(!opens.as_slice().is_empty());
        let all = addresses(b"*").unwrap();
        assert!(all.as_slice().len() > 1000, "{}", all.as_slice().len());
        assert!(opens.as_slice().iter().all(|address| all.as_slice().contains(address)));
        assert_eq!(addresses(b"corelo_no_such_*").map(|_| ()), Err(LinkError::NoFunction));
        // The way of kernels before 6.5 finds the same functions. Its addresses are where they start, those of the list where
        // they call ftrace, a few bytes further: the kernel takes both.
        let file = tracefs::open(NAMES).unwrap();
        let mut names = Names::read(b"vfs_*", |buffer| files::read_full(&file, buffer)).unwrap();
        names.sort();
        let mut search = Search::new(b"vfs_*", &names);
        let ended = kallsyms::each(|symbol| search.take(symbol)).unwrap();
        let older = search.finish(ended).unwrap();
        let newer = addresses(b"vfs_*").unwrap();
        println!(
            "{} functions, {} of vfs_*, {} by the older way",
            all.as_slice().len(),
            newer.as_slice().len(),
            older.as_slice().len()
        );
        let have = |place: &u64| older.as_slice().iter().any(|start| place.wrapping_sub(*start) < 32);
        assert!(newer.as_slice().iter().all(have));
    }
}

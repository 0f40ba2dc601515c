//! Pins: maps, programs and links with a name on a bpf file system, which keeps them alive without a process.
//!
//! Two loaders may want the same pinned map at once. [`reuse_or_create`] settles it: whoever loses the race (EEXIST)
//! opens the other's map, and either way a map that was there already must be what the object declares.

use core::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use corelo_core::uapi::{BPF_F_RDONLY_PROG, MapTypeName, map_type};
use rustix::fs::{Mode, mkdir, rmdir, unlink};

use crate::objects::maps::{self, MapSpec};
use crate::objects::memlock::Memlock;
use crate::sys::bpf::MapFd;
use crate::sys::files::CPath;
use crate::sys::{Errno, bpf};

/// Why a pin cannot be made, opened or used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PinError {
    /// The path cannot be used: too long, or a NUL inside.
    Path(Errno),
    /// A directory on the way cannot be made.
    Directory(Errno),
    /// The kernel refuses the pin: EEXIST taken, EPERM not allowed.
    Pin(Errno),
    /// The path is on no bpf file system, and so nothing can be pinned there.
    NotBpfFs(Errno),
    /// What is pinned there is no map, but a program or a link.
    NotMap,
    /// What is pinned there is no program.
    NotProgram,
    /// The pin cannot be opened.
    Open(Errno),
    /// The pin cannot be removed.
    Remove(Errno),
    /// The map to be pinned cannot be created.
    Create(Errno),
    /// A map is pinned there that is not the one declared.
    Mismatch {
        /// What differs.
        property: Property,
        /// What the pinned map has.
        found: u64,
        /// What the declaration wants.
        wanted: u64,
    },
}

/// A property of a map that decides whether a pinned one can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property {
    /// `enum bpf_map_type`.
    MapType,
    /// Bytes of a key.
    KeySize,
    /// Bytes of a value.
    ValueSize,
    /// Entries, normalised.
    MaxEntries,
    /// BPF_F_*.
    MapFlags,
    /// Low half of the type-specific word.
    MapExtra,
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Property::MapType => "type",
            Property::KeySize => "key size",
            Property::ValueSize => "value size",
            Property::MaxEntries => "max_entries",
            Property::MapFlags => "map_flags",
            Property::MapExtra => "map_extra",
        })
    }
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PinError::Path(errno) => write!(f, "not a path for a pin: {errno}"),
            PinError::Directory(errno) => write!(f, "cannot make the pin's directory: {errno}"),
            PinError::Pin(errno) => write!(f, "cannot pin: {errno}"),
            PinError::NotMap => f.write_str("what is pinned there is no map, but a program or a link"),
            PinError::NotProgram => f.write_str("what is pinned there is no program"),
            PinError::Open(errno) => write!(f, "cannot open the pin: {errno}"),
            PinError::Remove(errno) => write!(f, "cannot remove the pin: {errno}"),
            PinError::Create(errno) => write!(f, "cannot create the map to pin: {errno}"),
            PinError::NotBpfFs(errno) => {
                write!(f, "cannot pin: {errno}: no bpf file system is there: mount -t bpf bpf /sys/fs/bpf (as root)")
            }
            PinError::Mismatch { property: Property::MapType, found, wanted } => {
                let name = |number: u64| MapTypeName(u32::try_from(number).unwrap_or(u32::MAX));
                let (found, wanted) = (name(found), name(wanted));
                write!(f, "another map is pinned there: its type is {found}, {wanted} is declared")
            }
            PinError::Mismatch { property, found, wanted } => {
                write!(f, "another map is pinned there: its {property} is {found}, {wanted} is declared")
            }
        }
    }
}

impl core::error::Error for PinError {}

impl PinError {
    /// What the kernel answered, where it is the kernel that refuses something.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match *self {
            Self::Path(errno)
            | Self::Directory(errno)
            | Self::Pin(errno)
            | Self::NotBpfFs(errno)
            | Self::Open(errno)
            | Self::Remove(errno)
            | Self::Create(errno) => Some(errno),
            Self::NotMap | Self::NotProgram | Self::Mismatch { .. } => None,
        }
    }
}

/// Pins a map, a program or a link; directories on the way are made (mode 0700).
///
/// # Errors
/// [`PinError::Directory`], [`PinError::Pin`].
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> Result<(), PinError> {
    pin_noting(object, path).map(drop)
}

/// As [`pin`]; the result is where the directories start that were made for it, if any. Where the pin cannot be made
/// they are removed again.
fn pin_noting(object: BorrowedFd<'_>, path: &Path) -> Result<Option<usize>, PinError> {
    let c_path = CPath::new(path).map_err(PinError::Path)?;
    let parent = path.parent().map_or(&[][..], |parent| parent.as_os_str().as_bytes());
    let mut first = None;
    let made = make_directories(parent, &mut first);
    let pinned = made.and_then(|()| bpf::obj_pin(object, c_path.as_c_str()).map_err(PinError::Pin));
    let pinned = pinned.map_err(|error| explain(error, path));
    match (pinned, first) {
        (Ok(()), first) => Ok(first),
        (Err(error), Some(first)) => {
            remove_directories_of(parent, first);
            Err(error)
        }
        (Err(error), None) => Err(error),
    }
}

/// A refusal to make a pin at `path`, which where no bpf file system is mounted is not about the pin.
fn explain(error: PinError, path: &Path) -> PinError {
    let (PinError::Pin(errno) | PinError::Directory(errno)) = error else { return error };
    // The nearest directory that is there; what cannot be asked leaves the error as it is.
    let kind = path.ancestors().skip(1).find_map(|directory| {
        let directory = CPath::new(directory).ok()?;
        rustix::fs::statfs(directory.as_c_str()).ok()
    });
    match kind {
        Some(kind) if errno != Errno::EEXIST && kind.f_type as u64 & 0xffff_ffff != BPF_FS_MAGIC => {
            PinError::NotBpfFs(errno)
        }
        _ => error,
    }
}

/// BPF_FS_MAGIC of linux/magic.h.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Where a path's directories end, from the root on.
fn ends(bytes: &[u8]) -> impl DoubleEndedIterator<Item = usize> {
    (1..=bytes.len()).filter(|end| *end == bytes.len() || bytes[*end] == b'/')
}

/// Makes the missing directories, one by one from the root; no recursion, for a path is as long as the caller likes.
/// `first` is set to the length of the first one's path.
fn make_directories(bytes: &[u8], first: &mut Option<usize>) -> Result<(), PinError> {
    for end in ends(bytes) {
        let prefix = CPath::from_bytes(&bytes[..end]).map_err(PinError::Path)?;
        match mkdir(prefix.as_c_str(), Mode::RWXU) {
            Ok(()) => *first = first.or(Some(end)),
            // Also where another loader made it a moment ago.
            Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(PinError::Directory(errno.into())),
        }
    }
    Ok(())
}

/// Removes the directories of a path that are no shorter than `first`, as far as nobody else has put something there.
pub(crate) fn remove_directories(path: &str, first: usize) {
    remove_directories_of(path.as_bytes(), first);
}

fn remove_directories_of(bytes: &[u8], first: usize) {
    for end in ends(bytes).rev().take_while(|end| *end >= first) {
        let Ok(prefix) = CPath::from_bytes(&bytes[..end]) else { return };
        // One that was never made is no reason to leave those above it.
        match rmdir(prefix.as_c_str()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(_) => return,
        }
    }
}

/// Removes a pin; the object lives on while anybody holds it.
///
/// # Errors
/// [`PinError::Remove`].
pub fn unpin(path: &Path) -> Result<(), PinError> {
    let path = CPath::new(path).map_err(PinError::Path)?;
    unlink(path.as_c_str()).map_err(|errno| PinError::Remove(errno.into()))
}

/// Opens whatever is pinned there.
///
/// # Errors
/// [`PinError::Open`]: ENOENT where nothing is.
pub fn open(path: &Path) -> Result<OwnedFd, PinError> {
    let path = CPath::new(path).map_err(PinError::Path)?;
    bpf::obj_get(path.as_c_str()).map_err(PinError::Open)
}

/// Opens a pinned map.
///
/// # Errors
/// [`PinError::Open`]; [`PinError::NotMap`] where a program or link is pinned there.
pub fn open_map(path: &Path) -> Result<MapFd, PinError> {
    let fd = open(path)?;
    match MapFd::from_fd(fd) {
        Err(Errno::EINVAL) => Err(PinError::NotMap),
        opened => opened.map_err(PinError::Open),
    }
}

/// Opens a pinned program.
///
/// # Errors
/// [`PinError::Open`]; [`PinError::NotProgram`] where a map or link is pinned there.
pub fn open_program(path: &Path) -> Result<OwnedFd, PinError> {
    let fd = open(path)?;
    match bpf::prog_info(fd.as_fd()) {
        Ok(_) => Ok(fd),
        Err(Errno::EINVAL) => Err(PinError::NotProgram),
        Err(errno) => Err(PinError::Open(errno)),
    }
}

/// Whether a map is what a declaration says, after normalising what the kernel itself changes: a perf event array of 0
/// entries, ring sizes, flags that the kernel adds.
///
/// # Errors
/// [`PinError::Mismatch`] with the first property that differs; [`PinError::Open`] where the kernel cannot be asked.
pub fn compare(map: BorrowedFd<'_>, spec: &MapSpec<'_>) -> Result<(), PinError> {
    let found = bpf::map_info(map).map_err(PinError::Open)?;
    let entries = maps::normalized_entries(spec.map_type, spec.max_entries).map_err(PinError::Open)?;
    // Kernels set it by themselves for device maps, which programs cannot write.
    let own_flags = match spec.map_type {
        map_type::DEVMAP | map_type::DEVMAP_HASH => BPF_F_RDONLY_PROG,
        _ => 0,
    };
    for (property, found, wanted) in [
        (Property::MapType, found.map_type.into(), spec.map_type.into()),
        (Property::KeySize, found.key_size.into(), spec.key_size.into()),
        (Property::ValueSize, found.value_size.into(), spec.value_size.into()),
        (Property::MaxEntries, found.max_entries.into(), entries.into()),
        (Property::MapFlags, (found.map_flags & !own_flags).into(), (spec.map_flags & !own_flags).into()),
        (Property::MapExtra, found.map_extra, spec.map_extra),
    ] {
        // What a bpf map without a key says of it is the kernel's business.
        let sizes_fixed = matches!(property, Property::KeySize | Property::ValueSize)
            && matches!(spec.map_type, map_type::RINGBUF | map_type::USER_RINGBUF);
        if found != wanted && !sizes_fixed {
            return Err(PinError::Mismatch { property, found, wanted });
        }
    }
    Ok(())
}

/// The map pinned at `path` if it is what `spec` declares, else a new one, pinned there. The second result says whether
/// it was there already.
///
/// # Errors
/// [`PinError`]; a new map that could not be pinned is closed.
pub fn reuse_or_create(path: &Path, spec: &MapSpec<'_>, memlock: Memlock) -> Result<(MapFd, bool), PinError> {
    reuse_or_create_noting(path, spec, memlock).map(|pinned| (pinned.map, pinned.was_there))
}

/// What [`reuse_or_create_noting`] found or made.
pub(crate) struct Pinned {
    pub(crate) map: MapFd,
    pub(crate) was_there: bool,
    /// The length of the path of the first directory that was made for it.
    pub(crate) first_directory: Option<usize>,
}

/// As [`reuse_or_create`], and says which directories it made.
pub(crate) fn reuse_or_create_noting(path: &Path, spec: &MapSpec<'_>, memlock: Memlock) -> Result<Pinned, PinError> {
    // The second round is for the loser of a race whose winner removed its pin at once.
    for _ in 0..2 {
        match open_map(path) {
            Ok(map) => {
                compare(map.as_fd(), spec)?;
                return Ok(Pinned { map, was_there: true, first_directory: None });
            }
            Err(PinError::Open(Errno::ENOENT)) => {}
            Err(error) => return Err(error),
        }
        let map = maps::create(spec, memlock).map_err(PinError::Create)?;
        match pin_noting(map.as_fd(), path) {
            Ok(first_directory) => return Ok(Pinned { map, was_there: false, first_directory }),
            Err(PinError::Pin(Errno::EEXIST)) => {}
            Err(error) => return Err(error),
        }
    }
    Err(PinError::Pin(Errno::EEXIST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fake::{install, some_fd, write_to};

    fn info(map_type: u32, max_entries: u32) -> Vec<u8> {
        [map_type, 7, 4, 4, max_entries, 0].iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    #[test]
    fn perf_arrays_and_rings_are_compared_by_normalized_entries() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let cpus = crate::sys::cpus::possible_cpus().unwrap();
        let page = crate::sys::page_size() as u32;
        for (map_type, declared, found, same) in [
            (map_type::PERF_EVENT_ARRAY, 0, cpus, true),
            (map_type::PERF_EVENT_ARRAY, 0, cpus + 1, false),
            (map_type::RINGBUF, 100, page, true),
            (map_type::RINGBUF, 3 * page, 4 * page, true),
            (map_type::RINGBUF, 3 * page, 8 * page, false),
            (map_type::HASH, 3, 4, false),
            (map_type::HASH, 4, 4, true),
        ] {
            let _guard = install(move |command, block| {
                if command == bpf::cmd::LINK_UPDATE {
                    return Some(Err(Errno::EINVAL));
                }
                write_to(block, 8, &info(map_type, found));
                Some(Ok(0))
            });
            let spec = MapSpec { map_type, key_size: 4, value_size: 4, max_entries: declared, ..MapSpec::default() };
            assert_eq!(compare(null.as_fd(), &spec).is_ok(), same, "{map_type} {declared} {found}");
        }
    }

    #[test]
    fn arenas_at_other_addresses_are_other_maps() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let spec = |map_extra| MapSpec { map_type: map_type::ARENA, max_entries: 1, map_extra, ..MapSpec::default() };
        let _guard = install(|command, block| {
            if command == bpf::cmd::LINK_UPDATE {
                return Some(Err(Errno::EINVAL));
            }
            let mut found = [0; 88];
            found[..4].copy_from_slice(&map_type::ARENA.to_ne_bytes());
            found[4..8].copy_from_slice(&7u32.to_ne_bytes());
            found[16..20].copy_from_slice(&1u32.to_ne_bytes());
            found[80..].copy_from_slice(&(1u64 << 44).to_ne_bytes());
            write_to(block, 8, &found);
            Some(Ok(0))
        });
        assert_eq!(compare(null.as_fd(), &spec(1 << 44)), Ok(()));
        assert_eq!(
            compare(null.as_fd(), &spec(2 << 44)),
            Err(PinError::Mismatch { property: Property::MapExtra, found: 1 << 44, wanted: 2 << 44 })
        );
    }

    #[test]
    fn the_loser_of_a_race_for_a_pin_takes_the_others_map() {
        let mut pinned = false;
        let _guard = install(move |command, block| {
            Some(match command {
                bpf::cmd::OBJ_GET if pinned => Ok(some_fd()),
                bpf::cmd::OBJ_GET => Err(Errno::ENOENT),
                bpf::cmd::MAP_CREATE => Ok(some_fd()),
                bpf::cmd::OBJ_PIN => {
                    pinned = true;
                    Err(Errno::EEXIST)
                }
                bpf::cmd::OBJ_GET_INFO_BY_FD => {
                    write_to(block, 8, &info(map_type::HASH, 9));
                    Ok(0)
                }
                bpf::cmd::LINK_UPDATE => Err(Errno::EINVAL),
                _ => panic!("command {command}"),
            })
        });
        let spec =
            MapSpec { map_type: map_type::HASH, key_size: 4, value_size: 4, max_entries: 9, ..MapSpec::default() };
        let path = Path::new("/tmp/no-such-pin");
        let (map, reused) = reuse_or_create(path, &spec, Memlock::Keep).unwrap();
        assert!(reused);
        assert_eq!(map.max_entries(), 9);
        let other = MapSpec { max_entries: 8, ..spec };
        assert_eq!(
            reuse_or_create(path, &other, Memlock::Keep).unwrap_err().to_string(),
            "another map is pinned there: its max_entries is 9, 8 is declared"
        );
    }
}

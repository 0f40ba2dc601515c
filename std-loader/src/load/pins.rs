//! The pins that a load makes by itself, so that one that fails takes them back.

use core::fmt;
use std::os::fd::AsFd;
use std::path::Path;

use corelo_core::arena::{Arena, ArenaFull, Part};
use corelo_core::object::{Map, MapId, Pinning};
use corelo_core::prepare::Prepared;

use super::{Collection, LoadError, LoadOptions};
use crate::objects::MapSpec;
use crate::objects::pin::{self, PinError, Pinned};
use crate::sys::{Errno, bpf};

/// A pin's path.
pub(super) type PinPath = heapless::String<256>;

/// What of an object's pins this load made; empty where its maps ask for none.
#[derive(Debug, Default)]
pub(super) struct Pins<'a> {
    /// The directory.
    root: &'a str,
    /// 1 by the map's id where its pin is ours.
    made: &'a mut [u8],
    /// Of the directories on the way to a pin, the first that was not there before: the length of its path.
    first_directory: Option<usize>,
}

impl<'a> Pins<'a> {
    pub(super) fn new(
        prepared: &Prepared<'_>,
        options: &LoadOptions<'_>,
        arena: &mut Arena<'a>,
    ) -> Result<Self, ArenaFull> {
        if !prepared.maps().iter().any(is_pinned) {
            return Ok(Self::default());
        }
        let root = arena.copy(options.pin_root.as_bytes(), Part::Maps)?;
        let made = arena.slice::<u8>(prepared.maps().len(), Part::Maps)?;
        Ok(Self { root: core::str::from_utf8(root).unwrap_or_default(), made, first_directory: None })
    }

    /// Remembers what was made for a map.
    pub(super) fn note(&mut self, id: MapId, pinned: &Pinned) {
        if let Some(made) = self.made.get_mut(id.index()) {
            *made = u8::from(!pinned.was_there);
        }
        // All maps are in one directory: the first that made it says what was missing.
        self.first_directory = self.first_directory.or(pinned.first_directory);
    }
}

/// Whether the definition of a map asks for a pin.
fn is_pinned(map: &Map) -> bool {
    map.pinning() == Pinning::ByName
}

impl Collection<'_> {
    fn path_of(&self, map: &Map) -> Result<PinPath, PinError> {
        let name = core::str::from_utf8(self.prepared.map_name(map)).map_err(|_| PinError::Path(Errno::EILSEQ))?;
        let mut path = PinPath::new();
        fmt::write(&mut path, format_args!("{}/{name}", self.pins.root))
            .map_err(|_| PinError::Path(Errno::ENAMETOOLONG))?;
        Ok(path)
    }

    /// The map that is pinned for this definition, or a new one that is pinned.
    pub(super) fn pinned_map(
        &self,
        id: MapId,
        map: &Map,
        spec: &MapSpec<'_>,
        options: &LoadOptions<'_>,
    ) -> Result<Pinned, LoadError> {
        let failed = |error| LoadError::Pin { map: id, error };
        let path = self.path_of(map).map_err(failed)?;
        pin::reuse_or_create_noting(Path::new(path.as_str()), spec, options.memlock).map_err(failed)
    }

    /// The path of a map's pin, and whether it was there before this load; `None` for a map without one.
    #[must_use]
    pub fn pin_of(&self, id: MapId) -> Option<(impl AsRef<str> + fmt::Debug + use<>, bool)> {
        self.map_fd(id)?;
        let map = self.prepared.declared().map(id).filter(|map| is_pinned(map))?;
        let is_ours = self.pins.made.get(id.index()).is_some_and(|&made| made != 0);
        Some((self.path_of(map).ok()?, !is_ours))
    }

    /// Removes the pins that this load made, and the directories that it made for them; those that were there before
    /// stay. A load that fails has done so already; this is for what fails after it.
    ///
    /// # Errors
    /// The first error; what can be removed is, all the same.
    pub fn unpin_new(&mut self) -> Result<(), PinError> {
        let mut result = Ok(());
        for (id, _) in self.prepared.declared().maps_by_id() {
            let Some(made) = self.pins.made.get_mut(id.index()) else { continue };
            if core::mem::take(made) == 0 {
                continue;
            }
            let removed = self.unpin_one(id);
            result = result.and(removed);
        }
        if let Some(first) = self.pins.first_directory.take() {
            pin::remove_directories(self.pins.root, first);
        }
        result
    }

    fn unpin_one(&self, id: MapId) -> Result<(), PinError> {
        let (Some(map), Some(fd)) = (self.prepared.declared().map(id), self.map_fd(id)) else { return Ok(()) };
        let path = self.path_of(map)?;
        let path = Path::new(path.as_str());
        // Another may have taken the name meanwhile: then it is his.
        let there = match pin::open(path) {
            Err(PinError::Open(Errno::ENOENT)) => return Ok(()),
            there => there?,
        };
        let id = |fd| bpf::map_info(fd).map(|info| info.id).map_err(PinError::Open);
        if id(there.as_fd())? == id(fd)? { pin::unpin(path) } else { Ok(()) }
    }
}

//! A collection that owns what it borrows from (feature `alloc`): for programs that have a heap.

use core::fmt;

use self_cell::{MutBorrow, self_cell};

use super::error::Error;
use super::flow::Progress;
use super::{Collection, Kernel, Loader};
use crate::load::SettingError;
use crate::sys::mmap::AnonMap;

/// Bytes that a growing buffer starts with.
const START: usize = 64 << 10;

/// Where it ends growing.
const LIMIT: usize = 1 << 30;

/// Where the work is done.
pub struct Buffer(Room);

enum Room {
    Grown { memory: Option<AnonMap>, byte_size: usize },
    Given(Box<dyn AsMut<[u8]> + Send>),
}

impl Buffer {
    /// Memory of its own that is no heap, and twice as large for as long as it is too small.
    #[must_use]
    pub const fn growing() -> Self {
        Self(Room::Grown { memory: None, byte_size: START })
    }

    /// This memory, whatever holds it: a `Vec<u8>`, or a device's own. It is not grown.
    #[must_use]
    pub fn given(memory: impl AsMut<[u8]> + Send + 'static) -> Self {
        Self(Room::Given(Box::new(memory)))
    }

    fn bytes(&mut self) -> Result<&mut [u8], Error> {
        match &mut self.0 {
            Room::Given(memory) => Ok((**memory).as_mut()),
            Room::Grown { memory: Some(memory), .. } => Ok(memory),
            Room::Grown { memory, byte_size } => Ok(memory.insert(AnonMap::new(*byte_size)?)),
        }
    }

    /// Twice as many bytes, none of them written; `None` where there are no more to be had.
    fn grown(self) -> Option<Self> {
        match self.0 {
            Room::Grown { byte_size, .. } if byte_size < LIMIT => {
                Some(Self(Room::Grown { memory: None, byte_size: byte_size * 2 }))
            }
            _ => None,
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Room::Grown { byte_size, .. } => write!(f, "Buffer::growing({byte_size})"),
            Room::Given(_) => f.write_str("Buffer::given"),
        }
    }
}

/// What a collection borrows from.
struct Ground {
    object: Box<[u8]>,
    kernel: Kernel<'static>,
    buffer: MutBorrow<Buffer>,
}

self_cell!(
    struct Cell {
        owner: Ground,
        #[covariant]
        dependent: Collection,
    }
);

/// A collection with all that it borrows from: the object's bytes, the kernel and the buffer. It may be kept anywhere and
/// sent to another thread.
///
/// ```no_run
/// use corelo_loader::loader::{Error, Loader, OwnedCollection};
/// use corelo_loader::prepare::Kernel;
///
/// struct Agent {
///     loaded: OwnedCollection,
/// }
///
/// impl Agent {
///     fn new(object: &[u8]) -> Result<Self, Error> {
///         let mut loaded = Loader::new(object).name("agent").load_owned(Kernel::running())?;
///         loaded.attach_all()?;
///         Ok(Self { loaded })
///     }
///
///     fn run(&self) -> Result<(), Error> {
///         let mut ring = self.loaded.collection().ring("events")?;
///         loop {
///             ring.poll(None, |record| println!("{} bytes", record.len()))?;
///         }
///     }
/// }
/// ```
pub struct OwnedCollection(Cell);

impl fmt::Debug for OwnedCollection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedCollection").field(self.collection()).finish()
    }
}

impl OwnedCollection {
    /// The collection: its programs, maps and variables by name.
    #[must_use]
    pub fn collection(&self) -> &Collection<'_> {
        self.0.borrow_dependent()
    }

    /// Does something that changes the collection.
    pub fn with_mut<R>(&mut self, change: impl FnOnce(&mut Collection<'_>) -> R) -> R {
        self.0.with_dependent_mut(|_, collection| change(collection))
    }

    /// As [`Collection::attach_all`].
    ///
    /// # Errors
    /// The same.
    pub fn attach_all(&mut self) -> Result<usize, Error> {
        self.with_mut(|collection| collection.attach_all())
    }
}

impl<'s> Loader<'_, 's> {
    /// As [`Loader::load`], into a collection that owns what it borrows from: a copy of the object's bytes, the kernel, and a
    /// buffer that grows until it fits.
    ///
    /// # Errors
    /// [`Error`]; [`SettingError::WarmStart`] after [`Loader::warm`], as a warm start is borrowed.
    pub fn load_owned(&self, kernel: Kernel<'static>) -> Result<OwnedCollection, Error> {
        self.load_owned_watched(kernel, Buffer::growing(), &mut |_| {})
    }

    /// As [`Loader::load_owned`], in a buffer of the caller's choice; `watch` is called at every step on the way, and from the
    /// first again where the buffer was grown.
    ///
    /// # Errors
    /// The same.
    pub fn load_owned_watched(
        &self,
        kernel: Kernel<'static>,
        buffer: Buffer,
        watch: &mut dyn FnMut(Progress<'_>),
    ) -> Result<OwnedCollection, Error> {
        if self.warm.is_some() {
            return Err(self.refused(SettingError::WarmStart));
        }
        let kernel = kernel.with_growing(matches!(buffer.0, Room::Grown { .. }));
        let mut ground = Ground { object: self.object.into(), kernel, buffer: MutBorrow::new(buffer) };
        loop {
            let made = Cell::try_new_or_recover(ground, |ground| {
                let buffer = ground.buffer.borrow_mut().bytes()?;
                self.of(&ground.object).load_watched(&ground.kernel, buffer, watch)
            });
            let (Ground { object, kernel, buffer }, error) = match made {
                Ok(cell) => return Ok(OwnedCollection(cell)),
                Err(failed) => failed,
            };
            let Some(buffer) = error.arena_full().and_then(|_| buffer.into_inner().grown()) else { return Err(error) };
            ground = Ground { object, kernel, buffer: MutBorrow::new(buffer) };
        }
    }

    /// The same settings for other bytes.
    fn of<'n>(&self, object: &'n [u8]) -> Loader<'n, 's> {
        Loader {
            object,
            options: self.options,
            prepare: self.prepare,
            settings: self.settings.clone(),
            has_too_many: self.has_too_many,
            log_limit: self.log_limit,
            warm: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadError;
    use crate::loader::Cause;
    use crate::sys::bpf::cmd;
    use crate::sys::fake::{install, some_fd};

    fn fixture() -> Vec<u8> {
        let endian = if cfg!(target_endian = "big") { "eb" } else { "el" };
        let path = format!("{}/../tests/fixtures/nothing_asked-{endian}.o", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(path).unwrap()
    }

    fn load(object: &[u8], buffer: Buffer, planned: &mut usize) -> Result<OwnedCollection, Error> {
        let _guard = install(|command, _| match command {
            cmd::BTF_LOAD | cmd::MAP_CREATE | cmd::PROG_LOAD => Some(Ok(some_fd())),
            _ => Some(Ok(0)),
        });
        Loader::new(object).load_owned_watched(Kernel::running(), buffer, &mut |progress| {
            *planned += usize::from(matches!(progress.step, crate::prepare::Step::Planned));
        })
    }

    #[test]
    fn a_growing_buffer_grows_until_it_fits_and_one_that_was_given_does_not() {
        let object = fixture();
        let mut planned = 0;
        let owned = load(&object, Buffer::growing(), &mut planned).unwrap();
        let needed = owned.collection().arena_bytes().high_water;
        assert!(planned == 1 && needed > 512, "{needed}");

        let small = Buffer(Room::Grown { memory: None, byte_size: 256 });
        let owned = load(&object, small, &mut 0).unwrap();
        let found = owned.collection().arena_bytes();
        assert_eq!((found.capacity, found.high_water), (needed.next_power_of_two(), needed));

        assert!(Buffer(Room::Grown { memory: None, byte_size: LIMIT }).grown().is_none());

        let exact = load(&object, Buffer::given(vec![0; needed + 8]), &mut planned).unwrap();
        assert!(exact.collection().programs().count() > 0);
        let refused = load(&object, Buffer::given(vec![0; needed / 2]), &mut planned).unwrap_err();
        assert!(refused.arena_full().is_some(), "{refused}");
    }

    #[test]
    fn a_warm_start_is_refused_by_name() {
        let object = fixture();
        let (kernel, mut buffer) = (Kernel::running(), vec![0; 64 << 10]);
        let (made, _) = Loader::new(&object).prepare(&kernel, &mut buffer).unwrap();
        let warm = made.snapshot();
        let refused = Loader::new(&object).warm(&warm).load_owned(Kernel::running()).unwrap_err();
        assert!(matches!(refused.cause(), Cause::Load(LoadError::Setting { error: SettingError::WarmStart, .. })));
    }

    #[test]
    fn it_may_go_to_another_thread() {
        fn may_go<T: Send + 'static>() {}
        may_go::<OwnedCollection>();
    }
}

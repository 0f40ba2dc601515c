//! Which map, function or extern: indexes into what an object declares, each of its own type.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! ids {
    ($($(#[$doc:meta])* $id:ident)*) => {$(
        $(#[$doc])*
        #[cfg_attr(feature = "defmt", derive(defmt::Format))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(transparent)]
        pub struct $id(u32);

        impl $id {
            /// That of this index.
            #[must_use]
            pub const fn new(index: u32) -> Self {
                Self(index)
            }

            /// The index, for slices.
            #[must_use]
            pub const fn index(self) -> usize {
                crate::numbers::to_usize(self.0)
            }

            /// The index as the object's tables have it.
            #[must_use]
            pub const fn get(self) -> u32 {
                self.0
            }

            pub(crate) fn with_each<T>(list: &[T]) -> impl Iterator<Item = (Self, &T)> {
                (0u32..).map(Self).zip(list)
            }
        }

        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// A map: an index into [`Declared::maps`](super::Declared::maps).
    MapId
    /// A function, in most uses a program: an index into [`Declared::functions`](super::Declared::functions).
    ProgramId
    /// An extern: an index into [`Declared::externs`](super::Declared::externs).
    ExternId
}

//! Byte order of what is built and read.

/// A byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl Endian {
    /// Both orders, to run a test in each.
    pub const BOTH: [Endian; 2] = [Endian::Little, Endian::Big];

    /// The order of the machine that runs the test.
    #[must_use]
    pub fn native() -> Self {
        if cfg!(target_endian = "little") { Endian::Little } else { Endian::Big }
    }

    /// The bytes of a 16-bit value.
    #[must_use]
    pub fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of a 32-bit value.
    #[must_use]
    pub fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        }
    }

    /// The bytes of a 64-bit value.
    #[must_use]
    pub fn u64(self, value: u64) -> [u8; 8] {
        match self {
            Endian::Little => value.to_le_bytes(),
            Endian::Big => value.to_be_bytes(),
        }
    }

    /// The 16-bit value at `offset`, or `None` past the end.
    #[must_use]
    pub fn read_u16(self, bytes: &[u8], offset: usize) -> Option<u16> {
        let raw = bytes.get(offset..)?.first_chunk()?;
        Some(match self {
            Endian::Little => u16::from_le_bytes(*raw),
            Endian::Big => u16::from_be_bytes(*raw),
        })
    }

    /// The 32-bit value at `offset`, or `None` past the end.
    #[must_use]
    pub fn read_u32(self, bytes: &[u8], offset: usize) -> Option<u32> {
        let raw = bytes.get(offset..)?.first_chunk()?;
        Some(match self {
            Endian::Little => u32::from_le_bytes(*raw),
            Endian::Big => u32::from_be_bytes(*raw),
        })
    }

    /// The 64-bit value at `offset`, or `None` past the end.
    #[must_use]
    pub fn read_u64(self, bytes: &[u8], offset: usize) -> Option<u64> {
        let raw = bytes.get(offset..)?.first_chunk()?;
        Some(match self {
            Endian::Little => u64::from_le_bytes(*raw),
            Endian::Big => u64::from_be_bytes(*raw),
        })
    }
}

//! Checked reads in either byte order: the only place where bytes become integers.

use scroll::Pread;

/// The byte order of a blob: that of the BTF or ELF it came from, never the host's.
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    /// Least significant byte first (`bpfel`).
    Little,
    /// Most significant byte first (`bpfeb`).
    Big,
}

impl Endian {
    /// The byte order of the machine that runs this code.
    #[must_use]
    pub const fn host() -> Self {
        if cfg!(target_endian = "big") { Self::Big } else { Self::Little }
    }

    /// The integer that a word of a blob holds.
    #[inline(always)]
    pub(crate) const fn word(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    const fn scroll(self) -> scroll::Endian {
        match self {
            Self::Little => scroll::Endian::Little,
            Self::Big => scroll::Endian::Big,
        }
    }
}

/// A borrowed run of bytes with its byte order. Every read is bounds-checked and gives `None` outside.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    data: &'a [u8],
    endian: Endian,
}

impl<'a> Bytes<'a> {
    /// `data`, whose integers are stored in `endian` order.
    #[must_use]
    pub const fn new(data: &'a [u8], endian: Endian) -> Self {
        Self { data, endian }
    }

    /// The bytes themselves.
    #[must_use]
    pub const fn data(self) -> &'a [u8] {
        self.data
    }

    /// The byte order of the integers in them.
    #[must_use]
    pub const fn endian(self) -> Endian {
        self.endian
    }

    /// How many bytes there are.
    #[must_use]
    pub const fn len(self) -> usize {
        self.data.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.data.is_empty()
    }

    /// The byte at `offset`.
    #[inline]
    #[must_use]
    pub fn u8(self, offset: usize) -> Option<u8> {
        self.data.get(offset).copied()
    }

    /// The 16-bit integer at `offset`.
    #[inline]
    #[must_use]
    pub fn u16(self, offset: usize) -> Option<u16> {
        self.data.pread_with(offset, self.endian.scroll()).ok()
    }

    /// The 32-bit integer at `offset`.
    #[inline]
    #[must_use]
    pub fn u32(self, offset: usize) -> Option<u32> {
        self.data.pread_with(offset, self.endian.scroll()).ok()
    }

    /// The signed 32-bit integer at `offset`.
    #[inline]
    #[must_use]
    pub fn i32(self, offset: usize) -> Option<i32> {
        self.data.pread_with(offset, self.endian.scroll()).ok()
    }

    /// The 64-bit integer at `offset`.
    #[inline]
    #[must_use]
    pub fn u64(self, offset: usize) -> Option<u64> {
        self.data.pread_with(offset, self.endian.scroll()).ok()
    }

    /// Three 32-bit integers in a row: the fixed part of every BTF type, the one record that is read a hundred
    /// thousand times, hence checked once.
    #[inline]
    #[must_use]
    pub fn u32x3(self, offset: usize) -> Option<[u32; 3]> {
        let record = Self::new(self.data.get(offset..)?.first_chunk::<12>()?, self.endian);
        Some([record.u32(0)?, record.u32(4)?, record.u32(8)?])
    }

    /// `len` bytes from `offset` on.
    #[inline]
    #[must_use]
    pub fn slice(self, offset: usize, len: usize) -> Option<Self> {
        let end = offset.checked_add(len)?;
        Some(Self::new(self.data.get(offset..end)?, self.endian))
    }

    /// All bytes from `offset` on.
    #[inline]
    #[must_use]
    pub fn tail(self, offset: usize) -> Option<Self> {
        Some(Self::new(self.data.get(offset..)?, self.endian))
    }

    /// The bytes from `offset` up to the next NUL, which is left out; `None` where none follows.
    #[inline]
    #[must_use]
    pub fn cstr(self, offset: usize) -> Option<&'a [u8]> {
        let tail = self.data.get(offset..)?;
        let len = tail.iter().position(|&byte| byte == 0)?;
        tail.get(..len)
    }
}

/// `value` in the byte order of the blob it is written to.
#[must_use]
pub(crate) const fn u32_bytes(value: u32, endian: Endian) -> [u8; 4] {
    match endian {
        Endian::Little => value.to_le_bytes(),
        Endian::Big => value.to_be_bytes(),
    }
}

/// As [`u32_bytes`], for 16 bits.
#[must_use]
pub(crate) const fn u16_bytes(value: u16, endian: Endian) -> [u8; 2] {
    match endian {
        Endian::Little => value.to_le_bytes(),
        Endian::Big => value.to_be_bytes(),
    }
}

/// The integer that is stored as `bytes` in `endian` order.
#[must_use]
pub(crate) const fn u32_of(bytes: [u8; 4], endian: Endian) -> u32 {
    match endian {
        Endian::Little => u32::from_le_bytes(bytes),
        Endian::Big => u32::from_be_bytes(bytes),
    }
}

/// As [`u32_of`], for 16 bits.
#[must_use]
pub(crate) const fn u16_of(bytes: [u8; 2], endian: Endian) -> u16 {
    match endian {
        Endian::Little => u16::from_le_bytes(bytes),
        Endian::Big => u16::from_be_bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_follow_the_byte_order_and_stop_at_the_end() {
        let data = [1, 2, 3, 4, 5, 6, 7, 8];
        let little = Bytes::new(&data, Endian::Little);
        let big = Bytes::new(&data, Endian::Big);
        assert_eq!(little.u16(0), Some(0x0201));
        assert_eq!(big.u16(0), Some(0x0102));
        assert_eq!(little.u32(4), Some(0x0807_0605));
        assert_eq!(big.u32(4), Some(0x0506_0708));
        assert_eq!(big.u64(0), Some(0x0102_0304_0506_0708));
        assert_eq!(little.u32(5), None);
        assert_eq!(little.u64(usize::MAX), None);
        assert!(little.slice(4, usize::MAX).is_none());
        assert!(little.u32x3(0).is_none());
    }

    #[test]
    fn a_string_needs_its_nul() {
        let bytes = Bytes::new(b"ab\0cd", Endian::Little);
        assert_eq!(bytes.cstr(0), Some(&b"ab"[..]));
        assert_eq!(bytes.cstr(2), Some(&b""[..]));
        assert_eq!(bytes.cstr(3), None);
        assert_eq!(bytes.cstr(9), None);
    }
}

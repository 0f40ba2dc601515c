//! Mappings that end with their owner: a file read-only, private memory that is no heap, memory shared with the kernel.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

use super::Errno;

/// A range of address space, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; what is done through it is for the types below to justify.
unsafe impl Send for Region {}
// SAFETY: as above; Region itself has no methods that write.
unsafe impl Sync for Region {}

impl Region {
    fn new(start: *mut c_void, len: usize) -> Result<Region, Errno> {
        let start = NonNull::new(start).ok_or(Errno::ENOMEM)?;
        Ok(Region { start, len })
    }

    pub(crate) fn file(
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
    ) -> Result<Region, Errno> {
        Region::file_near(fd, offset, len, prot, flags, 0)
    }

    /// As [`Region::file`], at `address` where that is free and the file takes it; 0 is anywhere.
    fn file_near(
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        prot: ProtFlags,
        flags: MapFlags,
        address: usize,
    ) -> Result<Region, Errno> {
        let hint = ptr::without_provenance_mut(address);
        // SAFETY: a hint without MAP_FIXED replaces no mapping that is in use.
        let start = unsafe { rustix::mm::mmap(hint, len, prot, flags, fd, offset)? };
        Region::new(start, len)
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr().cast()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is ours alone and no reference into it outlives its owner. munmap of a valid range cannot
        // fail, and there is nobody to tell.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.len) };
    }
}

/// A read-only private mapping of a file that nobody changes: the BTF files of sysfs, whose bytes are the kernel's own
/// and live as long as the kernel or module. (A user's file might be truncated meanwhile: that is read instead.)
#[derive(Debug)]
pub(crate) struct SysfsMap(Region);

impl SysfsMap {
    /// # Errors
    /// ENODEV, EINVAL or EPERM from kernels before 6.16, whose sysfs does not map; EINVAL for a file that is on another
    /// file system, where somebody may write to it.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize) -> Result<SysfsMap, Errno> {
        /// SYSFS_MAGIC
        const SYSFS: u64 = 0x6265_6572;
        if rustix::fs::fstatfs(fd)?.f_type as u64 & 0xffff_ffff != SYSFS {
            return Err(Errno::EINVAL);
        }
        Region::file(fd, 0, len, ProtFlags::READ, MapFlags::PRIVATE).map(SysfsMap)
    }
}

impl Deref for SysfsMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is mapped readable for as long as `self`, and the file behind it is immutable.
        unsafe { std::slice::from_raw_parts(self.0.start(), self.0.len()) }
    }
}

/// A 32-bit process on a 64-bit kernel can map more than a slice may have.
fn fits_a_slice(len: usize) -> Result<usize, Errno> {
    if isize::try_from(len).is_ok() { Ok(len) } else { Err(Errno::ENOMEM) }
}

/// Private anonymous memory, zero at first: a large buffer without a heap.
#[derive(Debug)]
pub struct AnonMap(Region);

impl AnonMap {
    /// `len` bytes (1 at least).
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(len: usize) -> Result<AnonMap, Errno> {
        let len = fits_a_slice(len.max(1))?;
        // SAFETY: a null hint without MAP_FIXED replaces no mapping that is in use.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        Region::new(start, len).map(AnonMap)
    }

    /// Makes it `len` bytes long, perhaps elsewhere; what it holds stays, new bytes are zero.
    ///
    /// # Errors
    /// ENOMEM; it is as it was then.
    pub fn grow(&mut self, len: usize) -> Result<(), Errno> {
        let old = self.0.len();
        if len <= old {
            return Ok(());
        }
        let len = fits_a_slice(len)?;
        // SAFETY: the old range is ours and `&mut self` shows that nobody holds a reference into it.
        let start = unsafe { rustix::mm::mremap(self.0.start().cast(), old, len, MremapFlags::MAYMOVE)? };
        self.0.start = NonNull::new(start).ok_or(Errno::ENOMEM)?;
        self.0.len = len;
        Ok(())
    }
}

impl Deref for AnonMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is mapped readable and ours alone, and no longer than a slice may be.
        unsafe { std::slice::from_raw_parts(self.0.start(), self.0.len()) }
    }
}

impl DerefMut for AnonMap {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the range is mapped writable and ours alone, and `&mut self` is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(self.0.start(), self.0.len()) }
    }
}

/// An array map (BPF_F_MMAPABLE) mapped into this process. Programs write to it meanwhile, so there are no slices of it:
/// bytes are copied in and out, aligned words of 4 bytes each in one piece, through atomic access to such words alone.
#[derive(Debug)]
pub struct ArrayMap {
    region: Region,
    writable: bool,
}

impl ArrayMap {
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize, writable: bool) -> Result<ArrayMap, Errno> {
        let prot = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let region = Region::file(fd, 0, len, prot, MapFlags::SHARED)?;
        Ok(ArrayMap { region, writable })
    }

    /// An arena, at the address that its definition fixes (0 for none).
    pub(crate) fn arena(fd: BorrowedFd<'_>, len: usize, address: usize) -> Result<ArrayMap, Errno> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let region = Region::file_near(fd, 0, len, prot, MapFlags::SHARED, address)?;
        Ok(ArrayMap { region, writable: true })
    }

    /// Bytes mapped.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        self.region.len()
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), Errno> {
        match offset.checked_add(len) {
            Some(end) if end <= self.region.len() => Ok(()),
            _ => Err(Errno::ERANGE),
        }
    }

    /// The word that has the byte at `offset`. All access is by whole words: where two threads copy at once, none of their
    /// accesses overlap another of a different size.
    fn word(&self, offset: usize) -> &AtomicU32 {
        let offset = offset & !3;
        debug_assert!(offset + 4 <= self.region.len());
        // SAFETY: `check` put the byte inside the mapping, which is whole pages and only ever accessed by its aligned words,
        // atomically, on our side.
        unsafe { AtomicU32::from_ptr(self.region.start().add(offset).cast()) }
    }

    /// Calls `each` with every word that the bytes from `offset` on are in, which bytes of it, and which of all they are.
    fn words(&self, offset: usize, len: usize, mut each: impl FnMut(&AtomicU32, Range<usize>, Range<usize>)) {
        let mut at = 0;
        while at < len {
            let first = (offset + at) % 4;
            let count = (4 - first).min(len - at);
            each(self.word(offset + at), first..first + count, at..at + count);
            at += count;
        }
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// ERANGE where they are not all inside.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Errno> {
        self.check(offset, out.len())?;
        self.words(offset, out.len(), |word, of_word, of_all| {
            let bytes = word.load(Ordering::Acquire).to_ne_bytes();
            out[of_all].copy_from_slice(&bytes[of_word]);
        });
        Ok(())
    }

    /// Copies bytes in. Those beside them in a word stay what programs make them meanwhile.
    ///
    /// # Errors
    /// ERANGE where they are not all inside, EACCES where the mapping is read-only.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Errno> {
        if !self.writable {
            return Err(Errno::EACCES);
        }
        self.check(offset, bytes.len())?;
        self.words(offset, bytes.len(), |word, of_word, of_all| {
            let bytes = &bytes[of_all];
            if let Ok(whole) = bytes.try_into() {
                word.store(u32::from_ne_bytes(whole), Ordering::Release);
                return;
            }
            let mut before = word.load(Ordering::Relaxed);
            loop {
                let mut after = before.to_ne_bytes();
                after[of_word.clone()].copy_from_slice(bytes);
                let after = u32::from_ne_bytes(after);
                match word.compare_exchange_weak(before, after, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => return,
                    Err(now) => before = now,
                }
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;

    #[test]
    fn anonymous_memory_grows_and_keeps_its_bytes() {
        let mut map = AnonMap::new(10).unwrap();
        assert_eq!(&map[..], &[0; 10]);
        map[9] = 7;
        map.grow(3 << 20).unwrap();
        assert_eq!((map.len(), map[9], map[(3 << 20) - 1]), (3 << 20, 7, 0));
        map.grow(5).unwrap();
        assert_eq!(map.len(), 3 << 20);
        assert_eq!(map.grow(isize::MAX as usize + 1), Err(Errno::ENOMEM));
        assert_eq!((map.len(), map[9]), (3 << 20, 7));
    }

    #[test]
    fn array_copies_and_bounds() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0; 4096]).unwrap();
        let map = ArrayMap::new(file.as_fd(), 4096, true).unwrap();
        map.write(3, b"hello world").unwrap();
        let mut out = [0; 11];
        map.read(3, &mut out).unwrap();
        assert_eq!(&out, b"hello world");
        assert_eq!(map.read(4090, &mut out), Err(Errno::ERANGE));
        assert_eq!(map.write(usize::MAX, b"x"), Err(Errno::ERANGE));
        let read_only = ArrayMap::new(file.as_fd(), 4096, false).unwrap();
        assert_eq!(read_only.write(0, b"x"), Err(Errno::EACCES));
        read_only.read(3, &mut out).unwrap();
        assert_eq!(&out, b"hello world");
    }
}

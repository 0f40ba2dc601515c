//! A stand-in for bpf(2) in unit tests, one per thread: error paths that no real kernel takes on demand.

use std::cell::RefCell;

use super::Errno;

type Answer = Option<Result<u32, Errno>>;
type Kernel = Box<dyn FnMut(u32, &mut [u8]) -> Answer>;

thread_local! {
    static KERNEL: RefCell<Option<Kernel>> = const { RefCell::new(None) };
}

/// Takes the fake away again when the test ends, also by a panic.
pub(crate) struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        KERNEL.with(|kernel| *kernel.borrow_mut() = None);
    }
}

/// From now on this thread's bpf(2) asks `kernel` first; `None` passes the call on to the real one.
pub(crate) fn install(kernel: impl FnMut(u32, &mut [u8]) -> Answer + 'static) -> Guard {
    KERNEL.with(|slot| *slot.borrow_mut() = Some(Box::new(kernel)));
    Guard
}

pub(crate) fn answer(cmd: u32, attr: &mut [u8]) -> Answer {
    KERNEL.with(|slot| slot.borrow_mut().as_mut().and_then(|kernel| kernel(cmd, attr)))
}

/// The u32 at a byte offset of an argument block.
pub(crate) fn u32_at(attr: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(attr[offset..offset + 4].try_into().unwrap())
}

/// Writes a u32 into an argument block, as the kernel does for log_true_size and the like.
pub(crate) fn set_u32(attr: &mut [u8], offset: usize, value: u32) {
    attr[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
}

/// A descriptor that a fake may hand out: the caller closes it as its own.
pub(crate) fn some_fd() -> u32 {
    use std::os::fd::IntoRawFd;
    std::fs::File::open("/dev/null").unwrap().into_raw_fd() as u32
}

/// Writes through a pointer of an argument block, as the kernel does into a log buffer.
pub(crate) fn write_to(attr: &[u8], pointer_offset: usize, bytes: &[u8]) {
    let address = u64::from_ne_bytes(attr[pointer_offset..pointer_offset + 8].try_into().unwrap());
    let to = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: the block was built by sys/bpf.rs from a live slice, and tests write no more than its length field says.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

/// Reads `len` bytes through a pointer of an argument block, as the kernel does.
pub(crate) fn read_from(attr: &[u8], pointer_offset: usize, len: usize) -> Vec<u8> {
    let address = u64::from_ne_bytes(attr[pointer_offset..pointer_offset + 8].try_into().unwrap());
    let from = std::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: the block was built by sys/bpf.rs from a live slice, and tests read no more than its length field says.
    unsafe { std::slice::from_raw_parts(from, len) }.to_vec()
}

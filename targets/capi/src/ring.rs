//! Records of ring buffers.

use core::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use corelo_capi_core::error::{Code, Error, finish};
use corelo_capi_core::memory::store;
use corelo_loader::events::RingBuffer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::{LoaderFailure, argument, failed, string, system};
use crate::loader::{Loader, loader};

/// The reader of one ring buffer. It holds the map by itself, so it may outlive the loader that it came from.
#[derive(Debug)]
pub struct Ring(RingBuffer);

/// Called with each record, whose bytes are the kernel's and are gone when it returns. Anything but 0 ends the call that
/// reads; that record counts as read.
pub type EachRecord = Option<unsafe extern "C" fn(context: *mut c_void, data: *const u8, size: usize) -> c_int>;

/// Opens the ring buffer map of a loaded object by its name. `corelo_ring_close` ends it. There is to be one reader of a
/// ring.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_NOT_FOUND`, `CORELO_CODE_SYSTEM`, `CORELO_CODE_STATE`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_ring_open(
    handle: *mut Loader,
    map: *const c_char,
    ring: *mut *mut Ring,
    error: *mut Error,
) -> Code {
    let open = || {
        // SAFETY: the caller's promise.
        let (loader, name) = unsafe { (loader(handle)?, string(map, "map")?) };
        let opened = loader.loaded()?.ring(name).map_err(failed)?;
        if ring.is_null() {
            return Err(argument("ring is NULL"));
        }
        // SAFETY: not NULL, and writable by the caller's promise.
        unsafe { store(ring, Box::into_raw(Box::new(Ring(opened)))) }.ok_or_else(|| argument("ring is NULL"))
    };
    // SAFETY: the caller's promise.
    unsafe { finish(open(), error) }
}

/// Ends a ring. NULL is nothing.
///
/// # Safety
/// `ring` is NULL or from `corelo_ring_open`, not closed yet, and in use by nobody.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_ring_close(ring: *mut Ring) {
    if !ring.is_null() {
        // SAFETY: it came from a box, and is given back once: the caller's promise.
        drop(unsafe { Box::from_raw(ring) });
    }
}

/// A descriptor that is readable while there are records, for the caller's own poll(2) or epoll(7); the ring keeps it.
/// -1 for NULL.
///
/// # Safety
/// `ring` is NULL or from `corelo_ring_open`, and not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_ring_fd(ring: *const Ring) -> c_int {
    // SAFETY: NULL or valid, the caller's promise.
    unsafe { ring.as_ref() }.map_or(-1, |ring| ring.0.as_fd().as_raw_fd())
}

/// Reads all complete records, after waiting for the first at most `timeout_ms` milliseconds (0: not at all; negative:
/// for ever). A signal ends the wait early. `count` may be NULL; it gets the number of records read.
///
/// Result: `CORELO_CODE_OK`, also without any record; `CORELO_CODE_SYSTEM`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say. `each` must not call anything with the same ring.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_ring_poll(
    ring: *mut Ring,
    timeout_ms: c_int,
    each: EachRecord,
    context: *mut c_void,
    count: *mut usize,
    error: *mut Error,
) -> Code {
    let poll = || {
        // SAFETY: NULL or valid and in use by nobody else, the caller's promise.
        let ring = unsafe { ring.as_mut() }.ok_or_else(|| argument("ring is NULL"))?;
        let each = each.ok_or_else(|| argument("each is NULL"))?;
        let read = ring.poll(timeout_ms, |bytes| {
            // SAFETY: a function of the caller's; the bytes live until it returns.
            unsafe { each(context, bytes.as_ptr(), bytes.len()) }
        })?;
        // SAFETY: NULL or writable, the caller's promise. NULL is fine here.
        let _ = unsafe { store(count, read) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { finish(poll(), error) }
}

/// How full the ring was found: `most_unread` gets the most bytes that ever waited to be read, `times_full` how many times
/// a record as large as the largest seen would have found no room. Either may be NULL.
///
/// Result: `CORELO_CODE_OK`, `CORELO_CODE_ARGUMENT`.
///
/// # Safety
/// The pointers are as the header's rules say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corelo_ring_fill(
    ring: *const Ring,
    most_unread: *mut u32,
    times_full: *mut u32,
    error: *mut Error,
) -> Code {
    let ask = || {
        // SAFETY: NULL or valid, the caller's promise.
        let ring = unsafe { ring.as_ref() }.ok_or_else(|| argument("ring is NULL"))?;
        let fill = ring.0.fill();
        // SAFETY: NULL or writable, the caller's promise. NULL is fine here.
        let _ = unsafe { (store(most_unread, fill.most_unread), store(times_full, fill.times_full)) };
        Ok::<(), LoaderFailure>(())
    };
    // SAFETY: the caller's promise.
    unsafe { finish(ask(), error) }
}

impl Ring {
    fn poll(&mut self, timeout_ms: c_int, mut each: impl FnMut(&[u8]) -> c_int) -> Result<usize, LoaderFailure> {
        let mut read = 0;
        for is_waited in [false, true] {
            while let Some(wish) = self.0.next(&mut each).map_err(|error| failed(error.into()))? {
                read += 1;
                if wish != 0 {
                    return Ok(read);
                }
            }
            if read > 0 || is_waited || timeout_ms == 0 {
                break;
            }
            self.wait(timeout_ms)?;
        }
        Ok(read)
    }

    /// Waits until there is a record, time runs out or a signal comes.
    fn wait(&self, timeout_ms: c_int) -> Result<(), LoaderFailure> {
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(system(format!("poll: {errno}"), errno.into())),
        }
    }
}

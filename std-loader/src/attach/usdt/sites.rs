//! Many places of one file with a uprobe each: for kernels that have no links to many places.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::UsdtError;
use crate::attach::{Kind, Link, LinkError, Scope, call, perf_event, probe, uprobe};
use crate::sys::Errno;
use crate::sys::fd_list::FdList;
use crate::sys::fd_table::MapRef;
use crate::sys::files::{self, CPath};
use crate::sys::list::Numbers;
use crate::sys::perf;

/// Places, their semaphores, and the numbers that programs are told, each in a list of its own as the kernel takes them.
#[derive(Debug, Default)]
pub(super) struct Sites {
    offsets: Numbers,
    counters: Numbers,
    cookies: Numbers,
    addresses: Numbers,
}

impl Sites {
    pub(super) fn push(&mut self, offset: u64, counter: u64, cookie: u64, address: u64) -> Result<(), LinkError> {
        let lists = [&mut self.offsets, &mut self.counters, &mut self.cookies, &mut self.addresses];
        for (list, number) in lists.into_iter().zip([offset, counter, cookie, address]) {
            list.push(number).map_err(call("mmap"))?;
        }
        Ok(())
    }

    pub(super) fn offsets(&self) -> &[u64] {
        self.offsets.as_slice()
    }

    /// Semaphores: none at all, or one for each place.
    pub(super) fn counters(&self) -> &[u64] {
        let counters = self.counters.as_slice();
        if counters.iter().all(|counter| *counter == 0) { &[] } else { counters }
    }

    pub(super) fn cookies(&self) -> &[u64] {
        self.cookies.as_slice()
    }

    /// Puts other addresses in place of the file's own: where they are in a process, by file offset.
    pub(super) fn relocate(&mut self, mut address: impl FnMut(u64) -> Result<u64, UsdtError>) -> Result<(), UsdtError> {
        for (own, offset) in self.addresses.as_mut_slice().iter_mut().zip(self.offsets.as_slice()) {
            *own = address(*offset)?;
        }
        Ok(())
    }

    /// Attaches to each. With `by_address`, that map is told the number of each place, and the places have no cookies.
    pub(super) fn attach(
        self,
        program: BorrowedFd<'_>,
        path: &Path,
        pid: Option<u32>,
        by_address: Option<BorrowedFd<'_>>,
    ) -> Result<Link, LinkError> {
        let pmu = probe::pmu_type("uprobe")?.ok_or(LinkError::NoProbes)?;
        if !self.counters().is_empty() && !counts_semaphores()? {
            return Err(UsdtError::NoSemaphores.into());
        }
        let path = CPath::new(path).map_err(|errno| LinkError::File { file: "the probed file", errno })?;
        let scope = pid.map_or(Scope::cpu(0), Scope::pid);
        // What is attached so far goes where the rest cannot be.
        let mut attached = Attached::new(by_address)?;
        let numbers = self
            .offsets()
            .iter()
            .zip(self.counters.as_slice())
            .zip(self.cookies().iter().zip(self.addresses.as_slice()));
        for ((offset, counter), (cookie, address)) in numbers {
            let cookie = match &mut attached.addresses {
                None => *cookie,
                Some(addresses) => {
                    addresses.add(*address, *cookie)?;
                    0
                }
            };
            let config = uprobe::counter_bits(*counter)?;
            let event =
                perf::probe(pmu, config, Some(path.as_c_str()), *offset, scope).map_err(call("perf_event_open"))?;
            let link = perf_event::put_on(event.as_fd(), program, cookie)?;
            for fd in link.into_iter().chain([event]) {
                attached.fds.push(fd).map_err(call("mmap"))?;
            }
        }
        Ok(Link::new(Kind::Sites(attached)))
    }
}

/// Linux 4.20.
fn counts_semaphores() -> Result<bool, LinkError> {
    const FILE: &std::ffi::CStr = c"/sys/bus/event_source/devices/uprobe/format/ref_ctr_offset";
    files::exists(FILE).map_err(|errno| LinkError::File { file: "the format of uprobes in /sys", errno })
}

/// What holds a program at many places; dropping it detaches.
#[derive(Debug)]
pub(in crate::attach) struct Attached {
    /// Links and events.
    fds: FdList,
    addresses: Option<Addresses>,
}

impl Attached {
    fn new(by_address: Option<BorrowedFd<'_>>) -> Result<Attached, LinkError> {
        let addresses = match by_address {
            None => None,
            Some(map) => {
                let map = map
                    .try_clone_to_owned()
                    .map_err(|error| call("fcntl")(error.raw_os_error().map_or(Errno::EBADF, Errno)))?;
                Some(Addresses { map, used: Numbers::new() })
            }
        };
        Ok(Attached { fds: FdList::new(), addresses })
    }
}

/// Entries of the map from addresses to numbers, removed when they go.
#[derive(Debug)]
struct Addresses {
    map: OwnedFd,
    used: Numbers,
}

impl Addresses {
    /// Where a program is at the address already, the map cannot tell the two apart.
    fn add(&mut self, address: u64, number: u64) -> Result<(), LinkError> {
        const NOEXIST: u64 = 1;
        let map = MapRef::new(self.map.as_fd()).map_err(call("BPF_OBJ_GET_INFO_BY_FD"))?;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        map.update(&address.to_ne_bytes(), &number.to_ne_bytes(), NOEXIST).map_err(|errno| match errno {
            Errno::EEXIST => UsdtError::AddressTaken { address }.into(),
            errno => call("BPF_MAP_UPDATE_ELEM")(errno),
        })?;
        self.used.push(address).map_err(call("mmap"))
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        let Ok(map) = MapRef::new(self.map.as_fd()) else { return };
        for address in self.used.as_slice() {
            // Nobody to tell.
            let _ = map.delete(&address.to_ne_bytes());
        }
    }
}

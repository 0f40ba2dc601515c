//! What agent.bpf.c and the agent share: the same for every loader.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The constant of the object: whose processes are reported.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
pub struct Config {
    pub uid: u32,
    pub every_user: u32,
}

/// A value of the map `stats`, whose keys are parents.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
pub struct Stats {
    pub execs: u64,
    pub last_ns: u64,
}

/// A record of the ring buffer `events`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
pub struct Event {
    pub pid: u32,
    pub ppid: u32,
    pub uid: u32,
    pub comm: [u8; 16],
}

impl Event {
    /// What all agents print of it.
    pub fn print(&self, stats: &Stats) {
        let comm = String::from_utf8_lossy(&self.comm);
        println!("{} {} of {}: {} so far", self.pid, comm.trim_end_matches('\0'), self.ppid, stats.execs);
    }
}

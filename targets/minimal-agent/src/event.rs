//! What the object reports: `struct event` of exec_monitor.bpf.c.

use core::fmt;

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// A record of the ring buffer.
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Event {
    kind: u32,
    pid: u32,
    ppid: u32,
    pidns: u32,
    exit_code: i32,
    exit_signal: u32,
    duration_ns: u64,
    comm: [u8; 16],
    filename: [u8; 128],
}

impl Event {
    /// The event in a record; `None` where the record has another size.
    #[must_use]
    pub fn read(record: &[u8]) -> Option<Self> {
        Self::read_from_bytes(record).ok()
    }
}

struct Name<'n>(&'n [u8]);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.split(|&byte| byte == 0).next().unwrap_or_default();
        write!(f, "{}", name.escape_ascii())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pid, ppid, comm) = (self.pid, self.ppid, Name(&self.comm));
        if self.kind == 1 {
            return write!(f, "exec pid={pid} ppid={ppid} comm={comm} filename={}", Name(&self.filename));
        }
        let milliseconds = self.duration_ns / 1_000_000;
        write!(
            f,
            "exit pid={pid} ppid={ppid} comm={comm} code={} signal={} ms={milliseconds}",
            self.exit_code, self.exit_signal
        )
    }
}

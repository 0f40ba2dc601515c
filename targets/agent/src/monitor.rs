//! The object that `corelo run` has of its own: it watches exec and exit (bpf/exec_monitor.bpf.c).

use serde_json::{Value, json};

use crate::output::text;

/// Aligned, as an object's structures want to be read.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

#[cfg(target_endian = "little")]
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../bpf/exec_monitor.bpf.o"));
#[cfg(target_endian = "big")]
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("../bpf/exec_monitor-eb.bpf.o"));

/// The bytes of the object.
pub(crate) fn object() -> &'static [u8] {
    &OBJECT.0
}

/// What messages call it.
pub(crate) const NAME: &str = "exec_monitor";

/// One record: `struct event` of the source, in the byte order of this machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event<'r> {
    kind: u32,
    pid: u32,
    ppid: u32,
    pidns: u32,
    exit_code: i32,
    exit_signal: u32,
    duration_ns: u64,
    comm: &'r [u8],
    filename: &'r [u8],
}

const EXEC: u32 = 1;

/// The line above the table.
pub(crate) const HEADER: &str = "EVENT     PID    PPID  PID NS      COMM             DETAILS";

impl<'r> Event<'r> {
    /// Reads a record; `None` for one of another shape.
    pub(crate) fn read(record: &'r [u8]) -> Option<Self> {
        let word = |at: usize| record.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes);
        let string = |at: usize, len: usize| {
            let bytes = record.get(at..at + len)?;
            bytes.split(|&byte| byte == 0).next()
        };
        Some(Self {
            kind: word(0)?,
            pid: word(4)?,
            ppid: word(8)?,
            pidns: word(12)?,
            exit_code: word(16)?.cast_signed(),
            exit_signal: word(20)?,
            duration_ns: record.get(24..)?.first_chunk().copied().map(u64::from_ne_bytes)?,
            comm: string(32, 16)?,
            filename: string(48, 128)?,
        })
    }

    pub(crate) fn json(&self) -> Value {
        let (pid, ppid, pidns, comm) = (self.pid, self.ppid, self.pidns, text(self.comm));
        if self.kind == EXEC {
            let filename = text(self.filename);
            return json!({
                "event": "exec", "pid": pid, "ppid": ppid, "pidns": pidns, "comm": comm, "filename": filename
            });
        }
        json!({
            "event": "exit", "pid": pid, "ppid": ppid, "pidns": pidns, "comm": comm,
            "exit_code": self.exit_code, "exit_signal": self.exit_signal, "duration_ns": self.duration_ns
        })
    }

    /// A row of the table.
    pub(crate) fn row(&self) -> String {
        let details = if self.kind == EXEC {
            text(self.filename)
        } else {
            let after = format!("after {:.1} ms", self.duration_ns as f64 / 1e6);
            match self.exit_signal {
                0 => format!("code {}, {after}", self.exit_code),
                signal => format!("signal {signal}, {after}"),
            }
        };
        let event = if self.kind == EXEC { "exec" } else { "exit" };
        let comm = text(self.comm).escape_debug().to_string();
        let details = details.escape_debug().to_string();
        format!("{event:<5} {:>7} {:>7}  {:<10}  {comm:<16} {details}", self.pid, self.ppid, self.pidns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_the_source_lays_it_out() {
        let mut record = Vec::new();
        for word in [2u32, 10, 4, 99, 7, 0] {
            record.extend(word.to_ne_bytes());
        }
        record.extend(1_500_000u64.to_ne_bytes());
        record.extend(*b"sh\0xxxxxxxxxxxxx");
        record.resize(176, 0);
        let event = Event::read(&record).unwrap();
        let json = event.json();
        assert_eq!((&json["event"], &json["pid"], &json["ppid"]), (&"exit".into(), &10.into(), &4.into()));
        assert_eq!((&json["comm"], &json["exit_code"]), (&"sh".into(), &7.into()));
        assert!(event.row().ends_with("sh               code 7, after 1.5 ms"), "{}", event.row());
        assert_eq!(Event::read(&record[..175]), None);
    }

    #[test]
    fn the_object_is_aligned() {
        assert_eq!(object().as_ptr().addr() % 8, 0);
    }
}

use std::error::Error;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, MapData, RingBuf};
use aya::programs::RawTracePoint;
use aya::{Ebpf, EbpfLoader, Pod};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::FromBytes;

use crate::types::{Config, Event, Stats};

#[repr(transparent)]
#[derive(Clone, Copy)]
struct Plain<T>(T);

// SAFETY: `Config` and `Stats` have no padding, and take any bytes.
unsafe impl Pod for Plain<Config> {}
unsafe impl Pod for Plain<Stats> {}

pub struct Agent {
    _ebpf: Ebpf,
    events: RingBuf<MapData>,
    stats: HashMap<MapData, u32, Plain<Stats>>,
}

impl Agent {
    pub fn start(object: &[u8], config: Config) -> Result<Self, Box<dyn Error>> {
        let config = Plain(config);
        let mut ebpf = EbpfLoader::new().override_global("config", &config, true).load(object)?;
        let program = ebpf.program_mut("on_exec").ok_or("no program on_exec")?;
        let program: &mut RawTracePoint = program.try_into()?;
        program.load()?;
        program.attach("sched_process_exec")?;
        let events = RingBuf::try_from(ebpf.take_map("events").ok_or("no map events")?)?;
        let stats = HashMap::try_from(ebpf.take_map("stats").ok_or("no map stats")?)?;
        Ok(Self { _ebpf: ebpf, events, stats })
    }

    pub fn run(&mut self, time: Duration) -> Result<(), Box<dyn Error>> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            poll(&mut [PollFd::new(&self.events, PollFlags::IN)], Some(&Timespec::try_from(left)?))?;
            while let Some(record) = self.events.next() {
                let event = Event::read_from_bytes(&record).map_err(|_| "a record of another size")?;
                event.print(&self.stats.get(&event.ppid, 0)?.0);
            }
        }
        Ok(())
    }
}

use std::error::Error;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, RingBuffer, RingBufferBuilder};
use zerocopy::{FromBytes, IntoBytes};

use crate::types::{Config, Event, Stats};

pub struct Agent {
    _object: Object,
    _link: Link,
    events: RingBuffer<'static>,
}

impl Agent {
    pub fn start(object: &[u8], config: Config) -> Result<Self, Box<dyn Error>> {
        let mut object = ObjectBuilder::default().open_memory(object)?;
        // The name of the map begins with the object's; where in it `config` lies only a generated skeleton knows.
        let is_constants = |name: &OsStr| name.to_string_lossy().ends_with(".rodata");
        let mut constants = object.maps_mut().find(|map| is_constants(map.name())).ok_or("no constants")?;
        constants.initial_value_mut().ok_or("no constants")?.copy_from_slice(config.as_bytes());
        let object = object.load()?;
        let program = object.progs_mut().find(|program| program.name() == "on_exec").ok_or("no program on_exec")?;
        let link = program.attach()?;
        let map = |name: &str| object.maps().find(|map| map.name() == name).ok_or("no such map");
        let stats = MapHandle::try_from(&map("stats")?)?;
        let mut rings = RingBufferBuilder::new();
        let ring = map("events")?;
        rings.add(&ring, move |record| on_record(record, &stats).map_or(-1, |()| 0))?;
        let events = rings.build()?;
        Ok(Self { _object: object, _link: link, events })
    }

    pub fn run(&mut self, time: Duration) -> Result<(), Box<dyn Error>> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            self.events.poll(left)?;
        }
        Ok(())
    }
}

fn on_record(record: &[u8], stats: &MapHandle) -> Option<()> {
    let event = Event::read_from_bytes(record).ok()?;
    let value = stats.lookup(&event.ppid.to_ne_bytes(), MapFlags::ANY).ok()??;
    event.print(&Stats::read_from_bytes(&value).ok()?);
    Some(())
}

use std::time::{Duration, Instant};

use corelo_loader::events::RingBuffer;
use corelo_loader::loader::{Loader, OwnedCollection};
use corelo_loader::prepare::Kernel;
use zerocopy::FromBytes;

use crate::types::{Config, Event, Stats};

pub struct Agent {
    loaded: OwnedCollection,
    events: RingBuffer,
}

impl Agent {
    pub fn start(object: &[u8], config: Config) -> Result<Self, Box<dyn std::error::Error>> {
        let mut loaded = Loader::new(object).global("config", &config).load_owned(Kernel::running())?;
        loaded.attach_all()?;
        let events = loaded.collection().ring("events")?;
        Ok(Self { loaded, events })
    }

    pub fn run(&mut self, time: Duration) -> Result<(), Box<dyn std::error::Error>> {
        let stats = self.loaded.collection().map::<u32, Stats>("stats")?;
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            self.events.wait(Some(left))?;
            while let Some(event) = self.events.next(|record| Event::read_from_bytes(record).ok())? {
                let event = event.ok_or("a record of another size")?;
                event.print(&stats.get(&event.ppid)?.ok_or("a parent that is not counted")?);
            }
        }
        Ok(())
    }
}

//! `agent OBJECT SECONDS`: every process that starts in that time. The module `agent` is one of the files beside this one.

mod agent;
mod types;

use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let object = std::fs::read(words.next().ok_or("no object is named")?)?;
    let seconds = words.next().ok_or("no number of seconds")?.parse()?;
    let config = types::Config { uid: 0, every_user: 0 };
    agent::Agent::start(&object, config)?.run(Duration::from_secs(seconds))
}

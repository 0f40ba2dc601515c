//! The agent as a program: `corelo-minimal-agent [OBJECT] [--btf FILE] [--for SECONDS] [--watchdog DEVICE]`.
//!
//! Without OBJECT it is the exec and exit monitor that is part of it, in an arena of exactly the bytes that it needs. An
//! OBJECT from a file is loaded and attached in an arena of 64 KiB; it is there to measure with.

use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use corelo_loader::prepare::ObjectFile;
use corelo_minimal_agent::agent::{self, Surroundings, Watchdog};
use corelo_minimal_agent::budget::ARENA_BYTES;
use corelo_minimal_agent::{OBJECT, event::Event};
use signal_hook::consts::{SIGINT, SIGTERM};
use zerocopy::IntoBytes;

/// The arena: zero pages of .bss, of which only those that are used become memory. u64, for its alignment.
static ARENA: Mutex<[u64; ARENA_BYTES.div_ceil(8)]> = Mutex::new([0; ARENA_BYTES.div_ceil(8)]);
/// The same for objects from files.
static LARGE_ARENA: Mutex<[u64; 8192]> = Mutex::new([0; 8192]);

struct Device {
    signals: UnixStream,
    watchdog: Option<Watchdog>,
    records: u64,
}

impl Surroundings for Device {
    fn end(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    fn ready(&mut self, programs: usize, arena_used: usize) {
        println!("ready programs={programs} arena_used={arena_used}");
    }

    fn tick(&mut self) {
        if let Some(watchdog) = &self.watchdog {
            watchdog.feed();
        }
    }

    fn record(&mut self, record: &[u8]) {
        self.records += 1;
        match Event::read(record) {
            Some(event) => println!("{event}"),
            None => println!("record of {} bytes", record.len()),
        }
    }
}

#[derive(Default)]
struct Arguments {
    object: Option<PathBuf>,
    btf: Option<PathBuf>,
    length: Option<Duration>,
    watchdog: Option<PathBuf>,
}

fn arguments() -> Option<Arguments> {
    let mut found = Arguments::default();
    let mut words = std::env::args_os().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--btf") => found.btf = Some(words.next()?.into()),
            Some("--for") => found.length = Some(Duration::from_secs(words.next()?.to_str()?.parse().ok()?)),
            Some("--watchdog") => found.watchdog = Some(words.next()?.into()),
            Some(option) if option.starts_with('-') => return None,
            _ if found.object.is_none() => found.object = Some(word.into()),
            _ => return None,
        }
    }
    Some(found)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    // A signal becomes a byte in a socket, which poll(2) sees whenever it came.
    let (signals, from_handler) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, from_handler.try_clone()?)?;
    }
    let watchdog = arguments.watchdog.as_deref().map(Watchdog::open).transpose()?;
    let mut device = Device { signals, watchdog, records: 0 };
    let btf = arguments.btf.as_deref();
    let result = match &arguments.object {
        None => {
            let mut arena = ARENA.lock()?;
            agent::run(OBJECT, btf, arena.as_mut_bytes(), Some("events"), arguments.length, &mut device)
        }
        Some(path) => {
            let bytes = ObjectFile::read(path.as_ref()).map_err(|error| format!("{}: {error}", path.display()))?;
            let mut arena = LARGE_ARENA.lock()?;
            agent::run(&bytes, btf, arena.as_mut_bytes(), None, arguments.length, &mut device)
        }
    };
    // After a failure the watchdog goes on: it is there for that.
    if let (Ok(()), Some(watchdog)) = (&result, device.watchdog) {
        watchdog.stop();
    }
    println!("end records={}", device.records);
    Ok(result?)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        let usage = "usage: corelo-minimal-agent [OBJECT] [--btf FILE] [--for SECONDS] [--watchdog DEVICE]\n";
        let _ = std::io::stderr().write_all(usage.as_bytes());
        return ExitCode::from(2);
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("corelo-minimal-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

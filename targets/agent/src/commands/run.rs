//! `corelo run`: load, attach, print records until it is enough, then a summary.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use corelo_core::btf::{TypeId, Types};
use corelo_core::uapi::map_type;
use corelo_loader::events::{RingBuffer, RingError, RingSet};
use corelo_loader::load::{Collection, Counts, Relocations};
use corelo_loader::loader::{Cause, Error};
use corelo_loader::sys::Errno;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::Options;
use crate::buffer::with_buffer;
use crate::failure::Failure;
use crate::input::read_file;
use crate::monitor::{self, Event};
use crate::output::{Out, Until, hex, text};
use crate::prepare::{KernelSource, Times, Watch};
use crate::record;
use crate::session;

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let read;
    let (bytes, file): (&[u8], String) = if options.has_file {
        read = read_file(&options.file)?;
        (&read, options.file.display().to_string())
    } else {
        (monitor::object(), monitor::NAME.into())
    };
    let kernel = KernelSource::new(options);
    let name = session::object_name(Path::new(&file));
    let stop = Stop::new()?;
    let named = session::Named::open(options)?;
    let settings = named.settings();
    let watch = Watch::new(&file, options);
    with_buffer(options.arena, |buffer| {
        let mut collection = session::load((bytes, &file, &name), &settings, &kernel, &watch, buffer)?;
        let run = Run { options, file: &file, kernel: &kernel, stop: &stop, times: watch.times() };
        let watched = run.watch(&mut collection);
        // However it ends, nothing of the object stays attached, and so nothing stays pinned.
        collection.detach_all();
        let unpinned = collection.unpin_new();
        watched?;
        unpinned.map_err(|error| Failure::Job(format!("{file}: {error}")))
    })
}

/// What a run is about, beside its collection.
struct Run<'r, 'o> {
    options: &'r Options,
    file: &'r str,
    kernel: &'r KernelSource<'o>,
    stop: &'r Stop,
    times: Times,
}

impl Run<'_, '_> {
    /// Attaches, prints until it is enough, and sums up.
    fn watch(&self, collection: &mut Collection<'_>) -> Result<(), Failure> {
        let Self { options, file, stop, .. } = *self;
        check_names(options, collection, file)?;
        let start = Instant::now();
        let (mut rings, names) = rings(collection, file)?;
        attach(collection, file)?;
        let attach_time = start.elapsed();
        let attached = collection.links().len();
        let prepared = *collection.prepared();
        let shape = Shape::new(options, prepared.local(), file)?;

        let end = options.seconds.and_then(|length| Instant::now().checked_add(length));
        let mut out = Out::until(Until { stop: stop.reader.try_clone()?.into(), deadline: end });
        if matches!(shape, Shape::Monitor) && !options.json {
            out.line(monitor::HEADER)?;
            out.flush()?;
        }
        let mut printer = Printer { out, names, shape, json: options.json, events: 0 };
        printer.consume(&mut rings, stop, end)?;
        collection.detach_all();
        // What came between the last look and the end of the last link.
        printer.drain(&mut rings)?;
        for map in &options.dump {
            dump(&mut printer.out, collection, map, options.json)?;
        }
        let mut summary = self.summary(collection, attach_time);
        let lost = collection.lost().map_err(|errno| Failure::Job(format!("{file}: map lost: {errno}")))?;
        summary["lost"] = json!(lost);
        let fills = printer.names.iter().zip(&rings);
        summary["rings"] = fills
            .map(|(name, ring)| {
                json!({
                    "ring": name,
                    "bytes": ring.byte_size(),
                    "most_unread": ring.fill().most_unread,
                    "times_full": ring.fill().times_full,
                })
            })
            .collect();
        printer.end(summary, attached, options.json)
    }

    fn summary(&self, collection: &Collection<'_>, attach_time: Duration) -> Value {
        let Counts { maps, programs } = collection.counts();
        let Relocations { patched, poisoned } = collection.relocations();
        let arena = collection.arena_bytes();
        // Microseconds are as fine as anybody wants to read.
        let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        json!({
            "programs": programs,
            "maps": maps,
            "patched": patched,
            "poisoned": poisoned,
            "btf_source": self.kernel.name(),
            "arena_bytes": arena.capacity,
            "arena_used": arena.high_water,
            "arena_kept": arena.kept,
            "arena_scratch": arena.high_water.saturating_sub(arena.kept),
            "ms": {
                "object": ms(self.times.object),
                "kernel_pass": ms(self.times.kernel_pass),
                "prepare": ms(self.times.prepare),
                "maps": ms(self.times.maps),
                "programs": ms(self.times.programs),
                "attach": ms(attach_time),
            },
        })
    }
}

/// Ends the run: readable when SIGINT or SIGTERM came.
#[derive(Debug)]
struct Stop {
    reader: UnixStream,
}

impl Stop {
    fn new() -> Result<Self, Failure> {
        Self::try_new().map_err(|error| Failure::Job(format!("cannot wait for SIGINT and SIGTERM: {error}")))
    }

    fn try_new() -> std::io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(SIGINT, writer.try_clone()?)?;
        signal_hook::low_level::pipe::register(SIGTERM, writer)?;
        Ok(Self { reader })
    }

    /// What came stays there to be read, for the output to see it too.
    fn has_come(&self) -> Result<bool, Failure> {
        let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(Failure::Job(format!("poll: {errno}"))),
        }
    }
}

/// How a record is shown.
#[derive(Clone, Copy)]
enum Shape<'s, 'a> {
    /// As an event of our own monitor.
    Monitor,
    /// As this struct of the object's types.
    Struct(&'s Types<'a>, TypeId),
    /// As bytes.
    Bytes,
}

impl<'s, 'a> Shape<'s, 'a> {
    fn new(options: &Options, local: Option<&'s Types<'a>>, file: &str) -> Result<Self, Failure> {
        let Some(name) = &options.record else {
            return Ok(if options.has_file { Self::Bytes } else { Self::Monitor });
        };
        let found = local.and_then(|types| Some((types, record::find_struct(types, name)?.id())));
        let (types, id) = found
            .ok_or_else(|| Failure::Usage(format!("--record {name}: {file} has no struct of this name in its BTF")))?;
        Ok(Self::Struct(types, id))
    }
}

/// The ring buffers of the collection, and their names.
fn rings(collection: &Collection<'_>, file: &str) -> Result<(Vec<RingBuffer>, Vec<String>), Failure> {
    let (mut rings, mut names) = (Vec::new(), Vec::new());
    for map in collection.maps() {
        let map = map.map_err(|error| job(file, &error))?;
        if map.map_type() == map_type::RINGBUF {
            rings.push(map.ring().map_err(|error| job(file, &error))?);
            names.push(text(map.name()));
        }
    }
    Ok((rings, names))
}

/// Attaches all that says where, and tells of the rest.
fn attach(collection: &mut Collection<'_>, file: &str) -> Result<(), Failure> {
    for program in collection.programs().filter(|program| !program.names_target()) {
        eprintln!(
            "corelo: note: {file}: program {} (section {}): not attached: its section names no target",
            text(program.name()),
            text(program.section())
        );
    }
    collection.attach_all().map_err(|error| job(file, &error))?;
    Ok(())
}

fn job(file: &str, error: &Error) -> Failure {
    Failure::Job(format!("{file}: {error}"))
}

/// Whether the object has the maps that options name: found out before anything is attached.
fn check_names(options: &Options, collection: &Collection<'_>, file: &str) -> Result<(), Failure> {
    for map in &options.dump {
        collection.raw_map(map).map_err(|error| match error.cause() {
            Cause::Unknown => Failure::Usage(format!("--dump {map}: {file}: {error}")),
            _ => job(file, &error),
        })?;
    }
    Ok(())
}

/// Prints every entry of a map.
fn dump(out: &mut Out, collection: &Collection<'_>, name: &str, as_json: bool) -> Result<(), Failure> {
    let failure = |errno| Failure::Job(format!("--dump {name}: {errno}"));
    let map = collection.raw_map(name).map_err(|error| Failure::Job(format!("--dump {name}: {error}")))?;
    let (mut key, mut next) = (None, vec![0; map.key_size()]);
    let mut value = vec![0; map.value_bytes()];
    // A hash map starts anew where the key at hand is deleted meanwhile: there must be an end all the same.
    for _ in 0..map.max_entries() {
        if !map.next_key(key.as_deref(), &mut next).map_err(failure)? {
            break;
        }
        match map.lookup(&next, &mut value, 0) {
            Ok(()) if as_json => out.json(&json!({ "map": name, "key": hex(&next), "value": hex(&value) }))?,
            Ok(()) => out.line(format_args!("{name}: key {} value {}", hex(&next), hex(&value)))?,
            // Deleted between the two calls.
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(failure(errno)),
        }
        key = Some(next.clone());
    }
    out.flush()
}

/// Prints records, and counts them.
struct Printer<'s, 'a> {
    out: Out,
    names: Vec<String>,
    shape: Shape<'s, 'a>,
    json: bool,
    events: u64,
}

impl Printer<'_, '_> {
    /// Prints what comes until the time is up or a signal ends it.
    fn consume(&mut self, rings: &mut [RingBuffer], stop: &Stop, end: Option<Instant>) -> Result<(), Failure> {
        let mut set = RingSet::new(rings).map_err(ring_failure)?;
        loop {
            self.take(&mut set)?;
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) || stop.has_come()? {
                return Ok(());
            }
            let timeout = left.map(|left| Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i32::MAX.into()),
                tv_nsec: left.subsec_nanos().into(),
            });
            let mut fds =
                [PollFd::from_borrowed_fd(set.as_fd(), PollFlags::IN), PollFd::new(&stop.reader, PollFlags::IN)];
            match rustix::event::poll(&mut fds, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Failure::Job(format!("poll: {errno}"))),
            }
        }
    }

    /// Prints what is there.
    fn drain(&mut self, rings: &mut [RingBuffer]) -> Result<(), Failure> {
        let mut set = RingSet::new(rings).map_err(ring_failure)?;
        self.take(&mut set)
    }

    fn take(&mut self, set: &mut RingSet<'_>) -> Result<(), Failure> {
        let mut printed = Ok(());
        set.consume(|ring, bytes| {
            if printed.is_ok() {
                printed = self.print(ring, bytes);
            }
        })
        .map_err(ring_failure)?;
        printed?;
        self.out.flush()
    }

    fn print(&mut self, ring: usize, bytes: &[u8]) -> Result<(), Failure> {
        self.events += 1;
        let name = self.names.get(ring).map_or("", String::as_str);
        match self.shape {
            Shape::Monitor => match Event::read(bytes) {
                Some(event) if self.json => self.out.json(&event.json()),
                Some(event) => self.out.line(event.row()),
                None => Err(Failure::Job(format!("ring {name}: a record of {} bytes is no event", bytes.len()))),
            },
            Shape::Struct(types, id) => {
                let value = record::decode(types, id, bytes);
                if self.json {
                    self.out.json(&json!({ "ring": name, "record": value }))
                } else {
                    self.out.line(format_args!("{name}: {}", record::line(&value)))
                }
            }
            Shape::Bytes if self.json => self.out.json(&json!({ "ring": name, "bytes": hex(bytes) })),
            Shape::Bytes => self.out.line(format_args!("{name}: {}", record::hex_and_ascii(bytes))),
        }
    }

    fn end(mut self, mut summary: Value, attached: usize, as_json: bool) -> Result<(), Failure> {
        summary["attached"] = attached.into();
        summary["events"] = self.events.into();
        if as_json {
            self.out.json(&json!({ "summary": summary }))?;
            return self.out.flush();
        }
        let field = |name: &str| summary[name].to_string();
        let lines = [
            format!("programs     {} loaded, {} attached", field("programs"), field("attached")),
            format!("maps         {}", field("maps")),
            format!("relocations  {} patched, {} poisoned", field("patched"), field("poisoned")),
            format!("kernel BTF   {}", summary["btf_source"].as_str().unwrap_or_default()),
            format!(
                "arena        {} bytes given, {} used: {} kept, {} for the largest scratch",
                field("arena_bytes"),
                field("arena_used"),
                field("arena_kept"),
                field("arena_scratch")
            ),
            format!("records      {}", field("events")),
            match summary["lost"].as_u64() {
                Some(lost) => format!("lost         {lost} records found no room, by the object's own count"),
                None => "lost         not known: the object has no map `lost` to count in".to_owned(),
            },
        ];
        self.out.line("")?;
        for line in lines {
            self.out.line(line)?;
        }
        for ring in summary["rings"].as_array().into_iter().flatten() {
            self.out.line(format_args!(
                "ring {}: at most {} of {} bytes waited to be read; full {} times",
                ring["ring"].as_str().unwrap_or_default(),
                ring["most_unread"],
                ring["bytes"],
                ring["times_full"],
            ))?;
        }
        let times = summary["ms"].as_object().into_iter().flatten();
        let times: Vec<String> = times.map(|(phase, ms)| format!("{phase} {ms}")).collect();
        self.out.line(format_args!("milliseconds {}", times.join(", ")))?;
        self.out.flush()
    }
}

fn ring_failure(error: RingError) -> Failure {
    Failure::Job(format!("ring buffer: {error}"))
}

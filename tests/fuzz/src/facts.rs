//! All that can be asked of a prepared object, as one number: equal for equal answers.

use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hasher as _};

use corelo_core::arena::{Arena, ArenaFull};
use corelo_core::btf::KernelBtfFeatures;
use corelo_core::btf::sanitize::SanitizeError;
use corelo_core::link::LinkCause;
use corelo_core::object::{Object, ProgramId};
use corelo_core::prepare::{Options, PrepareError, Prepared, prepare};
use corelo_core::relo::decision::Verdict;
use corelo_loader::report::{LinkReport, RelocationPlace, RelocationReport};
use zerocopy::IntoBytes as _;

/// Hashes what is written, so that messages of any length cost no memory.
#[derive(Default)]
pub struct Digest(DefaultHasher);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl Digest {
    /// Adds a value by its debug form.
    pub fn add(&mut self, value: impl fmt::Debug) {
        let _ = write!(self, "{value:?};");
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The number.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// The number of all answers, and the arena's high-water mark.
    Done(u64, usize),
    /// The arena was too small.
    Full(ArenaFull),
    /// The object or the kernel's BTF is at fault: the number of the message.
    Failed(u64),
}

/// Bytes that no run of an input of some kilobytes needs.
pub const ROOM: usize = 4 << 20;

/// Prepares and links everything in an arena of `size` bytes that hold `dirt` before.
#[must_use]
pub fn run(object: &[u8], kernel: Option<&[u8]>, options: Options, features: u8, size: usize, dirt: u64) -> Run {
    thread_local!(static WORDS: std::cell::RefCell<Vec<u64>> = std::cell::RefCell::new(vec![0; ROOM / 8]));
    WORDS.with_borrow_mut(|words| {
        // What lies beyond the last run's end is still what it was at first.
        words[..size.min(1 << 18).div_ceil(8)].fill(dirt);
        let mut arena = Arena::new(&mut words.as_mut_bytes()[..size]);
        let run = run_in(object, kernel, options, features, &mut arena);
        assert!(arena.used() <= arena.high_water() && arena.high_water() <= size);
        match run {
            Ok(number) => Run::Done(number, arena.high_water()),
            Err(End::Full(full)) => {
                assert!(full.wanted > full.left && full.left <= size, "{full}");
                Run::Full(full)
            }
            Err(End::Failed(number)) => Run::Failed(number),
        }
    })
}

enum End {
    Full(ArenaFull),
    Failed(u64),
}

fn failed(error: impl fmt::Display) -> End {
    let mut digest = Digest::default();
    let _ = write!(digest, "{error}");
    End::Failed(digest.finish())
}

fn run_in<'a>(
    object: &'a [u8],
    kernel: Option<&'a [u8]>,
    options: Options,
    features: u8,
    arena: &mut Arena<'a>,
) -> Result<u64, End> {
    let object = Object::parse(object).map_err(failed)?;
    let prepared = prepare(&object, kernel, options, arena).map_err(|error| match error {
        PrepareError::Arena(full) => End::Full(full),
        error => failed(error),
    })?;
    let mut digest = Digest::default();
    all(&prepared, features, arena, &mut digest)?;
    Ok(digest.finish())
}

/// Every function, whatever it is.
fn programs(prepared: &Prepared<'_>) -> impl Iterator<Item = ProgramId> + use<> {
    (0..prepared.declared().functions().len() as u32).map(ProgramId::new)
}

/// Asks everything.
fn all(prepared: &Prepared<'_>, features: u8, arena: &mut Arena<'_>, digest: &mut Digest) -> Result<(), End> {
    decided(prepared, true, digest);
    declared(prepared, digest);
    for number in programs(prepared) {
        match prepared.program(number, &mut arena.scratch()) {
            Ok(linked) => {
                digest.bytes(linked.insns.as_bytes());
                digest.add((linked.placements, linked.references));
                digest.bytes(linked.func_info.bytes);
                digest.bytes(linked.line_info.bytes);
            }
            Err(error) => {
                if let LinkCause::Arena(full) = error.cause {
                    return Err(End::Full(full));
                }
                let _ = write!(digest, "{}", LinkReport { prepared, program: number, error });
            }
        }
        match prepared.maps_of(number, &mut arena.scratch(), |map| digest.add(map)) {
            Err(error) if matches!(error.cause, LinkCause::Arena(_)) => {
                let LinkCause::Arena(full) = error.cause else { continue };
                return Err(End::Full(full));
            }
            result => digest.add(result),
        }
    }
    let mut set = KernelBtfFeatures::NONE;
    for (number, (feature, _)) in KernelBtfFeatures::EACH.into_iter().enumerate() {
        if features & (1 << number) != 0 {
            set = set.with(feature);
        }
    }
    match prepared.kernel_btf(set, &mut arena.scratch()) {
        Ok(blob) => digest.bytes(blob.unwrap_or_default()),
        Err(SanitizeError::Arena(full)) => return Err(End::Full(full)),
        Err(error) => digest.add(error),
    }
    Ok(())
}

/// What relocations, programs and externs got of the kernel. Ids of types, and what is said of them, only `with_ids`.
pub fn decided(prepared: &Prepared<'_>, with_ids: bool, digest: &mut Digest) {
    for relocation in prepared.relocations() {
        let decision = relocation.decision;
        match decision.verdict() {
            Verdict::Ambiguous { .. } if !with_ids => digest.add("ambiguous"),
            Verdict::Fault { fault, .. } if !with_ids => digest.add(fault),
            _ if !with_ids && relocation.relo.kind.number() == 7 => digest.add(decision.target().is_some()),
            verdict => {
                digest.add((verdict, decision.target_value(), decision.access_sizes()));
                digest.bytes(relocation.insns().as_bytes());
            }
        }
        if with_ids {
            digest.add((decision.target(), relocation.outcome));
            let relocation = &relocation;
            let place = RelocationPlace { prepared, relocation };
            let _ = write!(digest, "{place}: {}", RelocationReport { prepared, relocation });
        }
    }
    for number in programs(prepared) {
        let target = prepared.attach_target(number);
        if with_ids { digest.add(target) } else { digest.add(std::mem::discriminant(&target)) }
    }
    for (number, _) in prepared.declared().externs_by_id() {
        let found = prepared.extern_match(number);
        if with_ids { digest.add(found) } else { digest.add(std::mem::discriminant(&found)) }
    }
}

fn declared(prepared: &Prepared<'_>, digest: &mut Digest) {
    let object = prepared.object();
    digest.add((object.license(), object.version(), object.endian()));
    for (number, function) in programs(prepared).zip(prepared.declared().functions()) {
        digest.add((prepared.function_name(function), prepared.section_name(function), function));
        digest.add(prepared.struct_ops_member(number, |_| true));
    }
    for (number, map) in prepared.declared().maps_by_id() {
        digest.add((prepared.map_name(map), map, map.inner(), map.pinning()));
        digest.bytes(map.initial_data(object));
        for function in programs(prepared) {
            digest.add(prepared.table_has(number, function));
        }
        let ops = prepared.struct_ops(number);
        digest.add(ops);
        // The kernel says how large it is, so what allocates it must not trust that.
        if let Ok(ops) = ops
            && ops.value_size < 1 << 16
        {
            let mut value = vec![0; ops.value_size as usize];
            let result = prepared.write_struct_ops(number, &mut value, |bytes, function| {
                // None where the kernel's own struct is said to be too small for it.
                assert!(bytes.is_empty() || bytes.len() == 8);
                bytes.fill(function.index() as u8);
            });
            digest.add(result);
            digest.bytes(&value);
        }
    }
    for ext in prepared.declared().externs() {
        digest.add((ext, object.symbol_name(ext.symbol()), ext.data_range()));
    }
    prepared.slots().for_each(|slot| digest.add(slot));
    if let Some(local) = prepared.local() {
        for ty in local.btf().iter().map_while(Result::ok).take(256) {
            if let Ok(name) = local.name(&ty) {
                digest.add(prepared.variable(name));
            }
        }
    }
    prepared.parts().for_each(|part| digest.add(part));
}

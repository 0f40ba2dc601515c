//! Every object of the corpus, opened and loaded, beside what libbpf made of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use corelo_core::arena::Arena;
use corelo_core::object::Object;
use corelo_core::object::section_name::{parse, split_optional};
use corelo_core::prepare::{Options, Plan, prepare};
use corelo_loader::kernel::KernelBtf;
use corelo_loader::load::{Change, Collection, Counts, LoadOptions, Setting, map_name};
use corelo_loader::objects::GrowingLog;
use corelo_loader::report;
use corelo_tests::corpus::{Corpus, MapRow, ProgramRow, corpus};
use corelo_tests::kernel::require_kernel;

/// Objects that libbpf loads and that are refused here, and why.
const LOAD_EXCEPTIONS: &[(&str, &str)] = &[];

/// Where maps that ask for it are pinned, for the time of the test.
const PIN_ROOT: &str = "/sys/fs/bpf/corelo-corpus-load";

/// The directory of pins, removed with all pins when the test ends.
struct Pins;

impl Pins {
    fn new() -> Self {
        let pins = Pins;
        pins.clear();
        // Where bpffs is not mounted no object can pin; those that want to fail by name.
        let _ = std::fs::create_dir(PIN_ROOT);
        pins
    }

    fn clear(&self) {
        for entry in std::fs::read_dir(PIN_ROOT).into_iter().flatten().flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        self.clear();
        let _ = std::fs::remove_dir(PIN_ROOT);
    }
}

/// The name that libbpf was given: the file's, up to its ending.
fn object_name(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split_once('.').map_or(file, |(name, _)| name)
}

fn by_object<T>(rows: Vec<T>, object: impl Fn(&T) -> &str) -> BTreeMap<String, Vec<T>> {
    let mut map = BTreeMap::<String, Vec<T>>::new();
    for row in rows {
        map.entry(object(&row).to_owned()).or_default().push(row);
    }
    map
}

fn program_line(row: &ProgramRow) -> String {
    format!(
        "{} {} type {} attach {} insns {} autoload {}",
        row.program, row.section, row.prog_type, row.attach_type, row.insns, row.autoload
    )
}

fn map_line(row: &MapRow) -> String {
    format!(
        "{} type {} key {} value {} entries {} flags {:#x}",
        row.map, row.map_type, row.key_size, row.value_size, row.max_entries, row.flags
    )
}

/// The lines that only one side has.
fn differences(ours: &mut [String], theirs: &mut [String]) -> String {
    ours.sort();
    theirs.sort();
    let mut text = String::new();
    for line in ours.iter().filter(|line| !theirs.contains(line)) {
        writeln!(text, "  only here:   {line}").unwrap();
    }
    for line in theirs.iter().filter(|line| !ours.contains(line)) {
        writeln!(text, "  only libbpf: {line}").unwrap();
    }
    if text.is_empty() && ours.len() != theirs.len() {
        writeln!(text, "  {} here, {} of libbpf", ours.len(), theirs.len()).unwrap();
    }
    text
}

fn kernel_has(version: &str) -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|release| release.starts_with(version))
}

#[test]
fn what_libbpf_opens_opens_with_the_same_programs_and_maps() {
    let Some(corpus) = corpus() else { return };
    let programs = by_object(corpus.programs(), |row| &row.object);
    let maps = by_object(corpus.maps(), |row| &row.object);
    let mut wrong = String::new();
    let mut opened = 0;
    for verdict in corpus.verdicts().iter().filter(|verdict| verdict.opens()) {
        let path = &verdict.object;
        let file = corpus.read(path);
        let mut buffer = vec![0u8; 8 << 20];
        let mut arena = Arena::new(&mut buffer);
        let object = match Object::parse(&file) {
            Ok(object) => object,
            Err(error) => {
                writeln!(wrong, "{path}: {error}").unwrap();
                continue;
            }
        };
        let plan = match Plan::new(&object, Options::default(), &mut arena) {
            Ok(plan) => plan,
            Err(error) => {
                writeln!(wrong, "{path}: {error}").unwrap();
                continue;
            }
        };
        opened += 1;
        let declared = plan.declared();
        let mut ours: Vec<String> = declared
            .programs()
            .map(|(_, function)| {
                let whole = object.section_name(declared.section_of(function));
                let (section, optional) = split_optional(whole);
                let kind = parse(section);
                format!(
                    "{} {} type {} attach {} insns {} autoload {}",
                    object.symbol_name(function.symbol()).escape_ascii(),
                    whole.escape_ascii(),
                    kind.map_or(0, |kind| kind.prog_type.0),
                    kind.map_or(0, |kind| kind.expected_attach_type.0),
                    function.insn_count(),
                    !optional
                )
            })
            .collect();
        let mut theirs: Vec<String> = programs.get(path).into_iter().flatten().map(program_line).collect();
        let mut differ = differences(&mut ours, &mut theirs);
        let mut ours: Vec<String> = declared
            .maps()
            .iter()
            .filter(|map| map.origin() != corelo_core::object::MapOrigin::Inner)
            .map(|map| {
                let name = map_name(map, &object, plan.local(), object_name(path).as_bytes());
                format!(
                    "{} type {} key {} value {} entries {} flags {:#x}",
                    name.escape_ascii(),
                    map.map_type,
                    map.key_size,
                    map.value_size,
                    map.max_entries,
                    map.flags
                )
            })
            .collect();
        let mut theirs: Vec<String> = maps.get(path).into_iter().flatten().map(map_line).collect();
        differ += &differences(&mut ours, &mut theirs);
        if !differ.is_empty() {
            writeln!(wrong, "{path}:\n{differ}").unwrap();
        }
    }
    println!("{opened} objects opened");
    assert!(wrong.is_empty(), "{wrong}");
    assert!(opened > 200, "{opened}");
}

/// What loading an object gave: programs and maps in the kernel, or the reason why not.
fn load(corpus: &Corpus, kernel: &KernelBtf, path: &str, without: Option<&[String]>) -> Result<(usize, usize), String> {
    let file = corpus.read(path);
    let mut buffer = vec![0u8; 16 << 20];
    let mut arena = Arena::new(&mut buffer);
    let object = Object::parse(&file).map_err(|error| error.to_string())?;
    let prepared = prepare(&object, Some(kernel), Options::default(), &mut arena).map_err(|error| error.to_string())?;
    let without_them: Vec<Setting<'_>> =
        without.into_iter().flatten().map(|name| Setting::new(name, Change::Load(false))).collect();
    let options = LoadOptions {
        settings: &without_them,
        default_max_entries: without.map(|_| 1),
        pin_root: PIN_ROOT,
        ..LoadOptions::new(object_name(path).as_bytes())
    };
    let mut log = GrowingLog::new(64 << 10, 16 << 20);
    let mut collection = Collection::create(&prepared, &options, &mut arena)
        .map_err(|error| report::LoadReport { error, prepared: &prepared, pin_root: "/sys/fs/bpf" }.to_string())?;
    collection.load_programs(&options, &mut arena, &mut log).map_err(|error| {
        let text = String::from_utf8_lossy(log.as_bytes());
        let text = text.trim_end_matches('\0').trim_end();
        let tail: Vec<&str> = text.lines().rev().take(6).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        format!(
            "{}\n    {}",
            report::LoadReport { error, prepared: &prepared, pin_root: "/sys/fs/bpf" },
            tail.join("\n    ")
        )
    })?;
    let Counts { maps, programs } = collection.counts();
    Ok((programs, maps))
}

#[test]
fn what_libbpf_loads_loads() {
    let Some(corpus) = corpus() else { return };
    if !require_kernel("loads the corpus") {
        return;
    }
    if !kernel_has("6.18.") {
        return corelo_tests::kernel::not_here("libbpf's recorded loads", "they were recorded on Linux 6.18");
    }
    let pins = Pins::new();
    let kernel = KernelBtf::open().unwrap();
    let programs = by_object(corpus.programs(), |row| &row.object);
    let only = std::env::var("CORELO_ONLY").unwrap_or_default();
    let (mut loaded, mut refused) = (0, Vec::new());
    println!("{:<78} {:>5} {:>5}  {:<8} ours", "object", "progs", "maps", "libbpf");
    for verdict in corpus.verdicts().iter().filter(|verdict| verdict.opens()) {
        let path = &verdict.object;
        if !path.contains(&only) {
            continue;
        }
        let trampolines: Vec<String> = programs
            .get(path)
            .into_iter()
            .flatten()
            .filter(|row| {
                let section = row.section.trim_start_matches('?');
                ["fentry", "fexit", "fmod_ret", "lsm"].iter().any(|kind| section.starts_with(kind))
            })
            .map(|row| row.program.clone())
            .collect();
        let runs: [(bool, Option<&[String]>); 2] = [
            (verdict.load_default == "load_ok", None),
            (verdict.load_no_trampoline_sized == "load_ok", Some(&trampolines)),
        ];
        let mut ours = String::from("not tried");
        if !verdict.loads() {
            // Nothing is asked of these; what we say of them is printed.
            pins.clear();
            ours = match load(&corpus, &kernel, path, Some(&trampolines)) {
                Ok((programs, maps)) => format!("ok {programs}/{maps}"),
                Err(error) => format!("refused: {}", error.lines().next().unwrap_or_default()),
            };
        }
        for (_, without) in runs.iter().filter(|(theirs, _)| *theirs) {
            // One object's pins are not to meet another's maps of the same name.
            pins.clear();
            ours = match load(&corpus, &kernel, path, *without) {
                Ok((programs, maps)) => format!("ok {programs}/{maps}"),
                Err(error) => {
                    refused.push((path.clone(), error.clone()));
                    format!("refused: {}", error.lines().next().unwrap_or_default())
                }
            };
        }
        if verdict.loads() {
            loaded += 1;
        }
        let libbpf = if verdict.loads() { "ok" } else { "refused" };
        println!("{path:<78} {:>5} {:>5}  {libbpf:<8} {ours}", verdict.programs, verdict.maps);
    }
    println!("libbpf loads {loaded}, of which here {} are refused", refused.len());
    let mut wrong = String::new();
    for (path, error) in &refused {
        match LOAD_EXCEPTIONS.iter().find(|(name, _)| name == path) {
            Some((_, why)) => println!("exception: {path}: {why}: {error}"),
            None => writeln!(wrong, "{path}: {error}").unwrap(),
        }
    }
    assert!(LOAD_EXCEPTIONS.len() < 5);
    assert!(wrong.is_empty(), "{wrong}");
}

//! What was asked for.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use corelo_loader::kernel::ModuleFile;
use lexopt::{Arg, Parser, ValueExt};

use crate::failure::Failure;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Run,
    Load,
    Relocs,
    Insns,
    Budget,
    BtfDump,
    BtfFind,
    MinBtf,
}

/// The command line, read.
#[derive(Debug)]
pub(crate) enum Request {
    /// Print this and be done.
    Text(String),
    /// Do it.
    Run(Command, Box<Options>),
}

/// The options of all commands; each command takes some of them.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// OBJECT or FILE.
    pub(crate) file: PathBuf,
    /// Whether there is a `file`: `run` has one of its own.
    pub(crate) has_file: bool,
    /// The NAME of `btf find`.
    pub(crate) name: String,
    pub(crate) btf: Option<PathBuf>,
    pub(crate) module_btf: Vec<ModuleFile>,
    pub(crate) base: Option<PathBuf>,
    pub(crate) arena: Option<usize>,
    pub(crate) json: bool,
    pub(crate) out: Option<PathBuf>,
    pub(crate) emit_rust: bool,
    /// Programs and the loaded programs that they replace a function of.
    pub(crate) replace: Vec<(String, String)>,
    pub(crate) skip: Vec<String>,
    pub(crate) seconds: Option<Duration>,
    pub(crate) record: Option<String>,
    /// Maps whose entries `run` prints at its end.
    pub(crate) dump: Vec<String>,
    /// Further OBJECTs of `min-btf`.
    pub(crate) more_files: Vec<PathBuf>,
    /// Whether the kernel's BTF is read piece by piece even where it can be mapped.
    pub(crate) stream: bool,
    /// Whether it is read whole, not piece by piece, where it cannot be mapped.
    pub(crate) read: bool,
    /// Bytes of the window.
    pub(crate) window: Option<usize>,
}

const HELP: &str = "\
corelo loads, inspects and runs BPF CO-RE objects in kilobytes of memory

usage: corelo COMMAND [ARGUMENTS]

commands:
  run [OBJECT]        load and attach an object, print its records (without OBJECT: watch exec and exit)
  load OBJECT         create maps and load programs without attaching, say what the kernel made of them
  relocs OBJECT       show every CO-RE relocation
  insns OBJECT        write the final instructions of every program
  budget OBJECT       say how many bytes of arena the object needs
  btf dump FILE       print the types of a BTF file
  btf find FILE NAME  print the types with this name
  min-btf OBJECT...   write the few types that the objects need, for kernels that have no BTF

options:
  -h, --help          this text; after a command, the command's
  -V, --version       the version

exit codes: 0 done, 1 the job failed (some relocation, map or program), 2 bad usage or unreadable input";

const COMMON_HELP: &str = "
  --btf FILE              the kernel's BTF: raw, or an ELF file with a .BTF section (default: the running kernel's)
  --module-btf NAME=FILE  BTF of a module, split on that of the kernel; may be repeated
  --arena BYTES           size of the arena (default: grown until it fits)";

const STREAM_HELP: &str = "
  --stream                read the kernel's BTF piece by piece, also where it can be mapped (default: only where it cannot)
  --window BYTES          with --stream, so much of it at a time (default: 4096)
  --read                  read the kernel's BTF whole into memory where it cannot be mapped: faster, 3 to 6 MB";

impl Command {
    fn usage(self) -> String {
        let (usage, options) = match self {
            Self::Run => (
                "corelo run [OBJECT] [--btf FILE] [--for SECONDS] [--json] [--record STRUCT] [--dump MAP]... [--skip PROGRAM]...
       [--replace PROGRAM=TARGET]... [--stream [--window BYTES] | --read]

Loads OBJECT, attaches every program and prints the records of each ring buffer until Ctrl-C, then a summary.
Without OBJECT, prints every exec and exit of a process. Needs root or CAP_BPF and CAP_PERFMON. Pins that were made for
its maps are removed at the end, also by SIGTERM; SIGKILL leaves them in /sys/fs/bpf.",
                "
  --for SECONDS           end after so many seconds
  --json                  one JSON object a line
  --record STRUCT         print records field by field, as this struct of the object has them
  --dump MAP              at the end print each entry of this map, key and value in hex (with --json
                          {\"map\":NAME,\"key\":HEX,\"value\":HEX}); may be repeated
  --skip PROGRAM          leave this program out; may be repeated
  --replace PROGRAM=TARGET  what a freplace program replaces a function of: a loaded program, by the path of its pin or
                          as id:NUMBER; may be repeated",
            ),
            Self::Load => (
                "corelo load OBJECT [--btf FILE] [--skip PROGRAM]... [--replace PROGRAM=TARGET]... [--json]
       [--stream [--window BYTES] | --read]

Creates the maps and loads the programs without attaching them, prints what the kernel made of them, and lets go. Maps
that ask to be pinned stay in /sys/fs/bpf, and the output says which; where loading fails, new pins are removed.",
                "
  --skip PROGRAM          leave this program out; may be repeated
  --replace PROGRAM=TARGET  what a freplace program replaces a function of: a loaded program, by the path of its pin or
                          as id:NUMBER; may be repeated
  --json                  one JSON object",
            ),
            Self::Relocs => (
                "corelo relocs OBJECT [--btf FILE] [--json] [--stream [--window BYTES] | --read]

Shows every CO-RE relocation. Needs no privileges.",
                "
  --json                  one JSON object a line: program, section, insn_idx, kind, spec, candidates, status
                          (patched, poisoned, failed), local_value, target_value, insn (hex), error",
            ),
            Self::Insns => (
                "corelo insns OBJECT [--btf FILE] --out DIR [--stream [--window BYTES] | --read]

Writes the final instructions of each program to DIR/PROGRAM.insns, 8 bytes each in the object's byte order, its
subprograms after it. Needs no privileges.",
                "
  --out DIR               the directory, made if it is not there",
            ),
            Self::Budget => (
                "corelo budget OBJECT [--btf FILE] [--json] [--emit rust] [--stream [--window BYTES]]

Says how many bytes of arena preparing and loading the object need: with so many it works, with one less it does not.
That is with the kernel's BTF mapped or in memory; with --stream, when it is read piece by piece. Needs no privileges.",
                "
  --stream                the bytes that it takes with --stream: the window is part of the arena
  --window BYTES          with --stream, so large a window (default: 4096)
  --json                  {\"arena_bytes\":N,\"parts\":{NAME:BYTES}}
  --emit rust             a constant for Rust source",
            ),
            Self::BtfDump => (
                "corelo btf dump FILE [--base FILE]

Prints the types of a BTF file in the raw format of bpftool.",
                "",
            ),
            Self::MinBtf => (
                "corelo min-btf OBJECT... --btf FILE [--base FILE] -o OUT

Writes a BTF file with the few types of FILE that the objects need: relocating them against it gives the same
instructions. For devices whose kernels have no BTF. Needs no privileges.",
                "
  --btf FILE              the kernel's BTF, or that of a module
  --base FILE             the BTF that FILE is split on
  -o, --out OUT           the file to write
  --arena BYTES           size of the arena (default: grown until it fits)",
            ),
            Self::BtfFind => (
                "corelo btf find FILE NAME [--base FILE]

Prints the types of a BTF file that have this name.",
                "",
            ),
        };
        let common = if self == Self::MinBtf {
            ""
        } else if matches!(self, Self::BtfDump | Self::BtfFind) {
            "
  --base FILE             the BTF that FILE is split on
  --arena BYTES           size of the arena (default: grown until it fits)"
        } else {
            COMMON_HELP
        };
        let stream = if self.takes("read") { STREAM_HELP } else { "" };
        format!("usage: {usage}\n\noptions:{options}{stream}{common}")
    }

    fn takes(self, option: &str) -> bool {
        match option {
            "arena" => true,
            "btf" => !matches!(self, Self::BtfDump | Self::BtfFind),
            "module-btf" => !matches!(self, Self::BtfDump | Self::BtfFind | Self::MinBtf),
            "base" => matches!(self, Self::BtfDump | Self::BtfFind | Self::MinBtf),
            "read" => matches!(self, Self::Run | Self::Load | Self::Relocs | Self::Insns),
            "stream" | "window" => self.takes("read") || self == Self::Budget,
            "json" => matches!(self, Self::Run | Self::Load | Self::Relocs | Self::Budget),
            "out" => matches!(self, Self::Insns | Self::MinBtf),
            "emit" => self == Self::Budget,
            "skip" | "replace" => matches!(self, Self::Run | Self::Load),
            "for" | "record" | "dump" => self == Self::Run,
            _ => false,
        }
    }
}

/// Reads the command line, the program's own name left out.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Request, Failure> {
    read(Parser::from_args(args)).map_err(|error| match error {
        Trouble::Lexopt(error) => Failure::Usage(error.to_string()),
        Trouble::Text(text) => Failure::Usage(text),
    })
}

enum Trouble {
    Lexopt(lexopt::Error),
    Text(String),
}

impl From<lexopt::Error> for Trouble {
    fn from(error: lexopt::Error) -> Self {
        Self::Lexopt(error)
    }
}

fn read(mut parser: Parser) -> Result<Request, Trouble> {
    let command = match parser.next()? {
        None => return Err(Trouble::Text("no command given".into())),
        Some(Arg::Short('h') | Arg::Long("help")) => return Ok(Request::Text(HELP.into())),
        Some(Arg::Short('V') | Arg::Long("version")) => {
            return Ok(Request::Text(concat!("corelo ", env!("CARGO_PKG_VERSION")).into()));
        }
        Some(Arg::Value(word)) => match word.to_str() {
            Some("run") => Command::Run,
            Some("load") => Command::Load,
            Some("relocs") => Command::Relocs,
            Some("insns") => Command::Insns,
            Some("budget") => Command::Budget,
            Some("min-btf") => Command::MinBtf,
            Some("btf") => match parser.next()? {
                Some(Arg::Value(word)) if word == "dump" => Command::BtfDump,
                Some(Arg::Value(word)) if word == "find" => Command::BtfFind,
                Some(Arg::Short('h') | Arg::Long("help")) => {
                    let text = format!("{}\n\n{}", Command::BtfDump.usage(), Command::BtfFind.usage());
                    return Ok(Request::Text(text));
                }
                _ => return Err(Trouble::Text("corelo btf takes dump or find".into())),
            },
            Some("help") => return Ok(Request::Text(HELP.into())),
            _ => return Err(Trouble::Text(format!("no command {}", word.display()))),
        },
        Some(other) => return Err(other.unexpected().into()),
    };
    read_options(command, &mut parser)
}

fn read_options(command: Command, parser: &mut Parser) -> Result<Request, Trouble> {
    let mut options = Options::default();
    let mut has_name = false;
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Request::Text(command.usage())),
            Arg::Long(option) if !command.takes(option) => return Err(Arg::Long(option).unexpected().into()),
            Arg::Long("json") => options.json = true,
            Arg::Long("btf") => options.btf = Some(parser.value()?.into()),
            Arg::Long("base") => options.base = Some(parser.value()?.into()),
            Arg::Long("stream") => options.stream = true,
            Arg::Long("read") => options.read = true,
            Arg::Long("window") => options.window = Some(parser.value()?.parse()?),
            Arg::Short('o') if command.takes("out") => options.out = Some(parser.value()?.into()),
            Arg::Long("out") => options.out = Some(parser.value()?.into()),
            Arg::Long("arena") => options.arena = Some(parser.value()?.parse()?),
            Arg::Long("skip") => options.skip.push(parser.value()?.string()?),
            Arg::Long("replace") => {
                let value = parser.value()?.string()?;
                let Some((program, target)) = value.split_once('=').filter(|(a, b)| !a.is_empty() && !b.is_empty())
                else {
                    return Err(Trouble::Text(format!("--replace {value} is not PROGRAM=TARGET")));
                };
                options.replace.push((program.into(), target.into()));
            }
            Arg::Long("record") => options.record = Some(parser.value()?.string()?),
            Arg::Long("dump") => options.dump.push(parser.value()?.string()?),
            Arg::Long("for") => {
                let text = parser.value()?.string()?;
                let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                options.seconds = Some(seconds.ok_or(Trouble::Text(format!("--for {text} is no number of seconds")))?);
            }
            Arg::Long("emit") => match parser.value()?.string()?.as_str() {
                "rust" => options.emit_rust = true,
                other => return Err(Trouble::Text(format!("--emit {other} is not known, only rust is"))),
            },
            Arg::Long("module-btf") => {
                let value = parser.value()?.string()?;
                let Some((name, file)) =
                    value.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty())
                else {
                    return Err(Trouble::Text(format!("--module-btf {value} is not NAME=FILE")));
                };
                if options.module_btf.iter().any(|other| other.name == name) {
                    return Err(Trouble::Text(format!("--module-btf {name} is given twice")));
                }
                options.module_btf.push(ModuleFile { name: name.into(), path: file.into() });
            }
            Arg::Value(value) if !options.has_file => {
                options.file = value.into();
                options.has_file = true;
            }
            Arg::Value(value) if command == Command::MinBtf => options.more_files.push(value.into()),
            Arg::Value(value) if command == Command::BtfFind && !has_name => {
                options.name = value.string()?;
                has_name = true;
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if options.stream && options.read {
        return Err(Trouble::Text("--stream and --read exclude each other".into()));
    }
    let missing = match command {
        _ if options.window.is_some() && !options.stream => Some("--stream, without which --window means nothing,"),
        Command::Run => None,
        Command::BtfDump if !options.has_file => Some("FILE"),
        Command::BtfFind if !has_name => Some("FILE and NAME"),
        Command::Insns if options.out.is_none() => Some("--out DIR"),
        Command::MinBtf if options.out.is_none() => Some("-o OUT"),
        Command::MinBtf if options.btf.is_none() => Some("--btf FILE"),
        _ if !options.has_file => Some("OBJECT"),
        _ => None,
    };
    match missing {
        Some(missing) => Err(Trouble::Text(format!("{missing} is missing"))),
        None => Ok(Request::Run(command, Box::new(options))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Request, Failure> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn every_command_takes_its_own_options_and_no_other() {
        for line in [
            "run",
            "run x.o --for 1.5 --json --record event --btf f --arena 100",
            "load x.o --skip a --skip b --json",
            "relocs --json x.o --module-btf a=b --module-btf c=d",
            "insns x.o --out d",
            "budget x.o --emit rust",
            "btf dump f --base g",
            "btf find f task_struct",
            "min-btf a b --btf f --base g -o h",
            "run x.o --stream --window 4096",
            "run --read",
            "load x.o --read --btf f",
            "relocs x.o --read",
            "insns x.o --out d --read",
            "budget x.o --stream",
            "budget x.o --stream --window 4096 --json",
            "run x.o --dump a --dump b --skip c",
            "load x.o --replace a=/sys/fs/bpf/b --replace c=id:7",
        ] {
            assert!(matches!(words(line), Ok(Request::Run(..))), "{line}");
        }
        for line in [
            "",
            "fly",
            "relocs",
            "relocs a b",
            "relocs a --out d",
            "insns a",
            "min-btf a --btf f",
            "min-btf a -o f",
            "min-btf --btf f -o g",
            "load a --window 4096",
            "load a --window 4096 --read",
            "run --window 4096",
            "budget a --window 4096",
            "budget a --read",
            "load a --stream --read",
            "run --read --stream --window 4096",
            "min-btf a --btf f -o g --stream",
            "btf dump f --read",
            "btf",
            "btf show f",
            "btf find f",
            "load a --for 3",
            "load a --dump m",
            "run --for never",
            "run --for -1",
            "budget a --emit c",
            "relocs a --arena many",
            "relocs a --module-btf b",
            "relocs a --nonsense",
            "load a --replace b",
            "load a --replace b=",
            "relocs a --replace b=c",
        ] {
            assert!(matches!(words(line), Err(Failure::Usage(_))), "{line}");
        }
    }
}

//! The `corelo` command: loads, inspects and runs BPF CO-RE objects.
//!
//! ```text
//! args       what was asked for
//! commands/  one file for each command
//! prepare    object and kernel BTF, brought together in an arena
//! session    maps and programs in the kernel
//! monitor    the object that `run` has of its own
//! buffer     the arena's buffer: as large as the user says, else grown until it fits
//! failure    what ends a command early, and the exit code
//! files      files that are written as a whole or not at all
//! record     a record's bytes, field by field
//! output     text and JSON on standard output
//! ```

mod args;
mod buffer;
mod commands;
mod failure;
mod files;
mod input;
mod monitor;
mod output;
mod prepare;
mod record;
mod session;

use std::process::ExitCode;

use args::{Command, Request};
use failure::Failure;

fn main() -> ExitCode {
    let result = args::parse(std::env::args_os().skip(1)).and_then(|request| match request {
        Request::Text(text) => output::print(&text),
        Request::Run(command, options) => match command {
            Command::Run => commands::run::run(&options),
            Command::Load => commands::load::run(&options),
            Command::Relocs => commands::relocs::run(&options),
            Command::Insns => commands::insns::run(&options),
            Command::Budget => commands::budget::run(&options),
            Command::BtfDump => commands::btf::dump(&options),
            Command::BtfFind => commands::btf::find(&options),
            Command::MinBtf => commands::min_btf::run(&options),
        },
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads our output has seen enough.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_reported() {
                eprintln!("corelo: {failure}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

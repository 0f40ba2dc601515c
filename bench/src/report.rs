//! What the programs that make reports have in common: where the report goes.

use std::path::PathBuf;

/// The files and folders that a report is written to, beside standard output.
#[derive(Debug, Default)]
pub struct Outputs {
    /// A file with markers, between which the tables go.
    pub markdown: Option<PathBuf>,
    /// A folder for the plots.
    pub plots: Option<PathBuf>,
}

impl Outputs {
    /// Reads the arguments of program `name`; `None`, with a line on standard error, where they are others.
    #[must_use]
    pub fn from_args(name: &str) -> Option<Self> {
        let mut outputs = Self::default();
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match (arg.as_str(), args.next()) {
                ("--markdown", Some(file)) => outputs.markdown = Some(PathBuf::from(file)),
                ("--plots", Some(dir)) => outputs.plots = Some(PathBuf::from(dir)),
                _ => {
                    eprintln!("usage: {name} [--markdown FILE] [--plots DIR]");
                    return None;
                }
            }
        }
        Some(outputs)
    }
}

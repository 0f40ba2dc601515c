//! What ends a command early, and the exit code that it means.

use std::fmt;

use corelo_core::arena::ArenaFull;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line makes no sense.
    Usage(String),
    /// A file that the user named cannot be read or is not what it should be.
    Input(String),
    /// Some relocation, map or program failed.
    Job(String),
    /// The same, and already said where it happened.
    Reported,
    /// The arena is too small: the caller may try a larger one.
    Arena(ArenaFull),
    /// Standard output, or a file to write, is not to be written to.
    Output(std::io::Error),
}

impl Failure {
    /// 1: the job failed. 2: bad usage or unreadable input.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Input(_) => 2,
            Self::Job(_) | Self::Reported | Self::Arena(_) | Self::Output(_) => 1,
        }
    }

    /// Whether the user knows already.
    pub(crate) fn is_reported(&self) -> bool {
        matches!(self, Self::Reported)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) => write!(f, "{text} (try corelo --help)"),
            Self::Input(text) | Self::Job(text) => f.write_str(text),
            Self::Reported => f.write_str("some relocation, map or program failed"),
            Self::Arena(full) => write!(f, "{full} (give more with --arena BYTES, or leave it out)"),
            Self::Output(error) => write!(f, "cannot write: {error}"),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<ArenaFull> for Failure {
    fn from(full: ArenaFull) -> Self {
        Self::Arena(full)
    }
}

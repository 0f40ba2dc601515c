//! Text and JSON on standard output, with errors instead of panics when nobody reads it.

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

use serde_json::Value;

use crate::failure::Failure;

/// Standard output, locked and buffered.
#[derive(Debug)]
pub(crate) struct Out {
    writer: BufWriter<StdoutLock<'static>>,
    error: Option<io::Error>,
}

impl Out {
    pub(crate) fn new() -> Self {
        Self { writer: BufWriter::new(io::stdout().lock()), error: None }
    }

    /// A line of text.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        Ok(writeln!(self.writer, "{text}")?)
    }

    /// A JSON value on a line of its own.
    pub(crate) fn json(&mut self, value: &Value) -> Result<(), Failure> {
        self.line(value)
    }

    /// Hands over what is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        match self.error.take() {
            Some(error) => Err(error.into()),
            None => Ok(self.writer.flush()?),
        }
    }
}

/// The error of a refused write is kept for [`Out::flush`].
impl fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.writer.write_all(text.as_bytes()).map_err(|error| {
            self.error = Some(error);
            fmt::Error
        })
    }
}

/// Prints a whole text.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = Out::new();
    out.line(text)?;
    out.flush()
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A name of the object's as text.
pub(crate) fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

//! Writing to the terminal and to pipes.

use std::io::{self, Write};

use anyhow::{Context, Result};
use serde::Serialize;

/// Writes `text` to standard output. A reader that has gone away (`nofrag .. | head`) is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes `value` to standard output as indented JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Result<()> {
    let mut text =
        serde_json::to_string_pretty(value).context("cannot express the result in JSON")?;
    text.push('\n');
    print(&text)
}

//! Writing to the terminal and to pipes.

use std::io::{self, Write};

use anyhow::{Context, Result};
use nofrag_show::Schema;
use serde::Serialize;

/// Writes `text` to standard output. A reader that has gone away (`nofrag .. | head`) is not an error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes `text` to standard error. If that has gone away, with its terminal say, the text is lost.
pub(crate) fn tell(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes `content`, whose fields follow `schema` and `version`, to standard output as indented JSON.
pub(crate) fn print_document(schema: Schema, content: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(&schema.of(content))
        .context("cannot express the result in JSON")?;
    print(&(text + "\n"))
}

/// Writes a result to standard output: as a document if a schema was asked for, else as the text that `text` makes.
pub(crate) fn print_result(
    asked: Option<Schema>,
    content: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<()> {
    asked.map_or_else(|| print(&text()), |schema| print_document(schema, content))
}

//! Writing to the terminal and to pipes.

use std::io::{self, Write};

use anyhow::{Context, Result};
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

/// The name of the form of a result: `nofrag schema` prints the form of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schema {
    /// Name of the form, such as `nofrag.replay`.
    pub(crate) name: &'static str,
    /// Version of the form: a field that is removed or changes its meaning raises it; a new one does not.
    pub(crate) version: u32,
}

/// A result under its schema.
#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'static str,
    version: u32,
    #[serde(flatten)]
    content: &'a T,
}

/// Writes `content`, whose fields follow `schema` and `version`, to standard output as indented JSON.
pub(crate) fn print_document(
    Schema { name, version }: Schema,
    content: &impl Serialize,
) -> Result<()> {
    let document = Document { schema: name, version, content };
    let text =
        serde_json::to_string_pretty(&document).context("cannot express the result in JSON")?;
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

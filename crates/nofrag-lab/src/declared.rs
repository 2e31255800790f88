//! Tables that are part of the program: claims of documents, costs of work, rows of a run.

use serde::de::DeserializeOwned;

/// Reads a table of a TOML file.
///
/// The text goes through one type for all tables: read straight into its own type, the parser was compiled once for
/// each of a hundred of them, an eighth of this crate's code.
///
/// # Panics
/// If the text is malformed; tests read each table.
pub(crate) fn declared<T: DeserializeOwned>(text: &str) -> T {
    let value: serde_json::Value = toml::from_str(text).expect("a test reads the same text");
    serde_json::from_value(value).expect("a test reads the same text")
}

//! Tables that are part of the program: claims of documents, costs of work, rows of a run.

use serde::de::DeserializeOwned;

/// Parses `text`, a TOML file that is built into the program.
///
/// Every table becomes a `serde_json::Value` first: with a TOML parser compiled for each of a hundred types of table,
/// the parser was an eighth of this crate's code.
///
/// # Panics
/// If the text is malformed; tests read each table.
pub(crate) fn declared<T: DeserializeOwned>(text: &str) -> T {
    let value: serde_json::Value = toml::from_str(text).expect("a test reads the same text");
    serde_json::from_value(value).expect("a test reads the same text")
}

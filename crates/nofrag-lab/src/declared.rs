//! Tables that are part of the program: what documents claim, what work costs, which rows a run has.

use serde::de::DeserializeOwned;

/// Reads a table of a TOML file.
///
/// It goes through one type for all tables: read straight into theirs, the parser was compiled once for each of a
/// hundred of them, an eighth of this crate's code.
///
/// # Panics
/// When it cannot be read: tests read each.
pub(crate) fn declared<T: DeserializeOwned>(text: &str) -> T {
    let value: serde_json::Value = toml::from_str(text).expect("a test reads the same text");
    serde_json::from_value(value).expect("a test reads the same text")
}

//! The findings that rules report.

use std::fmt;

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file, relative to the repository root.
    pub(crate) file: String,
    /// The line, counted from one.
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) wrong: String,
    pub(crate) remedy: String,
}

impl Finding {
    /// Makes a finding of `rule` at `file`:`line`.
    pub(crate) fn new(
        rule: &'static str,
        file: &str,
        line: usize,
        wrong: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { file: file.to_owned(), line, rule, wrong: wrong.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { file, line, rule, wrong, remedy } = self;
        write!(f, "{file}:{line}: [{rule}] {wrong}; {remedy}")
    }
}

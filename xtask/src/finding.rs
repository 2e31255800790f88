//! What a rule reports.

use std::fmt;

/// A place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file, relative to the repository root.
    pub(crate) file: String,
    /// The line, counted from one.
    pub(crate) line: usize,
    /// The rule's name.
    pub(crate) rule: &'static str,
    /// What is wrong there.
    pub(crate) wrong: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

impl Finding {
    /// A finding of `rule` at `file`:`line`.
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

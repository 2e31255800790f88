//! Why something is coloured.

use std::fmt;

/// Why something is coloured. Colour repeats what words say, and never says anything alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// Like anything else.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// Something to know.
    Note,
    /// Something needs attention.
    Warning,
    /// Something is wrong.
    Bad,
}

impl Tone {
    /// The colour of a word by the escape sequences that every terminal understands; none for a plain one.
    pub(crate) const fn ansi(self) -> Option<&'static str> {
        match self {
            Tone::Plain => None,
            Tone::Good => Some("32"),
            Tone::Note => Some("36"),
            Tone::Warning => Some("33"),
            Tone::Bad => Some("1;31"),
        }
    }
}

/// The class of an element of a page.
impl fmt::Display for Tone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tone::Plain | Tone::Note => "plain",
            Tone::Good => "good",
            Tone::Warning => "warn",
            Tone::Bad => "bad",
        })
    }
}

//! The tones of words and elements, and their colours.

use std::fmt;

/// The meaning of a colour. Colour repeats the words, and never tells anything alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    #[default]
    Plain,
    Good,
    /// A fact to know.
    Note,
    /// A state that needs attention.
    Warning,
    /// A fault.
    Bad,
}

impl Tone {
    /// Returns the colour of a word by the escape sequences that every terminal understands; `None` for a plain one.
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

/// Writes the class of an element of a page.
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

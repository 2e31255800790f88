//! The abilities of the place where a text is read: decided once, not per picture.

use std::env;
use std::io::{self, IsTerminal};

use crate::Tone;

/// Characters, colour and width of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub glyphs: Glyphs,
    pub colour: Colour,
    pub width: usize,
}

/// The characters that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glyphs {
    /// Block elements and lines.
    Unicode,
    Ascii,
}

/// The way in which words may be coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// By the escape sequences that every terminal understands.
    Ansi,
    /// Not at all: for files and pipes, and on request.
    None,
}

impl Look {
    /// The look of a saved result, and of one in a pipe.
    pub const FILE: Look =
        Look { glyphs: Glyphs::Unicode, colour: Colour::None, width: crate::COLUMNS as usize };

    /// Returns the look of standard output for a page about a host: in pipes and files plain ASCII.
    #[must_use]
    pub fn of_stdout() -> Look {
        Place::stdout().page()
    }

    /// Returns the look of standard output for a report. Pipes and files get that of a saved one, but for `COLUMNS`.
    #[must_use]
    pub fn of_report() -> Look {
        Place::stdout().report()
    }

    /// Returns the width of lines of text: that of a report at most, as longer lines are hard to follow.
    #[must_use]
    pub fn text_width(self) -> usize {
        self.width.min(usize::from(crate::COLUMNS))
    }

    /// Returns `word` in the colour of `tone`.
    pub(crate) fn tinted(self, tone: Tone, word: &str) -> String {
        match (self.colour, tone.ansi()) {
            (Colour::Ansi, Some(code)) => format!("\x1b[{code}m{word}\x1b[0m"),
            _ => word.to_owned(),
        }
    }

    /// Returns a finished text with its alarms coloured: words in capitals with no other meaning. Tables and broken
    /// lines count columns, so that colour can come only after them.
    pub(crate) fn with_alarms(self, text: String) -> String {
        const ALARMS: [&str; 2] = ["WORSE", "BROKEN"];
        match self.colour {
            Colour::None => text,
            Colour::Ansi => ALARMS
                .iter()
                .fold(text, |text, word| text.replace(word, &self.tinted(Tone::Bad, word))),
        }
    }
}

/// The place of standard output, and the user's wishes about it.
#[derive(Clone, Copy, Debug)]
struct Place {
    terminal: Option<Terminal>,
    /// Width that `COLUMNS` asks for.
    asked: Option<u16>,
    /// `NO_COLOR` is set and not empty.
    colour_unwanted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Terminal {
    /// The locale's characters are UTF-8, and `TERM` is not `dumb`.
    shows_unicode: bool,
    knows_escapes: bool,
    columns: Option<u16>,
}

impl Place {
    fn stdout() -> Place {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let knows_escapes = set("TERM").is_none_or(|term| term != "dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let utf8 = locale.is_some_and(|locale| {
            let locale = locale.to_string_lossy().to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        let terminal = io::stdout().is_terminal().then(|| Terminal {
            shows_unicode: utf8 && knows_escapes,
            knows_escapes,
            columns: terminal_size::terminal_size_of(io::stdout()).map(|(columns, _)| columns.0),
        });
        let asked = set("COLUMNS").and_then(|columns| columns.to_str()?.parse().ok());
        Place { terminal, asked, colour_unwanted: set("NO_COLOR").is_some() }
    }

    fn page(self) -> Look {
        const DEFAULT_COLUMNS: usize = 80;
        let unicode = self.terminal.is_some_and(|terminal| terminal.shows_unicode);
        Look {
            glyphs: if unicode { Glyphs::Unicode } else { Glyphs::Ascii },
            colour: self.colour(),
            width: self.columns().unwrap_or(DEFAULT_COLUMNS),
        }
    }

    fn report(self) -> Look {
        let unicode = self.terminal.is_none_or(|terminal| terminal.shows_unicode);
        let glyphs = if unicode { Glyphs::Unicode } else { Glyphs::Ascii };
        Look { glyphs, colour: self.colour(), width: self.columns().unwrap_or(Look::FILE.width) }
    }

    /// Returns the width that is asked for, or that of the terminal, within what a text can use.
    fn columns(self) -> Option<usize> {
        let columns = self.asked.or_else(|| self.terminal?.columns)?;
        Some(usize::from(columns).clamp(60, 200))
    }

    fn colour(self) -> Colour {
        let known = self.terminal.is_some_and(|terminal| terminal.knows_escapes);
        if known && !self.colour_unwanted { Colour::Ansi } else { Colour::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_decides_characters_colour_and_width() {
        let pipe = Place { terminal: None, asked: None, colour_unwanted: false };
        assert_eq!(pipe.page(), Look { glyphs: Glyphs::Ascii, width: 80, ..Look::FILE });
        assert_eq!(pipe.report(), Look::FILE, "what is piped is what is saved");
        let modern = Terminal { shows_unicode: true, knows_escapes: true, columns: Some(500) };
        let terminal = Place { terminal: Some(modern), ..pipe };
        let coloured = Look { colour: Colour::Ansi, ..Look::FILE };
        assert_eq!(terminal.page(), Look { width: 200, ..coloured });
        assert_eq!(terminal.report(), Look { width: 200, ..coloured });
        let asked = Place { asked: Some(64), ..terminal };
        assert_eq!((asked.page().width, asked.report().width), (64, 64));
        assert_eq!(Place { asked: Some(10), ..pipe }.report().width, 60, "no table is narrower");
        let plain = Place { colour_unwanted: true, ..terminal };
        assert_eq!(plain.page(), Look { width: 200, ..Look::FILE }, "colour alone is unwanted");
        let dumb = Terminal { shows_unicode: false, knows_escapes: false, columns: None };
        let dumb = Place { terminal: Some(dumb), ..terminal };
        assert_eq!(dumb.page(), pipe.page());
        assert_eq!(dumb.report(), Look { glyphs: Glyphs::Ascii, ..Look::FILE });
    }

    #[test]
    fn colour_is_only_where_it_may_be() {
        let coloured = Look { colour: Colour::Ansi, ..Look::FILE };
        assert_eq!(coloured.tinted(Tone::Warning, "warning"), "\x1b[33mwarning\x1b[0m");
        assert_eq!(Look::FILE.tinted(Tone::Bad, "warning"), "warning");
        let text = "1 worse\n  WORSE\n".to_owned();
        assert_eq!(Look::FILE.with_alarms(text.clone()), text);
        assert_eq!(coloured.with_alarms(text), "1 worse\n  \x1b[1;31mWORSE\x1b[0m\n");
    }
}

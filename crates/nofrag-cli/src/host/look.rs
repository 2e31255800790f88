//! How the output looks: decided once from the terminal, not per table.

use std::io::IsTerminal;

/// Characters and width of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// Which characters may be used.
    pub(crate) glyphs: Glyphs,
    /// Columns of a line.
    pub(crate) width: usize,
}

/// Which characters may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Glyphs {
    /// Block elements.
    Unicode,
    /// Plain ASCII: for pipes and files, with `NO_COLOR`, and for terminals that show no UTF-8.
    Ascii,
}

const DEFAULT_WIDTH: usize = 80;

impl Look {
    /// What standard output can show.
    pub(crate) fn of_stdout() -> Look {
        let is_terminal = std::io::stdout().is_terminal();
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let plain = set("NO_COLOR").is_some() || set("TERM").is_some_and(|term| term == "dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let utf8 = locale.is_some_and(|locale| {
            let locale = locale.to_string_lossy().to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        let glyphs = if is_terminal && utf8 && !plain { Glyphs::Unicode } else { Glyphs::Ascii };
        let columns = terminal_size::terminal_size_of(std::io::stdout());
        let width = columns.map_or(DEFAULT_WIDTH, |(columns, _)| usize::from(columns.0));
        Look { glyphs, width: width.clamp(40, 200) }
    }
}

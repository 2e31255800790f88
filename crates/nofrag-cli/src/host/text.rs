//! What the pages of all subjects share: broken lines, tables, pictures, findings.

use comfy_table::{CellAlignment, Table, presets};
use nofrag_host::finding::{Finding, Severity, bytes_text};
use nofrag_host::picture::{Cell, Piece};
use nofrag_host::source::Missing;

use super::look::{Glyphs, Look};

/// A space as a line, drawn by `draw` in a given number of cells; `faint` says what its faint ink stands for.
pub(super) fn hole_map(draw: impl Fn(usize) -> Vec<Piece>, faint: &str, look: Look) -> String {
    const GAP_COLUMNS: usize = 20;
    let gaps = |piece: &Piece| matches!(piece, Piece::Gap { .. });
    let count = draw(1).iter().filter(|piece| gaps(piece)).count();
    let cells = look.width.saturating_sub(4 + count * GAP_COLUMNS).max(8);
    let mut map = String::from("  ");
    for piece in draw(cells) {
        match piece {
            Piece::Cells(cells) => map.extend(cells.iter().map(|cell| glyph(cell, look.glyphs))),
            Piece::Gap { bytes } => map += &format!("<{} free>", bytes_text(bytes)),
        }
    }
    let shades = shades(look.glyphs);
    let legend = format!(
        "in use {}, mostly {faint} {} (from a little to all of a cell), free {}",
        shades.solid, shades.faint, shades.free
    );
    map + "\n" + &wrapped("  ", &legend, look)
}

/// The characters of the map, each row from a little to all of a cell.
struct Shades {
    solid: &'static str,
    faint: &'static str,
    free: char,
}

const fn shades(glyphs: Glyphs) -> Shades {
    match glyphs {
        Glyphs::Unicode => Shades { solid: "▂▄▆█", faint: "░▒▓", free: '·' },
        Glyphs::Ascii => Shades { solid: "-+*#", faint: ",;%", free: '.' },
    }
}

/// A cell shows as free only if nothing is in it: what is small must not vanish.
fn glyph(cell: &Cell, look: Glyphs) -> char {
    let shades = shades(look);
    let taken = cell.solid_bytes + cell.faint_bytes;
    if taken == 0 {
        return shades.free;
    }
    let row = if cell.solid_bytes >= cell.faint_bytes { shades.solid } else { shades.faint };
    let count = row.chars().count() as u128;
    let bytes = u128::from(taken) + u128::from(cell.free_bytes);
    let level = (u128::from(taken) * count).div_ceil(bytes) - 1;
    row.chars().nth(level as usize).expect("a part of the cell is at most the cell")
}

/// The files that could not be read; none without one.
pub(super) fn missing(missing: &[Missing], look: Look) -> Option<String> {
    let lines = missing.iter().map(|missing| {
        let text = format!("{}: {}; it costs {}", missing.path, missing.why, missing.costs);
        wrapped("Not read: ", &text, look)
    });
    let text: String = lines.collect();
    (!text.is_empty()).then_some(text)
}

/// The findings as a numbered list.
pub(super) fn findings(findings: &[Finding], look: Look) -> String {
    if findings.is_empty() {
        return "Findings: none\n".to_owned();
    }
    let mut text = String::from("Findings\n");
    for (index, finding) in findings.iter().enumerate() {
        let severity = match finding.severity {
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let first = format!("{:2}. {severity} {}: ", index + 1, finding.id);
        text += &hanging(&first, 4, &sentence(&finding.evidence), look);
        text += &wrapped("    So: ", &sentence(&finding.consequence), look);
        text += &wrapped("    Do: ", &sentence(&finding.help), look);
    }
    text
}

/// `text` with a full stop.
pub(crate) fn sentence(text: &str) -> String {
    format!("{text}.")
}

/// A count with its noun.
pub(super) fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A share of a whole; a dash of nothing.
pub(super) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

/// `lead` and `text`, broken at spaces; what follows the first line is indented as far as `lead`.
pub(crate) fn wrapped(lead: &str, text: &str, look: Look) -> String {
    hanging(lead, lead.chars().count(), text, look)
}

/// `lead` and `text`, broken at spaces; what follows the first line is indented by `indent`.
pub(crate) fn hanging(lead: &str, indent: usize, text: &str, look: Look) -> String {
    let mut out = lead.to_owned();
    let mut column = lead.chars().count();
    let mut first = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !first && column + 1 + length > look.width {
            out += "\n";
            out += &" ".repeat(indent);
            column = indent;
        } else if !first {
            out += " ";
            column += 1;
        }
        out += word;
        column += length;
        first = false;
    }
    out + "\n"
}

/// A table whose first column is text and whose others are numbers.
pub(crate) struct Numbers {
    table: Table,
}

impl Numbers {
    /// A table with these headings.
    pub(crate) fn new(header: &[&str]) -> Numbers {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(header);
        for column in 0..header.len() {
            let column = table.column_mut(column).expect("the header made this column");
            column.set_padding((0, 2));
        }
        for column in 1..header.len() {
            let column = table.column_mut(column).expect("the header made this column");
            column.set_cell_alignment(CellAlignment::Right);
        }
        Numbers { table }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.table.add_row(cells);
    }

    /// The table as lines.
    pub(crate) fn text(&self) -> String {
        self.table.trim_fmt() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Look = Look { glyphs: Glyphs::Ascii, width: 20 };

    #[test]
    fn text_is_broken_at_the_width() {
        assert_eq!(
            wrapped("So: ", "one two three four five", NARROW),
            "So: one two three\n    four five\n"
        );
        assert_eq!(
            wrapped("", "averyverylongwordthatfitsnowhere", NARROW),
            "averyverylongwordthatfitsnowhere\n"
        );
    }

    #[test]
    fn small_things_do_not_vanish_from_the_map() {
        let cell =
            |solid_bytes, faint_bytes, free_bytes| Cell { solid_bytes, faint_bytes, free_bytes };
        let shown = [
            (0, 0, 9),
            (1, 0, 99),
            (2, 0, 2),
            (5, 0, 2),
            (9, 0, 0),
            (0, 1, 99),
            (0, 5, 4),
            (1, 2, 0),
            (0, 0, 0),
        ]
        .map(|(live, lazy, free)| glyph(&cell(live, lazy, free), Glyphs::Ascii));
        assert_eq!(shown.iter().collect::<String>(), ".-+*#,;%.");
    }
}

//! Tables that their headings sort.
//!
//! The text that people read, milliseconds below nanoseconds, does not sort by itself. So a cell whose text is not its
//! number carries that number.

use askama::Template;

use crate::{Cell, Tone};

/// A table that its headings sort.
#[derive(Clone, Debug, Template)]
#[template(path = "table.html", whitespace = "minimize")]
pub struct Table {
    pub title: String,
    /// Meaning of a row, and how to read it.
    pub(super) caption: String,
    /// Number of columns, from the left, that hold text; the others hold numbers.
    texts: usize,
    header: Vec<String>,
    rows: Vec<TableRow>,
}

/// A row, as it is seen in the order in which rows were written.
#[derive(Clone, Debug)]
struct TableRow {
    cells: Vec<Cell>,
    /// The group that the row belongs to, where the first of the group alone names it.
    group: Option<Cell>,
}

/// Gives each row the name of its group. The terminal names a group of rows once, in its first row. A row that is
/// sorted away from that row must still show its group, so the name is repeated, and seen only where rows are sorted.
fn grouped(rows: Vec<Vec<Cell>>) -> Vec<TableRow> {
    let mut group = None;
    let row = |cells: Vec<Cell>| {
        let is_named = cells.first().is_none_or(|cell| *cell != Cell::Text(String::new()));
        if is_named {
            group = cells.first().cloned();
        }
        TableRow { group: if is_named { None } else { group.clone() }, cells }
    };
    rows.into_iter().map(row).collect()
}

impl Table {
    /// Returns a table of the cells that the terminal shows too.
    #[must_use]
    pub fn new(
        title: String,
        caption: String,
        texts: usize,
        header: Vec<String>,
        rows: Vec<Vec<Cell>>,
    ) -> Table {
        let alone = |cells| TableRow { cells, group: None };
        let rows = if texts > 1 { grouped(rows) } else { rows.into_iter().map(alone).collect() };
        Table { title, caption, texts, header, rows }
    }

    /// Returns the text of a heading: a column without a name still has a button to sort it.
    fn heading<'a>(&self, name: &'a str) -> &'a str {
        if name.is_empty() { "verdict" } else { name }
    }

    fn is_number(&self, column: usize) -> bool {
        column >= self.texts
    }

    /// Returns the attributes of a cell: its class, and its key for sorting.
    fn attributes(&self, column: usize, row: &TableRow) -> String {
        let cell = &row.cells[column];
        let (text, tone) = (cell.to_string(), cell.tone().to_string());
        let mut classes = Vec::new();
        if self.is_number(column) {
            classes.push("n");
        } else if text.chars().count() > 40 {
            classes.push("t");
        }
        if column == 0 && row.group.is_some() {
            classes.push("rep");
        }
        if cell.tone() != Tone::Plain {
            classes.push(&tone);
        }
        let class = match classes.as_slice() {
            [] => String::new(),
            [class] => format!(" class={class}"),
            classes => format!(" class=\"{}\"", classes.join(" ")),
        };
        let key = cell.key().filter(|_| self.is_number(column) && !cell.is_plain());
        class + &key.map_or_else(String::new, |key| format!(" data-k={key}"))
    }
}

impl TableRow {
    /// Returns the text in a column.
    fn text(&self, column: usize) -> String {
        let group = self.group.as_ref().filter(|_| column == 0);
        group.unwrap_or(&self.cells[column]).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cells, duration};

    #[test]
    fn rows_keep_their_group() {
        let rows = [["a", "x", "1"], ["", "y", "2"], ["b", "z", "3"], ["", "w", "4"]];
        let rows = rows.map(|row| row.map(Cell::from).to_vec()).to_vec();
        let header = ["group", "name", "n"].map(str::to_owned).to_vec();
        let html = Table::new("t".to_owned(), String::new(), 2, header, rows).to_string();
        assert_eq!(html.matches("<td class=rep>a</td>").count(), 1, "{html}");
        assert_eq!(html.matches("<td class=rep>b</td>").count(), 1, "{html}");
    }

    #[test]
    fn text_is_escaped_and_verdicts_are_coloured() {
        let header = ["name", "", "value"].map(str::to_owned).to_vec();
        let rows = vec![cells!["<b>&", Cell::judged(Tone::Bad, "exact: BROKEN"), duration(3e-6)]];
        let table = Table::new("t \"q\"".to_owned(), String::new(), 2, header, rows);
        let html = table.to_string();
        assert!(html.contains("<td>&#60;b&#62;&#38;</td>"), "{html}");
        assert!(html.contains("<td class=bad>exact: BROKEN</td>"), "{html}");
        assert!(html.contains("<td class=n data-k=0.000003>3.00 us</td>"), "{html}");
    }
}

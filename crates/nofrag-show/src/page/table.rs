//! Tables that their headings sort.
//!
//! The text that people read, milliseconds below nanoseconds, does not sort by itself. So a cell whose text is not its
//! number carries that number.

use askama::Template;

use crate::{Cell, Table, Tone};

/// A table that its headings sort.
#[derive(Template)]
#[template(path = "table.html", whitespace = "minimize")]
struct Sortable<'a> {
    table: &'a Table,
    rows: Vec<TableRow<'a>>,
}

/// A row, as it is seen in the order in which rows were written.
struct TableRow<'a> {
    cells: &'a [Cell],
    /// The group that the row belongs to, where the first of the group alone names it.
    group: Option<&'a Cell>,
}

/// Gives each row the name of its group. The terminal names a group of rows once, in its first row. A row that is
/// sorted away from that row must still show its group, so the name is repeated, and seen only where rows are sorted.
fn grouped(table: &Table) -> Vec<TableRow<'_>> {
    let mut group = None;
    let row = |cells| {
        let first = <[Cell]>::first(cells);
        let is_named = table.texts < 2 || first.is_none_or(|it| *it != Cell::Text(String::new()));
        if is_named {
            group = first;
        }
        TableRow { group: group.filter(|_| !is_named), cells }
    };
    table.rows.iter().map(Vec::as_slice).map(row).collect()
}

/// Returns a table for a browser, as HTML.
pub(crate) fn html(table: &Table) -> String {
    Sortable { table, rows: grouped(table) }.to_string()
}

impl Sortable<'_> {
    /// Returns the text of a heading: a column without a name still has a button to sort it.
    fn heading<'a>(&self, name: &'a str) -> &'a str {
        if name.is_empty() { "verdict" } else { name }
    }

    fn is_number(&self, column: usize) -> bool {
        column >= self.table.texts
    }

    /// Returns the attributes of a cell: its class, and its key for sorting.
    fn attributes(&self, column: usize, row: &TableRow<'_>) -> String {
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

impl TableRow<'_> {
    /// Returns the text in a column.
    fn text(&self, column: usize) -> String {
        let group = self.group.filter(|_| column == 0);
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
        let html = html(&Table::of("t", "", 2, ["group", "name", "n"], rows).unwrap());
        assert_eq!(html.matches("<td class=rep>a</td>").count(), 1, "{html}");
        assert_eq!(html.matches("<td class=rep>b</td>").count(), 1, "{html}");
    }

    #[test]
    fn text_is_escaped_and_verdicts_are_coloured() {
        let rows = vec![cells!["<b>&", Cell::judged(Tone::Bad, "exact: BROKEN"), duration(3e-6)]];
        let html = html(&Table::of("t \"q\"", "", 2, ["name", "", "value"], rows).unwrap());
        assert!(html.contains("<td>&#60;b&#62;&#38;</td>"), "{html}");
        assert!(html.contains("<td class=bad>exact: BROKEN</td>"), "{html}");
        assert!(html.contains("<td class=n data-k=0.000003>3.00 us</td>"), "{html}");
    }
}

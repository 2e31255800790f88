//! The tables that a text and a page have in common.
//!
//! A table is built once, with all its columns; an output that has no room for one leaves it out. Counts are plain
//! digits in a text, for programs that read it, and have their thousands apart on a page.

use crate::page::Item;
use crate::{Cell, Look, Quantity, Table, Unit, bytes, cells, numbers};

/// Returns a cell as it is in a text: counts as plain digits.
pub(super) fn in_text(cell: &Cell) -> String {
    match cell {
        Cell::Number(Quantity { value, unit: Unit::Count }) => format!("{value:.0}"),
        cell => cell.to_string(),
    }
}

/// The headings of a zone's watermarks.
pub const MARKS: [&str; 4] = ["min", "low", "high", "boost"];

/// Returns the cells of a zone's watermarks in bytes, missing where they are not known, and of the boost that raises
/// them.
#[must_use]
pub fn mark_cells(marks: Option<[u64; 3]>, boost: Cell) -> Vec<Cell> {
    let mark = |at: usize| marks.map(|marks| bytes(marks[at]));
    cells![mark(0), mark(1), mark(2), boost]
}

impl Table {
    /// Returns a table without rows, with these headings.
    #[must_use]
    pub fn new(header: &[&str]) -> Table {
        let header = header.iter().map(|&name| name.to_owned()).collect();
        Table { texts: 1, header, ..Table::default() }
    }

    /// Returns the table with `texts` columns of text on a page in place of one.
    pub(super) fn with_texts(self, texts: usize) -> Table {
        Table { texts, ..self }
    }

    /// Returns a table with a column for each order.
    pub(super) fn of_orders(first: &str, orders: usize) -> Table {
        let mut grid = Table::new(&[first]);
        grid.header.extend((0..orders).map(|order| order.to_string()));
        grid
    }

    /// Adds a row; cells that are missing at its end are empty.
    pub fn row(&mut self, mut cells: Vec<Cell>) {
        cells.resize(self.header.len(), "".into());
        self.rows.push(cells);
    }

    /// Returns the table without a column.
    pub(super) fn without(mut self, column: &str) -> Table {
        let place = self.header.iter().position(|name| name == column);
        let place = place.expect("the column that is left out is one of the table");
        self.header.remove(place);
        self.rows.iter_mut().for_each(|row| drop(row.remove(place)));
        self
    }

    /// Returns the table as lines that begin with `indent`, for a place with this look.
    #[must_use]
    pub fn text(self, indent: &str, look: Look) -> String {
        let mut header = self.header;
        header[0].insert_str(0, indent);
        let mut rows: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(in_text).collect()).collect();
        rows.iter_mut().for_each(|cells| cells[0].insert_str(0, indent));
        numbers(&header, &rows, look)
    }

    /// Returns the table for a page, unless it has no rows.
    pub(super) fn item(self, title: impl Into<String>, caption: impl Into<String>) -> Option<Item> {
        let (title, caption) = (title.into(), caption.into());
        (!self.rows.is_empty()).then_some(Item::Table(Table { title, caption, ..self }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells;

    #[test]
    fn a_count_is_for_programs_in_a_text_and_for_people_on_a_page() {
        let mut grid = Table::new(&["name", "left out", "count"]);
        grid.row(cells!["a", "b", 20_452_u64]);
        grid.row(cells![None::<String>]);
        let grid = grid.without("left out");
        assert_eq!(grid.clone().text("  ", Look::FILE), "  name  count\n  a     20452\n  -\n");
        let Some(Item::Table(table)) = grid.item("t", "c") else { panic!("it has rows") };
        let html = crate::page::table::html(&table);
        assert!(html.contains("20,452") && !html.contains("left out"), "{html}");
    }
}

//! Tables: ruled ones of reports, plain ones of pages about a host.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table as Grid, TableStyle,
    presets,
};

use crate::COLUMNS;
use crate::Cell;
use crate::look::{Glyphs, Look};

/// Returns a style with a rule above, below the header and at the end; none between rows.
const fn ruled(rule: LineStyle) -> TableStyle {
    TableStyle::new().top_border(rule).header_separator(rule).bottom_border(rule)
}

const UNICODE: TableStyle = ruled(LineStyle::none().fill('─').junction('─'));
const ASCII: TableStyle = ruled(LineStyle::none().fill('-').junction('-'));

/// Returns the text column that wraps where a line is too narrow for all: the widest. A single one holds names, which
/// stay in one piece, so that there the numbers wrap.
fn flexible_column(texts: usize, rows: &[Vec<Cell>]) -> Option<usize> {
    let width =
        |column: &usize| rows.iter().map(|row| row[*column].to_string().chars().count()).max();
    if texts > 1 { (0..texts).max_by_key(width) } else { None }
}

/// Returns a ruled table whose first columns hold text and the others numbers.
pub(crate) fn table(texts: usize, header: &[String], rows: &[Vec<Cell>], look: Look) -> String {
    let mut grid = Grid::new();
    grid.load_style(match look.glyphs {
        Glyphs::Unicode => UNICODE,
        Glyphs::Ascii => ASCII,
    })
    .set_content_arrangement(ContentArrangement::Dynamic)
    .set_width(COLUMNS)
    .set_header(header)
    .add_rows(rows.iter().map(|row| row.iter().map(ToString::to_string)));
    let flexible = flexible_column(texts, rows);
    for (i, column) in grid.column_iter_mut().enumerate() {
        let alignment = if i < texts { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(alignment);
        if flexible.is_some_and(|flexible| i != flexible) || (flexible.is_none() && i == 0) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    grid.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A table without rules whose first column is text and whose others are numbers.
pub struct Numbers {
    grid: Grid,
}

impl Numbers {
    /// Returns a table with these headings.
    #[must_use]
    pub fn new(header: &[&str]) -> Numbers {
        let mut grid = Grid::new();
        grid.load_style(presets::NOTHING).set_header(header);
        for index in 0..header.len() {
            let column = grid.column_mut(index).expect("the header made this column");
            column.set_padding((0, 2));
            if index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Numbers { grid }
    }

    /// Adds a row of texts.
    pub fn row(&mut self, cells: Vec<String>) {
        self.grid.add_row(cells);
    }

    /// Returns the table as lines.
    #[must_use]
    pub fn text(&self) -> String {
        self.grid.trim_fmt() + "\n"
    }
}

/// Returns a table of names with their values, in two columns.
#[must_use]
pub fn facts(rows: &[(&str, String)]) -> String {
    let mut grid = Grid::new();
    grid.load_style(presets::NOTHING);
    for (name, value) in rows {
        grid.add_row([*name, value]);
    }
    grid.trim_fmt() + "\n"
}

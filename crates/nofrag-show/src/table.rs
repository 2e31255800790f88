//! Tables: ruled ones of reports, plain ones of pages about a host.
//!
//! A table is no wider than a line, and no word and no number in it is broken: where not all columns have room side by
//! side, the others follow in a part below, which begins with the columns of text again.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table as Grid, TableStyle,
    Width, presets,
};

use crate::Cell;
use crate::look::{Glyphs, Look};

/// A table of texts and numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub title: String,
    /// Meaning of a row, and how to read it.
    pub caption: String,
    /// Number of columns, from the left, that hold text; the others hold numbers.
    pub texts: usize,
    pub header: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Returns a table, unless it has no rows.
    #[must_use]
    pub fn of<C: Into<Cell>>(
        title: &str,
        caption: &str,
        texts: usize,
        header: impl IntoIterator<Item: AsRef<str>>,
        rows: Vec<Vec<C>>,
    ) -> Option<Table> {
        let cells = |row: Vec<C>| row.into_iter().map(C::into).collect();
        let rows: Vec<Vec<Cell>> = rows.into_iter().map(cells).collect();
        let header = header.into_iter().map(|name| name.as_ref().to_owned()).collect();
        let (title, caption) = (title.to_owned(), caption.to_owned());
        (!rows.is_empty()).then_some(Table { title, caption, texts, header, rows })
    }
}

/// Returns a style with a rule above, below the header and at the end; none between rows.
const fn ruled(rule: LineStyle) -> TableStyle {
    TableStyle::new().top_border(rule).header_separator(rule).bottom_border(rule)
}

const UNICODE: TableStyle = ruled(LineStyle::none().fill('─').junction('─'));
const ASCII: TableStyle = ruled(LineStyle::none().fill('-').junction('-'));

/// Blanks between two columns of a ruled table.
const RULED_GAP: usize = 3;
/// Blanks between two columns of a table without rules, and where it would be too wide with them.
const PLAIN_GAPS: [usize; 2] = [2, 1];

/// Widths of a column, with the blanks between it and the next.
#[derive(Clone, Copy, Debug)]
struct Widths {
    /// Of its longest word.
    word: usize,
    /// Of its longest cell.
    cell: usize,
}

impl Widths {
    fn of(column: usize, header: &[String], rows: &[Vec<String>], gap: usize) -> Widths {
        let cells =
            || rows.iter().map(Vec::as_slice).chain([header]).map(|row| row[column].as_str());
        let length = |text: &str| text.chars().count();
        let words = cells().flat_map(|cell| cell.split(' ')).map(length);
        Widths {
            word: words.max().unwrap_or(0) + gap,
            cell: cells().map(length).max().unwrap_or(0) + gap,
        }
    }
}

/// Returns the columns of each part of a table whose first `texts` columns are repeated, by the widths that they need.
fn parts(texts: usize, needs: &[usize], width: usize) -> Vec<Vec<usize>> {
    let repeated = || (0..texts.min(needs.len())).collect::<Vec<usize>>();
    let room = width.saturating_sub(repeated().iter().map(|&column| needs[column]).sum());
    let mut parts = vec![repeated()];
    let mut left = room;
    for (column, &need) in needs.iter().enumerate().skip(texts) {
        if need > left && parts.last().is_some_and(|part| part.len() > texts) {
            parts.push(repeated());
            left = room;
        }
        parts.last_mut().expect("there is one").push(column);
        left = left.saturating_sub(need);
    }
    parts
}

/// Returns a table as ruled lines.
pub(crate) fn ruled_text(Table { texts, header, rows, .. }: &Table, look: Look) -> String {
    let texts = *texts;
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
    let widths: Vec<Widths> =
        (0..header.len()).map(|column| Widths::of(column, header, &rows, RULED_GAP)).collect();
    let words: Vec<usize> = widths.iter().map(|widths| widths.word).collect();
    let part = |columns: Vec<usize>| {
        let of = |row: &[String]| columns.iter().map(|&column| row[column].clone()).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(|row| of(row)).collect();
        let widths: Vec<Widths> = columns.iter().map(|&column| widths[column]).collect();
        part_of(texts, &of(header), &rows, &widths, look)
    };
    parts(texts, &words, look.width + 1).into_iter().map(part).collect::<Vec<_>>().join("\n")
}

/// Returns a ruled table for which a line is wide enough, if cells break at their blanks.
fn part_of(
    texts: usize,
    header: &Vec<String>,
    rows: &[Vec<String>],
    widths: &[Widths],
    look: Look,
) -> String {
    let mut grid = Grid::new();
    grid.load_style(match look.glyphs {
        Glyphs::Unicode => UNICODE,
        Glyphs::Ascii => ASCII,
    })
    .set_content_arrangement(ContentArrangement::Dynamic)
    .set_width(u16::try_from(look.width).unwrap_or(u16::MAX))
    .set_header(header)
    .add_rows(rows);
    let whole = whole_columns(texts, widths, look.width + 1);
    for ((i, column), widths) in grid.column_iter_mut().enumerate().zip(widths) {
        let alignment = if i < texts { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(alignment);
        let least = Width::Fixed(u16::try_from(widths.word - 1).unwrap_or(u16::MAX));
        column.set_constraint(match whole.contains(&i) {
            true => ColumnConstraint::ContentWidth,
            false => ColumnConstraint::LowerBoundary(least),
        });
    }
    grid.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Returns the columns whose cells stay on one line: all but the widest column of text where there are several; the one
/// of text, which holds names, where there is one; none where a line is too narrow for that.
fn whole_columns(texts: usize, widths: &[Widths], width: usize) -> Vec<usize> {
    let widest = (0..texts).max_by_key(|&column| widths[column].cell);
    let whole: Vec<usize> = match texts {
        2.. => (0..widths.len()).filter(|&column| Some(column) != widest).collect(),
        _ => (0..widths.len().min(1)).collect(),
    };
    let need = |(column, widths): (usize, &Widths)| match whole.contains(&column) {
        true => widths.cell,
        false => widths.word,
    };
    if widths.iter().enumerate().map(need).sum::<usize>() <= width { whole } else { Vec::new() }
}

/// Returns a table without rules whose first column is text and whose others are numbers, as lines for a place with
/// this look.
#[must_use]
pub fn numbers(header: &[String], rows: &[Vec<String>], look: Look) -> String {
    let [wide, narrow] = PLAIN_GAPS;
    let needs = |gap| -> Vec<usize> {
        (0..header.len()).map(|column| Widths::of(column, header, rows, gap).cell).collect()
    };
    // Nothing follows the last column.
    let fits = |gap: &usize| needs(*gap).iter().sum::<usize>() <= look.width + gap;
    let gap = [wide, narrow].into_iter().find(fits).unwrap_or(wide);
    let part = |columns: &Vec<usize>| {
        let of = |row: &[String]| columns.iter().map(|&column| row[column].clone()).collect();
        let mut grid = Grid::new();
        grid.load_style(presets::NOTHING).set_header::<Vec<String>>(of(header));
        grid.add_rows::<Vec<Vec<String>>>(rows.iter().map(|row| of(row)).collect());
        for (index, column) in grid.column_iter_mut().enumerate() {
            column.set_padding((0, gap as u16));
            if index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        grid.trim_fmt() + "\n"
    };
    parts(1, &needs(gap), look.width + gap).iter().map(part).collect::<Vec<_>>().join("\n")
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<&str> {
        text.split_whitespace().filter(|word| !word.starts_with('─')).collect()
    }

    /// `compare` of two snapshots had a column `cha nge`, and numbers such as `3,2 79` on two lines.
    #[test]
    fn a_line_too_narrow_for_a_table_breaks_no_word() {
        let name = "fragmentation index at order 9, 1/1000; -1000: a request would succeed";
        let header = ["figure", "old", "new", "change", "better", "verdict"];
        let row: Vec<Cell> = vec![
            name.into(),
            "889".into(),
            "1,203,279".into(),
            "+4,600 %".into(),
            "more".into(),
            "better".into(),
        ];
        let wide = Table::of("", "", 1, header, vec![row]).unwrap();
        for width in [40, 60, 80, 100, 200] {
            let text = ruled_text(&wide, Look { width, ..Look::FILE });
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            for whole in ["1,203,279", "+4,600", "verdict", "better", "fragmentation"] {
                assert!(words(&text).contains(&whole), "{width}: {whole}\n{text}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_word_of_every_cell_is_shown_whole(
            texts in 1..3_usize,
            (header, rows) in (1..9_usize).prop_flat_map(|columns| {
                let row = || prop::collection::vec("[a-z0-9,.]{1,12}( [a-z0-9]{1,6}){0,3}", columns);
                (row(), prop::collection::vec(row(), 0..4))
            }),
            width in 60..200_usize,
        ) {
            let look = Look { width, ..Look::FILE };
            let cells: Vec<Vec<Cell>> =
                rows.iter().map(|row| row.iter().map(|cell| cell.as_str().into()).collect()).collect();
            let texts = texts.min(header.len());
            let table = Table { texts, header: header.clone(), rows: cells, ..Table::default() };
            let ruled = ruled_text(&table, look);
            for text in [ruled, numbers(&header, &rows, look)] {
                let shown = words(&text);
                for word in header.iter().chain(rows.iter().flatten()).flat_map(|cell| cell.split(' ')) {
                    prop_assert!(shown.contains(&word), "{width}: {word}\n{text}");
                }
                prop_assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
            }
        }
    }
}

//! What people read, part by part, and how it becomes lines of text.

use std::fmt::Write as _;

use crate::look::Look;
use crate::{COLUMNS, Cell, picture, table, wrapped};

/// A part of what people read.
#[derive(Clone, Debug, PartialEq)]
pub enum Section {
    /// Bars on a logarithmic scale, in groups.
    Bars {
        /// What is drawn, with its unit.
        title: String,
        /// The groups.
        groups: Vec<BarGroup>,
    },
    /// A quantity in its course, under several designs, drawn one over the other.
    Chart {
        /// What is drawn, with its unit.
        title: String,
        /// What to see in it.
        caption: String,
        /// What stands below the left and the right end.
        ends: [String; 2],
        /// At most three names with their values, the first at the back; all at the same distances.
        layers: Vec<(String, Vec<f64>)>,
    },
    /// How full the parts of a space are, or how contiguous what is free in them, at several times, under several
    /// designs.
    Occupancy {
        /// What is drawn.
        title: String,
        /// What to see in it.
        caption: String,
        /// What stands below the left and the right end.
        ends: [String; 2],
        /// What the shares of the maps are, and so how they are painted.
        paint: Paint,
        /// One map for each design.
        maps: Vec<OccupancyMap>,
    },
    /// Rows and columns.
    Table {
        /// What the table shows.
        title: String,
        /// What a row is and how to read it.
        caption: String,
        /// How many columns, from the left, hold text; the others hold numbers.
        texts: usize,
        /// Column names.
        header: Vec<String>,
        /// The rows.
        rows: Vec<Vec<Cell>>,
    },
    /// Lines as they are, each wrapped and marked.
    Lines {
        /// What the lines are about.
        title: String,
        /// The lines.
        lines: Vec<String>,
    },
}

/// What the shares of an occupancy map are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Of a part, what is in use: shades.
    InUse,
    /// Of the largest order, that of the largest free block in a part: bars.
    FreeOrder,
    /// Whose range covers a part: [`KERNELS`](Paint::KERNELS), [`OURS`](Paint::OURS), both as 1, or neither.
    Ranges,
}

impl Paint {
    /// The share of a part that only a kernel's range covers.
    pub const KERNELS: f64 = 0.2;
    /// The share of a part that only our range covers.
    pub const OURS: f64 = 0.5;
}

/// How full the parts of a space were under one design.
#[derive(Clone, Debug, PartialEq)]
pub struct OccupancyMap {
    /// Whose space, and what became of it.
    pub name: String,
    /// When it was looked at, and a share for each part, from 0 to 1, from the lowest address on.
    pub rows: Vec<(String, Vec<f64>)>,
}

/// Bars that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct BarGroup {
    /// What the bars measure.
    pub name: String,
    /// Whose bar, and how long it is. Lengths are positive.
    pub bars: Vec<(String, f64)>,
}

/// The sections as text, as a file has it.
#[must_use]
pub fn text(sections: &[Section]) -> String {
    text_for(sections, Look::FILE)
}

/// The sections as text for this place. Their width is that of a report everywhere.
#[must_use]
pub fn text_for(sections: &[Section], look: Look) -> String {
    let mut out = String::new();
    for section in sections {
        match section {
            Section::Bars { title, groups } => {
                push(&mut out, format_args!("{title}"));
                out += &picture::bars(groups, look);
            }
            Section::Chart { title, caption, ends, layers } => {
                heading(&mut out, title, caption);
                out += &picture::chart(ends, layers, look);
            }
            Section::Occupancy { title, caption, ends, paint, maps } => {
                heading(&mut out, title, caption);
                out += &picture::occupancy(ends, *paint, maps, look);
            }
            Section::Table { title, caption, texts, header, rows } => {
                heading(&mut out, title, caption);
                out += &table::table(*texts, header, rows, look);
            }
            Section::Lines { title, lines } => list(&mut out, title, lines),
        }
        out.push('\n');
    }
    look.with_alarms(out)
}

fn push(out: &mut String, line: std::fmt::Arguments<'_>) {
    out.write_fmt(line).expect("writing to a string does not fail");
    out.push('\n');
}

fn heading(out: &mut String, title: &str, caption: &str) {
    push(out, format_args!("{title}"));
    for line in wrapped(caption, COLUMNS as usize - 2) {
        push(out, format_args!("  {line}"));
    }
}

fn list(out: &mut String, title: &str, lines: &[String]) {
    push(out, format_args!("{title}"));
    for line in lines {
        for (i, part) in wrapped(line, COLUMNS as usize - 4).iter().enumerate() {
            push(out, format_args!("  {} {part}", if i == 0 { "-" } else { " " }));
        }
    }
}

/// A table, unless it has no rows.
#[must_use]
pub fn table_of<C: Into<Cell>>(
    title: &str,
    caption: &str,
    texts: usize,
    header: &[&str],
    rows: Vec<Vec<C>>,
) -> Option<Section> {
    let cells = |row: Vec<C>| row.into_iter().map(C::into).collect();
    let rows: Vec<Vec<Cell>> = rows.into_iter().map(cells).collect();
    let header = header.iter().map(|name| (*name).to_owned()).collect();
    let (title, caption) = (title.to_owned(), caption.to_owned());
    (!rows.is_empty()).then_some(Section::Table { title, caption, texts, header, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_with_the_logarithm() {
        let bars = vec![("a".to_owned(), 10.0), ("b".to_owned(), 1000.0)];
        let groups = vec![BarGroup { name: "walk".to_owned(), bars }];
        let text = text(&[Section::Bars { title: "ns".to_owned(), groups }]);
        let lengths: Vec<usize> = text.lines().map(|line| line.matches('█').count()).collect();
        assert!(lengths[2] > 0 && lengths[2] < lengths[3] && lengths[3] == 50, "{text}");
    }

    #[test]
    fn a_chart_paints_the_front_layer_over_the_back_one() {
        let ramp: Vec<f64> = (1..=72).map(f64::from).collect();
        let layers = vec![("head".to_owned(), ramp), ("tail".to_owned(), vec![9.0; 10])];
        let ends = ["start", "end"].map(str::to_owned);
        let (title, caption) = ("blocks".to_owned(), "A caption.".to_owned());
        let text = text(&[Section::Chart { title, caption, ends, layers }]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2].matches('▒').count(), 9, "the ramp alone reaches the top: {text}");
        assert_eq!(lines[9].matches('█').count(), 72, "the front fills the lowest row: {text}");
        assert!(lines[11].ends_with("end") && text.contains("head: at most 72,"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS as usize), "{text}");
    }

    #[test]
    fn a_part_is_painted_by_what_of_it_is_in_use() {
        let rows = vec![("1".to_owned(), vec![0.0, 0.2, 0.5, 0.9, 1.0])];
        let maps = vec![OccupancyMap { name: "first fit".to_owned(), rows }];
        let ends = ["0", "9"].map(str::to_owned);
        let (title, caption) = ("space".to_owned(), String::new());
        let paint = Paint::InUse;
        let text = text(&[Section::Occupancy { title, caption, ends, paint, maps }]);
        assert!(text.contains("  1 │ ░▒▓█│\n     0   9\n"), "{text}");
    }
}

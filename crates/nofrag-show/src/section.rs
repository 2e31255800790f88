//! Sections of results, and their form as lines of text.

use std::fmt::Write as _;

use crate::look::Look;
use crate::table::{self, Table};
use crate::{Cell, picture, wrapped};

/// A part of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Section {
    /// Bars on a logarithmic scale, in groups.
    Bars {
        /// Quantity that is drawn, with its unit.
        title: String,
        groups: Vec<BarGroup>,
    },
    /// A quantity in its course, under several designs, drawn one over the other.
    Chart {
        /// Quantity that is drawn, with its unit.
        title: String,
        caption: String,
        /// Texts below the left and the right end.
        ends: [String; 2],
        /// At most three names with their values, the first at the back; all at the same distances.
        layers: Vec<(String, Vec<f64>)>,
    },
    /// The occupancy of the parts of a space, or the contiguity of the free memory in them, at several times, under
    /// several designs.
    Occupancy {
        title: String,
        caption: String,
        /// Texts below the left and the right end.
        ends: [String; 2],
        /// Meaning of the shares of the maps, which decides their paint.
        paint: Paint,
        /// Maps, one for each design.
        maps: Vec<OccupancyMap>,
    },
    Table(Table),
    /// Lines as they are, each wrapped and marked.
    Lines {
        title: String,
        lines: Vec<String>,
    },
}

/// Meaning of the shares of an occupancy map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// The part in use, of the whole part: shades.
    InUse,
    /// The order of the largest free block in a part, of the largest order: bars.
    FreeOrder,
    /// The owners of the range that covers a part: [`KERNELS`](Paint::KERNELS), [`OURS`](Paint::OURS), both as 1, or
    /// neither.
    Ranges,
}

impl Paint {
    /// The share of a part that only a kernel's range covers.
    pub const KERNELS: f64 = 0.2;
    /// The share of a part that only our range covers.
    pub const OURS: f64 = 0.5;
}

/// Occupancy of the parts of a space under one design.
#[derive(Clone, Debug, PartialEq)]
pub struct OccupancyMap {
    /// Name of the space, and its fate.
    pub name: String,
    /// The time of each look, and a share for each part, from 0 to 1, from the lowest address on.
    pub rows: Vec<(String, Vec<f64>)>,
}

/// A group of bars that measure the same quantity.
#[derive(Clone, Debug, PartialEq)]
pub struct BarGroup {
    /// The quantity of the bars.
    pub name: String,
    /// Name and length of each bar. Lengths are positive.
    pub bars: Vec<(String, f64)>,
}

/// Returns the sections as text for a file.
#[must_use]
pub fn text(sections: &[Section]) -> String {
    text_for(sections, Look::FILE)
}

/// Returns the sections as text for a place with this look.
#[must_use]
pub fn text_for(sections: &[Section], look: Look) -> String {
    let mut out = String::new();
    for section in sections {
        match section {
            Section::Bars { title, groups } => {
                heading(&mut out, title, "", look);
                out += &picture::bars(groups, look);
            }
            Section::Chart { title, caption, ends, layers } => {
                heading(&mut out, title, caption, look);
                out += &picture::chart(ends, layers, look);
            }
            Section::Occupancy { title, caption, ends, paint, maps } => {
                heading(&mut out, title, caption, look);
                out += &picture::occupancy(ends, *paint, maps, look);
            }
            Section::Table(table) => {
                heading(&mut out, &table.title, &table.caption, look);
                out += &table::ruled_text(table, look);
            }
            Section::Lines { title, lines } => list(&mut out, title, lines, look),
        }
        out.push('\n');
    }
    look.with_alarms(out)
}

/// Lines of one screen, which an answer keeps to where lines have 80 columns.
pub const SCREEN: usize = 40;

/// Returns an answer of one screen: the first section and each further one that still fits, then `next`, the way to
/// the rest.
#[must_use]
pub fn screen_for(sections: &[Section], next: &str, look: Look) -> String {
    screen(sections.iter().map(|section| text_for(std::slice::from_ref(section), look)), next, look)
}

/// Returns an answer of one screen: the first of the texts and each further one that still fits, then `next`.
#[must_use]
pub fn screen(parts: impl IntoIterator<Item = String>, next: &str, look: Look) -> String {
    let end: String =
        wrapped(next, look.text_width()).iter().map(|line| format!("{line}\n")).collect();
    let mut text = String::new();
    for part in parts {
        let lines: usize = [&text, &part, &end].map(|part| part.lines().count()).iter().sum();
        if text.is_empty() || lines <= SCREEN {
            text += &part;
        }
    }
    text + &end
}

/// Returns the first of several forms of an answer, the longest first, that fits on one screen as a whole, then `next`;
/// where none does, the parts of the last one that fit.
#[must_use]
pub fn first_screen(
    forms: impl IntoIterator<Item = Vec<Section>>,
    next: &str,
    look: Look,
) -> String {
    let mut text = String::new();
    for form in forms {
        text = screen_for(&form, next, look);
        let lines = text_for(&form, look).lines().count() + wrapped(next, look.text_width()).len();
        if lines <= SCREEN {
            break;
        }
    }
    text
}

fn push(out: &mut String, line: std::fmt::Arguments<'_>) {
    out.write_fmt(line).expect("writing to a string does not fail");
    out.push('\n');
}

fn heading(out: &mut String, title: &str, caption: &str, look: Look) {
    wrapped(title, look.text_width()).iter().for_each(|line| push(out, format_args!("{line}")));
    for line in wrapped(caption, look.text_width() - 2) {
        push(out, format_args!("  {line}"));
    }
}

fn list(out: &mut String, title: &str, lines: &[String], look: Look) {
    heading(out, title, "", look);
    for line in lines {
        for (i, part) in wrapped(line, look.text_width() - 4).iter().enumerate() {
            push(out, format_args!("  {} {part}", if i == 0 { "-" } else { " " }));
        }
    }
}

/// Returns a table, unless it has no rows.
#[must_use]
pub fn table_of<C: Into<Cell>>(
    title: &str,
    caption: &str,
    texts: usize,
    header: impl IntoIterator<Item: AsRef<str>>,
    rows: Vec<Vec<C>>,
) -> Option<Section> {
    Table::of(title, caption, texts, header, rows).map(Section::Table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::COLUMNS;

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
    fn a_screen_has_what_fits_and_the_way_to_the_rest() {
        let lines = |title: &str, count: usize| {
            let lines = (0..count).map(|line| line.to_string()).collect();
            Section::Lines { title: title.to_owned(), lines }
        };
        let sections = [lines("answer", 20), lines("long", 20), lines("short", 14)];
        let text = screen_for(&sections, "--all shows the rest.", Look::FILE);
        assert_eq!(text.lines().count(), SCREEN - 1, "{text}");
        assert!(text.contains("short") && !text.contains("long"), "{text}");
        assert!(text.ends_with("\n\n--all shows the rest.\n"), "{text}");
    }

    #[test]
    fn the_longest_form_that_fits_as_a_whole_is_shown() {
        let form = |rows: usize| {
            let lines = vec!["line".to_owned(); rows];
            vec![Section::Lines { title: format!("of {rows}"), lines }; 2]
        };
        let shown = |forms: &[usize]| {
            first_screen(forms.iter().map(|&rows| form(rows)), "--all shows the rest.", Look::FILE)
        };
        let text = shown(&[20, 17, 3]);
        assert_eq!(
            (text.matches("of 17").count(), text.lines().count()),
            (2, SCREEN - 1),
            "{text}"
        );
        let text = shown(&[30, 20]);
        assert_eq!((text.matches("of 20").count(), text.lines().count()), (1, 23), "{text}");
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

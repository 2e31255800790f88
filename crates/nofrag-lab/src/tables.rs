//! Tables as data: what each column shows, by the keys of figures.
//!
//! A column names a row of a report and how its figures become a cell, so that a table of designs is its title, its
//! caption and its columns. What follows from several figures by a rule of its own is a function of the row
//! ([`Show::By`]).

use crate::key::Key;
use crate::report::{Comparison, Measurement, Report};
use crate::summary::ratio_range;
use nofrag_show::{BarGroup, Cell, Section, cells, ratio, table_of};
use serde::Deserialize;

/// Form in which a row of a report becomes a cell.
pub(crate) enum Show {
    /// A figure in the unit of its key.
    Figure(Key),
    /// A figure as this function shows it.
    As(Key, fn(f64) -> Cell),
    /// Two figures with these characters between them, sorted by the first.
    Pair(Key, &'static str, Key),
    /// The median of the times with half their range.
    Time,
    /// A cell that follows from several figures.
    By(fn(&Measurement) -> Option<Cell>),
}

impl Show {
    /// Returns the cell of a row; missing if the row lacks a figure of it.
    pub(crate) fn cell(&self, row: &Measurement) -> Cell {
        match self {
            Show::Figure(key) => row.shown(key).into(),
            Show::As(key, shown) => row.count(key).map(shown).into(),
            Show::Pair(one, between, other) => {
                let pair = row.shown(one).zip(row.shown(other));
                pair.map(|(one, other)| Cell::about(one, format!("{one}{between}{other}"))).into()
            }
            Show::Time => Cell::median(&row.time),
            Show::By(of) => of(row).into(),
        }
    }
}

/// A column: its head, the row that it is about (such as a program), and its cells.
pub(crate) type Column<P> = (&'static str, P, Show);

/// A table whose columns are data. `P` tells the row of a report that a column is about.
pub(crate) struct Columns<P: 'static> {
    pub(crate) title: &'static str,
    pub(crate) caption: &'static str,
    pub(crate) columns: &'static [Column<P>],
}

impl<P> Columns<P> {
    /// Builds the table with a row for each of `designs` that has any cell; `row` finds what a column is about.
    pub(crate) fn by_design<'a>(
        &self,
        designs: &[String],
        row: impl Fn(&P, &str) -> Option<&'a Measurement>,
    ) -> Option<Section> {
        let heads = heads_of(self.columns);
        designs_table(designs, str::to_owned, (self.title, self.caption), heads, |design| {
            cells_of(self.columns, |of| row(of, design))
        })
    }
}

/// Returns the heads of columns.
pub(crate) fn heads_of<P>(columns: &[Column<P>]) -> impl Iterator<Item = &'static str> {
    columns.iter().map(|(head, ..)| *head)
}

/// Returns the cells of columns; `row` finds what a column is about.
pub(crate) fn cells_of<'a, P>(
    columns: &[Column<P>],
    row: impl Fn(&P) -> Option<&'a Measurement>,
) -> Vec<Cell> {
    columns.iter().map(|(_, of, show)| row(of).map(|row| show.cell(row)).into()).collect()
}

/// A table with a row for each program and a column for each design, whose cells are data.
pub(crate) struct ByDesign {
    pub(crate) title: &'static str,
    pub(crate) caption: &'static str,
    pub(crate) show: Show,
}

impl ByDesign {
    /// Builds the table of these programs.
    pub(crate) fn of(&self, report: &Report, programs: &[&str]) -> Option<Section> {
        let cell = |row: &Measurement| self.show.cell(row);
        programs_by_design(report, self.title, self.caption, programs, cell)
    }
}

/// A table that a scenario declares.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeclaredTable {
    title: String,
    caption: String,
    /// The things that have a row each.
    rows: RowsAre,
    /// The programs or designs that have one; all of them unless some are named.
    #[serde(default)]
    only: Vec<String>,
    columns: Vec<DeclaredColumn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RowsAre {
    Programs,
    Designs,
}

/// A column: its head, the design or program that it is about with that of the row, and a figure, or the times.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeclaredColumn {
    head: String,
    /// Empty in tables of rows that have no other part.
    #[serde(default)]
    of: String,
    pub(crate) figure: Option<Key>,
}

impl DeclaredTable {
    /// Builds the table; rows without any cell are left out.
    pub(crate) fn section(&self, report: &Report) -> Option<Section> {
        let (lead, names) = match self.rows {
            RowsAre::Programs => ("program", report.programs()),
            RowsAre::Designs => {
                ("design", report.settings.designs.iter().map(String::as_str).collect())
            }
        };
        let is_meant = |name: &&str| self.only.is_empty() || self.only.iter().any(|it| it == name);
        self.of(lead, names.into_iter().filter(is_meant), str::to_owned, |name, column| {
            let DeclaredColumn { of, figure, .. } = column;
            let row = match self.rows {
                RowsAre::Programs => report.measurement(name, of)?,
                RowsAre::Designs => report.measurement(of, name)?,
            };
            let Some(figure) = figure else { return Some(Cell::median(&row.time)) };
            let (key, amount) = row.counts.get_key_value(figure)?;
            Some(key.shown(amount.get()).into())
        })
    }

    /// Builds the table of rows of any kind, by their names and cells; rows without any cell are left out.
    pub(crate) fn of<'a, R: ?Sized + 'a>(
        &self,
        lead: &str,
        rows: impl Iterator<Item = &'a R>,
        name: impl Fn(&R) -> String,
        cell: impl Fn(&R, &DeclaredColumn) -> Option<Cell>,
    ) -> Option<Section> {
        let cells = |row| self.columns.iter().map(|column| cell(row, column).into()).collect();
        let rows = rows.filter_map(|row| row_of(&name(row), cells(row))).collect();
        let header = [lead].into_iter().chain(self.columns.iter().map(|column| &*column.head));
        table_of(&self.title, &self.caption, 1, header, rows)
    }
}

/// Builds a table with a row per program and a column per design; rows and columns without any cell are left out.
pub(crate) fn programs_by_design(
    report: &Report,
    title: &str,
    caption: &str,
    programs: &[&str],
    cell: impl Fn(&Measurement) -> Cell,
) -> Option<Section> {
    let shown =
        |program: &str, design: &str| Cell::from(report.measurement(program, design).map(&cell));
    let has_cells = |design: &&String| programs.iter().any(|it| shown(it, design).is_there());
    let designs: Vec<&String> = report.settings.designs.iter().filter(has_cells).collect();
    let row =
        |program: &&str| row_of(program, designs.iter().map(|it| shown(program, it)).collect());
    let header = ["program"].into_iter().chain(designs.iter().map(|design| design.as_str()));
    table_of(title, caption, 1, header, programs.iter().filter_map(row).collect())
}

/// Builds a row of a name and its cells; `None` without any cell.
pub(crate) fn row_of(name: &str, cells: Vec<Cell>) -> Option<Vec<Cell>> {
    let any = cells.iter().any(Cell::is_there);
    any.then(|| [cells![name], cells].concat())
}

/// Builds a table with a row for each of `designs` that has any cell, under the name that `name` gives it.
pub(crate) fn designs_table<'a>(
    designs: impl IntoIterator<Item = &'a String>,
    name: impl Fn(&str) -> String,
    (title, caption): (&str, &str),
    columns: impl IntoIterator<Item: AsRef<str>>,
    cells: impl Fn(&str) -> Vec<Cell>,
) -> Option<Section> {
    let rows = designs.into_iter().filter_map(|design| row_of(&name(design), cells(design)));
    let columns = columns.into_iter().map(|column| column.as_ref().to_owned());
    let header = ["design".to_owned()].into_iter().chain(columns);
    table_of(title, caption, 1, header, rows.collect())
}

/// Returns a name and its cells for each of `designs` that has any.
pub(crate) fn by_design<'a>(
    designs: impl IntoIterator<Item = &'a String>,
    cells: impl Fn(&str) -> Vec<Cell>,
) -> Vec<(String, Vec<Cell>)> {
    let rows = designs.into_iter().map(|design| (design.clone(), cells(design)));
    rows.filter(|(_, cells)| cells.iter().any(Cell::is_there)).collect()
}

/// Draws bars in groups by name; groups without bars are left out.
pub(crate) fn bars(
    title: &str,
    groups: impl IntoIterator<Item = (String, Vec<(String, f64)>)>,
) -> Option<Section> {
    let groups = groups.into_iter().filter(|(_, bars)| !bars.is_empty());
    let groups: Vec<_> = groups.map(|(name, bars)| BarGroup { name, bars }).collect();
    (!groups.is_empty()).then(|| Section::Bars { title: title.to_owned(), groups })
}

/// Sets published ratios beside measured ones: a row for each comparison that has a lead, under `texts`.
pub(crate) fn comparisons(
    report: &Report,
    (title, caption): (&str, &str),
    texts: &[&str],
    lead: impl Fn(&Comparison) -> Option<Vec<Cell>>,
) -> Option<Section> {
    let row = |it: &Comparison| {
        Some([lead(it)?, cells![ratio_range(it.published), ratio(it.measured)]].concat())
    };
    let rows = report.comparisons.iter().filter_map(row).collect();
    table_of(title, caption, texts.len(), &[texts, &["there", "here"]].concat(), rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared::declared;
    use crate::report::tests::report;
    use nofrag_show::{fixed, text};

    const STEPS: Key = Key::number("steps per search");
    const VISITS: Key = Key::count("visits");
    const NOT_COUNTED: Key = Key::count("pages");

    #[test]
    fn a_cell_is_missing_where_a_figure_is() {
        let mut report = report();
        report.measurements[0].counts.insert(VISITS, 7_u64.into());
        let cell = |show: &Show| show.cell(&report.measurements[0]).to_string();
        assert_eq!(cell(&Show::Figure(STEPS)), "1.50");
        assert_eq!(cell(&Show::As(STEPS, |steps| fixed(steps, 0).into())), "2");
        assert_eq!(cell(&Show::Pair(STEPS, "/", VISITS)), "1.50/7");
        assert_eq!(cell(&Show::Time), "10.0 ±10%");
        assert_eq!(cell(&Show::By(|row| Some(row.loops.into()))), "10");
        for show in [Show::Figure(NOT_COUNTED), Show::Pair(STEPS, "/", NOT_COUNTED)] {
            assert_eq!(cell(&show), "-");
        }
    }

    #[test]
    fn a_declared_table_has_rows_of_programs_or_of_designs() {
        let table = |rows: &str, of: &str| {
            let table: DeclaredTable = declared(&format!(
                "title = 'steps'\ncaption = ''\nrows = '{rows}'\ncolumns = [\n{{ head = 'per search', of = '{of}', \
                 figure = 'steps per search' }},\n{{ head = 'time', of = '{of}' }},\n]"
            ));
            let shown = table.section(&report());
            shown.map(|shown| text(&[shown]).split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let of_programs = table("programs", "new").unwrap();
        assert!(of_programs.contains("program per search time"), "{of_programs}");
        assert!(of_programs.contains("walk 1.50 1.10 ±9%"), "{of_programs}");
        assert!(of_programs.contains("rest 1.50"), "{of_programs}");
        let of_designs = table("designs", "walk").unwrap();
        assert!(of_designs.contains("design per search time"), "{of_designs}");
        assert!(of_designs.contains("old 1.50") && of_designs.contains("new 1.50"), "{of_designs}");
        assert_eq!(table("programs", "none"), None);
    }

    #[test]
    fn designs_and_programs_without_a_cell_are_left_out() {
        static TIMES: Columns<&str> = Columns {
            title: "times",
            caption: "",
            columns: &[("walk", "walk", Show::Time), ("pages", "rest", Show::Figure(NOT_COUNTED))],
        };
        let mut report = report();
        report.measurements.retain(|row| row.design == "new" || row.program == "rest");
        let designs = &report.settings.designs;
        let shown = TIMES.by_design(designs, |program, design| report.measurement(program, design));
        let shown = text(&[shown.unwrap()]);
        assert!(shown.contains("new") && !shown.contains("old"), "{shown}");
        let steps = ByDesign { title: "steps", caption: "", show: Show::Figure(STEPS) };
        let shown = text(&[steps.of(&report, &["walk", "rest", "none"]).unwrap()]);
        assert!(shown.contains("walk") && !shown.contains("none"), "{shown}");
        assert!(shown.contains("old") && shown.contains("new"), "{shown}");
        let shown = text(&[steps.of(&report, &["walk"]).unwrap()]);
        assert!(!shown.contains("old") && shown.contains("new"), "{shown}");
        assert_eq!(steps.of(&report, &["none"]), None);
    }
}

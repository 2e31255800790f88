//! From a report to lines of text, at most a hundred columns wide.

use std::fmt::Write as _;

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table as Grid, TableStyle,
};

use crate::figures::RatioRange;
use crate::machine::Origin;
use crate::oracle::{Kind, Oracle};
use crate::report::{Measurement, Report, Settings};
use crate::scenario::Scenario;
use crate::stats::Spread;

/// The widest line of a text.
pub const COLUMNS: u16 = 100;

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
        rows: Vec<Vec<String>>,
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

/// Which claims a summary lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claims {
    /// How many held, and those that did not.
    Counted,
    /// All of them.
    Listed,
}

/// Everything that people read of one report.
#[must_use]
pub fn summary(
    scenario: &dyn Scenario,
    report: &Report,
    origin: &Origin,
    claims: Claims,
) -> String {
    let Origin { processor, cpus, kernel, rustc, profile, revision, .. } = origin;
    let mut out = String::new();
    push(&mut out, format_args!("{}: {}", report.scenario, scenario.about()));
    for line in wrapped(&report.document, COLUMNS as usize - 2) {
        push(&mut out, format_args!("  {line}"));
    }
    push(&mut out, format_args!("  {processor}, {cpus} CPUs; {kernel}"));
    push(&mut out, format_args!("  {rustc}, profile {profile}; nofrag {revision}"));
    for line in wrapped(&conditions(report), COLUMNS as usize - 2) {
        push(&mut out, format_args!("  {line}"));
    }
    out.push('\n');
    let mut sections = scenario.present(report);
    sections.push(Section::Lines { title: "Notes".to_owned(), lines: report.notes.clone() });
    sections.push(match claims {
        Claims::Counted => counted(&report.oracles),
        Claims::Listed => oracles(&report.oracles),
    });
    out + &text(&sections)
}

/// How a report was made, and how long that took.
#[must_use]
pub fn conditions(report: &Report) -> String {
    let Settings { mode, seed, repeats, loops, threads, conditions, .. } = &report.settings;
    let took = duration(report.elapsed_s);
    if conditions.is_empty() {
        let loops = thousands(*loops as i64);
        return format!(
            "mode {mode}, seed {seed}, {repeats} repetitions of up to {loops} loops, {threads} threads; {took} in all"
        );
    }
    let conditions = conditions.join("; ");
    format!("mode {mode}; {conditions}; {threads} threads; {took} in all")
}

/// How many claims held, and those that did not.
fn counted(oracles: &[Oracle]) -> Section {
    let count = |exact: bool, held: bool| {
        let of_kind = oracles.iter().filter(|o| (o.kind == Kind::Exact) == exact);
        of_kind.filter(|o| o.holds || !held).count()
    };
    let failing = oracles.iter().filter(|oracle| !oracle.holds);
    Section::Lines {
        title: format!(
            "Claims: {} of {} exact ones hold, {} of {} that depend on the host (--check lists them)",
            count(true, true),
            count(true, false),
            count(false, true),
            count(false, false)
        ),
        lines: failing
            .map(|o| {
                let Oracle { id, claim, measured, relation, .. } = o;
                let verdict = if o.is_broken() { "BROKEN" } else { "not here" };
                format!(
                    "{verdict}: {id}: {claim}; measured {}, must be {relation}",
                    plain(*measured)
                )
            })
            .collect(),
    }
}

/// The sections as text.
#[must_use]
pub fn text(sections: &[Section]) -> String {
    let mut out = String::new();
    for section in sections {
        match section {
            Section::Bars { title, groups } => bars(&mut out, title, groups),
            Section::Chart { title, caption, ends, layers } => {
                heading(&mut out, title, caption);
                chart(&mut out, ends, layers);
            }
            Section::Occupancy { title, caption, ends, paint, maps } => {
                heading(&mut out, title, caption);
                occupancy(&mut out, ends, *paint, maps);
            }
            Section::Table { title, caption, texts, header, rows } => {
                heading(&mut out, title, caption);
                table(&mut out, *texts, header, rows);
            }
            Section::Lines { title, lines } => list(&mut out, title, lines),
        }
        out.push('\n');
    }
    out
}

fn push(out: &mut String, line: std::fmt::Arguments<'_>) {
    out.write_fmt(line).expect("writing to a string does not fail");
    out.push('\n');
}

const BAR_COLUMNS: f64 = 50.0;

fn bars(out: &mut String, title: &str, groups: &[BarGroup]) {
    push(out, format_args!("{title}"));
    let values = || groups.iter().flat_map(|group| &group.bars).map(|(_, value)| *value);
    let longest = values().fold(f64::MIN_POSITIVE, f64::max);
    // The scale starts a little below the shortest bar, so that it is still a bar.
    let origin = values().fold(longest, f64::min) / 2.0;
    let names = groups.iter().flat_map(|group| &group.bars).map(|(name, _)| name.chars().count());
    let name_width = names.max().unwrap_or(0);
    for group in groups {
        push(out, format_args!("  {}", group.name));
        for (name, value) in &group.bars {
            let share = (value / origin).ln() / (longest / origin).ln();
            let bar = bar_of(share * BAR_COLUMNS);
            push(out, format_args!("    {name:name_width$}  {bar} {}", plain(*value)));
        }
    }
}

const CHART_ROWS: usize = 8;
const CHART_COLUMNS: usize = 72;

/// What the layers are painted with, from the back to the front.
const PAINTS: [char; 3] = ['░', '▒', '█'];

/// Bars below the full one.
const EIGHTHS_UP: [char; 7] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇'];

/// A cell that one layer fills: its top row to an eighth if it is the front one.
fn cell(value: f64, row: usize, paint: char) -> Option<char> {
    let eighths = 8.0 * (value - row as f64);
    match eighths.ceil() {
        filled if filled <= 0.0 => None,
        filled if filled < 8.0 && paint == PAINTS[2] => Some(EIGHTHS_UP[filled as usize - 1]),
        _ => Some(paint),
    }
}

fn chart(out: &mut String, ends: &[String; 2], layers: &[(String, Vec<f64>)]) {
    let values = || layers.iter().flat_map(|(_, values)| values);
    let highest = values().copied().fold(f64::MIN_POSITIVE, f64::max);
    let labels = [highest, highest / 2.0, 0.0].map(plain);
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    // The last layer is the front one, however many there are.
    let paints = &PAINTS[PAINTS.len().saturating_sub(layers.len())..];
    for row in (0..CHART_ROWS).rev() {
        let label = match row {
            _ if row == CHART_ROWS - 1 => &labels[0],
            _ if row == CHART_ROWS / 2 - 1 => &labels[1],
            0 => &labels[2],
            _ => "",
        };
        let mut line = format!("  {label:>width$} │");
        for column in 0..CHART_COLUMNS {
            let painted = layers.iter().zip(paints).rev().find_map(|((_, values), paint)| {
                let at = column * values.len() / CHART_COLUMNS;
                cell(values.get(at)? / highest * CHART_ROWS as f64, row, *paint)
            });
            line.push(painted.unwrap_or(' '));
        }
        push(out, format_args!("{}", line.trim_end()));
    }
    let [left, right] = ends;
    let gap = CHART_COLUMNS.saturating_sub(left.chars().count());
    push(out, format_args!("  {:width$} └{}", "", "─".repeat(CHART_COLUMNS)));
    push(out, format_args!("  {:width$}  {left}{right:>gap$}", ""));
    for ((name, values), paint) in layers.iter().zip(paints) {
        let peak = values.iter().copied().fold(0.0, f64::max);
        let last = values.last().copied().unwrap_or(0.0);
        let (peak, last) = (plain(peak), plain(last));
        push(out, format_args!("  {paint} {name}: at most {peak}, at the end {last}"));
    }
}

/// How a part is painted that is in use to this share. What is painted empty or full is so to a thousandth.
fn shade(share: f64) -> char {
    match share {
        _ if share < 0.001 => ' ',
        _ if share < 1.0 / 3.0 => '░',
        _ if share < 2.0 / 3.0 => '▒',
        _ if share < 0.999 => '▓',
        _ => '█',
    }
}

/// How high a bar is that stands for this share. A full one is so to a thousandth.
fn bar_of_share(share: f64) -> char {
    match share {
        _ if share < 0.001 => ' ',
        _ if share < 0.999 => EIGHTHS_UP[((8.0 * share).ceil() as usize).clamp(1, 7) - 1],
        _ => '█',
    }
}

impl Paint {
    fn of(self, share: f64) -> char {
        match self {
            Paint::InUse => shade(share),
            Paint::FreeOrder => bar_of_share(share),
        }
    }

    fn legend(self) -> &'static str {
        match self {
            Paint::InUse => "in use: █ all, ▓ most, ▒ half, ░ little, blank nothing",
            Paint::FreeOrder => {
                "largest free block: █ a whole pageblock, ▄ some pages of it, ▁ a single page, blank none"
            }
        }
    }
}

fn occupancy(out: &mut String, ends: &[String; 2], paint: Paint, maps: &[OccupancyMap]) {
    let rows = || maps.iter().flat_map(|map| &map.rows);
    let width = rows().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let parts = rows().map(|(_, shares)| shares.len()).max().unwrap_or(0);
    for map in maps {
        push(out, format_args!("  {}", map.name));
        for (label, shares) in &map.rows {
            let painted: String = shares.iter().map(|share| paint.of(*share)).collect();
            push(out, format_args!("  {label:>width$} │{painted}│"));
        }
    }
    let [left, right] = ends;
    let gap = parts.saturating_sub(left.chars().count());
    push(out, format_args!("  {:width$}  {left}{right:>gap$}", ""));
    push(out, format_args!("  {}", paint.legend()));
}

/// A bar of so many columns, to an eighth of one.
fn bar_of(columns: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (columns.max(0.125) * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    bar.push_str(EIGHTHS[eighths % 8]);
    bar
}

/// A rule above, below the header and at the end; nothing between rows.
const RULED: TableStyle =
    TableStyle::new().top_border(RULE).header_separator(RULE).bottom_border(RULE);

const RULE: LineStyle = LineStyle::none().fill('─').junction('─');

fn heading(out: &mut String, title: &str, caption: &str) {
    push(out, format_args!("{title}"));
    for line in wrapped(caption, COLUMNS as usize - 2) {
        push(out, format_args!("  {line}"));
    }
}

/// The text column that wraps where a line is too narrow for all: the widest. A single one holds names, which stay
/// in one piece, so that there the numbers wrap.
fn flexible_column(texts: usize, rows: &[Vec<String>]) -> Option<usize> {
    let width = |column: &usize| rows.iter().map(|row| row[*column].chars().count()).max();
    if texts > 1 { (0..texts).max_by_key(width) } else { None }
}

fn table(out: &mut String, texts: usize, header: &[String], rows: &[Vec<String>]) {
    let mut grid = Grid::new();
    grid.load_style(RULED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(COLUMNS)
        .set_header(header)
        .add_rows(rows);
    let flexible = flexible_column(texts, rows);
    for (i, column) in grid.column_iter_mut().enumerate() {
        let alignment = if i < texts { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(alignment);
        if flexible.is_some_and(|flexible| i != flexible) || (flexible.is_none() && i == 0) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    for line in grid.lines() {
        push(out, format_args!("{}", line.trim_end()));
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
pub fn table_of(
    title: &str,
    caption: &str,
    texts: usize,
    header: &[&str],
    rows: Vec<Vec<String>>,
) -> Option<Section> {
    let header = header.iter().map(|name| (*name).to_owned()).collect();
    let (title, caption) = (title.to_owned(), caption.to_owned());
    (!rows.is_empty()).then_some(Section::Table { title, caption, texts, header, rows })
}

/// A table with a row per program and a column per design; rows and columns without any cell are left out.
pub(crate) fn programs_by_design(
    report: &Report,
    title: &str,
    caption: &str,
    programs: &[&str],
    cell: impl Fn(&Measurement) -> Option<String>,
) -> Option<Section> {
    let shown = |program: &str, design: &str| report.measurement(program, design).and_then(&cell);
    let has_cells =
        |design: &&String| programs.iter().any(|program| shown(program, design).is_some());
    let designs: Vec<&String> = report.settings.designs.iter().filter(has_cells).collect();
    let mut rows = Vec::new();
    for program in programs {
        let cells = designs.iter().map(|design| shown(program, design)).collect();
        rows.extend(row_of(program, cells));
    }
    let header = header_of("program", &designs);
    let (title, caption) = (title.to_owned(), caption.to_owned());
    (!rows.is_empty()).then_some(Section::Table { title, caption, texts: 1, header, rows })
}

/// The names of columns: what a row is, then designs.
pub(crate) fn header_of(first: &str, designs: &[&String]) -> Vec<String> {
    [first.to_owned()].into_iter().chain(designs.iter().map(|design| (*design).clone())).collect()
}

/// A row with dashes where there is no cell; none at all without any.
pub(crate) fn row_of(name: &str, cells: Vec<Option<String>>) -> Option<Vec<String>> {
    let any = cells.iter().any(Option::is_some);
    any.then(|| [vec![name.to_owned()], filled(cells)].concat())
}

/// A name and its cells for each of `designs` that has any; missing cells are dashes.
pub(crate) fn by_design<'a>(
    designs: impl IntoIterator<Item = &'a String>,
    cells: impl Fn(&str) -> Vec<Option<String>>,
) -> Vec<(String, Vec<String>)> {
    let mut rows = Vec::new();
    for design in designs {
        let cells = cells(design);
        if cells.iter().any(Option::is_some) {
            rows.push((design.clone(), filled(cells)));
        }
    }
    rows
}

/// Cells with dashes where there is nothing.
pub(crate) fn filled(cells: Vec<Option<String>>) -> Vec<String> {
    cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned())).collect()
}

/// `text` broken at spaces into lines of at most `columns` characters, if its words allow.
#[must_use]
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// A median with half its range in percent.
#[must_use]
pub fn median_and_range(time: &Spread) -> String {
    if time.samples.len() < 2 {
        return number(time.median);
    }
    match 50.0 * time.relative_width() {
        percent if percent < 99.5 => format!("{} ±{percent:.0}%", number(time.median)),
        _ => format!("{} ±>99%", number(time.median)),
    }
}

/// A number as people read it: three digits that matter, thousands apart.
#[must_use]
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if magnitude < 0.01 {
        format!("{value:.4}")
    } else if magnitude < 10.0 {
        format!("{value:.2}")
    } else if magnitude < 100.0 {
        format!("{value:.1}")
    } else {
        thousands(value.round() as i64)
    }
}

/// A whole number as such, another one by its three digits that matter.
#[must_use]
pub fn plain(value: f64) -> String {
    if value.fract() == 0.0 { count(value) } else { number(value) }
}

/// A whole number with its thousands apart.
#[must_use]
pub fn count(value: f64) -> String {
    thousands(value.round() as i64)
}

fn thousands(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0 { format!("-{out}") } else { out }
}

/// A ratio with its times sign: three digits that matter.
#[must_use]
pub fn ratio(value: f64) -> String {
    format!("{}x", number(value))
}

/// An interval of ratios.
#[must_use]
pub fn ratio_range(range: RatioRange) -> String {
    let low = number(range.low);
    match range.high {
        None => format!("over {low}x"),
        Some(high) if number(high) == low => format!("{low}x"),
        Some(high) => format!("{low}..{}x", number(high)),
    }
}

/// A duration of so many seconds in the unit that suits it.
#[must_use]
pub fn duration(seconds: f64) -> String {
    if seconds < 1e-6 {
        format!("{} ns", number(seconds * 1e9))
    } else if seconds < 1e-3 {
        format!("{} us", number(seconds * 1e6))
    } else if seconds < 1.0 {
        format!("{} ms", number(seconds * 1e3))
    } else {
        format!("{} s", number(seconds))
    }
}

/// All oracles as a table.
#[must_use]
pub fn oracles(oracles: &[Oracle]) -> Section {
    let broken = oracles.iter().filter(|oracle| oracle.is_broken()).count();
    let exact = oracles.iter().filter(|oracle| oracle.kind == Kind::Exact).count();
    Section::Table {
        title: format!("Claims: {} of {exact} exact ones hold", exact - broken),
        caption: "A row is one claim that this run confirms or refutes. \"exact\" must hold everywhere and decides \
                  --check; \"ratio\" holds on a quiet machine; \"host\" depends on the machine."
            .to_owned(),
        texts: 2,
        header: ["", "claim", "measured", "must be"].map(str::to_owned).to_vec(),
        rows: oracles.iter().map(oracle_row).collect(),
    }
}

fn oracle_row(oracle: &Oracle) -> Vec<String> {
    let verdict = match (oracle.kind, oracle.holds) {
        (Kind::Exact, true) => "exact: ok",
        (Kind::Exact, false) => "exact: BROKEN",
        (Kind::Ratio, true) => "ratio: ok",
        (Kind::Ratio, false) => "ratio: no",
        (Kind::Environment, true) => "host: ok",
        (Kind::Environment, false) => "host: no",
    };
    // One column for both, which may wrap: a long identifier beside it would leave the claim a letter a line.
    let claim = format!("{}: {}", oracle.id, oracle.claim);
    vec![verdict.to_owned(), claim, plain(oracle.measured), oracle.relation.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Relation;

    #[test]
    fn numbers_keep_three_digits_and_part_thousands() {
        let shown = [0.0, 0.123, 1.0, 45.67, 132.4, 137_644.0, -1_234.0].map(number);
        assert_eq!(shown, ["0", "0.12", "1.00", "45.7", "132", "137,644", "-1,234"]);
    }

    #[test]
    fn durations_take_the_unit_that_suits() {
        let shown = [132e-9, 16.6e-6, 1.5e-3, 56.8].map(duration);
        assert_eq!(shown, ["132 ns", "16.6 us", "1.50 ms", "56.8 s"]);
    }

    #[test]
    fn ratio_ranges_say_when_they_are_open() {
        assert_eq!(ratio_range(RatioRange { low: 3.2, high: Some(3.9) }), "3.20..3.90x");
        assert_eq!(ratio_range(RatioRange { low: 3.35, high: Some(3.351) }), "3.35x");
        assert_eq!(ratio_range(RatioRange { low: 325.0, high: None }), "over 325x");
    }

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

    #[test]
    fn a_bar_is_full_for_a_whole_block_only() {
        let painted = [0.0, 0.1, 0.5, 0.9, 0.99, 1.0].map(|share| Paint::FreeOrder.of(share));
        assert_eq!(painted, [' ', '▁', '▄', '▇', '▇', '█']);
    }

    #[test]
    fn nothing_is_wider_than_a_hundred_columns() {
        let long = "word ".repeat(60);
        let oracle = Oracle::judge("id", Kind::Exact, long.as_str(), 2.0, Relation::AtMost(1.0));
        let lines = Section::Lines { title: "Notes".to_owned(), lines: vec![long] };
        let text = text(&[oracles(&[oracle]), lines]);
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS as usize, "{line}");
        }
        assert!(text.contains("BROKEN") && text.contains("0 of 1 exact"), "{text}");
    }
}

//! From a report to lines of text: the one renderer of everything that the command shows.
//!
//! `look` says what the place can show, `lines` breaks text, `table` sets tables and `picture` draws with characters. A
//! report is a list of [`Section`]s, at most a hundred columns wide; the pages of a host are built of the same parts.

mod lines;
mod look;
mod picture;
mod table;

use std::fmt::Write as _;

use crate::figures::RatioRange;
use crate::machine::Origin;
use crate::oracle::{Kind, Oracle, Verdict};
use crate::report::{Measurement, Report, Settings};
use crate::scenario::Scenario;
use crate::stats::Spread;

pub use lines::{hanging, wrapped};
pub use look::{Colour, Glyphs, Look, Tone};
pub use picture::{divided, divided_by, hole_map, inked, inks};
pub use table::{Numbers, facts};

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

/// Which claims a summary lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claims {
    /// How many held, and those that did not.
    Counted,
    /// All of them.
    Listed,
}

/// Everything that people read of one report, as a file has it.
#[must_use]
pub fn summary(
    scenario: &dyn Scenario,
    report: &Report,
    origin: &Origin,
    claims: Claims,
) -> String {
    summary_for(scenario, report, origin, claims, Look::FILE)
}

/// Everything that people read of one report, for this place.
#[must_use]
pub fn summary_for(
    scenario: &dyn Scenario,
    report: &Report,
    origin: &Origin,
    claims: Claims,
    look: Look,
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
    out + &text_for(&sections, look)
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

/// How many of the claims of one kind were judged, and how many of these hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Those that have a verdict.
    pub all: usize,
    /// Those of them that hold.
    pub held: usize,
}

/// Claims by what they are and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Those that must hold everywhere.
    pub exact: Judged,
    /// The others.
    pub others: Judged,
    /// Those without a verdict.
    pub withdrawn: usize,
}

impl Tally {
    /// Counts `oracles`.
    #[must_use]
    pub fn of<'a>(oracles: impl IntoIterator<Item = &'a Oracle>) -> Tally {
        let mut tally = Tally::default();
        for oracle in oracles {
            let judged = match (oracle.verdict(), oracle.kind) {
                (Verdict::Withdrawn(_), _) => {
                    tally.withdrawn += 1;
                    continue;
                }
                (_, Kind::Exact) => &mut tally.exact,
                (_, Kind::Ratio | Kind::Environment) => &mut tally.others,
            };
            judged.all += 1;
            judged.held += usize::from(oracle.verdict() == Verdict::Holds);
        }
        tally
    }
}

/// How many claims held, those that did not, and why others have no verdict.
fn counted(claims: &[Oracle]) -> Section {
    let Tally { exact, others, .. } = Tally::of(claims);
    let failing = claims.iter().filter_map(|oracle| {
        let verdict = match oracle.verdict() {
            Verdict::Broken => "BROKEN",
            Verdict::NotHere => "not here",
            Verdict::Holds | Verdict::Withdrawn(_) => return None,
        };
        let Oracle { id, claim, measured, relation, .. } = oracle;
        Some(format!("{verdict}: {id}: {claim}; measured {}, must be {relation}", plain(*measured)))
    });
    let mut lines: Vec<String> = failing.collect();
    lines.extend(withdrawals(claims));
    Section::Lines {
        title: format!(
            "Claims: {} of {} exact ones hold, {} of {} that depend on the host (--check lists them)",
            exact.held, exact.all, others.held, others.all
        ),
        lines,
    }
}

/// How many claims were withdrawn, and why; nothing where none was.
#[must_use]
pub fn withdrawals(oracles: &[Oracle]) -> Option<String> {
    let Tally { withdrawn, .. } = Tally::of(oracles);
    let why = oracles.iter().find_map(|oracle| oracle.withdrawn)?;
    Some(format!("{withdrawn} claims {}", why.reason()))
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
    let Tally { exact, .. } = Tally::of(oracles);
    let withdrawn = withdrawals(oracles).map_or_else(String::new, |why| format!(" {why}."));
    Section::Table {
        title: format!("Claims: {} of {} exact ones hold", exact.held, exact.all),
        caption: format!(
            "A row is one claim that this run confirms or refutes. \"exact\" must hold everywhere and decides \
             --check; \"ratio\" holds on a quiet machine; \"host\" depends on the machine.{withdrawn}"
        ),
        texts: 2,
        header: ["", "claim", "measured", "must be"].map(str::to_owned).to_vec(),
        rows: oracles.iter().map(oracle_row).collect(),
    }
}

fn oracle_row(oracle: &Oracle) -> Vec<String> {
    let verdict = match (oracle.verdict(), oracle.kind) {
        (Verdict::Withdrawn(_), _) => "withdrawn",
        (Verdict::Holds, Kind::Exact) => "exact: ok",
        (Verdict::Broken | Verdict::NotHere, Kind::Exact) => "exact: BROKEN",
        (Verdict::Holds, Kind::Ratio) => "ratio: ok",
        (Verdict::Broken | Verdict::NotHere, Kind::Ratio) => "ratio: no",
        (Verdict::Holds, Kind::Environment) => "host: ok",
        (Verdict::Broken | Verdict::NotHere, Kind::Environment) => "host: no",
    };
    // One column for both, which may wrap: a long identifier beside it would leave the claim a letter a line.
    let claim = format!("{}: {}", oracle.id, oracle.claim);
    vec![verdict.to_owned(), claim, plain(oracle.measured), oracle.relation.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{Relation, Withdrawn};

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

    #[test]
    fn withdrawn_claims_are_counted_apart_and_say_why() {
        let claim = |id: &str, kind, withdrawn| {
            let judged = Oracle::judge(id, kind, "is one", 2.0, Relation::Equals(1.0));
            Oracle { withdrawn, ..judged }
        };
        let why = Some(Withdrawn::AgainstKernels);
        let claims = [claim("a", Kind::Ratio, None), claim("b", Kind::Exact, why)];
        assert_eq!(
            Tally::of(&claims),
            Tally { others: Judged { all: 1, held: 0 }, withdrawn: 1, ..Tally::default() }
        );
        let (few, all) = (text(&[counted(&claims)]), text(&[oracles(&claims)]));
        assert!(few.contains("not here: a") && !few.contains(": b:"), "{few}");
        for text in [few, all] {
            assert!(text.contains("0 of 0 exact") && text.contains("1 claims withdrawn"), "{text}");
            assert!(text.contains("re-measured against") && !text.contains("BROKEN"), "{text}");
        }
    }
}

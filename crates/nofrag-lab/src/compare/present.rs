//! A comparison as text and tables.

use super::{Better, ComparedRow, Comparison, Machines, RowVerdict, Scale};
use nofrag_show::{Cell, Section, Tone, cells, number, plain};

/// Choice of the rows that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    Changes,
    Everything,
}

/// Renders the comparison: heading, groups and cautions.
#[must_use]
pub fn sections(comparison: &Comparison, show: Show) -> Vec<Section> {
    let mut sections = vec![heading(comparison)];
    let mut equal = 0;
    for group in &comparison.groups {
        let shown =
            |row: &&ComparedRow| show == Show::Everything || row.verdict != RowVerdict::Equal;
        let rows: Vec<&ComparedRow> = group.rows.iter().filter(shown).collect();
        equal += group.rows.len() - rows.len();
        if rows.is_empty() {
            continue;
        }
        let header = ["figure", "old", "new", "change", "better", "verdict"];
        sections.push(Section::Table {
            title: group.title.clone(),
            caption: String::new(),
            texts: 1,
            header: header.map(str::to_owned).to_vec(),
            rows: rows.into_iter().map(cells_of).collect(),
        });
    }
    sections.push(verdict(comparison, equal));
    if !comparison.cautions.is_empty() {
        sections.push(Section::Lines {
            title: "What this does not say".to_owned(),
            lines: comparison.cautions.clone(),
        });
    }
    sections
}

fn heading(comparison: &Comparison) -> Section {
    let Comparison { old, new, .. } = comparison;
    let mut lines = vec![format!("old: {old}"), format!("new: {new}")];
    if comparison.machines == Machines::Different {
        lines.push(
            "The sides come from different machines, or the files do not show that they come from one: counts stand \
             side by side without a change or a verdict; shares, indices and orders have both."
                .to_owned(),
        );
    }
    let kind = match comparison.kind {
        super::SubjectKind::Replay => "replays",
        super::SubjectKind::Recording => "recordings",
        super::SubjectKind::Snapshot => "snapshots",
    };
    let title = match comparison.runs {
        [1, 1] => format!("Two {kind}"),
        [old, new] => format!("{old} {kind} against {new}"),
    };
    Section::Lines { title, lines }
}

fn cells_of(row: &ComparedRow) -> Vec<Cell> {
    let value = |value: Option<f64>, side: usize| {
        let middle = Cell::from(value.map(plain));
        match row.ranges.map(|ranges| ranges[side]) {
            Some([least, most]) if least < most => {
                let text = format!("{middle} ({}..{})", plain(least), plain(most));
                Cell::About(value.unwrap_or(least), text)
            }
            _ => middle,
        }
    };
    let change = match (row.change_percent(), row.old.zip(row.new)) {
        (_, Some((old, new))) if old == new => plain(0.0).into(),
        // A share of a share says less than the difference.
        (Some(_), Some((old, new))) if row.scale == Scale::Share => signed(new - old, ""),
        (Some(percent), _) => signed(percent, " %"),
        (None, Some((old, new))) if row.verdict != RowVerdict::NotComparable => {
            signed(new - old, "")
        }
        _ => Cell::Missing,
    };
    let better = match row.better {
        Better::Less => "less",
        Better::More => "more",
        Better::Neither => "-",
    };
    let verdict = match row.verdict {
        RowVerdict::Equal => "equal",
        RowVerdict::Within => "within tolerance",
        RowVerdict::Better => "better",
        RowVerdict::Worse => "WORSE",
        RowVerdict::Changed => "changed",
        RowVerdict::Overlaps => "no difference",
        RowVerdict::Unrepeated => "one run each",
        RowVerdict::OneSided => "one side only",
        RowVerdict::NotComparable => "not comparable",
    };
    let tone = match row.verdict {
        RowVerdict::Better => Tone::Good,
        RowVerdict::Worse => Tone::Bad,
        _ => Tone::Plain,
    };
    let (old, new) = (value(row.old, 0), value(row.new, 1));
    cells![&row.name, old, new, change, better, Cell::judged(tone, verdict)]
}

fn signed(value: f64, unit: &str) -> Cell {
    let sign = if value > 0.0 { "+" } else { "" };
    let text = if unit.is_empty() { plain(value) } else { number(value) };
    Cell::About(value, format!("{sign}{text}{unit}"))
}

fn verdict(comparison: &Comparison, equal: usize) -> Section {
    let count = |verdict| comparison.with_verdict(verdict).count();
    let tolerance = match comparison.tolerance_percent {
        0.0 => String::new(),
        percent => format!(" by more than {} % of the old value", plain(percent)),
    };
    let unjudged = match (count(RowVerdict::Overlaps), count(RowVerdict::Unrepeated)) {
        (0, 0) => String::new(),
        (0, unrepeated) => format!("; {unrepeated} differ between one run and another"),
        (overlaps, _) => format!("; {overlaps} without a difference beyond the runs' own"),
    };
    let mut lines = vec![format!(
        "{} better and {} worse{tolerance}{unjudged}; {} within the tolerance, {} changed without a better or worse, \
         {} only on one side, {} not comparable, {equal} equal and not shown",
        count(RowVerdict::Better),
        count(RowVerdict::Worse),
        count(RowVerdict::Within),
        count(RowVerdict::Changed),
        count(RowVerdict::OneSided),
        count(RowVerdict::NotComparable),
    )];
    let worse = comparison.with_verdict(RowVerdict::Worse);
    lines.extend(worse.map(|(group, row)| format!("worse: {} ({})", row.name, group.title)));
    Section::Lines { title: "Verdict".to_owned(), lines }
}

//! A comparison as text and tables.

use super::{Better, ComparedRow, Comparison, Group, Machines, RowVerdict, Scale};
use nofrag_show::{Cell, Section, Tone, number, plain};

/// Choice of the rows that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// All figures that got worse, and the largest changes of the others.
    Answer,
    Everything,
}

/// The most figures in an answer that got better.
const MOST_BETTER: usize = 6;
/// The most figures in an answer that changed without getting better or worse.
const MOST_OTHERS: usize = 5;

/// Renders the comparison: heading with the verdict, figures, and cautions.
#[must_use]
pub fn sections(comparison: &Comparison, show: Show) -> Vec<Section> {
    let mut sections = vec![heading(comparison)];
    match show {
        Show::Answer => sections.extend(answer(comparison)),
        Show::Everything => sections.extend(comparison.groups.iter().map(group)),
    }
    if !comparison.cautions.is_empty() {
        sections.push(Section::Lines {
            title: "What this does not say".to_owned(),
            lines: comparison.cautions.clone(),
        });
    }
    sections
}

fn group(group: &Group) -> Section {
    Section::Table {
        title: group.title.clone(),
        caption: String::new(),
        texts: 1,
        header: ["figure", "old", "new", "change", "better", "verdict"].map(str::to_owned).into(),
        rows: group.rows.iter().map(|row| cells_of(row).to_vec()).collect(),
    }
}

/// Returns the tables of an answer: all figures that got worse, and the largest changes of the others.
fn answer(comparison: &Comparison) -> Vec<Section> {
    let mut judged: Vec<_> = comparison.with_verdict(RowVerdict::Worse).collect();
    let (better, _) = beyond_noise(comparison, &[RowVerdict::Better]);
    let (others, _) = beyond_noise(comparison, &OTHERS);
    judged.extend(better.iter().take(MOST_BETTER));
    let first = table("Worse and better", "better", &judged, better.len(), MOST_BETTER);
    let (all, mut shown) = (others.len(), one_of_each_group(others));
    shown.truncate(MOST_OTHERS);
    let second = table("The largest other changes", "changed", &shown, all, MOST_OTHERS);
    [first, second].into_iter().flatten().collect()
}

/// Returns the rows with the first of each group before all others, otherwise in their order.
fn one_of_each_group<'a>(
    rows: Vec<(&'a Group, &'a ComparedRow)>,
) -> Vec<(&'a Group, &'a ComparedRow)> {
    let mut seen: Vec<&str> = Vec::new();
    let is_first = |(group, _): &(&'a Group, &'a ComparedRow)| {
        let is_new = !seen.contains(&group.title.as_str());
        seen.push(&group.title);
        is_new
    };
    let (mut first, rest): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_first);
    first.extend(rest);
    first
}

/// Verdicts of figures that changed without getting better or worse.
const OTHERS: [RowVerdict; 2] = [RowVerdict::Changed, RowVerdict::Unrepeated];

/// Returns a table of some rows. Of `all` that are `what` it has at most `most`.
fn table(
    title: &str,
    what: &str,
    rows: &[(&Group, &ComparedRow)],
    all: usize,
    most: usize,
) -> Option<Section> {
    let hidden = all.saturating_sub(most);
    let caption = match hidden {
        0 => String::new(),
        hidden => format!("{hidden} more {what}: --all shows them."),
    };
    let cells = |(group, row): &(&Group, &ComparedRow)| {
        let [name, old, new, change, _, verdict] = cells_of(row);
        vec![name, group.title.as_str().into(), old, new, change, verdict]
    };
    let header = ["figure", "of", "old", "new", "change", "verdict"];
    nofrag_show::table_of(title, &caption, 2, &header, rows.iter().map(cells).collect())
}

/// Returns the figures with one of these verdicts that changed by more than noise, the largest change first, and the
/// number of the other ones.
fn beyond_noise<'a>(
    comparison: &'a Comparison,
    verdicts: &[RowVerdict],
) -> (Vec<(&'a Group, &'a ComparedRow)>, usize) {
    let rows = verdicts.iter().flat_map(|&verdict| comparison.with_verdict(verdict));
    let (mut large, small): (Vec<_>, Vec<_>) = rows.partition(|(_, row)| !is_noise(row));
    large.sort_by(|(_, one), (_, other)| size(other).total_cmp(&size(one)));
    (large, small.len())
}

/// Returns the change of a figure in units of the root of its larger value, by which counts of chance events differ.
fn size(row: &ComparedRow) -> f64 {
    row.old
        .zip(row.new)
        .map_or(0.0, |(old, new)| (new - old).abs() / old.abs().max(new.abs()).max(1.0).sqrt())
}

/// Returns true if a figure changed by less than a hundredth, or is a count that changed by less than twice its root:
/// counts of chance events differ by that much.
fn is_noise(row: &ComparedRow) -> bool {
    let Some((old, new)) = row.old.zip(row.new) else { return false };
    (new - old).abs() < old.abs().max(new.abs()) / 100.0
        || row.scale == Scale::Count && size(row) < 2.0
}

fn heading(comparison: &Comparison) -> Section {
    let Comparison { old, new, .. } = comparison;
    let mut lines = vec![format!("old: {old}"), format!("new: {new}"), verdict(comparison)];
    if comparison.machines == Machines::Different {
        lines.push(
            "The sides come from different machines, or the files do not show that they come from one: counts stand \
             side by side without a change or a verdict (--all); shares, indices and orders have both."
                .to_owned(),
        );
    }
    let kind = match comparison.kind {
        super::SubjectKind::Replay => "replays",
        super::SubjectKind::Recording => "recordings",
        super::SubjectKind::Snapshot => "snapshots",
    };
    let mut title = match comparison.runs {
        [1, 1] => format!("Two {kind}"),
        [old, new] => format!("{old} {kind} against {new}"),
    };
    if !comparison.damage.is_empty() {
        title = format!("{}; {}", comparison.damage.join("; "), title.to_lowercase());
    }
    Section::Lines { title, lines }
}

fn cells_of(row: &ComparedRow) -> [Cell; 6] {
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
    [row.name.as_str().into(), old, new, change, better.into(), Cell::judged(tone, verdict)]
}

fn signed(value: f64, unit: &str) -> Cell {
    let sign = if value > 0.0 { "+" } else { "" };
    let text = if unit.is_empty() { plain(value) } else { number(value) };
    Cell::About(value, format!("{sign}{text}{unit}"))
}

/// Returns the number of figures by verdict, in a sentence; verdicts that no figure has are left out.
fn verdict(comparison: &Comparison) -> String {
    let count = |verdict| comparison.with_verdict(verdict).count();
    let tolerance = match comparison.tolerance_percent {
        0.0 => String::new(),
        percent => format!(" by more than {} % of the old value", plain(percent)),
    };
    let (better, worse) = (count(RowVerdict::Better), count(RowVerdict::Worse));
    let mut text = format!("{worse} worse and {better} better{tolerance}");
    let (_, noise) = beyond_noise(comparison, &[RowVerdict::Better]);
    if noise > 0 {
        text += &format!(" ({noise} by no more than counts differ by chance)");
    }
    let (changed, noise) = beyond_noise(comparison, &OTHERS);
    let rest = [
        (changed.len(), "changed without a better or worse"),
        (noise, "likewise, by no more than chance"),
        (count(RowVerdict::Overlaps), "without a difference beyond the runs' own"),
        (count(RowVerdict::Within), "within the tolerance"),
        (count(RowVerdict::OneSided), "on one side only"),
        (count(RowVerdict::NotComparable), "not comparable"),
        (count(RowVerdict::Equal), "equal"),
    ];
    for (count, what) in rest.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!(", {count} {what}");
    }
    text
}

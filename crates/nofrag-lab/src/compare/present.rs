//! A comparison as text and tables.

use super::{Better, ComparedRow, Comparison, Group, Machines, RowVerdict, Scale};
use nofrag_show::{Cell, Section, Table, Tone, number, plain};

/// The most figures in an answer that got better, and a third of the most that got worse.
const MOST: usize = 6;

/// The most sentences in an answer on what the comparison does not say.
const MOST_CAUTIONS: usize = 3;

/// Renders the whole comparison: heading with the verdict, figures, and cautions.
#[must_use]
pub fn sections(comparison: &Comparison) -> Vec<Section> {
    let mut sections = vec![heading(comparison)];
    sections.extend(comparison.groups.iter().map(group));
    sections.extend(cautions(comparison.cautions.clone()));
    sections
}

/// Returns forms of the answer, the longest first: the heading with the verdict, the figures that got worse and better
/// by the largest changes, cautions, and the largest other changes.
pub fn answers(comparison: &Comparison) -> impl Iterator<Item = Vec<Section>> {
    (1..=MOST).rev().map(|most| answer(comparison, most))
}

fn cautions(lines: Vec<String>) -> Option<Section> {
    let title = "What this does not say".to_owned();
    (!lines.is_empty()).then_some(Section::Lines { title, lines })
}

fn group(group: &Group) -> Section {
    Section::Table(Table {
        title: group.title.clone(),
        caption: String::new(),
        texts: 1,
        header: ["figure", "old", "new", "change", "better", "verdict"].map(str::to_owned).into(),
        rows: group.rows.iter().map(|row| cells_of(row).to_vec()).collect(),
    })
}

/// Returns an answer with at most `most` figures that got better, three times as many that got worse, and one less of
/// others.
fn answer(comparison: &Comparison, most: usize) -> Vec<Section> {
    let mut worse: Vec<_> = comparison.with_verdict(RowVerdict::Worse).collect();
    worse.sort_by(|(_, one), (_, other)| size(other).total_cmp(&size(one)));
    let (mut better, _) = beyond_noise(comparison, &[RowVerdict::Better]);
    let (others, _) = beyond_noise(comparison, &OTHERS);
    let mut others = one_of_each_group(others);
    let hidden = [(cut(&mut worse, 3 * most), "worse"), (cut(&mut better, most), "better")];
    let judged = [worse, better].concat();
    let changed = [(cut(&mut others, (most - 1).max(1)), "changed")];
    let mut lines = comparison.cautions.clone();
    let more = cut(&mut lines, MOST_CAUTIONS);
    if more > 0 {
        lines.push(format!("{more} more with --all"));
    }
    let mut sections = vec![heading(comparison)];
    sections.extend(table("Worse and better", &hidden, &judged));
    sections.extend(cautions(lines));
    sections.extend(table("The largest other changes", &changed, &others));
    sections
}

/// Keeps the first `most` of a list, and returns the number of those that it drops.
fn cut<T>(list: &mut Vec<T>, most: usize) -> usize {
    let dropped = list.len().saturating_sub(most);
    list.truncate(most);
    dropped
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

/// Returns a table of some rows; `hidden` has the number of those that are not shown, with the verdict of each.
fn table(
    title: &str,
    hidden: &[(usize, &str)],
    rows: &[(&Group, &ComparedRow)],
) -> Option<Section> {
    let hidden = hidden.iter().filter(|(count, _)| *count > 0);
    let hidden: Vec<String> = hidden.map(|(count, what)| format!("{count} more {what}")).collect();
    let caption = match &hidden[..] {
        [] => String::new(),
        hidden => format!("{}: --all shows them.", hidden.join(", ")),
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

//! Replays, recordings or snapshots beside each other, one or several on each side: the figures that got better or
//! worse, and by how much.
//!
//! Five rules keep a comparison honest.
//!
//! 1. **Like with like.** A replay is not compared with a recording, and replays of different requests are refused: the
//!    difference would be the workload.
//! 2. **A direction is stated, or there is no verdict.** Fewer mistyped blocks are better; more requests are neither.
//! 3. **No percentages between counts of different machines.** Counts of a machine of 768 MiB and of one of 24 GiB
//!    stand side by side; only shares, which are free of the size, get a change and a verdict.
//! 4. **No verdict inside the spread of repeats.** Where a side has several runs, a figure is better or worse only if
//!    every run of one side is on the same side of every run of the other. A replay is a run for each of its seeds. One
//!    recording on each side says nothing of the spread: without a tolerance none of its figures gets a verdict.
//! 5. **No verdict on what a replay cannot answer.** Where it is not as near to the recorded kernel as the question
//!    needs, figures stand without a direction.
//!
//! [`Subject`] is one replay, recording or snapshot on a side; `replays`, `recordings` and `snapshots` make rows of
//! them; `present` turns the [`Comparison`] into text.

mod present;
mod recordings;
mod replays;
mod snapshots;
mod subject;

use nofrag_host::trace::{Progressed, TraceError};
use nofrag_show::Spread;
use serde::Serialize;
use thiserror::Error;

pub use present::{answers, sections};
pub use subject::{Subject, SubjectKind};

/// Two sides and their differences.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Comparison {
    /// The kind of every subject on both sides.
    pub kind: SubjectKind,
    /// The first side, as it was named.
    pub old: String,
    /// The second side, as it was named.
    pub new: String,
    /// Number of runs of each side; a replay is one for each start value.
    pub runs: [usize; 2],
    pub machines: Machines,
    /// A change of at most this percentage of the old value counts as none.
    pub tolerance_percent: f64,
    pub groups: Vec<Group>,
    /// Conclusions that the comparison does not allow, and why; sentences.
    pub cautions: Vec<String>,
    /// Parts of subjects that are cut, damaged or lost, a sentence for each.
    pub damage: Vec<String>,
}

/// Where the sides come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Machines {
    /// One machine, as far as the files show: kernel and zones agree.
    Same,
    /// Two, or one whose memory changed: counts are not set against each other.
    Different,
}

/// Rows of a comparison under one title.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Group {
    pub title: String,
    pub rows: Vec<ComparedRow>,
}

/// One figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparedRow {
    /// The figure's name, with its unit.
    pub name: String,
    /// The old value, or the median of several; `None` where the old side does not have the figure.
    pub old: Option<f64>,
    /// The new value, or the median of several; `None` where the new side does not have the figure.
    pub new: Option<f64>,
    /// The least and the greatest value of each side, where a side has several runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranges: Option<[[f64; 2]; 2]>,
    /// The values of each subject, the old ones first: a replay has one for each start value.
    #[serde(skip)]
    values: Vec<Vec<Option<f64>>>,
    pub scale: Scale,
    pub better: Better,
    pub verdict: RowVerdict,
}

/// The kind of number that a figure is. It tells whether machines can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Grows with the machine or the length of the recording.
    Count,
    /// A share, an index or an order: free of the size.
    Share,
}

/// The direction in which a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    Less,
    More,
    /// The figure describes; neither direction is better.
    Neither,
}

/// Outcome of the comparison of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RowVerdict {
    Equal,
    /// Changed by no more than the tolerance.
    Within,
    /// Changed for the better by more than the tolerance.
    Better,
    /// Changed for the worse by more than the tolerance.
    Worse,
    /// Changed, where neither direction is better.
    Changed,
    /// The ranges of the sides overlap: no difference is seen.
    Overlaps,
    /// The sides differ, with one run each and no tolerance given; the spread of repeats is not known.
    Unrepeated,
    /// One side does not have the figure.
    OneSided,
    /// Counts of different machines are not set against each other.
    NotComparable,
}

/// The reason why nothing was compared.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A side could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A file could not be read.
    #[error("{name}: {cause}")]
    File { name: String, cause: std::io::Error },
    /// The name or content of a side gives no subject.
    #[error("{name}: {what}")]
    Subject {
        name: String,
        /// The fault, and the remedy.
        what: String,
    },
    /// The sides are of different kinds.
    #[error(
        "{old} is {}, and {new} is {}: two replays, two recordings or two snapshots can be compared; a recording's own \
         snapshots are named FILE@start and FILE@end",
        .old_kind.with_article(), .new_kind.with_article()
    )]
    Unlike { old: String, old_kind: SubjectKind, new: String, new_kind: SubjectKind },
    /// The sides are of one kind and still have nothing that can be compared.
    #[error("{0}")]
    NothingInCommon(String),
}

/// Compares two sides, each of one run or of several under one setting. A change of at most `tolerance_percent` of the
/// old value counts as none; without a tolerance a figure of one recording and another gets no verdict. `progress`
/// hears how many events of recordings have been read.
///
/// Time and memory are those of reading every run once; recordings are streamed.
///
/// # Errors
/// [`CompareError`].
///
/// # Panics
/// If there is no run on either side.
pub fn compare(
    sides: [Vec<Subject>; 2],
    tolerance_percent: Option<f64>,
    progress: &dyn Fn(Progressed),
) -> Result<Comparison, CompareError> {
    let subjects = [sides[0].len(), sides[1].len()];
    let runs = [&sides[0], &sides[1]].map(|side| side.iter().map(Subject::runs).sum());
    let [old, new] = [&sides[0], &sides[1]]
        .map(|side| side.iter().map(Subject::name).collect::<Vec<_>>().join(", "));
    let all: Vec<Subject> = sides.into_iter().flatten().collect();
    let first = all.first().expect("a side has a run");
    let kind = first.kind();
    if let Some(other) = all.iter().find(|subject| subject.kind() != kind) {
        let (old, new) = (first.name().to_owned(), other.name().to_owned());
        return Err(CompareError::Unlike { old, old_kind: kind, new, new_kind: other.kind() });
    }
    let (mut replays, mut recordings, mut snapshots) = (Vec::new(), Vec::new(), Vec::new());
    for subject in all {
        match subject {
            Subject::Replay(_, replay) => replays.push(*replay),
            Subject::Recording(name, trace) => recordings.push((name, *trace)),
            Subject::Snapshot(_, files) => snapshots.push(*files),
        }
    }
    let (found, mut cautions) = match kind {
        SubjectKind::Replay => replays::compare(&replays)?,
        SubjectKind::Recording => recordings::compare(recordings, progress)?,
        SubjectKind::Snapshot => {
            (snapshots::compare(&snapshots.iter().collect::<Vec<_>>()), Vec::new())
        }
    };
    let Found { machines, mut groups, damage } = found;
    let is_one = kind == SubjectKind::Recording && runs == [1, 1] && tolerance_percent.is_none();
    for row in groups.iter_mut().flat_map(|group| &mut group.rows) {
        row.settle(subjects[0]);
        row.verdict = match row.judge(machines, tolerance_percent.unwrap_or(0.0)) {
            RowVerdict::Better | RowVerdict::Worse if is_one => RowVerdict::Unrepeated,
            verdict => verdict,
        };
    }
    groups.retain(|group| !group.rows.is_empty());
    cautions.extend(chance(kind, runs, is_one));
    Ok(Comparison {
        kind,
        old,
        new,
        runs,
        machines,
        tolerance_percent: tolerance_percent.unwrap_or(0.0),
        groups,
        cautions,
        damage,
    })
}

/// Returns a sentence on how far this number of runs tells a difference from chance; `None` where none is needed.
fn chance(kind: SubjectKind, [old, new]: [usize; 2], is_one: bool) -> Option<String> {
    if is_one {
        return Some(
            "there is one recording on each side: what two runs of one setting differ by is not known, so nothing is \
             called better or worse; give repeats (compare A1,A2,A3 -- B1,B2,B3), or say what counts as no change \
             (--tolerance)"
                .to_owned(),
        );
    }
    // Of this number of orders in which the runs may come by size, two have one side wholly before the other.
    let orders = (1..=new).fold(1.0, |orders, k| orders * (old + k) as f64 / k as f64);
    (kind != SubjectKind::Snapshot && old + new > 2).then(|| {
        format!(
            "{old} against {new} runs: where nothing differs, chance alone calls 1 figure in {} better or worse",
            nofrag_show::number(orders / 2.0)
        )
    })
}

/// The outcome for two sides of one kind.
struct Found {
    machines: Machines,
    groups: Vec<Group>,
    damage: Vec<String>,
}

impl Comparison {
    /// Returns the rows of all groups with this verdict.
    pub fn with_verdict(
        &self,
        verdict: RowVerdict,
    ) -> impl Iterator<Item = (&Group, &ComparedRow)> {
        let rows =
            self.groups.iter().flat_map(|group| group.rows.iter().map(move |row| (group, row)));
        rows.filter(move |(_, row)| row.verdict == verdict)
    }

    /// Returns true if any figure got worse by more than the tolerance.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.with_verdict(RowVerdict::Worse).next().is_some()
    }
}

impl ComparedRow {
    /// Builds a row from one value of every subject, the old ones first.
    fn new(
        name: impl Into<String>,
        scale: Scale,
        better: Better,
        values: impl IntoIterator<Item = Option<f64>>,
    ) -> ComparedRow {
        ComparedRow::of_runs(
            name,
            scale,
            better,
            values.into_iter().map(|value| vec![value]).collect(),
        )
    }

    /// Builds a row where subjects may have several runs: `values` has those of each subject, old ones first.
    fn of_runs(
        name: impl Into<String>,
        scale: Scale,
        better: Better,
        values: Vec<Vec<Option<f64>>>,
    ) -> ComparedRow {
        // Until the sides, the tolerance and the machines are known.
        let (old, new, ranges, verdict) = (None, None, None, RowVerdict::Equal);
        ComparedRow { name: name.into(), old, new, ranges, values, scale, better, verdict }
    }

    /// Sets medians and ranges of both sides: the first `old` subjects are the old side, the others the new one.
    fn settle(&mut self, old: usize) {
        let (old, new) = self.values.split_at(old);
        let sides = [old.concat(), new.concat()];
        let several = sides.iter().any(|side| side.len() > 1);
        let [old, new] = sides.map(|side| Spread::of(side.into_iter().flatten().collect()));
        let range = |side: &Spread| [side.min, side.max];
        self.ranges =
            old.as_ref().zip(new.as_ref()).filter(|_| several).map(|(a, b)| [range(a), range(b)]);
        (self.old, self.new) = (old.map(|side| side.median), new.map(|side| side.median));
    }

    fn judge(&self, machines: Machines, tolerance_percent: f64) -> RowVerdict {
        let (Some(old), Some(new)) = (self.old, self.new) else { return RowVerdict::OneSided };
        if machines == Machines::Different && self.scale == Scale::Count {
            return RowVerdict::NotComparable;
        }
        let [[old_least, old_most], [new_least, new_most]] =
            self.ranges.unwrap_or([[old; 2], [new; 2]]);
        if old_least == old_most && [old; 2] == [new_least, new_most] {
            return RowVerdict::Equal;
        }
        if self.ranges.is_some() && old_least <= new_most && new_least <= old_most {
            return RowVerdict::Overlaps;
        }
        if (new - old).abs() <= old.abs() * tolerance_percent / 100.0 {
            return RowVerdict::Within;
        }
        match (self.better, new < old) {
            (Better::Neither, _) => RowVerdict::Changed,
            (Better::Less, true) | (Better::More, false) => RowVerdict::Better,
            (Better::Less, false) | (Better::More, true) => RowVerdict::Worse,
        }
    }

    /// Returns the change in percent of the old value; `None` where counts of different machines, or a side that is
    /// missing or zero, have none.
    pub(crate) fn change_percent(&self) -> Option<f64> {
        let (old, new) = (self.old?, self.new?);
        let has_one = !matches!(self.verdict, RowVerdict::NotComparable | RowVerdict::OneSided);
        (has_one && old != 0.0).then(|| (new - old) / old.abs() * 100.0)
    }
}

/// Applies a function to each of several runs.
trait Each<T> {
    fn each<'a, R>(&'a self, of: impl FnMut(&'a T) -> R) -> Vec<R>
    where
        T: 'a;
}

impl<T> Each<T> for [T] {
    fn each<'a, R>(&'a self, of: impl FnMut(&'a T) -> R) -> Vec<R>
    where
        T: 'a,
    {
        self.iter().map(of).collect()
    }
}

/// Returns a share in percent; `None` where the whole is zero.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64 * 100.0)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod verdicts {
    use super::*;

    fn row(scale: Scale, better: Better, old: &[f64], new: &[f64]) -> ComparedRow {
        let values = old.iter().chain(new).map(|&value| Some(value));
        let mut row = ComparedRow::new("a figure", scale, better, values);
        row.settle(old.len());
        row
    }

    fn check(better: Better, old: f64, new: f64, tolerance: f64, expected: RowVerdict) {
        let row = row(Scale::Count, better, &[old], &[new]);
        assert_eq!(row.judge(Machines::Same, tolerance), expected, "{old} -> {new}");
    }

    #[test]
    fn a_verdict_follows_the_direction() {
        check(Better::Less, 5.0, 4.0, 0.0, RowVerdict::Better);
        check(Better::Less, 4.0, 5.0, 0.0, RowVerdict::Worse);
        check(Better::More, 4.0, 5.0, 0.0, RowVerdict::Better);
        check(Better::More, 5.0, 4.0, 0.0, RowVerdict::Worse);
        check(Better::Neither, 5.0, 4.0, 0.0, RowVerdict::Changed);
        check(Better::Less, 5.0, 5.0, 0.0, RowVerdict::Equal);
    }

    #[test]
    fn the_tolerance_belongs_to_the_old_value() {
        check(Better::Less, 100.0, 110.0, 10.0, RowVerdict::Within);
        check(Better::Less, 100.0, 110.1, 10.0, RowVerdict::Worse);
        check(Better::More, 100.0, 89.9, 10.0, RowVerdict::Worse);
        // Nothing is a share of nothing.
        check(Better::Less, 0.0, 1.0, 1000.0, RowVerdict::Worse);
        // An index of the kernel may be below zero.
        check(Better::Less, -100.0, -90.0, 10.0, RowVerdict::Within);
    }

    #[test]
    fn what_lies_inside_the_spread_of_repeats_is_no_difference() {
        let judge = |old: &[f64], new: &[f64]| {
            row(Scale::Count, Better::Less, old, new).judge(Machines::Same, 0.0)
        };
        assert_eq!(judge(&[4.0, 9.0, 5.0], &[8.0, 12.0, 10.0]), RowVerdict::Overlaps);
        assert_eq!(judge(&[4.0, 9.0], &[9.0, 12.0]), RowVerdict::Overlaps);
        assert_eq!(judge(&[4.0, 8.0], &[9.0, 12.0]), RowVerdict::Worse);
        assert_eq!(judge(&[9.0, 12.0], &[4.0, 8.0]), RowVerdict::Better);
        // One run beside several: it lies among them, or it does not.
        assert_eq!(judge(&[5.0], &[4.0, 9.0]), RowVerdict::Overlaps);
        assert_eq!(judge(&[3.0], &[4.0, 9.0]), RowVerdict::Worse);
        assert_eq!(judge(&[7.0, 7.0], &[7.0, 7.0]), RowVerdict::Equal);
        let row = row(Scale::Count, Better::Less, &[4.0, 9.0, 5.0], &[8.0, 12.0]);
        assert_eq!((row.old, row.new), (Some(5.0), Some(10.0)));
        assert_eq!(row.ranges, Some([[4.0, 9.0], [8.0, 12.0]]));
    }

    #[test]
    fn counts_of_different_machines_have_neither_change_nor_verdict() {
        let mut row = row(Scale::Count, Better::Less, &[1.0], &[9.0]);
        row.verdict = row.judge(Machines::Different, 0.0);
        assert_eq!(row.verdict, RowVerdict::NotComparable);
        assert_eq!(row.change_percent(), None);
        let share = self::row(Scale::Share, Better::Less, &[1.0], &[9.0]);
        assert_eq!(share.judge(Machines::Different, 0.0), RowVerdict::Worse);
        assert_eq!(share.change_percent(), Some(800.0));
    }
}

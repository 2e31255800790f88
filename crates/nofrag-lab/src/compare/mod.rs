//! Two replays, two recordings or two snapshots beside each other: what got better, what got worse, by how much.
//!
//! Three rules keep a comparison honest.
//!
//! 1. **Like with like.** A replay is not compared with a recording, and replays of different requests are refused:
//!    what differs would be the workload.
//! 2. **A direction is stated, or there is no verdict.** Fewer mistyped blocks are better; more requests are neither.
//! 3. **No percentages between counts of different machines.** What one machine of 768 MiB and one of 24 GiB counted
//!    stands side by side; only shares, which are free of the size, get a change and a verdict.
//!
//! [`Subject`] is what stands on one side; `replays`, `recordings` and `snapshots` make rows of two of them; `present`
//! turns the [`Comparison`] into what people read.

mod present;
mod recordings;
mod replays;
mod snapshots;
mod subject;

use nofrag_host::trace::TraceError;
use serde::Serialize;
use thiserror::Error;

pub use present::{Show, sections};
pub use subject::{Kind, Subject};

/// Two sides and what differs between them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What both sides are.
    pub kind: Kind,
    /// The first side, as it was named.
    pub old: String,
    /// The second side.
    pub new: String,
    /// Whether both sides come from one machine.
    pub machines: Machines,
    /// A change of at most so many percent of the old value counts as none.
    pub tolerance_percent: f64,
    /// The rows.
    pub groups: Vec<Group>,
    /// What cannot be concluded, and why; sentences.
    pub cautions: Vec<String>,
}

/// Where the sides come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Machines {
    /// One machine, as far as the files show: kernel and zones agree.
    Same,
    /// Two, or one whose memory changed: counts are not set against each other.
    Different,
}

/// Rows about one thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// What they are about.
    pub title: String,
    /// The rows.
    pub rows: Vec<Row>,
}

/// One figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it is, with its unit.
    pub name: String,
    /// The old value; `None` where that side does not have it.
    pub old: Option<f64>,
    /// The new value.
    pub new: Option<f64>,
    /// What kind of number it is.
    pub scale: Scale,
    /// Which way is better.
    pub better: Better,
    /// What became of it.
    pub verdict: Verdict,
}

/// What kind of number a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// It grows with the machine or the length of the recording.
    Count,
    /// A share, an index or an order: free of the size.
    Share,
}

/// Which way a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Less is better.
    Less,
    /// More is better.
    More,
    /// Neither: the figure describes.
    Neither,
}

/// What became of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Both sides are the same.
    Equal,
    /// It changed by no more than the tolerance.
    Within,
    /// It changed for the better by more than the tolerance.
    Better,
    /// It changed for the worse by more than the tolerance.
    Worse,
    /// It changed, and neither way is better.
    Changed,
    /// One side does not have it.
    OneSided,
    /// Counts of different machines are not set against each other.
    NotComparable,
}

/// Why nothing was compared.
#[derive(Debug, Error)]
pub enum CompareError {
    /// A side could not be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A file could not be read.
    #[error("{name}: {cause}")]
    File {
        /// Which.
        name: String,
        /// What the system says.
        cause: std::io::Error,
    },
    /// A side is not what it looks like.
    #[error("{name}: {what}")]
    Subject {
        /// Which.
        name: String,
        /// What is wrong, and what to do.
        what: String,
    },
    /// The sides are of different kinds.
    #[error(
        "{old} is {}, and {new} is {}: two replays, two recordings or two snapshots can be compared; a recording's own \
         snapshots are named FILE@start and FILE@end",
        .old_kind.with_article(), .new_kind.with_article()
    )]
    Unlike {
        /// The first side.
        old: String,
        /// What it is.
        old_kind: Kind,
        /// The second side.
        new: String,
        /// What it is.
        new_kind: Kind,
    },
    /// The sides are of one kind and still have nothing that can be compared.
    #[error("{0}")]
    NothingInCommon(String),
}

/// Compares two sides. A change of at most `tolerance_percent` of the old value counts as none; `progress` hears how
/// many events of recordings have been read.
///
/// Time and memory are those of reading both sides once; recordings are streamed.
///
/// # Errors
/// [`CompareError`].
pub fn compare(
    old: Subject,
    new: Subject,
    tolerance_percent: f64,
    progress: &dyn Fn(u64),
) -> Result<Comparison, CompareError> {
    let names = (old.name().to_owned(), new.name().to_owned());
    let kind = old.kind();
    let (found, cautions) = match (old, new) {
        (Subject::Replay(_, old), Subject::Replay(_, new)) => replays::compare(&old, &new)?,
        (Subject::Recording(_, old), Subject::Recording(_, new)) => {
            recordings::compare(old, new, progress)?
        }
        (Subject::Snapshot(_, old), Subject::Snapshot(_, new)) => {
            (snapshots::compare(&old, &new), Vec::new())
        }
        (old, new) => {
            let (old_kind, new_kind) = (old.kind(), new.kind());
            let (old, new) = names;
            return Err(CompareError::Unlike { old, old_kind, new, new_kind });
        }
    };
    let Found { machines, mut groups } = found;
    for row in groups.iter_mut().flat_map(|group| &mut group.rows) {
        row.verdict = row.judge(machines, tolerance_percent);
    }
    groups.retain(|group| !group.rows.is_empty());
    let (old, new) = names;
    Ok(Comparison { kind, old, new, machines, tolerance_percent, groups, cautions })
}

/// What two sides of one kind give.
struct Found {
    machines: Machines,
    groups: Vec<Group>,
}

impl Comparison {
    /// The rows of all groups with this verdict.
    pub fn with_verdict(&self, verdict: Verdict) -> impl Iterator<Item = (&Group, &Row)> {
        let rows =
            self.groups.iter().flat_map(|group| group.rows.iter().map(move |row| (group, row)));
        rows.filter(move |(_, row)| row.verdict == verdict)
    }

    /// Whether anything got worse by more than the tolerance.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.with_verdict(Verdict::Worse).next().is_some()
    }
}

impl Row {
    fn new(name: impl Into<String>, scale: Scale, better: Better, sides: [Option<f64>; 2]) -> Row {
        let [old, new] = sides;
        // Until the tolerance and the machines are known.
        Row { name: name.into(), old, new, scale, better, verdict: Verdict::Equal }
    }

    fn judge(&self, machines: Machines, tolerance_percent: f64) -> Verdict {
        let (Some(old), Some(new)) = (self.old, self.new) else { return Verdict::OneSided };
        if machines == Machines::Different && self.scale == Scale::Count {
            return Verdict::NotComparable;
        }
        if old == new {
            return Verdict::Equal;
        }
        if (new - old).abs() <= old.abs() * tolerance_percent / 100.0 {
            return Verdict::Within;
        }
        match (self.better, new < old) {
            (Better::Neither, _) => Verdict::Changed,
            (Better::Less, true) | (Better::More, false) => Verdict::Better,
            (Better::Less, false) | (Better::More, true) => Verdict::Worse,
        }
    }

    /// The change in percent of the old value; `None` where counts of different machines, or a side that is missing or
    /// zero, have none.
    #[must_use]
    pub fn change_percent(&self) -> Option<f64> {
        let (old, new) = (self.old?, self.new?);
        let has_one = !matches!(self.verdict, Verdict::NotComparable | Verdict::OneSided);
        (has_one && old != 0.0).then(|| (new - old) / old.abs() * 100.0)
    }
}

/// A share in percent; `None` of nothing.
fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64 * 100.0)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod verdicts {
    use super::*;

    fn check(better: Better, old: f64, new: f64, tolerance: f64, expected: Verdict) {
        let row = Row::new("a figure", Scale::Count, better, [Some(old), Some(new)]);
        assert_eq!(row.judge(Machines::Same, tolerance), expected, "{old} -> {new}");
    }

    #[test]
    fn a_verdict_follows_the_direction() {
        check(Better::Less, 5.0, 4.0, 0.0, Verdict::Better);
        check(Better::Less, 4.0, 5.0, 0.0, Verdict::Worse);
        check(Better::More, 4.0, 5.0, 0.0, Verdict::Better);
        check(Better::More, 5.0, 4.0, 0.0, Verdict::Worse);
        check(Better::Neither, 5.0, 4.0, 0.0, Verdict::Changed);
        check(Better::Less, 5.0, 5.0, 0.0, Verdict::Equal);
    }

    #[test]
    fn the_tolerance_belongs_to_the_old_value() {
        check(Better::Less, 100.0, 110.0, 10.0, Verdict::Within);
        check(Better::Less, 100.0, 110.1, 10.0, Verdict::Worse);
        check(Better::More, 100.0, 89.9, 10.0, Verdict::Worse);
        // Nothing is a share of nothing.
        check(Better::Less, 0.0, 1.0, 1000.0, Verdict::Worse);
        // An index of the kernel may be below zero.
        check(Better::Less, -100.0, -90.0, 10.0, Verdict::Within);
    }

    #[test]
    fn counts_of_different_machines_have_neither_change_nor_verdict() {
        let mut row = Row::new("pages", Scale::Count, Better::Less, [Some(1.0), Some(9.0)]);
        row.verdict = row.judge(Machines::Different, 0.0);
        assert_eq!(row.verdict, Verdict::NotComparable);
        assert_eq!(row.change_percent(), None);
        let share = Row::new("share", Scale::Share, Better::Less, [Some(1.0), Some(9.0)]);
        assert_eq!(share.judge(Machines::Different, 0.0), Verdict::Worse);
        assert_eq!(share.change_percent(), Some(800.0));
    }
}

//! The result of comparing a stretch, as plain data.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::key::Key;

/// Number of values that are as in the kernel, of those that were compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Score {
    pub same: u64,
    pub of: u64,
}

impl Score {
    pub(super) fn count(&mut self, same: bool) {
        self.same += u64::from(same);
        self.of += 1;
    }

    /// Returns true if no value differs.
    pub(crate) fn is_equal(self) -> bool {
        self.same == self.of
    }
}

impl std::ops::Add for Score {
    type Output = Score;

    fn add(self, other: Score) -> Score {
        Score { same: self.same + other.same, of: self.of + other.of }
    }
}

/// Cause of a difference between engine and kernel.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[non_exhaustive]
pub enum Cause {
    /// An interrupt acted within the operation, at a moment that the events do not tell.
    Interrupted,
    /// A page of the bulk interface, which has no trace event: the moments within a call are unknown.
    Bulk,
    /// Arose after the first run of compaction, whose quick searches move entries of free lists silently.
    QuickSearch,
    /// The order of reclaim's lists.
    Lru,
    /// None of these: a rule is wrong or missing.
    Other,
}

impl Cause {
    pub const ALL: [Cause; 5] =
        [Cause::Interrupted, Cause::Bulk, Cause::QuickSearch, Cause::Lru, Cause::Other];
}

/// All stretches of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FramesReport {
    /// The folder that they stand in, as it was found or named.
    pub folder: String,
    pub stretches: Vec<Followed>,
}

/// A stretch that the engine followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Followed {
    /// The stretch: the name of its folder.
    pub stretch: String,
    /// The kernel that the folder is named after: `linux-X.Y`.
    pub kernel: String,
    /// The preset that the engine followed.
    pub preset: String,
    pub events: u64,
    /// Requests whose answers were compared, those of the bulk interface included.
    pub requests: u64,
    /// Number of times that the engine raised watermarks.
    pub boosts: u64,
    /// Frames of answers by order.
    pub frames: Vec<Score>,
    /// Scores of other values on the way.
    pub on_the_way: Vec<Part>,
    /// Scores of the states at the end.
    pub at_end: Vec<Part>,
    /// All differences on the way, by cause.
    pub causes: BTreeMap<Cause, u64>,
    /// Events that the engine could not follow at all.
    pub unfollowed: u64,
    /// The first differences on the way.
    pub differences: Vec<Led>,
    pub end_differences: Vec<AtEnd>,
}

/// The score of one quantity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Part {
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub what: Key,
    pub score: Score,
}

/// Scores by quantity, in the order of their first use.
#[derive(Clone, Debug, Default)]
pub(super) struct Scores(pub(super) Vec<Part>);

impl Scores {
    /// Returns empty scores of these quantities.
    pub(super) fn of(quantities: &[Key]) -> Scores {
        let empty = |what: &Key| Part { what: what.clone(), score: Score::default() };
        Scores(quantities.iter().map(empty).collect())
    }

    pub(super) fn at(&mut self, what: Key) -> &mut Score {
        let at = self.0.iter().position(|part| part.what == what).unwrap_or_else(|| {
            self.0.push(Part { what, score: Score::default() });
            self.0.len() - 1
        });
        &mut self.0[at].score
    }
}

/// A difference, and the events before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Led {
    /// The line of `events.txt`, from 1 on.
    pub line: u64,
    /// The quantity that differs.
    pub what: String,
    pub kernel: String,
    pub engine: String,
    pub cause: Cause,
    /// The events up to that line.
    pub events: Vec<String>,
}

/// A difference between the states at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AtEnd {
    pub zone: String,
    /// The quantity that differs in the zone.
    pub what: String,
    pub kernel: String,
    pub engine: String,
}

impl Followed {
    /// Returns the score of the frames of all answers, without those of the bulk interface.
    #[must_use]
    pub fn answers(&self) -> Score {
        self.frames.iter().fold(Score::default(), |sum, score| sum + *score)
    }

    /// Returns the score of this quantity, on the way or at the end; an empty score if there is none.
    #[must_use]
    pub fn score(&self, what: impl Borrow<Key>) -> Score {
        let mut parts = self.on_the_way.iter().chain(&self.at_end);
        parts.find(|part| part.what == *what.borrow()).map_or(Score::default(), |part| part.score)
    }
}

//! What the comparison of a stretch comes to, as plain data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How often something was as in the kernel, of how often it was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// As in the kernel.
    pub same: u64,
    /// Compared.
    pub of: u64,
}

impl Score {
    pub(super) fn count(&mut self, same: bool) {
        self.same += u64::from(same);
        self.of += 1;
    }

    /// Whether nothing differs.
    #[must_use]
    pub fn is_equal(self) -> bool {
        self.same == self.of
    }
}

impl std::ops::Add for Score {
    type Output = Score;

    fn add(self, other: Score) -> Score {
        Score { same: self.same + other.same, of: self.of + other.of }
    }
}

/// Why engine and kernel differ somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// An interrupt acted within the operation, at a moment that the events do not tell.
    Interrupted,
    /// A page of the bulk interface, which has no trace event: the moments within a call are unknown.
    Bulk,
    /// Since the first run of compaction, whose quick searches move entries of free lists silently.
    QuickSearch,
    /// The order of reclaim's lists.
    Lru,
    /// None of these: a rule is wrong, or missing.
    Other,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 5] =
        [Cause::Interrupted, Cause::Bulk, Cause::QuickSearch, Cause::Lru, Cause::Other];

    /// As tables and JSON name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Interrupted => "interrupted",
            Cause::Bulk => "bulk",
            Cause::QuickSearch => "quick-search",
            Cause::Lru => "lru",
            Cause::Other => "other",
        }
    }
}

/// All stretches of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FramesReport {
    /// The folder that they stand in, as it was found or named.
    pub folder: String,
    /// What came of each.
    pub stretches: Vec<Followed>,
}

/// A stretch that the engine followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    /// The stretch: the name of its folder.
    pub stretch: String,
    /// The kernel that the folder is named after: `linux-X.Y`.
    pub kernel: String,
    /// The preset that the engine followed.
    pub preset: String,
    /// Events read.
    pub events: u64,
    /// Requests whose answers were compared, those of the bulk interface included.
    pub requests: u64,
    /// How often the engine raised watermarks.
    pub boosts: u64,
    /// Frames of answers by order.
    pub frames: Vec<Score>,
    /// What else was compared on the way.
    pub on_the_way: Vec<Part>,
    /// What was compared at the end.
    pub at_end: Vec<Part>,
    /// All differences on the way, by cause.
    pub causes: BTreeMap<Cause, u64>,
    /// Events that the engine could not follow at all.
    pub unfollowed: u64,
    /// The first differences on the way.
    pub differences: Vec<Led>,
    /// Differences at the end.
    pub end_differences: Vec<AtEnd>,
}

/// Something that was compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What it is.
    pub what: String,
    /// How it went.
    pub score: Score,
}

/// A difference, and what led there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Led {
    /// The line of the events, from 1 on.
    pub line: u64,
    /// What differs.
    pub what: String,
    /// The kernel's.
    pub kernel: String,
    /// The engine's.
    pub engine: String,
    /// Why.
    pub cause: Cause,
    /// The events up to that line.
    pub events: Vec<String>,
}

/// A difference between the states at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtEnd {
    /// The zone.
    pub zone: String,
    /// What differs in it.
    pub what: String,
    /// The kernel's.
    pub kernel: String,
    /// The engine's.
    pub engine: String,
}

impl Followed {
    /// The frames of all answers, without those of the bulk interface.
    #[must_use]
    pub fn answers(&self) -> Score {
        self.frames.iter().fold(Score::default(), |sum, score| sum + *score)
    }

    /// The score of this name, on the way or at the end; nothing compared if there is none.
    #[must_use]
    pub fn score(&self, what: &str) -> Score {
        let mut parts = self.on_the_way.iter().chain(&self.at_end);
        parts.find(|part| part.what == what).map_or(Score::default(), |part| part.score)
    }
}

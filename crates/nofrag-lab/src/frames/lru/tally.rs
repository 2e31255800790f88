//! The result of comparing the lists.

use std::collections::BTreeMap;

use super::super::outcome::Score;

/// Scores and differences of the lists.
#[derive(Clone, Debug, Default)]
pub(in crate::frames) struct LruTally {
    /// Requests of passes to lists: the list and the number of pages.
    pub asked: Score,
    /// Isolations: pages scanned, passed over and taken.
    pub isolations: Score,
    /// Frames that reclaim freed, in order.
    pub freed: Score,
    /// Outcomes of isolations: the number of frames that were reclaimed, or left the active list.
    pub shrunk: Score,
    /// Passes of the priority that the model expects.
    pub priorities: Score,
    /// Passes that ask the active list where the model expects it.
    pub aged: Score,
    /// Passes that end where the model ends them.
    pub passes: Score,
    pub runs: Score,
    /// Questions of direct reclaim to compaction: the zone of the question.
    pub questions: Score,
    /// Calls of direct reclaim: all decisions, and the pages in all.
    pub calls: Score,
    /// Steps of compaction: the frames that it took from the lists.
    pub sources: Score,
    /// Positions of the lists at the end: inactive and active anonymous, inactive and active file pages.
    pub at_end: [Score; 4],
    /// Counters of zones at the end, without and with the CPU's share.
    pub counters: Score,
    /// In the order in which they were found.
    pub differences: Vec<LruDifference>,
    /// Facts that the data cannot tell, with the number of times that they mattered.
    pub untold: BTreeMap<&'static str, u64>,
}

/// One difference between kernel and model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::frames) struct LruDifference {
    /// The line of the events; 0 is the state at the end.
    pub line: usize,
    pub cause: &'static str,
    pub kernel: String,
    pub model: String,
}

impl LruTally {
    /// Returns the number of differences by cause.
    #[cfg(test)]
    pub(super) fn causes(&self) -> BTreeMap<&'static str, usize> {
        let mut causes = BTreeMap::new();
        for difference in &self.differences {
            *causes.entry(difference.cause).or_default() += 1;
        }
        causes
    }

    pub(super) fn untold(&mut self, what: &'static str, times: u64) {
        if times > 0 {
            *self.untold.entry(what).or_default() += times;
        }
    }
}

//! What the comparison of the lists came to.

use std::collections::BTreeMap;

use super::super::outcome::Score;

/// What the comparison of the lists came to.
#[derive(Clone, Debug, Default)]
pub(in crate::frames) struct LruTally {
    /// Requests of passes to lists: which list, how many pages.
    pub asked: Score,
    /// Isolations: pages scanned, passed over and taken.
    pub isolations: Score,
    /// Frames that reclaim freed, in order.
    pub freed: Score,
    /// What became of the frames of an isolation: how many were reclaimed, or left the active list.
    pub shrunk: Score,
    /// Passes with the priority and the age rule of the model.
    pub priorities: Score,
    /// Passes that ask the active list where the model says so.
    pub aged: Score,
    /// Passes that end where the model ends them.
    pub passes: Score,
    /// Ends of kswapd's runs.
    pub runs: Score,
    /// Questions of direct reclaim to compaction: the zone asked about.
    pub questions: Score,
    /// Calls of direct reclaim: all decisions, and the pages in all.
    pub calls: Score,
    /// Steps of compaction: the frames that it took from the lists.
    pub sources: Score,
    /// Positions of the lists at the end: inactive and active anonymous, inactive and active file pages.
    pub at_end: [Score; 4],
    /// Counters of zones at the end, without and with the CPU's share.
    pub counters: Score,
    /// The differences, first first.
    pub differences: Vec<LruDifference>,
    /// What the data cannot tell, by what it is, and how often it came up.
    pub untold: BTreeMap<&'static str, u64>,
}

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::frames) struct LruDifference {
    /// The line of the events; 0 is the state at the end.
    pub line: usize,
    /// What differs.
    pub cause: &'static str,
    /// The kernel's.
    pub kernel: String,
    /// The model's.
    pub model: String,
}

impl LruTally {
    /// The differences, by cause.
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

pub(super) fn count(score: &mut Score, same: bool) {
    score.same += u64::from(same);
    score.of += 1;
}

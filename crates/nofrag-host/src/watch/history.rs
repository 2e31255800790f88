//! The changes from look to look: rates, the course of free blocks, and the time when none would be left.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

use crate::snapshot::{Counters, Snapshot};

/// The counters of `vmstat` that concern fragmentation, with the events that one of each counts.
const COUNTERS: [(&str, &str); 14] = [
    ("compact_stall", "callers that had to compact memory themselves"),
    ("compact_success", "compactions that made a block"),
    ("compact_fail", "compactions that made none"),
    ("compact_daemon_wake", "wakes of kcompactd"),
    ("allocstall", "callers that had to reclaim memory themselves"),
    ("pageoutrun", "runs of kswapd"),
    ("thp_fault_alloc", "huge pages that faults got"),
    ("thp_fault_fallback", "faults that wanted one and got single pages"),
    ("thp_collapse_alloc", "huge pages that khugepaged made"),
    ("pgmigrate_success", "pages moved"),
    ("pgmigrate_fail", "pages that could not be moved"),
    ("pgalloc", "pages handed out"),
    ("pgfree", "pages given back"),
    ("pgmajfault", "faults that had to read"),
];

/// A counter with its growth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rate {
    /// Name in `vmstat`; `allocstall` and `pgalloc` are sums over zones.
    pub name: &'static str,
    /// The counted events, in words.
    pub counts: &'static str,
    /// Count since the host started.
    pub total: u64,
    /// Growth per second, between the last two looks; `null` before the second look.
    pub per_second: Option<f64>,
}

/// The counters of the last two looks, and the obtainable blocks of all looks that are kept.
#[derive(Clone, Debug)]
pub struct History {
    most: usize,
    back: Duration,
    points: VecDeque<Point>,
    counters: [Option<Counters>; 2],
}

#[derive(Clone, Debug)]
struct Point {
    at: Duration,
    /// CPU time that this process had taken until the look.
    own_cpu: Duration,
    /// Blocks of each order that a process could have, of all zones; `None` if the files for that were not read.
    obtainable: Option<Vec<u64>>,
    /// True if the zones' watermarks were read, too.
    has_marks: bool,
}

/// The continuation of the past by a straight line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Forecast {
    /// Growth of the number of blocks per second; negative when it fell.
    pub per_second: f64,
    /// Seconds until none is left; `null` where the number does not fall.
    pub seconds_to_none: Option<f64>,
    /// Length of the past behind the forecast, in seconds.
    pub over_seconds: f64,
}

impl History {
    /// Makes a history that keeps up to `most` looks.
    #[must_use]
    pub fn new(most: usize) -> History {
        let (points, counters) = (VecDeque::new(), [None, None]);
        History { most: most.max(2), back: Duration::MAX, points, counters }
    }

    /// Drops looks more than `back` older than the last one, but always keeps the look before the last.
    #[must_use]
    pub fn reaching_back(self, back: Duration) -> History {
        History { back, ..self }
    }

    /// Adds a look at time `at`, with the CPU time of this process until then. A look that is not later than the last
    /// one is taken for the same, and ignored.
    pub fn push(&mut self, at: Duration, own_cpu: Duration, snapshot: &Snapshot<'_>) {
        if self.points.back().is_some_and(|last| last.at >= at) {
            return;
        }
        let is_old = |first: &Point| at - first.at > self.back;
        while self.points.len() >= self.most
            || self.points.len() > 1 && self.points.front().is_some_and(is_old)
        {
            self.points.pop_front();
        }
        let has_marks = snapshot.populated().next().is_some();
        // The pages that watermarks keep are not known for a moment: that does not make more blocks obtainable.
        let is_comparable = has_marks || !self.points.iter().any(|point| point.has_marks);
        let is_known = !snapshot.buddy.is_empty() && is_comparable;
        let obtainable = is_known.then(|| obtainable(snapshot));
        self.points.push_back(Point { at, own_cpu, obtainable, has_marks });
        self.counters.swap(0, 1);
        self.counters[1] = Some(snapshot.vmstat.clone());
    }

    /// Returns the time between the last two looks; `None` before the second.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        let [.., before, last] = &*self.points.iter().rev().take(2).rev().collect::<Vec<_>>()
        else {
            return None;
        };
        Some(last.at - before.at)
    }

    /// Returns the share of a core that this process has taken over the looks that are kept; `None` before the second
    /// look.
    #[must_use]
    pub fn cost_share(&self) -> Option<f64> {
        let (first, last) = (self.points.front()?, self.points.back()?);
        let seconds = (last.at - first.at).as_secs_f64();
        let cpu = last.own_cpu.saturating_sub(first.own_cpu).as_secs_f64();
        (seconds > 0.0).then(|| cpu / seconds)
    }

    /// Returns the counters that this kernel has, with their growth.
    #[must_use]
    pub fn rates(&self) -> Vec<Rate> {
        let Some(now) = &self.counters[1] else { return Vec::new() };
        let before = self.counters[0].as_ref().zip(self.interval());
        let rate = |&(name, counts): &(&'static str, &'static str)| {
            let total = now.total(name)?;
            let per_second = before.and_then(|(before, time)| {
                // A counter that fell was reset: another host, or a wrap of 32 bits.
                let grown = total.checked_sub(before.total(name)?)?;
                Some(grown as f64 / time.as_secs_f64())
            });
            Some(Rate { name, counts, total, per_second })
        };
        COUNTERS.iter().filter_map(rate).collect()
    }

    /// Returns the blocks of `order` that a process could have in all zones before the watermarks stop it
    /// ([`Snapshot::obtainable`]), at each look that could read the files for it, with the look's time.
    pub fn obtainable(&self, order: u32) -> impl Iterator<Item = (Duration, u64)> {
        let known =
            self.points.iter().filter_map(|point| Some((point.at, point.obtainable.as_ref()?)));
        known.map(move |(at, orders)| (at, orders.get(order as usize).copied().unwrap_or(0)))
    }

    /// Returns the future course of the blocks of `order`: a straight line by least squares. `None` before `least` has
    /// passed, since a moment is not a trend.
    #[must_use]
    pub fn forecast(&self, order: u32, least: Duration) -> Option<Forecast> {
        let points: Vec<(f64, f64)> =
            self.obtainable(order).map(|(at, blocks)| (at.as_secs_f64(), blocks as f64)).collect();
        let (&(first, _), &(last, now)) = (points.first()?, points.last()?);
        let over_seconds = last - first;
        if points.len() < 3 || over_seconds < least.as_secs_f64() {
            return None;
        }
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (time, blocks) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            points.iter().map(|&(x, y)| of(x - time, y - blocks)).sum()
        };
        let per_second = sum(&|x, y| x * y) / sum(&|x, _| x * x);
        let seconds_to_none = (per_second < 0.0).then(|| now / -per_second);
        Some(Forecast { per_second, seconds_to_none, over_seconds })
    }
}

fn obtainable(snapshot: &Snapshot<'_>) -> Vec<u64> {
    let mut sums: Vec<u64> = Vec::new();
    for zone in &snapshot.buddy {
        let blocks = snapshot.obtainable(&zone.zone);
        #[expect(clippy::disallowed_methods, reason = "at most `MOST_ORDERS`")]
        sums.resize(sums.len().max(blocks.len()), 0);
        sums.iter_mut().zip(blocks).for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes looks some of which lack the free lists: such a look is left out, and not taken for one without a free
    /// block.
    #[test]
    fn what_could_not_be_read_is_no_end() {
        let mut history = History::new(100);
        for second in 0..20 {
            let nothing = Snapshot::default();
            let some = seen("0 0 100", "");
            let look = if second % 7 == 5 { &nothing } else { &some };
            history.push(Duration::from_secs(second), Duration::ZERO, look);
        }
        assert!(history.obtainable(2).all(|(_, blocks)| blocks == 100));
        assert_eq!(history.obtainable(2).count(), 17);
        let forecast = history.forecast(2, Duration::from_secs(5)).unwrap();
        assert_eq!((forecast.per_second, forecast.seconds_to_none), (0.0, None));
    }

    #[test]
    fn a_history_reaches_as_far_back_as_it_says() {
        let mut history = History::new(100).reaching_back(Duration::from_secs(100));
        for minute in 0..10 {
            history.push(Duration::from_secs(60 * minute), Duration::ZERO, &seen("1", ""));
        }
        assert_eq!(history.points.len(), 2);
        for second in 541..600 {
            history.push(Duration::from_secs(second), Duration::ZERO, &seen("1", ""));
        }
        assert_eq!(history.points.len(), 60, "from 540 on");
    }
    use crate::snapshot::{buddyinfo, vmstat};

    fn seen(blocks: &str, counters: &str) -> Snapshot<'static> {
        Snapshot {
            buddy: buddyinfo(&format!("Node 0, zone Normal {blocks}\n")).0,
            vmstat: vmstat(counters).0,
            ..Snapshot::default()
        }
    }

    fn history(looks: &[(u64, &str, &str)]) -> History {
        let mut history = History::new(100);
        for (at, blocks, counters) in looks {
            history.push(
                Duration::from_secs(*at),
                Duration::from_millis(*at),
                &seen(blocks, counters),
            );
        }
        history
    }

    fn rate(history: &History, name: &str) -> Option<(u64, Option<f64>)> {
        let rates = history.rates();
        rates.iter().find(|rate| rate.name == name).map(|rate| (rate.total, rate.per_second))
    }

    #[test]
    fn rates_lie_between_the_last_two_looks() {
        let first = (10, "0", "compact_stall 100\nallocstall_dma 1\nallocstall_normal 2\n");
        let one = history(&[first]);
        assert_eq!(rate(&one, "compact_stall"), Some((100, None)));
        let later = (14, "0", "compact_stall 108\nallocstall_dma 1\nallocstall_normal 4\n");
        let two = history(&[first, later]);
        assert_eq!(rate(&two, "compact_stall"), Some((108, Some(2.0))));
        assert_eq!(rate(&two, "allocstall"), Some((5, Some(0.5))));
        assert_eq!(rate(&two, "pgfree"), None, "this kernel has no such counter");
        let fallen = (20, "0", "compact_stall 1\n");
        assert_eq!(rate(&history(&[first, later, fallen]), "compact_stall"), Some((1, None)));
    }

    #[test]
    fn a_straight_fall_leads_to_its_end() {
        let looks: Vec<(u64, String)> = (0..10).map(|s| (s, format!("{}", 100 - 4 * s))).collect();
        let looks: Vec<_> = looks.iter().map(|(s, blocks)| (*s, blocks.as_str(), "")).collect();
        let history = history(&looks);
        let forecast = history.forecast(0, Duration::from_secs(5)).unwrap();
        assert!((forecast.per_second + 4.0).abs() < 1e-9);
        assert!((forecast.seconds_to_none.unwrap() - 16.0).abs() < 1e-9);
        assert_eq!(history.forecast(0, Duration::from_secs(60)), None, "too short a past");
        assert_eq!(history.obtainable(0).last(), Some((Duration::from_secs(9), 64)));
    }

    #[test]
    fn what_does_not_fall_has_no_end() {
        for blocks in [["5", "5", "5"], ["5", "6", "7"]] {
            let history = history(&[(0, blocks[0], ""), (50, blocks[1], ""), (90, blocks[2], "")]);
            let forecast = history.forecast(0, Duration::from_secs(60)).unwrap();
            assert_eq!(forecast.seconds_to_none, None, "{blocks:?}");
        }
    }

    #[test]
    fn only_so_many_looks_are_kept_and_none_twice() {
        let mut history = History::new(3);
        for at in [1, 2, 2, 3, 4, 5] {
            history.push(Duration::from_secs(at), Duration::from_millis(5 * at), &seen("1", ""));
        }
        let times: Vec<u64> = history.obtainable(0).map(|(at, _)| at.as_secs()).collect();
        assert_eq!(times, [3, 4, 5]);
        assert_eq!(history.interval(), Some(Duration::from_secs(1)));
        assert!((history.cost_share().unwrap() - 0.005).abs() < 1e-9);
    }
}

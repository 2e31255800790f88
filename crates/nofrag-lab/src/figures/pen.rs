//! The figures around Pen's "fix possible exhaustion of vmalloc space".

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::declared::declared;
use crate::key::Key;
use crate::stats::Calls;

/// Pen's published figures, and simulations of his rules. *Before* is insertion at the head of the list, *after* at its
/// tail.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pen2015 {
    pub document: String,
    /// Places in the document by kind of rows, where all rows of the kind have the same.
    pub places: BTreeMap<String, String>,
    /// The rows of the function profiler.
    #[serde(rename = "profile")]
    pub profiles: Vec<Profile>,
    /// Blocks, lists and steps of his workloads.
    pub simulated: Vec<Simulated>,
    /// The random workload by key.
    pub w2_keys: Keys,
    pub other_bits: Vec<OtherBits>,
    /// Address space that long-lived mappings pin.
    pub pinned: Vec<Pinned>,
    /// Costs of rounding up to size classes.
    pub classes: Vec<Classes>,
}

/// One function under one workload, as the kernel's function profiler printed it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The workload: w1, w2 or w3.
    pub workload: String,
    pub function: Key,
    pub place: String,
    /// Before; `None` if the function was never called.
    pub before: Option<Calls>,
    pub after: Calls,
}

/// Blocks, list and steps of one workload by simulation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulated {
    pub workload: String,
    pub place: String,
    pub before: Blocks,
    pub after: Blocks,
}

/// Blocks made and given back by a workload, as lowest and highest value, and the search among them.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocks {
    pub new: [u64; 2],
    pub freed: [u64; 2],
    /// Blocks on the longest list.
    pub longest_list: [u64; 2],
    /// Listed blocks that a call inspects, on average.
    pub steps: f64,
}

/// Blocks made and given back in the random workload: an entry `[made, given back]` for each of the keys 0, 1, and so
/// on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    pub place: String,
    pub before: Vec<[u64; 2]>,
    pub after: Vec<[u64; 2]>,
}

/// Blocks made and given back where a block has another number of slots, with insertion at the tail of the list.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherBits {
    /// Slots of one block.
    pub bits: u32,
    pub w1: [u64; 2],
    /// Blocks made and given back in the random workload with key 0.
    pub w2: [u64; 2],
}

/// Pages of address space that a live page pins when one in `one_in` mappings lives long.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pinned {
    pub one_in: u64,
    /// By simulation, with 5,000 live pages.
    pub simulated: f64,
    pub closed_form: f64,
}

/// Costs of one set of size classes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Classes {
    pub classes: String,
    /// Slots for one request of each size from 1 to 64.
    pub slots: u64,
    /// Blocks that the random workload makes: lowest and highest of 20 keys.
    pub new: [u64; 2],
    /// Mean number of blocks made over the 20 keys, where it was given.
    pub mean_new: Option<f64>,
    /// The longest list, where it was given.
    pub longest_list: Option<u64>,
    /// Listed blocks that a call inspects on average, where that was given.
    pub steps: Option<f64>,
}

impl Pen2015 {
    /// Returns the profiler's row for a function under a workload.
    #[must_use]
    pub fn profile(&self, workload: &str, function: &Key) -> Option<&Profile> {
        self.profiles.iter().find(|row| row.workload == workload && row.function == *function)
    }

    /// Returns the simulation of a workload.
    #[must_use]
    pub fn simulation(&self, workload: &str) -> Option<&Simulated> {
        self.simulated.iter().find(|row| row.workload == workload)
    }
}

/// Returns the figures around Pen's "fix possible exhaustion of vmalloc space".
#[must_use]
pub fn pen_2015() -> Pen2015 {
    const TEXT: &str = include_str!("../../data/figures/pen-2015.toml");
    declared(TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_reads_and_totals_are_hits_times_averages() {
        let figures = pen_2015();
        assert_eq!(figures.profiles.len(), 12);
        for row in &figures.profiles {
            for calls in row.before.iter().chain([&row.after]) {
                let total = calls.hits as f64 * calls.average_us;
                let near = (total / calls.total_us - 1.0).abs() < 0.01;
                assert!(near, "{} {}: {total}", row.workload, row.function);
            }
        }
    }

    #[test]
    fn what_was_simulated_agrees_with_itself() {
        let figures = pen_2015();
        let w2 = figures.simulation("w2").unwrap();
        for (keys, blocks) in
            [(&figures.w2_keys.before, w2.before), (&figures.w2_keys.after, w2.after)]
        {
            for [new, freed] in keys {
                assert!((blocks.new[0]..=blocks.new[1]).contains(new), "{new}");
                assert!((blocks.freed[0]..=blocks.freed[1]).contains(freed), "{freed}");
            }
        }
        for row in &figures.pinned {
            let p = 1.0 / row.one_in as f64;
            let formula = (1.0 - (1.0 - p).powi(1024)) / p;
            assert!((formula / row.closed_form - 1.0).abs() < 0.001, "1/{}", row.one_in);
            assert!((row.simulated / row.closed_form - 1.0).abs() < 0.015, "1/{}", row.one_in);
        }
    }
}

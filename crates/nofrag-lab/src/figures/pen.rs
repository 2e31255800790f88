//! The figures around Pen's "fix possible exhaustion of vmalloc space".

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{PublishedTable, published};
use crate::declared::declared;
use crate::key::Key;
use crate::report::Report;
use crate::stats::Calls;

/// Pen's published figures, and simulations of his rules. *Before* is insertion at the head of the list, *after* at its
/// tail.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pen2015 {
    pub document: String,
    /// The function profiler, by workload.
    #[serde(rename = "profile")]
    pub profiles: Vec<Profile>,
    /// Blocks, lists and steps of his workloads, under the names that reports have.
    #[serde(rename = "table")]
    tables: Vec<PublishedTable>,
}

/// The functions of one workload, as the kernel's function profiler printed them; those that were never called have no
/// row.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The workload: w1, w2 or w3.
    pub workload: String,
    pub place: String,
    pub before: BTreeMap<Key, Calls>,
    pub after: BTreeMap<Key, Calls>,
}

impl Pen2015 {
    /// Returns the simulations as a report, whose designs are `before` and `after`, or one in so many, or a set of
    /// classes.
    pub(crate) fn simulated(&self) -> Report {
        published(&self.tables)
    }

    /// Returns the profiler's rows of a workload.
    #[must_use]
    pub fn profile(&self, workload: &str) -> Option<&Profile> {
        self.profiles.iter().find(|row| row.workload == workload)
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
        let mut rows = 0;
        for row in &figures.profiles {
            for (function, calls) in row.before.iter().chain(&row.after) {
                let total = calls.hits as f64 * calls.average_us;
                let near = (total / calls.total_us - 1.0).abs() < 0.01;
                assert!(near, "{} {function}: {total}", row.workload);
                rows += 1;
            }
        }
        assert_eq!(rows, 23);
    }

    #[test]
    fn what_was_simulated_agrees_with_itself() {
        let simulated = pen_2015().simulated();
        for side in ["before", "after"] {
            let w2 = simulated.measurement("w2", side).unwrap();
            for count in ["blocks new", "blocks freed"] {
                let of = |what: String| w2.count(Key::count(count).with(what)).unwrap();
                let range = of(", least".to_owned())..=of(", most".to_owned());
                assert!((0..8).all(|key| range.contains(&of(format!(", key {key}")))), "{side}");
            }
        }
        for row in simulated.of_program("lifetimes") {
            let p = 1.0 / row.design.parse::<f64>().unwrap();
            let formula = (1.0 - (1.0 - p).powi(1024)) / p;
            let of = |what| row.count(Key::count(what)).unwrap();
            let closed = of("pages pinned by the closed form");
            assert!((formula / closed - 1.0).abs() < 0.001, "{}", row.design);
            let ratio = of("pages pinned per live page") / closed;
            assert!((ratio - 1.0).abs() < 0.015, "{}", row.design);
        }
        assert_eq!(simulated.of_program("lifetimes").count(), 7);
    }
}

//! The figures around Gorman's "Fragmentation avoidance improvements".
//!
//! Events are absolute counts of machines whose memory and disks were never published. They are compared as reductions
//! against the vanilla kernel of the same configuration, the only form that compares with a run here.

use std::borrow::Borrow;

use serde::Deserialize;

use super::{PublishedTable, figure};
use crate::declared::declared;
use crate::key::Key;

/// Gorman's published figures, and those of later series for the same measures.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gorman2018 {
    pub document: String,
    /// Measurements under each configuration, vanilla and with patches; and changes by later series.
    #[serde(rename = "table")]
    pub tables: Vec<PublishedTable>,
}

/// Returns by how many percent `after` is below `before`; `None` if `before` is not positive.
#[must_use]
pub fn reduction(before: f64, after: f64) -> Option<f64> {
    (before > 0.0).then(|| 100.0 * (before - after) / before)
}

impl Gorman2018 {
    /// The designs of the document's columns, in its order: before the series, the first patch, patches 1 to 4, which
    /// were merged, and all five.
    pub const DESIGNS: [&'static str; 4] =
        ["linux-4.20", "linux-4.20+patch1", "linux-4.20+patch4", "linux-4.20+patch5"];

    /// The configurations that were measured: machine and huge-page mode.
    pub const CONFIGURATIONS: [&'static str; 4] = ["s-default", "s-madv", "h-default", "h-madv"];

    /// Returns a figure of a configuration under a design; `None` where there is none, such as the
    /// mean of a class of faults without a sample.
    #[must_use]
    pub fn figure(&self, configuration: &str, design: &str, key: impl Borrow<Key>) -> Option<f64> {
        figure(&self.tables, configuration, design, key.borrow())
    }

    /// Returns by how many percent a figure of a design is below vanilla's; `None` for vanilla itself and where a
    /// sample is missing.
    #[must_use]
    pub fn reduction(
        &self,
        configuration: &str,
        design: &str,
        key: impl Borrow<Key>,
    ) -> Option<f64> {
        let [vanilla, ..] = Gorman2018::DESIGNS;
        let figures = [vanilla, design].map(|it| self.figure(configuration, it, key.borrow()));
        let [Some(before), Some(after)] = figures else { return None };
        reduction(before, after).filter(|_| design != vanilla)
    }

    /// Returns the least and the largest published reduction of a figure by a design, over all configurations.
    #[must_use]
    pub fn reductions(&self, design: &str, key: impl Borrow<Key>) -> Option<[f64; 2]> {
        let of = |configuration| self.reduction(configuration, design, key.borrow());
        let all: Vec<f64> = Gorman2018::CONFIGURATIONS.into_iter().filter_map(of).collect();
        let low = all.iter().copied().reduce(f64::min)?;
        Some([low, all.into_iter().fold(low, f64::max)])
    }
}

/// Returns the figures around Gorman's "Fragmentation avoidance improvements".
#[must_use]
pub fn gorman_2018() -> Gorman2018 {
    const TEXT: &str = include_str!("../../data/figures/gorman-2018.toml");
    declared(TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VANILLA: &str = Gorman2018::DESIGNS[0];
    const PATCH_1: &str = Gorman2018::DESIGNS[1];
    const MERGED: &str = Gorman2018::DESIGNS[2];
    const ALL_FIVE: &str = Gorman2018::DESIGNS[3];

    const EVENTS: Key = Key::count("events below order 9");
    const HUGE_PERCENT: Key = Key::number("percent huge");
    const LATENCIES: [(Key, f64); 2] = [
        (Key::number("us of a unit of single pages"), 100.0),
        (Key::number("us of a huge page"), 0.0),
    ];

    fn near(value: f64, claim: f64, unit: f64) -> bool {
        (value - claim).abs() <= unit / 2.0 + 1e-9
    }

    /// Source: docs/sources/pages.md#o-20.
    #[test]
    fn the_counts_give_the_reductions_that_the_document_states() {
        let figures = gorman_2018();
        let stated = [
            ("s-default", [49.0, 97.7, 97.9]),
            ("s-madv", [34.0, 95.4, 94.8]),
            ("h-default", [7.0, 93.4, 94.6]),
            ("h-madv", [11.0, 93.3, 93.6]),
        ];
        for (configuration, stated) in stated {
            for (design, stated) in Gorman2018::DESIGNS[1..].iter().zip(stated) {
                // The commit rounds its own reductions to whole percent.
                let unit = if *design == PATCH_1 { 1.0 } else { 0.1 };
                let computed = figures.reduction(configuration, design, EVENTS).unwrap();
                assert!(near(computed, stated, unit), "{configuration} {design}: {computed}");
            }
            assert_eq!(figures.reduction(configuration, VANILLA, EVENTS), None);
        }
    }

    #[test]
    fn over_94_percent_is_a_summary_of_two_configurations_in_four() {
        let figures = gorman_2018();
        let all = |design| {
            Gorman2018::CONFIGURATIONS.map(|it| figures.reduction(it, design, EVENTS).unwrap())
        };
        let mean = |design| all(design).iter().sum::<f64>() / 4.0;
        assert!(near(mean(MERGED), 95.0, 0.1));
        assert!(near(mean(ALL_FIVE), 95.2, 0.1));
        let above = |design| all(design).iter().filter(|fewer| **fewer > 94.0).count();
        assert_eq!((above(MERGED), above(ALL_FIVE)), (2, 3));
        let [low, high] = figures.reductions(MERGED, EVENTS).unwrap();
        assert!(near(low, 93.3, 0.1) && near(high, 97.7, 0.1));
    }

    /// Source: docs/sources/pages.md#trap-3.
    #[test]
    fn what_mail_5_states_of_madvise_is_wrong() {
        let figures = gorman_2018();
        let stated = Key::number("percent fewer events, as stated");
        assert_eq!(figures.figure("s-madv", ALL_FIVE, stated), Some(99.7));
        let fewer = |design| figures.reduction("s-madv", design, EVENTS).unwrap();
        assert!(near(fewer(ALL_FIVE), 94.8, 0.1));
        assert!(fewer(ALL_FIVE) < fewer(MERGED), "patch 5 made it worse there");
    }

    #[test]
    fn a_class_without_faults_is_no_sample_and_never_zero() {
        let figures = gorman_2018();
        let mut missing = 0;
        for configuration in Gorman2018::CONFIGURATIONS {
            for design in Gorman2018::DESIGNS {
                let share = figures.figure(configuration, design, HUGE_PERCENT);
                for (latency, share_without_faults) in LATENCIES {
                    let sample = figures.figure(configuration, design, latency);
                    assert_ne!(sample, Some(0.0));
                    let has_none = share == Some(share_without_faults);
                    assert_eq!(sample.is_none(), has_none, "{configuration} {design}");
                    missing += usize::from(has_none);
                }
            }
        }
        assert_eq!(missing, 3);
    }

    #[test]
    fn requesters_add_up_to_the_events() {
        let figures = gorman_2018();
        let of = |design, asked: &'static str| {
            figures.figure("s-default", design, Key::count(asked)).unwrap()
        };
        for design in [VANILLA, PATCH_1] {
            let requesters = [
                "events, unmovable asked for",
                "events, movable asked for",
                "events, reclaimable asked for",
            ];
            let sum: f64 = requesters.map(|asked| of(design, asked)).iter().sum();
            assert_eq!(figures.figure("s-default", design, EVENTS), Some(sum));
        }
        let movable = of(VANILLA, "events, movable asked for");
        assert!(near(100.0 * movable / of(VANILLA, "events below order 9"), 99.5, 0.1));
    }

    #[test]
    fn every_configuration_has_every_quantity() {
        let figures = gorman_2018();
        for id in Gorman2018::CONFIGURATIONS {
            let [(base, _), (huge, _)] = LATENCIES;
            let has = |key: Key| figures.figure(id, MERGED, key).is_some();
            assert!([EVENTS, HUGE_PERCENT, base, huge].into_iter().all(has), "{id}");
            assert!(figures.figure(id, ALL_FIVE, Key::count("stalls")).is_some(), "{id}");
        }
    }

    #[test]
    fn later_figures_agree_with_themselves() {
        let figures = gorman_2018();
        for table in figures.tables.iter().filter(|table| table.rows.contains_key("before")) {
            for key in &table.columns {
                let of = |row| table.figure(row, key).unwrap().get();
                let change = 100.0 * (of("after") - of("before")) / of("before");
                assert!((change - of("change")).abs() < 0.06, "{} {key}: {change}", table.program);
            }
        }
    }

    #[test]
    fn a_reduction_from_nothing_is_none() {
        assert_eq!(reduction(0.0, 0.0), None);
        assert_eq!(reduction(200.0, 50.0), Some(75.0));
        assert_eq!(reduction(100.0, 150.0), Some(-50.0));
    }
}

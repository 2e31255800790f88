//! First measured costs of real memory, and the targets of the library.
//!
//! Source: docs/sources/backing.md#strategies, #moves.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::declared::declared;

/// Costs of real memory, measured before the library was written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backing {
    pub document: String,
    /// Units by kind of rows or of quantities, where all have the same.
    pub units: BTreeMap<String, String>,
    /// Ways to hand out runs and to take them back.
    #[serde(rename = "strategy")]
    pub strategies: Vec<StrategyCost>,
    /// Ways to move runs under a writer.
    #[serde(rename = "move")]
    pub moves: Vec<MoveCost>,
    #[serde(rename = "figure")]
    pub figures: Vec<BackingFigure>,
    /// Figures that the library must reach.
    #[serde(rename = "target")]
    pub targets: Vec<Target>,
}

/// Costs of a pair of allocation and free under one way of handing out runs, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrategyCost {
    /// The lab's name of this way of handing out runs.
    pub id: String,
    pub what: String,
    pub place: String,
    /// First page of each run touched, one thread.
    pub touch_first: f64,
    /// First page of each run touched, two threads.
    pub touch_first_2: f64,
    /// All pages touched, one thread.
    pub touch_all: f64,
}

/// Costs of moving 1, 16, 64 and 512 pages, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveCost {
    /// The lab's name of this way of moving pages.
    pub id: String,
    pub what: String,
    pub place: String,
    /// True if writes by another thread were lost during moves.
    pub loses: bool,
    /// Costs of a move of 1, 16, 64 and 512 pages.
    pub cost: [f64; 4],
}

/// A single measured value of real memory.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackingFigure {
    pub id: String,
    pub what: String,
    pub place: String,
    pub unit: String,
    pub value: f64,
}

/// A target of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Aim {
    ParkedFirst,
    ParkedAll,
    #[serde(rename = "decay-1")]
    #[strum(serialize = "decay-1")]
    Decay1,
    #[serde(rename = "decay-2")]
    #[strum(serialize = "decay-2")]
    Decay2,
    AreasPerBlock,
    PurgeTail,
    MoveCost,
    Obtainable,
}

/// A figure that the library must reach, beside the first measurement.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub id: Aim,
    pub what: String,
    /// Unit of `then` and `target`.
    pub unit: String,
    /// The best value of the first measurements.
    pub then: f64,
    /// The value that the library must reach.
    pub target: f64,
}

impl Backing {
    /// Returns the cost of a way of handing out runs.
    #[must_use]
    pub fn strategy(&self, id: &str) -> Option<&StrategyCost> {
        self.strategies.iter().find(|row| row.id == id)
    }

    /// Returns the cost of a way of moving runs.
    #[must_use]
    pub fn method(&self, id: &str) -> Option<&MoveCost> {
        self.moves.iter().find(|row| row.id == id)
    }

    /// Returns a single figure by its id.
    #[must_use]
    pub fn figure(&self, id: &str) -> Option<f64> {
        self.figures.iter().find(|row| row.id == id).map(|row| row.value)
    }

    /// Returns a target.
    ///
    /// # Panics
    /// If the file that is built in lacks it.
    #[must_use]
    pub fn target(&self, aim: Aim) -> &Target {
        self.targets.iter().find(|row| row.id == aim).expect("the file has every target")
    }
}

/// Returns the first measured costs of real memory, and the targets.
#[must_use]
pub fn backing() -> Backing {
    const TEXT: &str = include_str!("../../data/figures/backing.toml");
    declared(TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_reads_and_its_costs_give_the_factors_that_the_targets_name() {
        let figures = backing();
        let of = |id: &str| figures.strategy(id).unwrap();
        let (each, block, parked) = (of("map-each"), of("purge-block"), of("parked"));
        let near = |ratio: f64, aim: Aim| {
            let then = figures.target(aim).then;
            assert!((ratio / then - 1.0).abs() < 0.05, "{aim:?}: {ratio} and {then}");
        };
        near(each.touch_first / parked.touch_first, Aim::ParkedFirst);
        near(each.touch_all / parked.touch_all, Aim::ParkedAll);
        near(each.touch_first / block.touch_first, Aim::Decay1);
        near(each.touch_first_2 / block.touch_first_2, Aim::Decay2);
        assert!(figures.moves.iter().all(|row| row.loses == (row.id == "none")));
        assert_eq!(figures.figure("map-limit-index"), Some(32753.0));
        assert!(figures.method("write-protect").unwrap().cost[2] > 0.0);
    }
}

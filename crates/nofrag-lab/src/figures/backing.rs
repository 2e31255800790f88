//! What real memory was first measured to cost, and what the library must reach.
//!
//! Source: docs/sources/backing.md#strategies, #moves.

use serde::Deserialize;

use crate::declared::declared;

/// What real memory costs, measured before the library was written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backing {
    /// What was measured, and the machine.
    pub document: String,
    /// Ways to hand out runs and to take them back.
    #[serde(rename = "strategy")]
    pub strategies: Vec<StrategyCost>,
    /// Ways to move runs under a writer.
    #[serde(rename = "move")]
    pub moves: Vec<MoveCost>,
    /// Single figures.
    #[serde(rename = "figure")]
    pub figures: Vec<BackingFigure>,
    /// What the library must reach.
    #[serde(rename = "target")]
    pub targets: Vec<Target>,
}

/// What an allocation and a free cost in one way, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrategyCost {
    /// The lab's name of it.
    pub id: String,
    /// What is done.
    pub what: String,
    /// Where it stands.
    pub place: String,
    /// Of the costs.
    pub unit: String,
    /// First page of each run touched, one thread.
    pub touch_first: f64,
    /// The same, two threads.
    pub touch_first_2: f64,
    /// All pages touched, one thread.
    pub touch_all: f64,
}

/// What it costs to move 1, 16, 64 and 512 pages, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveCost {
    /// The lab's name of the method.
    pub id: String,
    /// What is done.
    pub what: String,
    /// Where it stands.
    pub place: String,
    /// Of the costs.
    pub unit: String,
    /// Whether writes were lost.
    pub loses: bool,
    /// By pages.
    pub cost: [f64; 4],
}

/// A single figure.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackingFigure {
    /// Short and stable.
    pub id: String,
    /// What was measured.
    pub what: String,
    /// Where it stands.
    pub place: String,
    /// Of the value.
    pub unit: String,
    /// The value.
    pub value: f64,
}

/// What the library must reach, beside what was found possible.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Short and stable.
    pub id: String,
    /// What is measured.
    pub what: String,
    /// Of both values.
    pub unit: String,
    /// What was found possible, when it was first measured.
    pub then: f64,
    /// What must be reached.
    pub target: f64,
}

impl Backing {
    /// What a way of handing out runs cost.
    #[must_use]
    pub fn strategy(&self, id: &str) -> Option<&StrategyCost> {
        self.strategies.iter().find(|row| row.id == id)
    }

    /// What a way of moving runs cost.
    #[must_use]
    pub fn method(&self, id: &str) -> Option<&MoveCost> {
        self.moves.iter().find(|row| row.id == id)
    }

    /// A single figure.
    #[must_use]
    pub fn figure(&self, id: &str) -> Option<f64> {
        self.figures.iter().find(|row| row.id == id).map(|row| row.value)
    }

    /// A target.
    #[must_use]
    pub fn target(&self, id: &str) -> Option<&Target> {
        self.targets.iter().find(|row| row.id == id)
    }
}

/// What real memory was first measured to cost.
///
/// # Panics
/// Never in a build that passes its tests: the file is part of the binary.
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
        let near = |ratio: f64, id: &str| {
            let then = figures.target(id).unwrap().then;
            assert!((ratio / then - 1.0).abs() < 0.05, "{id}: {ratio} and {then}");
        };
        near(each.touch_first / parked.touch_first, "parked-first");
        near(each.touch_all / parked.touch_all, "parked-all");
        near(each.touch_first / block.touch_first, "decay-1");
        near(each.touch_first_2 / block.touch_first_2, "decay-2");
        assert!(figures.moves.iter().all(|row| row.loses == (row.id == "none")));
        assert_eq!(figures.figure("map-limit-index"), Some(32753.0));
        assert!(figures.method("write-protect").unwrap().cost[2] > 0.0);
    }
}

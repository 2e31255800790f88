//! First measured costs of real memory, and the targets of the library.
//!
//! Source: docs/sources/backing.md#strategies, #moves.

use serde::Deserialize;

use super::PublishedTable;
use crate::declared::declared;
use crate::key::Key;

/// Costs of real memory, measured before the library was written.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backing {
    pub document: String,
    /// Nanoseconds of a pair of allocation and free under each way to hand out runs, by program; and of a move under
    /// each way to move runs, by size.
    #[serde(rename = "table")]
    pub tables: Vec<PublishedTable>,
    /// Figures that the library must reach.
    #[serde(rename = "target")]
    pub targets: Vec<Target>,
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

/// The figure of how many mappings of their own a process may have.
pub const MAPPED: Key = Key::count("isolated mappings");

impl Backing {
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
    use super::super::figure;
    use super::*;

    #[test]
    fn the_file_reads_and_its_costs_give_the_factors_that_the_targets_name() {
        let figures = backing();
        let of = |program: &str, design: &str| {
            let key = Key::from(program.to_owned());
            figure(&figures.tables, "strategies", design, &key).unwrap()
        };
        let near = |program: &str, design: &str, aim: Aim| {
            let ratio = of(program, "map-each") / of(program, design);
            let then = figures.target(aim).then;
            assert!((ratio / then - 1.0).abs() < 0.05, "{aim:?}: {ratio} and {then}");
        };
        near("touch-first", "parked", Aim::ParkedFirst);
        near("touch-all", "parked", Aim::ParkedAll);
        near("touch-first", "purge-block", Aim::Decay1);
        near("touch-first-2", "purge-block", Aim::Decay2);
        let mapped = figure(&figures.tables, "map-limit", "map-each", &MAPPED);
        assert_eq!(mapped, Some(32_753.0));
        let moved = figure(&figures.tables, "moves", "write-protect", &Key::number("moves-64"));
        assert_eq!(moved, Some(12_741.0));
    }
}

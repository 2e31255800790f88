//! The figures around Wander's and Chen's "Avoiding mmap fragmentation".

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Completeness;
use crate::declared::declared;

/// Published figures on placements of mappings, and simulations of their rules.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wander2005 {
    pub document: String,
    /// Places in the document by kind of rows, where all rows of the kind have the same.
    pub places: BTreeMap<String, String>,
    /// Published lines of the map of leakme.
    pub map_lines: Vec<MapLines>,
    /// The areas that leakme4 leaves.
    pub leakme4: Vec<Leakme4>,
    /// System time for 20,000 stacks.
    pub stacks: Vec<StackTime>,
    /// Places of the last map in the example of five regions.
    pub five_regions: Vec<FiveRegions>,
    pub leakme: Vec<LeakmeOutcome>,
    /// The areas that leakme leaves, one by one.
    pub leakme_areas: Vec<LeakmeAreas>,
    /// The smallest windows in which leakme survives.
    pub survival: Vec<Survival>,
    /// Outcomes of leakme in a 64-bit space.
    pub leakme_64: Vec<Leakme64>,
    pub mixes: Vec<Mixes>,
    /// Lengths of searches where no areas merge.
    pub unmergeable: Vec<Unmergeable>,
}

/// The end of the window from which a row's designs search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    Up,
    Down,
    /// Each class of requests is searched for from an end of its own.
    Both,
}

/// Address of the first byte, and the address behind the last.
pub type Bounds = [u64; 2];

/// The lines of a published map.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapLines {
    pub design: String,
    /// The kernel that was run.
    pub kernel: String,
    pub lines: u64,
    /// Iterations that the run survived, as a lower bound; `None` if it did not fail.
    pub fails_after: Option<u64>,
    pub place: String,
}

/// Areas that leakme4 leaves between the program and the stack.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leakme4 {
    /// The designs that leave these areas.
    pub designs: Vec<String>,
    pub direction: Ends,
    /// The kernel that was run, if one was.
    pub kernel: Option<String>,
    pub count: u64,
    /// The areas; empty where only their number is known.
    #[serde(default)]
    pub areas: Vec<Bounds>,
    pub repeated: Option<Repeated>,
    pub place: String,
}

/// Areas of one size at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeated {
    /// Start of the first area.
    pub from: u64,
    /// Size of each area.
    pub bytes: u64,
    /// Distance from start to start.
    pub step: u64,
    pub times: u64,
}

impl Leakme4 {
    /// Returns all areas, ascending; none where only their number is known.
    #[must_use]
    pub fn all_areas(&self) -> Vec<Bounds> {
        let mut areas = self.areas.clone();
        if let Some(Repeated { from, bytes, step, times }) = self.repeated {
            areas.extend((0..times).map(|i| [from + i * step, from + i * step + bytes]));
        }
        areas.sort_unstable();
        areas
    }
}

/// Time to create 20,000 threads.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackTime {
    pub design: String,
    /// The kernel that was run.
    pub kernel: String,
    /// System time, in seconds.
    pub seconds: f64,
    /// Exact time, or the time after which the run was given up.
    #[serde(default)]
    pub seconds_are: Completeness,
    pub place: String,
}

/// The region, 1 to 5 from the base, that the last map takes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FiveRegions {
    pub designs: Vec<String>,
    /// The region taken after 4, 2 and 3 were unmapped; `None` if the map lies beyond the fifth.
    pub frees_4_2_3: Option<u64>,
    /// The region taken after 2 was unmapped, two units mapped, and 3 unmapped; `None` if it is not known, or beyond
    /// the fifth.
    pub larger_between: Option<u64>,
    pub place: String,
}

/// Outcome of leakme after 1,000,000 iterations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeakmeOutcome {
    pub designs: Vec<String>,
    pub direction: Ends,
    /// Areas of leakme when run without a library.
    #[serde(rename = "static")]
    pub alone: EndAndPeak,
    /// Areas of leakme when run with libraries at the base of the window.
    pub libs: EndAndPeak,
    /// Areas that one operation visits on average, with libraries.
    pub visits: Option<f64>,
    /// Areas that one operation visits on average, with libraries, under a rule whose search looked at every area in
    /// the simulation.
    pub visits_of_a_walk: Option<f64>,
    /// The largest hole, with libraries.
    pub largest_mib: f64,
    /// Free memory in the window, with libraries, where it was given.
    pub free_mib: Option<f64>,
}

/// Number of areas in a run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndAndPeak {
    /// Areas at the end and at the peak.
    pub areas: [u64; 2],
    /// The iteration that found no place, if one did.
    pub fails_at: Option<u64>,
    /// SHA-256 of the areas, as lines of hexadecimal digits.
    pub sha256: Option<String>,
}

/// The areas that leakme leaves, without a library.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeakmeAreas {
    /// Designs that search upwards.
    pub designs: Vec<String>,
    /// In ascending order.
    pub areas: Vec<Bounds>,
    pub place: String,
}

/// The smallest window in which leakme survives.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survival {
    pub designs: Vec<String>,
    pub direction: Ends,
    pub window_mib: u64,
    /// The window over the live bytes.
    pub ratio: f64,
    #[serde(default = "usual_survival")]
    pub iterations: u64,
}

fn usual_survival() -> u64 {
    100_000
}

/// Outcome of leakme in a 64-bit space after 1,000,000 iterations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leakme64 {
    /// The designs, downwards or from both ends.
    pub designs: Vec<String>,
    /// Areas at the end and at the peak.
    pub areas: [u64; 2],
    /// Free memory in holes between the areas.
    pub holes_mib: f64,
    /// Share of the requests for multiples of 2 MiB that got an aligned place.
    pub aligned_percent: f64,
    /// SHA-256 of the areas, as lines of hexadecimal digits.
    pub sha256: Option<String>,
    pub place: String,
}

/// Outcome of the three random mixes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixes {
    pub designs: Vec<String>,
    pub direction: Ends,
    /// The largest hole of each mix.
    pub largest_mib: [f64; 3],
    /// Areas at the end of each mix.
    pub areas: [u64; 3],
    /// Requests of each mix that found no place.
    #[serde(default)]
    pub failures: [u64; 3],
}

/// Areas that a search visits where areas never merge.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unmergeable {
    pub designs: Vec<String>,
    pub direction: Ends,
    /// Mean and largest number of areas visited, of 1,000.
    pub of_1k: [u64; 2],
    /// Mean and largest number of areas visited, of 10,000.
    pub of_10k: [u64; 2],
    pub place: String,
}

/// Returns the figures around "Avoiding mmap fragmentation".
#[must_use]
pub fn wander_2005() -> Wander2005 {
    const TEXT: &str = include_str!("../../data/figures/wander-2005.toml");
    declared(TEXT)
}

#[cfg(test)]
mod tests {
    use nofrag::mmap::Placement;

    use super::*;

    #[test]
    fn areas_are_as_many_as_counted_and_ratios_are_those_of_the_windows() {
        let figures = wander_2005();
        for row in &figures.leakme4 {
            let areas = row.all_areas();
            assert!(areas.is_empty() || areas.len() as u64 == row.count, "{:?}", row.designs);
            let ascending = areas.windows(2).all(|pair| pair[0][1] < pair[1][0]);
            assert!(ascending && areas.iter().all(|[start, end]| start < end));
        }
        const LIVE_MIB: f64 = 2501.7;
        for row in &figures.survival {
            let ratio = row.window_mib as f64 / LIVE_MIB;
            assert!((ratio - row.ratio).abs() < 0.002, "{:?}: {ratio}", row.designs);
        }
    }

    #[test]
    fn every_design_is_a_preset() {
        let figures = wander_2005();
        let designs = figures.leakme4.iter().flat_map(|row| &row.designs);
        let designs = designs.chain(figures.five_regions.iter().flat_map(|row| &row.designs));
        let designs = designs.chain(figures.leakme.iter().flat_map(|row| &row.designs));
        let designs = designs.chain(figures.leakme_areas.iter().flat_map(|row| &row.designs));
        let designs = designs.chain(figures.survival.iter().flat_map(|row| &row.designs));
        let designs = designs.chain(figures.leakme_64.iter().flat_map(|row| &row.designs));
        let designs = designs.chain(figures.mixes.iter().flat_map(|row| &row.designs));
        let designs = designs.chain(figures.unmergeable.iter().flat_map(|row| &row.designs));
        let designs = designs.chain(figures.stacks.iter().map(|row| &row.design));
        for design in designs.chain(figures.map_lines.iter().map(|row| &row.design)) {
            assert_eq!(Placement::preset(design).unwrap().name, design);
        }
    }
}

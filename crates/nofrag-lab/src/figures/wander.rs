//! The figures around Wander's and Chen's "Avoiding mmap fragmentation".

use serde::Deserialize;

use super::Completeness;
use crate::declared::declared;

/// What was published about placements of mappings, and simulations of their rules.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wander2005 {
    /// Authors, title and date.
    pub document: String,
    /// Published lines of the map of leakme.
    pub map_lines: Vec<MapLines>,
    /// The areas that leakme4 leaves.
    pub leakme4: Vec<Leakme4>,
    /// Times of 20,000 stacks.
    pub stacks: Vec<StackTime>,
    /// Who takes which place in the example of five regions.
    pub five_regions: Vec<FiveRegions>,
    /// What leakme leaves.
    pub leakme: Vec<LeakmeOutcome>,
    /// The areas that leakme leaves, one by one.
    pub leakme_areas: Vec<LeakmeAreas>,
    /// The smallest windows in which leakme survives.
    pub survival: Vec<Survival>,
    /// What leakme leaves in a 64-bit space.
    pub leakme_64: Vec<Leakme64>,
    /// What random mixes leave.
    pub mixes: Vec<Mixes>,
    /// How far searches go where nothing merges.
    pub unmergeable: Vec<Unmergeable>,
}

/// From which end of the window a row's designs search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// From the base upwards.
    Up,
    /// From the top downwards.
    Down,
    /// Each class of requests from an end of its own.
    Both,
}

/// First address and the one above the last.
pub type Bounds = [u64; 2];

/// The lines of a published map.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapLines {
    /// The lab's design.
    pub design: String,
    /// The kernel that was run.
    pub kernel: String,
    /// How many lines.
    pub lines: u64,
    /// It failed after more iterations than these, if it failed.
    pub fails_after: Option<u64>,
    /// Where the figures stand.
    pub place: String,
}

/// What leakme4 leaves between the program and the stack.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leakme4 {
    /// The designs that leave it.
    pub designs: Vec<String>,
    /// From which end.
    pub direction: Ends,
    /// The kernel that was run, if one was.
    pub kernel: Option<String>,
    /// How many areas.
    pub count: u64,
    /// The areas; empty where only their number is known.
    #[serde(default)]
    pub areas: Vec<Bounds>,
    /// More areas, all alike.
    pub repeated: Option<Repeated>,
    /// Where the figures stand.
    pub place: String,
}

/// Areas of one size at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeated {
    /// Start of the first.
    pub from: u64,
    /// Their size.
    pub bytes: u64,
    /// From start to start.
    pub step: u64,
    /// How many.
    pub times: u64,
}

impl Leakme4 {
    /// All areas, ascending; none where only their number is known.
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

/// What it took to create 20,000 threads.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackTime {
    /// The lab's design.
    pub design: String,
    /// The kernel that was run.
    pub kernel: String,
    /// Seconds of system time.
    pub seconds: f64,
    /// Whether it was exactly that.
    #[serde(default)]
    pub seconds_are: Completeness,
    /// Where the figure stands.
    pub place: String,
}

/// Which of the five regions, 1 to 5 from the base, the last map takes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FiveRegions {
    /// The designs.
    pub designs: Vec<String>,
    /// After 4, 2 and 3 were unmapped; none: beyond the fifth.
    pub frees_4_2_3: Option<u64>,
    /// When 2 is unmapped, two units mapped, and 3 unmapped; none: not known, or beyond the fifth.
    pub larger_between: Option<u64>,
    /// Where the figures stand.
    pub place: String,
}

/// What leakme leaves after 1,000,000 iterations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeakmeOutcome {
    /// The designs.
    pub designs: Vec<String>,
    /// From which end.
    pub direction: Ends,
    /// Without a library.
    #[serde(rename = "static")]
    pub alone: EndAndPeak,
    /// With libraries at the base.
    pub libs: EndAndPeak,
    /// Visits of one operation, with libraries.
    pub visits: Option<f64>,
    /// The same for a rule whose search looked at every area in the simulation.
    pub visits_of_a_walk: Option<f64>,
    /// The largest hole, with libraries.
    pub largest_mib: f64,
    /// What is free in the window, with libraries, where it was given.
    pub free_mib: Option<f64>,
    /// Where the figures stand.
    pub place: String,
}

/// Areas of a run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndAndPeak {
    /// At the end and at the peak.
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
    /// The designs, upwards.
    pub designs: Vec<String>,
    /// Ascending.
    pub areas: Vec<Bounds>,
    /// Where the figures stand.
    pub place: String,
}

/// The smallest window in which leakme survives.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survival {
    /// The designs.
    pub designs: Vec<String>,
    /// From which end.
    pub direction: Ends,
    /// The window.
    pub window_mib: u64,
    /// The window over the live bytes.
    pub ratio: f64,
    /// How long it was run.
    #[serde(default = "usual_survival")]
    pub iterations: u64,
    /// Where the figures stand.
    pub place: String,
}

fn usual_survival() -> u64 {
    100_000
}

/// What leakme leaves in a 64-bit space after 1,000,000 iterations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leakme64 {
    /// The designs, downwards or from both ends.
    pub designs: Vec<String>,
    /// Areas at the end and at the peak.
    pub areas: [u64; 2],
    /// Holes between the areas.
    pub holes_mib: f64,
    /// Share of the requests for multiples of 2 MiB that got an aligned place.
    pub aligned_percent: f64,
    /// SHA-256 of the areas, as lines of hexadecimal digits.
    pub sha256: Option<String>,
    /// Where the figures stand.
    pub place: String,
}

/// What the three random mixes leave.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixes {
    /// The designs.
    pub designs: Vec<String>,
    /// From which end.
    pub direction: Ends,
    /// The largest hole of each mix.
    pub largest_mib: [f64; 3],
    /// Areas at the end of each.
    pub areas: [u64; 3],
    /// Requests that found no place.
    #[serde(default)]
    pub failures: [u64; 3],
    /// Where the figures stand.
    pub place: String,
}

/// How far searches go among areas that never merge.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unmergeable {
    /// The designs.
    pub designs: Vec<String>,
    /// From which end.
    pub direction: Ends,
    /// Mean and most of 1,000 areas.
    pub of_1k: [u64; 2],
    /// Mean and most of 10,000 areas.
    pub of_10k: [u64; 2],
    /// Where the figures stand.
    pub place: String,
}

/// The figures around "Avoiding mmap fragmentation".
///
/// # Panics
/// Never in a build that passes its tests: the file is part of the binary.
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

//! The figures around Wander's and Chen's "Avoiding mmap fragmentation".

use serde::Deserialize;

use super::PublishedTable;
use crate::declared::declared;

/// Published figures on placements of mappings, and simulations of their rules.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wander2005 {
    pub document: String,
    /// Published lines of the map of leakme.
    pub map_lines: Vec<MapLines>,
    /// Counts of the programs by design.
    #[serde(rename = "table")]
    pub tables: Vec<PublishedTable>,
    #[serde(rename = "map")]
    pub maps: Vec<PublishedMap>,
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

/// Areas that a program leaves under some designs.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedMap {
    pub program: String,
    /// The designs, by the names that their rows have here.
    pub designs: Vec<String>,
    /// The areas; empty where only their digest is known.
    #[serde(default)]
    pub areas: Vec<Bounds>,
    pub repeated: Option<Repeated>,
    /// SHA-256 of the areas, as lines of hexadecimal digits.
    pub sha256: Option<String>,
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

impl PublishedMap {
    /// Returns all areas, ascending; none where only their digest is known.
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

/// Returns the figures around "Avoiding mmap fragmentation".
#[must_use]
pub fn wander_2005() -> Wander2005 {
    const TEXT: &str = include_str!("../../data/figures/wander-2005.toml");
    declared(TEXT)
}

#[cfg(test)]
mod tests {
    use nofrag::mmap::Placement;

    use super::super::published;
    use super::*;
    use crate::key::Key;

    #[test]
    fn areas_are_as_many_as_counted_and_ratios_are_those_of_the_windows() {
        let figures = wander_2005();
        let counted = published(&figures.tables);
        for map in figures.maps.iter().filter(|map| map.program == "leakme4") {
            let areas = map.all_areas();
            for design in &map.designs {
                let count = counted.count("leakme4", design, Key::count("areas counted"));
                assert_eq!(count, Some(areas.len() as f64), "{design}");
            }
            let ascending = areas.windows(2).all(|pair| pair[0][1] < pair[1][0]);
            assert!(ascending && areas.iter().all(|[start, end]| start < end));
        }
        const LIVE_MIB: f64 = 2501.7;
        let windows = figures.tables.iter().filter(|table| table.program == "survival");
        for (design, row) in windows.flat_map(|table| &table.rows) {
            let ratio = row[0].get() / LIVE_MIB;
            assert!((ratio - row[1].get()).abs() < 0.002, "{design}: {ratio}");
        }
    }

    #[test]
    fn every_design_is_a_preset() {
        let figures = wander_2005();
        let rows = figures.tables.iter().flat_map(|table| table.rows.keys());
        let rows = rows.chain(figures.maps.iter().flat_map(|map| &map.designs));
        for row in rows.chain(figures.map_lines.iter().map(|row| &row.design)) {
            let design = row.strip_suffix(", down").unwrap_or(row);
            assert_eq!(Placement::preset(design).unwrap().name, design);
        }
    }
}

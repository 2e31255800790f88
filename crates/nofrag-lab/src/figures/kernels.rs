//! Figures of stock kernels under the workload of 2018.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::declared::declared;

/// Runs of stock kernels under the workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernels2018 {
    /// The kernels and the machine.
    pub document: String,
    /// Places by kind of rows, where all rows of the kind have the same.
    pub places: BTreeMap<String, String>,
    /// The runs that asked for huge pages by `MADV_HUGEPAGE`.
    #[serde(rename = "run")]
    pub runs: Vec<KernelRun>,
    /// Runs of direct compaction for a huge page, by the share of pageblocks that were marked to be skipped when they
    /// began.
    pub marked: Vec<MarkedRuns>,
}

/// Runs of direct compaction over a zone in which a share of the pageblocks was marked to be skipped.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MarkedRuns {
    pub kernel: String,
    pub place: String,
    /// Lower bound of the share of marked pageblocks, in percent; exclusive.
    pub least: u64,
    /// Upper bound of the share of marked pageblocks, in percent; inclusive.
    pub most: u64,
    pub runs: u64,
    /// Number of runs that made a free block for the huge page.
    pub gave: u64,
}

/// One run of one kernel.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelRun {
    pub id: String,
    pub kernel: String,
    /// The lab's design that stands for this kernel.
    pub design: String,
    /// The kernel's lists of pages by age: `classic` or `multi-generational`.
    pub lru: String,
    /// Units that got a huge page, in percent.
    pub percent_huge: f64,
    /// Number of runs of direct compaction.
    pub compactions: u64,
    /// Number of direct compactions that made a free block.
    pub compactions_succeeded: u64,
    /// Pages that callers reclaimed themselves.
    pub reclaimed_direct: u64,
    /// External fragmentation events below order 9, where they were traced.
    pub events: Option<u64>,
}

/// Returns the runs of stock kernels.
#[must_use]
pub fn kernels_2018() -> Kernels2018 {
    const TEXT: &str = include_str!("../../data/figures/kernels-2018.toml");
    declared(TEXT)
}

#[cfg(test)]
mod tests {
    use nofrag::page::FragmentationPolicy;

    use super::*;

    #[test]
    fn the_file_reads_and_every_run_has_a_design() {
        let Kernels2018 { runs, marked, .. } = kernels_2018();
        assert_eq!(marked.iter().map(|part| (part.runs, part.gave)).max(), Some((75, 10)));
        assert_eq!(runs.len(), 7);
        for run in runs {
            let preset = FragmentationPolicy::preset(&run.design).unwrap();
            assert_eq!(preset.name, run.design);
            assert!(run.compactions_succeeded <= run.compactions, "{}", run.id);
            assert!((0.0..=100.0).contains(&run.percent_huge), "{}", run.id);
        }
    }
}

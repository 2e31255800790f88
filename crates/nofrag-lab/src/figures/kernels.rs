//! Figures of stock kernels under the workload of 2018.

use serde::Deserialize;

use super::PublishedTable;
use crate::declared::declared;

/// Runs of stock kernels under the workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernels2018 {
    /// The kernels and the machine.
    pub document: String,
    /// The runs that asked for huge pages by `MADV_HUGEPAGE`, by the design that stands for the kernel.
    #[serde(rename = "table")]
    pub tables: Vec<PublishedTable>,
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
        let Kernels2018 { tables, marked, .. } = kernels_2018();
        assert_eq!(marked.iter().map(|part| (part.runs, part.gave)).max(), Some((75, 10)));
        let [runs, events] = &tables[..] else { panic!("counts and events") };
        assert_eq!((runs.rows.len(), events.rows.len()), (7, 6));
        for (run, figures) in &runs.rows {
            let design = run.split(", ").next().unwrap();
            assert_eq!(FragmentationPolicy::preset(design).unwrap().name, design);
            let [percent_huge, compactions, gave, _] = figures[..] else { panic!("{run}") };
            assert!(gave.get() <= compactions.get(), "{run}");
            assert!((0.0..=100.0).contains(&percent_huge.get()), "{run}");
        }
    }
}

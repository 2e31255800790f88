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
    /// The runs that asked for huge pages by `MADV_HUGEPAGE`, by the design that stands for the kernel; and runs of
    /// direct compaction for a huge page, by the share of pageblocks that were marked to be skipped when they began.
    #[serde(rename = "table")]
    pub tables: Vec<PublishedTable>,
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
        let Kernels2018 { tables, .. } = kernels_2018();
        let [runs, events, marked] = &tables[..] else { panic!("counts, events and marks") };
        let most = marked.figures().map(|(_, _, figure)| figure.get()).fold(0.0, f64::max);
        assert_eq!(most, 75.0);
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

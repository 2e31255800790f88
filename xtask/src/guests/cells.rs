//! The measurements: kernels under settings, with the number of repeats and the order.

/// Settings of a guest. [`Settings::CENTRE`] with one factor changed is a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) memory_mib: u64,
    pub(super) nodes: u64,
    /// True if the program advises huge pages.
    pub(super) madvise: bool,
    /// transparent_hugepage/defrag
    pub(super) thp_defrag: &'static str,
    /// vm.watermark_boost_factor
    pub(super) boost: u32,
    /// vm.defrag_mode, of 7.2; as the kernel has it if `None`.
    pub(super) defrag_mode: Option<u32>,
    /// lru_gen/enabled, of 6.1 and later; as the kernel has it if `None`.
    pub(super) lru_gen: Option<u32>,
}

impl Settings {
    const CENTRE: Settings = Settings {
        memory_mib: 1024,
        nodes: 1,
        madvise: true,
        thp_defrag: "madvise",
        boost: 15_000,
        defrag_mode: None,
        lru_gen: None,
    };
}

/// The factors by name. A program that advises gets the same from defrag=always as from defrag=madvise (the flags of
/// the fault are equal), so `defrag-always` is for one that does not.
const FACTORS: [(&str, Settings); 8] = [
    ("centre", Settings::CENTRE),
    ("default", Settings { madvise: false, ..Settings::CENTRE }),
    ("defrag-always", Settings { madvise: false, thp_defrag: "always", ..Settings::CENTRE }),
    ("boost-0", Settings { boost: 0, ..Settings::CENTRE }),
    ("defrag-mode", Settings { defrag_mode: Some(1), ..Settings::CENTRE }),
    ("classic-lru", Settings { lru_gen: Some(0), ..Settings::CENTRE }),
    ("two-nodes", Settings { nodes: 2, ..Settings::CENTRE }),
    ("4-gib", Settings { memory_mib: 4096, ..Settings::CENTRE }),
];

/// One guest to run: a kernel under settings, and which repeat it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) kernel: &'static str,
    pub(super) factor: &'static str,
    pub(super) settings: Settings,
    /// Number of the repeat, counted from one.
    pub(super) repeat: u32,
}

/// Returns every run in the order of its worth: the centre of each kernel; then round after round, so that what has
/// come when the queue is stopped has each factor; the pairs of 5.10 that boosting is judged by; the large guests.
pub(super) fn plan() -> Vec<Run> {
    let mut runs = Vec::new();
    for kernel in ["6.1", "7.2", "6.12", "5.10"] {
        runs.extend((1..=3).map(|repeat| run(kernel, "centre", repeat)));
    }
    for repeat in 1..=3 {
        for (factor, _) in FACTORS {
            for kernel in kernels_of(factor) {
                runs.push(run(kernel, factor, repeat));
            }
        }
    }
    for repeat in 4..=10 {
        runs.extend(["boost-0", "centre"].map(|factor| run("5.10", factor, repeat)));
    }
    for repeat in 1..=3 {
        runs.extend(["6.1", "7.2", "6.12"].map(|kernel| run(kernel, "4-gib", repeat)));
    }
    runs
}

/// Returns the kernels that have a factor, of those that are neither the centre nor large.
fn kernels_of(factor: &str) -> &'static [&'static str] {
    match factor {
        "centre" | "4-gib" => &[],
        "defrag-mode" => &["7.2"],
        "classic-lru" => &["6.12", "7.2"],
        _ => &["6.1", "7.2", "6.12", "5.10"],
    }
}

fn run(kernel: &'static str, factor: &'static str, repeat: u32) -> Run {
    let (_, settings) =
        FACTORS.into_iter().find(|(name, _)| *name == factor).expect("a factor of the table");
    Run { kernel, factor, settings, repeat }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::emulator::{Run as _, chosen};

    #[test]
    fn no_run_is_planned_twice_and_the_centres_come_first() {
        let runs = plan();
        let names: BTreeSet<String> = runs.iter().map(Run::name).collect();
        assert_eq!(names.len(), runs.len());
        assert_eq!(runs[0].name(), "6.1-centre-r1");
        assert!(runs[..12].iter().all(|run| run.factor == "centre"));
        for cell in ["5.10-boost-0", "5.10-centre"] {
            assert_eq!(runs.iter().filter(|run| run.cell() == cell).count(), 10, "{cell}");
        }
    }

    #[test]
    fn a_name_chooses_a_cell_or_a_run() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let runs = chosen("guests", &plan(), &names);
            runs.map(|runs| runs.iter().map(Run::name).collect::<Vec<_>>())
        };
        let cell = ["7.2-two-nodes-r1", "7.2-two-nodes-r2", "7.2-two-nodes-r3"];
        assert_eq!(names(&["7.2-two-nodes"]).unwrap(), cell);
        assert_eq!(names(&["6.1-centre-r2"]).unwrap(), ["6.1-centre-r2"]);
        assert!(names(&["6.1-defrag-mode"]).is_err());
    }
}

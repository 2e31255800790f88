//! The kernel's counters of the page allocator's troubles, from `/proc/vmstat`.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Sub;

use serde::{Deserialize, Serialize};

/// The counters that are kept, with their meanings. A name that ends in `*` is the sum of all that begin so: the kernel
/// counts these by zone.
pub const COUNTERS: &[(&str, &str)] = &[
    ("thp_fault_alloc", "faults that got a huge page"),
    ("thp_fault_fallback", "faults that wanted one and got small pages"),
    ("compact_stall", "callers that compacted memory themselves"),
    ("compact_success", "of them, those that got what they wanted"),
    ("compact_fail", "of them, those that did not"),
    ("compact_daemon_wake", "wakes of kcompactd"),
    ("compact_migrate_scanned", "pages scanned for what can be moved"),
    ("compact_free_scanned", "pages scanned for where to move it"),
    ("pgmigrate_success", "pages moved"),
    ("pgmigrate_fail", "pages that could not be moved"),
    ("allocstall_*", "callers that reclaimed pages themselves"),
    ("pgsteal_kswapd", "pages reclaimed by kswapd"),
    ("pgsteal_direct", "pages reclaimed by callers"),
    ("kswapd_low_wmark_hit_quickly", "short sleeps of kswapd, low watermark"),
    ("kswapd_high_wmark_hit_quickly", "short sleeps of kswapd, high watermark"),
    ("pgalloc_*", "pages handed out"),
];

/// The values of [`COUNTERS`] that this kernel has. They count the whole machine, all its processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Returns the present values; none where `/proc/vmstat` cannot be read.
    #[must_use]
    pub fn now() -> Counters {
        Counters::parse(&fs::read_to_string("/proc/vmstat").unwrap_or_default())
    }

    fn parse(vmstat: &str) -> Counters {
        let (vmstat, _) = nofrag_host::snapshot::vmstat(vmstat);
        let known = COUNTERS.iter().filter_map(|(name, _)| Some((name, vmstat.total(name)?)));
        Counters(known.map(|(name, value)| ((*name).to_owned(), value)).collect())
    }

    /// Returns the value of a counter; `None` if this kernel does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }
}

/// The counts between two moments; 0 where a counter fell.
impl Sub for &Counters {
    type Output = Counters;

    fn sub(self, earlier: &Counters) -> Counters {
        let since = |(name, value): (&String, &u64)| {
            let before = earlier.get(name).unwrap_or(0);
            (name.clone(), value.saturating_sub(before))
        };
        Counters(self.0.iter().map(since).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_summed_and_names_do_not_mix() {
        let before = Counters::parse("allocstall_dma 1\nallocstall_normal 2\nthp_fault_alloc 5\n");
        let text = "allocstall_dma 1\nallocstall_normal 9\nthp_fault_alloc 7\n\
                    thp_fault_alloc_other 99\npgsteal_kswapd 4\nbroken x\n";
        let after = Counters::parse(text);
        let counted = &after - &before;
        let seen = ["allocstall_*", "thp_fault_alloc", "pgsteal_kswapd", "compact_stall"];
        assert_eq!(seen.map(|name| counted.get(name)), [Some(7), Some(2), Some(4), None]);
    }
}

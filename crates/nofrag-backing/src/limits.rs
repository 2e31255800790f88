//! Limits that the kernel sets to a process.

use std::fs;

/// `vm.max_map_count` where it cannot be read.
const USUAL_LIMIT: u64 = 65_530;

/// Returns the number of areas that the kernel allows a process (`vm.max_map_count`).
pub(crate) fn max_map_count() -> u64 {
    let text = fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL_LIMIT)
}

//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

/// Suffix to the name of a design that searches from the top.
pub(super) const DOWNWARDS: &str = ", down";

pub(super) const AREAS: &str = "areas at end";
pub(super) const PEAK_AREAS: &str = "areas at peak";
/// Count that is the number of that iteration; zero if the program never fails.
pub(super) const FAILS_AT: &str = "iteration that found no place";
pub(super) const FAILURES: &str = "requests that found no place";
pub(super) const MAPS: &str = "maps";
pub(super) const FREE_MIB: &str = "free MiB of the window at end";
pub(super) const HOLES_MIB: &str = "MiB of holes between areas";
pub(super) const LARGEST_MIB: &str = "MiB of the largest hole of the window";
pub(super) const MULTIPLES: &str = "requests for multiples of 2 MiB";
pub(super) const ALIGNED: &str = "of them aligned to 2 MiB";
pub(super) const VISITS: &str = "visits of areas per map";
pub(super) const VISITS_IN_ALL: &str = "visits of areas";
pub(super) const MOST_VISITS: &str = "most visits of one map";
pub(super) const STEPS: &str = "steps in the index per map";
pub(super) const MOST_STEPS: &str = "most steps of one map";

/// Count that is the number of the region taken; zero for a place beyond the five.
pub(super) const AFTER_4_2_3: &str = "region after frees of 4, 2, 3";
pub(super) const LARGER_BETWEEN: &str = "region after a larger request";

/// Areas between the program and the stack, as the document counted.
pub(super) const COUNTED: &str = "areas counted";

pub(super) const WINDOW_MIB: &str = "smallest window in MiB";
pub(super) const LONG_WINDOW_MIB: &str = "smallest window in MiB, twice as long";

/// Series: the areas at the end, in bytes, and the occupancy of the window after several numbers of iterations, row by
/// row.
pub(super) const STARTS: &str = "area starts";
pub(super) const ENDS: &str = "area ends";
pub(super) const OCCUPANCY: &str = "occupancy";
pub(super) const OCCUPANCY_AT: &str = "iterations of the rows of occupancy";

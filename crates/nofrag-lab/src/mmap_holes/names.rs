//! Names of units and counts, as this scenario's JSON has them, that more than one place uses.

use crate::key::Key;

/// Suffix to the name of a design that searches from the top.
pub(super) const DOWNWARDS: &str = ", down";

pub(super) const AREAS: Key = Key::count("areas at end");
pub(super) const PEAK_AREAS: Key = Key::count("areas at peak");
/// Count that is the number of that iteration; zero if the program never fails.
pub(super) const FAILS_AT: Key = Key::count("iteration that found no place");
pub(super) const FAILURES: Key = Key::count("requests that found no place");
pub(super) const MAPS: Key = Key::count("maps");
pub(super) const FREE_MIB: Key = Key::number("free MiB of the window at end");
pub(super) const HOLES_MIB: Key = Key::number("MiB of holes between areas");
pub(super) const LARGEST_MIB: Key = Key::number("MiB of the largest hole of the window");
pub(super) const MULTIPLES: Key = Key::count("requests for multiples of 2 MiB");
pub(super) const ALIGNED: Key = Key::count("of them aligned to 2 MiB");
pub(super) const VISITS: Key = Key::number("visits of areas per map");
pub(super) const VISITS_IN_ALL: Key = Key::count("visits of areas");
pub(super) const MOST_VISITS: Key = Key::count("most visits of one map");
pub(super) const STEPS: Key = Key::number("steps in the index per map");
pub(super) const MOST_STEPS: Key = Key::count("most steps of one map");

/// Count that is the number of the region taken; zero for a place beyond the five.
pub(super) const AFTER_4_2_3: Key = Key::count("region after frees of 4, 2, 3");
pub(super) const LARGER_BETWEEN: Key = Key::count("region after a larger request");

/// Areas between the program and the stack, as the document counted.
pub(super) const COUNTED: Key = Key::count("areas counted");

pub(super) const WINDOW_MIB: Key = Key::count("smallest window in MiB");
pub(super) const LONG_WINDOW_MIB: Key = Key::count("smallest window in MiB, twice as long");

/// Only published: visits where a search looked at every area; the share of [`MULTIPLES`] that were [`ALIGNED`]; time
/// of the whole program, and the time after which it was given up.
pub(super) const VISITS_OF_A_WALK: Key = Key::number("visits of areas per map, by a walk");
pub(super) const ALIGNED_PERCENT: Key = Key::number("percent of them aligned to 2 MiB");
pub(super) const SECONDS: Key = Key::number("seconds");
pub(super) const SECONDS_AT_LEAST: Key = Key::number("seconds, given up");

/// Series: the areas at the end, in bytes, and the occupancy of the window after several numbers of iterations, row by
/// row.
pub(super) const STARTS: Key = Key::count("area starts");
pub(super) const ENDS: Key = Key::count("area ends");
pub(super) const OCCUPANCY: Key = Key::number("occupancy");
pub(super) const OCCUPANCY_AT: Key = Key::count("iterations of the rows of occupancy");

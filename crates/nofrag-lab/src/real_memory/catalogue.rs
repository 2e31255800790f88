//! The programs of real memory.

use super::strategies::Load;
use crate::scenario::spec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// Random runs that come and go, in every way of handing them out.
    Strategies(Load),
    /// The number of mappings that a process may have.
    MapLimit,
    /// Very many runs of an arena.
    Areas,
    /// Runs of 2 MiB after churn.
    HugeRuns,
    Pressure,
    /// Runs that move under a writer.
    Moves,
    /// Single statements about the kernel.
    Oracles,
}

/// A program and its description in lists.
pub(super) type Spec = crate::scenario::Spec<Program>;

pub(super) const TOUCH_FIRST: &str = "touch-first";
pub(super) const TOUCH_FIRST_2: &str = "touch-first-2";
pub(super) const TOUCH_ALL: &str = "touch-all";
pub(super) const MAP_LIMIT: &str = "map-limit";
pub(super) const AREAS: &str = "areas";
pub(super) const HUGE_RUNS: &str = "huge-runs";
pub(super) const PRESSURE: &str = "pressure";
pub(super) const MOVES: &str = "moves";
pub(super) const ORACLES: &str = "oracles";

/// The programs, in the order of `--mask`.
pub(super) const SPECS: [Spec; 9] = [
    spec(
        1,
        Program::Strategies(Load::First),
        TOUCH_FIRST,
        "replace one of 64 runs of 1 to 64 pages, touch one page",
    ),
    spec(2, Program::Strategies(Load::FirstByTwo), TOUCH_FIRST_2, "likewise, two threads"),
    spec(4, Program::Strategies(Load::All), TOUCH_ALL, "likewise, one thread, touch all pages"),
    spec(8, Program::MapLimit, MAP_LIMIT, "map isolated pages until the kernel refuses"),
    spec(16, Program::Moves, MOVES, "move 1 to 512 pages while a thread writes to them"),
    spec(32, Program::Oracles, ORACLES, "single statements about the kernel"),
    spec(64, Program::Areas, AREAS, "100,000 random runs of an arena: areas of the process"),
    spec(128, Program::Pressure, PRESSURE, "time each allocation, alone and beside a purge"),
    spec(
        256,
        Program::HugeRuns,
        HUGE_RUNS,
        "churn at 80 % live, compact under a user, take 2 MiB runs",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_stand_at_their_bits_and_fit_a_listing() {
        for (at, Spec { info, .. }) in SPECS.iter().enumerate() {
            assert_eq!(info.bit, 1 << at);
            assert!(info.body.len() < 65 && info.name.len() <= 19, "{}", info.name);
        }
    }
}

//! The programs of real memory.

use super::strategies::Load;

/// A program, by its name in `scenario.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub(super) enum Program {
    TouchFirst,
    #[strum(serialize = "touch-first-2")]
    TouchFirst2,
    TouchAll,
    /// The number of mappings that a process may have.
    MapLimit,
    /// Runs that move under a writer.
    Moves,
    /// Single statements about the kernel.
    Oracles,
    /// Very many runs of an arena.
    Areas,
    Pressure,
    /// Runs of 2 MiB after churn.
    HugeRuns,
}

/// Random runs that come and go, in every way of handing them out.
pub(super) const LOADS: [Program; 3] =
    [Program::TouchFirst, Program::TouchFirst2, Program::TouchAll];

impl Program {
    /// Returns the use of the runs, if the program is among [`LOADS`].
    pub(super) fn load(self) -> Option<Load> {
        match self {
            Program::TouchFirst => Some(Load::First),
            Program::TouchFirst2 => Some(Load::FirstByTwo),
            Program::TouchAll => Some(Load::All),
            _ => None,
        }
    }
}

//! The programs and their settings.

use std::sync::LazyLock;

use nofrag::mmap::Direction;
use serde::Deserialize;

use super::SCENARIO;
use super::trace::Style;
use super::twin::Setting;
use crate::apparatus::probe::Width;

/// The work of a program in `scenario.toml`: the published trace, then ours in every layout, then those of 2002 and
/// 2005.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Work {
    pub(super) program: Program,
}

pub(super) type Spec = crate::scenario::Spec<Work>;

pub(super) static SPECS: LazyLock<Vec<Spec>> = LazyLock::new(|| SCENARIO.specs());

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Program {
    /// Random operations on this number of slots.
    Trace(Setting, Style, usize),
    /// Random operations in a process that has nearly as many areas as it may have: lists of 65,530 areas are
    /// compared, which is not for a run of seconds.
    Limit(Setting),
    /// The program of 2005 that ran out of address space.
    Leakme(Setting),
    /// Live threads, each on a stack with a guard of this number of bytes.
    Threads { guard: usize },
    /// Live threads on guarded stacks in one reservation.
    Placed,
}

/// Settings by their names in `scenario.toml`: 64 bits in the usual and the legacy layout, and 32 bits in both.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Layout {
    Down,
    Up,
    Compat,
    CompatUp,
}

pub(super) const COMPAT_UP: Setting = Setting { width: Width::Bits32, direction: Direction::Up };

impl From<Layout> for Setting {
    fn from(layout: Layout) -> Setting {
        match layout {
            Layout::Down => Setting { width: Width::Bits64, direction: Direction::Down },
            Layout::Up => Setting { width: Width::Bits64, direction: Direction::Up },
            Layout::Compat => Setting { width: Width::Bits32, direction: Direction::Down },
            Layout::CompatUp => COMPAT_UP,
        }
    }
}

//! The programs and their settings.

use crate::apparatus::probe::Width;
use nofrag::mmap::Direction;

use super::trace::Style;
use super::twin::Setting;
use crate::scenario::spec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// Random operations on this number of slots.
    Trace { setting: Setting, style: Style, slots: usize },
    /// Random operations in a process that has nearly as many areas as it may have.
    Limit(Setting),
    /// The program of 2005 that ran out of address space.
    LeakMe(Setting),
    /// Live threads, each on a stack with a guard of this number of bytes.
    Threads { guard: usize },
    /// Live threads on guarded stacks in one reservation.
    Placed,
}

const DOWN: Setting = Setting { width: Width::Bits64, direction: Direction::Down };
const UP: Setting = Setting { width: Width::Bits64, direction: Direction::Up };
const COMPAT: Setting = Setting { width: Width::Bits32, direction: Direction::Down };
pub(super) const COMPAT_UP: Setting = Setting { width: Width::Bits32, direction: Direction::Up };

/// A program and its description in lists.
pub(super) type Spec = crate::scenario::Spec<Program>;

const fn trace(setting: Setting, style: Style, slots: usize) -> Program {
    Program::Trace { setting, style, slots }
}

/// Program that compares lists of 65,530 areas: not for a run of seconds.
pub(super) const LIMIT: &str = "limit";
pub(super) const THREADS: &str = "threads";
pub(super) const BARE_THREADS: &str = "threads_bare";
pub(super) const PLACED_THREADS: &str = "threads_placed";

/// The programs: the published trace, then ours in every layout, then those of 2002 and 2005.
pub(super) const SPECS: [Spec; 15] = [
    spec(1, trace(DOWN, Style::Plain, 500), "plain_500", "replace one of 500 mappings"),
    spec(2, trace(DOWN, Style::Plain, 5000), "plain_5000", "replace one of 5,000 mappings"),
    spec(4, trace(DOWN, Style::Mixed, 500), "mixed_500", "and cut, cover, protect, hint"),
    spec(8, trace(DOWN, Style::Mixed, 5000), "mixed_5000", "likewise, 5,000 mappings"),
    spec(16, trace(UP, Style::Mixed, 500), "legacy_500", "likewise, legacy layout: upwards"),
    spec(32, trace(UP, Style::Mixed, 5000), "legacy_5000", "likewise, 5,000 mappings"),
    spec(64, trace(COMPAT, Style::Mixed, 500), "compat_500", "mixed_500, a 32-bit process"),
    spec(128, trace(COMPAT_UP, Style::Mixed, 500), "compat_legacy_500", "likewise, legacy layout"),
    spec(256, trace(COMPAT, Style::Mixed, 2000), "compat_full", "likewise, more than has room"),
    spec(512, Program::LeakMe(DOWN), "leakme", "leakme of 2005, 64 bits"),
    spec(1024, Program::LeakMe(COMPAT_UP), "leakme_compat", "likewise, 32 bits, legacy layout"),
    spec(2048, Program::Limit(DOWN), LIMIT, "mixed_500 with as many areas as there may be"),
    spec(4096, Program::Threads { guard: 4096 }, THREADS, "live threads: areas of the process"),
    spec(8192, Program::Threads { guard: 0 }, BARE_THREADS, "likewise, without guards"),
    spec(16384, Program::Placed, PLACED_THREADS, "likewise, placed in one area, with guards"),
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

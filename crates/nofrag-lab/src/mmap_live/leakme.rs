//! The program of osdl bug 4520 (docs/sources/mmap.md#leakme and mmap.md#oracle-7) against the running kernel.
//!
//! 600 slots of eight lengths; slot `i mod 600` is mapped and slot `i + 60` unmapped, so that each mapping lives 540
//! turns and nine tenths of the slots are live. In 2.6.11 it ran out of 32-bit space after some 50,000 turns.

use std::fmt::Write as _;

use crate::apparatus::probe::{Kind, MapAt};
use nofrag::mmap::{Direction, Protection};

use super::twin::{Setting, Trouble, Twin};
use crate::sha256::sha256;

/// Turns of the published run.
pub(super) const TURNS: u64 = 1_000_000;

const SLOTS: u64 = 600;
const AHEAD: u64 = 60;

/// The areas at the end, as start and address behind the last byte, and the largest number of areas at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) areas: Vec<(u64, u64)>,
    pub(super) most: usize,
}

/// Returns the bytes of a mapping of this slot: 1 to 7 MiB, or 9.5 million bytes in whole pages.
fn length(slot: u64) -> u64 {
    match slot % 8 {
        0 => 2320 << 12,
        mebibytes => mebibytes << 20,
    }
}

/// Runs leakme for `turns` turns in the kernel and in the model, and compares every outcome.
pub(super) fn run(twin: &mut Twin, turns: u64) -> Result<Left, Trouble> {
    let mut live = vec![None; SLOTS as usize];
    let own = twin.model().area_count();
    let mut most = 0;
    for turn in 0..turns {
        let old = (turn + AHEAD) % SLOTS;
        if let Some(start) = live[old as usize].take() {
            twin.unmap(start, length(old))?;
        }
        let new = turn % SLOTS;
        live[new as usize] =
            twin.map(MapAt::Anywhere, Kind::Plain, length(new), Protection::NONE)?;
        if live[new as usize].is_none() {
            return Err(Trouble::Broken(format!("no place in turn {turn}")));
        }
        most = most.max(twin.model().area_count() - own);
    }
    let areas = twin.kernel_areas()?;
    let areas = areas.iter().map(|area| (area.start, area.end)).collect();
    Ok(Left { areas, most })
}

/// Address at which mappings begin in a 64-bit process that has only the kernel's own areas.
pub(super) const TOP: u64 = 0x7fff_f7ff_7000;

/// The published SHA-256 of the list of areas that leakme leaves, from [`TOP`] downwards with multiples of 2 MiB
/// aligned.
pub(super) const HASH: &str = "1f71ce060926fc95359633673da2aaf72cbbce7ab9388d3bfb8e23549ff8fc49";

/// Returns the SHA-256 of a list of areas: a line `start-end` for each, in hexadecimal.
pub(super) fn hash(areas: &[(u64, u64)]) -> String {
    let mut lines = String::new();
    for (start, end) in areas {
        writeln!(lines, "{start:x}-{end:x}").expect("writing to a string does not fail");
    }
    sha256(lines.as_bytes())
}

/// The published list of areas that leakme leaves in a 32-bit process that maps upwards from `COMPAT_BASE`.
pub(super) const COMPAT_LIST: [(u64, u64); 6] = [
    (0x5555_5000, 0x57e7_5000),
    (0x5825_5000, 0xea93_5000),
    (0xeac2_5000, 0xed92_5000),
    (0xed95_5000, 0xef67_5000),
    (0xef98_5000, 0xf118_5000),
    (0xf1c6_5000, 0xf337_5000),
];

/// The lowest address of the published 32-bit list.
const COMPAT_BASE: u64 = 0x5555_5000;

/// Returns `COMPAT_LIST` for a process in which an area of the kernel lies at the base: shifted so that it begins at
/// `base`.
pub(super) fn shifted_list(base: u64) -> Vec<(u64, u64)> {
    let shift = base - COMPAT_BASE;
    COMPAT_LIST.iter().map(|(start, end)| (start + shift, end + shift)).collect()
}

/// Returns the place of the first mapping if only the areas of the start are in the way: the end of the areas that
/// touch the base.
pub(super) fn first_edge(twin: &Twin, setting: Setting) -> u64 {
    let layout = twin.model().layout();
    let areas: Vec<(u64, u64)> =
        twin.model().areas().map(|area| (area.start.0, area.end().0)).collect();
    let edge = match setting.direction {
        Direction::Down => areas
            .iter()
            .rev()
            .fold(layout.top.0, |edge, &(start, end)| if end == edge { start } else { edge }),
        Direction::Up => areas
            .iter()
            .fold(layout.base.0, |edge, &(start, end)| if start == edge { end } else { edge }),
    };
    edge << 12
}

//! The smallest window in which leakme survives (docs/sources/mmap.md#survival).
//!
//! A placement that survives in some window need not survive in a larger one, so that the smallest is found by trying
//! the windows of a grid from below. Where it was published, a default run tries that window and the one below it;
//! `--full` tries all of them.

use nofrag::mmap::{Layout, Placement};
use nofrag::ranges::Span;

use super::catalogue::End;
use super::process::{Failure, MIB, PAGE, Process};
use super::workloads::leakme;

/// The windows that are tried, in MiB: every four, and above a bound every 24.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    first_mib: u64,
    coarse_above_mib: u64,
    /// Number of iterations that leakme must survive.
    pub(super) iterations: u64,
}

impl Grid {
    pub(super) const USUAL: Grid =
        Grid { first_mib: 2502, coarse_above_mib: 2700, iterations: 100_000 };
    pub(super) const LONG: Grid =
        Grid { first_mib: 2500, coarse_above_mib: Grid::LAST_MIB, iterations: 200_000 };

    /// The largest window that is tried, in MiB.
    const LAST_MIB: u64 = 3100;

    /// Returns the same grid with no more iterations than these.
    pub(super) fn at_most(self, iterations: u64) -> Grid {
        Grid { iterations: self.iterations.min(iterations), ..self }
    }

    fn step(self, window_mib: u64) -> u64 {
        if window_mib <= self.coarse_above_mib { 4 } else { 24 }
    }

    fn windows(self) -> impl Iterator<Item = u64> {
        let next = move |mib: &u64| Some(mib + self.step(*mib));
        let all = std::iter::successors(Some(self.first_mib), next);
        all.take_while(|mib| *mib <= Grid::LAST_MIB)
    }
}

/// Thoroughness of the search for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// Every window of the grid, from below.
    WholeGrid,
    /// The window of this many MiB, and the one below it; the whole grid unless leakme survives in this one and fails
    /// below.
    Around(u64),
}

/// Returns the smallest window of the grid in which leakme survives under this placement; `None` if it survives in
/// none.
pub(super) fn smallest_window(
    placement: Placement,
    end: End,
    grid: Grid,
    search: Search,
) -> Result<Option<u64>, Failure> {
    let survives = |mib: u64| survives(placement, end, mib, grid.iterations);
    if let Search::Around(expected) = search {
        let below = grid.windows().take_while(|mib| *mib < expected).last();
        let fails_below = below.map_or(Ok(true), |mib| survives(mib).map(|survived| !survived))?;
        if fails_below && survives(expected)? {
            return Ok(Some(expected));
        }
    }
    for mib in grid.windows() {
        if survives(mib)? {
            return Ok(Some(mib));
        }
    }
    Ok(None)
}

/// Shift of every window to above 4 GiB, so that the rules of 64 bits hold; a multiple of every alignment.
const ABOVE: u64 = 1 << 40;

/// Returns the pages of a window of `mib` MiB: it begins, or for searches downwards ends, where it did in the
/// simulations, shifted by `ABOVE`.
pub(super) fn window(end: End, mib: u64) -> Span {
    let pages = mib * MIB;
    let start = match end {
        End::Up | End::Both => (ABOVE + 0x4000_0000) / PAGE,
        End::Down => (ABOVE + 0xfffd_e000) / PAGE - pages,
    };
    Span::sized(start, pages).expect("a window lies in the space")
}

fn survives(placement: Placement, end: End, mib: u64, iterations: u64) -> Result<bool, Failure> {
    let window = window(end, mib);
    let layout = Layout::window(window, end.direction());
    let mut process = Process::new(layout, placement, window, end);
    Ok(leakme(&mut process, iterations, |_, _| {})?.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grids_are_those_of_the_simulations() {
        let usual: Vec<u64> = Grid::USUAL.windows().collect();
        for published in [2518, 2522, 2534, 2558, 2566, 2574, 2726, 2750, 2798, 2894] {
            assert!(usual.contains(&published), "{published} is not in {usual:?}");
        }
        for published in [2528, 2556, 2784] {
            assert!(Grid::LONG.windows().any(|mib| mib == published), "{published}");
        }
    }
}

//! The number of kernel areas that an arena takes for very many runs.

use nofrag_backing::arena::{Arena, Budget, Config, OwnerId, Owners, Purge};

use crate::random::Random;
use crate::usage::max_map_count;

const PAGE: u64 = 4096;

/// Blocks, areas and mappings of an arena with many runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Areas {
    pub(super) runs: u64,
    /// Blocks of 4 MiB that hold them.
    pub(super) blocks: u64,
    /// Areas of the process before the run, and below, after it.
    pub(super) before: u64,
    pub(super) after: u64,
    /// Mappings that the arena reports, and below, their limit.
    pub(super) mappings: u64,
    pub(super) budget: u64,
}

/// Number of live runs that the library must hold without an area for each.
pub(super) const RUNS: usize = 100_000;

/// Largest run. Half of it is asked for on average, and half as much again is room.
const MOST_PAGES: u64 = 64;

/// Lets an arena hand out very many runs, half of which are replaced by others of another size. Only addresses are
/// taken: no page is touched.
///
/// # Errors
/// The arena's error, in words.
pub(super) fn of_an_arena(seed: u64) -> Result<Areas, String> {
    let bytes = RUNS as u64 * MOST_PAGES * PAGE;
    // Half as many mappings as a process may have: the backend would allow as many to a process that has mappings.
    let budget = max_map_count() / 2;
    let owners = Owners::Count(1);
    let config =
        Config { owners, purge: Purge::Manual, max_mappings: Some(budget), ..Config::default() };
    let before = areas()?;
    let arena = Arena::reserve(bytes, config).map_err(|error| error.to_string())?;
    let mut random = Random::new(seed, 7);
    let mut take = |arena: &Arena| {
        let pages = random.between(1, MOST_PAGES);
        let run = arena.alloc(OwnerId(0), pages, 1).map_err(|error| error.to_string())?;
        Ok::<_, String>((run, random.index(RUNS)))
    };
    let mut runs = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        runs.push(take(&arena)?.0);
    }
    for _ in 0..RUNS / 2 {
        let (run, replaced) = take(&arena)?;
        let replaced = std::mem::replace(&mut runs[replaced], run);
        arena.free(replaced).map_err(|error| error.to_string())?;
    }
    arena.purge(Budget::ALL);
    let stats = arena.stats();
    let blocks = stats.blocks.total - stats.blocks.clean;
    let (after, mappings) = (areas()?, stats.mappings);
    Ok(Areas { runs: runs.len() as u64, blocks, before, after, mappings, budget })
}

/// Returns the number of lines of this process's list of areas.
fn areas() -> Result<u64, String> {
    let text = std::fs::read("/proc/self/maps").map_err(|error| error.to_string())?;
    Ok(text.iter().filter(|byte| **byte == b'\n').count() as u64)
}

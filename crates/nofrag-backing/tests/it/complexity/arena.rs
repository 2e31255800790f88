//! Operations of `arena`, each on its worst input.

use nofrag_backing::arena::{Arena, Budget, Config, OwnerId, Owners, Purge, Run};

use super::Cost::{Constant, Linear, Logarithmic};
use super::steps::instructions_after;
use super::{Chapter, operation};

pub(super) const CHAPTER: Chapter = Chapter {
    name: "arena",
    counted: "the number of free ranges of an owner",
    operations: &[
        operation("alloc", "a parked run", Constant, |n| {
            let parked = || {
                let (arena, run) = used(n / 10);
                arena.free(arena.alloc(A, 5, 1).unwrap()).unwrap();
                (arena, run)
            };
            instructions_after(parked, |(arena, _)| arena.alloc(A, 5, 1).unwrap())
        }),
        operation("free", "a run that is parked", Constant, |n| {
            let short = || {
                let (arena, _) = used(n / 10);
                let run = arena.alloc(A, 5, 1).unwrap();
                (arena, run)
            };
            instructions_after(short, |(arena, run)| arena.free(*run).unwrap())
        }),
        operation("alloc", "only the highest free range is long enough", Logarithmic, |n| {
            instructions_after(|| used(n / 10), |(arena, _)| arena.alloc(A, 90, 1).unwrap())
        }),
        operation("free", "a run that is too long to be parked", Logarithmic, |n| {
            instructions_after(|| used(n / 10), |(arena, own)| arena.free(*own).unwrap())
        }),
        operation("resize", "to a page less", Logarithmic, |n| {
            instructions_after(|| used(n / 10), |(arena, own)| arena.resize(*own, 69).unwrap())
        }),
        operation("free_later", "any", Constant, |n| {
            instructions_after(|| used(n / 10), |(arena, own)| arena.free_later(*own).unwrap())
        }),
        operation("step", "nothing is due", Constant, |n| {
            instructions_after(|| used(n / 10), |(arena, _)| arena.step(Budget { blocks: 1 }))
        }),
        operation("stats", "n blocks", Linear, |n| {
            instructions_after(|| used(n), |(arena, _)| arena.stats())
        }),
    ],
};

const A: OwnerId = OwnerId(0);

/// Returns an arena whose owner has `count` free ranges of 70 pages, each between two runs, and one of these.
fn used(count: u64) -> (Arena, Run) {
    let (owners, purge) = (Owners::Count(1), Purge::Manual);
    let config = Config { owners, purge, parked_pages: 1 << 10, ..Config::default() };
    let arena = Arena::reserve((2 * count + 2000) * (70 << 12), config).unwrap();
    let runs: Vec<Run> = (0..2 * count).map(|_| arena.alloc(A, 70, 1).unwrap()).collect();
    // The rest of the last block.
    let _rest = arena.alloc(A, 200, 1).unwrap();
    for run in runs.iter().skip(1).step_by(2) {
        arena.free(*run).unwrap();
    }
    (arena, runs[count as usize / 2 * 2])
}

//! The arena against a map of its live runs, with every page's contents checked.

use super::choices::Choices;
use super::pair::{BLOCK, Ghosts, OWNERS, Pair, Stamped, small};
use super::stamps::PAGE;
use nofrag_backing::arena::{Arena, Config, Purge};
use nofrag_backing::backend::{Anonymous, HostMemory};
use rand::Rng;
use std::time::Duration;

fn seed() -> u64 {
    let seed = rand::rng().next_u64();
    println!("seed {seed:#x}");
    seed
}

/// Checks a random trace over memory of this kind.
fn check_trace<B: HostMemory>(backing: B, purge: Purge, steps: u32) {
    let arena = Arena::reserve(24 * BLOCK, Config { purge, ..small(backing, OWNERS) }).unwrap();
    let choices = Choices::seed(seed());
    let mut pair = Pair::new(&arena, Stamped::default(), PAGE as u64, choices);
    (0..steps).for_each(|_| pair.step());
    pair.end();
    assert_eq!(arena.stats().blocks.clean, arena.stats().blocks.total);
}

#[test]
fn with_decay() {
    let after = Duration::from_millis(100);
    check_trace(Anonymous::new(), Purge::Decay { after }, 1500);
}

#[test]
fn with_a_watermark() {
    check_trace(Anonymous::new(), Purge::Watermark { pages: 100 }, 1500);
}

#[test]
fn by_hand() {
    check_trace(Anonymous::new(), Purge::Manual, 1500);
}

#[test]
fn over_shared_memory() {
    match nofrag_backing::backend::Memfd::new(Default::default()) {
        Ok(memfd) => check_trace(memfd, Purge::Watermark { pages: 100 }, 700),
        Err(why) => println!("skipped: no file in memory: {why}"),
    }
}

/// Takes random steps over memory in chunks: memory in use stays mapped and keeps its contents, and in the end there is
/// no chunk.
#[test]
fn in_chunks() {
    let after = Duration::from_millis(100);
    for purge in [Purge::Decay { after }, Purge::Watermark { pages: 40 }, Purge::Manual] {
        let (arena, ghosts) = Ghosts::arena(purge);
        let choices = Choices::seed(seed());
        let mut pair = Pair::new(&arena, ghosts.clone(), Ghosts::PAGE, choices);
        (0..1000).for_each(|_| pair.step());
        pair.end();
        drop(arena);
        ghosts.must_be_gone();
    }
}

//! Many threads, and pageblocks that change hands.

use std::sync::Barrier;
use std::thread;

use nofrag::check::Check;
use nofrag::units::Order;
use nofrag_backing::frames::{Fill, Frames, Sharing};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::{BOTH, check_stamp, check_zero, frames, order, owner, plain, stamp};

#[test]
fn one_owner_gets_what_others_do_not_use() {
    let frames = frames(16, 4, Sharing::Shards);
    assert_eq!(frames.pools(), 4);
    let here = owner(&frames, 1);
    let huge: Vec<_> = std::iter::from_fn(|| frames.alloc(here, plain(9)).ok()).collect();
    assert_eq!(huge.len(), 8);
    assert_eq!(frames.check(), Ok(()));
    for block in huge {
        frames.free(owner(&frames, 3), block.pfn).unwrap();
    }
    let there = owner(&frames, 2);
    let small: Vec<_> = std::iter::from_fn(|| frames.alloc(there, plain(0)).ok()).collect();
    assert_eq!(small.len(), 8 * 512);
    assert_eq!(frames.check(), Ok(()));
    frames.free_bulk(here, &small).unwrap();
    assert_eq!(frames.stats().free, frames.len());
}

/// Allocates and frees blocks for `rounds` rounds, and checks that no other thread writes to those that it holds.
fn churn(frames: &Frames, rank: usize, rounds: u64) {
    let here = owner(frames, rank);
    let mut random = Pcg64::seed_from_u64(rank as u64);
    let mut live = Vec::new();
    for round in 0..rounds {
        if live.len() < 64 && random.random_range(0..100) < 55 {
            let of = [0, 0, 0, 1, 3, 9][random.random_range(0..6)];
            let fill = if random.random() { Fill::Zeroed } else { Fill::Anything };
            let Ok(block) = frames.alloc(here, plain(of).fill(fill)) else { continue };
            if fill == Fill::Zeroed {
                check_zero(frames, block);
            }
            let mark = (rank as u64) << 32 | round;
            stamp(frames, block, mark);
            live.push((block, mark));
        } else if !live.is_empty() {
            let (block, mark) = live.swap_remove(random.random_range(0..live.len()));
            check_stamp(frames, block, mark);
            frames.free(here, block.pfn).unwrap();
        }
        if round % 256 == 0 {
            frames.purge(nofrag::units::PageCount(1024));
        }
    }
    for (block, mark) in live {
        check_stamp(frames, block, mark);
        frames.free(here, block.pfn).unwrap();
    }
}

#[test]
fn threads_never_share_a_block() {
    for sharing in BOTH {
        let frames = frames(24, 4, sharing);
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for rank in 0..4 {
                let (frames, start) = (&frames, &start);
                scope.spawn(move || {
                    start.wait();
                    churn(frames, rank, 2000);
                });
            }
        });
        frames.drain();
        assert_eq!(frames.check(), Ok(()));
        assert_eq!(frames.stats().free, frames.len());
        assert_eq!(frames.stats().obtainable(Order::PAGEBLOCK), 12);
    }
}

/// One thread purges again and again while another takes all memory, which is never refused for pageblocks that are
/// being purged.
#[test]
fn a_purge_hides_no_memory_from_others() {
    for sharing in BOTH {
        let frames = frames(8, 2, sharing);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..200 {
                    frames.purge(nofrag::units::PageCount(u64::MAX));
                }
            });
            let here = owner(&frames, 1);
            for _ in 0..200 {
                let blocks: Vec<_> =
                    (0..4).map(|_| frames.alloc(here, plain(9)).expect("all is free")).collect();
                blocks.iter().for_each(|block| frames.free(here, block.pfn).unwrap());
            }
        });
        assert_eq!(frames.check(), Ok(()));
        assert_eq!(frames.stats().obtainable(order(9)), 4);
    }
}

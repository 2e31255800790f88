//! Frames taken and given back by one and two threads, through one lock and through an allocator for each owner, in
//! turn: the time of a pair, and the number of waits for a lock. And the large blocks that each way leaves.
//!
//! ```text
//! cargo run --release -p nofrag-bench --example frame_pairs -- [ROUNDS] [PAIRS]
//! ```
//!
//! Programs: `own` replaces blocks of orders 0 to 3 and 9, of all types, that the thread itself has taken; `shared`
//! replaces those of a table that all threads have in common, so that about half of the blocks that a thread gives back
//! were taken by another. Half of 512 MiB is in use meanwhile. `pieces` lets owners with different mixes of types fill
//! memory, gives all but a fifth back at random, several times, and counts the pageblocks with a block that cannot be
//! moved: no compaction makes those whole; and the number of pageblocks that these blocks need. A line of JSON for each
//! row; times are medians over rounds, of the processor time of the threads, so that other work of the machine counts
//! little. Waiting for a lock takes none: hence the count of waits.

use std::collections::HashSet;
use std::env;
use std::error::Error;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use nofrag::page::Migratetype;
use nofrag::units::{Order, Pfn};
use nofrag_backing::frames::{Effort, Fill, FrameRequest, Frames, FramesConfig, Sharing};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const BYTES: u64 = 512 << 20;

/// Slots of the table; on average a slot has 8.5 frames.
const SLOTS: usize = 7680;

/// Returns a random request: of a hundred 75 are for movable pages, 4 for movable blocks of order 2, one for a movable
/// pageblock; the others are unmovable or reclaimable, of orders 0 to 3.
fn mixed(random: &mut Pcg64) -> FrameRequest {
    let (order, kind) = match random.random_range(0..100) {
        0..75 => (0, Migratetype::Movable),
        75..79 => (2, Migratetype::Movable),
        79 => (9, Migratetype::Movable),
        draw => (draw as u8 % 4, [Migratetype::Unmovable, Migratetype::Reclaimable][draw % 2]),
    };
    let order = Order::new(order).expect("no larger than the largest");
    FrameRequest::new(order, kind).fill(Fill::Anything).effort(Effort::AtHand)
}

/// A table of blocks: the first frame of each, plus one.
struct Table(Vec<AtomicU64>);

impl Table {
    fn filled(frames: &Frames, owners: usize) -> Table {
        let mut random = Pcg64::seed_from_u64(1);
        let slot = |slot| {
            let owner = frames.owners().by_rank(slot * owners / SLOTS).expect("an owner");
            let block = frames.alloc(owner, mixed(&mut random)).expect("half of memory is free");
            AtomicU64::new(block.pfn.0 + 1)
        };
        Table((0..SLOTS).map(slot).collect())
    }

    /// Replaces blocks at random in a part of the table.
    fn churn(&self, frames: &Frames, rank: usize, part: std::ops::Range<usize>, pairs: usize) {
        let owner = frames.owners().by_rank(rank).expect("an owner");
        let mut random = Pcg64::seed_from_u64(7 + rank as u64);
        for _ in 0..pairs {
            let slot = &self.0[random.random_range(part.clone())];
            let old = slot.swap(0, Ordering::AcqRel);
            if old > 0 {
                frames.free(owner, Pfn(old - 1)).expect("it is in use");
            }
            let Ok(block) = frames.alloc(owner, mixed(&mut random)) else { continue };
            let other = slot.swap(block.pfn.0 + 1, Ordering::AcqRel);
            if other > 0 {
                frames.free(owner, Pfn(other - 1)).expect("it is in use");
            }
        }
    }
}

/// Returns nanoseconds for a pair, and waits for a lock in a thousand pairs.
fn round(
    sharing: Sharing,
    threads: usize,
    program: &str,
    pairs: usize,
) -> Result<(f64, f64), Box<dyn Error>> {
    let config = FramesConfig { owners: 2, sharing, ..FramesConfig::new(BYTES) };
    let frames = Frames::new(&config)?;
    let table = Table::filled(&frames, threads);
    let waits = frames.stats().waits;
    let start = Barrier::new(threads);
    let total = thread::scope(|scope| {
        let run = |rank: usize| {
            let (frames, table, start) = (&frames, &table, &start);
            let part = match program {
                "own" => rank * SLOTS / threads..(rank + 1) * SLOTS / threads,
                _ => 0..SLOTS,
            };
            scope.spawn(move || {
                start.wait();
                let begin = processor_time();
                table.churn(frames, rank, part, pairs);
                processor_time() - begin
            })
        };
        let threads: Vec<_> = (0..threads).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum::<f64>()
    });
    let ns = total * 1e9 / (pairs * threads) as f64;
    let waits = (frames.stats().waits - waits) as f64 * 1e3 / (pairs * threads) as f64;
    Ok((ns, waits))
}

/// Returns the seconds of processor time of this thread.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the number of pageblocks with a block that cannot be moved, and the least number that could hold all these
/// blocks.
fn pieces(sharing: Sharing, owners: u32) -> Result<(usize, u64), Box<dyn Error>> {
    let config = FramesConfig { owners, sharing, ..FramesConfig::new(BYTES) };
    let frames = Frames::new(&config)?;
    let mut random = Pcg64::seed_from_u64(3);
    let mut live = Vec::new();
    for _ in 0..6 {
        loop {
            let rank = random.random_range(0..owners as usize);
            let owner = frames.owners().by_rank(rank).expect("an owner");
            // One page in ten cannot be moved.
            let stays = random.random_range(0..10) == 0;
            let kind = if stays { Migratetype::Unmovable } else { Migratetype::Movable };
            let order = Order::new([0, 0, 0, 0, 1, 2, 3][random.random_range(0..7)]);
            let request = FrameRequest::new(order.expect("small"), kind).fill(Fill::Anything);
            let Ok(block) = frames.alloc(owner, request.effort(Effort::AtHand)) else { break };
            live.push((owner, block, stays));
        }
        while frames.stats().free.0 * 5 < frames.len().0 * 4 {
            for _ in 0..64.min(live.len()) {
                let (owner, block, _) = live.swap_remove(random.random_range(0..live.len()));
                frames.free(owner, block.pfn)?;
            }
        }
    }
    let staying = live.iter().filter(|(_, _, stays)| *stays);
    let pages: u64 = staying.clone().map(|(_, block, _)| block.order.pages()).sum();
    let blocks: HashSet<u64> = staying.map(|(_, block, _)| block.pfn.0 >> 9).collect();
    Ok((blocks.len(), pages.div_ceil(Order::PAGEBLOCK.pages())))
}

fn name(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::Lock => "lock",
        Sharing::Shards => "shards",
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse::<usize>());
    let (rounds, pairs) = (number(7)?, number(200_000)?);
    let both = [Sharing::Lock, Sharing::Shards];
    for program in ["own", "shared"] {
        for threads in [1, 2] {
            let mut seen = both.map(|sharing| (sharing, Vec::new(), Vec::new()));
            for _ in 0..rounds {
                for (sharing, times, waits) in &mut seen {
                    let (ns, waited) = round(*sharing, threads, program, pairs)?;
                    times.push(ns);
                    waits.push(waited);
                }
            }
            for (sharing, times, waits) in seen {
                let row = format!("{program}-{threads}-{}", name(sharing));
                let least = times.iter().copied().fold(f64::INFINITY, f64::min);
                let (ns, waits) = (median(times), median(waits));
                println!(
                    r#"{{"row": "{row}", "ns": {ns:.1}, "least_ns": {least:.1}, "waits_per_1000": {waits:.2}}}"#
                );
            }
        }
    }
    for owners in [2, 8] {
        for sharing in both {
            let (stuck, least) = pieces(sharing, owners)?;
            let row = format!("pieces-{owners}-{}", name(sharing));
            println!(r#"{{"row": "{row}", "stuck": {stuck}, "least": {least}}}"#);
        }
    }
    Ok(())
}

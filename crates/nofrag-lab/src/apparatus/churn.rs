//! Large blocks after random churn, without compaction and with it.
//!
//! Memory is filled with single pages, of which random ones are given back and taken again, with a stated share in use
//! in the end. No 2 MiB are free in one piece then, though many times as much is free. Compaction moves the pages
//! together, while another thread uses random ones of them; then all 2 MiB blocks that can be had are taken, and made
//! real huge pages. The contents of each page are verified afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nofrag::cpu::CpuId;
use nofrag::units::Order;
use nofrag_backing::frames::FramesConfig;
use nofrag_backing::moving::{Handle, HandleError, Handles};

use super::Trouble;
use super::moves::nanos;
use super::sys::PAGE;
use crate::stats::{Latencies, Tail};

/// Plan of a measurement of churn and compaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChurnPlan {
    pub(crate) bytes: u64,
    /// Pages that are given back and replaced by new ones, per page in use.
    pub(crate) churn: u64,
    /// Seed for the choice of pages.
    pub(crate) seed: u64,
}

/// Percentage of the pages that are in use in the end, as in the published measurement.
const LIVE_PERCENT: u64 = 80;

/// Result of a measurement. Pages are of 4 KiB, blocks of 2 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Churn {
    pub(crate) pages: u64,
    pub(crate) live: u64,
    /// Blocks that the free pages would make if they lay together.
    pub(crate) possible: u64,
    /// Blocks that could be had before compaction.
    pub(crate) before: u64,
    /// Blocks that were taken after compaction.
    pub(crate) obtained: u64,
    /// Blocks of these that became huge pages.
    pub(crate) collapsed: u64,
    pub(crate) moved: u64,
    /// Pages that did not move, since they were in use at every try.
    pub(crate) stayed: u64,
    /// Pages with other contents after compaction than before: none, if moves lose nothing.
    pub(crate) corrupted: u64,
    /// Time of an access, pin and unpin included, with nothing else at work.
    pub(crate) access_alone: Tail,
    /// Time of an access while pages moved.
    pub(crate) access_compacting: Tail,
}

/// The choice of the next page: xorshift64*, which is enough for that and needs no crate.
#[derive(Clone)]
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * bound as u128) >> 64) as usize
    }
}

/// One page in use. Some of its words hold its number, and another one counts its uses.
struct Page {
    handle: Handle,
    stamp: u64,
    uses: AtomicU64,
}

/// The words of a page with its stamps: its first ones, and its last.
const STAMPS: [usize; 3] = [0, 1, 511];

/// The word of a page that counts the uses of the page.
const USES: usize = 256;

/// Churns, compacts, and takes all blocks that can be had.
///
/// # Errors
/// The system's.
pub(crate) fn churn(plan: &ChurnPlan) -> Result<Churn, Trouble> {
    let capacity = u32::try_from(plan.bytes / PAGE as u64)?;
    let handles = Handles::new(&FramesConfig::new(plan.bytes), capacity)?;
    let owner = handles.owners().by_rank(0).expect("there is an owner");
    let mut chance = Chance(plan.seed | 1);
    let live = fill_and_churn(&handles, owner, plan, &mut chance)?;
    handles.drain();
    let stats = handles.stats();
    let before = stats.obtainable(Order::PAGEBLOCK);
    let possible = stats.free.0 / Order::PAGEBLOCK.pages();

    let idle = || thread::sleep(Duration::from_millis(50));
    let (access_alone, ()) = while_accessed(&handles, &live, chance.clone(), idle);
    let (access_compacting, landed) = while_accessed(&handles, &live, chance, || handles.compact());

    let blocks: Vec<_> =
        std::iter::from_fn(|| handles.alloc_at_hand(owner, Order::PAGEBLOCK).ok()).collect();
    let collapsed = blocks.iter().filter(|&&block| handles.collapse(block).is_ok()).count();
    let corrupted = live.iter().filter(|page| !page.is_sound(&handles)).count();
    Ok(Churn {
        pages: capacity.into(),
        live: live.len() as u64,
        possible,
        before,
        obtained: blocks.len() as u64,
        collapsed: collapsed as u64,
        moved: landed.moved,
        stayed: landed.stayed,
        corrupted: corrupted as u64,
        access_alone,
        access_compacting,
    })
}

/// Takes all pages, replaces random ones, and leaves as many as are to live.
fn fill_and_churn(
    handles: &Handles,
    owner: CpuId,
    plan: &ChurnPlan,
    chance: &mut Chance,
) -> Result<Vec<Page>, Trouble> {
    let mut live = Vec::new();
    let mut stamp = 0;
    let mut take = |live: &mut Vec<Page>| {
        let Ok(handle) = handles.alloc_at_hand(owner, Order::ZERO) else { return Ok(false) };
        stamp += 1;
        live.push(Page::stamped(handles, handle, stamp)?);
        Ok::<bool, Trouble>(true)
    };
    while take(&mut live)? {}
    let all = live.len();
    let target = (all as u64 * LIVE_PERCENT / 100) as usize;
    let drop_one = |live: &mut Vec<Page>, chance: &mut Chance| {
        let page = live.swap_remove(chance.below(live.len()));
        handles.free(owner, page.handle)
    };
    while live.len() > target {
        drop_one(&mut live, chance)?;
    }
    // Half of the pages are given back at once and then taken again, so that a page does not go back to its old place.
    for _ in 0..2 * plan.churn {
        let few = live.len() / 2;
        (0..few).try_for_each(|_| drop_one(&mut live, chance))?;
        while live.len() < all && take(&mut live)? {}
        while live.len() > target {
            drop_one(&mut live, chance)?;
        }
    }
    Ok(live)
}

impl Page {
    fn stamped(handles: &Handles, handle: Handle, stamp: u64) -> Result<Page, HandleError> {
        let words = handles.pin(handle)?;
        // Relaxed: a reader pins the block, which orders it.
        STAMPS.iter().for_each(|&word| words[word].store(stamp, Ordering::Relaxed));
        words[USES].store(0, Ordering::Relaxed);
        Ok(Page { handle, stamp, uses: AtomicU64::new(0) })
    }

    fn is_sound(&self, handles: &Handles) -> bool {
        let Ok(words) = handles.pin(self.handle) else { return false };
        let stamped = |&word: &usize| words[word].load(Ordering::Relaxed) == self.stamp;
        let uses = self.uses.load(Ordering::Relaxed);
        STAMPS.iter().all(stamped) && words[USES].load(Ordering::Relaxed) == uses
    }

    /// Counts one use, in the page itself and beside it.
    fn use_once(&self, handles: &Handles) {
        let words = handles.pin(self.handle).expect("the page is in use");
        // Relaxed: one thread counts, and pins order it with moves.
        let before = words[USES].load(Ordering::Relaxed);
        words[USES].store(before + 1, Ordering::Relaxed);
        self.uses.fetch_add(1, Ordering::Relaxed);
    }
}

/// Uses random pages until `act` has ended; returns the times of the uses, and the result of `act`.
fn while_accessed<T>(
    handles: &Arc<Handles>,
    live: &[Page],
    mut chance: Chance,
    act: impl FnOnce() -> T,
) -> (Tail, T) {
    let stop = AtomicBool::new(false);
    let mut times = Latencies::default();
    let done = thread::scope(|scope| {
        let user = scope.spawn(|| {
            // Relaxed: it orders nothing.
            loop {
                let page = &live[chance.below(live.len())];
                let start = Instant::now();
                page.use_once(handles);
                times.record(nanos(start));
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let done = act();
        stop.store(true, Ordering::Relaxed);
        user.join().expect("a user does not panic");
        done
    });
    (times.tail().expect("a page was used"), done)
}

//! Views of Linux's blocks: mappings (docs/sources/vmap.md#block-hash), counts, and the blocks themselves.

use super::Queues;
use super::block::{Block, BlockCounts, Body};
use super::purge::Pass;
use crate::lists::put;
use crate::ranges::{OutOfMetadata, Span};
use crate::units::{PageCount, Vpn};
use crate::vmap::{BlockRecord, BlockStats, RamArea, VmapCounters};
use alloc::vec::Vec;

/// Number of runs of live pages that a reader takes in one hold of a block's lock.
const RUNS_PER_HOLD: usize = 32;

/// Fills `runs` with first slots and ends of the lowest runs of live slots from slot `at` on; returns their number.
fn runs_from(body: &Body, at: u32, runs: &mut [(u32, u32); RUNS_PER_HOLD]) -> usize {
    let mut count = 0;
    for (first, pages) in body.live_from(at) {
        match runs[..count].last_mut() {
            Some((_, end)) if *end == first => *end += pages,
            _ if count == RUNS_PER_HOLD => break,
            _ => {
                runs[count] = (first, first + pages);
                count += 1;
            }
        }
    }
    count
}

impl Queues {
    pub(in crate::vmap::blocks) fn find(&self, at: u64) -> Option<RamArea> {
        let (number, slot) = self.locate(at);
        let body = self.lookup(number)?.body.lock();
        if !body.stands {
            return None;
        }
        let (first, pages) = body.covering(slot)?;
        let start = Vpn(self.start_of(number) + u64::from(first));
        Some(RamArea { start, pages: PageCount(u64::from(pages)) })
    }

    /// Reads some runs of live slots in one hold of the block's lock, and lets go of it before it calls `visit` with
    /// them.
    pub(in crate::vmap::blocks) fn for_each_live(&self, number: u64, visit: &mut dyn FnMut(Span)) {
        let Some(block) = self.lookup(number) else { return };
        let start = self.start_of(number);
        let mut runs = [(0, 0); RUNS_PER_HOLD];
        let mut from = 0;
        loop {
            let body = block.body.lock();
            let count = if body.stands { runs_from(&body, from, &mut runs) } else { 0 };
            drop(body);
            for &(first, end) in &runs[..count] {
                visit(Span::known(start + u64::from(first), start + u64::from(end)));
                from = end;
            }
            if count < RUNS_PER_HOLD {
                return;
            }
        }
    }

    /// Calls `visit` with the number and the record of every block, its lock held.
    fn for_each_block(&self, mut visit: impl FnMut(u64, &Block, &Body)) {
        for (number, block) in self.table.iter() {
            let body = block.body.lock();
            if body.stands {
                visit(number, block, &body);
            }
        }
    }

    pub(in crate::vmap::blocks) fn has_reclaimable(&self) -> bool {
        let mut any = false;
        self.for_each_block(|_, block, body| any |= self.must_go(block, body, Pass::Forced));
        any
    }

    pub(in crate::vmap::blocks) fn add_counters(&self, counters: &mut VmapCounters) {
        let VmapCounters { blocks, locks, .. } = counters;
        for (_, block) in self.table.iter() {
            let body = block.body.lock();
            let BlockCounts { maps, search_steps, second_search_steps, purged, dirty_words } =
                body.counts;
            blocks.maps += maps;
            blocks.search_steps += search_steps;
            blocks.second_search_steps += second_search_steps;
            blocks.purged += purged;
            blocks.dirty_words += dirty_words;
            locks.block = locks.block.plus(body.cost());
        }
        for queue in &self.queues {
            let ends = queue.ends.lock();
            blocks.created += ends.created;
            blocks.failed_searches += ends.failed_searches;
            blocks.search_steps += ends.failed_steps;
            blocks.longest_list = blocks.longest_list.max(ends.longest);
            locks.block_queue = locks.block_queue.plus(ends.cost());
        }
        self.index.for_each_bucket(|_, bucket, cost| {
            blocks.index_inserts += bucket.inserts;
            blocks.index_erases += bucket.erases;
            locks.block_index = locks.block_index.plus(cost);
        });
        blocks.returned += blocks.index_erases;
        let passes = *self.passes.lock();
        blocks.alias_flushes += passes.alias_flushes;
        blocks.visited += passes.visited;
        blocks.max_visited_per_hold = passes.most_visited;
        locks.purge = locks.purge.plus(self.turn.lock().cost());
    }

    pub(in crate::vmap::blocks) fn stats(&self) -> BlockStats {
        let mut stats = BlockStats::default();
        self.for_each_block(|_, block, body| {
            let (free, dirty) = (u64::from(block.free()), u64::from(body.dirty));
            stats.blocks += 1;
            stats.free_pages += free;
            stats.dirty_pages += dirty;
            stats.live_pages += u64::from(self.slots) - free - dirty;
        });
        for queue in &self.queues {
            stats.listed_longest = stats.listed_longest.max(queue.ends.lock().len);
        }
        stats.metadata_bytes = self.table.metadata_bytes() + size_of_val(&*self.queues) as u64;
        for (_, block) in self.table.iter() {
            stats.metadata_bytes += block.body.lock().metadata_bytes();
        }
        self.index.for_each_bucket(|_, bucket, _| stats.metadata_bytes += bucket.metadata_bytes());
        stats
    }

    pub(in crate::vmap::blocks) fn collect(
        &self,
        out: &mut Vec<BlockRecord>,
    ) -> Result<(), OutOfMetadata> {
        let mut full = Ok(());
        self.for_each_block(|number, block, body| {
            if out.try_reserve(1).is_err() {
                full = Err(OutOfMetadata);
                return;
            }
            let (free, dirty) = (block.free(), body.dirty);
            put(
                out,
                BlockRecord {
                    start: Vpn(self.start_of(number)),
                    owner: self.cpus.by_rank(body.owner as usize).expect("the owner is a CPU"),
                    free,
                    dirty,
                    live: self.slots - free - dirty,
                },
            );
        });
        full
    }
}

//! The laws of Linux's blocks (docs/sources/vmap.md#block-laws, V1 to V8), as far as they can be seen while nobody
//! works.

use super::block::{Block, Body};
use super::{Queues, queue};
use crate::check::Violation;
use crate::sync::Ordering;
use crate::vmap::LiveMap;

impl Queues {
    /// Verifies every law. No other thread works meanwhile.
    pub(in crate::vmap::blocks) fn check(&self) -> Result<(), Violation> {
        let mut listed = 0;
        let mut standing = 0;
        for (number, block) in self.table.iter() {
            let body = block.body.lock();
            if !body.stands {
                let law = "where no block stands, no slot is free";
                Violation::unless_equal(law, number, 0, u64::from(block.free()))?;
                continue;
            }
            standing += 1;
            listed += u64::from(block.free() > 0);
            self.check_slots(number, block, &body)?;
            // vmap.md#v6
            let law = "what was unmapped since the last flush has been handed out";
            let (_, end) = body.stale_bounds().unwrap_or((0, 0));
            Violation::unless(law, number, end <= self.slots - block.free())?;
        }
        self.check_lists(listed)?;
        self.check_index(standing)
    }

    /// Verifies V1, V2, V3 and V7 for one block: free, dirty and live slots are all its slots, and slots are handed out
    /// in ascending order, by class (docs/sources/vmap.md#v1, vmap.md#v2, vmap.md#v3 and vmap.md#v7).
    fn check_slots(&self, number: u64, block: &Block, body: &Body) -> Result<(), Violation> {
        let (free, dirty) = (block.free(), body.dirty);
        let law = "free, live and dirty slots are all slots";
        Violation::unless(law, number, free + dirty <= self.slots)?;
        let law = "a block of which every slot is dirty is given back";
        Violation::unless(law, number, dirty < self.slots)?;
        let (mut end, mut live, mut tiles) = (0, 0, true);
        body.for_each_mapping(|first, pages, is_live| {
            let slots = u32::from(self.rounded[pages as usize]);
            tiles &= first == end;
            end = first + slots;
            live += if is_live { slots } else { 0 };
        });
        let law = "slots are handed out in ascending order, as many as the size's class has";
        Violation::unless(law, number, tiles)?;
        Violation::unless_equal(law, number, u64::from(self.slots - free), u64::from(end))?;
        let law = "what is neither free nor dirty is live";
        let rest = self.slots - free - dirty;
        Violation::unless_equal(law, number, u64::from(rest), u64::from(live))?;
        if self.policy.live_map == LiveMap::UsedMap {
            let law = "the map of live slots has a bit for each";
            let set = body.used_slots().unwrap_or(0);
            Violation::unless_equal(law, number, u64::from(live), u64::from(set))?;
        }
        Ok(())
    }

    /// Verifies V4: the lists hold the `expected` blocks with free slots, each on its owner's list
    /// (docs/sources/vmap.md#v4).
    fn check_lists(&self, expected: u64) -> Result<(), Violation> {
        let mut listed = 0;
        for (rank, queue) in self.queues.iter().enumerate() {
            let mut before = None;
            let mut count = 0;
            for (number, block) in queue.walk(&self.table, self.table.places() + 1) {
                let body = block.body.lock();
                let law = "a listed block has free slots";
                Violation::unless(law, number, body.stands && block.free() > 0)?;
                let law = "a block is on its owner's list";
                Violation::unless_equal(law, number, u64::from(body.owner), rank as u64)?;
                let law = "neighbours on a list agree";
                Violation::unless(law, number, block.prev.get() == before)?;
                before = Some(number);
                count += 1;
            }
            let ends = queue.ends.lock();
            let law = "a list knows its length and its end";
            Violation::unless_equal(law, rank as u64, ends.len, count)?;
            Violation::unless(law, rank as u64, ends.tail == before)?;
            listed += count;
        }
        Violation::unless_equal("a block with free slots is listed", 0, expected, listed)
    }

    /// Verifies V5: the index holds the `expected` blocks, each in the bucket of its number (docs/sources/vmap.md#v5).
    fn check_index(&self, expected: u64) -> Result<(), Violation> {
        let mut indexed = 0;
        let mut broken = Ok(());
        self.index.for_each_bucket(|at, bucket, _| {
            for (place, &number) in (0..).zip(&bucket.numbers) {
                let block = queue::record(&self.table, number);
                let here = self.index.bucket_of(number) == Some(at)
                    && block.place.load(Ordering::Relaxed) == place;
                let law = "a block is in the bucket of its number";
                broken = broken.and(Violation::unless(law, number, here));
                indexed += 1;
            }
        });
        broken?;
        Violation::unless_equal("the index has every block", 0, expected, indexed)
    }
}

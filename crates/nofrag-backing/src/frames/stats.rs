//! Counts of the frames, and their laws.

use nofrag::check::{Check, Violation};
use nofrag::page::{
    FragmentationIndices, FrameState, Migratetype, PageAllocator, ZoneId, ZoneKind,
};
use nofrag::units::{Order, PageCount, Pfn};
use rustix::io::Errno;

use super::Frames;
use crate::sys;

/// Counts of the frames: free frames, free blocks, waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameStats {
    /// Frames that are free, including those on owners' lists.
    pub free: PageCount,
    /// Free blocks of each order, without those on owners' lists.
    pub blocks: [u64; Order::COUNT],
    /// The order of the largest of these blocks.
    pub largest: Option<Order>,
    /// Number of waits for a lock.
    pub waits: u64,
}

impl FrameStats {
    /// Returns how fragmented the free frames are for blocks of an order, all pools taken together.
    #[must_use]
    pub fn indices(&self, order: Order) -> FragmentationIndices {
        FragmentationIndices::of_blocks(&self.blocks, u32::from(order.get()))
    }

    /// Returns the number of blocks of an order that could be cut from the free blocks.
    #[must_use]
    pub fn obtainable(&self, order: Order) -> u64 {
        let cut = |each: Order| self.blocks[each.index()] << (each.get() - order.get());
        order.and_larger().map(cut).sum()
    }
}

/// Returns the zone that has all frames.
fn zone(pages: &PageAllocator) -> ZoneId {
    let zone = pages.zones().find(|zone| zone.kind == ZoneKind::Normal);
    zone.expect("the map has one").id
}

fn free_pages(pages: &PageAllocator) -> u64 {
    let zone = zone(pages);
    let listed = Migratetype::ALL.into_iter().map(|kind| pages.free_pages(zone, kind).0);
    listed.sum::<u64>() + pages.per_cpu_pages(zone).0
}

impl Frames {
    /// Counts frames, blocks and waits. Takes every lock in turn; while other threads work the result is a mixture of
    /// moments.
    #[must_use]
    pub fn stats(&self) -> FrameStats {
        let mut stats =
            FrameStats { free: PageCount(0), blocks: [0; Order::COUNT], largest: None, waits: 0 };
        for shard in &self.shards {
            let pool = shard.lock();
            let zone = zone(&pool.pages);
            stats.free.0 += free_pages(&pool.pages);
            for order in Order::all() {
                let kinds = Migratetype::ALL.into_iter();
                let blocks = kinds.map(|kind| pool.pages.free_blocks(zone, order, kind));
                stats.blocks[order.index()] += blocks.sum::<u64>();
            }
            stats.largest = stats.largest.max(pool.pages.largest_free(zone));
            stats.waits += shard.waits();
        }
        stats
    }

    /// Puts the blocks that owners keep on their lists back, so that they can merge.
    pub fn drain(&self) {
        self.shards.iter().for_each(|shard| shard.lock().pages.drain_all());
    }

    /// Returns the bytes of memory that the file has now.
    ///
    /// # Errors
    /// Errors of `fstat`.
    pub fn resident_bytes(&self) -> Result<u64, Errno> {
        let stat = sys::stat(self.file())?;
        Ok(stat.st_blocks as u64 * 512)
    }

    /// Returns the zone of a pool's allocator that has all frames.
    pub(super) fn zone(&self, pool: usize) -> ZoneId {
        zone(&self.shards[pool].lock().pages)
    }

    /// Checks laws 3 and 5 for the block that begins at `head`, whose state is `state`.
    fn check_word(&self, head: Pfn, order: Order, state: FrameState) -> Checked {
        let word = self.words.get(head.0);
        let in_use = matches!(state, FrameState::Used | FrameState::Movable);
        let law = "3. a word stands at the first frame of each block in use";
        Violation::unless(law, head.0, word.is_none() != in_use)?;
        let law = "3. a word has the order of its block";
        Violation::unless(law, head.0, word.is_none() || word.order() == order)?;
        let law = "5. no block waits to be given back that nobody holds";
        Violation::unless(law, head.0, !word.is_zombie() || word.holds() > 0)
    }

    /// Checks laws 2, 3 and 5 for the pageblock; returns the number of its frames in use or set aside for a move.
    fn check_block(&self, block: usize) -> Result<u64, Violation> {
        let start = (block as u64) << Order::PAGEBLOCK.get();
        let home = self.home(Pfn(start)).expect("there is such a pageblock");
        let mut used = 0;
        for (pool, shard) in self.shards.iter().enumerate() {
            let pool_of = shard.lock();
            if pool != home {
                let whole = pool_of.pages.frame(Pfn(start));
                let expected = (FrameState::Used, Pfn(start), Order::PAGEBLOCK);
                let law = "2. a pageblock is at home in one pool";
                Violation::unless(law, start, whole == Some(expected))?;
                continue;
            }
            let mut at = start;
            while at < start + Order::PAGEBLOCK.pages() {
                let (state, head, order) =
                    pool_of.pages.frame(Pfn(at)).expect("all frames are managed");
                if head.0 == at && state != FrameState::Moving {
                    self.check_word(head, order, state)?;
                }
                let end = (head.0 + order.pages()).min(start + Order::PAGEBLOCK.pages());
                let law = "3. a word stands at the first frame of a block alone";
                let inside = (at.max(head.0 + 1)..end).find(|&pfn| !self.words.get(pfn).is_none());
                Violation::unless(law, inside.unwrap_or(at), inside.is_none())?;
                let is_used = matches!(state, FrameState::Used | FrameState::Movable);
                used += if is_used || state == FrameState::Moving { end - at } else { 0 };
                at = end;
            }
        }
        Ok(used)
    }
}

type Checked = Result<(), Violation>;

impl Check for Frames {
    fn check(&self) -> Checked {
        for shard in &self.shards {
            shard.lock().pages.check()?;
        }
        let mut used = 0;
        for block in 0..self.homes.len() {
            used += self.check_block(block)?;
        }
        let free = self.stats().free.0;
        Violation::unless_equal("4. every frame is free or in use", 0, self.len().0, free + used)
    }
}

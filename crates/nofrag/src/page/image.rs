//! Everything that decides what an allocator does next, as plain data: every list in its order, every count and mark.
//!
//! [`PageAllocator::image`] takes such a picture, and [`PageAllocator::restore`] makes an allocator of one that goes on
//! as the pictured one would have: the same requests get the same frames. Pictures of kernels that run can be taken
//! too, which is how a preset is judged by a kernel, frame by frame. Two pictures are compared with `==`.
//!
//! Work that is under way is not pictured: moves of a compaction, a run of kswapd, an [`Attempt`](super::Attempt).
//! Frames that no list and no block in use names are taken to be reserved since before the allocator came up.

use crate::lists::{gathered, put, put_all};
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use super::allocator::{PageAllocator, PageConfig, PageConfigError, ZoneInfo};
use super::frames::{FrameIndex, Kind, NONE, Tag};
use super::free_lists::List;
use super::map::ZoneKind;
use super::migratetype::Migratetype;
use super::per_cpu::{Bounds, Pace, Shortage, Slot};
use super::policy::Relist;
use super::zone::{Watermarks, Zone, ZoneId};
use crate::errors::{errors, turns_into};
use crate::event::EventSink;
use crate::units::{Order, PageCount, Pfn};

/// Picture of a whole allocator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Zones, as [`PageAllocator::zones`] orders them.
    pub zones: Vec<ZoneImage>,
    /// Blocks in use, in ascending order.
    pub used: Vec<UsedBlock>,
}

/// A block in use, in a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedBlock {
    pub pfn: Pfn,
    pub order: Order,
    /// True if the content of the block may be moved.
    pub movable: bool,
}

/// Picture of a zone and its lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneImage {
    /// Watermarks without boost, in pages.
    pub watermarks: Watermarks,
    /// Pages by which the boost raises the watermarks.
    pub boost: PageCount,
    /// Pages that the zone withholds from requests, by the kind of the highest zone that a request can use.
    pub lowmem_reserve: [u64; ZoneKind::COUNT],
    /// Pages in HIGHATOMIC pageblocks.
    pub reserved_high_atomic: PageCount,
    /// kswapd reclaims here (`ZONE_RECLAIM_ACTIVE`).
    pub reclaim_active: bool,
    /// A request saw the zone below its high mark (`ZONE_BELOW_HIGH`, Linux 6.7).
    pub below_high: bool,
    /// Its free lists that are not empty, by order, then type.
    pub free: Vec<ListImage>,
    /// The lists of each CPU, by rank.
    pub cpus: Vec<CpuImage>,
    /// Its pageblocks, in ascending order; those in large holes are left out.
    pub pageblocks: Vec<PageblockImage>,
    pub compaction: CompactionImage,
}

/// A list of free blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListImage {
    pub order: Order,
    pub migratetype: Migratetype,
    /// First frames of the blocks, in the order in which the blocks are taken.
    pub blocks: Vec<Pfn>,
}

/// The lists of a CPU in a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuImage {
    /// Pages of a refill or a drain, before they grow.
    pub batch: u32,
    /// Lower bound of the pages that the lists may hold.
    pub high_min: u32,
    /// Upper bound of the pages that the lists may hold; equal to `high_min` until Linux 6.6.
    pub high_max: u32,
    /// Pages that the lists may hold now; 0 until Linux 6.6, where the bound is `high_min`.
    pub high: u32,
    /// Doublings of the next drain (`free_factor`) until Linux 6.6, of the next refill (`alloc_factor`) from 6.7 on.
    pub factor: u8,
    /// Pages freed lately (`free_count`, 6.7 on).
    pub freed: u32,
    /// The last block freed was of order 1 to 3 (6.7 on).
    pub freed_large: bool,
    /// Its lists that are not empty, by order, then type; those of huge pages that are not movable count as unmovable.
    pub lists: Vec<ListImage>,
}

/// Picture of a pageblock with its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageblockImage {
    pub pfn: Pfn,
    pub migratetype: Migratetype,
    /// True if compaction passes the pageblock by.
    pub skip: bool,
}

/// State that compaction keeps for a zone between runs. Positions are frames, 0 before the first run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionImage {
    /// Next frames of the source scanner: for asynchronous runs, and for all others (`compact_cached_migrate_pfn`).
    pub sources: [u64; 2],
    /// Next frame of the target scanner (`compact_cached_free_pfn`).
    pub targets: u64,
    /// Position that the source scanner got when marks were last wiped (`compact_init_migrate_pfn`).
    pub first_source: u64,
    /// Position that the target scanner got when marks were last wiped (`compact_init_free_pfn`).
    pub first_target: u64,
    /// Attempts since the last failure (`compact_considered`).
    pub considered: u8,
    /// Binary logarithm of the length of a pause, in attempts (`compact_defer_shift`).
    pub shift: u8,
    /// The smallest order that failed (`compact_order_failed`).
    pub order_failed: u8,
    /// kswapd is to wipe marks when it goes to sleep (`compact_blockskip_flush`).
    pub flush: bool,
}

errors! {
    /// Contradiction in a picture, or between it and the machine.
    #[non_exhaustive]
    pub enum ImageError {
        /// No machine has this configuration.
        Config(error: PageConfigError) => "{error}",
        /// The picture has another number of zones than the memory map, or a zone has another number of CPUs.
        Shape => "the zones or CPUs are not those of the memory map",
        /// The frame lies outside the memory of the zone that names it.
        Outside(pfn: Pfn) => "frame {pfn} is outside its zone's memory",
        /// The frame is no multiple of its block's size.
        Misaligned(pfn: Pfn) => "no block of this order begins at frame {pfn}",
        /// Two blocks share the frame.
        Overlap(pfn: Pfn) => "two blocks share frame {pfn}",
        /// No per-CPU list holds such blocks.
        NoSuchList(order: Order, migratetype: Migratetype) =>
            "CPUs keep no {migratetype} blocks of order {order}",
    }
}

impl From<PageConfigError> for ImageError {
    fn from(error: PageConfigError) -> ImageError {
        ImageError::Config(error)
    }
}

turns_into!(TryReserveError => ImageError::Config(PageConfigError::OutOfMetadata));

impl<E: EventSink> PageAllocator<E> {
    /// Makes the allocator that was pictured, on the machine of `config`. O(frames).
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn restore(config: &PageConfig, image: &Image, events: E) -> Result<Self, ImageError> {
        let mut pages = PageAllocator::laid_out(config, events)?;
        if pages.zones.len() != image.zones.len() {
            return Err(ImageError::Shape);
        }
        for (number, zone) in image.zones.iter().enumerate() {
            pages.restore_zone(ZoneId(number as u16), zone)?;
        }
        for &UsedBlock { pfn, order, movable } in &image.used {
            let frame = pages.frames.index(pfn).ok_or(ImageError::Outside(pfn))?;
            let id = pages.zone_at(frame).ok_or(ImageError::Outside(pfn))?;
            let frame = pages.claim_frames(id, pfn, order)?;
            pages.frames.set_tag(frame, Tag::new(Kind::Used, order).with_movable(movable));
            if movable {
                pages.frames.each_block(frame, order, |block, pages| block.movable += pages);
            }
        }
        pages.check_holes(config)?;
        Ok(pages)
    }

    /// Checks that no block reaches into a hole of a zone. A hole may be far larger than the spans of known frames.
    fn check_holes(&self, config: &PageConfig) -> Result<(), ImageError> {
        let zones = || config.map.nodes().iter().flat_map(|node| &node.zones);
        let mut holes: Vec<(Pfn, Pfn)> = Vec::new();
        holes.try_reserve_exact(zones().map(|zone| zone.holes.len()).sum())?;
        put_all(
            &mut holes,
            zones().flat_map(|zone| &zone.holes).map(|hole| (hole.start, hole.end())),
        );
        holes.sort_unstable();
        for frame in 0..self.frames.len() as FrameIndex {
            let pfn = self.frames.pfn(frame);
            let behind = holes.partition_point(|&(start, _)| start <= pfn);
            let is_hole = behind > 0 && pfn < holes[behind - 1].1;
            if is_hole && self.frames.tag(frame) != Tag::ABSENT {
                return Err(ImageError::Outside(pfn));
            }
        }
        Ok(())
    }

    fn restore_zone(&mut self, id: ZoneId, image: &ZoneImage) -> Result<(), ImageError> {
        for pageblock in &image.pageblocks {
            let frame =
                self.frames.index(pageblock.pfn).ok_or(ImageError::Outside(pageblock.pfn))?;
            let block = self.frames.block_mut(frame);
            (block.migratetype, block.skip) = (pageblock.migratetype, pageblock.skip);
        }
        for ListImage { order, migratetype, blocks } in &image.free {
            for &pfn in blocks {
                let frame = self.claim_frames(id, pfn, *order)?;
                let lists = &mut self.zones[id.index()].lists;
                lists.insert(&mut self.frames, frame, *order, *migratetype, Relist::Tail);
            }
        }
        let zone = &mut self.zones[id.index()];
        if zone.per_cpu.len() != image.cpus.len() {
            return Err(ImageError::Shape);
        }
        zone.managed = PageCount(zone.lists.total());
        (zone.marks, zone.boost) = (image.watermarks, image.boost.0);
        zone.reserve = image.lowmem_reserve;
        zone.reserved_high_atomic = image.reserved_high_atomic.0;
        zone.shortage = Shortage { reclaims: image.reclaim_active, below_high: image.below_high };
        zone.compaction.set_memory(image.compaction);
        for (rank, cpu) in image.cpus.iter().enumerate() {
            self.restore_cpu(id, rank, cpu)?;
        }
        Ok(())
    }

    fn restore_cpu(&mut self, id: ZoneId, rank: usize, image: &CpuImage) -> Result<(), ImageError> {
        let rules = self.policy.per_cpu;
        let &CpuImage { batch, high_min, high_max, high, factor, freed, freed_large, .. } = image;
        let zone = &mut self.zones[id.index()];
        zone.per_cpu_bounds = Bounds { batch, least: high_min, most: high_max };
        zone.per_cpu[rank].pace = Pace { high, doublings: factor, freed, freed_large };
        for ListImage { order, migratetype, blocks } in &image.lists {
            let slot = Slot::of(*order, *migratetype, rules)
                .ok_or(ImageError::NoSuchList(*order, *migratetype))?;
            for &pfn in blocks {
                let frame = self.claim_frames(id, pfn, *order)?;
                let lists = &mut self.zones[id.index()].per_cpu[rank];
                lists.put(&mut self.frames, slot, frame, *migratetype, Relist::Tail);
            }
        }
        Ok(())
    }

    /// Makes frames that nothing has named before the inside of a block, counts them as managed, and returns the first,
    /// whose tag is the caller's to set.
    fn claim_frames(
        &mut self,
        id: ZoneId,
        pfn: Pfn,
        order: Order,
    ) -> Result<FrameIndex, ImageError> {
        let frame = self.frames.index(pfn).ok_or(ImageError::Outside(pfn))?;
        let zone = &mut self.zones[id.index()];
        let end = frame + order.pages() as FrameIndex;
        if !pfn.0.is_multiple_of(order.pages()) {
            return Err(ImageError::Misaligned(pfn));
        }
        if !zone.has(frame) || end > zone.end {
            return Err(ImageError::Outside(pfn));
        }
        let taken = self.frames.tags(frame, order.pages() as usize);
        if let Some(at) = taken.iter().position(|&tag| tag != Tag::ABSENT) {
            return Err(ImageError::Overlap(Pfn(pfn.0 + at as u64)));
        }
        self.frames.set_inside(frame, end);
        zone.managed.0 += order.pages();
        Ok(frame)
    }

    /// Takes a picture of all that decides the allocator's next steps. Moves that are under way are left out: their
    /// blocks and targets count as in use. O(frames).
    ///
    /// # Errors
    /// [`TryReserveError`] when there is no memory for the picture.
    pub fn image(&self) -> Result<Image, TryReserveError> {
        let mut zones = Vec::new();
        for zone in &self.zones {
            zones.try_reserve(1)?;
            put(&mut zones, self.image_of(zone)?);
        }
        let mut used = Vec::new();
        for zone in &self.zones {
            let mut at = zone.start;
            while at < zone.end {
                let tag = self.frames.tag(at);
                match tag.kind() {
                    Kind::Absent | Kind::Inside => at += 1,
                    kind => {
                        if !matches!(kind, Kind::Free | Kind::PerCpu) {
                            let (pfn, order) = (self.frames.pfn(at), tag.order());
                            used.try_reserve(1)?;
                            put(&mut used, UsedBlock { pfn, order, movable: tag.is_movable() });
                        }
                        at += tag.order().pages() as FrameIndex;
                    }
                }
            }
        }
        used.sort_unstable_by_key(|block| block.pfn);
        Ok(Image { zones, used })
    }

    fn image_of(&self, zone: &Zone) -> Result<ZoneImage, TryReserveError> {
        let mut free = Vec::new();
        for (order, migratetype) in
            Order::all().flat_map(|order| Migratetype::ALL.map(|kind| (order, kind)))
        {
            self.add_list(&mut free, zone.lists.list(order, migratetype), order, migratetype)?;
        }
        let mut cpus = Vec::new();
        for rank in 0..zone.per_cpu.len() {
            cpus.try_reserve(1)?;
            put(&mut cpus, self.cpu_image(zone, rank)?);
        }
        let mut pageblocks = Vec::new();
        let mut at = zone.start & !(Order::PAGEBLOCK.pages() as FrameIndex - 1);
        while at < zone.end {
            let block = self.frames.block(at);
            let (migratetype, skip) = (block.migratetype, block.skip);
            pageblocks.try_reserve(1)?;
            put(&mut pageblocks, PageblockImage { pfn: self.frames.pfn(at), migratetype, skip });
            at += Order::PAGEBLOCK.pages() as FrameIndex;
        }
        let ZoneInfo { watermarks, boost, lowmem_reserve, .. } = zone.info();
        Ok(ZoneImage {
            watermarks,
            boost,
            lowmem_reserve,
            reserved_high_atomic: PageCount(zone.reserved_high_atomic),
            reclaim_active: zone.shortage.reclaims,
            below_high: zone.shortage.below_high,
            free,
            cpus,
            pageblocks,
            compaction: Self::compaction_image(zone),
        })
    }

    /// Adds a list, unless it is empty.
    fn add_list(
        &self,
        lists: &mut Vec<ListImage>,
        list: &List,
        order: Order,
        migratetype: Migratetype,
    ) -> Result<(), TryReserveError> {
        let next = |&frame: &FrameIndex| {
            let [_, behind] = self.frames.links(frame);
            (behind != NONE).then_some(behind)
        };
        let frames = core::iter::successors(list.first(), next);
        let blocks = gathered(frames.map(|frame| self.frames.pfn(frame)))?;
        if !blocks.is_empty() {
            lists.try_reserve(1)?;
            put(lists, ListImage { order, migratetype, blocks });
        }
        Ok(())
    }

    fn cpu_image(&self, zone: &Zone, rank: usize) -> Result<CpuImage, TryReserveError> {
        let (cpu, bounds) = (&zone.per_cpu[rank], zone.per_cpu_bounds);
        let Pace { high, doublings, freed, freed_large } = cpu.pace;
        let mut lists = Vec::new();
        for slot in Slot::all(self.policy.per_cpu) {
            self.add_list(&mut lists, cpu.list(slot), slot.order(), slot.migratetype())?;
        }
        Ok(CpuImage {
            batch: bounds.batch,
            high_min: bounds.least,
            high_max: bounds.most,
            high,
            factor: doublings,
            freed,
            freed_large,
            lists,
        })
    }

    pub(super) fn compaction_image(zone: &Zone) -> CompactionImage {
        let (at, flush) = zone.compaction.positions();
        let (considered, shift, order_failed) = zone.compaction.deferral.parts();
        CompactionImage {
            sources: at.sources,
            targets: at.targets,
            first_source: at.first_source,
            first_target: at.first_target,
            considered,
            shift,
            order_failed,
            flush,
        }
    }
}

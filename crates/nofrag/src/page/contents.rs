//! A machine that is taken over in the middle of its life: what was in use stays where it is, and all else is free.
//!
//! The work is a pass over the blocks in use. What lies between two of them enters the lists as the largest aligned
//! blocks that fit, in ascending order, as memory does that nobody uses. Nothing is counted, and no event is told.

use crate::lists::put;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use super::allocator::{PageAllocator, PageConfig, PageConfigError};
use super::build::largest_order;
use super::fallback::Extent;
use super::frames::{FrameIndex, Kind, Tag, buddy};
use super::map::MemoryMap;
use super::migratetype::Migratetype;
use super::policy::{FallbackRules, Relist};
use super::zone::ZoneId;
use crate::errors::{errors, turns_into};
use crate::event::EventSink;
use crate::units::{Order, Pfn};

/// Contents of memory that an allocator takes over. Every frame that is named nowhere is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents<'a> {
    /// The types of pageblocks, each by any frame of it. All others are movable.
    pub types: &'a [(Pfn, Migratetype)],
    /// Blocks in use whose content stays, in ascending order.
    pub fixed: &'a [(Pfn, Order)],
    /// Blocks in use whose content may be moved, in ascending order.
    pub movable: &'a [(Pfn, Order)],
    /// Free blocks on the list of another type than their pageblock's, each by its first frame. Only
    /// [loose rules](FallbackRules::Loose) know such.
    pub listed: &'a [(Pfn, Migratetype)],
}

errors! {
    /// Contradiction in [`Contents`], or between them and the machine.
    #[non_exhaustive]
    pub enum ContentsError {
        /// No machine has this configuration.
        Config(error: PageConfigError) => "{error}",
        /// Not all of the block that begins there is managed memory of one zone.
        Unknown(pfn: Pfn) => "the block at frame {pfn} is not managed memory of one zone",
        /// The frame is no multiple of its block's size.
        Misaligned(pfn: Pfn) => "no block of this order begins at frame {pfn}",
        /// The block that begins there does not lie behind the one before it.
        OutOfOrder(pfn: Pfn) =>
            "the block at frame {pfn} does not lie behind the one named before it",
        /// The pageblock of the frame is shared with another zone or a hole: nobody can set it aside as a whole.
        Straddles(pfn: Pfn) => "the pageblock of frame {pfn} is shared",
        /// No free block begins there.
        NotFree(pfn: Pfn) => "no free block begins at frame {pfn}",
        /// The free block that begins there is to be on the list of another type than its pageblock's, which the
        /// policy's rules do not allow.
        StrictLists(pfn: Pfn) =>
            "the policy lists the block at frame {pfn} under its pageblock's type",
    }
}

impl From<PageConfigError> for ContentsError {
    fn from(error: PageConfigError) -> ContentsError {
        ContentsError::Config(error)
    }
}

turns_into!(TryReserveError => ContentsError::Config(PageConfigError::OutOfMetadata));

/// A maximal run of frames that the allocator hands out.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: FrameIndex,
    end: FrameIndex,
    zone: ZoneId,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    frame: FrameIndex,
    order: Order,
    movable: bool,
}

impl<E: EventSink> PageAllocator<E> {
    /// Makes an allocator that takes over memory with `contents`, and reports to `events` from then on. Under strict
    /// lists two free pageblocks that are one block get one type.
    ///
    /// O(blocks in use, free blocks), and a tag for each frame.
    ///
    /// ```
    /// use nofrag::page::{Contents, FragmentationPolicy, MemoryMap, Migratetype, PageAllocator, PageConfig};
    /// use nofrag::units::{Order, PageCount, Pfn};
    ///
    /// let map = MemoryMap::uma(PageCount(4096), 0, 1)?;
    /// let config = PageConfig::new(map, FragmentationPolicy::LINUX_6_1);
    /// let slab = Pfn(1024);
    /// let contents = Contents {
    ///     types: &[(slab, Migratetype::Reclaimable)],
    ///     fixed: &[(slab, Order::COSTLY)],
    ///     ..Contents::default()
    /// };
    /// let pages = PageAllocator::with_contents(&config, &contents, ())?;
    /// let free = pages.zones().map(|zone| pages.free_pages(zone.id, Migratetype::Reclaimable).get());
    /// assert_eq!(free.sum::<u64>(), 512 - 8);
    /// # Ok::<(), Box<dyn core::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ContentsError`] says what does not fit.
    pub fn with_contents(
        config: &PageConfig,
        contents: &Contents<'_>,
        events: E,
    ) -> Result<Self, ContentsError> {
        let mut pages = PageAllocator::laid_out(config, events)?;
        for &(pfn, migratetype) in contents.types {
            pages.set_first_type(pfn, migratetype)?;
        }
        pages.occupy(&config.map, contents)?;
        for &(pfn, migratetype) in contents.listed {
            pages.list_under(pfn, migratetype)?;
        }
        Ok(pages)
    }

    /// Gives a pageblock, none of which is listed yet, its type.
    fn set_first_type(&mut self, pfn: Pfn, to: Migratetype) -> Result<(), ContentsError> {
        let frame = self.frames.index(pfn).ok_or(ContentsError::Unknown(pfn))?;
        let id = self.zone_at(frame).ok_or(ContentsError::Unknown(pfn))?;
        let zone = &mut self.zones[id.index()];
        let around = zone.surroundings(&self.frames, frame);
        if !to.is_mobility() && around.extent == Extent::Straddles {
            return Err(ContentsError::Straddles(pfn));
        }
        zone.count_reserve(around.migratetype, to);
        self.frames.block_mut(frame).migratetype = to;
        Ok(())
    }

    /// Tags the blocks in use, and lists the free memory between them.
    fn occupy(&mut self, map: &MemoryMap, contents: &Contents<'_>) -> Result<(), ContentsError> {
        let mut used = Merged { fixed: contents.fixed, movable: contents.movable }.peekable();
        let mut behind = 0;
        for run in self.runs(map)? {
            self.frames.set_inside(run.start, run.end);
            let mut free_from = run.start;
            while let Some(&(pfn, order, movable)) = used.peek() {
                let frame = self.frames.index(pfn).ok_or(ContentsError::Unknown(pfn))?;
                if frame >= run.end {
                    break;
                }
                if frame < behind.max(free_from) {
                    let why = if frame < behind {
                        ContentsError::OutOfOrder
                    } else {
                        ContentsError::Unknown
                    };
                    return Err(why(pfn));
                }
                let block = Block { frame, order, movable };
                behind = self.occupy_one(run, block)?;
                self.list_free(run.zone, free_from, frame);
                free_from = behind;
                used.next();
            }
            self.list_free(run.zone, free_from, run.end);
        }
        match used.next() {
            Some((pfn, ..)) => Err(ContentsError::Unknown(pfn)),
            None => Ok(()),
        }
    }

    /// Returns all managed memory, in ascending order.
    fn runs(&self, map: &MemoryMap) -> Result<Vec<Run>, ContentsError> {
        let mut runs = Vec::new();
        let zones = map.nodes().iter().flat_map(|node| &node.zones);
        for (zone, map) in self.zones.iter().zip(zones) {
            for range in map.managed() {
                let start = self.frames.index(range.start).expect("a zone's frames are known");
                runs.try_reserve(1)?;
                let end = start + range.pages.get() as FrameIndex;
                put(&mut runs, Run { start, end, zone: zone.id });
            }
        }
        runs.sort_unstable_by_key(|run| run.start);
        Ok(runs)
    }

    /// Tags a block in use, which begins in the run; returns the frame behind it.
    fn occupy_one(&mut self, run: Run, block: Block) -> Result<FrameIndex, ContentsError> {
        let Block { frame, order, movable } = block;
        let (pfn, pages) = (self.frames.pfn(frame), order.pages() as FrameIndex);
        if !frame.is_multiple_of(pages) {
            return Err(ContentsError::Misaligned(pfn));
        }
        if pages > run.end - frame {
            return Err(ContentsError::Unknown(pfn));
        }
        self.frames.set_tag(frame, Tag::new(Kind::Used, order).with_movable(movable));
        if movable {
            self.frames.each_block(frame, order, |block, pages| block.movable += pages);
        }
        Ok(frame + pages)
    }

    /// Lists the free frames from `start` to before `end`. No listed block of the zone touches them, so nothing is
    /// merged with others.
    fn list_free(&mut self, id: ZoneId, start: FrameIndex, end: FrameIndex) {
        let (zone, frames) = (&mut self.zones[id.index()], &mut self.frames);
        let mut frame = start;
        while frame < end {
            let migratetype = frames.block(frame).migratetype;
            let mut order = largest_order(frame, end);
            if order > Order::PAGEBLOCK {
                let other = buddy(frame, Order::PAGEBLOCK);
                if !zone.join_types(frames, other, Order::PAGEBLOCK, migratetype) {
                    order = Order::PAGEBLOCK;
                }
            }
            zone.lists.insert(frames, frame, order, migratetype, Relist::Tail);
            frame += order.pages() as FrameIndex;
        }
    }

    /// Puts a free block on the list of a type.
    fn list_under(&mut self, pfn: Pfn, migratetype: Migratetype) -> Result<(), ContentsError> {
        let frame = self.frames.index(pfn).ok_or(ContentsError::Unknown(pfn))?;
        if self.frames.tag(frame).kind() != Kind::Free {
            return Err(ContentsError::NotFree(pfn));
        }
        let own = self.frames.block(frame).migratetype;
        if migratetype != own && self.policy.fallback != FallbackRules::Loose {
            return Err(ContentsError::StrictLists(pfn));
        }
        let id = self.zone_of(frame);
        self.zones[id.index()].lists.relist(&mut self.frames, frame, migratetype, Relist::Tail);
        Ok(())
    }
}

/// Blocks of two lists, each in ascending order, merged in ascending order; the bool is true for those of `movable`.
struct Merged<'a> {
    fixed: &'a [(Pfn, Order)],
    movable: &'a [(Pfn, Order)],
}

impl Iterator for Merged<'_> {
    type Item = (Pfn, Order, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let first = |list: &[(Pfn, Order)]| list.first().map(|&(pfn, _)| pfn);
        let movable = match (first(self.fixed), first(self.movable)) {
            (Some(fixed), Some(movable)) => movable < fixed,
            (fixed, _) => fixed.is_none(),
        };
        let list = if movable { &mut self.movable } else { &mut self.fixed };
        list.split_off_first().map(|&(pfn, order)| (pfn, order, movable))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cpu, free_blocks, order, two_zones};
    use super::*;
    use crate::check::Check;
    use crate::page::PageCounters;
    use crate::page::map::{NodeMap, ZoneKind, ZoneMap};
    use crate::page::policy::FragmentationPolicy;
    use crate::units::PageCount;
    use Migratetype::{HighAtomic, Movable, Reclaimable, Unmovable};
    use alloc::vec;

    const LOOSE: FragmentationPolicy = FragmentationPolicy::LINUX_6_1;
    const STRICT: FragmentationPolicy = FragmentationPolicy::LINUX_6_12;

    fn load(
        policy: FragmentationPolicy,
        contents: &Contents<'_>,
    ) -> Result<PageAllocator, ContentsError> {
        PageAllocator::with_contents(&two_zones(policy), contents, ())
    }

    fn block(pfn: u64, number: u8) -> (Pfn, Order) {
        (Pfn(pfn), order(number))
    }

    #[test]
    fn nothing_in_use_is_all_free() {
        for policy in [LOOSE, STRICT] {
            let loaded = load(policy, &Contents::default()).expect("nothing contradicts");
            let fresh = PageAllocator::new(&two_zones(policy)).expect("there is memory");
            assert_eq!(free_blocks(&loaded), free_blocks(&fresh));
            loaded.check().expect("the laws hold");
        }
    }

    #[test]
    fn what_is_loaded_is_what_would_have_been_taken_one_by_one() {
        let fixed = [block(8, 3), block(16, 0), block(704, 6), block(4704, 0), block(5120, 9)];
        let movable =
            [block(17, 0), block(703, 0), block(4705, 0), block(7168, 10), block(12704, 0)];
        let types = [(Pfn(513), Unmovable), (Pfn(5120), Unmovable), (Pfn(5888), Reclaimable)];
        for policy in [LOOSE, STRICT, FragmentationPolicy::NOFRAG] {
            let contents =
                Contents { types: &types, fixed: &fixed, movable: &movable, listed: &[] };
            let loaded = load(policy, &contents).expect("nothing contradicts");
            let mut taken = PageAllocator::new(&two_zones(policy)).expect("there is memory");
            for (pfn, order) in fixed.into_iter().chain(movable) {
                taken.alloc_at(pfn, order).expect("it is free");
            }
            for (pfn, _) in movable {
                taken.set_movable(pfn, true).expect("it is in use");
            }
            for (pfn, to) in types {
                taken.set_block_type(pfn, to).expect("it is whole");
            }
            assert_eq!(free_blocks(&loaded), free_blocks(&taken));
            assert!(loaded.pageblocks().eq(taken.pageblocks()));
            let state = |pages: &PageAllocator, pfn| pages.frame(Pfn(pfn));
            assert!((0..12_800).all(|pfn| state(&loaded, pfn) == state(&taken, pfn)));
            loaded.check().expect("the laws hold");
        }
    }

    #[test]
    fn a_loaded_machine_serves_and_takes_back() {
        let (fixed, movable) = ([block(1024, 0), block(1026, 1)], [block(2048, 10)]);
        let types = [(Pfn(1024), Unmovable)];
        let contents = Contents { types: &types, fixed: &fixed, movable: &movable, listed: &[] };
        let mut pages = load(STRICT, &contents).expect("nothing contradicts");
        pages.check().expect("the laws hold");
        assert_eq!(pages.counters(), &PageCounters::default(), "nothing was asked for");
        for (pfn, _) in fixed.into_iter().chain(movable) {
            pages.free(cpu(), pfn).expect("it is in use");
        }
        pages.drain_all();
        pages.check().expect("the laws hold");
        let free: u64 = pages.zones().map(|zone| zone.free.0).sum();
        assert_eq!(free, 4697 + 7900);
    }

    fn fixed(fixed: &[(Pfn, Order)]) -> Contents<'_> {
        Contents { fixed, ..Contents::default() }
    }

    fn types(types: &[(Pfn, Migratetype)]) -> Contents<'_> {
        Contents { types, ..Contents::default() }
    }

    fn listed(listed: &[(Pfn, Migratetype)]) -> Contents<'_> {
        Contents { listed, ..Contents::default() }
    }

    #[track_caller]
    fn check_refused(policy: FragmentationPolicy, contents: Contents<'_>, why: ContentsError) {
        assert_eq!(load(policy, &contents).expect_err("it contradicts itself"), why);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        use ContentsError::{Misaligned, NotFree, OutOfOrder, Straddles, StrictLists, Unknown};
        check_refused(LOOSE, fixed(&[block(4, 0)]), Unknown(Pfn(4)));
        check_refused(LOOSE, fixed(&[block(701, 0)]), Unknown(Pfn(701)));
        check_refused(LOOSE, fixed(&[block(696, 3)]), Unknown(Pfn(696)));
        check_refused(LOOSE, fixed(&[block(4704, 1)]), Unknown(Pfn(4704)));
        check_refused(LOOSE, fixed(&[block(1 << 40, 0)]), Unknown(Pfn(1 << 40)));
        check_refused(LOOSE, fixed(&[block(12705, 0)]), Unknown(Pfn(12705)));
        check_refused(LOOSE, fixed(&[block(1025, 1)]), Misaligned(Pfn(1025)));
        check_refused(LOOSE, fixed(&[block(1024, 2), block(1027, 0)]), OutOfOrder(Pfn(1027)));
        check_refused(LOOSE, fixed(&[block(1024, 2), block(900, 0)]), OutOfOrder(Pfn(900)));
        let both =
            Contents { fixed: &[block(8, 0)], movable: &[block(8, 0)], ..Contents::default() };
        check_refused(LOOSE, both, OutOfOrder(Pfn(8)));
        check_refused(LOOSE, types(&[(Pfn(4800), HighAtomic)]), Straddles(Pfn(4800)));
        check_refused(LOOSE, types(&[(Pfn(99_999), Movable)]), Unknown(Pfn(99_999)));
        check_refused(LOOSE, listed(&[(Pfn(9), Unmovable)]), NotFree(Pfn(9)));
        check_refused(STRICT, listed(&[(Pfn(8), Unmovable)]), StrictLists(Pfn(8)));
    }

    #[test]
    fn loose_lists_may_differ_from_pageblocks_and_reserves_are_counted() {
        let (types, listed) = ([(Pfn(2047), HighAtomic)], [(Pfn(8), Unmovable)]);
        let contents = Contents { types: &types, listed: &listed, ..Contents::default() };
        let pages = load(LOOSE, &contents).expect("nothing contradicts");
        pages.check().expect("the laws hold");
        assert_eq!(pages.list_mismatches(), PageCount(8));
        assert_eq!(pages.zones[0].reserved_high_atomic, 512);
        let drawn = free_blocks(&pages);
        assert!(
            drawn.contains("1536H9") && drawn.contains("8U3") && drawn.contains("1024M9"),
            "{drawn}"
        );
    }

    #[test]
    fn pageblocks_of_one_free_block_get_one_type_under_strict_lists() {
        let check = |policy, drawn: &str| {
            let zones = vec![ZoneMap::new(ZoneKind::Normal, Pfn(0), PageCount(2048))];
            let map = MemoryMap::new(vec![NodeMap { cpus: vec![0], zones }], &[]);
            let config = PageConfig::new(map.expect("one zone is a machine"), policy);
            let contents = Contents { types: &[(Pfn(0), Unmovable)], ..Contents::default() };
            let pages = PageAllocator::with_contents(&config, &contents, ()).expect("it fits");
            pages.check().expect("the laws hold");
            assert_eq!(free_blocks(&pages), drawn);
            pages.block_type(Pfn(512))
        };
        assert_eq!(check(LOOSE, "0U10 1024M10"), Some(Movable));
        assert_eq!(check(STRICT, "0U10 1024M10"), Some(Unmovable));
    }
}

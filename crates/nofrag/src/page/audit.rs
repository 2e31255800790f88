//! The laws of the page allocator, and the check that names the one that broke.

use super::allocator::PageAllocator;
use super::boost;
use super::frames::{FrameIndex, Kind, NONE, Tag, buddy};
use super::free_lists::List;
use super::migratetype::Migratetype;
use super::per_cpu::Slot;
use super::policy::{FallbackRules, FragmentationPolicy};
use super::zone::Zone;
use crate::check::{Check, Violation};
use crate::event::EventSink;
use crate::units::{Order, Pfn};

const TILES: &str =
    "1. every managed frame belongs to one block, which begins at a multiple of its size";
const ONE_ZONE: &str = "2. a block lies in one zone";
const MERGED: &str = "3. two free buddies whose types may mix are one block";
const STRICT: &str = "4. under strict lists a free block is on the list of its pageblocks' type";
const LINKS: &str = "5. a list links its blocks forwards and backwards, and counts them";
const SUMS: &str = "6. a zone knows the free pages of each type, and which lists are empty";
const BLOCKS: &str = "7. a pageblock counts its free pages, and those in use that may be moved";
const PER_CPU: &str = "8. per-CPU lists hold free blocks of their order, and count their pages";
const MANAGED: &str = "9. managed pages are free, on per-CPU lists, on their way, or in use";
const BOOST: &str = "10. a boost stays below its bound, and exempt zones have none";
const RESERVE: &str = "11. the reserve for requests that may not wait is counted in pageblocks";
const LOWMEM: &str =
    "12. what a zone keeps from others grows with the zone that they could have used";
const FLIGHT: &str =
    "13. compaction knows how many pages it has set aside, and keeps none for itself";

impl<E: EventSink> Check for PageAllocator<E> {
    fn check(&self) -> Result<(), Violation> {
        for zone in &self.zones {
            let audit = Audit { pages: self, zone };
            audit.tiles()?;
            audit.free_lists()?;
            audit.per_cpu()?;
            audit.reserves()?;
            audit.flight()?;
        }
        self.check_pageblocks()
    }
}

struct Audit<'a, E: EventSink> {
    pages: &'a PageAllocator<E>,
    zone: &'a Zone,
}

impl<E: EventSink> Audit<'_, E> {
    fn pfn(&self, frame: FrameIndex) -> u64 {
        self.pages.frames.pfn(frame).0
    }

    /// Checks laws 1, 2, 3, 4 and 9 in a walk from block to block.
    fn tiles(&self) -> Result<(), Violation> {
        let Zone { start, end, .. } = *self.zone;
        let (mut at, mut managed) = (start, 0);
        while at < end {
            let tag = self.pages.frames.tag(at);
            match tag.kind() {
                Kind::Absent => at += 1,
                Kind::Inside => return Violation::unless(TILES, self.pfn(at), false),
                kind => {
                    let pages = tag.order().pages() as FrameIndex;
                    Violation::unless(TILES, self.pfn(at), at % pages == 0)?;
                    Violation::unless(ONE_ZONE, self.pfn(at), pages <= end - at)?;
                    let inside = self.pages.frames.tags(at, pages as usize)[1..].iter();
                    let alien = inside.filter(|&&tag| tag != Tag::INSIDE).count();
                    Violation::unless_equal(TILES, self.pfn(at), 0, alien as u64)?;
                    if kind == Kind::Free {
                        self.free_block(at, tag.order())?;
                    }
                    managed += u64::from(pages);
                    at += pages;
                }
            }
        }
        Violation::unless_equal(MANAGED, self.zone.id.index() as u64, self.zone.managed.0, managed)
    }

    fn free_block(&self, at: FrameIndex, order: Order) -> Result<(), Violation> {
        let frames = &self.pages.frames;
        let other = buddy(at, order);
        if order < Order::MAX && self.zone.is_free_at(frames, other, order) {
            // Under loose lists a page may have come back as what its pageblock was before, and joined as that.
            let types =
                [at, other].map(|frame| [frames.block(frame).migratetype, frames.listed(frame)]);
            let mix = types[0] == types[1] || types.iter().flatten().all(|it| it.is_mobility());
            Violation::unless(MERGED, self.pfn(at), !mix)?;
        }
        if self.pages.policy.fallback != FallbackRules::Loose {
            let listed = frames.listed(at) as u64;
            let halves = [at, at + (order.pages() - 1) as FrameIndex];
            for half in halves.map(|frame| frames.block(frame).migratetype as u64) {
                Violation::unless_equal(STRICT, self.pfn(at), half, listed)?;
            }
        }
        Ok(())
    }

    /// Checks laws 5 and 6 over all free lists.
    fn free_lists(&self) -> Result<(), Violation> {
        let lists = &self.zone.lists;
        let at = self.zone.id.index() as u64;
        let mut available = 0;
        for migratetype in Migratetype::ALL {
            let mut pages = 0;
            for order in Order::all() {
                let list = lists.list(order, migratetype);
                self.links(list, Tag::new(Kind::Free, order), Some(migratetype))?;
                let has = lists.orders(migratetype, order) >> order.get() & 1;
                Violation::unless_equal(SUMS, at, u64::from(!list.is_empty()), u64::from(has))?;
                pages += u64::from(list.len()) * order.pages();
            }
            Violation::unless_equal(SUMS, at, pages, lists.pages(migratetype))?;
            available += if migratetype == Migratetype::Isolate { 0 } else { pages };
        }
        Violation::unless_equal(SUMS, at, available, lists.total())
    }

    /// Checks law 5 for one list, all of whose blocks have this tag and, unless `listed` is `None`, are listed under
    /// this type.
    fn links(&self, list: &List, tag: Tag, listed: Option<Migratetype>) -> Result<(), Violation> {
        let frames = &self.pages.frames;
        let (mut before, mut at, mut count) = (NONE, list.first(), 0);
        while let Some(frame) = at {
            let is_here = self.zone.has(frame) && frames.tag(frame) == tag;
            let kind = listed.is_none_or(|kind| frames.listed(frame) == kind);
            Violation::unless(LINKS, self.pfn(frame), is_here && kind)?;
            let [back, next] = frames.links(frame);
            Violation::unless_equal(LINKS, self.pfn(frame), u64::from(before), u64::from(back))?;
            count += 1;
            Violation::unless(LINKS, self.pfn(frame), count <= list.len())?;
            (before, at) = (frame, (next != NONE).then_some(next));
        }
        let at = self.zone.id.index() as u64;
        Violation::unless_equal(LINKS, at, list.last().unwrap_or(NONE).into(), before.into())?;
        Violation::unless_equal(LINKS, at, list.len().into(), count.into())
    }

    /// Checks law 8 for every CPU.
    fn per_cpu(&self) -> Result<(), Violation> {
        let (mut on_lists, mut counted) = (0, 0);
        for lists in &self.zone.per_cpu {
            for order in Order::all() {
                let slots = Migratetype::MOBILITY
                    .map(|migratetype| Slot::of(order, migratetype, self.pages.policy.per_cpu));
                for (index, slot) in slots.iter().enumerate() {
                    if let Some(slot) = slot.filter(|slot| !slots[..index].contains(&Some(*slot))) {
                        self.links(lists.list(slot), Tag::new(Kind::PerCpu, order), None)?;
                        on_lists += u64::from(lists.list(slot).len()) * order.pages();
                    }
                }
            }
            counted += u64::from(lists.pages());
        }
        let tagged = self.pages_of(Kind::PerCpu);
        let at = self.zone.id.index() as u64;
        Violation::unless_equal(PER_CPU, at, tagged, on_lists)?;
        Violation::unless_equal(PER_CPU, at, on_lists, counted)
    }

    fn pages_of(&self, kind: Kind) -> u64 {
        let Zone { start, end, .. } = *self.zone;
        let (mut at, mut pages) = (start, 0);
        // That blocks follow each other is law 1, which was looked at before.
        while at < end {
            let tag = self.pages.frames.tag(at);
            let of_block = match tag.kind() {
                Kind::Absent | Kind::Inside => 1,
                _ => tag.order().pages(),
            };
            pages += if tag.kind() == kind { of_block } else { 0 };
            at += of_block as FrameIndex;
        }
        pages
    }

    /// Checks law 13 for the zone.
    fn flight(&self) -> Result<(), Violation> {
        let (set_aside, at) = (self.pages_of(Kind::Target), self.zone.id.index() as u64);
        let state = &self.zone.compaction;
        Violation::unless_equal(FLIGHT, at, state.in_flight, set_aside)?;
        Violation::unless(FLIGHT, at, state.capture.is_none())
    }

    /// Checks laws 10, 11 and 12.
    fn reserves(&self) -> Result<(), Violation> {
        let Zone { managed, ref marks, ref reserve, .. } = *self.zone;
        let at = self.zone.id.index() as u64;
        let policy =
            FragmentationPolicy { boost: self.pages.settings.largest_boost, ..self.pages.policy };
        let bound = boost::max_boost(marks.high, managed, &policy, self.pages.role);
        let bounded = self.zone.boost <= bound.unwrap_or(0);
        Violation::unless(BOOST, at, bounded)?;
        let shift = Order::PAGEBLOCK.get();
        let blocks = (self.zone.start >> shift)..self.zone.end.div_ceil(1 << shift);
        let kept = |&block: &FrameIndex| {
            self.pages.frames.block(block << shift).migratetype == Migratetype::HighAtomic
                && self.zone.has(block << shift)
        };
        let kept = blocks.filter(kept).count() as u64 * Order::PAGEBLOCK.pages();
        Violation::unless_equal(RESERVE, at, kept, self.zone.reserved_high_atomic)?;
        let grows = reserve.windows(2).all(|pair| pair[0] <= pair[1]);
        Violation::unless(LOWMEM, at, grows)
    }
}

impl<E: EventSink> PageAllocator<E> {
    /// Checks law 7 for the whole machine, as zones may share pageblocks.
    fn check_pageblocks(&self) -> Result<(), Violation> {
        let whole = Order::PAGEBLOCK.pages();
        let (mut free, mut movable) = (0, 0);
        for start in (0..self.frames.len() as FrameIndex).step_by(whole as usize) {
            for tag in self.frames.tags(start, whole as usize) {
                match tag.kind() {
                    Kind::Free => free += tag.order().pages(),
                    Kind::Used | Kind::Leaving if tag.is_movable() => {
                        movable += tag.order().pages()
                    }
                    _ => {}
                }
            }
            let (block, Pfn(at)) = (self.frames.block(start), self.frames.pfn(start));
            Violation::unless_equal(BLOCKS, at, free.min(whole), u64::from(block.free))?;
            Violation::unless_equal(BLOCKS, at, movable.min(whole), u64::from(block.movable))?;
            // What is left belongs to a block that goes on in the next pageblock.
            free = free.saturating_sub(whole);
            movable = movable.saturating_sub(whole);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::two_zones;
    use super::*;
    use crate::cpu::{CpuId, CpuSet};
    use crate::page::PageRequest;
    use crate::page::walk::{AllocFlags, Walk};
    use crate::units::Nanos;
    use alloc::vec;
    use alloc::vec::Vec;

    fn machine(policy: FragmentationPolicy) -> PageAllocator {
        PageAllocator::new(&two_zones(policy)).expect("there is memory")
    }

    struct Chance(u64);

    impl Chance {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % bound
        }
    }

    fn small_order(chance: &mut Chance) -> Order {
        let order = [0, 0, 0, 0, 1, 2, 3, 4, 7, 9, 10][chance.below(11) as usize];
        Order::new(order).expect("it is one")
    }

    /// Performs one random operation; `live` are the blocks in use.
    fn act(pages: &mut PageAllocator, live: &mut Vec<Pfn>, cpu: CpuId, chance: &mut Chance) {
        let anywhere = Pfn(chance.below(12_800));
        match chance.below(100) {
            0..=44 => {
                let order = small_order(chance);
                let migratetype = Migratetype::MOBILITY[chance.below(3) as usize];
                let request = PageRequest::new(order, migratetype);
                let flags = AllocFlags::NO_WATERMARKS.with(chance.below(1 << 8) as u16);
                if let Walk::Block(frame) = pages.walk(cpu, &request, flags) {
                    let pfn = pages.handed_out(frame, &request);
                    live.push(pfn);
                }
            }
            45..=80 if live.len() > 900 || chance.below(4) == 0 && !live.is_empty() => {
                let pfn = live.swap_remove(chance.below(live.len() as u64) as usize);
                pages.free(cpu, pfn).expect("it is in use");
            }
            81..=90 if !live.is_empty() => {
                let pfn = live[chance.below(live.len() as u64) as usize];
                pages.set_movable(pfn, chance.below(3) > 0).expect("it is in use");
            }
            91..=92 => {
                if pages.alloc_at(anywhere, small_order(chance)).is_ok() {
                    live.push(anywhere);
                }
            }
            93 => {
                let kind = Migratetype::ALL[chance.below(6) as usize];
                let _ = pages.set_block_type(anywhere, kind);
            }
            94 => pages.drain(cpu),
            95 => pages.age_per_cpu(),
            96 => {
                let request = PageRequest::new(Order::ZERO, Migratetype::Unmovable);
                let least = crate::page::reserve::Least::None;
                pages.release_high_atomic(cpu, &request, least);
            }
            97 => {
                let mut out = [Pfn(0); 40];
                let request = PageRequest::new(Order::ZERO, Migratetype::Movable);
                let got = pages.alloc_bulk(Nanos(0), cpu, request, &mut out);
                pages.free_bulk(cpu, &out[..got]).expect("they are in use");
            }
            _ => {
                let is_live = live.contains(&anywhere);
                assert!(is_live || pages.free(cpu, anywhere).is_err(), "nobody has {anywhere}");
            }
        }
    }

    #[test]
    fn laws_hold_whatever_is_done() {
        for preset in FragmentationPolicy::PRESETS {
            let mut pages = machine(preset.policy);
            let cpus = CpuSet::new([0, 3]).expect("there is memory");
            let (mut live, mut chance) = (vec![], Chance(11));
            for step in 0..3000 {
                let cpu = cpus.by_rank(chance.below(2) as usize).expect("there are two");
                act(&mut pages, &mut live, cpu, &mut chance);
                if step % 8 == 0 {
                    pages
                        .check()
                        .unwrap_or_else(|law| panic!("{}: step {step}: {law}", preset.name));
                }
            }
            assert!(pages.counters.events() > 20, "{}: types mix", preset.name);
            let cpu = cpus.by_rank(0).expect("there are two");
            pages.free_bulk(cpu, &live).expect("they are in use");
            pages.drain_all();
            pages.check().expect("all is free");
            let free: u64 = pages.zones().map(|zone| zone.free.0).sum();
            let isolated = |zone: &Zone| zone.lists.pages(Migratetype::Isolate);
            let isolated: u64 = pages.zones.iter().map(isolated).sum();
            assert_eq!(free + isolated, 4700 - 3 + 8000 - 100, "{}", preset.name);
        }
    }

    /// Breaks a sound allocator with `harm`, and expects `check` to name `law`.
    #[track_caller]
    fn check_broken(law: &str, harm: impl Fn(&mut PageAllocator)) {
        let mut pages = machine(FragmentationPolicy::LINUX_7_2);
        pages.check().expect("nothing is broken yet");
        harm(&mut pages);
        let found = pages.check().expect_err("it is broken").law;
        assert_eq!(found, law);
    }

    #[test]
    fn every_broken_law_is_named() {
        use crate::page::policy::Relist;
        check_broken(TILES, |pages| pages.frames.set_tag(2100, Tag::ABSENT));
        check_broken(MERGED, |pages| {
            let zone = &mut pages.zones[0];
            let (order, kind) = zone.lists.remove(&mut pages.frames, 2048);
            let half = order.smaller().expect("it is a large block");
            for at in [2048, buddy(2048, half)] {
                zone.lists.insert(&mut pages.frames, at, half, kind, Relist::Tail);
            }
        });
        check_broken(STRICT, |pages| {
            pages.frames.block_mut(2048).migratetype = Migratetype::Reclaimable;
        });
        check_broken(LINKS, |pages| pages.frames.links_mut(2048)[0] = 4);
        check_broken(BLOCKS, |pages| pages.frames.block_mut(2048).movable += 1);
        check_broken(MANAGED, |pages| pages.zones[1].managed.0 += 1);
        check_broken(FLIGHT, |pages| pages.zones[1].compaction.in_flight += 1);
        check_broken(BOOST, |pages| pages.zones[1].boost = 1 << 40);
        check_broken(RESERVE, |pages| pages.zones[1].reserved_high_atomic += 512);
        check_broken(LOWMEM, |pages| pages.zones[0].reserve[0] = 1 << 40);
        check_broken(PER_CPU, |pages| {
            let zone = &mut pages.zones[0];
            zone.lists.remove(&mut pages.frames, 2048);
            let tag = Tag::new(Kind::PerCpu, Order::MAX);
            pages.frames.set_tag(2048, tag);
        });
    }
}

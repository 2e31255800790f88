//! One pass over a request's zonelist (`get_page_from_freelist`), under flags that say what it may do.
//!
//! Rules: docs/sources/pages.md#patch-1, pages.md#frames-zones.

use super::allocator::PageAllocator;
use super::frames::FrameIndex;
use super::map::NodeId;
use super::migratetype::Migratetype;
use super::per_cpu::Slot;
use super::policy::{Fixes, KswapdFlag, PerCpuRules, Spread};
use super::request::{PageRequest, RequestFlags};
use super::steal::{Rung, Taken, ZoneRequest};
use super::zone::ZoneId;
use crate::cpu::CpuId;
use crate::event::EventSink;
use crate::units::Order;

/// Rights of a pass: Linux's `ALLOC_*` flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AllocFlags {
    /// The watermark that must hold; without one none does (`ALLOC_NO_WATERMARKS`).
    pub(super) mark: Option<Mark>,
    bits: u16,
}

/// A watermark: `ALLOC_WMARK_MIN`, `ALLOC_WMARK_LOW` or `ALLOC_WMARK_HIGH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Min,
    Low,
    High,
}

impl AllocFlags {
    /// Free blocks of another type that are smaller than a pageblock are left alone.
    pub(super) const NO_FRAGMENT: u16 = 1;
    /// kswapd may be woken by the pass.
    pub(super) const KSWAPD: u16 = 1 << 1;
    /// Patch 5: small free blocks of another type are spared, and the pass ends as [`Walk::Spared`].
    pub(super) const FRAGMENT_STALL: u16 = 1 << 2;
    /// `ALLOC_MIN_RESERVE`: may go down to half of the watermark.
    pub(super) const MIN_RESERVE: u16 = 1 << 3;
    /// `ALLOC_NON_BLOCK`: with `MIN_RESERVE`, may go down a quarter more.
    pub(super) const NON_BLOCK: u16 = 1 << 4;
    /// `ALLOC_OOM`: may go down to half of what would hold without it.
    pub(super) const OOM: u16 = 1 << 5;
    /// May take from HIGHATOMIC blocks, and set them aside.
    pub(super) const HIGH_ATOMIC: u16 = 1 << 6;
    /// May take from CMA blocks.
    pub(super) const CMA: u16 = 1 << 7;

    /// Nodes whose kswapd is awake come last (docs/sources/pages.md#b-25).
    pub(super) const SKIP_AWAKE: u16 = 1 << 8;

    pub(super) const NO_WATERMARKS: AllocFlags = AllocFlags { mark: None, bits: 0 };

    pub(super) const fn at(mark: Mark) -> AllocFlags {
        AllocFlags { mark: Some(mark), bits: 0 }
    }

    pub(super) const fn with(self, bits: u16) -> AllocFlags {
        AllocFlags { bits: self.bits | bits, ..self }
    }

    pub(super) const fn without(self, bits: u16) -> AllocFlags {
        AllocFlags { bits: self.bits & !bits, ..self }
    }

    /// Returns the flags with no mark that must hold (`ALLOC_NO_WATERMARKS`).
    pub(super) const fn without_mark(self) -> AllocFlags {
        AllocFlags { mark: None, ..self }
    }

    pub(super) const fn has(self, bits: u16) -> bool {
        self.bits & bits == bits
    }
}

/// Path of the allocator that a pass is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    Fast,
    /// Passes that follow reclaim, compaction and waiting.
    Slow,
}

/// End of the passes over a zonelist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// This block was taken; it is tagged as used.
    Block(FrameIndex),
    /// No zone had a block.
    Exhausted,
    /// No zone had a block, and the request shall wait for the kswapd of this zone, its first, before it mixes types
    /// (patch 5).
    Spared(ZoneId),
    /// No zone may serve the request, or the request names a type that only pageblocks have.
    NoZone,
}

/// End of a single pass over the zonelist.
enum Pass {
    Block(FrameIndex),
    Exhausted,
    /// The pass came to a zone of another node than the first one's.
    LeftNode,
    NoZone,
}

impl<E: EventSink> PageAllocator<E> {
    /// Returns the node that a request begins with.
    pub(super) fn home(&self, cpu: CpuId, request: &PageRequest) -> NodeId {
        let of_cpu = || self.cpu_nodes.get(cpu.rank()).copied().unwrap_or_default();
        request.node.unwrap_or_else(of_cpu)
    }

    /// Returns the first zone of the request's zonelist (`preferred_zoneref`).
    pub(super) fn preferred_zone(&self, cpu: CpuId, request: &PageRequest) -> Option<ZoneId> {
        let node = self.nodes.get(self.home(cpu, request).index())?;
        let is_allowed = |id: &ZoneId| self.zones[id.index()].is_allowed(request);
        node.zonelist.of(request).iter().copied().find(is_allowed)
    }

    /// Returns the flags that patches 1 and 3 add to those of a pass: not to mix types, and that kswapd may be woken
    /// (`alloc_flags_nofragment`). `path` says for which pass.
    pub(super) fn fragment_flags(&self, cpu: CpuId, request: &PageRequest, path: Path) -> u16 {
        let exists = |fix| self.has_dma32 || self.policy.fixes.has(fix);
        let carried = self.policy.kswapd_flag == KswapdFlag::Carried
            && request.flags.has(RequestFlags::KSWAPD_RECLAIM);
        let exists_here = path == Path::Slow || exists(Fixes::KSWAPD_WITHOUT_DMA32);
        let spread = exists(Fixes::SPREAD_WITHOUT_DMA32)
            && match self.policy.spread {
                Spread::Off | Spread::Lost => false,
                Spread::FastPath => path == Path::Fast && self.can_spread(cpu, request),
                Spread::EveryRequest => true,
            };
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        flag(carried && exists_here, AllocFlags::KSWAPD) | flag(spread, AllocFlags::NO_FRAGMENT)
    }

    /// Returns true if requests that prefer the same zone may look in the one below before they mix types.
    fn can_spread(&self, cpu: CpuId, request: &PageRequest) -> bool {
        self.preferred_zone(cpu, request).is_some_and(|zone| self.zones[zone.index()].spreads)
    }

    /// Goes over the zonelist, and again when `NO_FRAGMENT` has to be given up: because the walk would leave the node,
    /// and locality is worth more, or because no zone can keep it. `EveryRequest` keeps it; only the slow path gives it
    /// up.
    pub(super) fn walk(&mut self, cpu: CpuId, request: &PageRequest, flags: AllocFlags) -> Walk {
        if !request.migratetype.is_mobility() {
            return Walk::NoZone;
        }
        let mut flags = flags;
        loop {
            let ended = self.pass(cpu, request, flags);
            match ended {
                Pass::Block(frame) => return Walk::Block(frame),
                Pass::NoZone => return Walk::NoZone,
                Pass::Exhausted if flags.has(AllocFlags::SKIP_AWAKE) => {
                    flags = flags.without(AllocFlags::SKIP_AWAKE);
                }
                Pass::Exhausted | Pass::LeftNode if flags.has(AllocFlags::FRAGMENT_STALL) => {
                    let first = self.preferred_zone(cpu, request);
                    return first.map_or(Walk::NoZone, Walk::Spared);
                }
                Pass::Exhausted if !self.may_give_up_spread(flags) => return Walk::Exhausted,
                Pass::Exhausted | Pass::LeftNode => {
                    flags = flags.without(AllocFlags::NO_FRAGMENT);
                    self.counters.spread_given_up += 1;
                }
            }
        }
    }

    fn may_give_up_spread(&self, flags: AllocFlags) -> bool {
        flags.has(AllocFlags::NO_FRAGMENT) && self.policy.spread != Spread::EveryRequest
    }

    fn pass(&mut self, cpu: CpuId, request: &PageRequest, flags: AllocFlags) -> Pass {
        let home = self.home(cpu, request).index();
        let stays = self.may_give_up_spread(flags) || flags.has(AllocFlags::FRAGMENT_STALL);
        let (mut first, mut left) = (None, false);
        for index in 0..self.nodes.get(home).map_or(0, |node| node.zonelist.of(request).len()) {
            let id = self.nodes[home].zonelist.of(request)[index];
            let zone = &self.zones[id.index()];
            if !zone.is_allowed(request) {
                continue;
            }
            if flags.has(AllocFlags::SKIP_AWAKE) && self.nodes[zone.node.index()].kswapd.awake {
                left = true;
                continue;
            }
            if *first.get_or_insert(zone.node) != zone.node && stays && !left {
                return Pass::LeftNode;
            }
            if !self.may_serve(id, request, flags) {
                continue;
            }
            let PageRequest { order, migratetype, .. } = *request;
            let wanted = ZoneRequest { zone: id, order, migratetype, flags };
            let taken = self.take(cpu, wanted);
            self.wake_boosted(id);
            if let Taken::Block(frame) = taken {
                return Pass::Block(frame);
            }
        }
        if first.is_some() || left { Pass::Exhausted } else { Pass::NoZone }
    }

    /// Returns true if the zone stands above the watermark of the pass. From 6.7 on a zone that does not stand above
    /// its high watermark is noted: its per-CPU lists keep less then.
    fn may_serve(&mut self, id: ZoneId, request: &PageRequest, flags: AllocFlags) -> bool {
        let (order, highest) = (request.order, request.zone);
        let zone = &mut self.zones[id.index()];
        if self.policy.per_cpu == PerCpuRules::Tuned
            && flags.mark.is_some()
            && !zone.shortage.below_high
        {
            if zone.keeps(zone.mark(Mark::High), order, highest, flags) {
                return true;
            }
            zone.shortage.below_high = true;
        }
        zone.admits(order, highest, flags, self.policy.fixes)
    }

    /// Returns true if the CPU's list may hold blocks of CMA, which the request must not have: they lie among the
    /// movable ones.
    fn may_meet_cma(&self, wanted: ZoneRequest) -> bool {
        self.zones[wanted.zone.index()].cma_blocks > 0
            && wanted.migratetype == Migratetype::Movable
            && !wanted.flags.has(AllocFlags::CMA)
    }

    /// Takes a block from a zone: from the CPU's lists if they hold such blocks, else from the zone's (`rmqueue`).
    fn take(&mut self, cpu: CpuId, wanted: ZoneRequest) -> Taken {
        let reserve = wanted.flags.has(AllocFlags::HIGH_ATOMIC) && wanted.order > Order::ZERO;
        if !reserve
            && !self.may_meet_cma(wanted)
            && self.has_lists(cpu)
            && let Some(slot) = Slot::of(wanted.order, wanted.migratetype, self.policy.per_cpu)
        {
            return self.take_cached(cpu, wanted, slot);
        }
        if reserve && let Some(frame) = self.take_from(wanted, Migratetype::HighAtomic) {
            return Taken::Block(frame);
        }
        let taken = self.take_block(wanted, &mut Rung::default());
        match taken {
            Taken::Block(frame) if reserve => {
                self.reserve_high_atomic(wanted.zone, frame);
                taken
            }
            Taken::Nothing if wanted.flags.has(AllocFlags::OOM) => {
                let kept = self.take_from(wanted, Migratetype::HighAtomic);
                kept.map_or(taken, Taken::Block)
            }
            _ => taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::map::{MemoryMap, NodeMap, ZoneMap};
    use super::super::policy::FragmentationPolicy;
    use super::super::testing::{self, cpu};
    use super::super::{MinFree, PageConfig, ZoneKind};
    use super::*;
    use crate::units::{PageCount, Pfn};
    use Migratetype::{Movable, Reclaimable};
    use alloc::vec;

    /// Makes a node with DMA32 of 16 pageblocks and Normal of 8, and another with Normal of 8. In node 0's Normal only
    /// pages of reclaimable pageblocks are free.
    fn machine(policy: FragmentationPolicy, nodes: usize) -> PageAllocator {
        let zone = |kind, start: u64, blocks: u64| {
            ZoneMap::new(kind, Pfn(start * 512), PageCount(blocks * 512))
        };
        let near = vec![zone(ZoneKind::Dma32, 0, 16), zone(ZoneKind::Normal, 16, 8)];
        let far = vec![zone(ZoneKind::Normal, 24, 8)];
        let map = [(vec![0], near), (vec![1], far)].map(|(cpus, zones)| NodeMap { cpus, zones });
        let map = MemoryMap::new(map.into_iter().take(nodes).collect(), &[]).expect("a machine");
        let config = PageConfig { min_free: MinFree::Pages(0), ..PageConfig::new(map, policy) };
        let mut pages = PageAllocator::new(&config).expect("there is memory");
        for zone in &mut pages.zones {
            zone.reserve = [0; ZoneKind::COUNT];
            zone.grouping = super::super::fallback::Grouping::ByType;
        }
        for frame in 16 * 512..24 * 512 {
            pages.alloc_at(Pfn(frame), Order::ZERO).expect("all is free");
        }
        for block in 16..24 {
            pages.set_block_type(Pfn(block * 512), Reclaimable).expect("it is whole");
            for frame in (0..512).step_by(2) {
                pages.free(cpu(), Pfn(block * 512 + frame)).expect("it is in use");
            }
        }
        pages.drain_all();
        pages
    }

    /// Returns where a movable page comes from: the zone's number, events, and passes without the flag.
    fn served(pages: &mut PageAllocator) -> (usize, u64, u64) {
        let request = PageRequest::user(Order::ZERO);
        let pfn = pages.alloc(crate::units::Nanos(0), cpu(), request).expect("there is memory");
        let frame = pages.frames.index(pfn).expect("it was handed out");
        let counted = pages.counters();
        (pages.zone_of(frame).index(), counted.events(), counted.spread_given_up)
    }

    /// Raises the low and high watermarks of a zone beyond its size: nothing more can be had from it above them.
    fn exhaust(pages: &mut PageAllocator, zone: usize) {
        let marks = &mut pages.zones[zone].marks;
        (marks.low, marks.high) = (1 << 30, 1 << 30);
    }

    /// Pages of a refill from so small a zone, each of which is an event.
    const BATCH: u64 = 1;

    #[test]
    fn a_request_looks_in_the_zone_below_before_it_mixes_types() {
        let check = |policy, is| assert_eq!(served(&mut machine(policy, 1)), is);
        check(FragmentationPolicy::LINUX_4_20, (1, BATCH, 0));
        check(FragmentationPolicy::PATCH_1, (0, 0, 0));
        check(FragmentationPolicy::PATCHES_1_5, (0, 0, 0));
        check(FragmentationPolicy::LINUX_5_0, (1, BATCH, 0));
        check(FragmentationPolicy::LINUX_5_3, (0, 0, 0));
    }

    #[test]
    fn where_the_zone_below_has_too_little_the_flag_is_given_up_once() {
        let mut pages = machine(FragmentationPolicy::PATCH_1, 1);
        exhaust(&mut pages, 0);
        assert_eq!(served(&mut pages), (1, BATCH, 1));
    }

    #[test]
    fn locality_is_worth_more_than_unmixed_types() {
        let mut pages = machine(FragmentationPolicy::PATCH_1, 2);
        assert_eq!(served(&mut pages), (0, 0, 0));
        exhaust(&mut pages, 0);
        assert_eq!(served(&mut pages), (1, BATCH, 1));
        let mut pages = machine(FragmentationPolicy::LINUX_7_2_DEFRAG, 2);
        exhaust(&mut pages, 0);
        assert_eq!(served(&mut pages), (2, 0, 0), "in defrag mode it is not");
    }

    #[test]
    fn nodes_that_reclaim_come_last() {
        let mut pages = machine(FragmentationPolicy::LINUX_7_2, 2);
        let take = |pages: &mut PageAllocator| served(pages).0;
        assert_eq!(take(&mut pages), 0);
        pages.nodes[0].kswapd.awake = true;
        assert_eq!(take(&mut pages), 2);
        exhaust(&mut pages, 2);
        assert_eq!(take(&mut pages), 0, "if nobody else has any");
    }

    #[test]
    fn who_must_not_borrow_gets_no_page_of_cma() {
        let mut pages = testing::full_zone(2, FragmentationPolicy::LINUX_7_2);
        pages.set_block_type(Pfn(0), Migratetype::Cma).expect("it is whole");
        pages.free(cpu(), Pfn(3)).expect("it is in use");
        let mut take = |bits| testing::take_under(&mut pages, 0, Movable, bits);
        assert_eq!([take(0), take(AllocFlags::CMA)], [None, Some(Pfn(3))]);
        pages.free(cpu(), Pfn(3)).expect("it is in use");
        pages.drain_all();
        let mut take = |bits| testing::take_under(&mut pages, 0, Movable, bits);
        assert_eq!([take(0), take(AllocFlags::CMA)], [None, Some(Pfn(3))]);
        assert_eq!(pages.counters().mistyped, [0; Migratetype::COUNT]);
    }

    /// Since 6.7, and only where the request heeds a watermark.
    #[test]
    fn a_zone_below_its_high_watermark_is_noted() {
        let noted = |policy, heeds: bool| {
            let mut pages = testing::zone(8, policy);
            pages.zones[0].marks.high = 1 << 30;
            match heeds {
                true => _ = served(&mut pages),
                false => _ = testing::take(&mut pages, 0, Movable),
            }
            pages.zones[0].shortage.below_high
        };
        assert!(noted(FragmentationPolicy::LINUX_7_2, true));
        assert!(!noted(FragmentationPolicy::LINUX_7_2, false));
        assert!(!noted(FragmentationPolicy::LINUX_6_1, true));
    }

    #[test]
    fn a_right_that_is_given_twice_stays() {
        let once = AllocFlags::at(Mark::Min).with(AllocFlags::CMA);
        assert!(once.with(AllocFlags::CMA | AllocFlags::OOM).has(AllocFlags::CMA));
    }

    #[test]
    fn types_that_only_pageblocks_have_cannot_be_asked_for() {
        let mut pages = testing::zone(2, FragmentationPolicy::LINUX_7_2);
        pages.set_block_type(Pfn(0), Migratetype::Isolate).expect("it is whole");
        assert_eq!(testing::take(&mut pages, 0, Migratetype::Isolate), None);
    }
}

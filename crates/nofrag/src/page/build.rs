//! An allocator from a memory map, and the settings that can be changed while it runs.
//!
//! Memory enters the lists as the largest aligned blocks that fit between holes and reservations, in ascending order,
//! so the work grows with the blocks and not with the frames (but for one tag a frame). All pageblocks begin movable.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;

use super::allocator::{MinFree, Node, PageAllocator, PageConfig, PageConfigError};
use super::compaction::ZoneCompaction;
use super::event::PageCounters;
use super::fallback::Grouping;
use super::frames::{FrameIndex, Frames};
use super::free_lists::FreeLists;
use super::kcompactd::KcompactdBox;
use super::kswapd::KswapdBox;
use super::map::{MemoryMap, NodeId, PfnRange, ZoneKind, ZoneMap};
use super::migratetype::Migratetype;
use super::per_cpu::{Bounds, PerCpuPages, Shortage};
use super::policy::{Boost, Choice, FallbackRules, Fixes, Relist};
use super::watermark;
use super::zone::{Watermarks, Zone, ZoneId};
use super::zonelist::zonelists;
use crate::event::EventSink;
use crate::lists::{filled, put};
use crate::units::{Order, PageCount};

/// Settings from which the watermarks of all zones are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// The boost with the largest factor that was ever set.
    pub(super) largest_boost: Option<Boost>,
    min_free: MinFree,
    watermark_scale_factor: u32,
    lowmem_reserve_ratio: [u32; ZoneKind::COUNT],
}

impl PageAllocator {
    /// Makes an allocator whose memory is all free.
    ///
    /// # Errors
    /// [`PageConfigError`].
    pub fn new(config: &PageConfig) -> Result<PageAllocator, PageConfigError> {
        PageAllocator::with_events(config, ())
    }
}

impl<E: EventSink> PageAllocator<E> {
    /// Makes an allocator whose memory is all free, and which reports to `events`.
    ///
    /// # Errors
    /// [`PageConfigError`].
    pub fn with_events(config: &PageConfig, events: E) -> Result<Self, PageConfigError> {
        let mut pages = PageAllocator::laid_out(config, events)?;
        pages.fill(&config.map);
        Ok(pages)
    }

    /// Makes an allocator of whose memory nothing is in use, and nothing on the lists yet.
    pub(super) fn laid_out(config: &PageConfig, events: E) -> Result<Self, PageConfigError> {
        check_scale(config.watermark_scale_factor)?;
        let mut pages = PageAllocator::without_settings(config, events)
            .map_err(|_: TryReserveError| PageConfigError::OutOfMetadata)?;
        pages.recompute_reserves();
        pages.recompute_marks();
        pages.decide_grouping();
        Ok(pages)
    }

    /// Makes an allocator without the values that follow from the settings.
    fn without_settings(config: &PageConfig, events: E) -> Result<Self, TryReserveError> {
        let map = &config.map;
        let mut frames = Frames::new(map)?;
        let zones = zones(config, &mut frames)?;
        let mut nodes = Vec::new();
        nodes.try_reserve_exact(map.nodes().len())?;
        for (number, zonelist) in zonelists(map, &zones)?.into_iter().enumerate() {
            put(
                &mut nodes,
                Node {
                    id: NodeId(number as u8),
                    zonelist,
                    kswapd: KswapdBox::default(),
                    kcompactd: KcompactdBox::default(),
                },
            );
        }
        let kinds = map.nodes().iter().flat_map(|node| &node.zones).map(|zone| zone.kind);
        let has_dma32 = kinds.into_iter().any(|kind| kind == ZoneKind::Dma32);
        Ok(PageAllocator {
            frames,
            zones,
            nodes,
            cpu_nodes: cpu_nodes(map)?,
            has_dma32,
            policy: config.policy,
            role: config.role,
            settings: Settings {
                largest_boost: config.policy.boost,
                min_free: config.min_free,
                watermark_scale_factor: config.watermark_scale_factor,
                lowmem_reserve_ratio: config.lowmem_reserve_ratio,
            },
            warned: None,
            counters: PageCounters::default(),
            events,
        })
    }

    /// Puts all memory on the lists.
    fn fill(&mut self, map: &MemoryMap) {
        let zones = map.nodes().iter().flat_map(|node| &node.zones);
        for (zone, map) in self.zones.iter_mut().zip(zones) {
            for range in map.managed() {
                fill(zone, &mut self.frames, range);
            }
        }
    }

    /// Sets the reserve of free pages (`min_free_kbytes`), and computes all watermarks anew, which ends boosts.
    pub fn set_min_free(&mut self, min_free: MinFree) {
        self.settings.min_free = min_free;
        self.recompute_marks();
    }

    /// Sets the distance between watermarks, in 1/10000 of a zone, and computes all of them anew, which ends boosts.
    ///
    /// # Errors
    /// [`PageConfigError::WatermarkScaleFactor`] outside 1 to 3000.
    pub fn set_watermark_scale_factor(&mut self, factor: u32) -> Result<(), PageConfigError> {
        check_scale(factor)?;
        self.settings.watermark_scale_factor = factor;
        self.recompute_marks();
        Ok(())
    }

    /// Sets the most that watermarks rise after types have mixed in a zone, in 1/10000 of its high watermark; 0 turns
    /// boosts off (`watermark_boost_factor`). A present boost stays until kswapd is done.
    ///
    /// # Errors
    /// [`PageConfigError::NoBoost`] if the policy has none.
    pub fn set_boost_factor(&mut self, factor: u32) -> Result<(), PageConfigError> {
        let boost = self.policy.boost.as_mut().ok_or(PageConfigError::NoBoost)?;
        *boost = Boost { factor };
        let largest = self.settings.largest_boost.map_or(0, |boost| boost.factor);
        self.settings.largest_boost = Some(Boost { factor: factor.max(largest) });
        Ok(())
    }

    /// Sets, by kind of zone, the divisor of the pages that a zone withholds from requests that could use higher ones
    /// (`lowmem_reserve_ratio`); 0 withholds nothing.
    pub fn set_lowmem_reserve_ratio(&mut self, ratio: [u32; ZoneKind::COUNT]) {
        self.settings.lowmem_reserve_ratio = ratio;
        self.recompute_reserves();
    }

    /// Returns the pages that no process can count on (`totalreserve_pages`): for each zone its high watermark and the
    /// most that it withholds.
    #[must_use]
    pub fn total_reserve(&self) -> PageCount {
        PageCount(self.zones.iter().map(Zone::total_reserve).sum())
    }

    fn recompute_reserves(&mut self) {
        for node in 0..self.nodes.len() {
            let node = self.nodes[node].id;
            let mut managed = [0; ZoneKind::COUNT];
            for zone in self.zones.iter().filter(|zone| zone.node == node) {
                managed[zone.kind.index()] = zone.managed.get();
            }
            let reserve = watermark::lowmem_reserve(managed, self.settings.lowmem_reserve_ratio);
            for zone in self.zones.iter_mut().filter(|zone| zone.node == node) {
                zone.reserve = reserve[zone.kind.index()];
            }
        }
    }

    /// Computes all watermarks from the settings, and ends boosts. Without [`Fixes::BOOST_ZEROED`] a boost is taken for
    /// a part of the min watermark before: the watermarks above it stay too high until they are computed again.
    fn recompute_marks(&mut self) {
        let lowmem = self.lowmem();
        let reserve = self.min_free_pages(lowmem);
        let scale = self.settings.watermark_scale_factor;
        for zone in &mut self.zones {
            let boost = core::mem::take(&mut zone.boost);
            let mut marks = watermark::marks(zone.kind, zone.managed.get(), reserve, lowmem, scale);
            if !self.policy.fixes.has(Fixes::BOOST_ZEROED) {
                marks.low += boost;
                marks.high += boost;
                marks.promo += boost;
            }
            zone.marks = marks;
        }
        self.recompute_per_cpu();
    }

    /// Returns the managed pages that the kernel itself can use: those of low zones.
    fn lowmem(&self) -> u64 {
        let low = self.zones.iter().filter(|zone| watermark::is_low(zone.kind));
        low.map(|zone| zone.managed.get()).sum()
    }

    /// Returns the reserve of the whole machine, in pages; never more than low memory.
    fn min_free_pages(&self, lowmem: u64) -> u64 {
        let formula = watermark::formula_pages(lowmem, u64::from(self.policy.min_free_limit_kib));
        let pages = match self.settings.min_free {
            MinFree::Formula => formula,
            MinFree::HugePages => {
                let low = |zone: &&Zone| watermark::is_low(zone.kind) && zone.managed.get() > 0;
                let zones = self.zones.iter().filter(low).count() as u64;
                formula.max(watermark::huge_page_reserve(zones, lowmem))
            }
            MinFree::Pages(pages) => pages,
        };
        pages.min(lowmem)
    }

    /// Groups pages by type if the memory beyond the high watermarks has a pageblock for every type.
    fn decide_grouping(&mut self) {
        let beyond = |zone: &Zone| zone.managed.get().saturating_sub(zone.marks.high);
        let pages: u64 = self.zones.iter().map(beyond).sum();
        let enough = pages >= Order::PAGEBLOCK.pages() * Migratetype::COUNT as u64;
        let grouping = if enough { Grouping::ByType } else { Grouping::Off };
        for zone in &mut self.zones {
            zone.grouping = grouping;
        }
    }
}

fn check_scale(factor: u32) -> Result<(), PageConfigError> {
    if (1..=3000).contains(&factor) {
        Ok(())
    } else {
        Err(PageConfigError::WatermarkScaleFactor(factor))
    }
}

/// Makes all zones, by node and then lowest first, with nothing on their lists.
fn zones(config: &PageConfig, frames: &mut Frames) -> Result<Vec<Zone>, TryReserveError> {
    let map = &config.map;
    let mut zones = Vec::new();
    for (number, node) in map.nodes().iter().enumerate() {
        for zone in &node.zones {
            let id = ZoneId(zones.len() as u16);
            zones.try_reserve(1)?;
            let mut zone = empty_zone(id, NodeId(number as u8), zone, frames);
            zone.rules = config.policy.fallback;
            zone.per_cpu = PerCpuPages::of(map.cpus().len())?;
            if config.policy.choice == Choice::FullestBlock {
                zone.lists.choose_by_fullness(zone.start, zone.end)?;
            }
            put(&mut zones, zone);
        }
    }
    for id in 0..zones.len() {
        zones[id].spreads = can_spread(&zones[id], &zones, map.nodes().len());
        frames.set_zone(zones[id].start, zones[id].end, id as u16);
    }
    Ok(zones)
}

/// Returns true if requests that prefer the zone should use the one below rather than mix types: from Normal to DMA32.
/// Pressure on lower memory is worse than fragmentation, and DMA is too small to help. On a machine of one node nothing
/// is lost by trying, even if there is no DMA32.
fn can_spread(zone: &Zone, zones: &[Zone], nodes: usize) -> bool {
    let is_below = |other: &Zone| {
        other.node == zone.node && other.kind == ZoneKind::Dma32 && other.managed.get() > 0
    };
    zone.kind == ZoneKind::Normal && (nodes == 1 || zones.iter().any(is_below))
}

fn empty_zone(id: ZoneId, node: NodeId, map: &ZoneMap, frames: &Frames) -> Zone {
    let sum = |ranges: &[PfnRange]| ranges.iter().map(|range| range.pages.get()).sum::<u64>();
    let present = map.span.pages.get() - sum(&map.holes);
    let index = |pfn| frames.index(pfn).expect("frames with memory are known");
    let start = map.present().next().map_or(0, |first| index(first.start));
    let end = map.present().last().map_or(0, |last| index(last.start) + last.pages.get() as u32);
    Zone {
        id,
        node,
        kind: map.kind,
        start,
        end,
        span: map.span,
        present: PageCount(present),
        managed: PageCount(present - sum(&map.reserved)),
        lists: FreeLists::new(),
        marks: Watermarks::default(),
        boost: 0,
        wake_for_boost: false,
        reserve: [0; ZoneKind::COUNT],
        reserved_high_atomic: 0,
        cma_blocks: 0,
        grouping: Grouping::ByType,
        spreads: false,
        rules: FallbackRules::Loose,
        per_cpu: Vec::new(),
        per_cpu_bounds: Bounds::default(),
        shortage: Shortage::default(),
        compaction: ZoneCompaction::default(),
    }
}

/// Puts a range of frames on the free lists as blocks. No free memory of the zone touches the range, so nothing is
/// merged.
fn fill(zone: &mut Zone, frames: &mut Frames, range: PfnRange) {
    let start = frames.index(range.start).expect("a zone's frames are known");
    let end = start + range.pages.get() as FrameIndex;
    frames.set_inside(start, end);
    let mut frame = start;
    while frame < end {
        let order = largest_order(frame, end);
        zone.lists.insert(frames, frame, order, Migratetype::Movable, Relist::Tail);
        frame += order.pages() as FrameIndex;
    }
}

/// Returns the order of the largest block that may begin at `frame` and ends at `end` or before.
pub(super) fn largest_order(frame: FrameIndex, end: FrameIndex) -> Order {
    let aligned = frame.trailing_zeros();
    let fits = (end - frame).ilog2();
    let order = aligned.min(fits).min(u32::from(Order::MAX.get()));
    Order::new(order as u8).expect("it is at most the largest")
}

/// Returns the node of each CPU, by rank.
fn cpu_nodes(map: &MemoryMap) -> Result<Vec<NodeId>, TryReserveError> {
    let mut nodes = filled(map.cpus().len(), NodeId(0))?;
    for (number, node) in map.nodes().iter().enumerate() {
        for &cpu in &node.cpus {
            let cpu = map.cpus().get(cpu).expect("the set is the nodes'");
            nodes[cpu.rank()] = NodeId(number as u8);
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::policy::FragmentationPolicy;

    const GIB: u64 = 1 << 18;

    fn allocator(policy: FragmentationPolicy) -> PageAllocator {
        let map = MemoryMap::uma(PageCount(8 * GIB), 375, 2).expect("a map");
        let config = PageConfig { min_free: MinFree::Pages(16896), ..PageConfig::new(map, policy) };
        PageAllocator::new(&config).expect("an allocator")
    }

    /// Sets `min_free` while Normal is boosted by 512 pages, and expects `marks`; after a second time without boost,
    /// the plain watermarks.
    fn check_after_setting(policy: FragmentationPolicy, marks: Watermarks) {
        let mut pages = allocator(policy);
        pages.zones[1].boost = 512;
        pages.set_min_free(MinFree::Pages(16896));
        assert_eq!((pages.zones[1].marks, pages.zones[1].boost), (marks, 0));
        pages.set_min_free(MinFree::Pages(16896));
        assert_eq!(
            pages.zones[1].marks,
            Watermarks { min: 10560, low: 13200, high: 15840, promo: 18480 }
        );
    }

    #[test]
    fn a_setting_zeroes_the_boost_first() {
        let plain = Watermarks { min: 10560, low: 13200, high: 15840, promo: 18480 };
        check_after_setting(FragmentationPolicy::LINUX_6_1, plain);
        let inflated = Watermarks { min: 10560, low: 13712, high: 16352, promo: 18992 };
        check_after_setting(FragmentationPolicy::LINUX_5_3, inflated);
    }

    #[test]
    fn other_settings_leave_the_boost_alone() {
        let mut pages = allocator(FragmentationPolicy::LINUX_6_1);
        pages.zones[1].boost = 512;
        pages.set_lowmem_reserve_ratio([256, 32, 32, 0, 0]);
        pages.set_boost_factor(0).expect("the policy boosts");
        assert_eq!(pages.zones[1].boost, 512);
        assert_eq!(pages.zones[0].reserve, [0, 0, 5 * GIB / 32, 5 * GIB / 32, 5 * GIB / 32]);
    }

    #[test]
    fn the_reserve_never_exceeds_memory() {
        let mut pages = allocator(FragmentationPolicy::LINUX_6_1);
        pages.set_min_free(MinFree::Pages(u64::MAX));
        let min: u64 = pages.zones.iter().map(|zone| zone.marks.min).sum();
        assert_eq!(min, 8 * GIB);
        assert_eq!(pages.total_reserve(), PageCount(8 * GIB));
        pages.set_min_free(MinFree::Formula);
        assert_eq!(pages.zones[1].marks.min, 11585 / 4 * 5 / 8);
        pages.set_min_free(MinFree::HugePages);
        assert_eq!(pages.zones[1].marks.min, 11264 * 5 / 8, "two zones");
        let kept = pages.zones.iter().map(|zone| zone.marks.high).sum::<u64>() + 5120;
        assert_eq!(pages.total_reserve(), PageCount(kept));
    }

    #[test]
    fn small_machines_do_not_group_by_type() {
        let grouping = |pages| {
            let map = MemoryMap::uma(PageCount(pages), 0, 1).expect("a map");
            let config = PageConfig::new(map, FragmentationPolicy::LINUX_6_1);
            let config = PageConfig { min_free: MinFree::Pages(0), ..config };
            PageAllocator::new(&config).expect("an allocator").zones[1].grouping
        };
        assert_eq!([3072 + 3, 3072 + 8].map(grouping), [Grouping::Off, Grouping::ByType]);
    }
}

//! The counters that reclaim reads: free pages of each zone, and lengths of the lists.

use nofrag::page::{Boost, CompactionPolicy, FragmentationPolicy, Gap, ZoneKind};
use nofrag::units::{Order, Pfn};

use super::super::state::{State, StateError};
use super::lists::List;

/// A counter with the share of a CPU. Additions stay in the share until it is larger than the threshold; only the sum
/// without shares is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counter {
    pub(super) seen: i64,
    pub(super) share: i64,
    threshold: i64,
}

impl Counter {
    pub(super) fn add(&mut self, pages: i64) {
        self.share += pages;
        if self.share.abs() > self.threshold {
            self.fold();
        }
    }

    fn fold(&mut self) {
        self.seen += self.share;
        self.share = 0;
    }

    fn read(&self) -> u64 {
        u64::try_from(self.seen).unwrap_or(0)
    }
}

/// The counters of one zone.
#[derive(Clone, Debug)]
pub(super) struct ZoneCounts {
    pub(super) name: &'static str,
    /// The kernel's number of the zone.
    class: usize,
    start: Pfn,
    pub(super) free: Counter,
    pub(super) lists: [Counter; 4],
    high: u64,
    pub(super) boost: u64,
    reserve: Vec<u64>,
}

/// The counters of a node.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    /// In ascending order of addresses.
    pub(super) zones: Vec<ZoneCounts>,
    /// Lengths of the lists, over all zones, with shares of their own.
    node: [Counter; 4],
    boost: Option<Boost>,
    compaction: CompactionPolicy,
}

/// Lengths of lists at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    zones: Vec<(usize, [u64; 4])>,
    /// The inactive list of file pages is shorter than the active one.
    pub(super) short: bool,
}

impl Sizes {
    /// Returns the pages of a list in the zones up to `highest`.
    pub(super) fn pages(&self, list: List, highest: usize) -> u64 {
        let zones = self.zones.iter().filter(|(class, _)| *class <= highest);
        zones.map(|(_, lists)| lists[list.index()]).sum()
    }
}

/// Returns the number that kernels on x86-64 give a zone (they have none of high memory).
pub(super) fn class_of(kind: ZoneKind) -> usize {
    match kind {
        ZoneKind::Dma => 0,
        ZoneKind::Dma32 => 1,
        ZoneKind::Normal | ZoneKind::HighMem => 2,
        ZoneKind::Movable => 3,
    }
}

impl Counts {
    pub(super) fn new(state: &State, policy: &FragmentationPolicy) -> Result<Counts, StateError> {
        let mut zones = Vec::new();
        for (kind, zone) in state.zones()? {
            let counter = |item: usize| Counter {
                seen: zone.stat.get(item).copied().unwrap_or(0),
                share: zone.stat_cpu.get(item).copied().unwrap_or(0),
                threshold: zone.stat_threshold,
            };
            zones.push(ZoneCounts {
                name: kind.name(),
                class: class_of(kind),
                start: Pfn(zone.start_pfn),
                free: counter(0),
                lists: List::ALL.map(|list| counter(1 + list.index())),
                high: zone.wmark_high,
                boost: zone.boost,
                reserve: zone.lowmem_reserve.clone(),
            });
        }
        // A state does not hold the node's shares; they are taken for 0.
        let threshold = zones.iter().map(|zone| zone.free.threshold).max().unwrap_or(0);
        let node = List::ALL.map(|list| {
            let zones = zones.iter().map(|zone| &zone.lists[list.index()]);
            let seen = zones.map(|counter| counter.seen + counter.share).sum();
            Counter { seen, share: 0, threshold }
        });
        Ok(Counts { zones, node, boost: policy.boost, compaction: policy.compaction })
    }

    /// Returns the index of a frame's zone.
    pub(super) fn zone_of(&self, pfn: Pfn) -> usize {
        self.zones.iter().rposition(|zone| zone.start <= pfn).unwrap_or(0)
    }

    /// Returns the kernel's number of a frame's zone.
    pub(super) fn class_of(&self, pfn: Pfn) -> usize {
        self.zones[self.zone_of(pfn)].class
    }

    /// Returns the index of the zone of this name.
    pub(super) fn named(&self, name: &str) -> Option<usize> {
        self.zones.iter().position(|zone| zone.name == name)
    }

    /// Returns the index of the highest zone that a caller may use.
    pub(super) fn highest(&self, class: usize) -> usize {
        self.zones.iter().rposition(|zone| zone.class <= class).unwrap_or(0)
    }

    pub(super) fn listed(&mut self, zone: usize, list: List, pages: i64) {
        self.zones[zone].lists[list.index()].add(pages);
        self.node[list.index()].add(pages);
    }

    pub(super) fn freed(&mut self, zone: usize, pages: i64) {
        self.zones[zone].free.add(pages);
    }

    pub(super) fn fold(&mut self) {
        for zone in &mut self.zones {
            zone.free.fold();
            zone.lists.iter_mut().for_each(Counter::fold);
        }
        self.node.iter_mut().for_each(Counter::fold);
    }

    pub(super) fn sizes(&self) -> Sizes {
        let lists = |zone: &ZoneCounts| zone.lists.each_ref().map(Counter::read);
        let read = |list: List| self.node[list.index()].read();
        Sizes {
            zones: self.zones.iter().map(|zone| (zone.class, lists(zone))).collect(),
            short: read(List::InactiveFile) < read(List::ActiveFile),
        }
    }

    /// Returns the pages of the inactive list of file pages, over all zones.
    pub(super) fn inactive_file(&self) -> u64 {
        self.node[List::InactiveFile.index()].read()
    }

    /// Returns the pages that reclaim for a large block leaves on the inactive list, and that compaction needs beyond a
    /// watermark.
    pub(super) fn gap(&self, order: Order) -> u64 {
        match self.compaction.gap {
            Gap::Capped => (2 * order.pages()).min(32),
            _ => 2 * order.pages(),
        }
    }

    /// Returns true if more is free in the zone than its high watermark, boost included, the reserve against `class`,
    /// and `more`.
    pub(super) fn above_high(&self, zone: usize, more: u64, class: usize) -> bool {
        let zone = &self.zones[zone];
        let reserve = zone.reserve.get(class).copied().unwrap_or(0);
        zone.free.read() > zone.high + zone.boost + reserve + more
    }

    /// Returns true if any zone up to the one of `class` has more free pages than its high watermark and reserve.
    pub(super) fn is_balanced(&self, class: usize) -> bool {
        (0..=self.highest(class)).any(|zone| self.above_high(zone, 0, class))
    }

    /// Returns the number of pages that a pass of kswapd aims at.
    pub(super) fn target(&self, class: usize) -> u64 {
        let zones = &self.zones[..=self.highest(class)];
        zones.iter().map(|zone| (zone.high + zone.boost).max(32)).sum()
    }

    /// Raises a zone's boost after types have mixed in one of its pageblocks.
    pub(super) fn rise(&mut self, zone: usize) {
        let Some(boost) = self.boost.filter(|boost| boost.factor > 0) else { return };
        let zone = &mut self.zones[zone];
        let block = Order::PAGEBLOCK.pages();
        let limit = (zone.high * u64::from(boost.factor) / 10_000).max(block);
        zone.boost = (zone.boost + block).min(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_read_once_it_is_larger_than_the_threshold() {
        let mut counter = Counter { seen: 100, share: 0, threshold: 2 };
        let mut read = Vec::new();
        for pages in [1, 1, 1, -2, -1, 1] {
            counter.add(pages);
            read.push((counter.seen, counter.share));
        }
        assert_eq!(read, [(100, 1), (100, 2), (103, 0), (103, -2), (100, 0), (100, 1)]);
    }
}

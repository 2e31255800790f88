//! Facts from the engine's events: fallbacks between types, and ends of compaction by callers for a huge page, by the
//! share of pageblocks that were marked when it began.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use nofrag::event::{Event, EventSink};
use nofrag::page::{
    CompactionAim, CompactionMode, CompactionRun, Migratetype, NoRun, PageAllocator, PageEvent,
    RunEnd, Wiper, ZoneKind,
};
use nofrag::units::Order;

/// The allocator of this workload.
pub(crate) type Pages = PageAllocator<Heard>;

/// Fallbacks between types: by kind of zone, the type that was asked for, and the order of the free block.
pub(crate) type Fallbacks = BTreeMap<(ZoneKind, Migratetype, Order), u64>;

/// A listener to the engine's events; its clones share what they hear.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Rc<RefCell<Told>>);

#[derive(Debug, Default)]
struct Told {
    compactions: Compactions,
    fallbacks: Fallbacks,
    zones: Vec<ZoneKind>,
}

impl Heard {
    /// Sets the kinds of the machine's zones, in the order of their indices.
    pub(crate) fn know(&self, zones: impl Iterator<Item = ZoneKind>) {
        self.0.borrow_mut().zones = zones.collect();
    }

    /// Begins a new count of compaction, with `marked` of `blocks` pageblocks marked to be skipped.
    pub(crate) fn begin(&self, marked: u64, blocks: u64) {
        let marked_percent = 100 * marked / blocks.max(1);
        self.0.borrow_mut().compactions = Compactions { marked_percent, ..Compactions::default() };
    }

    /// Returns the counts of compaction since [`begin`](Self::begin).
    pub(crate) fn compactions(&self) -> Compactions {
        self.0.borrow().compactions.clone()
    }

    /// Returns the fallbacks since the start of the run.
    pub(crate) fn fallbacks(&self) -> Fallbacks {
        self.0.borrow().fallbacks.clone()
    }
}

impl EventSink for Heard {
    fn record(&self, event: Event) {
        let told = &mut *self.0.borrow_mut();
        match event {
            Event::Page(PageEvent::ExternalFragmentation(event)) => {
                let zone = told.zones[event.zone.index()];
                let key = (zone, event.alloc_migratetype, event.fallback_order);
                *told.fallbacks.entry(key).or_default() += 1;
            }
            Event::Page(PageEvent::Compacted(run)) if is_huge_fault(run.aim) => {
                told.compactions.note(run);
            }
            Event::Page(PageEvent::CompactionSpared { aim, why }) if is_huge_fault(aim) => {
                *told.compactions.spared.entry(why).or_default() += 1;
            }
            Event::Page(PageEvent::MarksWiped { by, .. }) => {
                *told.compactions.wipes.entry(by).or_default() += 1;
            }
            _ => {}
        }
    }
}

/// Returns true if compaction was for a huge fault: no other caller that waits wants movable blocks so large.
fn is_huge_fault(aim: CompactionAim) -> bool {
    aim.mode != CompactionMode::Background
        && aim.order == Order::PAGEBLOCK
        && aim.migratetype == Migratetype::Movable
}

/// Number of parts into which the share of marked pageblocks is divided.
pub(crate) const QUARTERS: usize = 4;

/// Compaction by callers for huge pages while they were asked for, zone by zone, and the wipes of skip marks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compactions {
    /// The share of pageblocks that were marked to be skipped when counting began, in percent.
    pub(crate) marked_percent: u64,
    /// Runs, by the quarter of the share of marked pageblocks of the zone when they began.
    pub(crate) runs: [u64; QUARTERS],
    /// Runs that gave a block, by the same quarter.
    pub(crate) gave: [u64; QUARTERS],
    pub(crate) ends: BTreeMap<RunEnd, u64>,
    /// Zones that were left alone, by reason.
    pub(crate) spared: BTreeMap<NoRun, u64>,
    /// Wipes of skip marks, by the part of the engine that wiped them.
    pub(crate) wipes: BTreeMap<Wiper, u64>,
}

impl Compactions {
    fn note(&mut self, run: CompactionRun) {
        let quarter = quarter(run.marked, run.blocks);
        self.runs[quarter] += 1;
        self.gave[quarter] += u64::from(run.end == RunEnd::Success);
        *self.ends.entry(run.end).or_default() += 1;
    }
}

/// Returns the quarter, 0 to 3, in which the share `part` of `whole` lies; its upper bound is still in it.
fn quarter(part: u64, whole: u64) -> usize {
    let quarters = (part * QUARTERS as u64).div_ceil(whole.max(1));
    (quarters.max(1) - 1).min(QUARTERS as u64 - 1) as usize
}

#[cfg(test)]
mod tests {
    use nofrag::page::{FragmentationPolicy, MemoryMap, PageConfig};
    use nofrag::units::PageCount;

    use super::*;

    fn run(marked: u64, migratetype: Migratetype, end: RunEnd) -> Event {
        let map = MemoryMap::uma(PageCount(16_384), 0, 1).expect("a small machine");
        let config = PageConfig::new(map, FragmentationPolicy::LINUX_6_1);
        let pages = PageAllocator::new(&config).expect("the map is sound");
        let zone = pages.zones().next().expect("it has memory").id;
        let (order, mode) = (Order::PAGEBLOCK, CompactionMode::Async);
        let aim = CompactionAim { zone, order, migratetype, mode };
        let run = CompactionRun { aim, marked, blocks: 160, moved: 0, end };
        Event::Page(PageEvent::Compacted(run))
    }

    #[test]
    fn runs_are_counted_by_quarters_of_marked_pageblocks() {
        let heard = Heard::default();
        heard.record(run(160, Migratetype::Movable, RunEnd::Success));
        heard.begin(120, 160);
        for marked in [0, 40, 41, 120, 121, 160] {
            heard.record(run(marked, Migratetype::Movable, RunEnd::NoTarget));
        }
        heard.record(run(80, Migratetype::Movable, RunEnd::Success));
        heard.record(run(80, Migratetype::Unmovable, RunEnd::Success));
        let told = heard.compactions();
        assert_eq!((told.runs, told.gave), ([2, 2, 1, 2], [0, 1, 0, 0]));
        assert_eq!(told.ends[&RunEnd::NoTarget], 6);
        assert_eq!(told.marked_percent, 75);
    }
}

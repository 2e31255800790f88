//! The free pages that lie on lists of CPUs at the start, which the map of frames does not tell from memory of the
//! kernel.
//!
//! zoneinfo counts them for each CPU, and the events show which they are: a frame without any flag that is handed out
//! before it is freed for the first time was free, and in no block of the buddies. In the recordings of 6.1 and 6.12
//! 68 to 100 % of the counted ones are found so (7,981 of 8,344 pages on two nodes); the remaining ones are never
//! handed out. No more are taken than are counted.

use std::ops::Range;

use nofrag::units::{Order, Pfn};
use nofrag_host::snapshot::{FrameUse, PageFlags, PageMap, Snapshot, ZoneInfo};
use nofrag_host::trace::{BATCH, EventSource, TraceError, View};

use super::super::pairing::order_of;

/// A free block on a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) pfn: Pfn,
    pub(super) order: Order,
    /// The CPU by the number that the machine has for it.
    pub(super) cpu: u32,
}

/// Returns the blocks on lists, in the order in which they were handed out. `uses` has the use of each frame, and
/// `taken_until` is the time until which the snapshot was being taken. Reads `events` until all blocks are found.
///
/// # Errors
/// [`TraceError`] when the events cannot be read.
pub(super) fn find(
    snapshot: &Snapshot<'_>,
    uses: &[FrameUse],
    taken_until: Option<u64>,
    events: &mut dyn EventSource,
) -> Result<Vec<Listed>, TraceError> {
    let mut search = Search::new(snapshot, uses);
    let mut batch = Vec::with_capacity(BATCH);
    while search.zones.iter().any(Zone::lacks) && events.read(&mut batch)? {
        for event in batch.drain(..) {
            let (pfn, order, is_handed_out) = match event.view() {
                View::PageAlloc { pfn: Some(pfn), order, .. } => (pfn, order, true),
                View::PageFree { pfn, order } => (pfn, order, false),
                _ => continue,
            };
            let Some(order) = order_of(order) else { continue };
            // A block that was handed out meanwhile may be in use in the map.
            let is_new = is_handed_out && taken_until.is_none_or(|end| event.at > end);
            search.touched(pfn, order, is_new.then_some(event.cpu.into()));
        }
    }
    Ok(search.found)
}

/// Frames that may be on lists, and those found.
struct Search {
    zones: Vec<Zone>,
    /// Frames without a flag that no event has named yet.
    untouched: Vec<bool>,
    found: Vec<Listed>,
}

/// A zone, and by CPU the number of pages on its lists in the zone that are not found yet.
struct Zone {
    span: Range<u64>,
    lacking: Vec<(u32, u64)>,
}

impl Search {
    fn new(snapshot: &Snapshot<'_>, uses: &[FrameUse]) -> Search {
        let is_blank = |map: &PageMap<'_>, pfn: u64| map.flags(pfn) == Some(PageFlags::default());
        let untouched = snapshot.pages.iter().flat_map(|map| {
            let frames = (0..).zip(uses);
            frames.map(|(pfn, &usage)| usage == FrameUse::Kernel && is_blank(map, pfn))
        });
        Search {
            zones: snapshot.populated().filter_map(Zone::of).collect(),
            untouched: untouched.collect(),
            found: Vec::new(),
        }
    }

    /// Notes that an event names a block; `cpu` is the CPU that got it, `None` if it was freed, or got before the
    /// snapshot was complete.
    fn touched(&mut self, pfn: u64, order: Order, cpu: Option<u32>) {
        let end = pfn.saturating_add(order.pages()).min(self.untouched.len() as u64);
        let frames = pfn.min(end) as usize..end as usize;
        let zone = self.zones.iter_mut().find(|zone| zone.span.contains(&pfn));
        if let (Some(cpu), Some(zone)) = (cpu, zone) {
            let is_whole = self.untouched[frames.clone()].iter().all(|&is_untouched| is_untouched);
            let parts = match is_whole && order <= Order::COSTLY {
                true => order,
                // A part of a larger block went back to the buddies before.
                false => Order::ZERO,
            };
            for pfn in (pfn..end).step_by(parts.pages() as usize) {
                if self.untouched[pfn as usize]
                    && let Some(cpu) = zone.take(cpu, parts.pages())
                {
                    self.found.push(Listed { pfn: Pfn(pfn), order: parts, cpu });
                }
            }
        }
        self.untouched[frames].fill(false);
    }
}

impl Zone {
    fn of(info: &ZoneInfo) -> Option<Zone> {
        let lacking = info.per_cpu.iter().map(|set| (set.cpu, set.count)).collect();
        Some(Zone { span: info.start_pfn?..info.end_pfn()?, lacking })
    }

    fn lacks(&self) -> bool {
        self.lacking.iter().any(|(_, pages)| *pages > 0)
    }

    /// Counts a block as found on the lists of a CPU that still lacks as many pages: `cpu`, else the one that lacks
    /// most. Returns that CPU; `None` if none lacks so many.
    fn take(&mut self, cpu: u32, pages: u64) -> Option<u32> {
        let has_room = |&(_, lacking): &(u32, u64)| lacking >= pages;
        let own = self.lacking.iter().position(|set| set.0 == cpu && has_room(set));
        let most = || {
            let sets = self.lacking.iter().enumerate().filter(|(_, set)| has_room(set));
            sets.max_by_key(|(_, (_, lacking))| *lacking).map(|(at, _)| at)
        };
        let at = own.or_else(most)?;
        let set = &mut self.lacking[at];
        set.1 -= pages;
        Some(set.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(number: u8) -> Order {
        Order::new(number).expect("an order")
    }

    /// Returns a search over 64 untouched frames, of which `counts` lie on the lists of CPUs 0 and 1.
    fn search(counts: [u64; 2]) -> Search {
        let lacking = vec![(0, counts[0]), (1, counts[1])];
        Search {
            zones: vec![Zone { span: 0..64, lacking }],
            untouched: vec![true; 64],
            found: Vec::new(),
        }
    }

    #[test]
    fn a_frame_that_was_freed_first_was_in_use() {
        let mut search = search([64, 64]);
        search.touched(8, order(0), None);
        search.touched(8, order(0), Some(0));
        search.touched(9, order(0), Some(1));
        search.touched(9, order(0), Some(0));
        assert_eq!(search.found, [Listed { pfn: Pfn(9), order: order(0), cpu: 1 }]);
    }

    #[test]
    fn only_small_blocks_lie_on_lists_whole() {
        let mut search = search([64, 64]);
        search.touched(8, order(2), Some(0));
        search.touched(17, order(0), None);
        search.touched(16, order(1), Some(0));
        search.touched(32, order(4), Some(0));
        let found = search.found.iter().map(|listed| (listed.pfn.0, listed.order.get()));
        let pages = (32..48).map(|pfn| (pfn, 0));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [(8, 2), (16, 0)].into_iter().chain(pages).collect::<Vec<_>>()
        );
    }

    /// Hands CPU 0 eight pages, though its lists have two: the next three count as CPU 1's. In two recordings of one
    /// kernel CPU 0 got 5,228 of the 6,022 pages on the lists of CPU 1.
    #[test]
    fn no_cpu_has_more_than_was_counted() {
        let mut search = search([2, 3]);
        for pfn in 0..8 {
            search.touched(pfn, order(0), Some(0));
        }
        let cpus: Vec<u32> = search.found.iter().map(|listed| listed.cpu).collect();
        assert_eq!(cpus, [0, 0, 1, 1, 1]);
        assert!(!search.zones[0].lacks());
    }
}

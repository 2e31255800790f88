//! The number of blocks that a process could have from a zone now: one formula for the report on a machine, the live
//! view and the metrics.
//!
//! Not every block on the free lists can be had. A zone keeps its watermark, boost included, and a reserve from
//! requests that could have used a higher zone (`lowmem_reserve`); and blocks of the types `HighAtomic` and `Isolate`
//! are kept for other requests. These numbers come from zoneinfo and pagetypeinfo: where a file was not read they count
//! as zero.
//!
//! Source: docs/sources/trace.md#largest-order.

use nofrag::page::{Migratetype, PageRequest, ZoneState};
use nofrag::units::Order;

use super::{Snapshot, ZoneInfo, ZoneName};

/// Types whose blocks an ordinary request never takes.
const KEPT: [Migratetype; 2] = [Migratetype::HighAtomic, Migratetype::Isolate];

impl Snapshot<'_> {
    /// Returns the blocks of each order that a process could have from the zone now, one after the other, before the
    /// watermarks stop it (`GFP_HIGHUSER_MOVABLE`). Without zoneinfo: the blocks into which the free lists could be
    /// cut. O(orders²).
    #[must_use]
    pub fn obtainable(&self, zone: &ZoneName) -> Vec<u64> {
        let Some(blocks) = self.blocks(zone) else { return Vec::new() };
        let room = self.populated().find(|info| info.zone == *zone).map(|info| self.room(info));
        let orders = 0..u32::try_from(blocks.blocks.len()).unwrap_or(u32::MAX);
        let fit = |order: u32| room.map_or(u64::MAX, |room| room.checked_shr(order).unwrap_or(0));
        orders.map(|order| self.takeable(zone, order).min(fit(order))).collect()
    }

    /// Returns the blocks of an order into which the free lists could be cut, except those that are kept for other
    /// requests.
    #[must_use]
    pub fn takeable(&self, zone: &ZoneName, order: u32) -> u64 {
        let listed = self.blocks(zone).map_or(0, |blocks| blocks.blocks_of(order));
        let kept = KEPT.iter().map(|&each| self.blocks_of_type(zone, each, order));
        listed.saturating_sub(kept.fold(0, u64::saturating_add))
    }

    /// Returns the pages that a process can take before the watermarks stop it; 0 in a zone that the page allocator
    /// does not serve.
    #[must_use]
    pub fn room(&self, zone: &ZoneInfo) -> u64 {
        self.state(zone).map_or(0, |state| room(&state))
    }

    /// Returns a lower bound of the blocks of an order into which the free blocks of a type could be cut; 0 where types
    /// are not known.
    #[must_use]
    pub fn blocks_of_type(&self, zone: &ZoneName, migratetype: Migratetype, order: u32) -> u64 {
        let row = self.types.as_ref().and_then(|types| types.free_of(zone, migratetype));
        let larger = row.unwrap_or_default().iter().zip(0_u32..).skip(order as usize);
        larger.fold(0, |sum: u64, (count, each)| {
            sum.saturating_add(count.least().saturating_mul(1 << (each - order)))
        })
    }
}

fn room(state: &ZoneState) -> u64 {
    let request = PageRequest::user(Order::ZERO);
    let kept = state.marks.min + state.boost + state.reserve[request.zone.index()];
    state.free.pages.saturating_sub(state.free.high_atomic).saturating_sub(kept)
}

#[cfg(test)]
mod tests {
    use super::super::{buddyinfo, pagetypeinfo, zoneinfo};
    use super::*;

    /// Checks the obtainable blocks of a zone of `free` free pages; `kept` has its watermark with the boost, the boost,
    /// and the reserve.
    fn check_obtainable(free: u64, kept: [u64; 3], blocks: &str, expected: &[u64]) {
        let [min, boost, reserve] = kept;
        let text = format!(
            "Node 0, zone Normal\n  pages free {free}\n boost {boost}\n min {min}\n low {min}\n high {min}\n \
             spanned 9999\n present 9999\n managed 9999\n protection: (0)\nNode 0, zone Movable\n  pages free 0\n \
             protection: (0)\n start_pfn: 0\n"
        )
        .replacen("protection: (0)", &format!("protection: ({reserve}, {reserve})"), 1);
        let snapshot = Snapshot {
            zones: zoneinfo(&text).0.0,
            buddy: buddyinfo(&format!("Node 0, zone Normal {blocks}\n")).0,
            ..Snapshot::default()
        };
        let zone = snapshot.buddy[0].zone.clone();
        assert_eq!(snapshot.obtainable(&zone), expected, "{free} {kept:?} {blocks}");
    }

    #[test]
    fn watermark_boost_and_reserve_stay() {
        check_obtainable(16, [0, 0, 0], "0 0 0 0 1", &[16, 8, 4, 2, 1]);
        // The mark that the kernel prints includes the boost.
        check_obtainable(16, [8, 5, 0], "0 0 0 0 1", &[8, 4, 2, 1, 0]);
        check_obtainable(16, [8, 0, 4], "0 0 0 0 1", &[4, 2, 1, 0, 0]);
        check_obtainable(16, [99, 0, 0], "0 0 0 0 1", &[0, 0, 0, 0, 0]);
        check_obtainable(24, [8, 0, 0], "16 0 2 0 0", &[16, 4, 2, 0, 0]);
    }

    #[test]
    fn blocks_for_others_do_not_count() {
        let types =
            "Node 0, zone Normal, type Movable 0 1\nNode 0, zone Normal, type HighAtomic 2 1\n";
        let snapshot = Snapshot {
            buddy: buddyinfo("Node 0, zone Normal 2 2\n").0,
            types: Some(pagetypeinfo(types).0),
            ..Snapshot::default()
        };
        let zone = snapshot.buddy[0].zone.clone();
        assert_eq!(snapshot.obtainable(&zone), [2, 1], "without zoneinfo: what the lists have");
        assert_eq!(snapshot.blocks_of_type(&zone, Migratetype::HighAtomic, 0), 4);
    }
}

//! The zones of a snapshot in the terms of the core, for its watermark test.

use nofrag::page::{FreeCounts, Migratetype, NodeId, Watermarks, ZoneKind, ZoneState};
use nofrag::units::Order;

use super::{Snapshot, ZoneInfo};

/// Limits a number of pages to more than any machine has, so that sums stay within 64 bits whatever a file contains.
fn sane(pages: u64) -> u64 {
    const MOST: u64 = 1 << 48;
    pages.min(MOST)
}

impl Snapshot<'_> {
    /// Returns the zone in the core's terms; `None` for one that the page allocator does not serve.
    ///
    /// Blocks above the core's largest order count as blocks of that order. Where pagetypeinfo does not have the zone
    /// every block counts as a block of each ordinary type, so that no request is refused for its type.
    #[must_use]
    pub fn state(&self, zone: &ZoneInfo) -> Option<ZoneState> {
        let Watermarks { min, low, high, promo } = zone.marks();
        let [min, low, high, promo] = [min, low, high, promo].map(sane);
        Some(ZoneState {
            node: NodeId(u8::try_from(zone.zone.node).unwrap_or(u8::MAX)),
            kind: zone.zone.kind()?,
            marks: Watermarks { min, low, high, promo },
            boost: sane(zone.boost.unwrap_or(0)),
            reserve: self.reserve_by_kind(zone),
            free: self.counts(zone, Order::MAX.get().into()),
        })
    }

    /// Returns the zone for a request of `order`, above the core's largest: in this zone the core's test of its largest
    /// order answers as the kernel's test of `order` does. Only blocks of `order` and above count as blocks of the
    /// largest, and the free pages are fewer by the difference between the two sizes.
    #[must_use]
    pub fn state_for(&self, zone: &ZoneInfo, order: u32) -> Option<ZoneState> {
        let state = self.state(zone)?;
        let more = 1_u64.checked_shl(order)?.saturating_sub(Order::MAX.pages());
        let free = self.counts(zone, order);
        Some(ZoneState {
            free: FreeCounts { pages: free.pages.saturating_sub(more), ..free },
            ..state
        })
    }

    /// Returns the pages that a zone keeps from requests, by the kind of their highest zone. `protection` has a column
    /// for each zone of the node, those without memory included.
    fn reserve_by_kind(&self, zone: &ZoneInfo) -> [u64; ZoneKind::COUNT] {
        let node: Vec<_> =
            self.zones.iter().filter(|each| each.zone.node == zone.zone.node).collect();
        ZoneKind::ALL.map(|kind| {
            let column =
                node.iter().rposition(|each| each.zone.kind().is_some_and(|each| each <= kind));
            column.and_then(|column| zone.protection.get(column).copied().map(sane)).unwrap_or(0)
        })
    }

    /// Returns true if pagetypeinfo has the types of the free blocks of a zone: a file that was cut may lack them.
    fn knows_types(&self, zone: &ZoneInfo) -> bool {
        let listed = |each: &Migratetype| self.types.as_ref()?.free_of(&zone.zone, *each);
        Migratetype::MOBILITY.iter().all(|each| listed(each).is_some())
    }

    /// Counts the free blocks of a zone, by type where pagetypeinfo has the types. Blocks of `largest` and above count
    /// as blocks of the core's largest order, and only they do.
    fn counts(&self, zone: &ZoneInfo, largest: u32) -> FreeCounts {
        let blocks = self.blocks(&zone.zone).map_or(&[][..], |blocks| &blocks.blocks);
        let listed = |migratetype| self.types.as_ref()?.free_of(&zone.zone, migratetype);
        let knows_types = self.knows_types(zone);
        let bit = |order: usize| match order {
            order if order >= largest as usize => 1 << Order::MAX.index(),
            order if order < Order::MAX.index() => 1 << order,
            _ => 0,
        };
        let set = |of: &mut dyn Iterator<Item = u64>| {
            let orders = of.enumerate().filter(|(_, blocks)| *blocks > 0);
            orders.fold(0_u16, |set, (order, _)| set | bit(order))
        };
        let orders = Migratetype::ALL.map(|each| match listed(each) {
            Some(row) if knows_types => set(&mut row.iter().map(|count| count.least())),
            None if knows_types => 0,
            _ if each.is_mobility() => set(&mut blocks.iter().copied()),
            _ => 0,
        });
        let pages = |migratetype| {
            let row = listed(migratetype).unwrap_or_default();
            row.iter().zip(0..).fold(0_u64, |sum, (count, order)| {
                sum.saturating_add(count.least().saturating_mul(1 << order))
            })
        };
        FreeCounts {
            pages: sane(zone.free),
            high_atomic: pages(Migratetype::HighAtomic).min(sane(zone.free)),
            cma: zone.free_cma().unwrap_or_else(|| pages(Migratetype::Cma)).min(sane(zone.free)),
            orders,
        }
    }
}

//! The zones of a snapshot in the core's terms, so that its watermark test can be asked what it would say.

use nofrag::page::{FreeCounts, Migratetype, NodeId, Watermarks, ZoneKind, ZoneState};
use nofrag::units::Order;

use super::{Snapshot, ZoneInfo};

/// A number of pages that is no larger than any machine's, so that sums stay within 64 bits whatever a file says.
fn sane(pages: u64) -> u64 {
    const MOST: u64 = 1 << 48;
    pages.min(MOST)
}

impl Snapshot<'_> {
    /// The zone in the core's terms; `None` for one that the page allocator does not serve.
    ///
    /// Blocks above the core's largest order count as blocks of that order. Where pagetypeinfo is missing every block
    /// counts as of each ordinary type, so that none is refused for its type.
    #[must_use]
    pub fn state(&self, zone: &ZoneInfo) -> Option<ZoneState> {
        let Watermarks { min, low, high, promo } = zone.marks();
        let [min, low, high, promo] = [min, low, high, promo].map(sane);
        Some(ZoneState {
            node: NodeId(u8::try_from(zone.zone.node).ok()?),
            kind: zone.zone.kind()?,
            marks: Watermarks { min, low, high, promo },
            boost: sane(zone.boost.unwrap_or(0)),
            reserve: self.reserve_by_kind(zone),
            free: self.counts(zone),
        })
    }

    /// What a zone keeps from requests by the kind of their highest zone. `protection` has a column for each zone of
    /// the node, those without memory included.
    fn reserve_by_kind(&self, zone: &ZoneInfo) -> [u64; ZoneKind::COUNT] {
        let node: Vec<_> =
            self.zones.iter().filter(|each| each.zone.node == zone.zone.node).collect();
        ZoneKind::ALL.map(|kind| {
            let column =
                node.iter().rposition(|each| each.zone.kind().is_some_and(|each| each <= kind));
            column.and_then(|column| zone.protection.get(column).copied().map(sane)).unwrap_or(0)
        })
    }

    /// What is free in a zone, by type where pagetypeinfo says it.
    fn counts(&self, zone: &ZoneInfo) -> FreeCounts {
        let blocks = self.blocks(&zone.zone).map_or(&[][..], |blocks| &blocks.blocks);
        let listed = |migratetype| self.types.as_ref()?.free_of(&zone.zone, migratetype);
        let set = |of: &mut dyn Iterator<Item = u64>| {
            let orders = of.enumerate().filter(|(_, blocks)| *blocks > 0);
            orders.fold(0_u16, |set, (order, _)| set | 1 << order.min(Order::MAX.index()))
        };
        let orders = Migratetype::ALL.map(|each| match listed(each) {
            Some(row) => set(&mut row.iter().map(|count| count.least())),
            None if self.types.is_none() && each.is_mobility() => set(&mut blocks.iter().copied()),
            None => 0,
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

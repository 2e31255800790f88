//! Free memory of each zone: its blocks and its watermarks.

use serde::Serialize;

use crate::snapshot::{BlockCount, Snapshot, ZoneBlocks, ZoneIndices, ZoneInfo, ZoneName};

/// A zone with memory: its free blocks, watermarks and indices.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Zone {
    #[serde(flatten)]
    pub zone: ZoneName,
    /// Name for people: the zone's name, with the node where there are several.
    pub label: String,
    /// Pages that the allocator hands out; `null` where zoneinfo is missing.
    pub managed_pages: Option<u64>,
    /// Free pages, those on per-CPU lists not included.
    pub free_pages: u64,
    /// Free pages on the lists of CPUs; `null` where zoneinfo is missing.
    pub per_cpu_pages: Option<u64>,
    /// The watermarks in force; `null` where zoneinfo is missing.
    pub marks: Option<Marks>,
    /// Free blocks and indices of each order; empty where buddyinfo is missing.
    pub orders: Vec<OrderRow>,
    /// The largest order of a free block; `null` without a free block.
    pub largest_order: Option<u32>,
    /// Free blocks and pageblocks by type, in the kernel's order; empty where pagetypeinfo could not be read.
    pub types: Vec<TypeRow>,
    /// Free pages in blocks of a pageblock or more.
    pub pageblock_free: PageblockFree,
}

/// The watermarks of a zone in pages, boost included, as the kernel prints and tests them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Marks {
    /// Below this mark only callers with rights take pages.
    pub min: u64,
    /// At this mark kswapd is woken.
    pub low: u64,
    /// At this mark kswapd sleeps again.
    pub high: u64,
    /// Pages by which all three marks are raised since types were mixed; `null` where the kernel does not tell.
    pub boost: Option<u64>,
}

/// The free blocks of one order in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OrderRow {
    pub order: u32,
    /// Number of free blocks of exactly this order.
    pub blocks: u64,
    /// Number of blocks of this order into which all free blocks could be cut.
    pub available: u64,
    /// Fragmentation index, which tells why a request of the order would fail: near 0 for lack of memory, near 1000
    /// because free memory is in pieces; `null` if a block is free.
    pub fragmentation: Option<i64>,
    /// Unusable index: the share of free memory that cannot serve the order, in thousandths.
    pub unusable: u64,
}

/// The free blocks of one type in a zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TypeRow {
    /// The migratetype, as the kernel names it.
    pub migratetype: String,
    /// Pageblocks of the type; `null` where the file does not list them.
    pub pageblocks: Option<u64>,
    /// The type's free blocks of each order; lists that the kernel did not count to their end (it stops at a
    /// hundred thousand blocks) are lower bounds.
    pub blocks: Vec<BlockCount>,
}

/// Free pages in blocks of a pageblock or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PageblockFree {
    /// Number of pages from buddyinfo.
    pub listed: u64,
    /// Number of pages that the kernel counts (`nr_free_pages_blocks`, since 6.16); `null` before.
    pub said: Option<u64>,
}

/// The agreement of our indices with the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IndexCheck {
    /// Number of indices compared: two for each order and zone.
    pub compared: u64,
    /// Number of equal indices; the others changed between two reads.
    pub equal: u64,
}

/// Returns all zones with memory, highest first within a node: those of zoneinfo, and from buddyinfo the ones that
/// zoneinfo lacks.
pub(super) fn survey(snapshot: &Snapshot<'_>) -> Vec<Zone> {
    let known = snapshot.populated().map(|zone| (&zone.zone, Some(zone)));
    let is_new = |zone: &&ZoneBlocks| !snapshot.zones.iter().any(|each| each.zone == zone.zone);
    let listed = snapshot.buddy.iter().filter(is_new).map(|blocks| (&blocks.zone, None));
    let mut zones: Vec<_> = known.chain(listed).collect();
    zones.sort_by_key(|(zone, _)| (zone.node, std::cmp::Reverse(zone.kind())));
    let several = zones.iter().any(|(zone, _)| zone.node != 0);
    let order = snapshot.pageblock_order();
    let row = |(zone, info): (&ZoneName, Option<&ZoneInfo>)| {
        let blocks = snapshot.blocks(zone);
        let listed = blocks.map_or(0, |blocks| pages(blocks.blocks_of(order), order));
        let marks = |info: &ZoneInfo| Marks {
            min: info.min,
            low: info.low,
            high: info.high,
            boost: info.boost,
        };
        Zone {
            zone: zone.clone(),
            label: if several { zone.to_string() } else { zone.name.clone() },
            managed_pages: info.map(|info| info.managed),
            free_pages: info.map_or(blocks.map_or(0, ZoneBlocks::pages), |info| info.free),
            per_cpu_pages: info.map(ZoneInfo::on_per_cpu_lists),
            marks: info.map(marks),
            orders: blocks.map_or_else(Vec::new, orders),
            largest_order: blocks.and_then(ZoneBlocks::largest),
            types: types(snapshot, zone),
            pageblock_free: PageblockFree {
                listed,
                said: info.and_then(ZoneInfo::free_in_pageblocks),
            },
        }
    };
    zones.into_iter().map(row).collect()
}

/// Returns the number of pages in `blocks` blocks of `order`; saturates.
pub(super) fn pages(blocks: u64, order: u32) -> u64 {
    blocks.saturating_mul(1_u64.checked_shl(order).unwrap_or(u64::MAX))
}

fn orders(zone: &ZoneBlocks) -> Vec<OrderRow> {
    let row = |(&blocks, order)| {
        let indices = zone.indices(order);
        OrderRow {
            order,
            blocks,
            available: zone.blocks_of(order),
            fragmentation: indices.fragmentation,
            unusable: indices.unusable,
        }
    };
    zone.blocks.iter().zip(0..).map(row).collect()
}

fn types(snapshot: &Snapshot<'_>, zone: &ZoneName) -> Vec<TypeRow> {
    let Some(types) = &snapshot.types else { return Vec::new() };
    let pageblocks = types.pageblocks.iter().find(|row| row.zone == *zone);
    let of_zone = types.free.iter().filter(|row| row.zone == *zone);
    of_zone
        .map(|row| TypeRow {
            migratetype: types.names.get(row.number).cloned().unwrap_or_default(),
            pageblocks: pageblocks.and_then(|zone| zone.pageblocks.get(row.number).copied()),
            blocks: row.blocks.clone(),
        })
        .collect()
}

/// Compares the indices of `zones` with the kernel's in debugfs; `None` where debugfs gave none.
pub(super) fn check_indices(snapshot: &Snapshot<'_>, zones: &[Zone]) -> Option<IndexCheck> {
    let mut check = IndexCheck::default();
    let mut compare = |said: &[ZoneIndices], ours: fn(&OrderRow) -> i64| {
        for kernel in said {
            let rows = zones.iter().find(|zone| zone.zone == kernel.zone);
            let rows = rows.map_or(&[][..], |zone| &zone.orders);
            for (row, &said) in rows.iter().zip(&kernel.thousandths) {
                check.compared += 1;
                check.equal += u64::from(ours(row) == said);
            }
        }
    };
    /// The index that the kernel writes where a request would succeed.
    const WOULD_SUCCEED: i64 = -1000;
    compare(&snapshot.extfrag, |row| row.fragmentation.unwrap_or(WOULD_SUCCEED));
    compare(&snapshot.unusable, |row| i64::try_from(row.unusable).unwrap_or(i64::MAX));
    (check.compared > 0).then_some(check)
}

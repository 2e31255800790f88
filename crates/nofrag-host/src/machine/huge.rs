//! The number of huge pages that can be had: now, after compaction, after reclaim.
//!
//! *Now* counts the blocks on the free lists that the watermarks let go. The other numbers are bounds from above, since
//! it cannot be known in advance whether a page can be moved: pages may be pinned for I/O, and migration may fail. The
//! quality of the bounds depends on the files that could be read ([`Basis`]).

use nofrag::page::Migratetype;
use serde::Serialize;

use super::frames::FrameReport;
use super::pageblocks::Pageblocks;
use super::pass::Forecast;
use super::requests::{self, Asked};
use super::zones::{self, Zone, pages};
use crate::snapshot::{BlockCount, Snapshot, ZoneInfo, ZoneName};
use crate::source::machine::{Pool, Sources};

/// The outlook for huge pages of a pageblock each.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HugePages {
    pub order: u32,
    /// Bytes of one huge page.
    pub bytes: u64,
    /// Free blocks of that order, whatever the watermarks say.
    pub listed: u64,
    /// The numbers of huge pages.
    #[serde(flatten)]
    pub blocks: Blocks,
    /// Source of the two bounds.
    pub basis: Basis,
    /// The method, as a sentence.
    pub how: &'static str,
    pub zones: Vec<ZoneHuge>,
    /// The pools of hugetlbfs, by size.
    pub pools: Vec<Pool>,
    /// Bytes of processes in transparent huge pages (`AnonHugePages`).
    pub transparent_bytes: Option<u64>,
    /// The setting `transparent_hugepage/enabled`: the chosen word.
    pub transparent_enabled: Option<String>,
    /// The setting `transparent_hugepage/defrag`: the chosen word.
    pub transparent_defrag: Option<String>,
}

/// Source of the outlook, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The use of each frame (kpageflags).
    Frames,
    /// The types of pageblocks and of free blocks (pagetypeinfo).
    PageblockTypes,
    /// Only the number of free pages.
    FreePages,
}

impl Basis {
    /// Returns the method by which the bounds are computed, as a sentence.
    #[must_use]
    pub const fn how(self) -> &'static str {
        match self {
            Basis::Frames => {
                "each frame's use was read: a pageblock can become whole if nothing in it stays where it is, as far \
                 as free pages suffice; pages that are pinned for I/O or fail to move make it fewer"
            }
            Basis::PageblockTypes => {
                "the free pages of Movable pageblocks, gathered into whole ones; kernel pages that stand in \
                 Movable pageblocks make it fewer, and `--frames` counts those"
            }
            Basis::FreePages => {
                "all free pages, gathered into whole blocks; types could not be read, so what stands in the way is \
                 not known"
            }
        }
    }
}

/// The outlook of one zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ZoneHuge {
    #[serde(flatten)]
    pub zone: ZoneName,
    /// Free blocks of that order, whatever the watermarks say.
    pub listed: u64,
    /// The numbers of huge pages.
    #[serde(flatten)]
    pub blocks: Blocks,
}

/// Numbers of blocks of a pageblock's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Blocks {
    /// Blocks that there are, free or in use.
    pub total: u64,
    /// Blocks for which the free memory above the watermarks would suffice if it were whole.
    pub room: u64,
    /// Blocks that a process could have now, one after the other, before the watermarks stop it.
    pub now: u64,
    /// Upper bound of the number after compaction.
    pub after_compaction: u64,
    /// Blocks for which free memory and page cache would suffice if they were whole.
    pub room_with_cache: u64,
    /// Upper bound of the number after page cache is dropped as well.
    pub after_reclaim: u64,
    /// Forecast of the number after a pass of compaction, and after page cache is dropped before it; `null` unless each
    /// frame was read and the kernel's release is known.
    pub forecast_after_compaction: Option<Forecast>,
    pub forecast_after_reclaim: Option<Forecast>,
}

impl Blocks {
    /// Returns the sums; they saturate.
    pub(super) fn and(self, more: Blocks) -> Blocks {
        let both = |of: fn(&Blocks) -> Option<Forecast>| Some(of(&self)?.and(of(&more)?));
        Blocks {
            total: self.total.saturating_add(more.total),
            room: self.room.saturating_add(more.room),
            now: self.now.saturating_add(more.now),
            after_compaction: self.after_compaction.saturating_add(more.after_compaction),
            room_with_cache: self.room_with_cache.saturating_add(more.room_with_cache),
            after_reclaim: self.after_reclaim.saturating_add(more.after_reclaim),
            forecast_after_compaction: both(|each| each.forecast_after_compaction),
            forecast_after_reclaim: both(|each| each.forecast_after_reclaim),
        }
    }

    /// Returns the sums over zones.
    pub(super) fn of(zones: &[(ZoneHuge, Basis)]) -> Blocks {
        zones.iter().map(|(zone, _)| zone.blocks).reduce(Blocks::and).unwrap_or_default()
    }

    /// Returns the forecast after compaction, if it is certain enough.
    #[must_use]
    pub fn compacted(&self) -> Option<u64> {
        self.forecast_after_compaction?.known()
    }

    /// Returns the forecast after page cache is dropped and memory compacted, if it is certain enough.
    #[must_use]
    pub fn reclaimed(&self) -> Option<u64> {
        self.forecast_after_reclaim?.known()
    }
}

/// Returns the outlook of each zone that the page allocator serves, with its basis.
pub(super) fn outlook(
    frames: Option<&FrameReport>,
    snapshot: &Snapshot<'_>,
) -> Vec<(ZoneHuge, Basis)> {
    let zones = zones::survey(snapshot);
    of_zones(frames, snapshot, &requests::asked(snapshot, &zones))
}

/// Returns the outlook of each of `zones`, with its basis.
pub(super) fn of_zones(
    frames: Option<&FrameReport>,
    snapshot: &Snapshot<'_>,
    zones: &[Asked<'_>],
) -> Vec<(ZoneHuge, Basis)> {
    let order = snapshot.pageblock_order();
    zones.iter().map(|each| zone_huge(frames, snapshot, each, order)).collect()
}

/// Returns the outlook for huge pages; `None` without zones that the page allocator serves.
pub(super) fn survey(
    sources: &Sources,
    snapshot: &Snapshot<'_>,
    of_zones: &[(ZoneHuge, Basis)],
) -> Option<HugePages> {
    let order = snapshot.pageblock_order();
    let basis = of_zones.iter().map(|(_, basis)| *basis).max()?;
    let zones: Vec<ZoneHuge> = of_zones.iter().map(|(zone, _)| zone.clone()).collect();
    let chosen = |name| chosen(&sources.files.text(name)?);
    Some(HugePages {
        order,
        bytes: pages(1, order).saturating_mul(snapshot.page_bytes()),
        listed: zones.iter().map(|zone| zone.listed).fold(0, u64::saturating_add),
        blocks: Blocks::of(of_zones),
        basis,
        how: basis.how(),
        pools: sources.pools.clone(),
        transparent_bytes: sources
            .files
            .text("meminfo")
            .and_then(|text| crate::fields::meminfo_bytes(&text, "AnonHugePages").ok()),
        transparent_enabled: chosen("transparent_hugepage_enabled"),
        transparent_defrag: chosen("transparent_hugepage_defrag"),
        zones,
    })
}

/// Returns the word in brackets, which is the chosen one: `madvise` of `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(super::printable(word))
}

fn zone_huge(
    frames: Option<&FrameReport>,
    snapshot: &Snapshot<'_>,
    asked: &Asked<'_>,
    order: u32,
) -> (ZoneHuge, Basis) {
    let (zone, info) = (&asked.zone.zone, asked.info);
    let room = snapshot.room(info);
    let block = pages(1, order).max(1);
    let file = file_pages(info);
    let frames = frames.and_then(|frames| frames.of(zone)).map(|frames| &frames.pageblocks);
    let (bounds, basis) = match frames {
        Some(frames) => (Bounds::of_frames(frames), Basis::Frames),
        None => Bounds::of_lists(snapshot, asked.zone, order, file),
    };
    let now = snapshot.obtainable(zone).get(order as usize).copied().unwrap_or(0);
    let room_with_cache = room.saturating_add(file) / block;
    let after_compaction = bounds.compaction.min(room / block).max(now);
    let after_reclaim = bounds.reclaim.min(room_with_cache).max(after_compaction);
    let forecast =
        |of: fn(&Pageblocks) -> Option<Forecast>, most| Some(of(frames?)?.within(now, most));
    let blocks = Blocks {
        total: bounds.total,
        room: room / block,
        now,
        after_compaction,
        room_with_cache,
        after_reclaim,
        forecast_after_compaction: forecast(|it| it.forecast_after_compaction, after_compaction),
        forecast_after_reclaim: forecast(|it| it.forecast_after_reclaim, after_reclaim),
    };
    (ZoneHuge { zone: zone.clone(), listed: snapshot.takeable(zone, order), blocks }, basis)
}

/// Returns the number of pages of files in a zone.
fn file_pages(zone: &ZoneInfo) -> u64 {
    let names = ["nr_zone_active_file", "nr_zone_inactive_file"];
    let known = names.iter().filter_map(|name| zone.counters.get(*name));
    known.fold(0, |sum, &pages| sum.saturating_add(pages))
}

/// Upper bounds of the number of whole pageblocks, whatever the watermarks say: in all, after compaction, and after
/// reclaim.
struct Bounds {
    total: u64,
    compaction: u64,
    reclaim: u64,
}

impl Bounds {
    fn of_frames(frames: &Pageblocks) -> Bounds {
        Bounds {
            total: frames.pageblocks,
            compaction: frames.after_compaction,
            reclaim: frames.after_reclaim,
        }
    }

    fn of_lists(snapshot: &Snapshot<'_>, zone: &Zone, order: u32, file: u64) -> (Bounds, Basis) {
        let block = pages(1, order).max(1);
        let whole = zone.orders.get(order as usize).map_or(0, |row| row.available);
        let can_move = [Migratetype::Movable, Migratetype::Cma];
        let is_movable = |name: &str| can_move.iter().any(|each| each.name() == name);
        let movable = zone.types.iter().filter(|row| is_movable(&row.migratetype));
        let movable_blocks: u64 =
            movable.filter_map(|row| row.pageblocks).fold(0, u64::saturating_add);
        let all_blocks =
            zone.types.iter().filter_map(|row| row.pageblocks).fold(0, u64::saturating_add);
        if all_blocks == 0 {
            let of = |pages: u64| (pages / block).max(whole);
            let total = zone.managed_pages.unwrap_or(0) / block;
            let reclaim = of(zone.free_pages.saturating_add(file)).min(total).max(whole);
            let compaction = of(zone.free_pages);
            return (Bounds { total, compaction, reclaim }, Basis::FreePages);
        }
        let loose = most_pages(zone, is_movable);
        let whole_movable = can_move
            .iter()
            .map(|&each| snapshot.blocks_of_type(&zone.zone, each, order))
            .fold(0, u64::saturating_add);
        let others = whole.saturating_sub(whole_movable);
        let of = |pages: u64| others.saturating_add((pages / block).min(movable_blocks)).max(whole);
        let reclaim = of(loose.saturating_add(file));
        (Bounds { total: all_blocks, compaction: of(loose), reclaim }, Basis::PageblockTypes)
    }
}

/// Returns an upper bound of the free pages of the types that `is_meant` accepts. A list that the kernel did not count
/// to its end has at most the blocks that buddyinfo lists of the order and no other type has.
/// Source: docs/sources/trace.md#t2.
fn most_pages(zone: &Zone, is_meant: impl Fn(&str) -> bool) -> u64 {
    let mut sum = 0_u64;
    for row in &zone.orders {
        let count = |meant: bool| {
            let types = zone.types.iter().filter(|each| is_meant(&each.migratetype) == meant);
            let counts: Vec<BlockCount> =
                types.filter_map(|each| each.blocks.get(row.order as usize).copied()).collect();
            let least = counts.iter().fold(0, |sum: u64, count| sum.saturating_add(count.least()));
            (least, counts.iter().all(|count| count.exact().is_some()))
        };
        let ((least, is_exact), (others, _)) = (count(true), count(false));
        let blocks = if is_exact { least } else { row.blocks.saturating_sub(others).max(least) };
        sum = sum.saturating_add(pages(blocks, row.order));
    }
    sum
}

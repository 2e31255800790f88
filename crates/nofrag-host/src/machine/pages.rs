//! Pages in detail: [`survey`] computes a [`Pages`], which is also the schema of `nofrag host pages --json`.
//!
//! Three files state three facts. buddyinfo gives the number of free blocks, pagetypeinfo the types of free blocks and
//! of pageblocks, and kpageflags the use of each frame, and it alone shows where in memory anything lies. Free blocks
//! found in the frames stand beside those listed: the files are not of one moment.

use serde::Serialize;

use super::pageblocks::{LITTLE, Pageblocks};
use super::verdict::{self, Verdict};
use super::zones::{self, TypeRow, Zone};
use super::{Host, Sources, finding, huge, requests};
use crate::finding::{Finding, bytes_text};
use crate::snapshot::{Files, SlabCache, Snapshot, ZoneName, slabinfo};
use crate::source::Missing;

/// The pages of one machine.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pages {
    pub host: Host,
    /// The verdict on the whole; `null` without zones.
    pub verdict: Option<Verdict>,
    /// Number of frames whose use is known; `null` where kpageflags could not be read.
    pub frames: Option<u64>,
    /// The zones with memory, by node and highest first.
    pub zones: Vec<ZonePages>,
    /// The caches of kernel objects that hold most memory, the largest first; empty where slabinfo was not read.
    /// Nothing tells which frames are whose.
    pub slabs: Vec<SlabCache>,
    /// The findings, most urgent first.
    pub findings: Vec<Finding>,
    /// Files that could not be had.
    pub missing: Vec<Missing>,
}

/// The pages of one zone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ZonePages {
    #[serde(flatten)]
    pub zone: ZoneName,
    /// Name for people: the zone's name, with the node where there are several.
    pub label: String,
    /// Pages that the allocator hands out; `null` where zoneinfo is missing.
    pub managed_pages: Option<u64>,
    /// Free blocks by order, as listed and as found.
    pub free_blocks: Vec<FreeBlocks>,
    /// Free blocks and pageblocks by type; empty where pagetypeinfo could not be read.
    pub types: Vec<TypeRow>,
    /// The pageblocks of the zone; `null` where kpageflags could not be read.
    pub pageblocks: Option<Pageblocks>,
}

/// The free blocks of one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FreeBlocks {
    pub order: u32,
    /// Number in buddyinfo; `null` where it could not be read.
    pub listed: Option<u64>,
    /// Number found in the frames; `null` where kpageflags could not be read.
    pub found: Option<u64>,
}

/// Computes the report from the files that were read. Pure.
#[must_use]
pub fn survey(sources: &Sources) -> Pages {
    let snapshot = Snapshot::parse(&sources.files);
    let rows = zones::survey(&snapshot);
    let frames = sources.frames.as_ref();
    let huge = huge::of_zones(frames, &snapshot, &requests::asked(&snapshot, &rows));
    let verdict = verdict::judge(&snapshot, &huge, sources);
    let zones = rows.into_iter().map(|row| {
        let frames = frames.and_then(|frames| frames.of(&row.zone));
        ZonePages {
            free_blocks: free_blocks(&row, frames.map(|frames| &frames.free_blocks[..])),
            pageblocks: frames.map(|frames| frames.pageblocks.clone()),
            managed_pages: row.managed_pages,
            zone: row.zone,
            label: row.label,
            types: row.types,
        }
    });
    let zones: Vec<ZonePages> = zones.collect();
    let host = super::host(sources, &snapshot);
    let damaged = of_pages(super::damaged(sources, &snapshot));
    let slabs = slabs(&sources.files);
    let mut findings = findings(&zones);
    findings.extend(verdict.as_ref().and_then(finding::fragmented));
    findings.extend(finding::damaged(&damaged));
    findings.extend(finding::lists_are_not_all(snapshot.free_gap(), host.page_bytes));
    findings.sort_by_key(|finding| finding.severity);
    Pages {
        host,
        verdict,
        frames: frames.map(|report| report.frames),
        slabs,
        findings,
        missing: of_pages(super::missing(sources, &snapshot)),
        zones,
    }
}

/// Keeps only the missing files that the report on pageblocks would have used.
pub(super) fn of_pages(missing: Vec<Missing>) -> Vec<Missing> {
    const USED: [&str; 7] =
        ["kpageflags", "pagetypeinfo", "buddyinfo", "zoneinfo", "meminfo", "vmstat", "iomem"];
    let is_used = |each: &Missing| USED.iter().any(|name| each.path.ends_with(name));
    missing.into_iter().filter(is_used).collect()
}

/// Returns the caches of kernel objects that hold most memory.
fn slabs(files: &Files) -> Vec<SlabCache> {
    const MOST: usize = 5;
    let mut slabs = files.text("slabinfo").map(|text| slabinfo(&text)).unwrap_or_default();
    slabs.truncate(MOST);
    slabs
}

fn free_blocks(zone: &Zone, found: Option<&[u64]>) -> Vec<FreeBlocks> {
    let orders = zone.orders.len().max(found.map_or(0, <[u64]>::len));
    let row = |order: usize| FreeBlocks {
        order: order as u32,
        listed: zone.orders.get(order).map(|row| row.blocks),
        found: found.and_then(|blocks| blocks.get(order).copied()),
    };
    (0..orders).map(row).collect()
}

/// Returns the findings on pageblocks, most urgent first.
fn findings(zones: &[ZonePages]) -> Vec<Finding> {
    let each = || zones.iter().filter_map(|zone| Some((zone, zone.pageblocks.as_ref()?)));
    let mut findings: Vec<Finding> = never_again(&each().collect::<Vec<_>>()).into_iter().collect();
    findings.extend(each().flat_map(|(zone, blocks)| {
        [never_whole(zone, blocks), pinned_by_little(zone, blocks)].into_iter().flatten()
    }));
    findings
}

/// Returns a warning if the kernel by itself cannot make one pageblock of the machine whole.
fn never_again(zones: &[(&ZonePages, &Pageblocks)]) -> Option<Finding> {
    let sum = |of: fn(&Pageblocks) -> u64| -> u64 { zones.iter().map(|(_, each)| of(each)).sum() };
    let all = sum(|blocks| blocks.pageblocks);
    let (_, most) = zones.iter().max_by_key(|(_, blocks)| blocks.pageblocks)?;
    (all > 0 && sum(|blocks| blocks.after_reclaim) == 0).then(|| Finding::warning("no-pageblock-can-be-whole", format!(
            "none of {all} pageblocks of {} is free, and none would be after compaction and after page cache is \
             dropped; what stays where it is: {}",
            bytes_text(most.bytes),
            most_of(most)
        ), "no huge page can be had, nor any other block of this size", "free memory first: where nothing is free \
            there is no room to move pages to; then `nofrag record` shows \
               who asks for what stays"))
}

/// Returns the uses that pin most of the pageblocks, in words.
fn most_of(blocks: &Pageblocks) -> String {
    let by = blocks.pinned_by.iter().take(3);
    let by: Vec<String> =
        by.map(|by| format!("{} in {}", by.usage.into_str(), by.pageblocks)).collect();
    by.join(", ")
}

fn never_whole(zone: &ZonePages, blocks: &Pageblocks) -> Option<Finding> {
    let pinned = blocks.pinned - blocks.perhaps_free;
    (pinned > 0 && pinned >= blocks.pageblocks / 2).then(|| Finding::note("half-is-pinned", format!(
            "at least {pinned} of {} pageblocks of {} hold something that cannot be moved: {}",
            blocks.pageblocks,
            zone.label,
            most_of(blocks)
        ), format!(
            "neither compaction nor reclaim makes these whole: at most {} huge pages can be had here",
            blocks.pageblocks - pinned
        ), "kernel memory leaves only when its owner frees it, or ends: `nofrag record` shows who asks for it, \
               `vm.drop_caches=2` frees reclaimable slab"))
}

fn pinned_by_little(zone: &ZonePages, blocks: &Pageblocks) -> Option<Finding> {
    /// Share of pageblocks, one in this number, below which there is no note.
    const SHARE: u64 = 10;
    let little = blocks.pinned_by_little.saturating_sub(blocks.perhaps_free);
    (little > 0 && little >= blocks.pageblocks / SHARE).then(|| Finding::note("pinned-by-little", format!(
            "at least {little} pageblocks of {} ({}) are kept from being whole by at most one page in {LITTLE}: {}",
            zone.label,
            bytes_text(little.saturating_mul(blocks.bytes)),
            most_of(blocks)
        ), "types were mixed: a few pages of the kernel stand where whole blocks could be", "see that \
            vm.watermark_boost_factor is not 0; vm.defrag_mode=1 from 7.2 on keeps types apart, at the \
               price of reclaim; `nofrag replay` tries both on what `nofrag record` has recorded here"))
}

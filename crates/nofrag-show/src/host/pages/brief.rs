//! The report of `nofrag host pages` on one screen: the verdict, then the zones, those with most pageblocks in which
//! something stays first, and of the first of them what stays and where. The rest is in [`super::text`], which `--all`
//! shows.

use std::cmp::Reverse;

use nofrag_host::machine::pageblocks::Pageblocks;
use nofrag_host::machine::pages::{Pages, ZonePages};
use nofrag_host::machine::zones::TypeRow;

use super::{SLABS, free_blocks, heading, slabs, text};
use crate::host::parts;
use crate::{Cell, Look, Table, bytes, cells, plural, sentence};

/// The way to what is left out.
const REST: &str = "--all shows the findings, the pages that stay, the uses of frames and the free \
                    blocks of each zone.";

/// The most zones with a row of their own.
const MOST_ZONES: usize = 8;

/// Returns the report that fits on one screen.
#[must_use]
pub fn brief(pages: &Pages, look: Look) -> String {
    let (verdict, others) = parts::verdict_with(pages.verdict.as_ref(), &pages.findings, look);
    let zones = worst_first(pages);
    let mut sections = vec![verdict, look.wrapped("", &heading(pages))];
    sections.push(parts::brief_findings(&others, look));
    sections.push(pageblocks(&zones, look));
    sections.extend(parts::brief_missing(&pages.missing, look));
    if let Some((zone, blocks)) =
        zones.first().and_then(|zone| Some((zone, zone.pageblocks.as_ref()?)))
    {
        let title =
            look.hanging("", 2, &format!("{}: where something stays, and what", zone.label));
        sections.push(
            title + &text::map(&blocks.map, look) + &staying(blocks, pages.host.page_bytes, look),
        );
    }
    sections.extend(slabs(pages).map(|slabs| look.hanging(&format!("{SLABS}: "), 2, &slabs)));
    for zone in zones {
        let title = look.hanging("", 2, &format!("{}: free blocks", zone.label));
        let types = zone.types.iter().filter(|row| !is_empty(row));
        sections.push(title + &free_blocks(zone, types).text("  ", look));
    }
    parts::on_screen(sections, REST, None, look)
}

/// Returns the zones with most pageblocks in which something stays first; where these are not known, those with most
/// free memory in blocks smaller than a pageblock.
fn worst_first(pages: &Pages) -> Vec<&ZonePages> {
    let small = |zone: &ZonePages| {
        let rows = zone.free_blocks.iter().filter(|row| row.order < pages.host.pageblock_order);
        let pages = rows.map(|row| {
            row.listed.unwrap_or(0).saturating_mul(1_u64.checked_shl(row.order).unwrap_or(0))
        });
        pages.fold(0, u64::saturating_add)
    };
    let pinned = |zone: &ZonePages| zone.pageblocks.as_ref().map_or(0, |blocks| blocks.pinned);
    let mut zones: Vec<&ZonePages> = pages.zones.iter().collect();
    zones.sort_by_key(|zone| Reverse((pinned(zone), small(zone))));
    zones
}

/// Returns true for a type that has neither a free block nor a pageblock.
fn is_empty(row: &TypeRow) -> bool {
    row.pageblocks.unwrap_or(0) == 0 && row.blocks.iter().all(|blocks| blocks.least() == 0)
}

/// Returns the pageblocks of each zone by what is in them; nothing where that is not known.
fn pageblocks(zones: &[&ZonePages], look: Look) -> String {
    let known = || zones.iter().filter_map(|zone| Some((zone, zone.pageblocks.as_ref()?)));
    if known().next().is_none() {
        return String::new();
    }
    let mut grid = Table::new(&[
        "pageblocks",
        "all",
        "free",
        "can move",
        "stay",
        "by little",
        "compacted",
        "cache dropped",
    ]);
    for (zone, blocks) in known().take(MOST_ZONES) {
        grid.row(cells![
            zone.label.as_str(),
            blocks.pageblocks,
            blocks.free,
            blocks.movable,
            blocks.pinned,
            blocks.pinned_by_little,
            blocks.after_compaction,
            blocks.after_reclaim,
        ]);
    }
    let mut legend = "stay: something in them cannot be moved, by little if it is at most one page in 16; compacted, \
                      cache dropped: free after that, at most"
        .to_owned();
    if let Some(more) = known().count().checked_sub(MOST_ZONES).filter(|&more| more > 0) {
        legend +=
            &format!("; {} with fewer that stay", plural(more as u64, "zone more", "zones more"));
    }
    grid.text("", look) + &look.hanging("", 0, &sentence(&legend))
}

/// Returns the uses of frames that keep pageblocks from becoming whole, the worst first, and how much of a pageblock
/// stays.
fn staying(blocks: &Pageblocks, page_bytes: u64, look: Look) -> String {
    if blocks.pinned_by.is_empty() {
        return String::new();
    }
    let mut grid =
        Table::new(&["what stays", "pages", "bytes", "in pageblocks", "share", "alone in"]);
    for by in &blocks.pinned_by {
        let pages =
            blocks.uses.iter().find(|each| each.usage == by.usage).map_or(0, |each| each.pages);
        grid.row(cells![
            by.usage.into_str(),
            pages,
            bytes(pages.saturating_mul(page_bytes)),
            by.pageblocks,
            Cell::share(by.pageblocks, blocks.pageblocks),
            by.alone,
        ]);
    }
    let half = blocks.bytes / 2;
    let mostly: u64 = blocks
        .pinned_classes
        .iter()
        .filter(|class| class.from_pages.saturating_mul(page_bytes) >= half)
        .map(|class| class.pageblocks)
        .sum();
    let says = format!("half of the pageblock or more stays in {mostly} of the {}", blocks.pinned);
    grid.text("  ", look) + &look.wrapped("  ", &sentence(&says))
}

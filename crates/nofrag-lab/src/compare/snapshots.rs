//! Snapshots: free blocks by order, the types of pageblocks, and the uses of memory.

use std::collections::BTreeSet;

use nofrag_host::machine::pageblocks::survey;
use nofrag_host::snapshot::{
    Files, FrameUse, PageTypes, Snapshot, ZoneInfo, ZoneName, ZonePageblocks,
};

use super::{Better, ComparedRow, Each, Found, Group, Machines, Scale, percent};
use crate::explain::damaged;

use Better::{Less, More, Neither};
use Scale::{Count, Share};

pub(super) fn compare(files: &[&Files]) -> Found {
    let parsed = files.each(|files| Snapshot::parse(files));
    let sides = &parsed.iter().collect::<Vec<_>>()[..];
    let zones: BTreeSet<ZoneName> = sides.iter().flat_map(|side| zone_names(side)).collect();
    let mut groups = Vec::new();
    for zone in &zones {
        groups.push(Group { title: zone.to_string(), rows: zone_rows(zone, sides) });
    }
    groups.push(Group { title: "pages by use".to_owned(), rows: uses(sides) });
    groups.push(Group { title: "pageblocks by content".to_owned(), rows: pageblocks(sides) });
    groups.push(Group { title: "counters since boot".to_owned(), rows: counters(sides) });
    let damage = parsed.iter().zip(files).filter_map(|(side, files)| damaged(side, files));
    Found { machines: machines(sides), groups, damage: damage.collect() }
}

/// Tells whether the snapshots come from one machine: kernel and zones agree.
pub(super) fn machines(sides: &[&Snapshot<'_>]) -> Machines {
    let zones = |side: &Snapshot<'_>| -> Vec<_> {
        side.zones.iter().map(|zone| (zone.zone.clone(), zone.start_pfn, zone.present)).collect()
    };
    let is_one = sides.windows(2).all(|pair| {
        let [old, new] = [pair[0], pair[1]];
        let known = old.release.is_some() && !old.zones.is_empty();
        known && old.release == new.release && zones(old) == zones(new)
    });
    if is_one { Machines::Same } else { Machines::Different }
}

fn zone_names(side: &Snapshot<'_>) -> Vec<ZoneName> {
    let populated = side.populated().map(|zone| zone.zone.clone());
    populated.chain(side.buddy.iter().map(|blocks| blocks.zone.clone())).collect()
}

fn zone_rows(zone: &ZoneName, sides: &[&Snapshot<'_>]) -> Vec<ComparedRow> {
    let info = sides.each(|side| side.zones.iter().find(|info| info.zone == *zone));
    let of_info = |figure: fn(&ZoneInfo) -> Option<u64>| {
        info.each(|info| info.and_then(figure).map(|n| n as f64))
    };
    let buddy = sides.each(|side| side.blocks(zone));
    let mut rows = vec![
        ComparedRow::new("managed pages", Count, Neither, of_info(|info| Some(info.managed))),
        ComparedRow::new("free pages", Count, Neither, of_info(|info| Some(info.free))),
        ComparedRow::new(
            "free, % of the managed pages",
            Share,
            Neither,
            info.each(|info| info.and_then(|info| percent(info.free, info.managed))),
        ),
        ComparedRow::new("pages of boost", Count, Less, of_info(|info| info.boost)),
        ComparedRow::new(
            "largest free order",
            Share,
            More,
            buddy.each(|blocks| blocks.map(|blocks| blocks.largest().map_or(-1.0, f64::from))),
        ),
    ];
    let orders = buddy.iter().flatten().map(|blocks| blocks.blocks.len()).max().unwrap_or(0);
    for order in 0..orders {
        let blocks = buddy.each(|blocks| (*blocks)?.blocks.get(order).map(|&count| count as f64));
        // Small blocks are neither good nor bad; huge pages are made of blocks as large as a pageblock.
        let whole = sides.iter().all(|side| order >= side.pageblock_order() as usize);
        let better = if whole { More } else { Neither };
        rows.push(ComparedRow::new(format!("free blocks of order {order}"), Count, better, blocks));
    }
    rows.extend(indices(zone, sides));
    rows.extend(types(zone, sides));
    rows
}

/// Returns the fragmentation indices at the order of a pageblock, and at order 3, the largest that the kernel takes for
/// cheap.
/// Source: docs/sources/trace.md#indices.
fn indices(zone: &ZoneName, sides: &[&Snapshot<'_>]) -> Vec<ComparedRow> {
    const CHEAP: u32 = 3;
    let mut rows = Vec::new();
    let pageblock = sides[0].pageblock_order();
    for order in [CHEAP, pageblock] {
        let found = sides.each(|side| side.blocks(zone).map(|blocks| blocks.indices(order)));
        rows.push(ComparedRow::new(
            format!("unusable index at order {order}, 1/1000"),
            Share,
            Less,
            found.each(|indices| indices.map(|indices| indices.unusable as f64)),
        ));
        let fragmentation = |indices: &Option<nofrag::page::FragmentationIndices>| {
            indices.map(|indices| indices.fragmentation.map_or(-1000.0, |index| index as f64))
        };
        rows.push(ComparedRow::new(
            format!("fragmentation index at order {order}, 1/1000; -1000: a request would succeed"),
            Share,
            Neither,
            found.each(fragmentation),
        ));
    }
    rows
}

/// Returns a zone's pageblocks and free pages by type.
fn types(zone: &ZoneName, sides: &[&Snapshot<'_>]) -> Vec<ComparedRow> {
    let mut rows = Vec::new();
    let names: BTreeSet<&String> = sides
        .iter()
        .filter_map(|side| side.types.as_ref())
        .flat_map(|types| &types.names)
        .collect();
    for name in names {
        let number = |side: &Snapshot<'_>| {
            let types = side.types.as_ref()?;
            types.names.iter().position(|known| known == name)
        };
        let listed = |list: fn(&PageTypes) -> &[ZonePageblocks]| {
            sides.each(|side| {
                let row = list(side.types.as_ref()?).iter().find(|row| row.zone == *zone)?;
                row.pageblocks.get(number(side)?).map(|&count| count as f64)
            })
        };
        let [blocks, mixed] = [listed(|types| &types.pageblocks), listed(|types| &types.mixed)];
        rows.push(ComparedRow::new(format!("pageblocks of type {name}"), Count, Neither, blocks));
        rows.push(ComparedRow::new(
            format!("of these with pages of other types, {name}"),
            Count,
            Less,
            mixed,
        ));
        let free = sides.each(|side| {
            let number = number(side)?;
            let mut of_type = side.types.as_ref()?.free.iter();
            let row = of_type.find(|row| row.zone == *zone && row.number == number)?;
            // The kernel stops counting at some length; then the pages are not known.
            row.blocks.iter().zip(0..).try_fold(0.0, |sum, (count, order)| {
                Some(sum + count.exact()? as f64 * f64::from(1_u32.checked_shl(order)?))
            })
        });
        rows.push(ComparedRow::new(format!("free pages of type {name}"), Count, Neither, free));
    }
    rows.retain(|row| row.values.iter().flatten().flatten().any(|&value| value != 0.0));
    rows
}

/// Returns pages by use, where the map of frames is there.
fn uses(sides: &[&Snapshot<'_>]) -> Vec<ComparedRow> {
    let counts = sides.each(|side| side.pages.map(|pages| pages.count_uses(0..u64::MAX)));
    let mut rows = Vec::new();
    for usage in FrameUse::ALL.iter().copied().filter(|usage| usage.is_managed()) {
        let name = format!("{usage:?}").to_lowercase();
        let count = counts.each(|counts| counts.map(|counts| counts[usage.index()] as f64));
        if count.iter().any(Option::is_some) {
            rows.push(ComparedRow::new(name, Count, Neither, count));
        }
    }
    rows
}

/// Counts the pageblocks that are wholly free, that hold movable pages only, and that hold one that must stay.
fn pageblocks(sides: &[&Snapshot<'_>]) -> Vec<ComparedRow> {
    let found = sides.each(|side| {
        let map = side.pages?;
        let zones = side.populated().filter_map(|zone| survey(side, &map, zone));
        let zones = zones.map(|zone| [zone.free, zone.movable, zone.pinned]);
        zones.reduce(|all, zone| [0, 1, 2].map(|at| all[at] + zone[at]))
    });
    if found.iter().all(Option::is_none) {
        return Vec::new();
    }
    let count = |at: usize| found.each(|states| states.map(|states| states[at] as f64));
    let share = |at: usize| {
        found.each(|states| states.and_then(|states| percent(states[at], states.iter().sum())))
    };
    const PINNED: &str = "something that cannot be moved";
    vec![
        ComparedRow::new("wholly free", Count, More, count(0)),
        ComparedRow::new("nothing but movable pages", Count, Neither, count(1)),
        ComparedRow::new(PINNED, Count, Less, count(2)),
        ComparedRow::new("wholly free, %", Share, More, share(0)),
        ComparedRow::new(format!("{PINNED}, %"), Share, Less, share(2)),
    ]
}

/// Returns the counters of reclaim, compaction and huge pages. They only grow, so neither way is better.
fn counters(sides: &[&Snapshot<'_>]) -> Vec<ComparedRow> {
    const BEGINNINGS: [&str; 6] =
        ["allocstall", "compact_", "thp_fault", "pgmigrate_", "pgsteal_", "pgscan_direct"];
    let wanted = |name: &&str| BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
    let names: BTreeSet<&str> = sides
        .iter()
        .flat_map(|side| side.vmstat.iter().map(|(name, _)| name))
        .filter(wanted)
        .collect();
    let rows = names.into_iter().map(|name| {
        let values = sides.each(|side| side.vmstat.get(name).map(|count| count as f64));
        ComparedRow::new(name, Count, Neither, values)
    });
    rows.collect()
}

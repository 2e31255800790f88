//! The recorded host with more or less memory.
//!
//! A smaller machine ends earlier: frames are cut off each node's end. Blocks beyond it that cannot be given up stay in
//! use elsewhere, in pageblocks of their type where there is room, and so do reserved frames there, except for the part
//! of the map of frames that describes frames that are gone. Then pages of files are dropped, each as likely as any
//! other, until the rest fits and all zones' high watermarks together are free; if that is not enough, pages of
//! processes and of shared memory go too, as to a swap device, and are counted apart.
//!
//! A larger machine goes on behind the last zone. Memory beyond 4 GiB is not DMA32.

use std::ops::Range;

use nofrag::page::{FragmentationPolicy, MemoryMap, Migratetype, PageAllocator, ZoneKind};
use nofrag::units::{Order, Pfn};
use nofrag_host::snapshot::{FrameUse, ZoneName};

use super::super::ReplayError;
use super::memory::{BLOCK, Memory, Zone, runs};
use super::settings::HostSettings;
use super::{Held, Host, RESIZE, Resized};
use crate::random::Random;

/// The first frame that devices with 32 address bits do not reach.
pub(super) const DMA32_END: u64 = 1 << 20;

/// Frames that one frame of the kernel's map describes: the map takes 64 bytes for each frame of 4096.
const DESCRIBED: u64 = 64;

/// The largest size of memory, in percent: the room that 32-bit frame numbers leave a host of a few GiB.
const MOST_PERCENT: u32 = 100_000;

/// The layout of a machine of another size.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) map: MemoryMap,
    /// The place of each block in use; `None` for one that had to go.
    pub(super) places: Vec<Option<Pfn>>,
    /// Types of pageblocks, by first frame.
    pub(super) types: Vec<(Pfn, Migratetype)>,
    pub(super) resized: Resized,
}

/// Plans the host with `percent` of its memory.
pub(super) fn plan(
    host: &Host,
    settings: &HostSettings,
    percent: u32,
) -> Result<Layout, ReplayError> {
    if percent == 0 || percent > MOST_PERCENT {
        return Err(ReplayError::Host(format!(
            "{percent} % of the host's memory cannot be replayed; name a size from 1 to {MOST_PERCENT} %"
        )));
    }
    if percent == 100 {
        let places = host.in_use.iter().map(|held| Some(held.pfn)).collect();
        let (map, types) = (host.map.clone(), host.types.clone());
        return Ok(Layout { map, places, types, resized: Resized::default() });
    }
    let memory =
        if percent < 100 { smaller(&host.memory, percent)? } else { larger(&host.memory, percent) };
    let map = memory.map()?;
    let exists = |&(pfn, _): &(Pfn, Migratetype)| {
        let zone = memory.zones.iter().find(|zone| zone.span.contains(&pfn.0));
        // A zone's last part of a pageblock cannot be set aside.
        zone.is_some_and(|zone| pfn.0 + BLOCK <= zone.span.end)
    };
    let types: Vec<_> = host.types.iter().copied().filter(exists).collect();
    let mut resized = Resized::default();
    let dropped = drop_some(host, settings, &map, &memory, percent, &mut resized)?;
    let places = place(host, &memory, &types, &dropped, &mut resized)?;
    Ok(Layout { map, places, types, resized })
}

/// Returns the memory of a machine that ends earlier.
fn smaller(memory: &Memory, percent: u32) -> Result<Memory, ReplayError> {
    let mut left = memory.clone();
    let mut nodes: Vec<u32> = memory.zones.iter().map(|zone| zone.name.node).collect();
    nodes.dedup();
    for node in nodes {
        let own = memory.zones.iter().filter(|zone| zone.name.node == node);
        let present: u64 = own.map(Zone::present).sum();
        let mut excess = present - present * u64::from(percent) / 100;
        let mut lost = 0;
        let zones = left.zones.iter_mut().filter(|zone| zone.name.node == node);
        for zone in zones.rev() {
            let (cut, reserved) = cut(zone, excess);
            excess -= cut;
            lost += reserved.saturating_sub(cut / DESCRIBED);
            if excess == 0 {
                break;
            }
        }
        let last = left.zones.iter_mut().rfind(|zone| zone.name.node == node && zone.present() > 0);
        if let Some(last) = last {
            reserve(last, lost);
        }
    }
    match left.managed() {
        0 => Err(too_little(percent, "nothing of it is left for the allocator")),
        _ => Ok(left),
    }
}

/// Cuts `excess` frames with memory off a zone's end, or fewer, to a whole pageblock. Returns the number of frames that
/// were cut, and of those among them that were reserved.
fn cut(zone: &mut Zone, excess: u64) -> (u64, u64) {
    let before = (zone.present(), zone.managed());
    let holes = zone.holes.clone();
    let is_hole = |pfn: u64| holes.iter().any(|hole| hole.has(Pfn(pfn)));
    let (mut end, mut cut) = (zone.span.end, 0);
    while cut < excess && end > zone.span.start {
        end -= 1;
        cut += u64::from(!is_hole(end));
    }
    zone.span.end = end.next_multiple_of(BLOCK).min(zone.span.end);
    let span = zone.span.clone();
    for ranges in [&mut zone.holes, &mut zone.reserved] {
        let old = std::mem::take(ranges);
        let is_in = |pfn: u64| old.iter().any(|range| range.has(Pfn(pfn)));
        *ranges = runs(span.clone(), is_in);
    }
    let cut = before.0 - zone.present();
    (cut, cut - (before.1 - zone.managed()))
}

/// Reserves `count` more frames at a zone's end.
fn reserve(zone: &mut Zone, count: u64) {
    let taken: Vec<_> = zone.holes.iter().chain(&zone.reserved).copied().collect();
    let is_managed = |pfn: &u64| !taken.iter().any(|range| range.has(Pfn(*pfn)));
    let more: Vec<u64> = zone.span.clone().rev().filter(is_managed).take(count as usize).collect();
    let Some(&first) = more.last() else { return };
    let old = std::mem::take(&mut zone.reserved);
    let holes = zone.holes.clone();
    let is_hole = |pfn: u64| holes.iter().any(|hole| hole.has(Pfn(pfn)));
    zone.reserved = runs(zone.span.clone(), |pfn| {
        !is_hole(pfn) && (pfn >= first || old.iter().any(|range| range.has(Pfn(pfn))))
    });
}

/// Returns the memory of a machine that goes on behind the last zone.
fn larger(memory: &Memory, percent: u32) -> Memory {
    let mut larger = memory.clone();
    let present: u64 = memory.zones.iter().map(Zone::present).sum();
    let more = (present * u64::from(percent - 100) / 100).next_multiple_of(BLOCK);
    let last = larger.zones.iter().enumerate().max_by_key(|(_, zone)| zone.span.end);
    let (last, _) = last.expect("a host has memory");
    let zone = &mut larger.zones[last];
    let end = zone.span.end + more;
    let bound =
        if zone.kind == ZoneKind::Dma32 { end.min(DMA32_END.max(zone.span.end)) } else { end };
    zone.span.end = bound;
    let top = if bound < end {
        let name = ZoneName { node: zone.name.node, name: ZoneKind::Normal.name().to_owned() };
        let (holes, reserved) = (Vec::new(), Vec::new());
        let normal = Zone { name, kind: ZoneKind::Normal, span: bound..end, holes, reserved };
        larger.zones.insert(last + 1, normal);
        last + 1
    } else {
        last
    };
    reserve(&mut larger.zones[top], more / DESCRIBED);
    larger
}

fn too_little(percent: u32, why: &str) -> ReplayError {
    ReplayError::Host(format!(
        "{percent} % of the host's memory is too little: {why}; name a larger size"
    ))
}

/// Returns true for each block of `host.in_use` that has to go so that the rest fits.
fn drop_some(
    host: &Host,
    settings: &HostSettings,
    map: &MemoryMap,
    memory: &Memory,
    percent: u32,
    resized: &mut Resized,
) -> Result<Vec<bool>, ReplayError> {
    let config = settings.config(map.clone(), FragmentationPolicy::LINUX_6_1, percent);
    let fresh = PageAllocator::new(&config)
        .map_err(|error| ReplayError::Host(format!("{percent} % of the host's memory: {error}")))?;
    let high: u64 = fresh.zones().map(|zone| zone.watermarks.high).sum();
    let used: u64 = host.in_use.iter().map(|held| held.order.pages()).sum();
    let mut excess = (used + high).saturating_sub(memory.managed());
    let mut dropped = vec![false; host.in_use.len()];
    let mut random = Random::new(host.seed, RESIZE);
    let uses: [(&[FrameUse], &mut u64); 2] = [
        (&[FrameUse::File], &mut resized.dropped),
        (&[FrameUse::Anon, FrameUse::Shmem], &mut resized.swapped),
    ];
    for (may_go, count) in uses {
        let may_go = |nth: &usize| may_go.contains(&host.in_use[*nth].usage);
        let mut blocks: Vec<usize> = (0..host.in_use.len()).filter(may_go).collect();
        random.shuffle(&mut blocks);
        for nth in blocks {
            if excess == 0 {
                break;
            }
            let pages = host.in_use[nth].order.pages();
            excess = excess.saturating_sub(pages);
            *count += pages;
            dropped[nth] = true;
        }
    }
    if excess > 0 {
        let why = format!("what cannot be given up is {excess} pages too many");
        return Err(too_little(percent, &why));
    }
    Ok(dropped)
}

/// Places each block that stays: where it was, or in a pageblock of its type, or in any. `None` for a dropped block.
fn place(
    host: &Host,
    memory: &Memory,
    types: &[(Pfn, Migratetype)],
    dropped: &[bool],
    resized: &mut Resized,
) -> Result<Vec<Option<Pfn>>, ReplayError> {
    let mut slots = Slots::of(memory, types);
    let mut places = vec![None; host.in_use.len()];
    let mut displaced = Vec::new();
    for (nth, held) in host.in_use.iter().enumerate().filter(|&(nth, _)| !dropped[nth]) {
        if slots.take(held.pfn.0, held.order) {
            places[nth] = Some(held.pfn);
        } else {
            displaced.push(nth);
        }
    }
    // Large blocks first: they fit least easily.
    displaced.sort_by_key(|&nth| std::cmp::Reverse(host.in_use[nth].order));
    for nth in displaced {
        let Held { pfn, order, usage, .. } = host.in_use[nth];
        let migratetype =
            if usage.is_movable() { Migratetype::Movable } else { host.fixed_type(pfn) };
        let place = slots.find(order, migratetype).ok_or_else(|| {
            ReplayError::Host(format!(
                "in that memory there is no place for the block of order {order} at frame {pfn}; name a larger size"
            ))
        })?;
        places[nth] = Some(Pfn(place));
        resized.displaced += order.pages();
    }
    Ok(places)
}

impl Host {
    /// Returns the type for an immovable block at a frame: that of its pageblock if it is reclaimable, or else
    /// unmovable.
    fn fixed_type(&self, pfn: Pfn) -> Migratetype {
        let behind = self.types.partition_point(|&(start, _)| start <= pfn);
        match behind.checked_sub(1).map(|at| self.types[at].1) {
            Some(Migratetype::Reclaimable) => Migratetype::Reclaimable,
            _ => Migratetype::Unmovable,
        }
    }
}

/// The frames of a machine, while blocks are placed on them.
struct Slots {
    zones: Vec<(Range<u64>, Vec<bool>)>,
    /// First frames and types of pageblocks, in order of preference.
    blocks: Vec<(u64, Migratetype)>,
    /// By type (last row: any type) and order: the index in `blocks` and the frame inside that block before which there
    /// is no room.
    behind: [[(usize, u64); Order::COUNT]; Migratetype::COUNT + 1],
}

impl Slots {
    /// Creates free slots for all managed frames.
    fn of(memory: &Memory, types: &[(Pfn, Migratetype)]) -> Slots {
        let mut blocks = Vec::new();
        // The lowest memory comes last: few devices can do with other.
        let zones = memory.zones.iter();
        for zone in zones
            .clone()
            .filter(|z| z.kind != ZoneKind::Dma)
            .chain(zones.clone().filter(|z| z.kind == ZoneKind::Dma))
        {
            blocks.extend(zone.pageblocks().map(|(start, _)| {
                let at = types.partition_point(|&(first, _)| first.0 < start + BLOCK);
                let of =
                    at.checked_sub(1).map(|at| types[at]).filter(|(first, _)| first.0 >= start);
                (start, of.map_or(Migratetype::Movable, |(_, migratetype)| migratetype))
            }));
        }
        let zones = zones.map(|zone| {
            let mut taken = vec![false; (zone.span.end - zone.span.start) as usize];
            for range in zone.holes.iter().chain(&zone.reserved) {
                let from = (range.start.0 - zone.span.start) as usize;
                taken[from..from + range.pages.get() as usize].fill(true);
            }
            (zone.span.clone(), taken)
        });
        let zones = zones.collect();
        Slots { zones, blocks, behind: [[(0, 0); Order::COUNT]; Migratetype::COUNT + 1] }
    }

    /// Takes the block at `pfn`; returns false if a part of it is not memory or not free.
    fn take(&mut self, pfn: u64, order: Order) -> bool {
        let end = pfn + order.pages();
        let zone = self.zones.iter_mut().find(|(span, _)| span.start <= pfn && end <= span.end);
        let Some((span, taken)) = zone else { return false };
        let frames = &mut taken[(pfn - span.start) as usize..(end - span.start) as usize];
        let is_free = frames.iter().all(|taken| !taken);
        if is_free {
            frames.fill(true);
        }
        is_free
    }

    /// Takes the first free block in a pageblock of the type, or else in any; `None` if there is none.
    fn find(&mut self, order: Order, migratetype: Migratetype) -> Option<u64> {
        self.find_in(order, Some(migratetype)).or_else(|| self.find_in(order, None))
    }

    fn find_in(&mut self, order: Order, migratetype: Option<Migratetype>) -> Option<u64> {
        let row = migratetype.map_or(Migratetype::COUNT, Migratetype::index);
        let (mut block, mut offset) = self.behind[row][order.index()];
        while let Some(&(start, of)) = self.blocks.get(block) {
            let is_meant = migratetype.is_none_or(|wanted| wanted == of);
            let is_aligned = start.is_multiple_of(order.pages()) || order <= Order::PAGEBLOCK;
            while is_meant && is_aligned && offset < BLOCK {
                let pfn = start + offset;
                offset += order.pages();
                if self.take(pfn, order) {
                    self.behind[row][order.index()] = (block, offset);
                    return Some(pfn);
                }
            }
            (block, offset) = (block + 1, 0);
        }
        self.behind[row][order.index()] = (block, offset);
        None
    }
}

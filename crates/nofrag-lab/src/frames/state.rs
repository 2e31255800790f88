//! A kernel's exact state: JSON, zone by zone, turned into a picture of an allocator.

use std::collections::BTreeMap;

use foldhash::{HashSet, HashSetExt};
use nofrag::page::{
    CompactionImage, CpuImage, FragmentationPolicy, Image, ListImage, MemoryMap, Migratetype,
    MinFree, NodeMap, PageConfig, PageblockImage, PfnRange, UsedBlock, Watermarks, ZoneImage,
    ZoneKind, ZoneMap,
};
use nofrag::units::{Order, PageCount, Pfn};
use serde::Deserialize;
use thiserror::Error;

/// The JSON file of a state.
#[derive(Debug, Deserialize)]
pub(super) struct State {
    zones: BTreeMap<String, ZoneState>,
    pub(super) lru: BTreeMap<String, Vec<u64>>,
    pub(super) frames: Vec<(u64, u64, u64, i64, i64, u64)>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ZoneState {
    wmark_min: u64,
    wmark_low: u64,
    pub(super) wmark_high: u64,
    wmark_promo: u64,
    pub(super) boost: u64,
    reserved_highatomic: u64,
    pub(super) lowmem_reserve: Vec<u64>,
    pub(super) start_pfn: u64,
    spanned: u64,
    /// Number of frames that are memory.
    #[serde(default)]
    present: Option<u64>,
    #[serde(default)]
    flags: u64,
    cached_free_pfn: u64,
    cached_migrate_pfn: [u64; 2],
    #[serde(default)]
    init_migrate_pfn: u64,
    #[serde(default)]
    init_free_pfn: u64,
    compact_considered: u8,
    compact_defer_shift: u8,
    compact_order_failed: i64,
    #[serde(default)]
    blockskip_flush: u8,
    pub(super) pcp: Pcp,
    #[serde(default)]
    other_cpus: BTreeMap<String, Pcp>,
    #[serde(default)]
    pub(super) stat: Vec<i64>,
    #[serde(default)]
    pub(super) stat_cpu: Vec<i64>,
    #[serde(default)]
    pub(super) stat_threshold: i64,
    free: BTreeMap<String, BTreeMap<String, Vec<u64>>>,
    blocks: Blocks,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pcp {
    high: u32,
    batch: u32,
    high_min: Option<u32>,
    high_max: Option<u32>,
    #[serde(default)]
    free_factor: u8,
    #[serde(default)]
    alloc_factor: u8,
    #[serde(default)]
    free_count: u32,
    #[serde(default)]
    flags: u8,
    pub(super) lists: BTreeMap<String, Vec<u64>>,
}

#[derive(Debug, Deserialize)]
struct Blocks {
    first_pfn: u64,
    r#type: String,
    skip: String,
}

/// The reason why a state cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum StateError {
    #[error("it is not a state: {0}")]
    Json(String),
    /// A name or number that is not known here.
    #[error("{0}")]
    Field(String),
}

/// The numbering of frame flags, and the kind of per-CPU lists, by a kernel's age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// Up to Linux 6.6.
    Fixed,
    /// From Linux 6.7 on.
    Tuned,
}

impl Era {
    /// Returns the flag of frames that were taken before the allocator came up.
    fn reserved(self) -> u64 {
        match self {
            Era::Fixed => 1 << 12,
            Era::Tuned => 1 << 13,
        }
    }
}

/// Upper bound of a frame and of a number of pages: 4 PiB.
const MOST: u64 = 1 << 40;
/// Upper bound of the frames of a state: 256 GiB.
const MOST_FRAMES: u64 = 1 << 26;
/// Upper bound of the frames that a zone spans, with its holes: 4 TiB. Scanners of compaction note each pageblock
/// without memory.
const MOST_SPANNED: u64 = 1 << 30;
/// Upper bound of the shift of compaction's pauses (`COMPACT_MAX_DEFER_SHIFT`).
const MOST_SHIFT: u8 = 6;
/// Bounds of per-CPU lists, in pages, and of their factors.
const MOST_CACHED: u32 = 1 << 26;
const MOST_FACTOR: u8 = 16;

impl State {
    pub(super) fn read(text: &str) -> Result<State, StateError> {
        let state: State =
            serde_json::from_str(text).map_err(|error| StateError::Json(error.to_string()))?;
        state.check()?;
        Ok(state)
    }

    /// Refuses numbers that no machine has: then sums of the others cannot overflow, and memory for all frames can be
    /// had.
    fn check(&self) -> Result<(), StateError> {
        let too_large = |what: &str| Err(StateError::Field(format!("{what} cannot be right")));
        if self.frames.iter().any(|run| run.0 > MOST || run.1 > MOST) {
            return too_large("a run of frames");
        }
        if self.frames.iter().map(|run| run.1).sum::<u64>() > MOST_FRAMES {
            return too_large("the number of frames");
        }
        for (name, zone) in &self.zones {
            if zone.spanned > MOST_SPANNED {
                return too_large(&format!("the span of zone {name}"));
            }
            let lists = zone.free.values().flat_map(BTreeMap::values).flatten();
            let cached = zone.pcps().flat_map(|pcp| pcp.lists.values().flatten());
            let numbers = [
                zone.wmark_min,
                zone.wmark_low,
                zone.wmark_high,
                zone.wmark_promo,
                zone.boost,
                zone.reserved_highatomic,
                zone.start_pfn,
                zone.spanned,
                zone.cached_free_pfn,
                zone.blocks.first_pfn,
            ];
            let mut all = numbers
                .iter()
                .chain(&zone.lowmem_reserve)
                .chain(&zone.cached_migrate_pfn)
                .chain(lists)
                .chain(cached);
            if all.any(|&number| number > MOST) || zone.compact_defer_shift > MOST_SHIFT {
                return too_large(&format!("a number of zone {name}"));
            }
            if zone.pcps().any(|pcp| !pcp.is_possible()) {
                return too_large(&format!("a per-CPU number of zone {name}"));
            }
        }
        Ok(())
    }

    pub(super) fn era(&self) -> Era {
        let tuned = self.zones.values().any(|zone| zone.pcp.high_min.is_some());
        if tuned { Era::Tuned } else { Era::Fixed }
    }

    /// Returns the zones, lowest first.
    pub(super) fn zones(&self) -> Result<Vec<(ZoneKind, &ZoneState)>, StateError> {
        let mut zones = Vec::new();
        for (name, zone) in &self.zones {
            let kind = ZoneKind::ALL.into_iter().find(|kind| kind.name() == name);
            let kind = kind.ok_or_else(|| StateError::Field(format!("there is no zone {name}")))?;
            zones.push((kind, zone));
        }
        zones.sort_unstable_by_key(|(kind, _)| *kind);
        Ok(zones)
    }

    /// Returns the names of the zones, in the order of an allocator's.
    pub(super) fn zone_names(&self) -> Result<Vec<&'static str>, StateError> {
        Ok(self.zones()?.into_iter().map(|(kind, _)| kind.name()).collect())
    }

    fn cpus(&self) -> usize {
        1 + self.zones.values().map(|zone| zone.other_cpus.len()).max().unwrap_or(0)
    }

    /// Returns the frame behind the last one of a zone's memory. Where it is within a pageblock, the kernel has unused
    /// frames up to the end of its section.
    fn end_of_memory(&self, zone: &ZoneState) -> u64 {
        let end = zone.start_pfn + zone.spanned;
        let Some(present) = zone.present.and_then(|pages| zone.start_pfn.checked_add(pages)) else {
            return end;
        };
        let fills = |flags: u64| flags == self.era().reserved();
        let mut behind = self.frames.iter().filter(|run| run.0 + run.1 > present && run.0 < end);
        let within = !present.is_multiple_of(Order::PAGEBLOCK.pages()) && present < end;
        if within && behind.all(|run| fills(run.2)) { present } else { end }
    }

    /// Returns the configuration of an allocator for this machine, under a policy.
    pub(super) fn config(&self, policy: FragmentationPolicy) -> Result<PageConfig, StateError> {
        let mut zones = Vec::new();
        for (kind, zone) in self.zones()? {
            let (start, end) = (zone.start_pfn, zone.start_pfn + zone.spanned);
            let last = self.end_of_memory(zone);
            let mut holes = Vec::new();
            let mut behind = start;
            for &(first, count, ..) in &self.frames {
                let (first, last) = (first.clamp(start, last), (first + count).clamp(start, last));
                if first > behind {
                    holes.push(PfnRange::between(Pfn(behind), Pfn(first)));
                }
                behind = behind.max(last);
            }
            if behind < end {
                holes.push(PfnRange::between(Pfn(behind), Pfn(end)));
            }
            let span = PageCount(zone.spanned);
            zones.push(ZoneMap { holes, ..ZoneMap::new(kind, Pfn(start), span) });
        }
        let cpus = (0..self.cpus() as u32).collect();
        let map = MemoryMap::new(vec![NodeMap { cpus, zones }], &[])
            .map_err(|error| StateError::Field(error.to_string()))?;
        Ok(PageConfig { min_free: MinFree::Formula, ..PageConfig::new(map, policy) })
    }

    /// Returns the state as an image from which an allocator is restored. Blocks in use of unknown size are single
    /// pages.
    pub(super) fn image(&self) -> Result<Image, StateError> {
        let mut free = HashSet::new();
        let mut zones = Vec::new();
        for (_, zone) in self.zones()? {
            let mut image = zone.image(self.era())?;
            let end = self.end_of_memory(zone);
            image.pageblocks.retain(|block| block.pfn.0 < end);
            let cached = image.cpus.iter().flat_map(|cpu| &cpu.lists);
            for list in image.free.iter().chain(cached) {
                for pfn in &list.blocks {
                    free.extend(pfn.0..pfn.0 + list.order.pages());
                }
            }
            zones.push(image);
        }
        let lru: HashSet<u64> = self.lru.values().flatten().copied().collect();
        let mut used = Vec::new();
        for &(first, count, flags, _, _, mapping) in &self.frames {
            let (head, tail) = (mapping >> 3 & 1 == 1, mapping >> 4 & 1 == 1);
            if flags & self.era().reserved() != 0 || tail && mapping >> 3 & 1 == 0 {
                continue;
            }
            let order = if head { Order::new((mapping >> 8) as u8) } else { None };
            let order = order.unwrap_or(Order::ZERO);
            for pfn in first..first + count {
                if !free.contains(&pfn) {
                    used.push(UsedBlock { pfn: Pfn(pfn), order, movable: lru.contains(&pfn) });
                }
            }
        }
        drop_overlaps(&mut used);
        Ok(Image { zones, used })
    }
}

/// Drops blocks that begin inside the block before them.
fn drop_overlaps(used: &mut Vec<UsedBlock>) {
    used.sort_unstable_by_key(|block| block.pfn);
    let mut behind = 0;
    used.retain(|block| {
        let keeps = block.pfn.0 >= behind;
        if keeps {
            behind = block.pfn.0 + block.order.pages();
        }
        keeps
    });
}

fn order(text: &str) -> Result<Order, StateError> {
    let order = text.parse().ok().and_then(Order::new);
    order.ok_or_else(|| StateError::Field(format!("there is no order {text}")))
}

fn migratetype(text: &str) -> Result<Migratetype, StateError> {
    let known = [
        ("unmovable", Migratetype::Unmovable),
        ("other", Migratetype::Unmovable),
        ("movable", Migratetype::Movable),
        ("reclaimable", Migratetype::Reclaimable),
        ("highatomic", Migratetype::HighAtomic),
        ("cma", Migratetype::Cma),
        ("isolate", Migratetype::Isolate),
    ];
    let found = known.into_iter().find(|(name, _)| text.to_ascii_lowercase() == *name);
    found.map(|(_, kind)| kind).ok_or_else(|| StateError::Field(format!("there is no type {text}")))
}

fn letter(letter: char) -> Option<Migratetype> {
    Some(match letter {
        'U' => Migratetype::Unmovable,
        'M' => Migratetype::Movable,
        'R' => Migratetype::Reclaimable,
        'H' => Migratetype::HighAtomic,
        'C' => Migratetype::Cma,
        'I' => Migratetype::Isolate,
        _ => return None,
    })
}

fn list(order: Order, kind: Migratetype, frames: &[u64]) -> ListImage {
    ListImage { order, migratetype: kind, blocks: frames.iter().copied().map(Pfn).collect() }
}

impl ZoneState {
    /// Returns the lists of all CPUs.
    fn pcps(&self) -> impl Iterator<Item = &Pcp> {
        [&self.pcp].into_iter().chain(self.other_cpus.values())
    }

    fn image(&self, era: Era) -> Result<ZoneImage, StateError> {
        let mut free = Vec::new();
        for (name, lists) in &self.free {
            for (kind, frames) in lists {
                free.push(list(order(name)?, migratetype(kind)?, frames));
            }
        }
        free.retain(|list| !list.blocks.is_empty());
        free.sort_by_key(|list| (list.order, list.migratetype.index()));
        let mut lowmem_reserve = [0; ZoneKind::COUNT];
        for (to, from) in lowmem_reserve.iter_mut().zip(&self.lowmem_reserve) {
            *to = *from;
        }
        let mut cpus = vec![self.pcp.image(era)?];
        let mut others: Vec<(u32, &Pcp)> = Vec::new();
        for (cpu, pcp) in &self.other_cpus {
            let number = cpu.parse().map_err(|_| StateError::Field(format!("CPU {cpu}")))?;
            others.push((number, pcp));
        }
        others.sort_unstable_by_key(|(cpu, _)| *cpu);
        for (_, pcp) in others {
            cpus.push(pcp.image(era)?);
        }
        Ok(ZoneImage {
            watermarks: Watermarks {
                min: self.wmark_min,
                low: self.wmark_low,
                high: self.wmark_high,
                promo: self.wmark_promo,
            },
            boost: PageCount(self.boost),
            lowmem_reserve,
            reserved_high_atomic: PageCount(self.reserved_highatomic),
            reclaim_active: self.flags >> 1 & 1 == 1,
            below_high: self.flags >> 2 & 1 == 1,
            free,
            cpus,
            pageblocks: self.pageblocks()?,
            compaction: self.compaction(),
        })
    }

    fn pageblocks(&self) -> Result<Vec<PageblockImage>, StateError> {
        let Blocks { first_pfn, r#type, skip } = &self.blocks;
        let mut blocks = Vec::new();
        for (number, (kind, skip)) in r#type.chars().zip(skip.chars()).enumerate() {
            if let Some(migratetype) = letter(kind) {
                let pfn = Pfn(first_pfn + number as u64 * Order::PAGEBLOCK.pages());
                blocks.push(PageblockImage { pfn, migratetype, skip: skip == '1' });
            }
        }
        Ok(blocks)
    }

    fn compaction(&self) -> CompactionImage {
        CompactionImage {
            sources: self.cached_migrate_pfn,
            targets: self.cached_free_pfn,
            first_source: self.init_migrate_pfn,
            first_target: self.init_free_pfn,
            considered: self.compact_considered,
            shift: self.compact_defer_shift,
            order_failed: u8::try_from(self.compact_order_failed).unwrap_or(0),
            flush: self.blockskip_flush != 0,
        }
    }
}

impl Pcp {
    fn is_possible(&self) -> bool {
        let pages = [Some(self.high), Some(self.batch), self.high_min, self.high_max];
        let pages = pages.into_iter().flatten().chain([self.free_count]);
        let factors = [self.free_factor, self.alloc_factor];
        pages.into_iter().all(|pages| pages <= MOST_CACHED)
            && factors.into_iter().all(|factor| factor <= MOST_FACTOR)
    }

    fn image(&self, era: Era) -> Result<CpuImage, StateError> {
        let mut lists = Vec::new();
        for (name, frames) in &self.lists {
            let (size, kind) =
                name.split_once('/').ok_or_else(|| StateError::Field(format!("list {name}")))?;
            lists.push(list(order(size)?, migratetype(kind)?, frames));
        }
        lists.retain(|list| !list.blocks.is_empty());
        lists.sort_by_key(|list| (list.order, list.migratetype.index()));
        let bounds = (self.high_min.unwrap_or(self.high), self.high_max.unwrap_or(self.high));
        Ok(CpuImage {
            batch: self.batch,
            high_min: bounds.0,
            high_max: bounds.1,
            high: if era == Era::Tuned { self.high } else { 0 },
            factor: if era == Era::Tuned { self.alloc_factor } else { self.free_factor },
            freed: self.free_count,
            freed_large: era == Era::Tuned && self.flags & 1 == 1,
            lists,
        })
    }
}
